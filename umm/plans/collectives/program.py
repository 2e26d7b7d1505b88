"""A collective as a chain of one copy or one sum, and its slices for those who write it."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from umm.dtypes import itemsize
from umm.errors import ProblemError
from umm.layouts.layout import Layout
from umm.numbers import as_int
from umm.plans.collectives.way import COLLECTIVES
from umm.program import Chain, Copy, Statement, Sum
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

X, Y, SUMS = "X", "Y", "sums"
IN_PLACE = ("all-reduce",)
SUMMING = ("reduce-scatter", "all-reduce", "reduce")


@dataclass(frozen=True)
class Collective:
    """A collective over all ranks of a schedule.

    The buffer is a matrix of one row; for an all-to-all of a row a rank. X is given and Y comes out; an
    all-reduce works on X in place. Pieces are cut as layouts cut columns, all as large as the first but the
    last ones, which may be empty.
    """

    what: str  # all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce
    # V as nccl-tests counts it: the whole gathered or reduced buffer, or a rank's buffer for an all-to-all.
    # At least one element is moved.
    nbytes: int
    ranks: int  # number of ranks
    dtype: str = "float32"  # type of the elements
    root: int = 0  # rank that a broadcast starts from and a reduce ends at

    def __post_init__(self) -> None:
        """Refuse an impossible collective."""
        if self.what not in COLLECTIVES:
            raise ProblemError(f"there is no collective {self.what!r}; choose from {', '.join(COLLECTIVES)}")
        itemsize(self.dtype)
        for name in ("nbytes", "ranks", "root"):
            object.__setattr__(self, name, as_int(getattr(self, name)))
        if type(self.nbytes) is not int or self.nbytes < 1:
            raise ProblemError(f"{self.nbytes!r} is not a size in bytes; it must be a whole number ≥ 1")
        if not isinstance(self.root, int) or not 0 <= self.root < self.ranks:
            raise ProblemError(f"root {self.root!r} is not one of the ranks 0 to {self.ranks - 1}")

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the buffer."""
        # An all-to-all needs a row for each sender, so that (sender, receiver) is a tile of rows × columns.
        rows = self.ranks if self.what == "all-to-all" else 1
        return rows, -(-self.nbytes // itemsize(self.dtype))

    @property
    def moved_bytes(self) -> int:
        """V as it is moved: whole elements."""
        return self.shape[1] * itemsize(self.dtype)

    @property
    def count(self) -> int:
        """Elements in the sense of nccl-tests' column: of the buffer, or of a rank's part of it.

        A call of all-gather, reduce-scatter or all-to-all is given the elements of a part.
        """
        parts = self.ranks if self.what in ("all-gather", "reduce-scatter", "all-to-all") else 1
        return -(-self.shape[1] // parts)

    @cached_property
    def chain(self) -> Chain:
        """The chain of one copy or one sum."""
        p = self.ranks
        split, everywhere = self.layout("col"), self.layout(f"row@{p}")
        # Column edges 0, …, 0, cols, …, cols: every tile but the root's is empty.
        rows, cols = self.shape
        edges = [0] * (self.root + 1) + [cols] * (p - self.root)
        alone = Layout(self.shape, [0, rows], edges, (1, p))
        before, after = {
            "all-gather": (split, everywhere),
            "reduce-scatter": (everywhere, split),
            "all-reduce": (everywhere, everywhere),
            "all-to-all": (self.layout("row"), split),
            "broadcast": (alone, everywhere),
            "reduce": (everywhere, alone),
        }[self.what]
        if self.what in IN_PLACE:
            return Chain(self.what, (Tensor(X, before, self.dtype, "both"),), (Sum(X, X),), p)
        tensors = Tensor(X, before, self.dtype, "input"), Tensor(Y, after, self.dtype, "output")
        statement: Statement = Sum(Y, X) if self.what in SUMMING else Copy(Y, X)
        return Chain(self.what, tensors, (statement,), p)

    def slices(self, build: Builder) -> dict[str, Any]:
        """Return the fields of an exchange that hold this collective's input and output."""
        x = build.placed(X)
        y = x if self.what in IN_PLACE else build.placed(Y)
        sums = build.placed(SUMS) if SUMS in {tensor.name for tensor in build.work} else None
        match self.what:
            case "all-gather":
                return {"given": x, "into": lambda rank, origin: _columns(y(rank), x(origin))}
            case "reduce-scatter":
                return {
                    "given": lambda rank, owner: _columns(x(rank), y(owner)),
                    "into": y,
                    "room": (lambda rank, owner: _columns(sums(rank), y(owner))) if sums else None,
                    "zeroed": True,
                }
            case "all-reduce":
                return {"given": x, "into": x}
            case "all-to-all":
                return {
                    "given": lambda rank, to: _columns(x(rank), y(to)),
                    "into": lambda rank, origin: y(rank)._replace(rows=x(origin).rows),
                }
            case "broadcast":
                return {"given": x(self.root), "into": y}
            case _:
                return {"given": x, "into": y(self.root), "room": sums, "zeroed": True}

    def layout(self, text: str) -> Layout:
        """Return the layout of a text for the buffer."""
        return Layout.parse(text, self.shape, self.ranks)


def _columns(piece: Slice, like: Slice) -> Slice:
    return piece._replace(cols=like.cols)

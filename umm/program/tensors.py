"""The tensors of a distributed program: named matrices, each with its layout, type and role."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import EXPANDED, FLOAT8, itemsize, rated
from umm.errors import ProblemError
from umm.files import fields_of, shown, whole_number
from umm.layouts.layout import Layout

ROLES = ("input", "output", "both", "work")
LARGEST = 2**60  # bytes and flop of a part must fit 64 bits
MOST_RANKS = 2**20
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,63}")
_KEYS = ("name", "shape", "dtype", "layout", "role")


@dataclass(frozen=True)
class Tensor:
    """A matrix over all ranks; batch dimensions are folded into its rows.

    >>> weights = Tensor("W1", Layout.parse("col@2", (6, 8), ranks=4), "float32", "input")
    >>> weights.shape, weights.nbytes_of_rank.tolist()
    ((6, 8), [96, 96, 96, 96])
    """

    name: str  # a letter or underscore, then letters, digits, underscores and dots; at most 64 in all
    layout: Layout  # its shape, and which rank holds what of it
    dtype: str  # type of its elements: float64, float32, float16, bfloat16, or one of 8 bits
    # `input` comes from outside and is never written, `output` goes out, `both` does both, `work` neither.
    role: str = "work"
    # Type of its elements in memory, such as `int4`, of a weight that kernels expand to `dtype` as they
    # multiply by it; empty for that type itself. It moves expanded.
    stored: str = ""

    def __post_init__(self) -> None:
        """Check the name, the types and the role."""
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise ProblemError(
                f"{shown(self.name)} cannot name a tensor; "
                "write a letter, then letters, digits, _ and . (64 at most): W1, layer0.dX"
            )
        itemsize(self.dtype, owner=f"tensor {self.name}")
        if self.stored and self.stored not in EXPANDED:
            known = ", ".join(EXPANDED)
            raise ProblemError(
                f"tensor {self.name} cannot be stored as {shown(self.stored)}; choose from {known}"
            )
        if self.stored and rated(self.dtype) in FLOAT8:
            raise ProblemError(
                f"tensor {self.name} of {self.dtype} cannot be stored as {self.stored}; 16 bits or more can"
            )
        if self.role not in ROLES:
            raise ProblemError(
                f"role {self.role!r} of tensor {self.name} is unknown; choose from {', '.join(ROLES)}"
            )
        _check_shape(self.name, *self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.layout.shape

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return itemsize(self.dtype)

    @property
    def nbytes_of_rank(self) -> NDArray[np.int64]:
        """Bytes of its tiles that each rank holds: an array of shape (ranks,)."""
        if self.stored:
            nbytes = np.ceil(self.layout.elements_of_rank * EXPANDED[self.stored])
            return np.asarray(nbytes, dtype=np.int64)
        return self.layout.elements_of_rank * self.itemsize

    @property
    def is_input(self) -> bool:
        """Whether its elements are given before the run."""
        return self.role in ("input", "both")

    @property
    def is_output(self) -> bool:
        """Whether its elements are a result of the run."""
        return self.role in ("output", "both")

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as JSON carries them; the ranks are not among them."""
        return {
            "name": self.name,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "layout": str(self.layout),
            "role": self.role,
        } | ({"stored": self.stored} if self.stored else {})

    @classmethod
    def from_dict(cls, data: Any, ranks: int) -> "Tensor":
        """Return the tensor that parsed JSON of :meth:`to_dict` holds.

        InputError in one line, if it is not a tensor.

        Args:
            data: What the JSON holds; taken as it says it: an unknown key or 4.0 rows are refused.
        """
        given = fields_of(data, "a tensor", _KEYS, ("stored",))
        name, shape, stored = given["name"], given["shape"], given.get("stored", "")
        if not isinstance(shape, list) or len(shape) != 2:
            raise ProblemError(f"shape {shown(shape)} of tensor {shown(name)} is not [rows, columns]")
        rows, cols = (whole_number(size, f"a size of tensor {shown(name)}", 1) for size in shape)
        _check_shape(name, rows, cols)
        for key in ("dtype", "layout", "role", "stored"):
            if not isinstance(given.get(key, ""), str):
                raise ProblemError(f"{key} {shown(given[key])} of tensor {shown(name)} is not a text")
        whole_number(ranks, "ranks", 1, MOST_RANKS + 1)
        layout = Layout.parse(given["layout"], (rows, cols), ranks)
        return cls(name, layout, given["dtype"], given["role"], stored)


class Program(Protocol):
    """A schedule's program: a :class:`~umm.program.problem.Problem` or a :class:`~umm.chain.Chain`.

    Its tensors are those it names itself; a schedule may add work tensors of its own.
    """

    @property
    def kind(self) -> str:
        """Its key in files: ``problem`` or ``chain``."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def title(self) -> str:
        """A title: ``C = AB, 4×6×2``, or the name of a chain."""

    @property
    def words(self) -> str:
        """The computation and its layouts, in a line."""

    @property
    def layout_words(self) -> str:
        """The layout of each tensor, in a line."""

    def facts(self, where: str) -> list[tuple[str, str]]:
        """Return the program as pairs of a name and its text, with the place it runs on."""

    def record(self) -> dict[str, Any]:
        """Return its sizes, layouts and types as plain values, for reports."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Its tensors, each over the same ranks and with a name of its own."""

    @property
    def p(self) -> int:
        """Number of ranks."""

    @property
    def flop(self) -> int:
        """Useful floating-point operations of its multiplies."""

    @property
    def flop_of_types(self) -> dict[str, int]:
        """All flop, useful or not, by type of the operands."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as JSON carries them."""


def by_name(tensors: Iterable[Tensor]) -> dict[str, Tensor]:
    """Return tensors by their names, in order; ProblemError if two have one name."""
    named: dict[str, Tensor] = {}
    for tensor in tensors:
        if tensor.name in named:
            raise ProblemError(f"two tensors are named {tensor.name}; give each a name of its own")
        named[tensor.name] = tensor
    return named


def _check_shape(name: str, rows: int, cols: int) -> None:
    if rows < 1 or cols < 1 or rows * cols >= LARGEST:
        raise ProblemError(
            f"tensor {shown(name)} cannot have {rows} x {cols} elements; "
            "it needs a row and a column, and fewer than 2^60 elements"
        )

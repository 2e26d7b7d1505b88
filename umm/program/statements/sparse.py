"""Sparse attention as a statement: each query attends to the keys that an indexer scores best."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from umm.errors import ProblemError
from umm.files import whole_number
from umm.interval import Interval
from umm.program.functions import function
from umm.program.functions.attention import Heads
from umm.program.statements.attention import Fused
from umm.program.statements.base import Array, Shapes, Tensors, Values, check_flop


@dataclass(frozen=True)
class SparseAttention(Fused):
    """out = softmax(q · kᵀ / √columns) · v over the keys chosen for each query; see ``functions/sparse.py``.

    Rows are tokens, those of one sequence after those of another. Fewer queries than keys are the last of
    their sequence, whose keys are among those given.

    Attributes:
        out: What is written, a head of values for each head of q.
        q: Queries.
        k: Keys.
        v: Values.
        iq: Index queries, heads of ``index`` columns side by side.
        ik: Index keys, one for each key.
        iw: Weights of index heads, a column a head.
        head: Columns of a head of queries and keys.
        index: Columns of an index head.
        top: Keys that a query attends to at most.
        share: Query heads that share a head of keys and values.
        sequences: Equal parts of the rows that attend to themselves alone.
        rotary: Rotary columns of queries and of keys, as of attention.
        scaled: Scores are divided by its root; 0 for all columns of a head.
        value: Columns of a head of values; 0 for as many as of keys.

    >>> print(SparseAttention("O", "Q", "K", "V", "Iq", "Ik", "Iw", head=64, index=32, top=2048))
    O = sparse_attention(Q, K, V, Iq, Ik, Iw) (2048 keys each)
    """

    kind: ClassVar[str] = "sparse_attention"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "iq", "ik", "iw", "rotary")
    q: str
    k: str
    v: str
    iq: str
    ik: str
    iw: str
    head: int
    index: int
    top: int
    share: int = 1
    sequences: int = 1
    rotary: tuple[str, ...] = ()
    scaled: int = 0
    value: int = 0

    causal, way, window, chunks = True, "gather", 0, 1

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        object.__setattr__(self, "rotary", tuple(self.rotary))
        for name in ("head", "index", "top", "share", "sequences"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 1, 2**31)
        for name in ("scaled", "value"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 0, 2**31)
        if len(self.rotary) not in (0, 2):
            raise ProblemError(f"rotary of {self.out} must be columns of queries and of keys, or none")

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads, keys that are values too once."""
        return tuple(dict.fromkeys(super().reads))

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The rotary columns of keys, and all of the indexer."""
        return (*self.rotary[1:], self.iq, self.ik, self.iw)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes do not fit."""
        (rows, cols), keys = tensors[self.q].shape, tensors[self.k].shape[0]
        count, indices = cols // self.head, tensors[self.iw].shape[1]
        if cols % (self.head * self.share) or rows % self.sequences or keys % self.sequences or keys < rows:
            raise ProblemError(
                f"{self.q} of {rows}x{cols} and {keys} keys are not {self.sequences} equal sequences of "
                f"heads of {self.head} that share keys by {self.share}, with a key for each query"
            )
        value = self.value or self.head
        wanted = {
            self.out: (rows, count * value), self.k: (keys, cols // self.share),
            self.iq: (rows, indices * self.index), self.ik: (keys, self.index), self.iw: (rows, indices),
        }  # fmt: skip
        wanted |= {} if self.v == self.k else {self.v: (keys, count // self.share * value)}
        if self.rotary:
            width = tensors[self.rotary[1]].shape[1]
            wanted |= {self.rotary[0]: (rows, count * width), self.rotary[1]: (keys, width)}
        for name, shape in wanted.items():
            if tensors[name].shape != shape:
                got = "x".join(map(str, tensors[name].shape))
                raise ProblemError(f"{name} is {got}; it must be {shape[0]}x{shape[1]} beside {self.q}")
        if self.out in self.reads:
            raise ProblemError(f"it reads {self.out} while it writes it; write to another tensor")
        check_flop(self.flop(tensors))

    def attended(self, tensors: Tensors) -> Heads:
        """Return its heads with a window of as many keys as a query attends to: as many pairs."""
        return self.heads(tensors)._replace(window=self.top)

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: of chosen keys, and of the scores of all visible ones."""
        heads, some = self.heads(tensors), self.attended(tensors)
        both = Interval(0, heads.queries), Interval(0, heads.keys)
        count, indices = tensors[self.q].shape[1] // self.head, tensors[self.iw].shape[1]
        attended = some.flop(backward=False) * some.pairs(*both) * count
        return self.sequences * (attended + 2 * self.index * indices * heads.pairs(*both))

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return queries and results; keys with values."""
        return [(self.out, x) for x in (self.q, *self.rotary[:1])] + [(self.k, self.v)] * (self.k != self.v)

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns of a head; whole rows of the indexer."""
        width = shapes[self.rotary[1]][1] if self.rotary else 0
        units = dict.fromkeys((self.iq, self.ik, self.iw), 0) | dict.fromkeys(self.rotary, width)
        return (
            units
            | {self.q: self.head, self.out: self.value or self.head, self.k: self.head}
            | ({self.v: self.value or self.head})
        )

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return the remark that its seconds are assumed."""
        return {"sparse": "assumed: seconds of an indexer and of gathered keys, from their flop and bytes"}

    @property
    def fn(self) -> str:
        """Name of its function."""
        return "sparse_attend" + "_rotary" * bool(self.rotary)

    def parameters(self, heads: Heads) -> dict[str, int]:
        """Return the parameters of its function."""
        return heads.parameters | {"index": self.index, "top": self.top}

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its output, with all scores stored."""
        names = (self.q, self.k, self.v, self.iq, self.ik, self.iw, *self.rotary)
        spans = [
            (Interval(0, rows), Interval(0, cols))
            for rows, cols in (tensors[x].shape for x in (self.out, *names))
        ]
        rows, cols = spans[0]
        result = function(self.fn)(
            *(values[x] for x in names), rows=rows, cols=cols, shape=(rows.stop, cols.stop), spans=spans,
            **self.parameters(self.heads(tensors)),
        )  # fmt: skip
        return {self.out: result.astype(np.float64)}

    def __str__(self) -> str:
        return f"{self.out} = sparse_attention({', '.join(self.reads)}) ({self.top} keys each)"

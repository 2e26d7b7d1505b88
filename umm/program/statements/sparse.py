"""Sparse attention as statements: each query attends to the keys an indexer scores best; and gradients."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar

from umm.errors import ProblemError
from umm.files import whole_number
from umm.interval import Interval
from umm.program.functions.attention import Heads
from umm.program.statements.attention import Fused
from umm.program.statements.base import Array, Shapes, Shares, Tensors, Values


@dataclass(frozen=True)
class Sparse(Fused):
    """Sparse attention, or its gradients: fields and sizes that both have.

    Rows are tokens, those of one sequence after those of another. Fewer queries than keys are the last of
    their sequence, whose keys are among those given.
    """

    q: str  # queries
    k: str  # keys
    v: str  # values
    iq: str  # index queries, heads of `index` columns side by side
    ik: str  # index keys, one for each key
    iw: str  # weights of index heads, a column a head
    head: int = field(kw_only=True)  # columns of a head of queries and keys
    index: int = field(kw_only=True)  # columns of an index head
    top: int = field(kw_only=True)  # keys that a query attends to at most
    share: int = field(default=1, kw_only=True)  # query heads that share a head of keys and values
    sequences: int = field(default=1, kw_only=True)  # equal parts of the rows that attend to themselves alone
    # Rotary columns of queries and of keys, as of attention.
    rotary: tuple[str, ...] = field(default=(), kw_only=True)
    # Scores are divided by its root; 0 for all columns of a head.
    scaled: int = field(default=0, kw_only=True)
    value: int = field(default=0, kw_only=True)  # columns of a head of values; 0 for as many as of keys

    causal, way, window, chunks = True, "gather", 0, 1

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        object.__setattr__(self, "rotary", tuple(self.rotary))
        self.check_numbers()
        for name in ("index", "top"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 1, 2**31)

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The rotary columns of keys, and all of the indexer."""
        return (*self.rotary[1:], self.iq, self.ik, self.iw)

    def _results(self) -> Iterator[tuple[str, str]]:
        """Yield each result with the operand that it is like; none of that of attention."""
        yield self.out, ""

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
            self.q: (rows, cols), self.k: (keys, cols // self.share), self.iq: (rows, indices * self.index),
            self.ik: (keys, self.index), self.iw: (rows, indices),
        }  # fmt: skip
        wanted |= {} if self.v == self.k else {self.v: (keys, count // self.share * value)}
        if self.rotary:
            width = tensors[self.rotary[1]].shape[1]
            wanted |= {self.rotary[0]: (rows, count * width), self.rotary[1]: (keys, width)}
        wanted |= {x: wanted.get(like, (rows, count * value)) for x, like in self._results()}
        self.check_sizes(wanted, tensors, self.q)
        self.check_apart()
        self.check_flop(tensors)

    def attended(self, tensors: Tensors) -> Heads:
        """Return its heads with a window of as many keys as a query attends to: as many pairs."""
        return self.heads(tensors)._replace(window=self.top)

    def _flop(self, tensors: Tensors, each: int, again: int) -> int:
        """Return operations: so many a chosen pair and head, and of all scores and chosen ones once more."""
        # each: of a chosen pair of a query and a key in a head. again: how many times a chosen pair's index
        # products come beside the scores.
        heads, some = self.heads(tensors), self.attended(tensors)
        both = Interval(0, heads.queries), Interval(0, heads.keys)
        count, indices = tensors[self.q].shape[1] // self.head, tensors[self.iw].shape[1]
        products = heads.pairs(*both) + again * some.pairs(*both)
        return self.sequences * (each * some.pairs(*both) * count + 2 * self.index * indices * products)

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return queries and results; keys with values."""
        queries = [(self.out, x) for x in (self.q, *self.rotary[:1])]
        return queries + [(self.k, self.v)] * (self.k != self.v)

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns of a head; whole rows of the indexer."""
        width, value = shapes[self.rotary[1]][1] if self.rotary else 0, self.value or self.head
        units = dict.fromkeys((self.iq, self.ik, self.iw), 0) | dict.fromkeys(self.rotary, width)
        units |= {self.q: self.head, self.k: self.head} | ({} if self.v == self.k else {self.v: value})
        return units | {x: units.get(like, value) for x, like in self._results()}

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return the remark that its seconds are assumed."""
        return {"sparse": "assumed: seconds of an indexer and of gathered keys, from their flop and bytes"}

    def parameters(self, heads: Heads) -> dict[str, int]:
        """Return the parameters of its functions."""
        return heads.parameters | {"index": self.index, "top": self.top}

    def _computed(self, fn: str, out: str, reads: tuple[str, ...], values: Values, tensors: Tensors,
                  **more: int) -> Array:  # fmt: skip
        """Return the result of a function on whole tensors, with all scores stored."""
        called, read = fn + "_rotary" * bool(self.rotary), (*reads, *self.rotary)
        how = self.parameters(self.heads(tensors)) | more
        return self.computed(called, out, read, values, tensors, **how)


@dataclass(frozen=True)
class SparseAttention(Sparse):
    """out = softmax(q · kᵀ / √columns) · v over the keys chosen for each query; see ``functions/sparse.py``.

    What is written has a head of values for each head of q.

    >>> print(SparseAttention("O", "Q", "K", "V", "Iq", "Ik", "Iw", head=64, index=32, top=2048))
    O = sparse_attention(Q, K, V, Iq, Ik, Iw) (2048 keys each)
    """

    kind: ClassVar[str] = "sparse_attention"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "iq", "ik", "iw", "rotary")

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: of chosen keys, and of the scores of all visible ones."""
        return self._flop(tensors, self.heads(tensors).flop(backward=False), again=0)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its output."""
        reads = (self.q, self.k, self.v, self.iq, self.ik, self.iw)
        return {self.out: self._computed("sparse_attend", self.out, reads, values, tensors)}

    def __str__(self) -> str:
        return f"{self.out} = sparse_attention({', '.join(self.reads)}) ({self.top} keys each)"


@dataclass(frozen=True)
class SparseAttentionGrad(Sparse):
    """The gradients of :class:`SparseAttention`, and of its indexer's own loss; scores are computed again.

    What is written first is the gradient by queries.
    """

    kind: ClassVar[str] = "sparse_attention_grad"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "iq", "ik", "iw", "do", "rotary")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "dk", "dv", "diq", "dik", "diw", "drotary")
    gives_queries: ClassVar[bool] = True
    do: str  # the gradient by what attention gave
    dk: str  # the gradient by keys; by values too, if they are the keys
    diq: str  # the gradient by index queries, of the indexer's loss, as are the next two
    dik: str  # the gradient by index keys
    diw: str  # the gradient by weights of index heads
    dv: str = ""  # the gradient by values; none if they are the keys
    drotary: tuple[str, ...] = ()  # the gradients by rotary columns, if there are such

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        object.__setattr__(self, "drotary", tuple(self.drotary))
        super().__post_init__()
        if len(self.drotary) != len(self.rotary) or bool(self.dv) == (self.v == self.k):
            raise ProblemError(f"{self} needs a gradient by each of what it reads, and no other")

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The rotary columns of keys, all of the indexer, and the gradients by them."""
        return (*super().of_all_heads, *self.drotary[1:], self.diq, self.dik, self.diw)

    def _results(self) -> Iterator[tuple[str, str]]:
        names = (self.out, self.dk, *([self.dv] if self.dv else []), self.diq, self.dik, self.diw)
        like = (self.q, self.k, *([self.v] if self.dv else []), self.iq, self.ik, self.iw)
        yield from zip((*names, *self.drotary), (*like, *self.rotary), strict=True)
        yield self.do, ""

    @property
    def functions(self) -> list[tuple[str, str]]:
        """Each function with the gradient that it writes, or adds to where values are the keys."""
        names = (self.out, self.dk, self.dv or self.dk, self.diq, self.dik, self.diw, *self.drotary)
        return list(
            zip((f"sparse_d{x}" for x in ("q", "k", "v", "iq", "ik", "iw", "qr", "kr")), names, strict=False)
        )

    def flop(self, tensors: Tensors) -> int:
        """Return its operations: five products of chosen pairs; scores again, and two more of chosen ones."""
        return self._flop(tensors, self.heads(tensors).flop(backward=True), again=2)

    def useful_flop(self, tensors: Tensors, seen: Shares) -> int:
        """Return its flop without the scores that it computes again."""
        return self.flop(tensors) - self._flop(tensors, self.heads(tensors).flop_again, again=0)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs."""
        reads = (self.q, self.k, self.v, self.iq, self.ik, self.iw, self.do)
        count, result = tensors[self.q].shape[1] // self.head, dict[str, Array]()
        for fn, out in self.functions:
            made = self._computed(fn, out, reads, values, tensors, count=count)
            result[out] = result[out] + made if out in result else made
        return result

    def __str__(self) -> str:
        return (
            f"{', '.join(self.outs)} = sparse_attention_grad({', '.join(self.reads)}) ({self.top} keys each)"
        )

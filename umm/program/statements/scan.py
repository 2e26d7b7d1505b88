"""Scans as statements: recurrences over tokens with a state for each head, and their gradients."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.program.functions.scan import RATED, States
from umm.program.statements.base import Array, Shapes, Shares, Statement, Tensors, Values

Letters = tuple[str, str]  # rows and columns of an operand in a signature of `functions/scan.py`
_KEYS, _VALUES, _DECAYS, _RATES, _STATES = ("r", "g"), ("r", "c"), ("r", "h"), ("r", "p"), ("k", "c")
PRICE = "assumed: seconds of scans, from the flop and bytes of chunked kernels"


@dataclass(frozen=True)
class Recurrent(Statement):
    """A scan, or its gradients: fields and sizes that both have.

    Rows are tokens, those of one sequence after those of another; columns are heads side by side. With
    ``share`` 1 and no ``delta`` it is Mamba-2 (q = C, k = B, rate = Δ, decay = Δ·A), with ``delta`` a gated
    delta net, with ``rated`` and ``value`` 1 Mamba-1 (decay = A).
    """

    # The fields that name tensors, each with its letters in functions of a scan.
    LETTERS: ClassVar[Mapping[str, Letters]] = {
        "q": _KEYS, "k": _KEYS, "v": _VALUES, "decay": _DECAYS, "rate": _RATES, "state": _STATES,
    }  # fmt: skip
    q: str  # queries
    k: str  # keys, like q
    v: str  # values
    decay: str  # logarithm of what is left of a state, a column a head, or a head's key columns
    rate: str  # factor of what is taken up, a column a head
    key: int = field(kw_only=True)  # columns of a head of queries and keys
    value: int = field(kw_only=True)  # columns of a head of values
    share: int = field(default=1, kw_only=True)  # heads of values that share a head of queries and keys
    sequences: int = field(default=1, kw_only=True)  # equal parts of the rows, each with states of its own
    # Whether what the state has for a key is taken off its values first.
    delta: bool = field(default=False, kw_only=True)
    # Whether decays are one row, for all tokens, and multiplied by their rates.
    rated: bool = field(default=False, kw_only=True)
    # The states before the first tokens: key columns of each sequence one below the other, columns like v;
    # zero if not given.
    state: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        for name in ("key", "value", "share", "sequences"):
            whole_number(getattr(self, name), f"{name} of {self.out}", 1, 2**31)
        for name in ("delta", "rated"):
            if not isinstance(getattr(self, name), bool):
                raise ProblemError(
                    f"{name} = {shown(getattr(self, name))} of {self.out} is not true or false"
                )

    def states(self, tensors: Tensors) -> States:
        """Return how its tokens, heads and columns belong together."""
        (rows, cols), decays = tensors[self.v].shape, tensors[self.decay].shape[1]
        tokens, wide = rows // self.sequences, decays // (cols // self.value)
        return States(self.key, self.value, self.share, tokens, self.delta, wide, self.rated)

    def heads(self, tensors: Tensors) -> int:
        """Return how many heads of values there are."""
        return tensors[self.v].shape[1] // self.value

    @property
    def by_letter(self) -> tuple[tuple[str, Letters], ...]:
        """The tensors it reads and writes, each with its letters in functions of a scan."""
        named = ((getattr(self, x), letters) for x, letters in self.LETTERS.items())
        rows = "1" if self.rated else "r"
        return tuple((name, (rows, "h") if x == _DECAYS else x) for name, x in named if name)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes do not fit."""
        rows, cols = tensors[self.v].shape
        if cols % self.value or rows % self.sequences:
            raise ProblemError(
                f"{self.v} of {rows}x{cols} is not {self.sequences} equal sequences of heads of {self.value}"
            )
        heads, decays = cols // self.value, tensors[self.decay].shape[1]
        if heads % self.share:
            raise ProblemError(f"{heads} heads of {self.v} cannot share keys by {self.share}")
        by_key = self.key if decays == heads * self.key else 1
        widths = {"g": heads // self.share * self.key, "c": cols, "h": heads * by_key, "p": heads}
        heights = {"k": self.sequences * self.key, "r": rows, "1": 1}
        wanted = {name: (heights[tall], widths[wide]) for name, (tall, wide) in self.by_letter}
        self.check_sizes(wanted, tensors, self.v)
        self.check_apart()
        self.check_flop(tensors)

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return values with all that has a number for each token and head, or head of its keys."""
        return [(self.v, x) for x, (rows, _) in self.by_letter if x != self.v and rows != "1"]

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns of a head."""
        decays = shapes[self.decay][1] * self.value // shapes[self.v][1]
        widths = {"g": self.key, "c": self.value, "h": decays, "p": 1}
        return {x: widths[letters[1]] for x, letters in self.by_letter}

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return the remark that its seconds are assumed."""
        return {"scan": PRICE}

    @property
    def _name(self) -> str:
        """Name of the function, in words."""
        return f"{'delta_' * self.delta}{RATED if self.rated else 'scan'}"

    def _computed(self, fn: str, out: str, reads: list[str], values: Values, tensors: Tensors) -> Array:
        """Return the result of a function of a scan on whole tensors."""
        called = fn.replace("scan", RATED, 1) if self.rated else fn
        return self.computed(called, out, reads, values, tensors, **self.states(tensors).parameters)


@dataclass(frozen=True)
class Scan(Recurrent):
    """out = Sᵀq token by token, of states S that decay and take up k·(rate · v)ᵀ; see ``functions/scan.py``.

    What is written is like v.

    >>> print(Scan("O", "Q", "K", "V", "D", "R", "S", key=64, value=128, delta=True))
    O = delta_scan(Q, K, V, D, R)
    """

    kind: ClassVar[str] = "scan"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "decay", "rate", "state")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "last")
    LETTERS: ClassVar[Mapping[str, Letters]] = {**Recurrent.LETTERS, "out": _VALUES, "last": _STATES}
    last: str  # the states after the last token of each sequence, like `state`

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: of the recurrence, whatever a kernel does more."""
        return self.states(tensors).flop(tensors[self.v].shape[0], self.heads(tensors))

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs, token by token."""
        more = [self.state] if self.state else []
        ending, reads = "_from" * bool(self.state), [self.k, self.v, self.decay, self.rate, *more]
        return {
            self.out: self._computed(f"scan{ending}", self.out, [self.q, *reads], values, tensors),
            self.last: self._computed(f"scan_state{ending}", self.last, reads, values, tensors),
        }

    def __str__(self) -> str:
        return f"{self.out} = {self._name}({', '.join(self.reads)})"


@dataclass(frozen=True)
class ScanGrad(Recurrent):
    """The gradients of :class:`Scan` by all it reads, given that by its result; states are computed again.

    What is written first is the gradient by queries.
    """

    kind: ClassVar[str] = "scan_grad"
    READS: ClassVar[tuple[str, ...]] = ("q", "k", "v", "decay", "rate", "do", "state")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "dk", "dv", "ddecay", "drate", "dstate")
    LETTERS: ClassVar[Mapping[str, Letters]] = {
        **Recurrent.LETTERS, "do": _VALUES, "out": _KEYS, "dk": _KEYS, "dv": _VALUES, "ddecay": _DECAYS,
        "drate": _RATES, "dstate": _STATES,
    }  # fmt: skip
    do: str  # the gradient by what the scan gave
    dk: str  # the gradient by keys
    dv: str  # the gradient by values
    ddecay: str  # the gradient by decays
    drate: str  # the gradient by rates
    dstate: str  # the gradient by the states before the first tokens

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: twice those of the scan, and once its own again."""
        return 3 * self.states(tensors).flop(tensors[self.v].shape[0], self.heads(tensors))

    def useful_flop(self, tensors: Tensors, seen: Shares) -> int:
        """Return its flop without the scan that it computes again."""
        return self.flop(tensors) * 2 // 3

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs, token by token backwards."""
        more = [self.state] if self.state else []
        reads = [self.q, self.k, self.v, self.decay, self.rate, self.do, *more]
        fns = (f"scan_{x}{'_from' * bool(self.state)}" for x in ("dq", "dk", "dv", "dd", "dr", "ds"))
        return {
            out: self._computed(fn, out, reads, values, tensors)
            for out, fn in zip(self.outs, fns, strict=True)
        }

    def __str__(self) -> str:
        return f"{', '.join(self.outs)} = {self._name}_grad({', '.join(self.reads)})"

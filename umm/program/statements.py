"""The statements of a chain: multiply, map, copy, and sum over replicas; and their form in files."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import is_float8, rounded_under_scales
from umm.errors import ProblemError, did_you_mean
from umm.files import fields_of, shown
from umm.program.attention import Attention, AttentionGrad
from umm.program.experts import Combine, Dispatch, Grouped, OfExperts, SumCopies
from umm.program.functions import function
from umm.program.multiply import Multiply, Tensors, Values
from umm.program.tensors import Tensor


@dataclass(frozen=True)
class Map:
    """out = fn(reads…), a function of :mod:`umm.program.functions`; out may be one of the reads, in place.

    Attributes:
        out: The tensor written.
        fn: Name of the function.
        reads: The tensors it reads.
        parameters: What the function takes besides.
        fused: Reads that the map before has written or read: where the same rank has computed them, this
            map goes on with them in registers, in the same pass over memory.
        beside: What the map before writes, if one kernel runs both, as serving engines turn Q and K. Where
            the same rank has what both read, this map has no launch.
    """

    kind: ClassVar[str] = "map"
    READS: ClassVar[tuple[str, ...]] = ("reads", "fused")
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    fn: str
    reads: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    fused: tuple[str, ...] = ()
    beside: str = ""

    def __post_init__(self) -> None:
        """Check that there is such a function, and its parameters."""
        for name in ("reads", "fused"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in self.fused:
            if name not in self.reads:
                raise ProblemError(f"{name} is fused into {self}, which does not read it")
        if not function(self.fn).is_map:
            raise ProblemError(f"{self.fn} is a step of fused attention; write a statement of kind attention")
        object.__setattr__(self, "parameters", function(self.fn).checked(self.parameters))

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes the function does not take."""
        function(self.fn).checked(self.parameters, self._whole(tensors))

    def _whole(self, tensors: Tensors) -> tuple[int, int]:
        return function(self.fn).whole([tensors[x].shape for x in (self.out, *self.reads)])

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    def results(self, values: Values, tensors: Tensors) -> dict[str, NDArray[np.float64]]:
        """Return what out holds afterwards."""
        rows, cols = whole = self._whole(tensors)
        reads = (values[x] for x in self.reads)
        result = function(self.fn)(*reads, rows=(0, rows), cols=(0, cols), shape=whole, **self.parameters)
        wide, dtype = result.astype(np.float64), tensors[self.out].dtype
        return {self.out: rounded_under_scales(wide, dtype) if is_float8(dtype) else wide}

    def __str__(self) -> str:
        return f"{self.out} = {self.fn}({', '.join(self.reads)})"


@dataclass(frozen=True)
class Copy:
    """out = x in another layout: redistribution, all-gather, all-to-all, broadcast to replicas."""

    kind: ClassVar[str] = "copy"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    x: str

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensor it reads."""
        return (self.x,)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors of two shapes or types, and one copied to itself."""
        if self.out == self.x:
            raise ProblemError(f"{self.x} is copied to itself; leave it out")
        _check_alike(tensors[self.out], tensors[self.x])

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    def results(self, values: Values, tensors: Tensors) -> dict[str, NDArray[np.float64]]:
        """Return what out holds afterwards."""
        return {self.out: values[self.x].copy()}

    def __str__(self) -> str:
        return f"{self.out} = copy of {self.x}"


@dataclass(frozen=True)
class Sum:
    """out = the sum over x's replicas, which were given partial sums: all-reduce, reduce-scatter, reduce.

    Where the replicas were given one matrix, it is added as often as there are replicas. With out = x every
    replica holds the sum afterwards. What a multiply gives is whole in every replica, so it needs no sum.
    """

    kind: ClassVar[str] = "sum"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    WRITES: ClassVar[tuple[str, ...]] = ("out",)
    out: str
    x: str

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return (self.out,)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensor it reads."""
        return (self.x,)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors of two shapes or types."""
        _check_alike(tensors[self.out], tensors[self.x])

    def flop(self, tensors: Tensors) -> int:
        """Return 0: only multiplies count."""
        return 0

    def results(self, values: Values, tensors: Tensors) -> dict[str, NDArray[np.float64]]:
        """Return what out holds afterwards."""
        given = values[self.x]
        total = given.sum(axis=0) if given.ndim == 3 else given * tensors[self.x].layout.replicas
        return {self.out: total}

    def __str__(self) -> str:
        return f"{self.out} = sum of {self.x} over replicas"


Statement = Multiply | Map | Copy | Sum | Attention | AttentionGrad | OfExperts


def reading(statement: Statement, names: Mapping[str, str]) -> Statement:
    """Return a statement that reads other tensors, those that have another name.

    >>> print(reading(Map("Y", "add", ("X", "R")), {"X": "Z"}))
    Y = add(Z, R)
    """
    return _with_names(statement, names, statement.READS)


def renamed(statement: Statement, names: Mapping[str, str]) -> Statement:
    """Return a statement on other tensors, those that have another name, read and written.

    >>> print(renamed(Map("Y", "add", ("X", "R")), {"X": "Z", "Y": "W"}))
    W = add(Z, R)
    """
    return _with_names(statement, names, (*statement.READS, *statement.WRITES))


def _with_names(statement: Statement, names: Mapping[str, str], of: tuple[str, ...]) -> Statement:
    changed: dict[str, Any] = {}
    for name in of:
        held = getattr(statement, name)
        changed[name] = (
            tuple(names.get(x, x) for x in held) if isinstance(held, tuple) else names.get(held, held)
        )
    return replace(statement, **changed)


KINDS: dict[str, type[Statement]] = {
    x.kind: x
    for x in (Multiply, Map, Copy, Sum, Attention, AttentionGrad, Dispatch, Combine, Grouped, SumCopies)
}


def statement_to_dict(statement: Statement) -> dict[str, Any]:
    """Return a statement as plain values, as JSON carries them; what is as by default is left out.

    >>> statement_to_dict(Multiply("Y", "X", "W", trans=("b",)))
    {'kind': 'multiply', 'out': 'Y', 'a': 'X', 'b': 'W', 'trans': ['b']}
    """
    row: dict[str, Any] = {"kind": statement.kind}
    for column in fields(statement):
        value = getattr(statement, column.name)
        if value not in ((), {}) and value != column.default:
            row[column.name] = list(value) if isinstance(value, tuple) else value
    return row


def statement_from_dict(data: Any, number: int = 1) -> Statement:
    """Return the statement that parsed JSON of :func:`statement_to_dict` holds.

    Args:
        data: The parsed JSON.
        number: Which statement of its chain it is, from 1, for a message.

    Raises:
        InputError: in one line, if it is not a statement.
    """
    kind = data.get("kind") if isinstance(data, dict) else None
    if isinstance(kind, str) and kind not in KINDS:
        known = did_you_mean(kind, KINDS)
        raise ProblemError(f"kind {shown(kind)} of statement {number} is unknown; {known}")
    if not isinstance(kind, str):
        raise ProblemError(f"{shown(data)} is not a statement; its kind must be one of {', '.join(KINDS)}")
    of = KINDS[kind]
    needed = ("kind", *(x.name for x in fields(of) if x.default is MISSING and x.default_factory is MISSING))
    optional = tuple(x.name for x in fields(of) if x.name not in needed)
    given = {
        key: value for key, value in fields_of(data, f"a {kind}", needed, optional).items() if key != "kind"
    }
    for key, value in given.items():
        named = key in needed and key != "head"
        if named and not (isinstance(value, str) and value.isprintable()):
            raise ProblemError(f"{key} = {shown(value)} of a {kind} is not a name")
        if key in ("trans", "reads", "cache", "fused", "rotary", "drotary"):
            _check_list(value, str, f"{key} of a {kind}", "names")
        elif key in ("batch_axes", "groups"):
            _check_list(value, int, f"{key} of a {kind}", "whole numbers")
        elif key in ("gates", "add", "each", "again", "copies") and not isinstance(value, bool):
            raise ProblemError(f"{key} = {shown(value)} of a {kind} is not true or false")
        elif key in ("scale", "beside") and not isinstance(value, str):
            raise ProblemError(f"{key} = {shown(value)} of a {kind} is not a name")
        elif key == "parameters" and not isinstance(value, dict):
            raise ProblemError(f"parameters = {shown(value)} of a map is not an object of names and numbers")
    return of(**given)


def _check_list(value: Any, of: type, what: str, words: str) -> None:
    if not isinstance(value, list) or not all(type(x) is of and str(x).isprintable() for x in value):
        raise ProblemError(f"{what} = {shown(value)} is not a list of {words}")


def _check_alike(out: Tensor, x: Tensor) -> None:
    if out.shape != x.shape:
        (rows, cols), (out_rows, out_cols) = x.shape, out.shape
        raise ProblemError(
            f"{x.name} is {rows}x{cols} and {out.name} {out_rows}x{out_cols}; they must have one shape"
        )
    if out.dtype != x.dtype:
        raise ProblemError(f"{x.name} is {x.dtype} and {out.name} {out.dtype}; convert by map cast")

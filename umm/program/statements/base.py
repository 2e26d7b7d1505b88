"""The protocol of a statement: its tensors, checks, flop and reference; and its form in files."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from importlib import import_module
from math import prod
from pkgutil import iter_modules
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from umm.errors import ProblemError, did_you_mean
from umm.files import fields_of, shown
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.program.tensors import LARGEST, Tensor

Array = NDArray[np.float64]
Values = Mapping[str, Array]
Tensors = Mapping[str, Tensor]
Shapes = Mapping[str, tuple[int, int]]
Shares = dict[str, tuple[int, int]]
"""Of stored scores that a mask cuts, the pairs of a query and a key that are seen, and all pairs."""

_KINDS: dict[str, type["Statement"]] = {}  # the kinds imported so far, by their names in files


@dataclass(frozen=True)
class Statement(ABC):
    """One statement of a chain on whole tensors; a kind is a frozen dataclass in a file of its own.

    Others ask a statement, never its class: a kind overrides what differs from the defaults here.
    """

    kind: ClassVar[str]  # its name in files
    # The fields that name tensors it reads, one or several each; an empty one names none.
    READS: ClassVar[tuple[str, ...]]
    WRITES: ClassVar[tuple[str, ...]] = ("out",)  # the fields that name tensors it writes
    moves_only: ClassVar[bool] = False  # whether it only moves elements, as a copy does
    # Whether it is a pass over memory by the owners of what it writes, as a map is.
    passes: ClassVar[bool] = False
    # Whether it multiplies by weights, which a scheme that shards them gathers before it.
    has_weights: ClassVar[bool] = False
    sums_replicas: ClassVar[bool] = False  # whether it reads operands whose replicas hold partial sums
    attends: ClassVar[bool] = False  # whether it is fused attention or its gradient
    # Whether it moves rows of tokens, or their gates, to the ranks of experts or back.
    exchanges: ClassVar[bool] = False
    out: str  # the tensor written first, by which options name the statement

    def __init_subclass__(cls) -> None:
        """Register the kind; a common base class has none."""
        if "kind" in cls.__dict__:
            _KINDS[cls.kind] = cls

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return self._named(self.READS)

    @property
    def outs(self) -> tuple[str, ...]:
        """The tensors it writes."""
        return self._named(self.WRITES)

    def _named(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tensors that fields name, in order."""
        tensors: list[str] = []
        for name in names:
            value = getattr(self, name)
            if not isinstance(value, str):
                tensors += value
            # Empty is none where a field may be left out; elsewhere it is a name that no tensor has.
            elif value or name not in _may_lack(type(self)):
                tensors.append(value)
        return tuple(tensors)

    @property
    def looks_up(self) -> bool:
        """Whether it takes rows of a table, as an embedding does."""
        return False

    @property
    def beside(self) -> str:
        """The output of an earlier statement in the same kernel; empty if none."""
        return ""

    @property
    def fused(self) -> tuple[str, ...]:
        """The operands that the statement before leaves in registers, if one rank computes both."""
        return ()

    @property
    def factor(self) -> str:
        """The right operand that may be a weight, which others may store in fewer bits; empty if none."""
        return ""

    @property
    def moves_rows(self) -> bool:
        """Whether it moves rows of tokens to the ranks of their experts, or back."""
        return False

    @property
    def to_experts(self) -> bool:
        """Whether it moves rows of tokens to the ranks of their experts."""
        return False

    @property
    def chooses_experts(self) -> bool:
        """Whether it chooses each token's experts by scores, which it reads first."""
        return False

    @property
    def of_all_heads(self) -> tuple[str, ...]:
        """The tensors that every head of an attention uses whole."""
        return ()

    @abstractmethod
    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit; ProblemError states the requirement."""

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations; only multiplies count."""
        return 0

    def useful_flop(self, tensors: Tensors, seen: Shares) -> int:
        """Return its flop, without those repeated or dropped by a mask.

        Args:
            seen: Scores that masks of earlier statements cut.
        """
        return self.flop(tensors)

    def masked(self, tensors: Tensors, seen: Shares) -> Shares:
        """Return which scores a mask cuts in it, given those that earlier statements cut."""
        return {}

    def remarks(self, tensors: Tensors, ranks: int) -> dict[str, str]:
        """Return remarks on its layouts, each under a word for it."""
        return {}

    def rerouted(self, routing: str) -> Self:
        """Return it with another routing of rows to experts, if it has one."""
        return self

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return pairs of its tensors that a search lays out alike."""
        return []

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns of its tensors that it needs together, as a head's; 0 for whole rows."""
        return {}

    def with_experts(self) -> tuple[list[str], list[str], list[str]]:
        """Return its tensors that lie alike in a mixture: weights and their columns, products, tokens."""
        return [], [], []

    def pieces(self, layout: Callable[[str], Layout]) -> int:
        """Return into how many local operations layouts cut it, about."""
        return max(prod(layout(x).grid_shape()) for x in (*self.outs, *self.reads))

    def from_memory(self, name: str) -> Self:
        """Return it as it reads a tensor from memory, which no statement before has left in registers."""
        return self

    def check_sizes(self, wanted: Shapes, tensors: Tensors, beside: str) -> None:
        """Refuse tensors that do not have the shapes that they must have beside another."""
        for name, (rows, cols) in wanted.items():
            if tensors[name].shape != (rows, cols):
                got = "x".join(map(str, tensors[name].shape))
                raise ProblemError(f"{name} is {got}; it must be {rows}x{cols} beside {beside}")

    def check_apart(self) -> None:
        """Refuse to read a tensor that it writes, and to write one twice."""
        if set(self.outs) & set(self.reads) or len(set(self.outs)) < len(self.outs):
            raise ProblemError(f"{self} must write tensors of their own that it does not read")

    def check_flop(self, tensors: Tensors) -> None:
        """Refuse more flop than a schedule counts."""
        flop = self.flop(tensors)
        if flop >= LARGEST:
            raise ProblemError(f"some 2^{flop.bit_length() - 1} flop are too many; they must stay below 2^60")

    @abstractmethod
    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs, computed in float64."""

    def computed(
        self, fn: str, out: str, reads: Sequence[str], values: Values, tensors: Tensors, **parameters: Any
    ) -> Array:
        """Return the result of a function on whole tensors."""
        from umm.program.functions import function  # at its use: a command of one multiply computes none

        shapes = [tensors[x].shape for x in (out, *reads)]
        spans = [(Interval(0, rows), Interval(0, cols)) for rows, cols in shapes]
        rows, cols = spans[0]
        operands = (values[x] for x in reads)
        result = function(fn)(*operands, rows=rows, cols=cols, shape=shapes[0], spans=spans, **parameters)
        return result.astype(np.float64)


@cache
def _may_lack(kind: type[Statement]) -> set[str]:
    """Return the fields of a kind that may be left out."""
    return {x.name for x in fields(kind) if x.default == ""}


Kind = TypeVar("Kind", bound=Statement)


def reading(statement: Kind, names: Mapping[str, str]) -> Kind:
    """Return a statement that reads other tensors, those that have another name.

    >>> from umm.program import Map
    >>> print(reading(Map("Y", "add", ("X", "R")), {"X": "Z"}))
    Y = add(Z, R)
    """
    return _with_names(statement, names, statement.READS)


def renamed(statement: Kind, names: Mapping[str, str]) -> Kind:
    """Return a statement on other tensors, those that have another name, read and written.

    >>> from umm.program import Map
    >>> print(renamed(Map("Y", "add", ("X", "R")), {"X": "Z", "Y": "W"}))
    W = add(Z, R)
    """
    beside = [x.name for x in fields(statement) if x.name == "beside"]
    return _with_names(statement, names, (*statement.READS, *statement.WRITES, *beside))


def _with_names(statement: Kind, names: Mapping[str, str], columns: tuple[str, ...]) -> Kind:
    changed: dict[str, Any] = {}
    for column in columns:
        value = getattr(statement, column)
        new = tuple(names.get(x, x) for x in value) if isinstance(value, tuple) else names.get(value, value)
        if new != value:
            changed[column] = new
    # A copy would check all of its fields again.
    return replace(statement, **changed) if changed else statement


def statement_to_dict(statement: Statement) -> dict[str, Any]:
    """Return a statement as plain values, as JSON carries them, without defaults.

    >>> from umm.program import Multiply
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

    InputError in one line, if it is not a statement.
    """
    kind, kinds = data.get("kind") if isinstance(data, dict) else None, _kinds()
    if isinstance(kind, str) and kind not in kinds:
        known = did_you_mean(kind, kinds)
        raise ProblemError(f"kind {shown(kind)} of statement {number} is unknown; {known}")
    if not isinstance(kind, str):
        raise ProblemError(
            f"{shown(data)} is not a statement; its kind must be one of {', '.join(sorted(kinds))}"
        )
    columns = {x.name: x for x in fields(kinds[kind])}
    needed = [x.name for x in columns.values() if x.default is MISSING and x.default_factory is MISSING]
    optional = tuple(x for x in columns if x not in needed)
    given = fields_of(data, f"a {kind}", ("kind", *needed), optional)
    values = {key: value for key, value in given.items() if key != "kind"}
    for key, value in values.items():
        _check_type(value, columns[key].type, f"{key} = {shown(value)} of a {kind}")
    return kinds[kind](**values)


@cache
def _kinds() -> dict[str, type[Statement]]:
    """Return the kinds by their names in files: one multiply does without most of them."""
    for file in iter_modules([os.path.dirname(__file__)]):
        import_module(f"{__package__}.{file.name}")
    return _KINDS


_LISTS = {tuple[str, ...]: (str, "names"), tuple[int, int, int]: (int, "whole numbers")}


def _check_type(value: Any, wanted: Any, words: str) -> None:
    """Refuse a value of another type than a field's; a class checks its numbers itself."""
    # wanted: the field's type. words: the value, as a message calls it.
    kind, plural = _LISTS.get(wanted, (None, ""))
    listed = isinstance(value, list) and all(type(x) is kind and str(x).isprintable() for x in value)
    if kind is not None and not listed:
        raise ProblemError(f"{words} is not a list of {plural}")
    if wanted is str and not (isinstance(value, str) and value.isprintable()):
        raise ProblemError(f"{words} is not a name")
    if wanted is bool and not isinstance(value, bool):
        raise ProblemError(f"{words} is not true or false")
    if wanted not in (str, bool, int, float, *_LISTS) and not isinstance(value, dict):
        raise ProblemError(f"{words} is not an object of names and numbers")


def check_alike(out: Tensor, x: Tensor) -> None:
    """Refuse two tensors of different shapes or types."""
    if out.shape != x.shape:
        (rows, cols), (out_rows, out_cols) = x.shape, out.shape
        raise ProblemError(
            f"{x.name} is {rows}x{cols} and {out.name} {out_rows}x{out_cols}; they must have one shape"
        )
    if out.dtype != x.dtype:
        raise ProblemError(f"{x.name} is {x.dtype} and {out.name} {out.dtype}; convert by map cast")

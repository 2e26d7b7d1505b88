"""A program of several statements over named tensors, and its results in float64."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from umm.dtypes import product_dtype
from umm.errors import ProblemError
from umm.files import fields_of, shown, whole_number
from umm.layouts.text import brief
from umm.program.statements import Statement, statement_from_dict, statement_to_dict
from umm.program.statements.base import Shares
from umm.program.tensors import MOST_RANKS, Tensor, by_name

LONG = 12  # statements; a longer chain is printed as how many of each kind
_KEYS = ("name", "ranks", "tensors", "statements")


@dataclass(frozen=True)
class Chain:
    """Statements on whole tensors, carried out one after another.

    Attributes:
        name: What it is called.
        tensors: All tensors, over the same ranks, each with a name of its own.
        statements: What is done, in order.
        ranks: Processes that share the work.
        operand_names: Tensors whose elements are given: roles ``input`` and ``both``.
        outputs: Tensors that are results: roles ``output`` and ``both``.

    >>> from umm.program import Map, Multiply
    >>> from umm.layouts.layout import Layout
    >>> def tensor(name, rows, cols, layout, role="work"):
    ...     return Tensor(name, Layout.parse(layout, (rows, cols), 2), "float32", role)
    >>> mlp = Chain(
    ...     "mlp",
    ...     (
    ...         tensor("X", 4, 6, "row@2", "input"),
    ...         tensor("W", 6, 8, "col", "input"),
    ...         tensor("H", 4, 8, "col"),
    ...         tensor("Y", 4, 8, "col", "output"),
    ...     ),
    ...     (Multiply("H", "X", "W"), Map("Y", "gelu", ("H",))),
    ...     ranks=2,
    ... )
    >>> print(mlp)
    mlp on 2 ranks: H = X·W; Y = gelu(H)
    >>> mlp.operand_names, mlp.outputs, mlp.flop
    (('X', 'W'), ('Y',), 384)
    """

    kind: ClassVar[Literal["chain"]] = "chain"
    name: str
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]
    ranks: int
    operand_names: tuple[str, ...] = field(init=False, repr=False, compare=False)
    outputs: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the tensors, and the statements one after another."""
        if not isinstance(self.name, str) or not self.name.isprintable() or not 0 < len(self.name) <= 64:
            raise ProblemError(f"{shown(self.name)} cannot name a chain; write 1 to 64 printable characters")
        whole_number(self.ranks, f"ranks of chain {self.name}", 1, MOST_RANKS + 1)
        for name in ("tensors", "statements"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        named = by_name(self.tensors)
        for tensor in self.tensors:
            if tensor.layout.ranks != self.ranks:
                raise ProblemError(
                    f"tensor {tensor.name} is laid out over {tensor.layout.ranks} ranks, "
                    f"but chain {self.name} has {self.ranks}; all tensors must be over the same ranks"
                )
        written: set[str] = set()
        for number, statement in enumerate(self.statements):
            try:
                _check_access(statement, named, written)
                statement.check(named)
            except ProblemError as error:
                raise ProblemError(f"statement {number} of chain {self.name}, {statement}: {error}") from None
            written.update(statement.outs)
        for tensor in self.tensors:
            if tensor.role == "output" and tensor.name not in written:
                raise ProblemError(
                    f"no statement of chain {self.name} writes {tensor.name}, which has role output; "
                    "write it, or make it an input"
                )
        object.__setattr__(self, "operand_names", tuple(x.name for x in self.tensors if x.is_input))
        object.__setattr__(self, "outputs", tuple(x.name for x in self.tensors if x.is_output))

    @property
    def title(self) -> str:
        """The chain's name, for a title."""
        return self.name

    @property
    def words(self) -> str:
        """The chain in a line."""
        return str(self)

    @property
    def layout_words(self) -> str:
        """Each tensor with its layout, those of one layout together; of a short chain with their sizes."""
        alike: dict[str, list[str]] = {}
        for x in self.tensors:
            size = "" if self._is_long else f" {x.shape[0]}x{x.shape[1]}"
            alike.setdefault(brief(str(x.layout)), []).append(x.name + size)
        between = " " if self._is_long else ", "
        return "; ".join(f"{layout}: {between.join(names)}" for layout, names in alike.items())

    def facts(self, where: str) -> list[tuple[str, str]]:
        """Return the chain as pairs of a name and its text."""
        from umm.program.statements.attention import sequences_in_words

        stored = {f"weights {x.stored}" for x in self.tensors if x.stored}
        dtypes = ", ".join([*sorted({x.dtype for x in self.tensors}), *sorted(stored)])
        does = str(self).partition(": ")[2]
        if self._is_long:
            does = in_short(self.name, self.tensors[0].name, self.tensors[0].shape, self.statements)
        facts = [("chain", does), ("", f"{dtypes}, {where}")]
        tokens = sequences_in_words(self.statements, {x.name: x.shape[0] for x in self.tensors})
        return facts + [(name, x) for name, x in [("tokens", tokens), *self.remarks().items()] if x]

    def remarks(self) -> dict[str, str]:
        """Return remarks on its layouts: ranks without rows of experts, rows in fewer parts."""
        named, remarks = by_name(self.tensors), dict[str, str]()
        for statement in self.statements:
            remarks = statement.remarks(named, self.ranks) | remarks
        return dict(sorted(remarks.items()))

    @property
    def _is_long(self) -> bool:
        """Whether it has more statements than one reads in a line."""
        return len(self.statements) > LONG

    def record(self) -> dict[str, Any]:
        """Return its statements, and the sizes, layouts and types of its tensors, as plain values."""
        dtypes = {x.name: x.dtype for x in self.tensors}
        alike = set(dtypes.values())
        return {
            "chain": self.name,
            "tensors": {x.name: list(x.shape) for x in self.tensors},
            "layouts": {x.name: str(x.layout) for x in self.tensors},
            "statements": [statement_to_dict(statement) for statement in self.statements],
            "dtype": alike.pop() if len(alike) == 1 else dtypes,
            "ranks": self.ranks,
        }

    def on(self, ranks: int) -> "Chain":
        """Return it as it is: it says on how many ranks it runs."""
        return self

    @property
    def p(self) -> int:
        """Number of ranks."""
        return self.ranks

    @property
    def flop(self) -> int:
        """Useful floating-point operations of all multiplies, 2mnk a member.

        Scores that a fused backward part computes again are none, nor is what a mask of stored scores drops.
        """
        named = by_name(self.tensors)
        seen: Shares = {}
        for statement in self.statements:
            seen |= statement.masked(named, seen)
        return sum(statement.useful_flop(named, seen) for statement in self.statements)

    @property
    def flop_of_types(self) -> dict[str, int]:
        """All flop, useful or not, by type of the operands."""
        named, flops = by_name(self.tensors), Counter[str]()
        for statement in self.statements:
            dtype = named[next(iter(statement.reads), self.tensors[0].name)].dtype
            stored = named[statement.factor].stored if statement.factor else ""
            flops[product_dtype(dtype, dtype, stored)] += statement.flop(named)
        return {dtype: flop for dtype, flop in flops.items() if flop}

    def reference(self, operands: Mapping[str, ArrayLike]) -> dict[str, NDArray[np.float64]]:
        """Compute the chain in float64 on complete matrices; return all written tensors and the operands.

        ProblemError if an operand is missing, unknown or of another shape, or one whose replicas differ is
        read by a statement that is not a sum.

        Args:
            operands: An array for each of ``operand_names``, converted to float64. One with a third
                dimension in front gives replica r its own slice r; only a :class:`Sum` may read it.
        """
        named = by_name(self.tensors)
        values = {name: self._operand(named[name], operands) for name in self.operand_names}
        for name in operands:
            if name not in values:
                raise ProblemError(
                    f"{name!r} is not an operand of chain {self.name}; "
                    f"it takes {', '.join(self.operand_names) or 'none'}"
                )
        written: dict[str, NDArray[np.float64]] = {}
        for statement in self.statements:
            for name in statement.reads:
                if values[name].ndim == 3 and not statement.sums_replicas:
                    raise ProblemError(
                        f"the replicas of {name} hold different values, which {statement} cannot read; "
                        "give one matrix, or sum over the replicas first"
                    )
            results = statement.results(values, named)
            values |= results
            written |= results
        return written | {name: values[name] for name in self.outputs if name not in written}

    def _operand(self, tensor: Tensor, operands: Mapping[str, ArrayLike]) -> NDArray[np.float64]:
        if tensor.name not in operands:
            raise ProblemError(
                f"operand {tensor.name} of chain {self.name} is missing; "
                f"it takes {', '.join(self.operand_names)}"
            )
        array = np.asarray(operands[tensor.name]).astype(np.float64)
        shapes = (tensor.shape, (tensor.layout.replicas, *tensor.shape))
        if array.shape not in shapes:
            raise ProblemError(
                f"operand {tensor.name} has shape {array.shape}; it must be {shapes[0]}, "
                f"or {shapes[1]} with a slice for each replica"
            )
        return array

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, as JSON carries them."""
        return {
            "name": self.name,
            "ranks": self.ranks,
            "tensors": [tensor.to_dict() for tensor in self.tensors],
            "statements": [statement_to_dict(statement) for statement in self.statements],
        }

    @classmethod
    def from_dict(cls, data: Any) -> "Chain":
        """Return the chain that parsed JSON of :meth:`to_dict` holds.

        InputError in one line, if it is not a chain.
        """
        given = fields_of(data, "a chain", _KEYS)
        ranks = whole_number(given["ranks"], "ranks of a chain", 1, MOST_RANKS + 1)
        for key in ("tensors", "statements"):
            if not isinstance(given[key], list):
                raise ProblemError(f"{key} of a chain must be a list, not {shown(given[key])}")
        return cls(
            given["name"],
            tuple(Tensor.from_dict(x, ranks) for x in given["tensors"]),
            tuple(statement_from_dict(x, i) for i, x in enumerate(given["statements"], 1)),
            ranks,
        )

    def __str__(self) -> str:
        statements = "; ".join(map(str, self.statements))
        return f"{self.name} on {self.ranks} ranks: {statements}"


def in_short(name: str, first: str, shape: tuple[int, int], statements: Sequence[Statement]) -> str:
    """Return how many statements of each kind a long chain has, and the size of its first tensor.

    >>> from umm.program import Map
    >>> in_short("twice", "X", (4, 6), (Map("Y", "gelu", ("X",)), Map("Y", "gelu", ("Y",))))
    'twice of X 4x6; 2 statements: 2 map'
    """
    kinds = Counter(x.kind.replace("_", " ") for x in statements)
    of_kinds = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{name} of {first} {shape[0]}x{shape[1]}; {len(statements)} statements: {of_kinds}"


def _check_access(statement: Statement, named: Mapping[str, Tensor], written: set[str]) -> None:
    """Refuse a statement that names no tensor, reads an unwritten one, or writes an input."""
    for name in (*statement.outs, *statement.reads):
        if name not in named:
            raise ProblemError(f"there is no tensor {name!r}; choose from {', '.join(named)}")
    for name in statement.reads:
        if name not in written and not named[name].is_input:
            raise ProblemError(f"{name} is read before it is written; write it first, or make it an input")
    for name in statement.outs:
        if named[name].role == "input":
            raise ProblemError(f"{name} is an input and never written; give it role both or write another")
    computed = [x for x in statement.reads if x in written] if statement.sums_replicas else []
    if computed:
        raise ProblemError(
            f"the replicas of {computed[0]} are alike after it is computed; sum only an operand, "
            "whose replicas may be given partial sums"
        )

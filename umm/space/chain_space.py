"""The space of a chain: one layout for each tensor, those of tensors that go together alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm, prod

from umm.chains import Chain, Map, Outline
from umm.errors import InputError
from umm.functions import function
from umm.layouts.layout import Layout

ALL = "all"
DEFAULT = ("row", "col", "2d", "row@p")
STATIONARY = ("auto", "best", "A", "B", "C")


@dataclass(frozen=True)
class ChainSpace:
    """Every assignment of layouts to the tensors of a chain that lays alike what goes together.

    A gradient lies as what it is the gradient of (dW as W), and what a map writes as what it reads of the
    same shape: such tensors are a group with one layout. What a map needs columns of together, such as the
    scores of a head for a softmax, is not cut between them.

    Attributes:
        chain: What is computed.
        ranks: Ranks that share the work; None until a machine says how many it has.
        layouts: Texts of layouts to choose from, ``all`` for row, col and 2d with every number of replicas;
            None for row, col, 2d and a replica on every rank.
        stationary: The matrix that every multiply keeps in place: A, B, C, ``auto`` for its largest, or
            ``best`` for the one with which it takes least by itself.
        state: Bytes of optimizer state for each element of a weight, which lies as the weight.

    >>> from umm.chains.presets import chain
    >>> space = ChainSpace(chain("mlp", hidden=8, ffn=16, tokens=8, backward=True), ranks=2)
    >>> space.groups
    (('X', 'dX'), ('Y', 'dY'), ('W1', 'dW1'), ('W2', 'dW2'), ('H', 'G', 'dG', 'dH'))
    >>> space.choices[0]
    ('row', 'col', 'row@2')
    """

    chain: Outline
    ranks: int | None = None
    layouts: tuple[str, ...] | None = None
    stationary: str = "auto"
    state: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what is not a chain without layouts."""
        if not isinstance(self.chain, Outline):
            raise InputError(
                f"a space needs a chain without layouts, such as umm.chain gives, not {self.chain!r}"
            )
        if self.stationary not in STATIONARY:
            raise InputError(
                f"stationary matrix {self.stationary!r} is unknown; choose from {', '.join(STATIONARY)}"
            )
        if self.state < 0:
            raise InputError(f"{self.state} bytes of optimizer state are not possible; give 0 or more")

    def on(self, ranks: int) -> "ChainSpace":
        """Return this space on so many ranks unless it says how many."""
        return self if self.ranks else replace(self, ranks=ranks)

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The tensors that have one layout, group by group in the order of the chain."""
        shapes = {x.name: (x.rows, x.cols) for x in self.chain.tensors}
        alike = [(name, f"d{name}") for name in shapes if f"d{name}" in shapes]
        alike += [(x.out, read) for x in self.chain.statements if isinstance(x, Map) for read in x.reads]
        group = {name: name for name in shapes}
        for one, other in alike:
            if shapes[one] == shapes[other] and group[one] != group[other]:
                old, new = group[other], group[one]
                group = {name: new if of == old else of for name, of in group.items()}
        found: dict[str, list[str]] = {}
        for name, of in group.items():
            found.setdefault(of, []).append(name)
        return tuple(map(tuple, found.values()))

    @cached_property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The different layouts of each group.

        Raises:
            InputError: for a text that is not a layout, or if none is left for a tensor.
        """
        ranks = self.ranks or 1
        texts = [x for text in self.layouts or DEFAULT for x in (_all(ranks) if text == ALL else [text])]
        shapes = {x.name: x for x in self.chain.tensors}
        found = []
        for names in self.groups:
            seen: dict[object, str] = {}
            for layout in (shapes[names[0]].laid_out(x, ranks).layout for x in texts):
                if all(_at_multiples(layout, self._units.get(name, 1)) for name in names):
                    seen.setdefault(_lies(layout), str(layout))
            if not seen:
                raise InputError(
                    f"{names[0]} is needed by whole rows or heads, so no layout is left for it; allow row, "
                    "or row@p"
                )
            found.append(tuple(seen.values()))
        return tuple(found)

    @cached_property
    def _units(self) -> dict[str, int]:
        """Columns that some map needs together, by tensor; 0 for whole rows."""
        found: dict[str, int] = {}
        for x in self.chain.statements:
            if isinstance(x, Map):
                unit = function(x.fn).unit(x.parameters)
                for name in (x.out, *x.reads):
                    found[name] = lcm(found.get(name, 1), unit)
        return found

    @property
    def assignments(self) -> int:
        """How many assignments there are."""
        return prod(map(len, self.choices))

    def place(self, layouts: Mapping[str, str]) -> tuple[int, ...] | None:
        """Return the number of each group's choice that some layouts are; None if they are none of these."""
        shapes, ranks, found = {x.name: x for x in self.chain.tensors}, self.ranks or 1, []

        def lies(name: str, text: str) -> object:
            return _lies(shapes[name].laid_out(text, ranks).layout)

        for names, choices in zip(self.groups, self.choices, strict=True):
            try:
                wanted = {lies(x, layouts.get(x, "row")) for x in names}
            except InputError:
                return None  # cannot be on so many ranks
            able = [lies(names[0], text) for text in choices]
            if len(wanted) > 1 or (held := wanted.pop()) not in able:
                return None
            found.append(able.index(held))
        return tuple(found)

    def texts(self, place: Sequence[int]) -> dict[str, str]:
        """Return the layout of each tensor, given the number of its group's choice."""
        return {
            name: self.choices[number][chosen]
            for number, chosen in enumerate(place)
            for name in self.groups[number]
        }

    def laid_out(self, place: Sequence[int]) -> Chain:
        """Return the chain with those layouts."""
        return self.chain.laid_out(self.texts(place), self.ranks or 1)


def _all(ranks: int) -> Sequence[str]:
    """Return row, col and 2d with every number of replicas."""
    return [
        f"{partition}@{count}"
        for count in range(1, ranks + 1)
        if ranks % count == 0
        for partition in ("row", "col", "2d")
    ]


def _at_multiples(layout: Layout, unit: int) -> bool:
    """Whether columns are cut only at multiples of a unit, or not at all if that is 0."""
    inner = layout.col_edges[1:-1]
    return not len(inner) or (unit > 0 and not (inner % unit).any())


def _lies(layout: Layout) -> object:
    """Return what makes two layouts of one shape and type lie alike, empty tiles included."""
    return layout.cuts, layout.owners.tobytes()

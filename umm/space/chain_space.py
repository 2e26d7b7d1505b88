"""The space of a chain: one layout for each tensor, those of tensors that go together alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from umm.chains import Chain, Map, Outline
from umm.errors import InputError
from umm.layouts.layout import Layout

MOST = 200_000
DEFAULT = ("row", "col", "2d", "row@p")


@dataclass(frozen=True)
class ChainSpace:
    """Every assignment of layouts to the tensors of a chain that lays alike what goes together.

    A gradient lies as what it is the gradient of (dW as W), and what a map writes as what it reads of the
    same shape: such tensors are a group with one layout. Every multiply keeps its largest matrix in place.

    Attributes:
        chain: What is computed.
        ranks: Ranks that share the work; None until a machine says how many it has.
        layouts: Texts of layouts to choose from; None for row, col, 2d and a replica on every rank.

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

    def __post_init__(self) -> None:
        """Refuse what is not a chain without layouts."""
        if not isinstance(self.chain, Outline):
            raise InputError(
                f"a space needs a chain without layouts, such as umm.chain gives, not {self.chain!r}"
            )

    def on(self, ranks: int) -> "ChainSpace":
        """Return this space on so many ranks unless it says how many."""
        return self if self.ranks else ChainSpace(self.chain, ranks, self.layouts)

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
            InputError: for a text that is not a layout, or more assignments than can be priced.
        """
        ranks = self.ranks or 1
        texts: Sequence[str] = self.layouts or DEFAULT
        shapes = {x.name: x for x in self.chain.tensors}
        choices = tuple(
            _different([shapes[group[0]].laid_out(x, ranks).layout for x in texts]) for group in self.groups
        )
        count = 1
        for of_group in choices:
            count *= len(of_group)
        if count > MOST:
            raise InputError(
                f"chain {self.chain.name} has {count:.2g} assignments of layouts, more than the "
                f"{MOST} that are priced; give fewer layouts, or a chain with fewer tensors"
            )
        return choices

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


def _different(layouts: list[Layout]) -> tuple[str, ...]:
    seen: dict[object, str] = {}
    for layout in layouts:
        held = tuple(layout.row_edges.tolist()), tuple(layout.col_edges.tolist()), layout.owners.tobytes()
        seen.setdefault(held, str(layout))
    return tuple(seen.values())

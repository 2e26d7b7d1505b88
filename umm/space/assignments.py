"""The points of a program of several statements: a layout for each group of tensors that share one."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from math import lcm, prod
from typing import Any

from umm.algorithms.scheduling import schedule
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.multiply.options import Options
from umm.program import Chain, Multiply, Outline, Statement
from umm.program.layers import X, Y
from umm.program.outline import BY_EXPERT, Shape
from umm.program.statements.attention import attentions
from umm.program.statements.multiply import is_product, products
from umm.schedules.schedule import Schedule
from umm.space.axes import written_layouts

Place = tuple[int, ...]
ALL = "all"
DEFAULT = ("row", "col", "2d", "row@p")
"""The layouts to choose from where nothing is said; ``@p`` is a replica on every rank."""
FEW_RANKS = 16  # ranks up to which a mixture's products, and copies of its tokens, are choices of their own
MOST_LISTED = 200_000  # assignments that are listed one by one


@dataclass(frozen=True, eq=False)
class Assignments:
    """Every assignment of layouts that gives one layout to tensors that belong together.

    A gradient shares its tensor's layout (dW that of W), and a map's output its input's where they have one
    shape: such tensors are a group. What a map needs columns of together, such as the scores of a head for a
    softmax, is not cut between them. A point is its place: for each group the number of its choice.

    >>> from umm.program.presets import chain
    >>> of = Assignments(chain("mlp", hidden=8, ffn=16, tokens=8, backward=True), ranks=2)
    >>> of.groups
    (('X', 'dX'), ('Y', 'dY'), ('W1', 'dW1'), ('W2', 'dW2'), ('H', 'G', 'dG', 'dH'))
    >>> of.choices[0]
    ('row', 'col', 'row@2')
    """

    outline: Outline  # what is computed
    ranks: int
    # For each tensor with a choice of its own the layouts to choose from; `all` is row, col and 2d with every
    # number of replicas.
    texts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    options: Options = field(default_factory=Options)  # of the universal algorithm, for all multiplies
    # The matrix that every multiply keeps in place: A, B, C, `auto` for its largest, or `best` for the one
    # with which it takes least by itself.
    stationary: str = "auto"
    # Names of the program's own layouts, `all` for all of them: these alone are listed.
    named: Sequence[str] | None = None
    # Layouts of each tensor to choose from beside the usual ones, where nothing is said.
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    of_many: bool = (
        False  # whether it is one of many layers: its output has the layout of the next one's input
    )
    # Movements of which the multiplies of each product have one of their own; none if the options say it for
    # all. The choices of layouts are then followed by one for each product.
    ways: tuple[str, ...] = ()

    @cached_property
    def products(self) -> tuple[str, ...]:
        """Outputs of multiplies whose movement is a choice."""
        plain = filter(is_product, self.outline.statements)
        return tuple(dict.fromkeys(x.out for x in plain)) if self.ways else ()

    @cached_property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """The tensors that have one layout, group by group in the order of the program."""
        shapes = self._sizes
        # An optimizer updates a weight with its gradient element by element, so the two share a layout.
        alike = [(x, f"d{x}") for x in shapes if shapes[x] == shapes.get(f"d{x}")]
        alike += [pair for x in self.outline.statements for pair in x.alike(shapes)]
        alike += self._with_experts + self._in_one_kernel + ([(X, Y)] if self.of_many else [])
        group = {name: name for name in shapes}
        for one, other in alike:
            # Union by relabelling; programs have tens of tensors, so a
            # union-find structure would buy nothing.
            if group[one] != group[other]:
                old, new = group[other], group[one]
                group = {name: new if first == old else first for name, first in group.items()}
        members: dict[str, list[str]] = {}
        for name, first in group.items():
            members.setdefault(first, []).append(name)
        return tuple(map(tuple, members.values()))

    @property
    def _with_experts(self) -> list[tuple[str, str]]:
        """Pairs that lie alike in a mixture of experts."""
        # Weights, what has their columns and what is dispatched, so that a group of experts is at the same
        # ranks; products, and gradients by what is dispatched; tokens, for a layer's output is the next one's
        # input. On many ranks products share layouts with weights, since every pair would be priced.
        of_statements = zip(*(x.with_experts() for x in self.outline.statements), strict=True)
        kinds: tuple[list[str], ...] = tuple([x for names in kind for x in names] for kind in of_statements)
        # Each further group multiplies the space: with so many ranks, products follow the weights' layouts.
        if self.ranks > FEW_RANKS and kinds[0]:
            kinds = ([*kinds[0], *kinds[1]], kinds[2])
        return [(kind[0], name) for kind in kinds for name in kind[1:] if name != kind[0]]

    @property
    def _in_one_kernel(self) -> list[tuple[str, str]]:
        """Pairs that lie alike beside experts on many ranks, where every pair would be priced."""
        # They are weights of one operand, which engines keep side by side, and what they give if it can be
        # cut by the same columns; what is multiplied head by head, and what that gives; keys and their
        # queries.
        pairs: list[tuple[str, str]] = []
        first: dict[str, Multiply] = {}
        statements = () if self.few else self.outline.statements
        pairs += [(x.q, x.k) for x in attentions(statements) if x.share == 1]
        for x in products(statements):
            if x.is_batch:
                pairs.append((x.a, x.out))
            elif not x.trans and x.b not in self._gates:
                # The first multiply by an operand leads; weights of the same
                # operand follow it into one kernel.
                one = first.setdefault(x.a, x)
                pairs.append((one.b, x.b))
                uncut = all(self._units.get(y) in (0, self._shapes[y].cols) for y in (one.out, x.out))
                if uncut or self._shapes[one.out].cols == self._shapes[x.out].cols:
                    pairs.append((one.out, x.out))
        return pairs

    @property
    def _moves(self) -> list[Statement]:
        """The statements that move tokens to experts and back."""
        return [x for x in self.outline.statements if x.exchanges]

    @property
    def free(self) -> bool:
        """Whether all layouts of the space are of its own choosing."""
        return self.named is None and not self.texts

    @property
    def few(self) -> bool:
        """Whether layouts that are not of the space are simulated too: not of mixtures on many ranks."""
        return self.ranks <= FEW_RANKS or not self._moves

    @property
    def _gates(self) -> set[str]:
        """The weights of gates, whose products choose experts."""
        scores = {x.reads[0] for x in self.outline.statements if x.chooses_experts}
        return {x.b for x in products(self.outline.statements) if x.out in scores}

    @cached_property
    def choices(self) -> tuple[tuple[str, ...], ...]:
        """The different layouts of each group, then the movements of each product.

        InputError for a text that is not a layout, or if none is left for a tensor.
        """
        result = []
        for names in self.groups:
            seen: dict[object, str] = {}
            for text in self._written(names):
                layout = self._layout(names[0], text)
                # Columns are cut only at multiples of a unit, or not at all if that is 0.
                inner, units = layout.col_edges[1:-1], [self._units.get(name, 1) for name in names]
                if not len(inner) or all(unit > 0 and not (inner % unit).any() for unit in units):
                    # Different texts may mean one layout, with the same elements at
                    # the same ranks: it is a choice once.
                    seen.setdefault(_same(layout), text if text.startswith(BY_EXPERT) else str(layout))
            if not seen:
                raise InputError(
                    f"{names[0]} is needed by whole rows or heads, so no layout is left for it; allow row, "
                    "or row@p"
                )
            result.append(tuple(seen.values()))
        return (*result, *[self.ways] * len(self.products))

    def _written(self, names: Sequence[str]) -> list[str]:
        """Return the texts that a group chooses from: of all its tensors for which texts were given."""
        given = dict.fromkeys(text for name in names for text in self.texts.get(name, ()))
        factors = [count for count in range(1, self.ranks + 1) if self.ranks % count == 0]
        family = list(written_layouts(self.ranks, ("row", "col", "2d"), factors, ("blocked",), "square"))
        beside = dict.fromkeys(text for name in names for text in self.more.get(name, ()))
        usual = [*DEFAULT, *self._balanced(names), *beside]
        if any(self._shapes[name].experts for name in names):
            # On many ranks no expert is cut over more than twice the ranks that would be idle otherwise.
            experts = max(len(self._shapes[name].experts) - 1 for name in names)
            able = [x for x in factors if self.ranks <= FEW_RANKS or x * experts >= self.ranks]
            able = able if self.ranks <= FEW_RANKS else able[:2]
            usual = [f"{BY_EXPERT}/{count}" for count in able] + [f"{BY_EXPERT}/whole"]
        elif any({x.reads[0], x.out} & set(names) for x in self._moves):
            usual = [DEFAULT[0]]  # a token's row is moved whole
            if self.ranks <= FEW_RANKS:
                usual.append(DEFAULT[-1])
        elif self._gates & set(names):
            usual = [DEFAULT[-1]]  # the gate's weight is small
        elif all(self._shapes[name].rows == 1 for name in names):
            usual = [DEFAULT[-1]]  # what columns are scaled by is small
        return [x for text in given or usual for x in (family if text == ALL else [text])]

    def _balanced(self, names: Sequence[str]) -> list[str]:
        """Return the layouts by which ranks have the same work under the causal masks on a group's rows."""
        rows = self._shapes[names[0]].rows
        masks = [x for x in attentions(self.outline.statements) if x.causal and not x.cache]
        sequences = {x.sequences for x in masks if self._shapes[x.q].rows == rows > 1}
        # Zigzag pairs early and late rows, whose causal work differs, on each rank.
        sequences -= {x for x in sequences if x % self.ranks == 0}  # ranks have whole sequences as it is
        return ["zigzag" if x == 1 else f"zigzag:{x}" for x in sorted(sequences)]

    @cached_property
    def _shapes(self) -> dict[str, Shape]:
        """The tensors, not laid out, by name."""
        return {x.name: x for x in self.outline.tensors}

    @cached_property
    def _sizes(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of each tensor."""
        return {name: (x.rows, x.cols) for name, x in self._shapes.items()}

    @cached_property
    def _units(self) -> dict[str, int]:
        """Columns that some map needs together, by tensor; 0 for whole rows."""
        units: dict[str, int] = {}
        for x in self.outline.statements:
            for name, unit in x.units(self._sizes).items():
                # lcm with 0 is 0, so a single map that needs whole rows decides.
                units[name] = lcm(units.get(name, 1), unit)
        return units

    @cached_property
    def count(self) -> int:
        """How many assignments there are; of layouts by name those."""
        return prod(map(len, self.choices)) if self.named is None else len(self.all)

    @property
    def written(self) -> int:
        """The same: each has its layouts once."""
        return self.count

    @cached_property
    def share(self) -> float:
        """Bytes of a rank's share of all tensors without replicas."""
        tensors = self.outline.laid_out({}, self.ranks).tensors
        return sum(x.shape[0] * x.shape[1] * x.itemsize for x in tensors) / self.ranks

    @cached_property
    def all(self) -> list[dict[str, str]]:
        """The layout of each tensor of every point, one after another.

        InputError if there are too many. ProblemError if the program has no layouts of a name.
        """
        # Two names may mean the same layouts, so equal assignments are merged by their texts.
        if self.named is not None:
            names = list(self.outline.layouts) if ALL in self.named else self.named
            chains = [
                self.outline.laid_out(self.outline.layouts_of(x, self.ranks), self.ranks) for x in names
            ]
            full = [{x.name: str(x.layout) for x in chain.tensors} for chain in chains]
            return list({json.dumps(x): x for x in full}.values())
        if self.count > MOST_LISTED:
            raise InputError(
                f"chain {self.outline.name} has {self.count:.2g} assignments of layouts, more than the "
                f"{MOST_LISTED} that a sweep takes; give fewer layouts, or search it"
            )
        return [self.layouts(self.at(number)) for number in range(self.count)]

    @property
    def words(self) -> str:
        """The program and the ranks, in a line."""
        return f"{self.outline.in_words}; {self.ranks} ranks"

    def to_dict(self) -> dict[str, Any]:
        """Return the program, without layouts, as plain values."""
        return {
            "chain": self.outline.name,
            "tensors": {x.name: [x.rows, x.cols] for x in self.outline.tensors},
            "ranks": self.ranks,
            "given": dict(self.outline.given),
            "alike": [list(x) for x in self.groups],
            "stationary": self.stationary,
        }

    def at(self, number: int) -> Place:
        """Return the place of a number, that of the last group fastest."""
        place = []
        # Mixed-radix digits, least significant last: numbers may be more than NumPy's integers can say.
        for choices in reversed(self.choices):
            number, chosen = divmod(number, len(choices))
            place.append(chosen)
        return tuple(reversed(place))

    def place(self, layouts: Mapping[str, str]) -> Place | None:
        """Return the place that has some layouts, without movements; None if none has."""
        numbers = []
        for names, choices in zip(self.groups, self.choices, strict=False):
            try:
                # Layouts are compared by where elements are, not by text: row on p ranks may be 2d:px1.
                wanted = [_same(self._layout(x, layouts.get(x, "row"))) for x in names]
            except InputError:
                return None  # cannot be on so many ranks
            able = [[_same(self._layout(x, text)) for x in names] for text in choices]
            if wanted not in able:
                return None
            numbers.append(able.index(wanted))
        return tuple(numbers)

    def layouts(self, point: Place) -> dict[str, str]:
        """Return the layout of each tensor at a place."""
        chosen = zip(self.groups, self.choices, point, strict=False)
        return {name: texts[number] for names, texts, number in chosen for name in names}

    def movement(self, point: Place) -> str | dict[str, str]:
        """Return the movement at a place: of all multiplies, or of those of each product."""
        if not self.ways:
            return self.options.movement
        chosen = point[len(self.groups) :]
        return {name: self.ways[number] for name, number in zip(self.products, chosen, strict=True)}

    def program(self, point: Place) -> Chain:
        """Return the chain in the layouts of a place."""
        return self.outline.laid_out(self.layouts(point), self.ranks)

    def listed(self, place: int, machine: Machine) -> Schedule:
        """Return the schedule of the assignment at a place among all, from 0."""
        stationary = "auto" if self.stationary == "best" else self.stationary
        chain = self.outline.laid_out(self.all[place], self.ranks)
        return schedule(chain, machine, stationary=stationary, **self.options.to_dict())

    def asked(self, place: int) -> dict[str, Any]:
        """Return the identity of a run of the assignment at a place, by the columns of a store."""
        return {
            "chain": in_words(self.outline),
            "dtype": ",".join(dict.fromkeys(x.dtype for x in self.outline.tensors)),
            "layouts": self.all[place],
            "stationary": self.stationary if self.stationary != "best" else "auto",
            **self.options.to_dict(),
        }

    def _layout(self, name: str, text: str) -> Layout:
        return self._shapes[name].laid_out(text, self.ranks).layout


def in_words(chain: Outline) -> str:
    """Return a chain as a store names it: its name, the shapes of its inputs, a hash of its statements.

    >>> from umm.program.presets import chain
    >>> in_words(chain("mlp", hidden=8, ffn=16, tokens=4))
    'mlp X:4x8 W1:8x16 W2:16x8 #7d985b3c'
    """
    shapes = [f"{x.name}:{x.rows}x{x.cols}" for x in chain.tensors if x.role in ("input", "both")]
    # Layouts by name do not change what is computed, so they must not change the identity of stored runs.
    content = {name: value for name, value in chain.to_dict().items() if name not in ("layouts", "kept")}
    digest = blake2b(json.dumps(content, sort_keys=True).encode(), digest_size=4).hexdigest()
    return " ".join([chain.name, *shapes, f"#{digest}"])


def _same(layout: Layout) -> object:
    """Return a key, equal for two layouts of one shape and type with all elements at the same ranks."""
    return layout.cuts, layout.owners.tobytes()

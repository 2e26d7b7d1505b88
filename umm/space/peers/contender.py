"""Contenders: multiplies, chains and training systems, and the simulated figures of each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from umm.errors import ProblemError
from umm.executor import executor, run
from umm.machines import Machine
from umm.machines.corners import corners
from umm.numbers import parse_whole
from umm.plans.lower import lower
from umm.plans.movement.choice import has_library, node_count
from umm.plans.steady import Steady, ends_in, steady
from umm.program import Chain, Outline
from umm.program.layers import parts_of
from umm.program.schemes import on_nodes
from umm.program.systems import (
    CHANGES,
    ZIGZAG,
    fully_sharded,
    gradients_by_tokens,
    in_scheme,
    of_experts,
    sharded_choices,
    shards_weights,
)
from umm.schedules.schedule import Schedule
from umm.space.search.robustness import Spread
from umm.space.search.uncertainty import MOST_OF_RANGE
from umm.space.search.walk import Progress
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind


class Contender(Protocol):
    """A way to compute a program, from where its operands start to where its results end."""

    @property
    def name(self) -> str:
        """The name of its row."""

    def schedule(self, start: Any, machine: Machine) -> Schedule:
        """Return its schedule for a program, of this size or of another."""

    def works_in(self, start: Any) -> Mapping[str, str]:
        """Return the layout of each tensor in which it computes."""

    def how(self, made: Schedule) -> str:
        """Return its choices in words."""

    def own_seconds(self, start: Any, machine: Machine, trace: Trace) -> float:
        """Return its makespan if all tensors started as it wants them, given its trace from the start."""

    def in_words(self, start: Any) -> str:
        """Return the action that it stands for, such as ``gather A``."""


class Timed(NamedTuple):
    """A contender's figures that decide the choice."""

    contender: Contender
    makespan_s: float  # seconds from where operands start to where the results end
    fits: bool  # whether the fullest rank is within the budget


@dataclass(frozen=True)
class Row:
    """A contender on one machine, in full."""

    contender: Contender
    layouts: Mapping[str, str]  # the layout of each tensor in which it computes
    how: str  # its choices in words
    own_s: float  # seconds if all tensors started as it wants them
    makespan_s: float  # seconds from where operands start to where the results end
    # Seconds in which a rank moves or adds up data and computes nothing; the mean of all ranks.
    exposed_s: float
    bytes: int  # payload between ranks, all together
    memory_bytes: int  # what the fullest rank holds
    fits: bool  # whether that is within the budget
    actions: int  # how many actions its schedule has
    # What all layers of a model take, if times, bytes and memory are of these; schedules are of one.
    model: Steady | None = None
    # Its makespan at each of the `umm.machines.corners.corners` of the machine; None if they were not
    # simulated.
    corners_s: tuple[float, ...] | None = None

    @property
    def range_s(self) -> tuple[float, float] | None:
        """The least and the most makespan within the ranges of the machine's numbers; None if not known."""
        if self.corners_s is None:
            return None
        # Corners move all numbers at once, so the makespan as it is may lie outside of all of them.
        seconds = (self.makespan_s, *self.corners_s)
        return min(seconds), max(seconds)

    def lead(self, other: "Row") -> float | None:
        """Return how much longer another takes, as a share, at the corner where that is least.

        Both are compared at the same corner, for a number that they share moves both; None if not known.
        """
        if self.corners_s is None or other.corners_s is None:
            return None
        ours, theirs = (self.makespan_s, *self.corners_s), (other.makespan_s, *other.corners_s)
        return min(other_s / own_s for own_s, other_s in zip(ours, theirs, strict=True)) - 1

    @property
    def algorithm(self) -> str:
        """The row's name."""
        return self.contender.name

    @property
    def title(self) -> str:
        """The row's name as people read it."""
        return self.contender.in_words(None) if isinstance(self.contender, Scheme) else self.algorithm

    def figures(self) -> dict[str, Any]:
        """Return the simulated figures as plain values."""
        names = ("algorithm", "makespan_s", "exposed_s", "bytes", "memory_bytes", "fits", "own_s", "how")
        values = {name: getattr(self, name) for name in names}
        if self.model is not None:
            values |= {"layer_s": self.model.layer_s, "recompute": self.model.recompute}
        return values | {"makespan_range_s": None if self.range_s is None else list(self.range_s)}


def row_of(
    contender: Contender, start: Any, machine: Machine, limit: int, made: Schedule | None = None
) -> Row:
    """Simulate a contender and return its row.

    Args:
        start: The program, and where its operands start.
        made: Its schedule, if there is one already.
    """
    trace = run(made or contender.schedule(start, machine))
    parts = trace.breakdown().mean
    return Row(
        contender=contender,
        layouts=contender.works_in(start),
        how=contender.how(trace.schedule),
        own_s=contender.own_seconds(start, machine, trace),
        makespan_s=trace.makespan_s,
        exposed_s=parts["exposed_communication"] + parts["reduce"],
        bytes=sum(bytes_by_kind(trace.schedule).values()),
        memory_bytes=trace.memory_bytes,
        fits=trace.memory_bytes <= limit,
        actions=len(trace.schedule),
    )


MOST_RANGED = 40_000
"""Actions simulated for the ranges of rows after the fastest; those that would take more have none."""


def ranged(rows: Sequence[Row], start: Any, machine: Machine, progress: Progress | None = None) -> list[Row]:
    """Return rows with their makespans at the corners of a machine's numbers, the fastest rows first."""
    # Of many layers the range is that of one, as many times as long.
    # The fastest row has an allowance of its own; the others share one, in the order in which they matter.
    changed_machines, simulate = corners(machine), executor("sim").makespan
    by_id, left = {id(row): row for row in rows}, MOST_RANGED
    for place, row in enumerate(sorted(rows, key=lambda x: (not x.fits, x.makespan_s))):
        if progress:
            progress(place, len(rows))
        more = row.actions * len(changed_machines)
        if more > (left if place else MOST_OF_RANGE):
            continue
        left -= more if place else 0
        times = row.model.times if row.model else 1.0
        seconds = tuple(
            times * simulate(row.contender.schedule(start, corner)) for corner in changed_machines
        )
        by_id[id(row)] = replace(row, corners_s=seconds)
    return [by_id[id(row)] for row in rows]


MARGIN = 0.01  # by how much another way has to be faster than the first to be worth it, as a share


def chosen(timed: Sequence[Timed | Row], start: Any, preferred: str = "") -> Contender:
    """Return the contender to take of some, the first of which asks for no change.

    The first is taken unless another that fits is faster by the margin; then the fastest that fits, or the
    one whose words are preferred if it is as fast except the margin.
    """
    stay = timed[0]
    fitting = [x for x in timed[1:] if x.fits]
    # The margin favours no change: a gain within the model's error is not worth rewriting code.
    best = min(fitting, key=lambda x: x.makespan_s, default=stay)
    if stay.fits and stay.makespan_s * (1 - MARGIN) <= best.makespan_s:
        return stay.contender
    for x in fitting:
        near = x.makespan_s * (1 - MARGIN) <= best.makespan_s
        if near and x.contender.in_words(start) == preferred:
            return x.contender
    return best.contender


def cost(made: Schedule, limit: int) -> tuple[int, float]:
    """Return the order of candidates: bytes of the fullest rank above a limit, then the makespan."""
    return max(0, int(made.memory_bytes.max()) - limit), executor("sim").makespan(made)


MAX_SLOWDOWN = 1.5
"""How much longer ``gathered`` may take than the fastest movement for the machine's library to be tried."""
BEST, FOUND = "universal", "best found"
"""Name of the scheme with the best layouts, and what people read for it."""
CHANGED, LATENCY, FEW_TOKENS = ("/2", ":fp8"), ("/each",), 1024
"""How schemes of experts end that move rows in parts or in 8 bits; each choice by itself, of at most so many
tokens a rank."""
MOST_COPIES = 4
"""Groups of ranks for each expert, the expert and copies of it, above which schemes are not tried."""


@dataclass(frozen=True)
class Scheme:
    """A way to lay out a program, whose inputs start as it wants unless the program says where."""

    name: str  # what its row is called
    layouts: Mapping[str, str]  # a text for each tensor
    ranks: int  # ranks that share the work
    # What becomes of the program's statements before.
    change: Callable[[Outline], Outline] = field(default=lambda outline: outline)
    stationary: str | Mapping[str, str] = "auto"  # of multiplies by what they write, or for all
    movement: str = "auto"  # how multiplies move what they need and make

    def schedule(self, start: Outline, machine: Machine) -> Schedule:
        """Return the schedule of a program with these tensors."""
        # A scheme may rewrite statements, so its layouts are for the tensors of the changed program.
        chain = self.change(start).laid_out(self.layouts, self.ranks)
        return lower(chain, machine, stationary=self.stationary, movement=self.movement)

    def works_in(self, start: Outline) -> Mapping[str, str]:
        """Return its layouts."""
        return self.layouts

    def how(self, made: Schedule) -> str:
        """Return the option by which it moves operands and sums, where that is not as usual."""
        return "" if self.movement == "auto" or self.gathers_weights else f"--movement {self.movement}"

    def typed(self, schemes: Iterable["Scheme"]) -> list[str]:
        """Return the options of ``umm simulate`` that have the same schedule.

        Args:
            schemes: All of the table; one that differs in its name alone may have a name to type.
        """
        scheme = self.with_name(schemes)
        layouts = ",".join(f"{x}={text}" for x, text in scheme.layouts.items())
        words = ["--layouts", scheme.name if scheme.is_named else layouts]
        if scheme.gathers_weights:  # its name says all
            return words
        stays = scheme.stationary
        if not isinstance(stays, str):
            stays = ",".join(f"{x}={matrix}" for x, matrix in stays.items())
        words += [] if stays in ("", "auto") else ["--stationary", stays]
        return words + ([] if scheme.movement == "auto" else ["--movement", scheme.movement])

    def named(self, schemes: Iterable["Scheme"]) -> str:
        """Return its name, or that of one with the same schedule; else which tensors have which layout."""
        scheme = self.with_name(schemes)
        if scheme.is_named:
            return scheme.name
        # Without a name to type, tensors are grouped by layout: shorter to read than one entry for each.
        alike: dict[str, list[str]] = {}
        for x, text in scheme.layouts.items():
            alike.setdefault(text, []).append(x)
        return "; ".join(f"{text}: {' '.join(tensors)}" for text, tensors in alike.items())

    def with_name(self, schemes: Iterable[Contender]) -> "Scheme":
        """Return one that ``--layouts`` takes by name and that differs in its name alone, or itself."""
        alike = (x for x in schemes if isinstance(x, Scheme) and replace(x, name=self.name) == self)
        return next((x for x in (self, *alike) if x.is_named), self)

    @property
    def gathers_weights(self) -> bool:
        """Whether its name says that weights are gathered and their gradients reduce-scattered."""
        return shards_weights(self.name, self.layouts)

    @property
    def is_named(self) -> bool:
        """Whether ``--layouts`` takes its name."""
        return self.name != BEST

    def moved_fastest(self, start: Outline, machine: Machine, limit: int) -> "tuple[Scheme, Schedule | None]":
        """Return it with the movement that is fastest within a limit, inside one node, and its schedule.

        The schedule is None where there is nothing to choose, so that none is written.

        By the machine's library the same is gathered and summed as by ``gathered``, one collective after
        another: that is simulated where bytes move, and ``gathered`` takes not much more than the fastest.
        """
        if self.movement != "auto" or start.has_experts or node_count(machine, self.ranks) > 1:
            return self, None

        def moved(movement: str) -> tuple[Scheme, Schedule, tuple[int, float]]:
            scheme = replace(self, movement=movement)
            made = scheme.schedule(start, machine)
            return scheme, made, cost(made, limit)

        candidates = [moved(x) for x in ("auto", "gathered", "chunks")]
        gathered, best = candidates[1], min(candidates, key=lambda x: x[2])
        # The library moves the same bytes one collective after another: it
        # can win only where ``gathered`` is near.
        near = gathered[2][1] <= MAX_SLOWDOWN * best[2][1] and any(bytes_by_kind(gathered[1]).values())
        if near and has_library(machine, self.ranks):
            best = min(best, moved("library"), key=lambda x: x[2])
        return best[:2]

    def own_seconds(self, start: Outline, machine: Machine, trace: Trace) -> float:
        """Return the same makespan: it starts as it wants."""
        return trace.makespan_s

    def in_words(self, start: Outline | None) -> str:
        """Return its name as people read it."""
        return self.name if self.is_named else FOUND


def _of_experts(name: str, ranks: int, outline: Outline) -> Outline:
    """Return a mixture as a scheme of experts runs it; see :func:`umm.program.systems.of_experts`."""
    return of_experts(name, outline, ranks) or outline


@dataclass(frozen=True)
class Stack:
    """Many layers as a model has them."""

    layers: int
    # What the backward part computes again: none, attention, all. Of several each scheme has the first with
    # which it fits; with which it does not, the last.
    recompute: tuple[str, ...] = ("none",)
    state: float = 0.0  # bytes of optimizer state for each element of a weight
    vocab: int = 0  # different tokens of the embedding before and the head after; 0 for neither
    head: str = ""  # type of the head's weight, if not that of the layers

    def least_bytes(self, outline: Outline, chain: Chain, recompute: str) -> float:
        """Return a lower bound on all layers' bytes on the fullest rank: weights, gradients, states, kept."""
        tensors = {x.name: x for x in chain.tensors}
        # Weights, gradients and kept activations alone: cheap to sum, and enough to refuse most schemes.
        kept = (tensors[x].nbytes_of_rank for x in parts_of(outline, recompute).kept)
        each = sum(kept, start=np.zeros(chain.p))
        for name in outline.weights:
            weight = tensors[name]
            grads = tensors.get(f"d{name}")
            nbytes = weight.nbytes_of_rank + self.state * weight.layout.elements_of_rank
            each += nbytes + (0 if grads is None else grads.nbytes_of_rank)
        return float(each.max()) * self.layers

    def row(self, scheme: Scheme, start: Outline, machine: Machine, limit: int) -> Row:
        """Return a scheme's row for all layers; see :func:`umm.plans.lower.steady`."""
        *tried, last = self.recompute
        layer = scheme.change(start)
        chain = layer.laid_out(scheme.layouts, scheme.ranks)
        # Recomputation costs time and saves memory, so the first mode that fits is the fastest one.
        for recompute in tried:
            if self.least_bytes(layer, chain, recompute) <= limit:
                row = self._with(recompute, scheme, layer, start, machine, limit)
                if row.fits:
                    return row
        return self._with(last, scheme, layer, start, machine, limit)

    def _with(
        self, recompute: str, scheme: Scheme, layer: Outline, start: Outline, machine: Machine, limit: int
    ) -> Row:
        """Return a scheme's row whose backward part computes some tensors again."""
        how = {"stationary": scheme.stationary, "movement": scheme.movement}
        # Of many layers only a few are simulated; the others take the mean time of these.
        model = steady(
            layer, scheme.layouts, scheme.ranks, machine, self.layers,
            recompute=recompute, state=self.state, room=limit, **how,
        )  # fmt: skip
        ends = ends_in(scheme.name if scheme.is_named else "", start, self.vocab, scheme.ranks, self.head)
        # What an FSDP name says is of its layers; ends in other layouts have choices of their own.
        of_ends = {"stationary": "auto", "movement": "auto"} if scheme.gathers_weights else how
        model = model.with_ends(ends, scheme.ranks, machine, **of_ends)
        moving = model.parts["exposed_communication"] + model.parts["reduce"]
        # Where schemes differ in what they compute again, the row says it.
        again = f"--recompute {recompute}" if len(self.recompute) > 1 else ""
        return Row(
            contender=scheme,
            layouts=scheme.layouts,
            how=", ".join(x for x in (again, scheme.how(model.trace.schedule)) if x),
            own_s=model.makespan_s,
            makespan_s=model.makespan_s,
            exposed_s=moving * self.layers,
            bytes=model.bytes,
            memory_bytes=model.memory_bytes,
            fits=model.memory_bytes <= limit,
            actions=len(model.trace.schedule) // model.depths[-1],
            model=model,
        )


def over_routings(rows: Sequence[Row], starts: Sequence[Outline], machine: Machine) -> list[Spread]:
    """Return the median and the 95th percentile of each row over the same program with other routings.

    Copies of experts are placed anew for each, as if the most wanted experts were known before.
    """
    simulate = executor("sim").makespan
    spreads = []
    for row in rows:
        seconds = [simulate(row.contender.schedule(start, machine)) for start in starts]
        spreads.append(Spread(*(float(np.quantile(seconds, x)) for x in (0.5, 0.95))))
    return spreads


def _over_data_groups(ranks: int, nodes: int) -> list[str]:
    """Return the schemes with data groups: all of one rank, sharded; or of each node, and of half the nodes.

    >>> _over_data_groups(8, 1), _over_data_groups(32, 4)
    (['ep1-fsdp8'], ['ep8-dp4', 'ep8-fsdp4', 'ep16-dp2'])
    """
    if nodes == 1:
        return [f"ep1-fsdp{ranks}"]
    size = ranks // nodes
    halves = [f"ep{ranks // 2}-dp2"] if nodes > 2 and nodes % 2 == 0 else []
    return [f"ep{size}-dp{nodes}", f"ep{size}-fsdp{nodes}", *halves]


def _of_experts_here(outline: Outline, ranks: int, nodes: int) -> list[str]:
    """Return the schemes of a mixture that give every rank an expert or a copy, and cut none over nodes."""
    experts = max(len(x.experts) for x in outline.tensors) - 1
    # No cut beyond a node: an expert over several nodes would put its sums on the slow links.
    cuts = {x: ranks // x for x in range(1, min(ranks - 1, ranks // nodes) + 1) if ranks % x == 0}
    names = [f"ep{groups}-tp{x}" for x, groups in cuts.items() if x > 1 and groups <= experts]
    names += [
        f"ep{groups}{f'-tp{x}' if x > 1 else ''}+{groups - experts}"
        for x, groups in cuts.items()
        if experts < groups <= MOST_COPIES * experts
    ]
    few = outline.tensors[0].rows <= FEW_TOKENS * ranks
    if 1 < ranks <= experts:
        names += [f"ep{ranks}+{ranks}", *(f"ep{ranks}{x}" for x in CHANGED + LATENCY * few)]
    if 1 < cuts.get(2, 0) <= experts:
        names.append(f"ep{ranks // 2}-tp2+{ranks // 2}")
    return names + [x for x in _over_data_groups(ranks, nodes) if ranks > 1 and _in_group(x) <= experts]


def _in_group(name: str) -> int:
    """Return the ranks of a data group.

    >>> _in_group("ep64-dp2")
    64
    """
    return parse_whole(name.removeprefix("ep").partition("-")[0])


def systems(outline: Outline, ranks: int, machine: Machine) -> Iterator[Scheme]:
    """Yield the schemes of training systems that a program has the layouts for, on nodes those for nodes."""
    nodes = node_count(machine, ranks)
    for name in outline.layouts:
        if outline.has_experts and nodes > 1 and name == "tensor":
            continue  # every expert over all nodes, in the most and smallest transfers
        layouts = {x.name: outline.layouts[name].get(x.name, "row") for x in outline.tensors}
        yield Scheme(name, layouts, ranks)
    if outline.has_experts:
        for name in _of_experts_here(outline, ranks, nodes):
            yield _changed(name, outline, ranks, partial(_of_experts, name, ranks))
        return
    for name in ("ring", "gather", "ulysses"):
        try:
            changed = CHANGES[name](outline)
        except ProblemError:  # no fused attention
            continue
        yield Scheme(name, changed.default_layouts, ranks, CHANGES[name], gradients_by_tokens(outline))
    try:
        if nodes > 1:
            for name in on_nodes(nodes, ranks // nodes):
                yield _changed(name, outline, ranks)
            yield from _by_heads([nodes], outline, ranks)
            for name in (*on_nodes(nodes, ranks // nodes), f"fsdp{nodes}-ulysses{ranks // nodes}"):
                with suppress(ProblemError):  # nothing to balance
                    yield _changed(f"{name}{ZIGZAG}", outline, ranks)
            return
        # On one node all meshes of two axes are few enough to try; on several, only those people use.
        sharded = fully_sharded(outline)
        how = sharded_choices(sharded.laid_out(ranks=ranks))
        yield Scheme("fsdp", sharded.default_layouts, ranks, fully_sharded, **how)
        meshes = [(ranks // data, data) for data in range(2, ranks) if ranks % data == 0]
        for tensor, data in meshes:
            for name in (f"tp{tensor}-dp{data}", f"fsdp{data}-tp{tensor}", f"fsdp{data}-sp{tensor}"):
                yield _changed(name, outline, ranks)
        if ranks % 2 == 0 and ranks > 2:
            yield _changed(f"hsdp{ranks // 2}x2", outline, ranks)
        yield from _by_heads([1, *(data for _, data in meshes)], outline, ranks)
    except ProblemError:  # not a preset's layouts
        return


def _by_heads(groups: Iterable[int], outline: Outline, ranks: int) -> Iterator[Scheme]:
    """Yield FSDP with attention by heads in some numbers of groups of ranks, of a chain with attention."""
    if not any(x.attends for x in outline.statements):
        return
    for count in groups:
        yield _changed(f"fsdp{count}-ulysses{ranks // count}", outline, ranks)


def _changed(
    name: str, outline: Outline, ranks: int, change: Callable[[Outline], Outline] | None = None
) -> Scheme:
    """Return the scheme of a name, with its change of the program, if any."""
    change = change or partial(in_scheme, name, ranks=ranks)
    changed = change(outline)
    layouts = changed.layouts_of(name, ranks)
    gathers = shards_weights(name, (x.name for x in changed.tensors))
    how: dict[str, Any] = sharded_choices(changed.laid_out(layouts, ranks)) if gathers else {}
    if changed is not outline:
        how["change"] = change
    return Scheme(name, layouts, ranks, **how)

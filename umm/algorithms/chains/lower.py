"""From a chain to one schedule, and the time of one layer among many in steady state."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from umm.algorithms.algorithm import check_names
from umm.algorithms.chains.attention import attention
from umm.algorithms.chains.experts import combine, dispatch
from umm.algorithms.chains.grouped import grouped, sum_copies
from umm.algorithms.chains.maps import map_tiles
from umm.algorithms.chains.movement import Moved, in_turns, moved_by, plans_of
from umm.algorithms.chains.multiplies import multiply
from umm.algorithms.chains.pieces import sum_replicas
from umm.algorithms.movement.multiply import Gathered
from umm.algorithms.moves import move
from umm.algorithms.redistribution import redistribute
from umm.algorithms.universal.options import Options, known
from umm.errors import ProblemError, did_you_mean
from umm.executor import run
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.program import (
    Attention,
    AttentionGrad,
    Chain,
    Combine,
    Copy,
    Dispatch,
    Grouped,
    Map,
    Multiply,
    Outline,
    Sum,
    SumCopies,
)
from umm.program.layers import copies, of_layers, parts_of, repeated
from umm.schedules.schedule import Schedule
from umm.schedules.writer.assembly import without_collector
from umm.schedules.writer.builder import Builder
from umm.traces.breakdown import PARTS
from umm.traces.trace import Trace


def lower(
    chain: Chain, machine: Machine | str, *, stationary: str | Mapping[str, str] = "auto", **options: Any
) -> Schedule:
    """Return the schedule of a chain on a machine, every tensor in the layout the chain gives it.

    Every replica of what a statement writes is complete afterwards. Statements overlap tile by tile: an
    action waits for what it reads and overwrites, not for the statement before.

    Args:
        chain: The statements and their tensors.
        machine: A machine, its name, or the path of its machine file.
        stationary: A, B, C or ``auto`` for every multiply that is not a batch, or one for each by the name of
            what it writes; ``auto`` is the largest matrix.
        options: The universal algorithm's, for its multiplies; these get slices always.

    Raises:
        ScheduleError: for an unknown option or a value that means nothing.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    check_names(known(), options, "a schedule")
    stays = stationary if isinstance(stationary, Mapping) else dict.fromkeys(_products(chain), stationary)
    _check_stationary(chain, stays)
    said = {"stationary": stationary if isinstance(stationary, str) else _in_words(stays)}
    chosen = replace(Options(**options), granularity="slice")
    plans = plans_of(chain, machine, stays, chosen.movement)
    said |= {"moved_by": moved_by(chain, plans, machine)} if plans else {}
    build = Builder(chain.name, chain, machine, options=chosen.to_dict() | said)
    with without_collector():
        _write(build, chain, stays, options, plans)
        return build.schedule()


def _write(
    build: Builder,
    chain: Chain,
    stays: Mapping[str, str],
    options: Mapping[str, Any],
    plans: Mapping[int, Gathered],
) -> None:
    """Write the actions of all statements."""
    written: set[str] = set()
    order = in_turns(chain.statements, {number: how.sums.adds for number, how in plans.items()})
    statements = [chain.statements[number] for number in order]
    in_order = {at: plans[number] for at, number in enumerate(order) if number in plans}
    moved = Moved(build, statements, in_order)
    for number, statement in enumerate(statements):
        again = statement.out in written
        match statement:
            case Multiply() if number in moved.plans:
                moved.write(number, again)
            case Multiply():
                multiply(build, statement, again, stays.get(statement.out, "auto"), options)
            case Map():
                map_tiles(build, statement, again)
            case Copy():
                redistribute(build, statement.x, statement.out, _way(build, statement))
            case Sum():
                sum_replicas(build, statement, again)
            case Attention() | AttentionGrad():
                attention(build, statement, written)
            case Dispatch():
                dispatch(build, statement)
            case Combine():
                combine(build, statement)
            case Grouped():
                grouped(build, statement, again)
            case SumCopies():
                sum_copies(build, statement)
        written.update(statement.outs)
        moved.forget(statement.outs)


def _way(build: Builder, statement: Copy) -> str:
    """Return the way to redistribute that takes least by itself."""
    ends = (build.layout(statement.x), build.layout(statement.out))
    return move(*ends, build.machine, build.tensors[build.number(statement.x)].dtype).way


def _check_stationary(chain: Chain, stationary: Mapping[str, str]) -> None:
    """Refuse a stationary matrix that is none, or of what no multiply writes.

    Raises:
        ProblemError: in one line.
    """
    products = _products(chain)
    for name, matrix in stationary.items():
        if name not in products:
            raise ProblemError(
                f"no multiply of chain {chain.name} writes {name!r}; {did_you_mean(name, products)}"
            )
        if matrix not in ("A", "B", "C", "auto"):
            raise ProblemError(
                f"stationary matrix {matrix!r} of {name} is unknown; choose from A, B, C, auto"
            )


def _products(chain: Chain) -> list[str]:
    return list(dict.fromkeys(x.out for x in chain.statements if isinstance(x, Multiply)))


def _in_words(stationary: Mapping[str, str]) -> str:
    return ",".join(f"{name}={matrix}" for name, matrix in stationary.items())


FEW = 2
"""Layers that a model starts and ends with; each more is taken to add as much as the next one does."""


@dataclass(frozen=True)
class Steady:
    """A model of equal layers on a machine.

    Attributes:
        layers: How many.
        recompute: What the backward part computes again.
        layer_s: Seconds of one in the middle, forward and backward.
        makespan_s: Seconds of all of them.
        parts: Of a layer in the middle the seconds of compute, reduce, exposed communication and idle, the
            mean of all ranks; they add up to ``layer_s``, and none is negative.
        memory_bytes: What the fullest rank holds of all layers.
        weights: Elements of the weights of a layer.
        kept_bytes: Of it what a layer keeps for the backward part on the fullest rank.
        layer_bytes: What one layer more adds on the rank where it adds most.
        trace: Of a few layers.
        state: Bytes of optimizer state for each element of a weight, counted in the memory.
        ends: Seconds of the embedding and the head, which are part of all seconds; empty without them.
    """

    layers: int
    recompute: str
    layer_s: float
    makespan_s: float
    parts: Mapping[str, float]
    memory_bytes: int
    weights: int
    kept_bytes: int
    layer_bytes: int
    trace: Trace
    state: float = 0.0
    ends: Mapping[str, float] = field(default_factory=dict)

    def with_end(
        self, name: str, chain: Chain, weights: Collection[str], machine: Machine, state: float, **how: Any
    ) -> "Steady":
        """Return it with a chain before or after all layers, which nothing of them overlaps.

        Args:
            name: What it is called.
            chain: Laid out.
            weights: Its tensors with optimizer state.
            machine: Where.
            state: Bytes of optimizer state for each element of these.
            how: As :func:`lower` takes it.
        """
        trace = run(lower(chain, machine, **how))
        held = trace.memory_bytes + sum(
            int(state * x.layout.elements_of_rank.max()) for x in chain.tensors if x.name in weights
        )
        return replace(
            self,
            makespan_s=self.makespan_s + trace.makespan_s,
            memory_bytes=self.memory_bytes + held,
            ends={**self.ends, name: trace.makespan_s},
        )

    def fits(self, room: float) -> int:
        """Return how many such layers fit into so many bytes of a rank."""
        over = max(0.0, self.memory_bytes - room)
        return max(0, self.layers - ceil(over / self.layer_bytes)) if self.layer_bytes else self.layers

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "ends": dict(self.ends),
            "layers": self.layers, "recompute": self.recompute, "layer_s": self.layer_s,
            "makespan_s": self.makespan_s, "layer_parts": dict(self.parts),
            "memory_bytes": self.memory_bytes, "kept_bytes": self.kept_bytes, "layer_bytes": self.layer_bytes,
        }  # fmt: skip


def steady(
    layer: Outline,
    layouts: Mapping[str, str],
    ranks: int,
    machine: Machine,
    layers: int,
    *,
    recompute: str = "none",
    state: float = 0.0,
    **how: Any,
) -> Steady:
    """Return what many layers take, from schedules of two and of three.

    The third layer adds what every further one adds: gathers of the next layer's weights, and sums of
    gradients, run behind the multiplies of their neighbours as far as they can.

    Args:
        layer: One layer, such as a preset.
        layouts: The layout of each of its tensors.
        ranks: Ranks that share the work.
        machine: Where.
        layers: How many layers.
        recompute: What the backward part computes again: none, attention, all.
        state: Bytes of optimizer state for each element of a weight.
        how: As :func:`umm.algorithms.chains.lower.lower` takes it.

    Raises:
        InputError: if the chain is not a layer, or cannot be laid out.
    """
    few = min(layers, FEW)
    fewer, more = (_trace(layer, layouts, ranks, machine, n, recompute, how) for n in (few, few + 1))
    rest = layers - few
    layer_s = more.makespan_s - fewer.makespan_s
    held = [trace.schedule.memory_bytes for trace in (fewer, more)]
    laid = layer.laid_out(layouts, ranks)
    of_state = sum(
        (x.layout.elements_of_rank * state for x in laid.tensors if x.name in layer.weights),
        start=0 * held[0],
    )
    count, counted, next_one = (copies(layer, n, recompute) for n in (layers, few + 1, layers + 1))
    more_held = sum((x.nbytes_of_rank * (count[x.name] - counted[x.name]) for x in laid.tensors), held[1])
    memory = (more_held if rest else held[0]) + (of_state * layers).astype(held[0].dtype)
    added = sum((x.nbytes_of_rank * (next_one[x.name] - count[x.name]) for x in laid.tensors), of_state)
    kept = parts_of(layer, recompute).kept if recompute != "none" or layer.kept else frozenset()
    return Steady(
        layers,
        recompute,
        layer_s,
        fewer.makespan_s + layer_s * rest,
        added_parts(fewer, more),
        int(memory.max()),
        sum(x.shape[0] * x.shape[1] for x in laid.tensors if x.name in layer.weights),
        int(sum(x.nbytes_of_rank.max() for x in laid.tensors if x.name in kept)),
        int(added.max()),
        more,
        state,
    )


def added_parts(fewer: Trace, more: Trace) -> dict[str, float]:
    """Return the parts of the time that a layer more adds, in seconds, the mean of all ranks.

    It may take away some of a part, as when its gathers fill idle time at the ends. That part is then 0, and
    another wait is as much shorter.
    """
    before, after = fewer.breakdown().mean, more.breakdown().mean
    found, rest = {}, max(0.0, more.makespan_s - fewer.makespan_s)
    for part in PARTS[:-1]:
        found[part] = min(max(0.0, after[part] - before[part]), rest)
        rest -= found[part]
    return {**found, PARTS[-1]: rest}  # idle is what is left


def _trace(
    layer: Outline,
    layouts: Mapping[str, str],
    ranks: int,
    machine: Machine,
    layers: int,
    recompute: str,
    how: Any,
) -> Trace:
    whole = repeated(layer.with_layouts("asked", layouts), layers, recompute)
    if isinstance(how.get("stationary"), Mapping):
        how = how | {"stationary": of_layers(layer, layers, how["stationary"], recompute)}
    return run(lower(whole.laid_out("asked", ranks), machine, **how))

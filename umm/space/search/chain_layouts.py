"""The search over a chain's layouts: from the lowest bound up, until no bound can beat the best."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from umm.algorithms.chains.lower import lower
from umm.arrays import Floats, Ints
from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.schedules.schedule import Schedule
from umm.space.bounds.chain_work import statement_work
from umm.space.chain_space import ChainSpace
from umm.space.search.budget import DEVICE, limit_of
from umm.units import format_bytes


@dataclass(frozen=True)
class ChainChoice:
    """An assignment of layouts that was simulated.

    Attributes:
        layouts: The layout of each tensor as text.
        makespan_s: Seconds of the joined schedule.
        bound_s: Its lower bound in seconds.
        fraction_of_peak: Useful flop/s over the peak of the devices used.
        memory_bytes: What the fullest rank allocates.
    """

    layouts: dict[str, str]
    makespan_s: float
    bound_s: float
    fraction_of_peak: float
    memory_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return dict(vars(self))


@dataclass(frozen=True)
class FoundChain:
    """The best layouts of a chain, and how much had to be looked at to know that they are.

    Attributes:
        machine: Name of the machine.
        limit: Bytes a rank was allowed.
        top: The best assignments, fastest first.
        named: Makespan of each of the chain's own layouts by name, in seconds; None where it does not fit.
        priced: Assignments of the space, all of them bounded.
        pruned: Those that a bound or their memory ruled out.
        simulated: Those simulated.
        proven: Whether no assignment of the space that fits can beat the best.
        gap: How far the best may be above the best there is, as a share of itself; 0 if proven.
    """

    machine: str
    limit: int
    top: list[ChainChoice]
    named: dict[str, float | None]
    priced: int
    pruned: int
    simulated: int
    proven: bool
    gap: float


def search_chain(
    space: ChainSpace,
    machine: Machine | str,
    *,
    makespan: Callable[[Schedule], float] | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Callable[[int, int], None] | None = None,
    most: int = 5000,
    **options: Any,
) -> FoundChain:
    """Return the best layouts for a chain in its space, proven by bounds.

    Args:
        space: The chain and the layouts to choose from.
        machine: A machine, its name, or the path of its topology file.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``.
        memory: Budget per rank: bytes, a multiple of all tensors' share unreplicated, ``device``
            for what a rank has of its device less a tenth, or None for all of that.
        top: How many of the best to find.
        progress: Called now and then with the number of assignments settled and of all.
        most: Simulations after which it stops with a gap.
        options: The universal algorithm's, for all multiplies.

    Raises:
        InfeasibleError: if no assignment fits.
        InputError: for a budget or a layout that is none, or more assignments than can be priced.
    """
    if top < 1:
        raise InputError(f"top = {top} is not possible; it must be a whole number ≥ 1")
    machine = machine if isinstance(machine, Machine) else find_machine(machine)
    space = space.on(machine.default_ranks)
    ranks = space.ranks or 1
    machine.check_ranks(ranks)
    simulate = makespan or executor("sim").makespan
    limit = _limit(space, machine, memory, ranks)
    bounds, held = priced(space, machine, options)
    fits = np.nonzero(held <= limit)[0]
    best: list[ChainChoice] = []
    simulated, respected, lowest = 0, True, math.inf
    order = fits[np.argsort(bounds[fits], kind="stable")].tolist()
    shape = [len(x) for x in space.choices]
    for settled, number in enumerate(order):
        bound = float(bounds[number])
        if len(best) >= top and bound >= best[top - 1].makespan_s:
            break
        if simulated >= most:
            lowest = bound
            break
        place = [int(x) for x in np.unravel_index(number, shape)]
        chain = space.laid_out(place)
        schedule = lower(chain, machine, **options)
        memory_bytes = int(schedule.memory_bytes.max())
        if memory_bytes > limit:
            continue
        seconds = simulate(schedule)
        simulated += 1
        respected = respected and seconds >= bound
        peak = chain.flop / (seconds * schedule.peak) if schedule.peak else math.nan
        best.append(ChainChoice(space.texts(place), seconds, bound, peak, memory_bytes))
        best.sort(key=lambda x: (float(f"{x.makespan_s:.9e}"), x.memory_bytes, str(x.layouts)))
        del best[top:]
        if progress is not None:
            progress(settled + 1, len(order))
    if not best:
        raise InfeasibleError(
            f"no layouts of chain {space.chain.name} fit {format_bytes(limit)} a rank; "
            f"its tensors alone take {format_bytes(int(held.min()))} or more"
        )
    gap = max(0.0, 1 - lowest / best[0].makespan_s) if lowest < math.inf else 0.0
    named = {name: _named(space, name, machine, simulate, limit, options) for name in space.chain.layouts}
    pruned = len(bounds) - simulated
    proven = respected and gap == 0.0
    return FoundChain(machine.name, limit, best, named, len(bounds), pruned, simulated, proven, gap)


def priced(space: ChainSpace, machine: Machine, options: dict[str, Any]) -> tuple[Floats, Ints]:
    """Return the bound in seconds and the bytes of all tensors on the fullest rank, for every assignment."""
    ranks = space.ranks or 1
    shape = tuple(len(x) for x in space.choices)
    group_of = {name: number for number, names in enumerate(space.groups) for name in names}
    outlined = {x.name: x for x in space.chain.tensors}
    total: Floats | None = None
    for statement in space.chain.statements:
        names = dict.fromkeys((statement.out, *statement.reads))
        groups = sorted({group_of[x] for x in names})
        rows = []
        for place in product(*(range(shape[x]) for x in groups)):
            chosen = dict(zip(groups, place, strict=True))
            texts = {x: space.choices[group_of[x]][chosen[group_of[x]]] for x in names}
            tensors = {x: outlined[x].laid_out(text, ranks) for x, text in texts.items()}
            rows.append(statement_work(statement, tensors, machine, options))
        spread = [shape[x] if x in groups else 1 for x in range(len(shape))]
        work = np.array(rows).reshape(*spread, -1)
        total = np.zeros((*shape, work.shape[-1])) if total is None else total
        total += work
    held = np.zeros((*shape, ranks), dtype=np.int64)
    for name, number in group_of.items():
        nbytes = [outlined[name].laid_out(x, ranks).nbytes_of_rank for x in space.choices[number]]
        held += np.array(nbytes).reshape(*(n if x == number else 1 for x, n in enumerate(shape)), ranks)
    assert total is not None
    return total.max(axis=-1).reshape(-1), held.max(axis=-1).reshape(-1)


def _limit(space: ChainSpace, machine: Machine, memory: str | int | None, ranks: int) -> int:
    tensors = space.chain.laid_out({}, ranks).tensors
    share = sum(x.shape[0] * x.shape[1] * x.itemsize for x in tensors) / ranks
    return limit_of(memory, share, machine, ranks)


def _named(
    space: ChainSpace,
    name: str,
    machine: Machine,
    simulate: Callable[[Schedule], float],
    limit: int,
    options: dict[str, Any],
) -> float | None:
    schedule = lower(space.chain.laid_out(name, space.ranks or 1), machine, **options)
    return simulate(schedule) if int(schedule.memory_bytes.max()) <= limit else None

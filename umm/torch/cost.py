"""What it takes to bring a tensor from one placement to another: the fastest of schedules, and of detours.

Between any two placements without partial sums the fastest schedule of ``umm.redistribute``; where sums are
left to do, a collective along one axis of the mesh at a time. The cost is that of the shortest path, so no
detour is ever cheaper than what is asked for: the triangle inequality holds, exactly.
"""

from collections.abc import Iterator
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count, product
from math import inf

from umm.algorithms.collectives.registry import ways
from umm.algorithms.fastest import fastest_of
from umm.algorithms.redistribution.redistribution import redistribute
from umm.algorithms.writing.counts import counted
from umm.executor import executor
from umm.interval import Interval
from umm.layouts.frameworks.mesh import Cut
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program import Chain, Copy, Statement, Sum
from umm.program.tensors import Tensor
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder
from umm.torch.placed import PARTIAL, Matter, State

PLAIN = (None, Cut(0), Cut(1))


@lru_cache(maxsize=4096)
def seconds(tensor: Matter, now: State, then: State, machine: Machine) -> float:
    """Return the seconds from one placement of a tensor to another; infinite if there is no way."""
    if now == then:
        return 0.0
    order, best, done = count(), {now: 0.0}, set[State]()
    queue: list[tuple[float, int, State]] = [(0.0, next(order), now)]
    while queue:
        taken, _, state = heappop(queue)
        if state == then:
            return taken
        if state in done:
            continue
        done.add(state)
        for after in _next(tensor, state, then):
            if after in done or taken >= best.get(then, inf):
                continue
            found = taken + step(tensor, state, after, machine)
            if found < best.get(after, inf):
                best[after] = found
                heappush(queue, (found, next(order), after))
    return inf


def _next(tensor: Matter, state: State, then: State) -> Iterator[State]:
    """Yield what may follow a placement, what is asked for first."""
    if PARTIAL not in state:
        if PARTIAL not in then:
            yield then
        yield from (x for x in product(PLAIN, repeat=len(state)) if x not in (state, then))
    for axis, use in enumerate(state):
        for after in (*PLAIN, PARTIAL):
            changed = (*state[:axis], after, *state[axis + 1 :])
            sums = PARTIAL in state or after == PARTIAL
            able = after != PARTIAL or use is None  # a part of a sum is made of what all have
            if after != use and sums and able and _innermost(state, axis) and _innermost(changed, axis):
                yield changed


def _innermost(state: State, axis: int) -> bool:
    """Whether no axis after this one cuts what it cuts."""
    use = state[axis]
    return not isinstance(use, Cut) or not any(
        isinstance(x, Cut) and x.dim == use.dim for x in state[axis + 1 :]
    )


@lru_cache(maxsize=65536)
def step(tensor: Matter, now: State, then: State, machine: Machine) -> float:
    """Return the seconds of one step: a redistribution, or along one axis a collective."""
    x, y = tensor.layout(now), tensor.layout(then)
    if PARTIAL not in now and PARTIAL not in then:
        schedule = redistribute(x, y, machine=machine, dtype=tensor.dtype)
        return (
            executor("sim").makespan(schedule) if counted(schedule).words else 0.0
        )  # all narrow what they have
    (axis,) = (i for i, (a, b) in enumerate(zip(now, then, strict=True)) if a != b)
    if now[axis] is None:
        return 0.0  # each narrows what it has
    what = {
        (True, True): "all-reduce",
        (True, False): "reduce-scatter",
        (False, True): "all-gather",
        (False, False): "all-to-all",
    }[now[axis] == PARTIAL, then[axis] is None]
    return _collective(what, x, y, tensor.groups(axis), machine, tensor.dtype)


def _collective(
    what: str, x: Layout, y: Layout, groups: list[list[int]], machine: Machine, dtype: str
) -> float:
    """Return the seconds of a collective in several groups at once, in the fastest way there is."""
    made = {}
    for name, way in ways().items():
        if what not in way.writers or any(way.refuses(machine, group, x.ranks) for group in groups):
            continue
        in_place = what == "all-reduce"
        statement: Statement = (
            Sum("X", "X") if in_place else Sum("Y", "X") if what == "reduce-scatter" else Copy("Y", "X")
        )
        tensors = [Tensor("X", x, dtype, "both" if in_place else "input")]
        tensors += [] if in_place else [Tensor("Y", y, dtype, "output")]
        build = Builder(name, Chain(what, tuple(tensors), (statement,), x.ranks), machine)
        had = {rank: _own(build, "X", rank) for rank in range(x.ranks)}
        has = had if in_place else {rank: _own(build, "Y", rank) for rank in range(x.ranks)}

        def part(rank: int, owner: int, had: dict[int, Slice] = had, has: dict[int, Slice] = has) -> Slice:
            return had[rank].cut(has[owner].rows, has[owner].cols)

        def into(rank: int, origin: int, had: dict[int, Slice] = had, has: dict[int, Slice] = has) -> Slice:
            return has[rank].cut(had[origin].rows, had[origin].cols)

        for group in groups:
            match what:
                case "all-reduce":
                    way.writers[what](build, group, had.__getitem__, has.__getitem__)
                case "reduce-scatter":
                    way.writers[what](build, group, part, has.__getitem__)
                case "all-gather":
                    way.writers[what](build, group, had.__getitem__, into)
                case _:
                    way.writers[what](build, group, part, into)
        made[name] = build.schedule()
    return next(iter(fastest_of(made).seconds.values()))


def _own(build: Builder, name: str, rank: int) -> Slice:
    """Return what a rank holds of a matrix, which is one tile; an empty one if it holds nothing."""
    layout = build.layout(name)
    tiles = [build.tile(name, i, j, layout.replica(rank)) for i, j in layout.tiles_of(rank)]
    empty = Slice(-1, rank, build.number(name), Interval(0, 0), Interval(0, 0))
    return max(tiles, key=lambda tile: tile.elements, default=empty)

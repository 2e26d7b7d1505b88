"""The cost of moving a DTensor between placements, also with the signature of torch's own."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heappop, heappush
from itertools import count, product
from math import inf, prod
from typing import Any

import numpy as np

from umm.algorithms.writing import counted
from umm.arrays import Ints
from umm.errors import InputError, LayoutError
from umm.executor import executor
from umm.layouts.frameworks.mesh import Cut, Meshed, Use, parts_of
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.collectives.collective import able, fastest_of, ways
from umm.plans.collectives.way import Exchange
from umm.plans.redistribution.redistribution import redistribute
from umm.program import Chain, Copy, Statement, Sum
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

PARTIAL = "Partial"
State = tuple[Use | str, ...]  # what each axis of a mesh does: cut, replicate (None), or hold a part of a sum
DTYPES = {8: "float64", 4: "float32", 2: "float16"}


@dataclass(frozen=True)
class Matter:
    """A tensor folded to a matrix: the dimensions that are cut are its rows and columns."""

    mesh: tuple[int, ...]  # shape of the device mesh
    ranks: tuple[int, ...]  # the rank at each place of it, row-major
    shape: tuple[int, int]  # rows and columns
    width: int  # elements that each of them stands for
    dtype: str  # of umm's types one with elements as large

    def layout(self, state: State) -> Layout:
        """Return the layout of a state; a Partial axis counts as held by everyone."""
        uses = tuple(None if isinstance(use, str) else use for use in state)
        parts = parts_of(self.shape, Meshed(np.array(self.ranks).reshape(self.mesh), uses))
        wide = parts._replace(col_edges=parts.col_edges * self.width)
        return Layout(
            (self.shape[0], self.shape[1] * self.width),
            wide.row_edges,
            wide.col_edges,
            wide.process_grid,
            replicas=len(wide.places),
            places=wide.places,
        )

    def groups(self, axis: int) -> list[list[int]]:
        """Return the ranks that are joined along an axis."""
        ranks: Ints = np.moveaxis(np.array(self.ranks).reshape(self.mesh), axis, -1)
        lines: list[list[int]] = ranks.reshape(-1, self.mesh[axis]).tolist()
        return lines


def matter(now: Any, then: Any) -> tuple[Matter, State, State]:
    """Return the tensor of two specs, and its state on each axis of its mesh before and after.

    LayoutError for three dimensions that are cut, where a layout has two.

    Args:
        now: A ``DTensorSpec``.
        then: Another, of the same tensor on the same mesh.
    """
    sizes, itemsize = tuple(int(n) for n in now.shape), int(now.tensor_meta.dtype.itemsize)
    cut = sorted(
        {_dim(x) % len(sizes) for spec in (now, then) for x in spec.placements if _dim(x) is not None}
    )
    if len(cut) > 2:
        raise LayoutError(f"dimensions {', '.join(map(str, cut))} are cut; a layout cuts two of them")
    over = [dim for dim in range(len(sizes)) if dim not in cut]
    dims = (cut + over)[:2]  # a dimension that is not cut may be rows or columns as well
    folded = [sizes[dim] for dim in dims] + [1, 1]
    width = prod(sizes) // max(1, prod(folded[:2]))
    if itemsize not in DTYPES:
        width, itemsize = -(-width * itemsize // 2), 2
    ids = np.array(now.mesh.mesh.tolist())
    ranks = tuple(ids.reshape(-1).argsort().argsort().tolist())
    tensor = Matter(ids.shape, ranks, (folded[0], folded[1]), width, DTYPES[itemsize])
    states = (_state(spec.placements, dims, len(sizes)) for spec in (now, then))
    # An axis of one rank cuts nothing, and its part of a sum is the sum.
    before, after = (
        tuple(use if n > 1 else None for n, use in zip(ids.shape, state, strict=True)) for state in states
    )
    return tensor, before, after


def _dim(placement: Any) -> Any:
    """Return the dimension a placement cuts, by its attribute; None if none."""
    return getattr(placement, "dim", None)


def _state(placements: Sequence[Any], dims: Sequence[int], count: int) -> State:
    state: list[Use | str] = []
    for placement in placements:
        if _dim(placement) is not None:
            state.append(Cut(dims.index(_dim(placement) % count), int(getattr(placement, "split_factor", 1))))
        else:
            state.append(PARTIAL if "Partial" in type(placement).__name__ else None)
    return tuple(state)


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
        for after in _next(state, then):
            if after in done or taken >= best.get(then, inf):
                continue
            total = taken + step(tensor, state, after, machine)
            if total < best.get(after, inf):
                best[after] = total
                heappush(queue, (total, next(order), after))
    return inf


def _next(state: State, then: State) -> Iterator[State]:
    """Yield the placements that may follow one, the wanted one first."""
    if PARTIAL not in state:
        if PARTIAL not in then:
            yield then
        yield from (x for x in product(PLAIN, repeat=len(state)) if x not in (state, then))
    for axis, use in enumerate(state):
        for after in dict.fromkeys((*PLAIN, PARTIAL, then[axis])):
            changed = (*state[:axis], after, *state[axis + 1 :])
            sums = PARTIAL in state or after == PARTIAL
            able = after != PARTIAL or use is None  # a part of a sum is made of what all have
            # Strides of a dimension are gathered before it is cut otherwise.
            able = able and not (isinstance(use, Cut) and isinstance(after, Cut) and use.dim == after.dim)
            if after != use and sums and able and _innermost(state, axis) and _innermost(changed, axis):
                yield changed


def _innermost(state: State, axis: int) -> bool:
    """Whether no axis after this one cuts the same dimension."""
    use = state[axis]
    return not isinstance(use, Cut) or not any(
        isinstance(x, Cut) and x.dim == use.dim for x in state[axis + 1 :]
    )


@lru_cache(maxsize=65536)
def step(tensor: Matter, now: State, then: State, machine: Machine) -> float:
    """Return the seconds of one step: a redistribution, or along one axis a collective."""
    if PARTIAL not in now and PARTIAL not in then:
        x, y = tensor.layout(now), tensor.layout(then)
        schedule = redistribute(x, y, machine=machine, dtype=tensor.dtype)
        # Without any words all narrow what they have.
        return executor("sim").makespan(schedule) if counted(schedule).words else 0.0
    (axis,) = (i for i, (a, b) in enumerate(zip(now, then, strict=True)) if a != b)
    if now[axis] is None:
        return 0.0  # each narrows what it has
    what = {
        (True, True): "all-reduce",
        (True, False): "reduce-scatter",
        (False, True): "all-gather",
        (False, False): "all-to-all",
    }[now[axis] == PARTIAL, then[axis] is None]
    # A cut in strides has as much on each rank as one in one go, which is a tile.
    x, y = (
        tensor.layout(tuple(Cut(use.dim) if isinstance(use, Cut) else use for use in state))
        for state in (now, then)
    )
    return _collective(what, x, y, tensor.groups(axis), machine, tensor.dtype)


def _collective(
    what: str, x: Layout, y: Layout, groups: list[list[int]], machine: Machine, dtype: str
) -> float:
    """Return the seconds of a collective in several groups at once, in the fastest way there is."""
    made = {}
    for name in able(what, machine, groups, x.ranks, kernels=False):
        way = ways()[name]
        in_place = what == "all-reduce"
        statement: Statement = (
            Sum("X", "X") if in_place else Sum("Y", "X") if what == "reduce-scatter" else Copy("Y", "X")
        )
        tensors = [Tensor("X", x, dtype, "both" if in_place else "input")]
        tensors += [] if in_place else [Tensor("Y", y, dtype, "output")]
        build = Builder(name, Chain(what, tuple(tensors), (statement,), x.ranks), machine)
        had = {rank: build.own("X", rank) for rank in range(x.ranks)}
        has = had if in_place else {rank: build.own("Y", rank) for rank in range(x.ranks)}

        sends: Any = had.__getitem__ if what in ("all-reduce", "all-gather") else _cut(had, has)
        keeps: Any = has.__getitem__ if what in ("all-reduce", "reduce-scatter") else _cut(has, had)
        for group in groups:
            way.writers[what](Exchange(build, group, sends, keeps))
        made[name] = build.schedule()
    return next(iter(fastest_of(made).seconds.values()))


def _cut(mine: dict[int, Slice], others: dict[int, Slice]) -> Callable[[int, int], Slice]:
    """Return a function of two ranks to the part of the first's tile that the second's covers."""
    return lambda rank, other: mine[rank].cut(others[other].rows, others[other].cols)


NAME = "redistribute_cost"


def redistribute_cost(current_spec: Any, target_spec: Any, *, machine: Machine | str = "localhost") -> float:
    """Return the cost of a redistribution in microseconds, as torch's own function of this name does.

    The cost is the makespan of the fastest schedule that umm has for it on a machine, detours over other
    placements included; so it obeys the triangle inequality. Equal arguments are answered from memory.
    LayoutError for a tensor of which three dimensions are cut. MachineError for an unknown machine, or more
    ranks than it holds.

    Args:
        current_spec: A ``DTensorSpec``: the placements of a tensor on a mesh, Partial among them or not.
        target_spec: The target, in the same form.
        machine: A machine, its name, or its file; ``umm machine calibrate`` writes one of this host, which
            ``localhost`` then is.

    Returns:
        Infinite for another mesh, as torch says.
    """
    if current_spec.mesh != target_spec.mesh:
        return float("inf")
    if 0 in current_spec.shape or tuple(current_spec.placements) == tuple(target_spec.placements):
        return 0.0
    tensor, now, then = matter(current_spec, target_spec)
    target = machine if isinstance(machine, Machine) else find_machine(machine)
    target.check_ranks(len(tensor.ranks))
    return 1e6 * seconds(tensor, now, then, target)


def replace_cost(cost: Callable[[Any, Any], float]) -> tuple[Any, Callable[[], None]]:
    """Put a cost in the place of DTensor's, and clear the cache of its decisions.

    InputError without torch, or where it lacks a private name that this needs; nothing is replaced.

    Returns:
        DTensor's own cost, and a function that puts it back.
    """
    try:
        import torch.distributed.tensor
        from torch.distributed.tensor import DTensor, _collective_utils

        theirs = getattr(_collective_utils, NAME)
        clears = [
            DTensor._op_dispatcher.sharding_propagator.propagate_op_sharding.cache.cache_clear,
            torch._C._clear_DTensor_sharding_propagator_cache,
        ]
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"no {NAME} of DTensor's to replace: {error}; PyTorch 2.13 has it: pip install 'umm-sim[torch]'"
        ) from None
    modules = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith(torch.distributed.tensor.__name__) and getattr(module, NAME, None) is theirs
    ]

    def place(function: Any) -> None:
        for module in modules:
            setattr(module, NAME, function)
        for clear in clears:
            clear()

    place(cost)
    return theirs, partial(place, theirs)


@contextmanager
def installed(machine: Machine | str) -> Iterator[None]:
    """Have DTensor choose by the costs on a machine within a ``with`` block.

    Args:
        machine: A machine, its name, or its file.
    """
    target = machine if isinstance(machine, Machine) else find_machine(machine)
    _, restore = replace_cost(partial(redistribute_cost, machine=target))
    try:
        yield
    finally:
        restore()

"""The rows of an op list: which actions each op has, where they stand, and which rows they wait for.

And the schedule that they are the beginning of: behind them come those that sum the replicas of C.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.arrays import Floats, Ints, frozen, in_c
from umm.dtypes import itemsize, payload_bytes
from umm.machines import Machine
from umm.plans.multiply.oplist import OpList
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import Ending
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, first_tiles, joined
from umm.schedules.table.details import GEMM, GET, Details
from umm.schedules.table.resources import Platform
from umm.schedules.table.table import Amounts, Data, check_moved

plan_in_c, join_in_c, open_book = (in_c("umm.plans.multiply._plan", x) for x in ("plan", "join", "book"))


class Rows(NamedTuple):
    """The columns of some rows; see :class:`umm.schedules.table.table.Table` for their meaning."""

    kind: NDArray[np.int8]  # of each row; the other columns may have room for more
    # Rank, lane, src, dst and nbytes of each, shape (5, rows): one array, because joining costs by the array.
    numbers: Ints
    offsets: Ints  # where each one's dependencies start in `after`, and the end
    after: Ints  # the rows that each waits for
    seconds: Floats  # of each

    @classmethod
    def room(cls, count: int, dependencies: int) -> "Rows":
        """Return rows that nothing is written in."""
        numbers, seconds = np.empty((5, count), dtype=np.int64), np.empty(count)
        offsets, after = np.empty(count + 1, dtype=np.int64), np.empty(dependencies, dtype=np.int64)
        return cls(np.empty(count, dtype=np.int8), numbers, offsets, after, seconds)


class OpRows(NamedTuple):
    """The actions of an op list."""

    rows: Rows
    a_gets: int  # how many gets are of A
    gemm_row: Ints  # row of each op's gemm
    update_op: Ints  # the ops whose update of C goes through a pool slot
    update_row: Ints  # row of each of their accumulates
    get_row: Ints  # row of each get, those of A first
    elements: Ints  # how many elements each get moves


def rows_of(ops: OpList, shared: Platform, options: Options, priced: bool) -> OpRows:
    """Return the rows of an op list.

    Args:
        priced: Whether the rows get their bytes and seconds, each shape's own; else they have none yet.
    """
    problem, count = ops.problem, len(ops)
    (a, b, c), (m, n, k) = problem.layouts, (ops.m_axis, ops.n_axis, ops.k_axis)
    # Upper bounds for C code that cannot grow arrays: an op has at most four rows (two gets, a gemm and an
    # accumulate) and eight dependencies. What is not used is cut off below.
    made = Rows.room(4 * count, 8 * count)
    of_gets, of_ops = np.empty((2, 2 * count), dtype=np.int64), np.empty((3, count), dtype=np.int64)
    prices = _prices(shared.machine, problem.dtype, problem.c_dtype) if priced else (None, None)
    rows, dependencies, a_gets, gets, updated = plan_in_c(
        *(ops.rank, ops.m_segment, ops.n_segment, ops.k_segment),
        *(m.first, m.second, n.first, n.second, k.first, k.second, m.edges, n.edges, k.edges),
        *(a.owners, a.replica_of_rank, a.tile_elements, b.owners, b.replica_of_rank, b.tile_elements),
        *(c.owners, c.replica_of_rank, c.col_edges),
        *(made.numbers, made.offsets, made.after, of_ops, of_gets, made.seconds, made.kind),
        *(problem.p, a.grid_shape()[1], b.grid_shape()[1], c.grid_shape()[1], c.tile_elements.size),
        options.prefetch + options.max_gemms,
        options.max_gemms + options.max_accumulates,
        *(options.max_accumulates, shared.first_accumulate, shared.machine.copy_engines),
        *(shared.lanes_per_rank, options.granularity == "slice", options.reuse, *prices),
    )
    made = Rows(made.kind[:rows], made.numbers, made.offsets, made.after[:dependencies], made.seconds)
    gemm_row, updates, get_rows = of_ops[0], of_ops[1:, :updated], of_gets[:, :gets]
    return OpRows(made, a_gets, gemm_row, *updates, *get_rows)


@lru_cache(maxsize=64)
def _prices(machine: Machine, dtype: str, c_dtype: str) -> tuple[object, Callable[..., object]]:
    """Return a book of prices for multiplies of these types, and the function that it asks for more."""
    return open_book(), partial(_price, machine, dtype, itemsize(c_dtype))


def _price(machine: Machine, dtype: str, c_itemsize: int, kind: int, shapes: bytes) -> tuple[Ints, Floats]:
    """Return the bytes and the seconds of actions of a kind by their shapes.

    Args:
        dtype: Type of A and B.
        c_itemsize: Bytes of an element of C.
        kind: Gemms are known by m, n and k, gets by their elements, and accumulates by their elements and
            whether these lie apart. Seconds of an accumulate are those inside one device.
        shapes: Three whole numbers each.
    """
    x, y, z = np.frombuffer(shapes, dtype=np.int64).reshape(-1, 3).T.copy()
    if kind == GEMM:
        return np.zeros_like(x), cost.multiply_seconds(machine, dtype, x, y, z, c_itemsize)
    if kind == GET:
        return cost.transfer_bytes(machine, payload_bytes(x, dtype)), np.zeros(len(x))
    payload, apart = x * c_itemsize, y > 0
    seconds = cost.local_accumulate_seconds(machine, payload, apart)
    return cost.accumulate_bytes(machine, payload, apart), seconds


def assemble(
    rows: Rows,
    ending: Ending,
    problem: Problem,
    name: str,
    fill: Callable[[Details, int], Buffers],
    pools: Callable[[], list[Ints]],
    amounts: Callable[[], Amounts] | None = None,
) -> Schedule:
    """Return the schedule of some rows, with those behind them that sum the replicas of C.

    Args:
        fill: Writes the rows' details, given the details' columns cut to these rows and the number that
            its first temporary will have; returns its temporaries.
        pools: Returns the bytes of each rank's pool slots, without those of the ending.
        amounts: Returns what the rows move and multiply; None if that follows from the details.
    """
    shared, stages, first = ending.shared, ending.stages, len(rows.kind)
    if stages:
        # Each barrier waits for some of the rows before it, at most all.
        behind = sum(1 + len(stage.payload) for stage in stages)
        dependencies = sum(len(stage.columns[3]) for stage in stages)
        result = Rows.room(first + behind, len(rows.after) + dependencies + len(stages) * (first + behind))
        lanes = shared.lanes_per_rank, shared.first_accumulate, ending.options.max_accumulates
        columns = [x for stage in stages for x in stage.columns]
        count, waits, moved = join_in_c(*rows, *result, *columns, problem.p, *lanes)
        check_moved(moved)
    else:
        result, count, waits = rows, first, len(rows.after)
        check_moved(float(rows.numbers[4, :first].sum(dtype=np.float64)))

    def make_data() -> Data:
        details = Details.empty(count)
        number = first_tiles(problem.tensors)[-1]
        temporaries = [fill(details.taken(slice(first)), number)]
        start, number = first, number + len(temporaries[0])
        for stage in stages:
            start, stop = start + 1, start + 1 + len(stage.payload)  # behind its barrier
            buffers = stage.fill(problem, details.taken(slice(start, stop)), number)
            if len(stage.pools) and len(buffers):
                slots = np.array([len(x) for x in pools()])
                buffers = replace(buffers, slot=buffers.slot + slots[buffers.rank])
            temporaries.append(buffers)
            start, number = stop, number + len(buffers)
        return Data(details, joined(temporaries))

    def make_pools() -> list[Ints]:
        sizes = pools()
        for more in [stage.pools for stage in stages if len(stage.pools)]:
            sizes = [np.append(x, y) for x, y in zip(sizes, more, strict=True)]
        return sizes

    def make_amounts() -> Amounts:
        assert amounts is not None
        of_rows = amounts()
        payload = np.concatenate([np.zeros(0, np.int64), *[np.append(0, x.payload) for x in stages]])
        moved = np.where(payload > 0, MATRICES.index("C"), -1)
        no_gemms = np.zeros((3, len(payload)), dtype=np.int64)
        behind = Amounts(payload, no_gemms, moved)
        return Amounts(*[np.concatenate(x, axis=-1) for x in zip(of_rows, behind, strict=True)])

    machine = shared.machine
    numbers = result.numbers if stages else result.numbers[:, :count]
    fields = {
        "program": problem,
        "name": name,
        "machine": machine.name,
        "ranks": problem.p,
        "interference": machine.interference,
        "links": shared.links,
        "routes": shared.routes,
        "lanes": shared.lanes,
        "kind": result.kind,
        "rank": numbers[0],
        "lane": numbers[1],
        "after_offsets": result.offsets[: count + 1],
        "after": result.after[:waits],
        "src": numbers[2],
        "dst": numbers[3],
        "nbytes": numbers[4],
        "seconds": result.seconds[:count],
        "make_data": make_data,
        "make_pools": make_pools,
        "functions": next((stage.functions for stage in stages if stage.functions), ()),
        "options": ending.chosen,
        "peak": machine.total_peak(problem.dtype, shared.devices),
        "make_amounts": make_amounts if amounts else None,
    }
    return frozen(Schedule, fields)

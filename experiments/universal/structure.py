"""The paper's sections 3 and 4 as checks of the code: data structure, primitives, op lists, schedules."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

import numpy as np

import umm
from experiments.common.ledger import Entry, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row
from experiments.universal import primitives
from umm import Layout
from umm.errors import LayoutError, UmmError
from umm.plans.multiply.oplist import op_list
from umm.policies.model import action_seconds, model_cost
from umm.schedules.table.details import GEMM, GET, REDUCE
from umm_hw.numpy.executor import NumpyExecutor

PARTITIONS = ("row", "col", "2d")
SAMPLE = 200


def entries(rows: list[Row]) -> Iterator[Entry]:
    """Yield the entries of sections 3 and 4, of which table 1 has rows."""
    yield _data_structure()
    yield primitives.entry(rows)
    yield from _op_lists()
    yield from _stationary()
    yield from _execution()


def _data_structure() -> Entry:
    """Twelve ranks: who owns tiles at each replication factor; cyclic and irregular tiles; c divides p."""
    factors = [c for c in range(1, 13) if 12 % c == 0]
    owners = {c: len({*Layout.parse(f"row@{c}", (48, 36), 12).owners.reshape(c, -1)[0]}) for c in factors}
    texts = ("row", "col", "2d", "cyclic:5x7:3x4", "edges:0-5-48x0-1-36:3x4")
    grids = {text.split(":")[0]: Layout.parse(text, (48, 36), 12).grid_shape() for text in texts}
    try:
        Layout.parse("row@5", (48, 36), 12)
        refuses = False
    except LayoutError:
        refuses = True
    got = ", ".join(f"c = {c}: {n} owners" for c, n in owners.items())
    tiles = ", ".join(f"{name} {rows}x{cols} tiles" for name, (rows, cols) in grids.items())
    holds = refuses and owners == {c: 12 // c for c in factors}
    return reproduced(
        "row, column, 2-D, tiles and process grid, irregular edges; p = 12 has 12 owners at c = 1, "
        "6 at c = 2, 1 at c = 12",
        "section 3",
        f"{got}; of 48x36: {tiles}; c = 5 is refused",
        holds,
    )


def _problems() -> Iterator[tuple[umm.Problem, str]]:
    """Yield problems of odd sizes on six ranks, some with fewer rows, with a stationary matrix."""
    choices = [
        (parts, copies, x)
        for parts in product(PARTITIONS, repeat=3)
        for copies in product((1, 2, 3, 6), repeat=3)
        for x in "ABC"
    ]
    for parts, copies, x in Random(3).sample(choices, SAMPLE):
        a, b, c = (f"{part}@{count}" for part, count in zip(parts, copies, strict=True))
        for m, n, k in ((13, 11, 17), (4, 7, 5)):
            yield umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=6, dtype="float64"), x


def _op_lists() -> Iterator[Entry]:
    """Coverage of the m×k×n space and the product, over a sample of all layouts."""
    random, covered, right, tried, split = np.random.default_rng(4), 0, 0, 0, 0
    for problem, x in _problems():
        ops = op_list(problem, x)
        done = np.zeros((problem.m, problem.n, problem.k), dtype=int)
        for op in ops:
            done[op.m.slice, op.n.slice, op.k.slice] += 1
        operands = tuple(random.integers(-9, 9, problem.shape(y)).astype(np.float64) for y in "AB")
        schedule = umm.schedule(problem, shipped("localhost"), stationary=x, final="reduce")
        product_ = NumpyExecutor().run(schedule, operands).result
        tried, covered = tried + 1, covered + bool((done == 1).all())
        right += bool(np.array_equal(product_, operands[0] @ operands[1]))
        split += _even(problem, x, ops)
    yield reproduced(
        "Algorithms 1 and 2, and stationary A: the ops cover m×k×n once, and C = AB for every partition, "
        "replication factor and stationary matrix",
        "section 4.1, algorithms 1 and 2",
        f"{covered} of {tried} cover it once, {right} products are exact: a sample of {{row, col, 2d}}³ × "
        "{1, 2, 3, 6}³ × {A, B, C}, misaligned tiles, primes, more ranks than rows",
        covered == right == tried,
    )
    yield reproduced(
        "a replica of a stationary matrix does 1/c of k (C), m (B) or n (A), once",
        "section 4.1",
        f"in {split} of {tried} of the same",
        split == tried,
    )


def _even(problem: umm.Problem, stationary: str, ops: Any) -> bool:
    """Whether the ops of replica r stay within the r-th of c parts of the dimension that is shared out."""
    layout = problem.layout(stationary)
    name = {"A": "n", "B": "m", "C": "k"}[stationary]
    size, c = getattr(problem, name), layout.replicas
    part = -(-size // c)
    for op in ops:
        here = getattr(op, name)
        replica = layout.replica(op.rank)
        if here.start < min(part * replica, size) or here.stop > min(part * (replica + 1), size):
            return False
    return True


def _stationary() -> Iterator[Entry]:
    """Choices of ``auto`` and the cost model, and the additions of a replicated C."""
    machine = shipped("h100-8")
    sizes = {"A": (8192, 1024, 8192), "B": (1024, 8192, 8192), "C": (8192, 8192, 1024)}
    auto, cheapest = {}, {}
    for x, (m, n, k) in sizes.items():
        problem = umm.Problem(m=m, n=n, k=k, a="2d", b="2d", c="2d", ranks=8)
        auto[x] = umm.schedule(problem, machine, stationary="auto").name
        costs = {y: model_cost(umm.schedule(problem, machine, stationary=y)) for y in "ABC"}
        cheapest[x] = min(costs, key=costs.__getitem__)
    result = f"{', '.join(auto.values())} where {', '.join(auto)} is largest"
    yield reproduced(
        "the largest matrix stays (`auto`)",
        "section 4",
        f"{result}; the cost model finds {', '.join(cheapest.values())} cheapest",
        list(auto) == list(auto.values()),
    )
    problem = umm.Problem(m=1024, n=8192, k=8192, a="2d", b="2d", c="2d", ranks=8)
    try:
        got = f"takes {umm.schedule(problem, machine, stationary='cost').name}"
    except UmmError as error:
        got = str(error)
    yield reproduced(
        "or the one that the cost model finds cheapest (`cost`)",
        "section 4",
        f"“{got}”; `umm search` simulates A, B and C and takes the fastest",
        got == f"takes {cheapest['B']}",
        why="there is no such choice, for the search is exact",
    )
    plain, copied = (
        umm.schedule(
            umm.Problem(m=64, n=48, k=32, a="row", b="col", c=c, ranks=8),
            machine,
            stationary="C",
            final="reduce",
        )
        for c in ("2d", "2d@2")
    )
    reduces = [int((x.kind == REDUCE).sum()) for x in (plain, copied)]
    others = [sorted({int(kind) for kind in x.kind[x.kind != REDUCE]}) for x in (plain, copied)]
    owners = len(copied.problem.layout("C").owners.reshape(2, -1)[0])
    yield reproduced(
        "a replicated C takes one reduce_replicas; nothing else changes",
        "section 4.2",
        f"{reduces[0]} reduces without copies, {reduces[1]} with two, one for each of the {owners} tiles",
        reduces == [0, owners] and set(others[0]) <= set(others[1]),
        "final = reduce",
    )


def readers_at_once(offset: str) -> int:
    """Return the most ranks that read one tile of B at once, row × row → row on eight ranks."""
    problem = umm.Problem(m=96, n=96, k=96, a="row", b="row", c="row", ranks=8)
    how = {"prefetch": 0, "max_gemms": 1, "offset": offset}
    schedule = umm.schedule(problem, shipped("h100-8"), stationary="C", **how)
    trace, tile = umm.run(schedule, executor="sim"), schedule.touched_tiles(1)[:, 0]
    most = 0
    for at in set(trace.start.tolist()):
        reading = (schedule.kind == GET) & (trace.start <= at) & (at < trace.end)
        most = max(most, *(int((reading & (tile == x)).sum()) for x in range(8)))
    return most


def _execution() -> Iterator[Entry]:
    """Direct execution's options, and links that differ by pair."""
    readers = {x: readers_at_once(x) for x in ("none", "index")}
    problem = umm.Problem(m=24, n=20, k=28, a="2d", b="row", c="col@2", ranks=4, dtype="float64")
    operands = tuple(np.random.default_rng(5).integers(-9, 9, problem.shape(x)).astype(float) for x in "AB")
    changes: list[dict[str, Any]] = [
        {}, {"offset": "none"}, {"offset": "rotate"}, {"prefetch": 0}, {"max_gemms": 1},
        {"max_accumulates": 1}, {"reuse": False},
    ]  # fmt: skip
    same = sum(
        np.array_equal(
            umm.run(umm.schedule(problem, "localhost", stationary="B", **x), "numpy", operands).result,
            operands[0] @ operands[1],
        )
        for x in changes
    )
    yield reproduced(
        "iteration offset, prefetch, bounded concurrency and a pool, each optional; "
        "the offset takes p readers of a tile to one",
        "section 4.2",
        f"row × row → row on 8 ranks: {readers['none']} others read one tile at once without offset, "
        f"{readers['index']} with; {same} of {len(changes)} settings give the same product",
        readers == {"none": 7, "index": 1} and same == len(changes),
        "offset, prefetch, max_gemms, max_accumulates, reuse",
    )
    yield _cost_model()


def _cost_model() -> Entry:
    """Every gemm and get of two schedules, the first bound by memory, beside the paper's formulas."""
    pvc = shipped("pvc-12")
    peak = pvc.peak("float32") * float(pvc.efficiency["float32"].values.max())
    rates, off, by_memory = pvc.bandwidth_matrix(), [], []
    for m in (12, 8192):
        problem = umm.Problem(m=m, n=6144, k=3072, a="2d", b="row", c="col", ranks=12)
        schedule = umm.schedule(problem, pvc, stationary="C")
        seconds, gemms, gets = action_seconds(schedule), schedule.kind == GEMM, schedule.kind == GET
        rows, cols = (np.diff(x)[..., 0] for x in (schedule.details.rows, schedule.details.cols))
        elements = rows * cols
        arithmetic = 2 * rows[gemms, 0] * cols[gemms, 0] * cols[gemms, 1] / peak
        touched = elements[gemms, 1] + elements[gemms, 2] + 2 * elements[gemms, 0]
        memory = 4 * touched / pvc.memory_bandwidth
        brought = 4 * elements[gets, 0] / rates[schedule.src[gets], schedule.dst[gets]]
        off += [*(seconds[gemms] - pvc.launch_s) / np.maximum(arithmetic, memory) - 1]
        off += [*seconds[gets] / brought - 1]
        by_memory += [*(memory > arithmetic)]
    near, far = rates[0, 1:3] / 1e9
    right = int((np.abs(off) < 1e-6).sum())
    return reproduced(
        "the cost model: a roofline; bytes over a pair's bandwidth",
        "section 4.3",
        f"so for {right} of {len(off)} gemms and gets of two schedules on `pvc-12`; memory bounds "
        f"{sum(by_memory)} of {len(by_memory)} gemms; a get from the other tile of a GPU goes at {near:.0f} "
        f"GB/s, from another GPU at {far:.0f}",
        right == len(off) and 0 < sum(by_memory) < len(by_memory) and near > far,
        "fabric.bandwidth, fabric.group.bandwidth",
    )

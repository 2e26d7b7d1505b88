"""Multiplies by collectives: right and race-free, whatever is gathered, shared or summed."""

import random

import numpy as np
import pytest
from machine_text import GOOD

import umm
from umm.algorithms.chains.lower import lower
from umm.layouts.layout import Layout
from umm.program import Chain, Map, Multiply
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, GET
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

NODES = """[fabric]
kind = "tiers"
bandwidth = { value = "10 GB/s", source = "test" }
latency = { value = "1 us", source = "test" }
node_size = { value = SIZE, source = "test" }
[fabric.nic]
owner = "device"
bandwidth = { value = "2 GB/s", source = "test" }
latency = { value = "2 us", source = "test" }
"""
START = '\ncollective_start = { value = "5 us", source = "test" }\n'
MESHES = {4: ("2x2",), 6: ("2x3", "3x2"), 8: ("2x4", "4x2", "2x2x2")}
TWICE = [Multiply("Y", "X", "W"), Multiply("Y", "X", "W", beta=1.0)]


@pytest.fixture(scope="session")
def nodes(tmp_path_factory):
    """Makes machines of 4, 6 and 8 devices in nodes of 2, or of 4 for the last."""
    folder, found = tmp_path_factory.mktemp("nodes"), {}
    for ranks, size in ((4, 2), (6, 2), (8, 2), (8, 4)):
        path = folder / f"{ranks}-{size}.toml"
        devices = GOOD.replace("value = 4", f"value = {ranks}").replace(
            "[devices.peak]", START + "[devices.peak]"
        )
        path.write_text(devices + NODES.replace("SIZE", str(size)), encoding="utf-8")
        found.setdefault(ranks, []).append(umm.machine(path))
    return found


def drawn_layout(draw, shape, ranks):
    """A block layout over all ranks: of rows, columns or both, with replicas in any place of a mesh."""
    if draw.random() < 0.5:
        mesh = draw.choice(MESHES[ranks])
        axes = "".join(draw.choice("-rc") for _ in mesh.split("x"))
        return Layout.parse(f"2d@{mesh}:{axes}", shape, ranks)
    replicas = draw.choice([c for c in range(1, ranks + 1) if ranks % c == 0])
    order = draw.choice(["", ":interleaved"]) if replicas > 1 else ""
    return Layout.parse(f"{draw.choice(['row', 'col', '2d', '2d:balanced'])}@{replicas}{order}", shape, ranks)


def drawn_chain(draw, ranks):
    """Multiplies that share operands and add to each other's results, with maps between."""
    sizes, tensors, statements, written = {x: draw.randint(1, 12) for x in "abcd"}, {}, [], set()

    def tensor(first, second, role):
        name = f"{role[0]}{len(tensors)}"
        shape = sizes[first], sizes[second]
        tensors[name] = Tensor(name, drawn_layout(draw, shape, ranks), "float32", role), first + second
        return name

    def some(letters):
        there = [
            x for x, (of, has) in tensors.items() if has == letters and (of.role == "input" or x in written)
        ]
        return draw.choice(there) if there and draw.random() < 0.7 else tensor(*letters, "input")

    for _ in range(draw.randint(2, 4)):
        m, n, k = draw.sample("abcd", 3)
        trans = [x for x in "ab" if draw.random() < 0.4]
        a, b = some(k + m if "a" in trans else m + k), some(n + k if "b" in trans else k + n)
        there = [x for x in sorted(written) if tensors[x][1] == m + n and x not in (a, b)]
        last = statements and statements[-1].out
        out = last if last in there else draw.choice(there) if there else tensor(m, n, "output")
        beta = draw.choice([0.0, 1.0, 1.0, -0.5]) if out in written else 0.0
        statements.append(Multiply(out, a, b, tuple(trans), draw.choice([1.0, 0.5]), beta))
        written.add(out)
        if draw.random() < 0.5:
            other = some(m + n)
            if other != out:
                statements.append(Multiply(out, *mates(draw, some, m, n), beta=1.0))
        if draw.random() < 0.3:
            statements.append(Map(out, "scale", (out,), {"factor": 0.5}))
    return Chain("drawn", tuple(x for x, _ in tensors.values()), tuple(statements), ranks)


def mates(draw, some, m, n):
    (k,) = draw.sample([x for x in "abcd" if x not in (m, n)], 1)
    return some(m + k), some(k + n)


def assert_case(seed, nodes):
    """Draw a chain, a machine and a way; the schedule is lawful, race-free and right in random orders."""
    draw = random.Random(seed)
    ranks = draw.choice(list(MESHES))
    machine, chain = draw.choice(nodes[ranks]), drawn_chain(draw, ranks)
    movement, stationary = (
        draw.choice(["gathered", "chunks", "two-level", "auto"]),
        draw.choice(["auto", "A", "B", "C"]),
    )
    schedule = lower(chain, machine, movement=movement, stationary=stationary)
    check(schedule)
    assert not races(schedule), (seed, movement)
    rng = np.random.default_rng(seed)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected = chain.reference(operands)
    for order in ({"order": "rows"}, {"order": "random", "seed": seed}):
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, **order)
        for name in chain.outputs:
            for replica in trace.results[name]:
                assert np.allclose(replica, expected[name], rtol=1e-12, atol=1e-9), (seed, movement, name)
    return schedule


@pytest.mark.parametrize("seed", range(30))
def test_multiplies_by_collectives_are_right_and_race_free(seed, nodes):
    assert_case(seed, nodes)


@pytest.fixture(scope="module")
def mpi():
    job = MpiJob(4, timeout=120)
    yield MpiExecutor(job=job, replica=None)
    job.close()


def assert_on_processes(seed, nodes, mpi):
    """Draw a chain and a way for four ranks in two nodes; processes compute what the reference does."""
    draw = random.Random(seed)
    chain = drawn_chain(draw, 4)
    movement, stationary = draw.choice(["gathered", "chunks", "two-level", "auto"]), draw.choice("ABC")
    schedule = lower(chain, nodes[4][0], movement=movement, stationary=stationary)
    rng = np.random.default_rng(seed)
    operands = {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}
    expected, trace = chain.reference(operands), mpi.run(schedule, operands)
    for name in chain.outputs:
        for replica in trace.results[name]:
            assert np.allclose(replica, expected[name], rtol=1e-12, atol=1e-9), (seed, movement, name)


@pytest.mark.mpi
def test_every_way_is_right_on_processes(nodes, mpi):
    for seed in range(40):
        assert_on_processes(seed, nodes, mpi)


def crossing(schedule, kinds, size=8):
    """Bytes that actions of some kinds move between nodes of so many ranks."""
    moves = np.isin(schedule.kind, kinds) & (schedule.src // size != schedule.dst // size)
    return int(schedule.payload[moves].sum())


@pytest.mark.parametrize(
    ("a", "b", "c", "stationary", "kind", "moved"),
    [("row", "col", "col", "C", GET, 512 * 256), ("col", "row", "row", "B", ACCUMULATE, 512 * 384)],
)
def test_on_two_levels_each_byte_crosses_once_for_a_node(a, b, c, stationary, kind, moved):
    """Four nodes of 8: A by rows is got, or C by rows added to, once by every other node; flat 8 times."""
    problem = umm.Problem(m=512, n=384, k=256, a=a, b=b, c=c, ranks=32)
    crossed = {}
    for movement in ("flat", "two-level"):
        schedule = umm.schedule(problem, "dgx-h100x4", stationary=stationary, movement=movement)
        crossed[movement] = crossing(schedule, [kind])
    assert crossed == {"flat": 8 * 3 * moved * 4, "two-level": 3 * moved * 4}


def test_on_one_node_two_levels_are_the_flat_schedule():
    problem = umm.Problem(m=512, n=384, k=256, a="row", b="col", c="2d@2", ranks=8)
    flat, two = (umm.schedule(problem, "h100-8", movement=x) for x in ("flat", "two-level"))
    assert umm.run(flat).makespan_s == umm.run(two).makespan_s
    assert len(flat) == len(two)


def test_gathered_and_chunks_are_quicker_than_flat_between_nodes():
    """A by rows is needed by all 32 ranks: 31/32 of it by each through its own card, or once a node."""
    problem = umm.Problem(m=8192, n=8192, k=8192, dtype="bfloat16", a="row", b="col", c="col", ranks=32)

    def seconds(movement):
        return umm.run(umm.schedule(problem, "dgx-h100x4", stationary="C", movement=movement)).makespan_s

    flat = seconds("flat")
    assert all(seconds(x) < flat / 4 for x in ("two-level", "gathered", "chunks"))

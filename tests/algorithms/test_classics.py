"""The classic algorithms: bytes moved, time, refusals; their products are elsewhere.

That every replica of every product is right is tests/conformance/algorithm_suite.py's.
"""

from dataclasses import replace

import numpy as np
import pytest
from conformance.algorithm_suite import requests, scheduled
from conformance.executor_suite import MACHINE, laws
from counted import at_most
from examples import examples
from hazards import without
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_text import GOOD, SWITCH, write

import umm
from umm.algorithms import summa, summa25
from umm.algorithms.algorithm import Names
from umm.algorithms.scheduling import algorithms
from umm.algorithms.writing import counted
from umm.errors import ProblemError, ScheduleError
from umm.layouts.layout import Layout
from umm.program import Chain, Multiply
from umm.program.tensors import Tensor
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, GEMM, TRANSFERS
from umm.schedules.writer.builder import Builder
from umm_hw.numpy.executor import NumpyExecutor


def in_place(name, n, ranks, dtype="float32", **options):
    """The schedule of an n×n×n multiply whose matrices lie as the algorithm has them, as nearly as it may."""
    algorithm = algorithms()[name]
    native = algorithm.native(umm.Problem(m=n, n=n, k=n, ranks=ranks), **algorithm.chosen(options))
    problem = umm.Problem(m=n, n=n, k=n, a=native.a, b=native.b, c=native.c, dtype=dtype)
    return umm.schedule(problem, replace(MACHINE, step_fence_s=0.0), algorithm=name, **options)


# Races --------------------------------------------------------------------------------------------


@settings(laws, max_examples=examples(40))
@given(requests())
def test_what_touches_the_same_memory_is_ordered(request):
    """Whatever the algorithm, its options and the layouts: no two actions race, and the table is sound."""
    schedule = scheduled(request)
    check(schedule)
    assert races(schedule) == []


@pytest.mark.parametrize(
    ("name", "ranks", "options"),
    [
        ("cannon", 4, {}),
        ("summa", 4, {"broadcast": "ring", "panel": 2, "prefetch": 0}),
        ("2.5d", 8, {}),
        ("ring", 3, {}),
        ("ring", 3, {"collective": "reduce-scatter"}),
    ],
)
def test_a_dependency_that_is_left_out_is_a_race_and_shows_as_a_wrong_product(name, ranks, options):
    """Each that the others do not imply: found as a race, and caught by some random order."""
    schedule = in_place(name, 12, ranks, dtype="float64", **options)
    rng = np.random.default_rng(1)
    operands = [rng.uniform(1, 2, (12, 12)) for _ in "AB"]
    planted = 0
    for action in range(len(schedule)):
        for dependency in schedule.after_of(action).tolist():
            broken = without(schedule, action, dependency)
            if races(broken):
                planted += 1
                wrong = (is_wrong(broken, operands, seed) for seed in range(200))
                assert any(wrong), (action, dependency)
    assert planted


def is_wrong(schedule, operands, seed):
    result = NumpyExecutor(order="random", seed=seed, replica=None).run(schedule, operands).result
    return not np.allclose(result, operands[0] @ operands[1], rtol=1e-9)


# What moves ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [1, 4, 8, 16, 27, 32])
@pytest.mark.parametrize("name", sorted(algorithms()))
def test_words_and_messages_are_what_the_formula_says(name, ranks):
    """Of the rank that most reaches, for sizes that make all tiles equal; SUMMA's is for square grids."""
    algorithm = algorithms()[name]
    mesh = algorithm.mesh(ranks, **algorithm.chosen({}))
    if mesh is None or algorithm.words is None or (name == "summa" and mesh[0] != mesh[1]):
        return
    n = 3 * 64 if ranks % 3 else 3**4
    moved = counted(in_place(name, n, ranks))
    assert moved.words_received.max() == pytest.approx(algorithm.words.value(n, *mesh), rel=1e-12)
    assert moved.messages_received.max() == algorithm.messages.value(n, *mesh)


def test_on_its_own_layouts_an_algorithm_has_no_work_tensors():
    for name in algorithms():
        assert in_place(name, 32, 16 if name != "3d" else 8).work == ()


def test_other_layouts_are_copied_in_and_out():
    """A lies in rows: 4 ranks get the half of their 8x8 tile of it that they lack; B and C stay in place."""
    problem = umm.Problem(m=16, n=16, k=16, a="row", b="2d", c="2d", ranks=4)
    schedule = umm.schedule(problem, MACHINE, algorithm="cannon")
    assert [tensor.name for tensor in schedule.work] == ["A.cannon"]
    alone = in_place("cannon", 16, 4)
    more = counted(schedule).words_received - counted(alone).words_received
    assert more.tolist() == [32, 32, 32, 32]


def test_an_equal_layout_with_its_empty_tiles_elsewhere_is_copied():
    """1x1x1 on 4 ranks: row and a 2x2 grid are equal layouts, but have their empty tiles elsewhere."""
    problem = umm.Problem(m=1, n=1, k=1, a="row", b="row", c="row", ranks=4, dtype="float64")
    schedule = umm.schedule(problem, MACHINE, algorithm="cannon")
    assert len(schedule.work) == 3
    assert NumpyExecutor().run(schedule, ([[3.0]], [[5.0]])).result == [[15.0]]


HOPS = {
    "mpi": {(0, 1), (0, 2), (1, 3)},  # of few bytes a tree
    "tree": {(0, 1), (0, 2), (1, 3)},
    "ring": {(0, 1), (1, 2), (2, 3), (0, 3), (3, 2), (2, 1)},  # half of it each way round
    "direct": {(0, 1), (0, 2), (0, 3)},
}


@pytest.mark.parametrize("way", HOPS)
def test_a_panel_is_broadcast_in_the_way_that_is_asked_for(way):
    """One panel of A, from rank 0 along 4 ranks."""
    schedule = in_place("summa", 16, 4, grid="1x4", broadcast=way)
    moving = np.nonzero(np.isin(schedule.kind, TRANSFERS))[0][: len(HOPS[way])]
    assert set(zip(schedule.src[moving].tolist(), schedule.dst[moving].tolist(), strict=True)) == HOPS[way]


def test_a_panel_is_as_wide_as_asked():
    """16 columns on 2x2: panels of 8, or of 3, 3, 2, 3, 3, 2; each rank multiplies with each."""
    for width, panels in ((0, 2), (8, 2), (3, 6), (1, 16)):
        schedule = in_place("summa", 16, 4, panel=width)
        assert np.sum(schedule.kind == GEMM) == 4 * panels


def test_thin_panels_of_a_step_save_passes_over_c():
    """k = 64 on 2x4 ranks: the eighths of k are put together; of a square problem they are not."""
    flat = umm.Problem(m=512, n=512, k=64, **dict.fromkeys("abc", "2d:2x4"), ranks=8, dtype="float64")
    for problem, products in ((flat, 1), (replace(flat, k=512), 4)):
        schedule = umm.schedule(problem, MACHINE, algorithm="summa")
        assert np.sum(schedule.kind == GEMM) == 8 * products
    for options, products in (({"panel": 16}, 4), ({"panel": 8}, 8), ({"panel": 32, "prefetch": 0}, 2)):
        schedule = umm.schedule(flat, MACHINE, algorithm="summa", **options)
        assert np.sum(schedule.kind == GEMM) == 8 * products
        operands = [np.random.default_rng(0).integers(-3, 4, x).astype(float) for x in ((512, 64), (64, 512))]
        result = NumpyExecutor(order="random", seed=1).run(schedule, operands).result
        assert np.array_equal(result, operands[0] @ operands[1])
        assert races(schedule) == []


def test_a_panel_that_is_large_goes_as_mpi_broadcasts_it():
    """16 sockets in a row, panels of 32 MiB: scattered and gathered, each rank sends one about twice."""
    problem = umm.Problem(m=4096, n=4096, k=16384, dtype="float64", ranks=16)
    tree, mpi = (
        umm.schedule(problem, umm.machine("cpu-hdr", nodes=8), algorithm="summa", grid="1x16", **options)
        for options in ({"broadcast": "tree"}, {})
    )
    assert mpi.options["broadcast"] == "mpi"
    assert umm.run(mpi).makespan_s < 0.8 * umm.run(tree).makespan_s


def test_a_pipelined_ring_of_narrow_panels_beats_a_tree():
    """8 ranks in a row, panels of 4 MiB: a port sends each once, but that of a tree's root three times."""
    size = {"m": 8192, "n": 512, "k": 8192, "ranks": 8}
    problem = umm.Problem(**size, a="2d:1x8", b="2d:1x8", c="2d:1x8")
    options = {"algorithm": "summa", "grid": "1x8", "panel": 128, "prefetch": 8}
    tree, ring = (umm.schedule(problem, "h100-8", **options, broadcast=way) for way in ("tree", "ring"))
    assert umm.run(ring).makespan_s < 0.8 * umm.run(tree).makespan_s


# How long it takes --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pallas(tmp_path_factory):
    """Eight devices on which 1024x4096x4096 takes 43 µs and a shard of 8 MiB at 450 GB/s is hidden."""
    peak = 2 * 1024 * 4096 * 4096 / 43e-6
    text = GOOD.replace("count = { value = 4", "count = { value = 8").replace("1 TB/s", "1000 TB/s")
    text = text.replace("1 us", "0 us").replace("3 us", "0 us").replace("float32", "float16")
    text = text.replace("0.25", "0.0").replace("10 Tflop/s", f"{peak!r} flop/s")
    fabric = SWITCH.replace("10 GB/s", "450 GB/s").replace("1 us", "0 us")
    return umm.machine(write(tmp_path_factory.mktemp("machines"), text + fabric))


def collective_matmul(ranks, **options):
    """A shard of 1024 rows and k = 4096 on each rank, and 4096 columns of B."""
    return umm.Problem(
        m=1024 * ranks, n=4096 * ranks, k=4096, a="row", b="col", c="col", dtype="float16", ranks=ranks
    )


@pytest.mark.parametrize(("ranks", "us"), [(2, 92.0), (4, 190.0), (8, 386.0)])
def test_the_published_lower_bound_of_the_collective_matmul(pallas, ranks, us):
    """43·D + 6·(D − 1) µs, with a fence of 6 µs a step."""
    schedule = umm.schedule(collective_matmul(ranks), pallas, algorithm="ring", fence_s=6e-6)
    assert umm.run(schedule).makespan_s * 1e6 == pytest.approx(us, rel=1e-12)


def test_the_collective_s_start_delays_what_is_passed_on(pallas):
    """30 µs and 18.6 µs for the first shard: 5.6 µs more than the first multiply; later shards are hidden."""
    start = {"start_s": 30e-6}
    schedule = umm.schedule(collective_matmul(4), pallas, algorithm="ring", **start)
    late = 30 + 1024 * 4096 * 2 / 450e3 - 43
    assert umm.run(schedule).makespan_s * 1e6 == pytest.approx(4 * 43 + late, rel=1e-9)


def test_each_step_multiplies_the_shard_that_came_last_and_needs_room_for_all_others(pallas):
    """At step i device d multiplies shard d + i mod D; scratch of D − 1 shards of 8 MiB."""
    schedule = umm.schedule(collective_matmul(4), pallas, algorithm="ring")
    for rank in range(4):
        gemms = (schedule.kind == GEMM) & (schedule.rank == rank)
        shards = schedule.details.rows[gemms, 1, 0] // 1024
        assert shards.tolist() == [(rank + i) % 4 for i in range(4)]
        assert schedule.pools[rank].tolist() == [1024 * 4096 * 2] * 3


def test_the_scattering_ring_shows_its_last_sum_alone(pallas):
    """Four multiplies of 43 µs; of the sums that go round, only the last is not hidden by a multiply."""
    size = {"m": 4096, "n": 4096, "k": 16384, "ranks": 4, "dtype": "float16", "c_dtype": "float16"}
    problem = umm.Problem(**size, a="col", b="row", c="row")
    schedule = umm.schedule(problem, pallas, algorithm="ring", collective="reduce-scatter", fence_s=6e-6)
    moved = schedule.kind == ACCUMULATE
    assert np.sum(moved) == 4 * 3
    seconds = schedule.nbytes[moved][0] / 450e9
    assert umm.run(schedule).makespan_s == pytest.approx(4 * 43e-6 + 3 * 6e-6 + seconds, rel=1e-9)


def test_cannon_on_256_ranks_is_written_in_time(tmp_path):
    """12,256 actions, of many at once: 667,071 calls, where no cache knows any yet."""
    machine = umm.machine(write(tmp_path, GOOD.replace("value = 4,", "value = 256,") + SWITCH))
    problem = umm.Problem(m=512, n=512, k=512, a="2d", b="2d", c="2d", ranks=256)
    with at_most(calls=1_000_000):
        assert len(umm.schedule(problem, machine, algorithm="cannon")) == 12256


# Backward -----------------------------------------------------------------------------------------


def tensors(sizes, grids, ranks):
    """Float64 tensors by name: rows and columns, and the layout's text; capital gradients are outputs."""
    return tuple(
        Tensor(
            name,
            Layout.parse(grids[name], shape, ranks),
            "float64",
            "output" if name in ("dA", "dB") else "input",
        )
        for name, shape in sizes.items()
    )


BACKWARD = (Multiply("dA", "dC", "B", trans=("b",)), Multiply("dB", "A", "dC", trans=("a",)))


def sizes_of(m, n, k):
    return {"A": (m, k), "B": (k, n), "dA": (m, k), "dB": (k, n), "dC": (m, n)}


def is_exact(build, chain, seed):
    """Every replica of every gradient, in row order and in a random one."""
    rng = np.random.default_rng(seed)
    shapes = {tensor.name: tensor.shape for tensor in chain.tensors if tensor.is_input}
    operands = {name: rng.integers(-8, 9, shape).astype(np.float64) for name, shape in shapes.items()}
    schedule, wanted = build.schedule(), chain.reference(operands)
    check(schedule)
    for executor in (NumpyExecutor(replica=None), NumpyExecutor(order="random", seed=seed, replica=None)):
        results = executor.run(schedule, operands).results
        for name in ("dA", "dB"):
            assert np.array_equal(results[name], np.broadcast_to(wanted[name], results[name].shape))


@settings(laws, max_examples=examples(25))
@given(
    st.tuples(*[st.integers(1, 13)] * 3),
    st.sampled_from([(1, 1), (2, 2), (2, 3), (3, 2), (1, 4), (3, 3)]),
    st.sampled_from(["tree", "ring", "direct"]),
    st.integers(0, 4),
    st.integers(0, 2),
)
def test_summa_multiplies_transposed_operands_where_they_lie(sizes, grid, way, panel, prefetch):
    """dA = dC·Bᵀ and dB = Aᵀ·dC on one process grid, with panels of any width."""
    ranks = grid[0] * grid[1]
    all_ = tensors(sizes_of(*sizes), dict.fromkeys(sizes_of(*sizes), f"2d:{grid[0]}x{grid[1]}"), ranks)
    chain = Chain("backward", all_, BACKWARD, ranks)
    build = Builder("summa", chain, MACHINE)
    plane = summa.plane(build, "A", summa.Panels(way, panel % 3, panel, prefetch))
    plane.multiply_bt("dA", "dC", "B")
    plane.multiply_at("dB", "A", "dC")
    is_exact(build, chain, seed=panel)


@settings(laws, max_examples=examples(25))
@given(
    st.tuples(*[st.integers(1, 13)] * 3),
    st.sampled_from([(1, 1), (2, 1), (2, 2), (1, 3), (3, 2)]),
    st.sampled_from(["tree", "ring", "direct"]),
)
def test_the_backward_pass_of_summa25_sums_db_over_the_layers(sizes, mesh, way):
    """[q, q, d]: A and C on dq×q, B on q×q in d replicas, and every replica of dB complete."""
    q, d = mesh
    ranks = d * q * q
    deep, flat = f"2d:{d * q}x{q}", f"2d:{q}x{q}@{d}"
    all_ = tensors(sizes_of(*sizes), {"A": deep, "B": flat, "dA": deep, "dB": flat, "dC": deep}, ranks)
    chain = Chain("backward", all_, BACKWARD, ranks)
    build = Builder("summa2.5", chain, MACHINE)
    summa25.backward(build, Names("A", "B", "C"), Names("dA", "dB", "dC"), summa.Panels(way))
    is_exact(build, chain, seed=q)


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "ranks", "options", "message"),
    [
        ("cannon", 6, {}, "6 ranks do not fit p = q²; choose 4 or 9"),
        ("2.5d", 12, {"layers": 3}, "12 ranks do not fit p = d·q² with d | q with layers=3; choose 27"),
        ("2.5d", 12, {}, "12 ranks do not fit p = d·q² with d | q; choose 9 or 16"),
        ("summa2.5", 13, {}, "13 ranks do not fit p = d·q² with d ≤ q; choose 9 or 16"),
        ("3d", 12, {}, "12 ranks do not fit p = q³, or any p with a grid; choose 8 or 27"),
        ("summa", 7, {"grid": "2x3"}, "7 ranks do not fit any p with grid=2x3; choose 6"),
    ],
)
def test_numbers_of_ranks_that_do_not_fit_are_refused_with_the_nearest_that_do(name, ranks, options, message):
    problem = umm.Problem(m=8, n=8, k=8, ranks=ranks)
    with pytest.raises(ProblemError) as caught:
        umm.schedule(problem, MACHINE, algorithm=name, **options)
    assert str(caught.value) == f"{name} cannot multiply this: {message}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"grid": "2by3"}, "grid '2by3' is not possible; write it like 2x3"),
        ({"grid": 6}, "grid = 6 is not possible; it must be a text"),
        ({"broadcast": "bush"}, "broadcast 'bush' is unknown; choose from mpi, tree, ring, direct"),
        ({"pannel": 3}, "'pannel' is not an option of summa; did you mean 'panel'"),
        ({"stationary": "A"}, "summa has no stationary matrix to choose; leave stationary out"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options, message):
    with pytest.raises(ScheduleError, match=message):
        umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=6), MACHINE, algorithm="summa", **options)


def test_an_algorithm_that_is_not_here_names_the_nearest():
    with pytest.raises(
        ScheduleError, match=r"algorithm 'carma' is unknown; nearest: cosma .*, 3d, universal"
    ):
        umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE, algorithm="carma")


@pytest.mark.parametrize("fence", [-1.0, float("nan"), float("inf"), True, "6"])
def test_seconds_are_numbers_from_0_on(fence):
    with pytest.raises(ScheduleError, match=r"fence_s = .* is not possible; it must be a number ≥ 0"):
        umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE, algorithm="ring", fence_s=fence)


@pytest.mark.parametrize("seed", range(12))
def test_pdgemm_is_exact_in_place_on_block_cyclic_matrices(seed):
    """Up to 3x3 ranks, uneven blocks, any broadcast: nothing is moved but blocks of A and B."""
    random = np.random.default_rng(seed)
    (rows, cols), sizes, blocks = (random.integers(1, top, n) for top, n in ((4, 2), (30, 3), (8, 3)))
    (m, n, k), (bm, bn, bk) = sizes.tolist(), blocks.tolist()
    a, b, c = (f"cyclic:{x}x{y}:{rows}x{cols}" for x, y in ((bm, bk), (bk, bn), (bm, bn)))
    problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=int(rows * cols), dtype="float64")
    options = {"broadcast": str(random.choice(["mpi", "tree", "ring", "direct"])), "prefetch": seed % 3}
    schedule = umm.schedule(problem, MACHINE, algorithm="scalapack", **options)
    assert schedule.work == ()
    assert races(schedule) == []
    operands = random.integers(-3, 4, (m, k)).astype(float), random.integers(-3, 4, (k, n)).astype(float)
    result = NumpyExecutor(order="random", seed=seed).run(schedule, operands).result
    assert np.array_equal(result, operands[0] @ operands[1])


def test_pdgemm_is_a_peer_of_block_cyclic_matrices_alone():
    """Blocks of 64 on 2x2 ranks: a rank multiplies with its 2x2 blocks of C at once, for each of 4 of k."""
    compares = algorithms()["scalapack"].compares
    cyclic = dict.fromkeys("abc", "cyclic:64x64:2x2")
    problem = umm.Problem(m=256, n=256, k=256, **cyclic, ranks=4)
    assert compares(problem)
    assert not compares(replace(problem, c="row"))
    assert not compares(replace(problem, a="2d", b="2d", c="2d"))
    schedule = umm.schedule(problem, "h100-8", algorithm="scalapack")
    panel = umm.schedule(umm.Problem(m=128, n=128, k=64, ranks=1), "h100-8")
    assert schedule.seconds[schedule.kind == GEMM].sum() == pytest.approx(4 * 4 * panel.seconds.sum())
    thin = replace(problem, k=64, a="cyclic:64x4:2x2", b="cyclic:4x64:2x2")
    schedule = umm.schedule(thin, "h100-8", algorithm="scalapack")
    assert np.sum(schedule.kind == GEMM) == 4 * 2  # PBLAS puts 32 of k together
    for layout, products in (("2d:2x2", 2), ("row", 4)):
        long = umm.Problem(m=64, n=64, k=16384, **dict.fromkeys("abc", layout), ranks=4)
        schedule = umm.schedule(long, "h100-8", algorithm="scalapack")
        assert np.sum(schedule.kind == GEMM) == 4 * products  # a tile of k each, however long
    small = replace(problem, k=2**24)
    with pytest.raises(umm.errors.ProblemError, match=r"its blocks make 1,048,576 products, .* 4 times as"):
        umm.schedule(small, "h100-8", algorithm="scalapack")

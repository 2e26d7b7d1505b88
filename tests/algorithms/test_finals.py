"""A replicated C: summed by collectives into every replica, or cut over them."""

import numpy as np
import pytest
from examples import WHOLE, examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import umm
from umm.algorithms.scheduling import choices_in_words, names
from umm.plans.collectives.collective import ways
from umm.plans.collectives.library import choose
from umm.plans.multiply.options import COMPLETING, FINALS, Options, delivers
from umm.plans.multiply.policies import policy_names
from umm.plans.multiply.replicas import how_summed
from umm.schedules.table.details import BARRIER, REDUCE
from umm.traces.traffic import bytes_by_kind
from umm_hw.numpy.executor import NumpyExecutor
from umm_sim.executor import SimExecutor

SHIPPED = ("h100-8", "pvc-12", "pvc-12-planes", "dgx-h100x4", "frontera-rtx")


def replicated(m, n, k, c, ranks, **types):
    return umm.Problem(m=m, n=n, k=k, a="col", b="row", c=c, ranks=ranks, **types)


def test_row_parallel_sums_as_a_ring_does_not_through_one_port():
    """128 MiB of float32 on each of 8 H100s: as NCCL does it, 7/8 of it each way and less than a copy's rate.

    Through replica 0 its port takes in 7 times 128 MiB, at 0.8 of its bandwidth, and gives them out again.
    """
    problem = replicated(4096, 8192, 28672, "row@8", 8, dtype="bfloat16", c_dtype="float32")
    machine, seconds = umm.machine("h100-8"), {}
    for final in ("reduce", "broadcast", "all-reduce", "reduce-scatter"):
        schedule = umm.schedule(problem, machine, final=final)
        (first, *_) = np.nonzero(schedule.kind == BARRIER)[0].tolist()
        trace = umm.run(schedule)
        seconds[final] = trace.makespan_s - trace.end[first]
    nbytes, width, adds = 4096 * 8192 * 4, 374e9, machine.accumulate_efficiency
    into_one = 7 * nbytes / adds / width
    assert seconds["reduce"] == pytest.approx(into_one, rel=0.01)
    assert seconds["broadcast"] == pytest.approx(into_one + 7 * nbytes / width, rel=0.01)
    for what in ("reduce-scatter", "all-reduce"):
        law = choose(machine, what, tuple(range(8)), 8, nbytes).seconds
        assert seconds[what] == pytest.approx(law, rel=0.05)


def test_a_whole_tile_is_summed_when_its_links_have_carried_it():
    """64 MiB of bfloat16 on each of 8 H100s, 56 in and 56 out; the first element after those that come in."""
    problem = replicated(4096, 8192, 28672, "row@8", 8, dtype="bfloat16", c_dtype="bfloat16")
    c, options = problem.layout("C"), Options(final="all-reduce")
    sums = how_summed(c, problem.c_dtype, umm.machine("h100-8"), options)
    assert sums.seconds[sums.way] == pytest.approx(322e-6, rel=0.01)
    assert sums.whole == pytest.approx(sums.seconds[sums.way], rel=0.01)
    assert sums.ready == pytest.approx(164e-6, rel=0.01)


@given(
    st.sampled_from(SHIPPED),
    st.sampled_from(["row@8", "col@2", "2d@2:interleaved", "cyclic:300x500:2x2@2"]),
    st.sampled_from([64, 2048]),
    st.sampled_from(["all-reduce", "reduce-scatter"]),
)
@settings(max_examples=examples(20), deadline=None)
def test_no_part_of_a_sum_is_complete_before_its_bound(machine, c, size, final):
    """Neither an element nor a tile, at any rank: when the last that is added or copied there has come."""
    problem = replicated(size, size, size, c, 8)
    sums = how_summed(problem.layout("C"), problem.c_dtype, umm.machine(machine), Options(final=final))
    part, end = sums.schedule, SimExecutor().run(sums.schedule).end
    buffer, d = part.details.buffer[:, 0], part.details
    written = (buffer >= 0) & (buffer < part.first_temporary)
    slices = np.stack((buffer, *d.rows[:, 0].T, *d.cols[:, 0].T), axis=1)[written]
    for what, bound in ((slices, sums.ready), (slices[:, :1], sums.whole)):
        number = np.unique(what, axis=0, return_inverse=True)[1].reshape(-1)
        last = np.zeros(number.max() + 1)
        np.maximum.at(last, number, end[written])
        assert last.min() >= bound


def every_replica_is_right(schedule):
    """Whether each replica of C is A @ B in NumPy, of whole numbers."""
    problem, rng = schedule.problem, np.random.default_rng(2)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(problem.dtype) for x in "AB")
    results = NumpyExecutor(replica=None).run(schedule, (a, b)).result
    return len(results) == problem.outside[2].replicas and all(np.array_equal(x, a @ b) for x in results)


@pytest.mark.parametrize("c", ["row@8", "col@2", "2d@4:interleaved", "cyclic:3x5:2x2@2"])
@pytest.mark.parametrize("machine", ["h100-8", "pvc-12"])
def test_where_nothing_is_said_every_replica_of_c_is_complete(machine, c):
    """17x13x19 on 8 ranks, by each stationary matrix, policy and algorithm, and with operands elsewhere.

    In the short form 10x9x11: the exhaustive policy takes many times as long for twice the tiles.
    """
    m, n, k = (17, 13, 19) if WHOLE else (10, 9, 11)
    sizes = {"m": m, "n": n, "k": k, "ranks": 8, "dtype": "float64"}
    problem = umm.Problem(**sizes, a="col@2", b="2d", c=c)
    asked = [{"stationary": x} for x in ("A", "B", "C", "auto")] + [{"policy": x} for x in policy_names()]
    for how in [*asked, *({"algorithm": name} for name in names())]:
        try:
            schedule = umm.schedule(problem, machine, **how)
        except umm.errors.UmmError:
            assert how.get("algorithm") in ("cannon", "2.5d", "summa2.5", "3d")  # other numbers of ranks
            continue
        assert schedule.options.get("final", "all-reduce") in COMPLETING or "policy" not in schedule.options
        assert every_replica_is_right(schedule), how
    given = umm.Problem(**sizes, a="col@2", b="2d", c="row@2", given=f"a=row,c={c}")
    assert every_replica_is_right(umm.schedule(given, machine))


def test_where_nothing_is_said_every_replica_of_a_chains_product_is_complete():
    outline = umm.chain("mlp", tokens=6, hidden=10, ffn=14, dtype="float64")
    layouts = {"X": "row@4", "W1": "col", "H": "row@4", "G": "row@4", "W2": "row", "Y": "col@2"}
    chain = outline.laid_out(layouts, 4)
    rng = np.random.default_rng(3)
    operands = {x.name: rng.standard_normal(x.shape) for x in chain.tensors if x.role == "input"}
    result = umm.run(umm.schedule(chain, "h100-8"), "numpy", operands, replica=None).results["Y"]
    expected = chain.reference(operands)["Y"]
    assert len(result) == 2
    assert all(np.allclose(replica, expected) for replica in result)


@pytest.mark.parametrize(
    ("machine", "sizes", "final"), [("h100-8", (4096, 8192), "all-reduce"), ("h800-8", (16, 32), "broadcast")]
)
def test_the_ending_where_nothing_is_said_is_the_faster_and_has_its_name(machine, sizes, final):
    """A few bytes go through replica 0 sooner than a collective starts."""
    problem = replicated(*sizes, 1024, "row@8", 8)
    schedule = umm.schedule(problem, machine)
    assert schedule.options["final"] == final
    assert schedule.to_json() == umm.schedule(problem, machine, final=final).to_json()
    seconds = {
        x: SimExecutor().makespan(umm.schedule(problem, machine, final=x))
        for x in ("broadcast", "all-reduce")
    }
    assert min(seconds, key=seconds.get) == final
    alone = umm.schedule(replicated(*sizes, 1024, "row", 8), machine)
    assert alone.options["final"] == "complete"
    assert "sums_by" not in alone.options


def test_an_ending_says_what_it_delivers_and_in_words_what_it_leaves_out():
    assert {final for final in FINALS if delivers(final) == "every replica"} == {"complete", *COMPLETING}
    result = {}
    for final in FINALS:
        schedule = umm.schedule(replicated(64, 64, 64, "row@4", 4), "h100-8", final=final)
        result[final] = choices_in_words(schedule)
    assert "C complete in replica 0 alone" in result["reduce"]
    assert "C cut over its replicas by rows" in result["reduce-scatter"]
    plain = umm.schedule(replicated(64, 64, 64, "row", 4), "h100-8", final="reduce")
    assert "replica" not in choices_in_words(plain)


@pytest.mark.parametrize("text", ["row@3", "2d:1x2@3:interleaved", "cyclic:2x3:2x1@3", "col@6"])
def test_an_all_reduce_completes_every_replica_and_a_scatter_a_part_of_each(text):
    """7x11 over 6 ranks, tiles of 1 to 7 rows: parts of ⌊h/3⌋ or one more rows, some of none."""
    problem = replicated(7, 11, 5, text, 6, dtype="float64")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(float) for x in "AB")
    everywhere = umm.schedule(problem, "pvc-12", final="all-reduce")
    results = NumpyExecutor(replica=None).run(everywhere, (a, b)).result
    assert np.array_equal(results, np.broadcast_to(a @ b, results.shape))
    cut = umm.schedule(problem, "pvc-12", final="reduce-scatter")
    assert np.array_equal(NumpyExecutor().run(cut, (a, b)).result, a @ b)
    every = NumpyExecutor(replica=None).run(cut, (a, b)).result
    layout = problem.layout("C")
    for start, stop in zip(layout.row_edges[:-1], layout.row_edges[1:], strict=True):
        for replica, matrix in enumerate(every):
            low, high = (start + (stop - start) * x // layout.replicas for x in (replica, replica + 1))
            assert np.array_equal(matrix[low:high], (a @ b)[low:high])
    assert not np.array_equal(every[0], a @ b)


@settings(max_examples=examples(60), deadline=None)
@given(
    st.sampled_from(SHIPPED),
    st.sampled_from([2, 3, 4, 8, 16, 32]),
    st.sampled_from([(16, 32), (512, 512), (4096, 8192)]),
    st.sampled_from(["row", "col", "2d"]),
    st.data(),
)
def test_an_all_reduce_is_no_slower_than_through_the_origin(name, ranks, sizes, partition, data):
    """To 2 %, after its start: ways are compared by their longest path and busiest link, not simulated."""
    machine = umm.machine(name)
    assume(ranks <= machine.device_count)
    replicas = data.draw(st.sampled_from([c for c in range(2, ranks + 1) if ranks % c == 0]))
    problem = replicated(*sizes, 1024, f"{partition}@{replicas}", ranks)
    through, by_collective = (
        SimExecutor().makespan(umm.schedule(problem, machine, final=final))
        for final in ("broadcast", "all-reduce")
    )
    assert by_collective <= machine.collective_start_s + 1.02 * through


def test_the_way_is_the_one_that_takes_least_here():
    """Between nodes by level, sooner than NCCL's trees; a few bytes in two steps; the schedule names it."""
    for (m, n), way in (((4096, 8192), "hierarchical"), ((16, 32), "star")):
        problem = replicated(m, n, 1024, "row@32", 32)
        schedule = umm.schedule(problem, "dgx-h100x4", final="all-reduce")
        assert schedule.options["sums_by"] == way
        c, options = problem.layout("C"), Options(final="all-reduce")
        result = how_summed(c, problem.c_dtype, umm.machine("dgx-h100x4"), options)
        assert min(result.seconds, key=result.seconds.get) == way
        assert set(result.seconds) < set(ways())
    assert choices_in_words(schedule).endswith("C summed into every replica, sums by star")


def test_a_collective_of_several_tiles_counts_as_reduces_and_broadcasts():
    """Each rank adds 3/4 of its two 8x8 tiles of C to others': 2 · 64 · 8 B · 3/4 a rank, 8 ranks."""
    problem = replicated(32, 8, 4, "cyclic:8x8:2x1@4", 8, dtype="float64")
    schedule = umm.schedule(problem, "h100-8", final="reduce-scatter", stationary="C")
    assert bytes_by_kind(schedule)["reduce"] == 8 * 2 * 64 * 8 * 3 // 4
    plain = umm.schedule(replicated(32, 8, 4, "row", 8, dtype="float64"), "h100-8", final="all-reduce")
    assert "sums_by" not in plain.options
    assert not np.any(plain.kind == REDUCE)

"""Direct execution: schedules a person can read, and the rules every schedule keeps."""

import numpy as np
import pytest
from conformance.executor_suite import laws, scheduled
from hypothesis import given
from readable import GOLDEN, MACHINE, READABLE, made
from strategies import direct_options, problems, schedule_options, stationaries

import umm
from umm.errors import MachineError, ScheduleError
from umm.plans.multiply.direct import price_together
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import ending_of
from umm.plans.multiply.rows import rows_of
from umm.program.problem import MATRICES
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET, REDUCE, TRANSFERS


@pytest.mark.parametrize("name", READABLE)
def test_the_schedule_reads_as_written_down(name):
    """If a change is meant, write str(schedule) into tests/golden/{name}.txt and read the difference."""
    assert str(made(name)) + "\n" == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


def gemm_rows(schedule):
    """Row of each gemm by (rank, op)."""
    rows = np.nonzero(schedule.kind == GEMM)[0]
    keys = zip(schedule.rank[rows].tolist(), schedule.details.op[rows].tolist(), strict=True)
    return dict(zip(keys, rows.tolist(), strict=True))


def pool_slots(schedule):
    """Pool slot of each operand of each action, −1 for an owned tile or none, shape (actions, 4)."""
    buffer = schedule.details.buffer
    return np.where(buffer >= 0, schedule.buffers.slot[buffer], -1)


@laws
@given(problems(), stationaries, schedule_options)
def test_the_table_keeps_its_own_rules(problem, stationary, options):
    """Everything waits for smaller ids only, lanes belong to ranks, slices lie in their tiles."""
    schedule = scheduled(problem, stationary, options)
    check(schedule)
    for action in range(len(schedule)):
        after = schedule.after_of(action).tolist()
        assert all(0 <= before < action for before in after)
        assert len(set(after)) == len(after)
    on_lane = schedule.kind != BARRIER
    assert np.array_equal(schedule.lanes.rank[schedule.lane[on_lane]], schedule.rank[on_lane])


@laws
@given(problems(), stationaries, schedule_options)
def test_no_action_is_empty(problem, stationary, options):
    """Every gemm has flop, every transfer payload; bytes on the links are at least the payload."""
    schedule = scheduled(problem, stationary, options)
    assert np.all(schedule.flop[schedule.kind == GEMM] > 0)
    assert schedule.flop.sum() == problem.flop
    transfer = np.isin(schedule.kind, TRANSFERS)
    assert np.all(schedule.payload[transfer] > 0)
    if schedule.options.get("final") not in (
        "all-reduce",
        "reduce-scatter",
    ):  # a library charges its own
        assert np.all(schedule.nbytes[transfer] >= schedule.payload[transfer])
    assert np.all(schedule.src[schedule.kind == GET] != schedule.dst[schedule.kind == GET])


@laws
@given(problems(), stationaries, direct_options)
def test_gets_run_d_ahead_and_gemms_wait_for_what_they_read(problem, stationary, options):
    """gets of op j wait for gemm j − d − g; gemm j waits for the last get into each slot it reads."""
    schedule = scheduled(problem, stationary, options)
    depth = options["prefetch"] + options["max_gemms"]
    d, gemm, slot = schedule.details, gemm_rows(schedule), pool_slots(schedule)
    filled = {}
    for action, (kind, rank, op) in enumerate(
        zip(schedule.kind.tolist(), schedule.rank.tolist(), d.op.tolist(), strict=True)
    ):
        after = schedule.after_of(action).tolist()
        if kind == GET:
            if op >= depth:
                assert gemm[rank, op - depth] in after
            assert {int(schedule.kind[x]) for x in after} <= {GEMM}
            filled[rank, int(slot[action, 0])] = action
        elif kind == GEMM:
            read = [x for x in (1, 2) if slot[action, x] >= 0]
            got = [filled[rank, int(slot[action, x])] for x in read]
            assert set(got) <= set(after)
            assert [d.buffer[x, 0] for x in got] == [d.buffer[action, x] for x in read]
        elif kind == ACCUMULATE:
            assert after == [gemm[rank, op]]
            assert slot[action, 1] >= 0
            for column in (d.buffer, d.rows, d.cols):
                assert np.array_equal(column[action, 1], column[gemm[rank, op], 0])


@laws
@given(problems(), stationaries, direct_options)
def test_pools_have_the_promised_slots_each_as_large_as_the_largest_it_must_hold(
    problem, stationary, options
):
    """d + g for A, d + g for B, g + s for C; none of a matrix the rank never moves."""
    schedule = scheduled(problem, stationary, options)
    depth = options["prefetch"] + options["max_gemms"]
    counts = (depth, depth, options["max_gemms"] + options["max_accumulates"])
    for rank, slots in enumerate(schedule.pools):
        expected = []
        for number, count in enumerate(counts):
            kind = ACCUMULATE if MATRICES[number] == "C" else GET
            moved = (
                (schedule.kind == kind) & (schedule.rank == rank) & (schedule.operand_tensors(0) == number)
            )
            expected += [int(schedule.payload[moved].max())] * count if moved.any() else []
        assert slots.tolist() == expected


@laws
@given(problems(), stationaries, direct_options)
def test_lanes_and_rows_take_turns(problem, stationary, options):
    """A rank's f-th get is on copy_in lane f mod L, or slices of A and B apart; rows go op by op."""
    schedule = scheduled(problem, stationary, options)
    names = np.array([schedule.lanes.names[lane] if lane >= 0 else "" for lane in schedule.lane])
    engines = len({name for name in schedule.lanes.names if name.startswith("copy_in")})
    adding = np.isin(schedule.kind, (ACCUMULATE, REDUCE))
    for rank in range(schedule.ranks):
        local = schedule.rank == rank
        got = local & (schedule.kind == GET)
        gets, of_b = names[got].tolist(), schedule.operand_tensors(0)[got]
        common = [f"copy_in.{f % engines}" for f in range(len(gets))]
        number = np.where(of_b, of_b.cumsum(), (1 - of_b).cumsum() - 1)
        apart = [f"copy_in.{f % engines}" for f in number]
        assert gets == common if options["granularity"] == "tile" else gets in (common, apart)
        adds = names[local & adding].tolist()
        assert adds == [f"accumulate.{f % options['max_accumulates']}" for f in range(len(adds))]
    direct = np.isin(schedule.kind, (GET, GEMM, ACCUMULATE))
    turns = list(zip(schedule.details.op[direct].tolist(), schedule.rank[direct].tolist(), strict=True))
    assert turns == sorted(turns)


def test_without_reuse_every_op_fetches_again():
    """1x8 slices of A against 4 tiles of B in a row: A's tile is fetched once, or once for each op."""
    problem = umm.Problem(m=8, n=8, k=8, a="edges:0-8x0-8:1x2", b="row", c="col", ranks=2)

    def gets_of_a(reuse):
        schedule = umm.schedule(problem, MACHINE, stationary="C", reuse=reuse)
        return int(np.sum((schedule.kind == GET) & (schedule.operand_tensors(0) == 0)))

    assert (gets_of_a(True), gets_of_a(False)) == (1, 2)


def test_a_tile_of_c_that_others_add_to_takes_local_contributions_by_accumulate_too():
    """Stationary B: every rank adds to every tile of C; stationary C: nobody adds to another's."""
    problem = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="row", ranks=4)
    shared = umm.schedule(problem, MACHINE, stationary="B")
    alone = umm.schedule(problem, MACHINE, stationary="C")
    local = (shared.kind == ACCUMULATE) & (shared.src == shared.dst)
    assert int(local.sum()) == 4
    assert np.all(pool_slots(shared)[shared.kind == GEMM, 0] >= 0)
    assert not np.any(alone.kind == ACCUMULATE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefetch": -1}, "prefetch = -1 is not possible; it must be a whole number ≥ 0"),
        ({"max_gemms": 0}, "max_gemms = 0 is not possible; it must be a whole number ≥ 1"),
        ({"granularity": "byte"}, "granularity 'byte' is unknown; choose from tile, slice"),
        ({"final": "keep"}, "final 'keep' is unknown; choose from complete, broadcast, all-reduce"),
        ({"policy": "lucky"}, "policy 'lucky' is unknown; choose from direct"),
    ],
)
def test_an_option_that_means_nothing_is_refused(options, message):
    with pytest.raises(ScheduleError, match=message):
        umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), MACHINE, **options)


@pytest.mark.parametrize("name", ["h100-8", "pvc-12", "tpu-v5e-4", "mi355x-8", "b200-8", "l40s-8"])
def test_shapes_priced_once_cost_what_they_do_priced_together(name):
    """To the last bit, in whatever order a book learns them, machines with kernels and message sizes too."""
    machine, options = umm.machine(name), Options()
    for a, b, c in (("row", "col", "2d"), ("col", "row", "row@2"), ("cyclic:300x400:2x2", "2d", "col")):
        for m, n, k in ((512, 768, 640), (513, 700, 129)):
            problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=4, dtype="bfloat16")
            ops, shared = op_list(problem, "C"), ending_of(problem, machine, options).shared
            cached, together = (rows_of(ops, shared, options, priced) for priced in (True, False))
            price_together(ops, together, machine, options.max_gemms + options.max_accumulates)
            count = len(cached.rows.kind)
            assert cached.rows.seconds[:count].tolist() == together.rows.seconds[:count].tolist()
            assert cached.rows.numbers[4, :count].tolist() == together.rows.numbers[4, :count].tolist()


def test_a_price_that_cannot_be_asked_for_is_the_machines_error():
    problem = umm.Problem(m=64, n=64, k=64, a="row", b="row", c="row", ranks=4, dtype="float64")
    with pytest.raises(MachineError, match="states no peak for float64"):
        umm.schedule(problem, "tpu-v5e-4")

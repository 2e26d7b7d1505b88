"""A plan holds its schedule's multiplies, and the same bytes between the same ranks."""

import numpy as np
import pytest

import umm
from umm.plans.collectives.rings import node_of_ranks
from umm.plans.written import BETWEEN, plan_of
from umm.program.plan import Jobs, Moves
from umm.schedules.table.details import GEMM

NODES = "dgx-h100x4 nodes=2"


def schedules():
    problem = umm.Problem(m=60, n=44, k=52, a="row@2", b="2d", c="col", ranks=8)
    yield umm.schedule(problem, "h100-8"), umm.machine("h100-8")
    yield umm.schedule(problem, "h100-8", stationary="A"), umm.machine("h100-8")
    outline = umm.chain("gated-mlp", hidden=512, ffn=1024, tokens=2048, backward=True)
    for layouts in ("tp8-dp2", "sequence", "fsdp16"):
        for movement in ("auto", "flat", "chunks"):
            chain = outline.laid_out(layouts, ranks=16)
            yield umm.schedule(chain, umm.machine(NODES), movement=movement), umm.machine(NODES)


@pytest.mark.parametrize(("schedule", "machine"), [*schedules()])
def test_a_plan_has_every_gemm_and_every_byte_of_its_schedule(schedule, machine):
    plan = plan_of(schedule, node_of_ranks(machine, schedule.ranks))
    gemms = sum(len(x) for x in plan if isinstance(x, Jobs) and x.kernel == "gemm")
    assert gemms == np.count_nonzero(schedule.kind == GEMM)
    itemsize = {x.name: x.itemsize for x in schedule.tensors}
    pairs = sum(x.by_pair(itemsize[x.into.tensor], schedule.ranks) for x in plan if isinstance(x, Moves))
    between, moves = np.zeros((schedule.ranks, schedule.ranks)), schedule.src != schedule.dst
    np.add.at(between, (schedule.src[moves], schedule.dst[moves]), schedule.payload[moves])
    assert (pairs == between).all()


def test_a_sum_across_nodes_is_one_entry_of_groups_that_exchange_alike():
    """Two replicas of a weight's gradient, eight ranks each: rank 0 adds to 8, 1 to 9."""
    chain = umm.chain("gated-mlp", hidden=512, ffn=1024, tokens=2048, backward=True)
    schedule = umm.schedule(chain.laid_out("tp8-dp2", ranks=16), umm.machine(NODES))
    plan = plan_of(schedule, node_of_ranks(umm.machine(NODES), 16))
    (summed,) = [x for x in plan if isinstance(x, Moves) and x.adds and x.into.tensor == "dW1"]
    assert (summed.way, len(summed)) == (f"accumulate {BETWEEN}", 16)
    pairs = {(int(x), int(y)) for x, y in zip(summed.source.rank, summed.into.rank, strict=True)}
    assert pairs == {(x, (x + 8) % 16) for x in range(16)}
    assert np.array_equal(np.unique(summed.group), np.arange(8))

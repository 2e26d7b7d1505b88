"""The plan of direct execution and the op list in C against those by NumPy: equal, number by number."""

from dataclasses import fields, replace

import numpy as np
import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import finals, problems, stationaries

import umm
from umm.plans.multiply import direct, oplist
from umm.plans.multiply.options import Options
from umm.plans.multiply.replicas import ending_of
from umm.schedules.table.details import ACCUMULATE, GEMM, GET

MACHINE = umm.machine("dgx-h100x4")


@pytest.fixture(scope="module")
def module():
    return compiled("_plan")


@settings(max_examples=examples(80))
@given(
    problem=problems(dtype="float32"),
    stationary=stationaries,
    prefetch=st.integers(0, 3),
    gemms=st.integers(1, 3),
    updates=st.integers(1, 3),
    granularity=st.sampled_from(["tile", "slice"]),
    reuse=st.booleans(),
)
def test_the_plan_is_the_same(module, problem, stationary, prefetch, gemms, updates, granularity, reuse):
    """Rows, lanes, ranks, what waits for what, and how much each get moves."""
    options = Options(
        prefetch=prefetch, max_gemms=gemms, max_accumulates=updates, granularity=granularity, reuse=reuse
    )
    ops = oplist.op_list(problem, stationary)
    shared = ending_of(problem, MACHINE, options).shared
    starts = ops.rank.searchsorted(np.arange(problem.p))
    expected = direct.plan_of(ops, starts, shared, options)
    found = direct.compiled_plan(ops, shared, options, module.plan)
    for field in fields(direct.Plan):
        columns = [np.asarray(getattr(x, field.name)) for x in (found, expected)]
        assert columns[0].dtype == columns[1].dtype
        assert columns[0].tolist() == columns[1].tolist(), field.name


def test_its_numbers_of_kinds_are_the_table_s():
    assert f"GET = {GET}, GEMM = {GEMM}, ACCUMULATE = {ACCUMULATE}" in text_of("_plan")


@settings(max_examples=examples(40))
@given(problem=problems(dtype="float32"), stationary=stationaries, final=finals, slices=st.booleans())
def test_what_is_moved_and_multiplied_needs_no_details(problem, stationary, final, slices):
    """Payload, flop and bytes of gemms from the plan are those from the slices that each action touches."""
    options = {"final": final, "granularity": "slice" if slices else "tile"}
    schedule = umm.schedule(problem, MACHINE, stationary=stationary, **options)
    by_details = replace(schedule, make_amounts=None)
    assert schedule.payload.tolist() == by_details.payload.tolist()
    assert schedule.flop.tolist() == by_details.flop.tolist()
    assert schedule.moved_tensors.tolist() == by_details.moved_tensors.tolist()
    gemms = (schedule.kind == GEMM).nonzero()[0]
    tensors, nbytes, sizes = schedule.kernel_operands(gemms)
    of_all, of_all_bytes, of_all_sizes = by_details.kernel_operands(gemms)
    assert tensors.tolist() == of_all[:, :3].tolist()
    assert not (of_all[:, 3:] >= 0).any()
    assert nbytes.tolist() == of_all_bytes[:, :3].tolist()
    assert sizes.tolist() == of_all_sizes.tolist()

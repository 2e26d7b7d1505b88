"""Bytes and flop of a schedule of direct execution, counted without the slices that its actions touch."""

from dataclasses import replace

from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import finals, problems, stationaries

import umm
from umm.schedules.table.details import GEMM

MACHINE = umm.machine("dgx-h100x4")


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

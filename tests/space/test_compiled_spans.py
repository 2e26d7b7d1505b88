"""Where gemms begin and end at the earliest in C against the same in Python: equal, action by action."""

import pytest
from compiled import compiled, text_of
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, stationaries

import umm
from umm.schedules.table.details import GEMM
from umm.space.bounds import statement_work

MACHINE = umm.machine("dgx-h100x4")


@pytest.fixture(scope="module")
def spans():
    return compiled("_spans").spans


@settings(max_examples=examples(60), deadline=None)
@given(problems(), stationaries, st.integers(1, 3))
def test_gemms_are_followed_alike_in_c(spans, problem, stationary, depth):
    schedule = umm.schedule(problem, MACHINE, stationary=stationary, prefetch=depth)
    found = []
    for function in (None, spans):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statement_work, "spans_in_c", function)
            found.append([x.tolist() for x in statement_work.followed(schedule, schedule.seconds)])
    assert found[0] == found[1]


def test_its_number_of_a_gemm_is_the_table_s():
    assert f"enum {{ GEMM = {GEMM} }};" in text_of("_spans")


def test_columns_that_do_not_belong_together_are_refused(spans):
    schedule = umm.schedule(umm.Problem(64, 64, 64, ranks=4), MACHINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statement_work, "spans_in_c", spans)
        with pytest.raises(ValueError, match="do not belong together"):
            statement_work.followed(schedule, schedule.seconds[:1])

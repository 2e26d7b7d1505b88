"""Predicted against measured: action by action, kind by kind, point by point."""

import math
from dataclasses import replace

import pytest
from made_traces import slower, two_ranks

import umm
from umm.errors import InputError
from umm.schedules.table.details import KINDS
from umm.traces.trace import Trace


def test_each_action_is_held_against_itself():
    """Measured times are a quarter longer, so predictions are 0.8 of them; a barrier takes no time."""
    frame = umm.compare(two_ranks(), slower(two_ranks(), 1.25)).to_frame()
    assert list(frame.columns) == ["kind", "rank", "nbytes", "predicted_s", "measured_s", "ratio"]
    assert frame["predicted_s"].tolist() == [3, 2, 3, 4, 2, 1, 0, 3]
    assert frame["measured_s"].tolist() == [3.75, 2.5, 3.75, 5, 2.5, 1.25, 0, 3.75]
    assert frame["ratio"].drop(6).tolist() == pytest.approx([0.8] * 7)
    assert math.isnan(frame["ratio"][6])


def test_each_phase_is_summed_by_kind():
    """Gemms 3 + 3 + 2 + 1 s, gets 2 + 4 s; the second get is measured at 8 s instead of 4."""
    predicted = two_ranks()
    end = predicted.end.copy()
    end[3] += 4
    phases = umm.compare(predicted, Trace(predicted.schedule, "mpi", predicted.start, end)).phases()
    assert phases.index.tolist() == ["gemm", "get", "barrier", "reduce"]
    assert phases.loc["gemm"].tolist() == [4, 0, 9, 9, 1]
    assert phases.loc["get"].tolist() == [2, 32, 6, 10, 0.75]


def test_the_makespan_error_is_predicted_over_measured_less_one():
    comparison = umm.compare(two_ranks(), slower(two_ranks(), 1.25))
    assert comparison.makespan_error == pytest.approx(-0.2)
    assert str(comparison) == (
        "Predicted 10.00 s, measured 12.50 s: -20.0 %; all dependencies kept; finish order τ = 1.00."
    )


@pytest.mark.parametrize(
    ("ends", "inside", "result"),
    [
        ((9.0, 13.0), True, ", inside the predicted range of 9.00 s to 13.00 s"),
        ((9.0, 11.0), False, ", above the predicted range of 9.00 s to 11.00 s"),
        ((10.0, 10.0), None, ""),
        (None, None, ""),
    ],
)
def test_a_measured_makespan_is_inside_the_predicted_range_or_not(ends, inside, result):
    """10 s predicted, 12.5 s measured; a range of one value is none."""
    comparison = umm.compare(two_ranks(), slower(two_ranks(), 1.25), ends)
    assert comparison.inside is inside
    assert f"-20.0 %{result}; all" in str(comparison)


def test_against_the_numpy_executor_only_order_and_bytes_are_compared():
    problem = umm.Problem(m=12, n=10, k=8, a="col", b="row", c="2d@2", ranks=4)
    schedule = umm.schedule(problem, "h100-8", stationary="B")
    comparison = umm.compare(umm.run(schedule), umm.run(schedule, executor="numpy"))
    assert not comparison.times_comparable
    assert math.isnan(comparison.makespan_error)
    assert comparison.to_frame()["ratio"].isna().all()
    assert comparison.order_kept
    assert str(comparison).startswith("Order and bytes only: all dependencies kept; finish order τ = ")


def test_an_action_that_ran_too_early_is_noticed():
    """The gemm 2 waits for the get 1, which ends at 2."""
    trace = two_ranks()
    start = trace.start.copy()
    start[2] = 1.5
    early = Trace(trace.schedule, "mpi", start, trace.end)
    assert not umm.compare(trace, early).order_kept


def changed(**columns):
    """The trace of a schedule that differs in some columns."""
    trace = two_ranks()
    return replace(trace, schedule=replace(trace.schedule, **columns))


def test_traces_of_different_schedules_are_refused_with_the_difference():
    trace = two_ranks()
    other = umm.Problem(m=4, n=6, k=2, a="row", b="row", c="row", ranks=2)
    nbytes = trace.schedule.nbytes.copy()
    nbytes[1] = 17
    kind = trace.schedule.kind.copy()
    kind[1] = 1
    after = trace.schedule.after.copy()
    after[0] = 0
    cases = {
        "c is row@2 in one, row in the other": changed(program=other),
        "a tensor is C float32 row@2, output, in one, C float64 row@2, output, in the other": changed(
            program=replace(trace.schedule.problem, c_dtype="float64")
        ),
        "name is multiply in one, mlp in the other": changed(
            program=replace(trace.schedule.problem.chain, name="mlp")
        ),
        "name is C in one, B in the other": changed(name="B"),
        "nbytes of action 1 is 16 in one, 17 in the other": changed(nbytes=nbytes),
        "kind of action 1 is get in one, put in the other": changed(kind=kind),
        "the actions wait for different ones": changed(after=after),
    }
    for part, measured in cases.items():
        with pytest.raises(InputError, match=part):
            umm.compare(trace, measured)
    fewer = umm.schedule(trace.schedule.problem, "h100-8", stationary="C", final="broadcast")
    with pytest.raises(InputError, match="one has 8 actions, the other 10"):
        umm.compare(trace, umm.run(fewer))


def test_durations_and_links_may_differ():
    """A schedule lowered for another machine's gemms is the same schedule."""
    assert umm.compare(two_ranks(), changed(seconds=two_ranks().schedule.seconds * 2)).order_kept


def test_a_single_action_has_no_order_to_agree_on():
    trace = umm.run(umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=1), "h100-8"))
    assert str(umm.compare(trace, slower(trace, 2))).endswith("-50.0 %; all dependencies kept.")


def test_parts_whose_errors_cancel_are_shown_beside_a_makespan_that_fits():
    """Gets of 2 and 4 s are measured at 0.5 and 1 s; the makespan stays 10 s, and gemms fit."""
    predicted = two_ranks()
    end = predicted.end.copy()
    gets = (predicted.schedule.kind == KINDS.index("get")).nonzero()[0]
    end[gets] = predicted.start[gets] + (end[gets] - predicted.start[gets]) / 4
    comparison = umm.compare(predicted, Trace(predicted.schedule, "mpi", predicted.start, end))
    assert comparison.makespan_error == 0
    assert comparison.cancelling == {"get": pytest.approx(4)}
    assert umm.compare(predicted, slower(predicted, 1.6)).cancelling == {}

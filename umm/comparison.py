"""Predicted against measured: two traces of a schedule, or the order of many points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from umm.arrays import Floats, Ints, group_of_row, summed_before
from umm.errors import InputError, expect
from umm.notebook import Shown
from umm.program.tensors import Program
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import KINDS
from umm.traces.trace import Trace
from umm.units import format_seconds, percent

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class RankAgreement:
    """How well predictions order a set of points."""

    # Kendall's tau-b: 1 for the same order, −1 for the opposite one; nan if either has one value only.
    tau: float
    # How much slower the predicted winner measured than the measured one; 0 if it is the winner.
    regret: float
    points: int  # number of points


def rank_agreement(
    predicted_times: Sequence[float] | Floats, measured_times: Sequence[float] | Floats
) -> RankAgreement:
    """Compare the order that predictions give a set of points with the measured order.

    InputError if the numbers of points differ, or there is none.

    Args:
        predicted_times: A time per point, in seconds; of equal winners the first counts.
        measured_times: A time for each of the same points.

    >>> rank_agreement([1.0, 2.0, 3.0], [1.5, 1.2, 9.0])
    RankAgreement(tau=0.3333333333333333, regret=0.25, points=3)
    """
    predicted = np.asarray(predicted_times, dtype=np.float64)
    measured = np.asarray(measured_times, dtype=np.float64)
    if predicted.shape != measured.shape or predicted.ndim != 1 or not predicted.size:
        raise InputError(
            f"{predicted.size} predicted and {measured.size} measured times cannot be compared; "
            "give one of each per point, at least one"
        )
    regret = float(measured[np.argmin(predicted)] / measured.min() - 1)
    return RankAgreement(kendall_tau(predicted, measured), regret, predicted.size)


def kendall_tau(x: Floats, y: Floats) -> float:
    """Return Kendall's tau-b of paired values in O(n log² n); nan if either has one value only.

    Source: Knight, W. R. (1966), J. Am. Stat. Assoc. 61, 436-439.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0]))
    -1.0
    """
    x_place, y_place = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    pairs = _pairs(np.array([len(x)]))
    tied_x, tied_y = _pairs(np.bincount(x_place)), _pairs(np.bincount(y_place))
    tied_both = _pairs(np.unique(x_place * len(x) + y_place, return_counts=True)[1])
    # Two numbers are separated by their highest bit that differs. So for each bit, among the numbers equal in
    # all higher ones, the ones before zeros are counted.
    values, discordant = y_place[np.lexsort((y_place, x_place))], 0
    for bit in range(int(values.max(initial=0)).bit_length()):
        one = (values >> bit) & 1
        discordant += int(summed_before(values >> (bit + 1), one)[one == 0].sum())
    apart = (pairs - tied_x) * (pairs - tied_y)
    if apart == 0:
        return float("nan")
    return (pairs - tied_x - tied_y + tied_both - 2 * discordant) / math.sqrt(apart)


def _pairs(counts: Ints) -> int:
    """Return how many pairs groups of these sizes have within themselves."""
    return sum(count * (count - 1) // 2 for count in counts.tolist())


__all__ = ["Comparison", "RankAgreement", "compare", "rank_agreement"]

APART = 1.5  # how many times too long or too short a kind of actions is predicted that does not fit

_COLUMNS = ("kind", "rank", "lane", "src", "dst", "nbytes", "payload", "after_offsets", "after")


@dataclass(frozen=True, eq=False)
class Comparison(Shown):
    """Two traces of one schedule; action i of one is action i of the other."""

    predicted: Trace  #: the trace that was predicted
    measured: Trace  #: the trace it is compared with
    #: The least and the most predicted makespan within the ranges of the machine's numbers, in seconds; None
    #: if that is not known.
    ends: tuple[float, float] | None = None

    @property
    def times_comparable(self) -> bool:
        """Whether both have times of p ranks, not of one process in place of all ranks."""
        return "meaningless" not in (self.predicted.times, self.measured.times)

    @property
    def makespan_error(self) -> float:
        """Predicted makespan over the measured one, less 1; nan if times cannot be compared."""
        if not self.times_comparable or self.measured.makespan_s == 0:
            return float("nan")
        return self.predicted.makespan_s / self.measured.makespan_s - 1

    @property
    def inside(self) -> bool | None:
        """Whether the measured makespan is inside the predicted range; None without a range or times."""
        if self.ends is None or self.ends[0] == self.ends[1] or not self.times_comparable:
            return None
        return self.ends[0] <= self.measured.makespan_s <= self.ends[1]

    @property
    def order_kept(self) -> bool:
        """Whether in both traces no action starts before all it waits for have finished."""
        return all(
            bool((x.start[group_of_row(x.schedule.after_offsets)] >= x.end[x.schedule.after]).all())
            for x in (self.predicted, self.measured)
        )

    @cached_property
    def order_tau(self) -> float:
        """Kendall's tau-b of the order in which actions finish: 1 for the same order."""
        return kendall_tau(self.predicted.end, self.measured.end)

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per action: kind, rank, nbytes (payload), predicted_s, measured_s and their ratio.

        The ratio is predicted over measured, nan where nothing was measured or times cannot be compared.
        """
        import pandas as pd

        predicted = self.predicted.end - self.predicted.start
        measured = self.measured.end - self.measured.start
        known = (measured > 0) & self.times_comparable
        schedule = self.predicted.schedule
        return pd.DataFrame(
            {
                "kind": np.array(KINDS, dtype=object)[schedule.kind],
                "rank": schedule.rank,
                "nbytes": schedule.payload,
                "predicted_s": predicted,
                "measured_s": measured,
                "ratio": np.divide(predicted, measured, out=np.full(len(schedule), np.nan), where=known),
            }
        )

    def phases(self) -> "pd.DataFrame":
        """Return a row per kind: actions, nbytes, predicted_s and measured_s in total, median_ratio."""
        grouped = self.to_frame().groupby("kind", sort=False)
        return grouped.agg(
            actions=("rank", "size"),
            nbytes=("nbytes", "sum"),
            predicted_s=("predicted_s", "sum"),
            measured_s=("measured_s", "sum"),
            median_ratio=("ratio", "median"),
        )

    @property
    def cancelling(self) -> dict[str, float]:
        """Kinds of actions predicted 1.5 times too long or too short, beside a makespan that fits.

        By kind its predicted over its measured seconds, summed over all actions. Kinds with less than a
        twentieth of all seconds are left out; there is none where the makespan itself is off by a quarter.
        """
        if not abs(self.makespan_error) < 0.25:  # nan is not
            return {}
        phases = self.phases()
        total = phases.measured_s.sum()
        large = phases[
            (phases.measured_s > 0) & (phases[["predicted_s", "measured_s"]].max(axis=1) > total / 20)
        ]
        ratios = (large.predicted_s / large.measured_s).to_dict()
        return {str(kind): x for kind, x in ratios.items() if not 1 / APART < x < APART}

    def __repr__(self) -> str:
        return f"Comparison({self})"

    def __str__(self) -> str:
        order = "all dependencies kept" if self.order_kept else "some actions ran before what they wait for"
        tau = self.order_tau
        order += "" if np.isnan(tau) else f"; finish order τ = {tau:.2f}"
        if not self.times_comparable:
            return f"Order and bytes only: {order}."
        predicted, measured = (format_seconds(x.makespan_s) for x in (self.predicted, self.measured))
        error = percent(self.makespan_error, 1, signed=True)
        return f"Predicted {predicted}, measured {measured}: {error}{self._where()}; {order}."

    def _where(self) -> str:
        """Return on which side of the predicted range the measured makespan is, in words."""
        if self.ends is None or self.inside is None:
            return ""
        low, high = self.ends
        side = "inside" if self.inside else "below" if self.measured.makespan_s < low else "above"
        return f", {side} the predicted range of {format_seconds(low)} to {format_seconds(high)}"


def compare(predicted: Trace, measured: Trace, ends: tuple[float, float] | None = None) -> Comparison:
    """Compare a predicted trace with a measured one of the same schedule.

    InputError if the schedules differ, saying in what.

    Args:
        ends: The range of the predicted makespan in seconds, if it is known.
    """
    for trace in (predicted, measured):
        expect(trace, Trace, "compare", "two traces; umm.run(schedule) returns one")
    difference = _difference(predicted.schedule, measured.schedule)
    if difference:
        raise InputError(f"the two traces are not of the same schedule: {difference}; run one schedule twice")
    return Comparison(predicted, measured, ends)


def _difference(one: Schedule, other: Schedule) -> str:
    """Return a difference of two schedules in words, empty if there is none but durations or links."""
    if one is other:
        return ""
    if one.program != other.program:
        return _programs_differ(one.program, other.program)
    for name in ("name", "ranks"):
        values = [getattr(x, name) for x in (one, other)]
        if values[0] != values[1]:
            return f"{name} is {values[0]} in one, {values[1]} in the other"
    if len(one) != len(other):
        return f"one has {len(one)} actions, the other {len(other)}"
    for name in _COLUMNS:
        ours, theirs = getattr(one, name), getattr(other, name)
        if not np.array_equal(ours, theirs):
            if name.startswith("after"):
                return "the actions wait for different ones"
            i = int(np.argmax(ours != theirs))
            shown = [KINDS[int(x[i])] if name == "kind" else str(x[i]) for x in (ours, theirs)]
            return f"{name} of action {i} is {shown[0]} in one, {shown[1]} in the other"
    return ""


def _programs_differ(one: Program, other: Program) -> str:
    """Return a difference of two programs in words: a size, a layout or a tensor, else the statements."""
    both = [{"name": x.name, "ranks": x.p} | x.to_dict() for x in (one, other)]
    for key, value in both[0].items():
        if isinstance(value, str | int) and value != both[1].get(key):
            return f"{key} is {value} in one, {both[1].get(key, 'not there')} in the other"
    for ours, theirs in zip(one.tensors, other.tensors, strict=False):
        if ours != theirs:
            shown = [f"{x.name} {x.dtype} {x.layout}, {x.role}," for x in (ours, theirs)]
            return f"a tensor is {shown[0]} in one, {shown[1]} in the other"
    return f"the statements of {one.name} differ"

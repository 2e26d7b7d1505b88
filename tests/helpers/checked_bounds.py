"""Searches that refuse a makespan below its bound, where an answer alone would say *not proven*."""

from umm.space.pricing.assignments import AssignmentPricer
from umm.space.pricing.multiplies import MultiplyPricer
from umm_sim.executor import SimExecutor


def check_bounds(replace):
    """Let pricers raise ``AssertionError`` for a bound above the simulated makespan.

    Args:
        replace: Sets an attribute of an object, as ``pytest.MonkeyPatch.setattr`` does.
    """
    for pricer in (AssignmentPricer, MultiplyPricer):
        replace(pricer, "simulated", _checked(pricer.simulated))


def _checked(simulated):
    def checked(self, point, bound):
        row, choice = simulated(self, point, bound)
        if isinstance(getattr(self.makespan, "__self__", None), SimExecutor):
            if isinstance(self, AssignmentPricer):
                bound = max(bound, self.tables.bound(point))
            assert bound <= choice.makespan_s, (
                f"a bound of {bound:.6g} s lies above the makespan of {choice.makespan_s:.6g} s of "
                f"{self.points.words}, {choice.layouts}, {choice.movement or choice.options}"
            )
        return row, choice

    return checked

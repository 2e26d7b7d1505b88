"""Policies, which order the actions of a schedule, and the lowering of one multiply by one of them."""

from functools import lru_cache
from typing import Any, Protocol, cast

from umm.errors import ScheduleError
from umm.files import shown
from umm.machines import Machine
from umm.plans.multiply.direct import direct
from umm.plans.multiply.options import COMPLETE, COMPLETING, LAYOUTS, PANELS, Options, known
from umm.plans.option import check_names
from umm.plugins import loaded, plugin, plugins
from umm.program.problem import Problem, largest_matrix
from umm.schedules.schedule import Schedule

GROUP = "umm.policies"
DIRECT = "direct"


class Policy(Protocol):
    """Orders the actions of a schedule.

    Attributes:
        searches: Whether it searches for the best order, which may take seconds a rank.
        closed_form: Whether the closed-form bounds of lanes, links and pools hold: ops run in list order,
            transfers are dealt out to lanes in turn, a pool has a fixed number of slots. Any other policy
            is bounded by its gemms and its tiles alone.
    """

    @property
    def searches(self) -> bool: ...  # noqa: D102

    @property
    def closed_form(self) -> bool: ...  # noqa: D102

    def lower(self, problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
        """Return the schedule of a problem on a machine, with one matrix stationary."""


class _Direct:
    searches = False
    closed_form = True
    lower = staticmethod(direct)


def policy_names() -> list[str]:
    """Return the names of all policies, direct execution first."""
    return [DIRECT, *sorted(plugins(GROUP))]


def find_policy(name: str) -> Policy:
    """Return the policy of a name; its package is imported only now.

    ScheduleError for a name that no installed package offers.

    Args:
        name: Direct execution's, or one that a package offers in its entry-point group ``umm.policies``.
    """
    if name == DIRECT:
        return _Direct()
    entry = plugin(GROUP, name)
    if entry is None:
        raise ScheduleError(f"policy {shown(name)} is unknown; choose from {', '.join(policy_names())}")
    return cast(Policy, loaded(entry, "policy "))


def lowered(problem: Problem, machine: Machine, stationary: str = "auto", **options: Any) -> Schedule:
    """Return the schedule of a problem by the universal algorithm.

    ScheduleError for an unknown option or a value that means nothing. ProblemError for an unknown stationary
    matrix.

    Args:
        stationary: A, B, C or ``auto`` for the largest matrix.
        options: Fields of :class:`umm.plans.multiply.options.Options`.
    """
    try:
        chosen = _chosen(**options)
    except TypeError:  # of a value that cannot be a key, and means nothing either
        chosen = _chosen.__wrapped__(**options)
    if stationary == "auto":
        stationary = largest_matrix(problem)
    if chosen.one_sided:
        return find_policy(chosen.policy).lower(problem, machine, stationary, chosen)
    # Movements decide before policies: a policy orders one-sided ops, and these have none, or stage them.
    from umm.plans.movement.choice import COLLECTIVES, by_collectives, meant, node_count

    if chosen.movement == "two-level" and node_count(machine, problem.p) > 1:
        from umm.plans.multiply.two_level import two_level

        return two_level(problem, machine, stationary, chosen)
    if chosen.movement in COLLECTIVES:
        movement = meant(machine, problem.p, chosen.movement)
        moved = by_collectives(
            problem, machine, stationary, movement, chosen.to_dict() | {"movement": movement}
        )
        if moved is not None:
            return moved
    if chosen.movement == PANELS and chosen.final in (COMPLETE, *COMPLETING):
        from umm.executor import offered_name

        named = {**chosen.to_dict(), LAYOUTS: problem.layout_words}
        return cast(Schedule, offered_name("scalapack").panels(problem, machine, stationary, named))
    return find_policy(chosen.policy).lower(problem, machine, stationary, chosen)


@lru_cache(maxsize=256, typed=True)
def _chosen(**options: Any) -> Options:
    check_names(known(), options, "a schedule")
    return Options(**options)

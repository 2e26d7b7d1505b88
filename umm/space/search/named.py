"""What the layouts that a program has by name take, beside the best ones."""

from typing import NamedTuple

from umm.errors import InputError
from umm.space.assignments import Place
from umm.space.pricing.assignments import AssignmentPricer
from umm.space.search.descent import one_by_one
from umm.space.search.incumbents import Incumbents

ONE_BY_ONE = "multiply by multiply"


class Named(NamedTuple):
    """What layouts with a name take.

    Attributes:
        makespans: Makespan of each by name, in seconds, and of the assignment that is chosen multiply by
            multiply; None where it does not fit.
        left_out: Of those for which there was no time a lower bound of the makespan, in seconds.
    """

    makespans: dict[str, float | None]
    left_out: dict[str, float]


def named_layouts(found: Incumbents) -> Named:
    """Return what the program's own layouts take; those of the space join the best if they are among them."""
    pricer = found.pricer
    if not isinstance(pricer, AssignmentPricer):
        return Named({}, {})
    points, tables = pricer.points, pricer.tables
    own: dict[str, Place | None] = {name: points.place(x) for name, x in points.outline.layouts.items()}
    own[ONE_BY_ONE] = one_by_one(tables, found.limit)
    named = Named({}, {})
    for name, place in own.items():
        if place is None:
            named.makespans[name] = _outside(pricer, name, found.limit)
        elif place in pricer.choices or found.effort.affords(pricer.actions(place)):
            choice = found.attempt(place, tables.bound(place))
            named.makespans[name] = choice.makespan_s if choice else None
        else:
            named.left_out[name] = tables.bound(place)
    return named


def _outside(pricer: AssignmentPricer, name: str, limit: int) -> float | None:
    """Return the makespan of layouts that are not of the space; None if they cannot be or do not fit."""
    try:
        return pricer.laid_out(pricer.points.outline.layouts[name], limit)
    except InputError:
        return None

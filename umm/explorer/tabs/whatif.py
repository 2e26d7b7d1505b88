"""What if: one number of the machine turned up and down, for this point and for those on the front."""

from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.algorithms.scheduling import schedule
from umm.arrays import Floats
from umm.executor import executor
from umm.explorer.point import Point
from umm.explorer.tabs.leaderboard import how
from umm.explorer.view import Shown, Tab, View, bar
from umm.figures.what_if import turned
from umm.machines import Machine
from umm.program import Chain
from umm.program.problem import Problem
from umm.space.what_if.changed_machines import Knob, changed, knobs

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
RIVALS = 4
MOST_ACTIONS = 20_000  # of all schedules of a chain together, each of which is simulated for every factor


def show(view: View) -> Shown:
    """Return the times of this point and of the front's over the chosen number."""
    point = view.point
    assert point
    found = {f"{knob.name} {knob.at(1.0)}": knob for knob in knobs_of(point)}
    what = view.state.what if view.state.what in found else next(iter(found))
    knob, left = found[what], MOST_ACTIONS // len(FACTORS) - len(point.trace.schedule)
    if view.state.chain and left < 0:
        refusal = (
            f"A schedule of {len(point.trace.schedule):,} actions takes too long to simulate for every "
            "factor; use umm what-if."
        )
        return {"turned.figure": {}, "whatif-words.children": refusal, "whatif-data.children": None} | {
            "what.options": list(found),
            "what.value": what,
        }
    times = {"this point": times_of(point.machine, knob, point.program, _frozen(point.way))}
    for choice in view.priced.front[: -RIVALS - 1 : -1]:
        if view.state.chain:
            left -= choice.actions
            if left < 0 or not (name := view.unlike(choice)):
                continue
            way: dict[str, Any] = {"stationary": choice.stationary}
        else:
            name = f"{' '.join(map(str, choice.problem.layouts))}, {how(choice)}"
            way = {"stationary": choice.stationary, **choice.options.to_dict()}
        times[name] = times_of(point.machine, knob, choice.program, _frozen(way))
    factors = factors_of(knob)
    words = [knob.at(factor) for factor in factors]
    columns = {"factor": factors, knob.name: words} | {f"{name}_s": list(x) for name, x in times.items()}

    def frame() -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(columns)

    return {
        "turned.figure": view.drawn(turned, knob.name, factors, words, times),
        "whatif-words.children": said(knob, times),
        "what.options": list(found),
        "what.value": what,
        "whatif-data.children": view.table(frame),
    }


def knobs_of(point: Point) -> list[Knob]:
    """Return the numbers that can be turned."""
    return knobs(point.machine, point.program.p, point.program.tensors[0].dtype)


def _frozen(way: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Return keyword arguments that a cache can hold."""
    return tuple(
        (x, tuple(value.items()) if isinstance(value, Mapping) else value) for x, value in way.items()
    )


@lru_cache(maxsize=512)
def times_of(
    machine: Machine, knob: Knob, program: Problem | Chain, way: tuple[tuple[str, Any], ...]
) -> Floats:
    """Return the makespan of a program, scheduled in some way, at each factor of a number."""
    makespan = executor("sim").makespan
    how: dict[str, Any] = {name: dict(value) if isinstance(value, tuple) else value for name, value in way}
    machines = (changed(machine, knob, factor) for factor in factors_of(knob))
    return np.array([makespan(schedule(program, there, **how)) for there in machines])


def factors_of(knob: Knob) -> list[float]:
    """Return what a number is multiplied by: a share is never more than the whole."""
    return [factor for factor in FACTORS if factor <= knob.most]


def said(knob: Knob, times: dict[str, Floats]) -> str:
    """Return where another point becomes the fastest, in a sentence.

    >>> times = {"this point": np.arange(7, 0, -1.0), "row col col, A": np.full(7, 3.5)}
    >>> said(Knob("peak.float32", ("1 Tflop/s",)), times)
    'This point is the fastest of these from 1.5 Tflop/s (x1.5) up; below, row col col, A is.'
    """
    names, factors = list(times), factors_of(knob)
    fastest = np.argmin(
        np.stack(list(times.values())) - 1e-12 * (np.arange(len(names)) == 0)[:, None], axis=0
    )
    if (fastest == fastest[0]).all():
        who = "This point" if fastest[0] == 0 else names[int(fastest[0])]
        return f"{who} is the fastest of these at every {knob.name} from x{factors[0]:g} to x{factors[-1]:g}."
    flips = np.flatnonzero(fastest[1:] != fastest[:-1]) + 1
    first, at = int(fastest[0]), int(flips[0])
    after, where = int(fastest[at]), f"{knob.at(factors[at])} (x{factors[at]:g})"
    if after == 0:
        return f"This point is the fastest of these from {where} up; below, {names[first]} is."
    who = "this point" if first == 0 else names[first]
    return f"From {where} up {names[after]} is the fastest of these; below, {who} is."


def controls() -> list[Any]:
    """Return the choice of a number."""
    from dash import dcc, html

    choice = dcc.Dropdown([], id="what", clearable=False, searchable=False)
    return [
        bar(html.Label("Number", htmlFor="what"), choice),
        html.P(id="whatif-words", className="said", **{"aria-live": "polite"}),
    ]


TAB = Tab(
    "whatif",
    "What if",
    "One machine number from a quarter to four times its value: how this point and the fastest on the front "
    "of time against memory change, and where another becomes the fastest.",
    ("turned",),
    show,
    controls,
    prices=True,
    traces=True,
    others=("whatif-words.children", "what.options", "what.value"),
)

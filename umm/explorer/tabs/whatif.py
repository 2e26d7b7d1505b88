"""What if: one number of the machine turned up and down, for this point and for those on the front."""

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.algorithms.scheduling import schedule
from umm.arrays import Floats
from umm.executor import executor
from umm.explorer.point import how_of
from umm.explorer.tabs.leaderboard import how
from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.what_if import turned
from umm.machines import Machine
from umm.program.problem import Problem
from umm.space.what_if.changed_machines import Knob, changed, knobs

if TYPE_CHECKING:
    import pandas as pd

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
RIVALS = 4


def show(view: View) -> Shown:
    """Return the times of this point and of the front's over the chosen number."""
    point = view.point
    assert point
    known = {f"{knob.name} {knob.at(1.0)}": knob for knob in knobs_of(view)}
    what = view.state.what if view.state.what in known else next(iter(known))
    knob = known[what]
    times = {"this point": times_of(point.machine, knob, point.problem, tuple(how_of(view.state).items()))}
    for choice in view.priced.front[: -RIVALS - 1 : -1]:
        layouts = " ".join(str(layout) for layout in choice.problem.layouts)
        way = ("stationary", choice.stationary), *choice.options.to_dict().items()
        times[f"{layouts}, {how(choice)}"] = times_of(point.machine, knob, choice.problem, way)
    factors = factors_of(knob)
    words = [knob.at(factor) for factor in factors]
    columns = {"factor": factors, knob.name: words} | {f"{name}_s": list(x) for name, x in times.items()}

    def frame() -> "pd.DataFrame":
        import pandas as pd

        return pd.DataFrame(columns)

    return {
        "turned.figure": view.drawn(turned, knob.name, factors, words, times),
        "whatif-words.children": said(knob, times),
        "what.options": list(known),
        "what.value": what,
        "whatif-data.children": view.table(frame),
    }


def knobs_of(view: View) -> list[Knob]:
    """Return the numbers that can be turned."""
    assert view.point
    return knobs(view.point.machine, view.point.problem.p, view.state.dtype)


@lru_cache(maxsize=512)
def times_of(machine: Machine, knob: Knob, problem: Problem, how: tuple[tuple[str, Any], ...]) -> Floats:
    """Return the makespan of a problem, scheduled in some way, at each factor of a number."""
    makespan = executor("sim").makespan
    machines = (changed(machine, knob, factor) for factor in factors_of(knob))
    return np.array([makespan(schedule(problem, there, **dict(how))) for there in machines])


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

    return [
        html.Div(
            [
                html.Label("Number", htmlFor="what"),
                dcc.Dropdown([], id="what", clearable=False, searchable=False),
            ],
            className="bar",
        ),
        html.P(id="whatif-words", className="said", **{"aria-live": "polite"}),
    ]


TAB = Tab(
    "whatif",
    "What if",
    "One number of the machine, a quarter to four times what it is: how this point and the fastest on the "
    "front of time against memory change, and where another becomes the fastest.",
    ("turned",),
    show,
    controls,
    prices=True,
    others=("whatif-words.children", "what.options", "what.value"),
)

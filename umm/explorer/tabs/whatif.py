"""One number of the machine turned up and down, or more nodes and ranks than there are."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from dash import html

from umm.algorithms.scheduling import schedule
from umm.arrays import Floats
from umm.errors import InputError
from umm.executor import executor
from umm.explorer.savings import counts_of, over_of
from umm.explorer.state import OVER
from umm.explorer.tabs.leaderboard import how
from umm.explorer.view import Shown, Tab, View, bar, blank, choice, pills, table, text_input, words_of
from umm.figures.what_if import efficiency_figure, scaling_figure, turned
from umm.machines import Machine
from umm.program import Chain
from umm.program.problem import Problem
from umm.space.scaling import Scaling
from umm.space.vary import Knob, knobs

FACTORS = (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
RIVALS = 4
MOST_ACTIONS = 20_000  # of all schedules of a chain together, each of which is simulated for every factor


def show(view: View) -> Shown:
    """Return the times of this point and of the front's over the chosen number."""
    point = view.point
    assert point
    machine, dtype = point.machine, point.program.tensors[0].dtype
    turnable = {f"{knob.name} {knob.at(1.0)}": knob for knob in knobs(machine, point.program.p, dtype)}
    what = view.state.what if view.state.what in turnable else next(iter(turnable))
    knob, left = turnable[what], MOST_ACTIONS // len(FACTORS) - len(point.trace.schedule)
    if view.state.chain and left < 0:
        refusal = (
            f"A schedule of {len(point.trace.schedule):,} actions takes too long to simulate for every "
            "factor; use umm what-if."
        )
        return {"turned.figure": {}, "whatif-words.children": refusal, "whatif-data.children": None} | {
            "what.options": list(turnable),
            "what.value": what,
        }
    times = {"this point": times_of(machine, knob, point.program, _frozen(point.way))}
    for rival in view.priced.front[: -RIVALS - 1 : -1]:
        if view.state.chain:
            left -= rival.actions
            if left < 0 or not (name := view.unlike(rival)):
                continue
            way: dict[str, Any] = {"stationary": rival.stationary}
        else:
            name = f"{' '.join(map(str, rival.problem.layouts))}, {how(rival)}"
            way = {"stationary": rival.stationary, **rival.options.to_dict()}
        times[name] = times_of(machine, knob, rival.program, _frozen(way))
    factors = factors_of(knob)
    words = [knob.at(factor) for factor in factors]
    columns = {"factor": factors, knob.name: words} | {f"{name}_s": list(x) for name, x in times.items()}
    return {
        "turned.figure": view.drawn(turned, knob.name, factors, words, times),
        "whatif-words.children": said(knob, times),
        "what.options": list(turnable),
        "what.value": what,
        "whatif-data.children": view.table(lambda: columns),
    }


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
    changed = (knob.on(machine, factor) for factor in factors_of(knob))
    return np.array([makespan(schedule(program, one, **how)) for one in changed])


def factors_of(knob: Knob) -> list[float]:
    """Return the factors of a number: a share never exceeds 1."""
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


TAB = Tab(
    "whatif",
    "What if",
    "One machine number from a quarter to four times its value: how this point and the fastest on the front "
    "of time against memory change, and where another becomes the fastest.",
    ("turned",),
    show,
    [bar(html.Label("Number", htmlFor="what"), choice("what", [])), words_of("whatif-words")],
    prices=True,
    traces=True,
    others=("whatif-words.children", "what.options", "what.value"),
)


def show_scaling(view: View) -> Shown:
    """Return the best of each number of nodes or ranks as a table, and as curves once there are two."""
    assert view.case
    machine = view.case.machine
    over = over_of(view.state.over, machine)
    shown: Shown = blank(SCALING.outputs) | {"scaled.figure": {}, "efficient.figure": {}, "over.value": over}
    try:
        counts = counts_of(view.state.counts, over, machine)
    except InputError as error:
        return shown | {"scaling-words.children": str(error)}
    scaled = view.scaled
    assert scaled
    rows, waits = list(scaled.rows), ", ".join(map(str, counts[len(scaled.rows) + len(scaled.refused) :]))
    notes = [*scaled.refused, *([f"Waiting for {waits} {over}."] if waits else [])]
    if not rows:
        return shown | {"scaling-words.children": " ".join([*notes, scaled.failed])}
    name = machine.name if over == "ranks" else machine.name.partition(" nodes=")[0]
    words = "one multiply" if not view.state.chain else view.state.chain
    scaling = Scaling(name, words, rows, price=view.state.price or None)
    if len(rows) > 1:
        shown["scaled.figure"] = view.drawn(scaling_figure, scaling)
        shown["efficient.figure"] = view.drawn(efficiency_figure, scaling)
    heads, *lines = scaling.in_words()
    grid = [
        html.Tr([html.Th(first, scope="row"), *map(html.Td, rest), html.Td(best, className="layout")])
        for first, *rest, best in lines
    ]
    more = {"role": "region", "aria-label": "scaling"}
    return shown | {
        "scaling-words.children": " ".join([scaling.verdict, *notes]),
        "scaling-table.children": html.Div(
            table(heads, grid, "compared"), className="scroll", tabIndex=0, **more
        ),
        "scaling-data.children": view.table(scaling.records),
    }


SCALING = Tab(
    "scaling",
    "Scaling",
    "How many nodes or ranks to use: the best layouts of each number, with speed-up and efficiency over the "
    "first, and device time. Each number is searched by itself.",
    ("scaled", "efficient"),
    show_scaling,
    [
        bar(
            html.Span("Compare numbers of", id="over-label"),
            pills("over", OVER),
            html.Label("numbers", htmlFor="counts"),
            text_input("counts", "1,2,4,8", "short"),
            html.Label("$ per device and hour", htmlFor="price"),
            text_input("price", "none", "short"),
        ),
        words_of("scaling-words"),
        html.Div(id="scaling-table"),
    ],
    prices=True,
    others=("scaling-words.children", "scaling-table.children", "over.value"),
)

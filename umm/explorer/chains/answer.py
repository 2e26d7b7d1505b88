"""Everything the page of a chain shows for a state, by ``id.property``."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dash import html

from umm.explorer.answer import FACTS, STRIP, cancelled_words, facts
from umm.explorer.chains.files import Texts
from umm.explorer.chains.found import FoundBest, trace_of
from umm.explorer.chains.layout import GRAPHS
from umm.explorer.chains.state import SIZES, ChainState, as_command, as_python, as_text
from umm.explorer.point import Files, tried
from umm.explorer.tables import table
from umm.explorer.view import Shown, numbers
from umm.figures.breakdown import beside
from umm.figures.lanes import RANKS, lane_table, timeline
from umm.figures.style import parts_of, themed
from umm.machines import machine_names
from umm.program.presets import PRESETS
from umm.space import Choice
from umm.space.what_if.advice import Beside
from umm.traces.verdict import percent
from umm.units import format_bytes, format_seconds, range_in_words

PLAIN = (
    "chain", "dtype", "given", "machine", "ranks", "memory", "choices", "stationary", "rank",
)  # fmt: skip
TEXTS = (*SIZES, "backward", "dropout", "optimizer")
CONTROLS = [
    f"{name}.value"
    for name in ("chain", "dtype", "machine", "ranks", "stationary", "rank", "backward", "data")
]
"""What tells of a choice by Dash; the browser itself hears of what is typed."""
ASKED = (*SIZES, "dtype", "backward", "dropout")
FOUND = [
    "verdict.children", *FACTS, *STRIP, "leaders.children", "row-title.children", "layouts.children",
    "moved.children", "as-python.children", "as-row.children", "found.hidden",
    *(f"{graph}.{what}" for graph in GRAPHS for what in ("figure", "style")),
    *(f"{graph}-data.children" for graph in GRAPHS),
]  # fmt: skip
CANCELLED = "The search was cancelled; change a control to search again."
HEADINGS = ("", "makespan", "range", "of peak", "memory", "layouts")


@dataclass(frozen=True, eq=False)
class ChainView:
    """What the page is given to show.

    Attributes:
        state: What is chosen.
        found: What is known of its answer; None where it has none.
        mistakes: A line for each thing that does not fit together.
        dark: Whether the page is dark.
        cancelled: Whether the viewer wants no more of the search.
    """

    state: ChainState
    found: FoundBest | None
    mistakes: list[str]
    dark: bool = False
    cancelled: bool = False

    @property
    def chosen(self) -> Choice | None:
        """The row that is looked at; None before there is one."""
        top = self.found.top if self.found else []
        return top[self.state.row - 1] if self.state.row <= len(top) else None


def control_values(state: ChainState) -> Shown:
    """Return what the controls show for a state."""
    shown: Shown = {f"{name}.value": getattr(state, name) for name in PLAIN}
    shown |= {f"{name}.value": as_text(getattr(state, name)) for name in TEXTS}
    return shown | {"data.value": ["1"] if state.data else []}


def words(view: ChainView, files: Files, texts: Texts) -> Shown:
    """Return what does not wait for the search."""
    state = view.state
    return {
        "chain.options": [*PRESETS, *texts],
        "models.hidden": state.of_file,
        "machine.options": [*machine_names(), *(name for name in files if name not in machine_names())],
        "mistakes.children": [html.P(line) for line in view.mistakes],
        "as-command.children": as_command(state),
        **{f"{name}-field.hidden": name not in state.own for name in ASKED},
    }


def progress(view: ChainView) -> Shown:
    """Return the status line, what is known in a word, and whether the search can be cancelled."""
    found = view.found
    if found is None:
        return {"status.children": "", "status.title": "", "cancel.hidden": True}
    said = "" if found.refusal else found.words
    return {
        "status.children": cancelled_words(said) if view.cancelled else said,
        "status.title": stage(found),
        "cancel.hidden": found.over or view.cancelled,
    }


def stage(found: FoundBest) -> str:
    """Return what is known by now, in a word."""
    if found.refusal or found.failed:
        return "refused"
    return "sure" if found.ranges or found.done else "found" if found.top else ""


def found_shown(view: ChainView) -> Shown:
    """Return the verdict and all that the search has found, by now."""
    shown: Shown = dict.fromkeys(FOUND)
    for graph in GRAPHS:
        shown |= {f"{graph}.figure": {}, f"{graph}.style": {"display": "none"}}
    found, choice = view.found, view.chosen
    if found is None or choice is None:
        said = "No answer yet: see below what does not fit together."
        if found is not None and found.top:
            said = f"No answer: there is no row {view.state.row}; the search ranks {len(found.top)}."
        elif found is not None and (found.refusal or found.failed):
            said = f"No answer: {found.refusal or found.failed}."
        elif found is not None:
            said = CANCELLED if view.cancelled else "The best layouts are being looked for."
        return shown | {
            "verdict.children": said,
            **facts(None),
            "found.hidden": True,
            "as-python.children": as_python(view.state, found.ranks) if found else "",
        }
    trace, problem = tried(lambda: trace_of(choice, found.machine))
    ends = found.ranges[view.state.row - 1] if view.state.row <= len(found.ranges) else None
    others = {"best": found.top[0].makespan_s}
    others |= {name: seconds for name, seconds in found.named.items() if seconds is not None}
    shown |= {
        "verdict.children": " ".join([_sentence(view, choice, ends), trace.verdict if trace else ""]).strip(),
        **facts(trace, Beside(ends).within(trace) if trace else ""),
        "found.hidden": False,
        "leaders.children": _leaders(view, found),
        "row-title.children": f"Row {view.state.row}: where its tensors lie, and its schedule",
        "layouts.children": _layouts(choice),
        "moved.children": [*_named(found), *(_moved(found) if view.state.row == 1 else [])],
        "as-python.children": as_python(view.state, found.ranks, choice.layouts, _stays(choice)),
        "as-row.children": as_command(view.state, choice.layouts),
        "others.figure": parts_of(beside)("The best beside the layouts of others", others, "best"),
    }
    if trace is not None:
        zoomed = 0 <= view.state.rank < found.ranks
        shown["lanes.figure"] = parts_of(timeline)(trace, [view.state.rank] if zoomed else RANKS)
    else:
        shown["lanes-data.children"] = html.P(
            f"Row {view.state.row} is not drawn: {problem}.", className="empty"
        )
    if view.state.data:
        import pandas as pd

        frame = pd.DataFrame({"layouts": list(others), "makespan_s": list(others.values())})
        shown["others-data.children"] = numbers(frame)
        if trace is not None:
            shown["lanes-data.children"] = numbers(lane_table(trace))
    for graph in GRAPHS:
        drawn = themed(shown[f"{graph}.figure"], view.dark)
        height = drawn.get("layout", {}).get("height")
        shown[f"{graph}.figure"] = drawn
        shown[f"{graph}.style"] = {"height": f"{height}px"} if height else {"display": "none"}
    return shown


def _sentence(view: ChainView, choice: Choice, ends: tuple[float, float] | None) -> str:
    """Return how long it takes, with its range, how much it needs, and beside what it is the best."""
    assert view.found
    seconds = format_seconds(choice.makespan_s)
    within = f" ({range_in_words(choice.makespan_s, ends)})" if ends and ends[0] < ends[1] else ""
    best = view.found.top[0].makespan_s
    place = view.found.sure if choice is view.found.top[0] else f"{choice.makespan_s / best:.2f}x the best"
    return (
        f"{seconds}{within}, {percent(choice.fraction_of_peak)} of peak, {format_bytes(choice.memory_bytes)} "
        f"per rank; {place}."
    )


def _leaders(view: ChainView, found: FoundBest) -> Any:
    rows = [_row(view, found, place) for place in range(1, len(found.top) + 1)]
    leaders = table(HEADINGS, rows, "leaders rows")
    if len(found.tied) < 2:
        return leaders
    tied = ", ".join(map(str, found.tied))
    return [leaders, html.P(f"{tied} tie: the ranges of the machine's numbers do not tell them apart.")]


def _row(view: ChainView, found: FoundBest, place: int) -> Any:
    choice, best = found.top[place - 1], found.top[0]
    changed = ", ".join(
        f"{names[0]} {choice.layouts[names[0]]}"
        for names in found.groups
        if choice.layouts[names[0]] != best.layouts[names[0]]
    )
    said = changed or "the best"
    there = replace(view.state, row=place).query or "?"
    button = html.Button(
        str(place), id={"pick": there}, className="pick", **{"aria-label": f"Take number {place}: {said}"}
    )
    ends = found.ranges[place - 1] if place <= len(found.ranges) else None
    cells = [
        html.Td(button),
        html.Td(format_seconds(choice.makespan_s)),
        html.Td(range_in_words(choice.makespan_s, ends) if ends else "", className="soft"),
        html.Td(percent(choice.fraction_of_peak)),
        html.Td(format_bytes(choice.memory_bytes)),
        html.Td(said, className="layout"),
    ]
    return html.Tr(cells, className="chosen" if place == view.state.row else "")


def _layouts(choice: Choice) -> Any:
    """Return each layout with the tensors that have it, and their sizes."""
    alike: dict[str, list[str]] = {}
    for x in choice.program.tensors:
        alike.setdefault(str(x.layout), []).append(f"{x.name} {x.shape[0]}×{x.shape[1]}")
    rows = [
        html.Tr([html.Th(layout, scope="row"), html.Td(", ".join(names))]) for layout, names in alike.items()
    ]
    return table(("layout", "tensors"), rows, "tensors")


def _named(found: FoundBest) -> list[Any]:
    """Return a line for those layouts by name that have no bar."""
    lines = [f"{name} does not fit." for name, seconds in found.named.items() if seconds is None]
    lines += [
        f"{name} was not simulated in time; it takes at least {format_seconds(seconds)}."
        for name, seconds in found.left_out.items()
    ]
    return [html.P(line, className="hint") for line in lines]


def _moved(found: FoundBest) -> list[Any]:
    """Return what each statement of the best moves to a rank."""
    if not found.moved:
        return [html.P("No statement moves anything between ranks.", className="hint")]
    parts = (
        (statement, ", ".join(f"{format_bytes(count)} of {name}" for name, count in nbytes.items()))
        for statement, nbytes in found.moved
    )
    return [html.Ul([html.Li(f"{statement} moves to a rank {moved}") for statement, moved in parts])]


def _stays(choice: Choice) -> Mapping[str, str]:
    """Return the matrix that stays in place of each product."""
    assert isinstance(choice.stationary, Mapping)
    return choice.stationary

"""Everything the page shows for a state, by ``id.property``."""

from collections.abc import Mapping
from typing import Any

from dash import html

from umm.algorithms.universal.options import known
from umm.explorer.layout import FIGURES, PARTS, named
from umm.explorer.point import Files, point_of, tried
from umm.explorer.state import OPERANDS, SWITCHES, State, as_command, as_python, as_toml, read
from umm.explorer.tables import table
from umm.explorer.tabs import TABS
from umm.explorer.view import Shown, View
from umm.layouts.places import replication_factors
from umm.machines import machine_names
from umm.space.what_if.advice import Beside
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind
from umm.traces.verdict import percent
from umm.units import format_bytes, format_seconds

PLAIN = (
    "machine", "m", "n", "k", "dtype", "ranks", "a", "b", "c", "given", "stationary", "algorithm", "memory",
    "space", "tab",
)  # fmt: skip
TYPED = ("m", "n", "k", "a", "b", "c", "given", "memory")
LOOKS = ("across", "rank", "op")
CONTROLS = [
    *(
        f"{name}.value"
        for name in (*PLAIN, *LOOKS, *(x.name for x in known()), *SWITCHES)
        if name not in TYPED
    ),
    *(f"{x}-part.value" for x in OPERANDS),
]
"""What tells of a choice by Dash; the browser itself hears of sliders and of what is typed."""
FACTS = [f"fact-{named(name)}.children" for name in FIGURES]
STRIP = ["fact-range.children", "facts-strip.hidden"]


def control_values(state: State, divisors: list[int]) -> Shown:
    """Return what the controls show for a state."""
    shown: Shown = {f"{name}.value": getattr(state, name) for name in (*PLAIN, *LOOKS)}
    shown |= {f"{name}.value": str(getattr(state, name)) for name in "mnk"}
    for option in known():
        value = getattr(state.options, option.name)
        shown[f"{option.name}.value"] = option.typed(value) if isinstance(value, bool) else value
    shown |= {f"{name}.value": ["1"] if getattr(state, name) else [] for name in SWITCHES}
    factors = [0, *divisors]
    shown["fixed-index.value"] = factors.index(state.fixed) if state.fixed in factors else 0
    for x in OPERANDS:
        partition, _, replicated = getattr(state, x).partition("@")
        count = replicated.partition(":")[0] or "1"
        factor = int(count) if count.isdecimal() else 1
        shown[f"{x}-part.value"] = partition if partition in PARTS else None
        shown[f"{x}-index.value"] = divisors.index(factor) if factor in divisors else 0
    return shown


def words(state: State, view: View, mistakes: list[str], files: Files, usual: Mapping[str, str]) -> Shown:
    """Return everything but the controls, the tab in sight and the progress."""
    point = view.point
    ranks = point.problem.p if point else max(state.ranks, 1)
    divisors = replication_factors(ranks)
    shown: Shown = {
        "machine.options": [*machine_names(), *(name for name in files if name not in machine_names())],
        "fixed-index.max": len(divisors),
        "fixed-words.children": f"{state.across}@{state.fixed}" if state.fixed else "best of all",
        "facts.data": {"usual": dict(usual), "divisors": divisors, "fixed": [0, *divisors]},
        "mistakes.children": [html.P(line) for line in mistakes],
        "verdict.children": verdict(view)
        if point
        else "No answer yet: see below what does not fit together.",
        "assumed.children": assumed(view),
        **facts(point.trace if point else None, within(view)),
        "compare.children": compared(state, view, files) if point and state.pin else None,
        "pin.children": "Unpin" if state.pin else "Pin",
        "as-command.children": as_command(state),
        "as-python.children": as_python(state),
        "as-toml.children": as_toml(state),
    }
    for x in OPERANDS:
        replicated = getattr(state, x).partition("@")[2].partition(":")[0] or "1"
        shown |= {f"{x}-index.max": len(divisors) - 1, f"{x}-words.children": f"{replicated} of {ranks}"}
    return shown | {f"show-{name}.hidden": name != state.tab for name in TABS}


def verdict(view: View) -> str:
    """Return the sentence: whether it fits, what bounds it, and what the search has found to be better."""
    point = view.point
    assert point
    trace, advice = point.trace, view.advice
    said = Beside(advice=advice).verdict(trace)
    if view.priced.front and not advice:
        said += " Nothing that fits is 1 % faster."
    short = trace.memory_bytes - point.limit
    if short > 0:
        said = f"Does not fit: it needs {format_bytes(short)} more than a rank may have. {said}"
    return said


def assumed(view: View) -> str:
    """Return which assumed number decides, in the words of ``umm simulate``, once it is known."""
    decides = view.decides if view.point else None
    return str(decides.found or "") if decides else ""


def within(view: View) -> str:
    """Return the range of the makespan in words, once it is known."""
    ends = view.range
    return Beside(ends.found).within(view.point.trace) if view.point and ends else ""


def figures_of(trace: Trace) -> dict[str, tuple[str, float]]:
    """Return the figures of a prediction by their names: as text, and as numbers to compare."""
    moved = float(sum(bytes_by_kind(trace.schedule).values()))
    mean = trace.breakdown().mean
    exposed = float(mean["exposed_communication"])
    figures = (
        (format_seconds(trace.makespan_s), trace.makespan_s),
        (percent(trace.fraction_of_peak), trace.fraction_of_peak),
        (format_bytes(moved), moved),
        (format_seconds(exposed), exposed),
        (format_bytes(trace.memory_bytes), float(trace.memory_bytes)),
        (f"{len(trace.schedule):,}", float(len(trace.schedule))),
    )
    return dict(zip(FIGURES, figures, strict=True))


def facts(trace: Trace | None, within: str = "") -> Shown:
    """Return the strip of a prediction's figures, the makespan with its range once that is known."""
    if trace is None:
        return {"facts-strip.hidden": True}
    texts = (text for text, _ in figures_of(trace).values())
    return dict(zip(FACTS, texts, strict=True)) | {"fact-range.children": within, "facts-strip.hidden": False}


def compared(state: State, view: View, files: Files) -> Any:
    """Return the pinned point beside this one, with the difference of every figure."""
    assert view.point
    other, problem = tried(lambda: point_of(pinned(state), files))
    if other is None:
        return html.P(f"The pinned point has no answer here: {problem}", className="mistakes")
    here, there = figures_of(view.point.trace), figures_of(other.trace)
    rows = []
    for name, (text, number) in here.items():
        before, was = there[name]
        change = "the same" if number == was else f"{100 * (number / was - 1):+.1f} %" if was else "new"
        rows.append(html.Tr([html.Th(name, scope="row"), html.Td(before), html.Td(text), html.Td(change)]))
    names = _told_apart(other.state, state)
    headings = ("", f"pinned: {names[0]}", f"this: {names[1]}", "difference")
    return html.Div(table(headings, rows, "compared"), className="scroll")


def _told_apart(*states: State) -> list[str]:
    """Return what each state is called: its layouts, what stays, and those of its other choices that differ.

    >>> _told_apart(State(m=1024), State(m=4096, b="col@2"))
    ['2d 2d 2d, auto, m=1024', '2d col@2 2d, auto, m=4096']
    """
    names = ("machine", "m", "n", "k", "dtype", "ranks", "given", "algorithm")
    unlike = [x for x in names if len({getattr(state, x) for state in states}) > 1]
    return [
        ", ".join([f"{x.a} {x.b} {x.c}", x.stationary, *(f"{name}={getattr(x, name)}" for name in unlike)])
        for x in states
    ]


def pinned(state: State) -> State:
    """Return the pinned point's state."""
    return read(state.pin)[0]


def progress(view: View, cancelled: bool = False) -> Shown:
    """Return the status line, what is known in a word, and whether the search can be cancelled.

    Args:
        view: What is shown.
        cancelled: Whether the viewer wants no more of the search.
    """
    if view.point is None:
        return {"status.children": "", "status.title": "", "cancel.hidden": True}
    priced, growing, asked = view.priced, view.growing, view.question
    said = growing.words if growing and growing is asked else priced.words
    stage = priced.stage or priced.refusal
    return {
        "status.children": cancelled_words(said) if cancelled else said,
        "status.title": f"{stage}, m {growing.stage}" if growing and stage else stage,
        "cancel.hidden": asked.over or cancelled,
    }


def found(view: View) -> Shown:
    """Return what has been found behind the page and is shown on every tab."""
    return {
        "verdict.children": verdict(view),
        "fact-range.children": within(view),
        "assumed.children": assumed(view),
    }


def cancelled_words(status: str) -> str:
    """Return the line of the status after a search was cancelled."""
    return f"{status.rstrip('.')}; cancelled."


def tab_shown(view: View) -> Shown:
    """Return what the tab in sight shows; without an answer nothing changes in it."""
    if view.point is None:
        return {}
    return TABS[view.state.tab].shown(view)

"""The best points: ranked beside time against memory, and as lines through their layouts."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import pandas as pd
from dash import html

from umm.explorer.view import Shown, Tab, View, table
from umm.figures.links import beside
from umm.figures.pareto import pareto
from umm.figures.replication import parallel_coordinates
from umm.plans.multiply.options import known
from umm.space import Choice
from umm.units import format_bytes, format_seconds, percent, range_in_words, short_seconds

ROWS = 10
COLUMNS = 3  # groups of tensors that have a column each
MOST_AXES = 8  # groups of tensors that have an axis
MOVES = (
    "Assumes A, B and C start in the layouts shown; move is the extra time if they start, and C ends, in row."
)
FIGURES = ("makespan_s", "memory_bytes", "fraction_of_peak")


def show(view: View) -> Shown:
    """Return the best points as rows and all as marks; of a chain where its tensors lie, too."""
    priced, point = view.priced, view.point
    known = priced.points if view.state.chain or priced.stage != "top" else None
    front = [known.number_of(x) for x in priced.front] if known else []
    figure: Any = {}
    if priced.points:
        figure = view.drawn(
            pareto,
            priced.seconds,
            priced.memory,
            exact=priced.exact,
            front=np.array(front, dtype=np.int64),
            limit=priced.limit,
            here=point.here if point else None,
        )
    bars: Any = {}
    times = {name: x for name, x in priced.named.items() if x is not None} if priced.top else {}
    if times:
        times = {"best": priced.top[0].makespan_s} | times
        bars = view.drawn(beside, "The best and the named schemes", times, "best")
    return {
        "pareto.figure": figure,
        "others.figure": bars,
        "leaders.children": _table(view),
        "tensors.children": _tensors(view) if view.state.chain else None,
        "leaderboard-data.children": _data(view, times),
    }


def _data(view: View, times: Mapping[str, float]) -> Any:
    """Return the numbers of the best, and of a chain those beside the layouts of others."""
    best = view.table(lambda: top_frame(view))
    if best is None or not times:
        return best
    columns = {"layouts": list(times), "makespan_s": list(times.values())}
    return [*best, *view.table(lambda: columns)]


def top_frame(view: View) -> pd.DataFrame:
    """Return the best points as a frame: layouts, stationary, makespan_s, memory_bytes, fraction_of_peak."""
    rows = []
    for choice in view.priced.top:
        layouts, way = dict(choice.layouts), {}
        if not view.state.chain:
            layouts, way = {x.lower(): text for x, text in layouts.items()}, {"stationary": how(choice)}
        rows.append(layouts | way | {x: getattr(choice, x) for x in FIGURES})
    return pd.DataFrame(rows)


def how(choice: Choice) -> str:
    """Return the stationary matrix and the options that are not the default: ``B slice``, ``any``."""
    words_of = choice.how
    stays = "any" if "," in words_of["stationary"] else words_of["stationary"]
    unlike = (x.name for x in known() if getattr(choice.options, x.name) != x.default)
    return " ".join([stays, *(words_of[name] for name in unlike if "," not in words_of[name])])


def differing(view: View, one: Choice, others: Sequence[Choice]) -> list[str]:
    """Return the first tensor of each group that others lay out differently from one."""
    assert view.priced.points
    names = [group[0] for group in view.priced.points.tensors]
    return [x for x in names if any(other.layouts[x] != one.layouts[x] for other in others)]


def _table(view: View) -> Any:
    priced = view.priced
    if not priced.top or priced.points is None:
        words = priced.words if priced.refusal or priced.failed else "Searching…"
        # The makespans of a chain's own layouts, while its search goes on.
        named = priced.named.items()
        texts = ((name, "does not fit" if x is None else format_seconds(x)) for name, x in named)
        rows = [html.Tr([html.Th(name, scope="row"), html.Td(text)]) for name, text in texts]
        grid = table(("known layouts", "makespan"), rows, "tensors")
        return [html.P(words, className="empty"), *([grid] if rows else [])]
    groups = [group[0] for group in priced.points.tensors]
    columns = groups if len(groups) <= COLUMNS else []
    ranked = enumerate(priced.top[:ROWS], 1)
    rows = [_row(view, [*alike], columns) for _, alike in groupby(ranked, key=lambda x: _numbers(view, *x))]
    headings = ["", *columns, *(["stationary"] if not view.state.chain else []), "makespan", "range"]
    headings += [*(["move"] if priced.moves else []), "of peak", "memory"]
    headings += [] if columns else ["layouts"]
    given = view.state.given
    moves = f"move: the time to move {given}, part of the makespan." if given else MOVES
    notes = [priced.ties, moves if priced.moves else ""]
    return [
        table(headings, rows, "leaders" if columns else "leaders rows"),
        *(html.P(note, className="hint") for note in notes if note),
    ]


def _numbers(view: View, place: int, choice: Choice) -> list[str]:
    """Return the numbers of a row as texts."""
    priced, seconds = view.priced, choice.makespan_s
    ends = priced.ranges[place - 1] if place <= len(priced.ranges) else None
    moves = [short_seconds(priced.moves[place - 1])] if place <= len(priced.moves) else []
    return [
        format_seconds(seconds),
        range_in_words(seconds, ends) if ends else "",
        *(moves or [""] * bool(priced.moves)),
        percent(choice.fraction_of_peak),
        format_bytes(choice.memory_bytes),
    ]


def _row(view: View, group: list[tuple[int, Choice]], columns: Sequence[str]) -> Any:
    """Return a row of the ranking: points with equal numbers, each with a button that takes it."""
    (place, choice), chain = group[0], bool(view.state.chain)
    buttons = [_button(view, *x) for x in group]
    layouts = [html.Td(choice.layouts[x], className="layout") for x in columns]
    words = _numbers(view, place, choice)
    looks = ["", "soft", *("soft" for _ in words[4:]), "", ""]
    cells = [html.Td(word, className=look) for word, look in zip(words, looks, strict=True)]
    if not chain:
        ties = f"{len(choice.ties) + 1} points of the space are this schedule" if choice.ties else ""
        more = f"; {len(group) - 1} more as fast" if len(group) > 1 else ""
        cells = [html.Td(how(choice) + more, className="layout", title=ties), *cells]
    if not columns:
        cells.append(html.Td(_said(view, [x for _, x in group]), className="layout wraps"))
    chosen = any(is_here(view, *x) for x in group)
    return html.Tr([html.Td(buttons), *layouts, *cells], className="chosen" if chosen else "")


def _button(view: View, place: int, choice: Choice) -> Any:
    state = view.state
    if state.chain:
        target = replace(state, layouts="", row=place, op=-1)
    else:
        target = state.at(choice.layouts, choice.kept, choice.options)
    description = f"{choice.words}, stationary {how(choice)}" if not state.chain else _said(view, [choice])
    label = f"Show number {place}: {description}"
    words = {"aria-label": label} | ({"aria-current": "true"} if is_here(view, place, choice) else {})
    return html.Button(str(place), id={"pick": target.link}, className="pick", **words)


def _said(view: View, alike: list[Choice]) -> str:
    """Return the differences of a chain's layouts from the best, and from each other."""
    best, first = view.priced.top[0], alike[0]
    words = ", ".join(f"{x} {first.layouts[x]}" for x in differing(view, best, alike[:1])) or "the best"
    if len(alike) > 1:
        words += f"; {len(alike) - 1} more by other layouts of {', '.join(differing(view, first, alike[1:]))}"
    return words


def is_here(view: View, place: int, choice: Choice) -> bool:
    """Return whether a row is the point that is looked at."""
    points = view.priced.points
    if view.state.waits:
        return place == view.state.row
    if points is None or view.selected is None:
        return False
    if view.state.chain:
        return view.selected == points.number_of(choice)
    layouts = dict(zip(choice.layouts, choice.problem.layouts, strict=True))
    ways = ((choice.kept, choice.options), *choice.ties)
    return view.selected in {points.number(layouts, x, options) for x, options in ways}


def _tensors(view: View) -> Any:
    """Return the layouts of a chain's tensors, and its search's results beside the best."""
    priced, point = view.priced, view.point
    parts: list[Any] = []
    if point is not None:
        which = f"Row {view.state.row}" if view.state.waits else "This point"
        alike: dict[str, list[str]] = {}
        for x in point.program.tensors:
            alike.setdefault(str(x.layout), []).append(f"{x.name} {x.shape[0]}×{x.shape[1]}")
        rows = [html.Tr([html.Th(text, scope="row"), html.Td(", ".join(x))]) for text, x in alike.items()]
        parts = [html.H2(f"{which}: layouts of its tensors"), table(("layout", "tensors"), rows, "tensors")]
    lines = [f"{name} does not fit." for name, seconds in priced.named.items() if seconds is None]
    lines += [
        f"{name} was not simulated; it takes at least {format_seconds(seconds)}."
        for name, seconds in priced.left_out.items()
    ]
    parts += [html.P(line, className="hint") for line in lines]
    if priced.top:
        moved = (
            (statement, ", ".join(f"{format_bytes(count)} of {name}" for name, count in nbytes.items()))
            for statement, nbytes in priced.moved
        )
        items = [html.Li(f"{statement} moves to a rank {what}") for statement, what in moved]
        parts.append(html.H2("What the best moves"))
        quiet = html.P("No statement moves anything between ranks.", className="hint")
        parts.append(html.Ul(items) if items else quiet)
    return parts


def lines(view: View) -> Shown:
    """Return a line for each of the best points."""
    best, points = view.priced.top, view.priced.points
    figure: Any = {}
    if best and points is not None:
        axes: dict[str, list[Any]] = {}
        groups = [group[0] for group in points.tensors]
        if view.state.chain:  # axes of what they differ in: an axis of one value says nothing
            groups = (differing(view, best[0], best) or groups)[:MOST_AXES]
        for name in groups:
            layouts = [choice.layouts[name] for choice in best]
            if view.state.chain:
                axes[name] = layouts
                continue
            axes[name] = [text.partition("@")[0] for text in layouts]
            axes[f"c_{name}"] = [choice.problem.layout(name).replicas for choice in best]
        if not view.state.chain:
            axes["stationary"] = [how(choice) for choice in best]
        axes["makespan"] = [choice.makespan_s for choice in best]
        axes["memory"] = [choice.memory_bytes for choice in best]
        words = {"makespan": format_seconds, "memory": format_bytes}
        numbers = [points.number_of(choice) for choice in best]
        figure = view.drawn(parallel_coordinates, axes, numbers, words=words, selected=view.selected)
    return {"lines.figure": figure, "coordinates-data.children": view.table(lambda: top_frame(view))}


LEADERBOARD = Tab(
    "leaderboard",
    "Leaderboard",
    "The best layouts, and every other point as a mark of its time against its memory. Click a row's number "
    "or a mark to show it.",
    ("pareto", "others"),
    show,
    [html.Div(id="leaders", className="scroll")],
    [html.Div(id="tensors", className="scroll")],
    clicks=("pareto",),
    prices=True,
    others=("leaders.children", "tensors.children"),
)
COORDINATES = Tab(
    "coordinates",
    "Coordinates",
    "The best points as lines through their layouts, replication factors (c_A: of A), time and memory; "
    "of a chain an axis is a tensor (W: a weight, d: a gradient), with those laid out alike. The ten fastest "
    "are dark. Click a line to show its point.",
    ("lines",),
    lines,
    clicks=("lines",),
    prices=True,
)

"""What a choice does: controls change the URL in the browser, and the URL changes the page."""

import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update
from dash.exceptions import PreventUpdate

from umm.errors import UmmError
from umm.explorer import answer
from umm.explorer.background import Behind
from umm.explorer.point import point_of, tried
from umm.explorer.state import read, usual_values
from umm.explorer.tabs import TABS
from umm.explorer.tabs.leaderboard import top_frame
from umm.explorer.uploads import Dropped, content_of, topology, trace_or_store
from umm.explorer.view import Shown, View
from umm.explorer.wiring import Answer, Asked, register_answers
from umm.figures.report import write_html
from umm.traces.trace import Trace

CHANGED = [*answer.CONTROLS, "what.value", "pin.n_clicks"]
SOON = 0.25  # seconds that a tab of priced points waits for their bounds
LATER = 1.0  # seconds that the page waits for them once all else is shown


def viewed(asked: Asked, dropped: Dropped, behind: Behind) -> tuple[View, list[str]]:
    """Return what the page is given to show, and a line for each thing that does not fit together."""
    state, mistakes = read(asked.query)
    point, problem = tried(lambda: point_of(state, asked.files))
    held = dropped.get(asked.dropped)
    measured = held if isinstance(held, Trace) else None
    rows = None if held is None or measured else held
    return View(state, point, behind, asked.theme == "dark", measured, rows), [
        *mistakes,
        *filter(None, [problem]),
    ]


def answered(asked: Asked, dropped: Dropped, behind: Behind) -> Answer:
    """Return what the page shows: all of it at first, then what has been found behind it."""
    view, mistakes = viewed(asked, dropped, behind)
    first, prices = asked.stage is None, TABS[view.state.tab].prices
    shown: Shown = {}
    if first:
        shown = answer.words(view.state, view, mistakes, asked.files, usual_values())
        shown |= answer.control_values(view.state, shown["facts.data"]["divisors"])
    if view.point is None:
        return Answer(shown | answer.progress(view), over=True)
    if asked.cancels:
        behind.cancel(asked.viewer)
    question, sure = view.question, f"{asked.viewer} sure"
    if first:
        behind.leave(sure, view.range)
        behind.leave(asked.viewer, question)
    if first and prices:
        view.priced.price()
    draws = first and bool(not prices or view.priced.stage)
    if not draws:  # a processor is left to the browser while it draws
        behind.want(asked.viewer, question)
    if prices and not draws:
        view.priced.heard.wait(SOON if first else LATER)
    cancelled = behind.has_cancelled(asked.viewer, question)
    shown |= answer.progress(view, cancelled)
    if first or (prices and shown["status.title"] != asked.stage):
        shown |= answer.tab_shown(view)
    if not first:
        shown |= answer.found(view)
        waits = next((x for x in (view.range, view.decides) if x and not x.over), None)
        if waits:
            behind.want(sure, waits)
    over = bool(shown["cancel.hidden"]) and view.is_sure
    return Answer(shown, over, soon=prices and not over and (draws or not shown["status.title"]))


def register(app: Dash, dropped: Dropped, behind: Behind) -> None:
    """Give an app its callbacks."""
    register_answers(app, "/", CHANGED, "dropped", str, partial(answered, dropped=dropped, behind=behind))
    app.clientside_callback(
        ClientsideFunction("umm", "png"),
        Output("to-png", "title"),
        Input("to-png", "n_clicks"),
        prevent_initial_call=True,
    )

    clicked = [graph for tab in TABS.values() for graph in tab.clicks]

    @app.callback(
        Output("url", "search", allow_duplicate=True),
        *(Input(graph, "clickData") for graph in clicked),
        Input("lanes", "clickData"),
        State("url", "search"),
        State("files", "data"),
        prevent_initial_call=True,
    )
    def click(*told: Any) -> str:
        *_, query, files = told
        view, _mistakes = viewed(Asked(query or "", "", "light", files or {}, ""), dropped, behind)
        data = ctx.triggered[0]["value"] if ctx.triggered else None
        number = _number(data)
        if number is None or view.point is None:
            raise PreventUpdate
        if ctx.triggered_id == "lanes":
            return replace(view.state, op=number).query
        if not 0 <= number < len(view.priced.seconds):
            raise PreventUpdate
        return view.state.at(*view.priced.parts(number)).query

    @app.callback(
        Output("files", "data"),
        Output("drop-words", "children"),
        Output("url", "search", allow_duplicate=True),
        Input("drop-machine", "contents"),
        State("drop-machine", "filename"),
        State("files", "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def drop_machine(upload: str, filename: str, files: dict[str, str], query: str) -> tuple[Any, str, Any]:
        try:
            name, text = topology(filename or "", content_of(upload or ""))
        except UmmError as error:
            return no_update, str(error), no_update
        kept = {**dict(list((files or {}).items())[-3:]), name: text}
        return kept, f"{name} is read.", replace(read(query or "")[0], machine=name).query

    @app.callback(
        Output("dropped", "data"),
        Output("measured-words", "children", allow_duplicate=True),
        Input("drop-measured", "contents"),
        State("drop-measured", "filename"),
        prevent_initial_call=True,
    )
    def drop_measured(upload: str, filename: str) -> tuple[Any, Any]:
        try:
            content = content_of(upload or "")
            return dropped.keep(content, trace_or_store(filename or "file", content)), no_update
        except UmmError as error:
            return no_update, str(error)

    @app.callback(
        Output("download", "data"),
        Output("drop-words", "children", allow_duplicate=True),
        Input("to-csv", "n_clicks"),
        Input("to-html", "n_clicks"),
        Input("to-perfetto", "n_clicks"),
        State("url", "search"),
        State("files", "data"),
        prevent_initial_call=True,
    )
    def export(_csv: int, _html: int, _perfetto: int, query: str, files: dict[str, str]) -> tuple[Any, str]:
        view, mistakes = viewed(Asked(query or "", "", "light", files or {}, ""), dropped, behind)
        if view.point is None:
            return no_update, "; ".join(mistakes)
        try:
            return _exported(str(ctx.triggered_id), view), ""
        except UmmError as error:
            return no_update, str(error)


def _exported(what: str, view: View) -> Any:
    """Return a file to download."""
    assert view.point
    if what == "to-csv":
        text = top_frame(view).to_csv(index=False)
        return {"content": text, "filename": "points.csv", "type": "text/csv"}
    with tempfile.TemporaryDirectory(prefix="umm-export-") as folder:
        name = "point.html" if what == "to-html" else "point.pftrace"
        path = Path(folder) / name
        if what == "to-html":
            write_html(view.point.trace, path)
        else:
            view.point.trace.to_perfetto(path)
        return dcc.send_bytes(path.read_bytes(), name)


def _number(data: Any) -> int | None:
    """Return the number that a clicked mark has, None where it has none."""
    try:
        value = data["points"][0]["customdata"]
        return int(value[0] if isinstance(value, list) else value)
    except (KeyError, IndexError, TypeError, ValueError):
        return None

"""What a choice does: controls change the URL in the browser, and the URL changes the page."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update
from dash.exceptions import PreventUpdate

from umm.errors import UmmError
from umm.explorer import answer
from umm.explorer.behind import Behind
from umm.explorer.dropped import Dropped, content_of, topology, trace_or_store
from umm.explorer.point import point_of, tried
from umm.explorer.state import OPERANDS, read, usual_values
from umm.explorer.tabs import TABS
from umm.explorer.tabs.leaderboard import top_frame
from umm.explorer.view import Shown, View
from umm.explorer.wiring import anew, given, outputs, register_clock, register_theme, states
from umm.figures.report import write_html
from umm.traces.trace import Trace

TAB_OUTPUTS = [output for tab in TABS.values() for output in tab.outputs]
SHOWN = [*answer.CONTROLS, *answer.WORDS, *answer.PROGRESS, *TAB_OUTPUTS, "tick.interval"]
FILLED = [
    "verdict.children",
    "fact-range.children",
    "assumed.children",
    *answer.PROGRESS,
    *(x for tab in TABS.values() if tab.prices for x in tab.outputs),
]
ABOUT = ["url.search", "theme.data", "files.data", "dropped.data", "status.title"]
CHANGED = [*answer.CONTROLS, "what.value"]
# What the page tells of itself, to be sent again only where it changes: each costs the browser a millisecond.
TOLD = [
    *answer.CONTROLS,
    *(x for x in SHOWN if x not in FILLED and x.endswith((".style", ".hidden", ".max", ".options"))),
    *(f"{x}-words.children" for x in OPERANDS),
    *answer.FACTS,
    "assumed.children",
    "facts.data", "fixed-words.children", "mistakes.children", "compare.children", "pin.children",
]  # fmt: skip

SOON = 0.25  # seconds that a tab of priced points waits for their bounds


def register(app: Dash, dropped: Dropped, behind: Behind) -> None:
    """Give an app its callbacks."""

    def viewed(query: str | None, theme: str, files: dict[str, str], name: str) -> tuple[View, list[str]]:
        state, mistakes = read(query or "")
        point, problem = tried(lambda: point_of(state, files))
        held = dropped.get(name)
        measured = held if isinstance(held, Trace) else None
        rows = None if held is None or measured else held
        return View(state, point, behind, theme == "dark", measured, rows), [
            *mistakes,
            *filter(None, [problem]),
        ]

    def gone(view: View, viewer: str) -> bool:
        return view.point is not None and behind.has_cancelled(viewer, view.priced)

    app.clientside_callback(
        ClientsideFunction("umm", "change"),
        Output("url", "search"),
        *(Input(*name.split(".")) for name in CHANGED),
        Input({"preset": ALL}, "n_clicks"),
        Input({"pick": ALL}, "n_clicks"),
        Input("pin", "n_clicks"),
        State("facts", "data"),
        State("presets", "data"),
        prevent_initial_call=True,
    )
    register_theme(app)
    register_clock(app, FILLED, ABOUT)
    app.clientside_callback(
        ClientsideFunction("umm", "png"),
        Output("to-png", "title"),
        Input("to-png", "n_clicks"),
        prevent_initial_call=True,
    )

    @app.callback(
        outputs(SHOWN),
        Input("url", "search"),
        Input("theme", "data"),
        Input("files", "data"),
        Input("dropped", "data"),
        State("viewer", "data"),
        State("tick", "interval"),
        *states(TOLD),
    )
    def show(
        query: str, theme: str, files: dict[str, str], name: str, viewer: str, interval: int, *told: Any
    ) -> list[Any]:
        view, mistakes = viewed(query, theme, files or {}, name)
        shown = answer.words(view.state, view, mistakes, files or {}, usual_values())
        shown |= answer.control_values(view.state, shown["facts.data"]["divisors"])
        if view.point is not None:
            behind.want(viewer, view.priced)
            if TABS[view.state.tab].prices:
                view.priced.heard.wait(SOON)
        shown |= answer.tab_shown(view) | answer.progress(view, sure=False, cancelled=gone(view, viewer))
        shown["tick.interval"] = anew(interval)
        return given(SHOWN, _unlike(shown, dict(zip(TOLD, told, strict=True))))

    @app.callback(
        Output("filled", "data"),
        Input("asked", "data"),
        *states(ABOUT),
        State("viewer", "data"),
        prevent_initial_call=True,
    )
    def fill(
        number: int, query: str, theme: str, files: dict[str, str], name: str, before: str, viewer: str
    ) -> dict[str, Any]:
        view, _mistakes = viewed(query, theme, files or {}, name)
        shown: Shown = answer.progress(view, sure=True, cancelled=gone(view, viewer))
        if view.point is not None:
            behind.want(viewer, view.priced)
            shown["verdict.children"] = answer.verdict(view)
            shown["fact-range.children"] = answer.sure(view.point)
            shown["assumed.children"] = answer.assumed(view)
            if TABS[view.state.tab].prices and shown["status.title"] != before:
                shown |= TABS[view.state.tab].shown(view)
        return {"number": number, "shown": shown}

    @app.callback(
        Output("status", "children", allow_duplicate=True),
        Output("cancel", "hidden", allow_duplicate=True),
        Input("cancel", "n_clicks"),
        State("viewer", "data"),
        State("status", "children"),
        prevent_initial_call=True,
    )
    def cancel(_: int, viewer: str, status: str) -> tuple[str, bool]:
        behind.cancel(viewer)
        return answer.cancelled_words(status), True

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
        view, _mistakes = viewed(query, "light", files or {}, "")
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
        view, mistakes = viewed(query, "light", files or {}, "")
        if view.point is None:
            return no_update, "; ".join(mistakes)
        try:
            return _exported(str(ctx.triggered_id), view), ""
        except UmmError as error:
            return no_update, str(error)


def _unlike(shown: Shown, before: Shown) -> Shown:
    """Return what is not as before; a figure without data matters only where it takes another's place."""
    still = {name.replace(".style", ".figure") for name in before if before[name] == shown.get(name)}
    return {
        name: value
        for name, value in shown.items()
        if (name not in before or before[name] != value) and not (name in still and not value)
    }


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

"""The effects of choices: controls change the URL in the browser, and the URL changes the page."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, no_update
from dash.exceptions import PreventUpdate

from umm.errors import UmmError
from umm.explorer import answer
from umm.explorer.background import Behind
from umm.explorer.point import Files, Machines, case_of, outline_of, tried
from umm.explorer.state import read, usual_values
from umm.explorer.tabs import TABS
from umm.explorer.tabs.leaderboard import top_frame
from umm.explorer.uploads import Dropped, content_of, dropped_chain, topology, trace_or_store
from umm.explorer.view import Shown, View
from umm.figures.report import write_html
from umm.program.files import toml
from umm.traces.perfetto import write_perfetto
from umm.traces.trace import Trace

CHANGED = [*answer.CONTROLS, "pin.n_clicks"]
MOST_KEPT = 4  # files of a kind that were dropped in
POINT_WAIT_S = 1.0  # seconds that the page waits for a point that is scheduled behind it
SOON = 0.25  # seconds that a tab of priced points waits for their bounds
LATER = 1.0  # seconds that the page waits for them once all else is shown


@dataclass(frozen=True)
class Sources:
    """Sources of answers beside a browser's request."""

    dropped: Dropped  # traces and stores that were dropped in
    behind: Behind  # where searches run
    chains: Files  # files of chains that every viewer finds dropped in, as text by name
    machines: Machines = field(default_factory=dict)  # machines of files that every viewer finds dropped in

    def files_of(self, asked: "Asked") -> tuple[Machines, Files]:
        """Return machines and chains of files by name; those that the viewer dropped in come first."""
        return {**self.machines, **asked.files}, {**self.chains, **asked.chains}


@dataclass(frozen=True)
class Asked:
    """A browser's request."""

    query: str  # of the page's address
    viewer: str = ""  # who asks
    theme: str = "light"  # `dark` or `light`
    files: Files = field(default_factory=dict)  # topology files that were dropped in, as text by name
    chains: Files = field(default_factory=dict)  # files of chains
    dropped: str = ""  # the name of a trace or a store that was
    # What is shown already of what is found behind the page, in a word; None of nothing.
    stage: str | None = None
    cancels: bool = False  # whether the viewer wants no more of that


@dataclass(frozen=True)
class Answer:
    """A page's answer."""

    shown: Shown  # by `id.property`; what is not named stays as it is
    over: bool  # whether nothing more will be found
    # Whether the page asks again once it has drawn: what is looked at is not there, or a bound.
    soon: bool = False


def asked_of(sent: Any) -> Asked:
    """Read a browser's request; ValueError if it is nothing that a page sends.

    Args:
        sent: Any JSON.
    """
    if not isinstance(sent, dict):
        raise ValueError
    query, viewer, theme, dropped = (sent.get(name) or "" for name in ("query", "viewer", "theme", "dropped"))
    files, chains, stage = sent.get("files") or {}, sent.get("chains") or {}, sent.get("stage")
    if not (isinstance(files, dict) and isinstance(chains, dict)):
        raise ValueError
    texts = [query, viewer, theme, dropped, stage or "", *files.values(), *chains.values()]
    if not all(isinstance(x, str) for x in texts):
        raise ValueError
    return Asked(query, viewer, theme, files, chains, dropped, stage, bool(sent.get("cancels")))


def viewed(asked: Asked, sources: Sources, pinned: bool = False) -> View:
    """Return the view of a question: its point, table and mistakes.

    Args:
        pinned: Whether it stands beside another, and nothing beside it.
    """
    state, mistakes = read(asked.query)
    machines, chains = sources.files_of(asked)
    case, problem = tried(lambda: case_of(state, machines, chains))
    content = sources.dropped.get(asked.dropped)
    measured = content if isinstance(content, Trace) else None
    rows = None if content is None or measured else content
    lines = (*mistakes, *filter(None, [problem]))
    beside = (
        None if pinned or not state.pin else viewed(replace(asked, query=state.pin), sources, pinned=True)
    )
    return View(state, case, sources.behind, asked.theme == "dark", measured, rows, lines, beside)


def answered(asked: Asked, sources: Sources) -> Answer:
    """Return the page's content: all of it at first, then the results from behind it."""
    view, behind = viewed(asked, sources), sources.behind
    first, shown = asked.stage is None, Shown()
    if view.case is None:
        return Answer((_all(view, asked, sources) if first else shown) | answer.progress(view), over=True)
    if first:
        behind.forget_failed()
    # The background runs of shown points whose schedules may take longer than a request.
    views = [view, *filter(None, [view.pinned])]
    long = [x.scheduled for x in views if x.scheduled is not None]
    waits = view.state.waits or bool(long)  # then what comes later decides what every tab shows
    prices = TABS[view.state.tab].prices or waits
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
    ordered = f"{asked.viewer} order"
    unordered = next((x for x in long if not x.over), None)
    if first:
        behind.leave(ordered, unordered)
    if unordered and not cancelled:
        behind.want(ordered, unordered)
        unordered.heard.wait(POINT_WAIT_S)
    progress = answer.progress(view, cancelled)
    news = progress["status.title"] != asked.stage
    if first or (waits and (news or asked.cancels)):
        shown |= _all(view, asked, sources) | {"verdict.children": answer.verdict(view, cancelled)}
    shown |= progress
    if first or (prices and news):
        shown |= answer.tab_shown(view)
    if not first:
        shown |= answer.found(view, cancelled)
        unsure = next((x for x in (view.range, view.decides) if x and not x.over), None)
        if unsure:
            behind.want(sure, unsure)
    over = bool(shown["cancel.hidden"]) and (cancelled or view.is_sure)
    return Answer(shown, over, soon=prices and not over and (draws or not shown["status.title"]))


def _all(view: View, asked: Asked, sources: Sources) -> Shown:
    """Return everything but the tab in sight and the progress."""
    machines, chains = sources.files_of(asked)
    shown = answer.words(view, machines, usual_values(), chains)
    return shown | answer.control_values(view.state, shown["facts.data"]["divisors"])


def register(app: Dash, sources: Sources) -> None:
    """Give an app its callbacks."""
    _register_in_browser(app)
    clicked = [graph for tab in TABS.values() for graph in tab.clicks]

    def looked_at(query: str | None, files: Files | None, chains: Files | None) -> View:
        return viewed(Asked(query or "", files=files or {}, chains=chains or {}), sources)

    @app.callback(
        Output("url", "search", allow_duplicate=True),
        *(Input(graph, "clickData") for graph in clicked),
        Input("lanes", "clickData"),
        State("url", "search"),
        State("files", "data"),
        State("chain-files", "data"),
        prevent_initial_call=True,
    )
    def click(*sent: Any) -> str:
        view = looked_at(*sent[-3:])
        data = ctx.triggered[0]["value"] if ctx.triggered else None
        number = _number(data)
        if number is None or view.case is None:
            raise PreventUpdate
        if ctx.triggered_id == "lanes":
            return replace(view.state, op=number).link
        points = view.priced.points
        if points is None or not 0 <= number < len(view.priced.seconds):
            raise PreventUpdate
        return view.state.at(*points.parts(number)).link

    def dropping(upload_id: str, store: str, read_file: Callable[[str, bytes], tuple[str, str]]) -> None:
        """Keep a file that is dropped in under its name in a store, and show its content."""
        chosen = {"drop-machine": ("machine",), "drop-chain": ("chain", "layouts", "row")}[upload_id]

        @app.callback(
            Output(store, "data"),
            Output("drop-words", "children", allow_duplicate=True),
            Output("url", "search", allow_duplicate=True),
            Input(upload_id, "contents"),
            State(upload_id, "filename"),
            State(store, "data"),
            State("url", "search"),
            prevent_initial_call=True,
        )
        def drop(upload: str, filename: str, kept: Files | None, query: str) -> tuple[Any, str, Any]:
            try:
                name, text = read_file(filename or "", content_of(upload or ""))
            except UmmError as error:
                return no_update, str(error), no_update
            others = {x: content for x, content in (kept or {}).items() if x != name}
            newest = {**dict(list(others.items())[1 - MOST_KEPT :]), name: text}  # the oldest goes
            values: dict[str, Any] = dict(zip(chosen, (name, "", 1), strict=False))
            return newest, f"{name} is read.", replace(read(query or "")[0], **values).link

    dropping("drop-machine", "files", topology)
    dropping("drop-chain", "chain-files", dropped_chain)

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
            return sources.dropped.keep(content, trace_or_store(filename or "file", content)), no_update
        except UmmError as error:
            return no_update, str(error)

    @app.callback(
        Output("download", "data"),
        Output("drop-words", "children", allow_duplicate=True),
        Input("to-csv", "n_clicks"),
        Input("to-html", "n_clicks"),
        Input("to-perfetto", "n_clicks"),
        Input("to-toml", "n_clicks"),
        State("url", "search"),
        State("files", "data"),
        State("chain-files", "data"),
        prevent_initial_call=True,
    )
    def export(*sent: Any) -> tuple[Any, str]:
        view = looked_at(*sent[-3:])
        if view.point is None:
            return no_update, "; ".join(view.wrong) or "There is nothing to save yet."
        try:
            return _exported(str(ctx.triggered_id), view), ""
        except UmmError as error:
            return no_update, str(error)


def _register_in_browser(app: Dash) -> None:
    """Give an app the callbacks that its browser runs itself."""

    def runs(name: str, output: Output, *given: Any, initially: bool = False) -> None:
        function = ClientsideFunction("umm", name)
        app.clientside_callback(function, output, *given, prevent_initial_call=not initially)

    runs(
        "change",
        Output("url", "search"),
        *(Input(*name.split(".")) for name in CHANGED),
        Input({"preset": ALL}, "n_clicks"),
        Input({"pick": ALL}, "n_clicks"),
        State("facts", "data"),
        State("presets", "data"),
    )
    runs(
        "show",
        Output("shown", "data"),
        Input("theme", "data"),
        Input("files", "data"),
        Input("chain-files", "data"),
        Input("dropped", "data"),
        State("facts", "data"),
        initially=True,
    )
    runs("cancel", Output("cancel", "disabled"), Input("cancel", "n_clicks"))
    runs("theme", Output("theme", "data"), Input("dark", "n_clicks"), initially=True)
    runs("png", Output("to-png", "title"), Input("to-png", "n_clicks"))


def _exported(what: str, view: View) -> Any:
    """Return a file to download."""
    assert view.point
    if what == "to-csv":
        text = top_frame(view).to_csv(index=False)
        return {"content": text, "filename": "points.csv", "type": "text/csv"}
    if what == "to-toml":
        layouts = {name: str(layout) for name, layout in view.point.layouts.items()}
        text = toml(outline_of(view.state, view.point.case.text).with_layouts("best", layouts))
        return {"content": text, "filename": "chain.toml", "type": "application/toml"}
    write = write_html if what == "to-html" else write_perfetto
    name = "point.html" if what == "to-html" else "point.pftrace"
    with tempfile.TemporaryDirectory(prefix="umm-export-") as folder:
        path = Path(folder) / name
        write(view.point.trace, path)
        return dcc.send_bytes(path.read_bytes(), name)


def _number(data: Any) -> int | None:
    """Return the number that a clicked mark has, None where it has none."""
    try:
        value = data["points"][0]["customdata"]
        return int(value[0] if isinstance(value, list) else value)
    except (KeyError, IndexError, TypeError, ValueError):
        return None

"""What a choice does on the page of a chain: controls change the URL, and the URL changes the page."""

from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, no_update

from umm.explorer.behind import Behind
from umm.explorer.chains import answer
from umm.explorer.chains.answer import ChainView
from umm.explorer.chains.found import FoundBest
from umm.explorer.chains.state import read
from umm.explorer.layout import REST
from umm.explorer.point import machine_of, tried

SOON = 0.15  # seconds that the page waits for an answer that may be there at once
SHOWN = [*answer.CONTROLS, *answer.WORDS, *answer.PROGRESS, *answer.FOUND, "tick.interval"]
FILLED = [*answer.PROGRESS, *answer.FOUND]


def viewed(query: str | None, theme: str, files: dict[str, str], behind: Behind) -> ChainView:
    """Return what the page is given to show for an address."""
    state, mistakes = read(query or "")

    def found() -> FoundBest:
        machine = machine_of(state.machine, files)
        return behind.of((state.asked, machine), lambda: FoundBest(state, machine))

    question, problem = tried(found)
    return ChainView(state, question, [*mistakes, *filter(None, [problem])], theme == "dark")


def register(app: Dash, behind: Behind) -> None:
    """Give the page of a chain its callbacks."""
    app.clientside_callback(
        ClientsideFunction("umm", "change"),
        Output("url", "search"),
        *(Input(*name.split(".")) for name in answer.CONTROLS),
        Input({"preset": ALL}, "n_clicks"),
        Input({"pick": ALL}, "n_clicks"),
        State("facts", "data"),
        State("presets", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("umm", "theme"), Output("theme", "data"), Input("dark", "n_clicks")
    )

    @app.callback(
        [Output(*name.split(".")) for name in SHOWN],
        Input("url", "search"),
        Input("theme", "data"),
        Input("files", "data"),
        State("viewer", "data"),
        State("tick", "interval"),
        *(State(*name.split(".")) for name in answer.CONTROLS),
    )
    def show(
        query: str, theme: str, files: dict[str, str], viewer: str, interval: int, *controls: Any
    ) -> list[Any]:
        view = viewed(query, theme, files or {}, behind)
        if view.found is not None:
            behind.want(viewer, view.found)
            view.found.heard.wait(SOON)
        before = dict(zip(answer.CONTROLS, controls, strict=True))
        values = answer.control_values(view.state)
        shown = {x: value for x, value in values.items() if before[x] != value}
        shown |= answer.words(view, files or {}) | answer.progress(view) | answer.found_shown(view)
        shown["tick.interval"] = 2 * REST - interval + 1  # another one starts anew
        return [shown.get(output, no_update) for output in SHOWN]

    @app.callback(
        [Output(*name.split("."), allow_duplicate=True) for name in FILLED],
        Input("tick", "n_intervals"),
        State("url", "search"),
        State("theme", "data"),
        State("files", "data"),
        State("status", "title"),
        State("viewer", "data"),
        prevent_initial_call=True,
    )
    def fill(_: int, query: str, theme: str, files: dict[str, str], before: str, viewer: str) -> list[Any]:
        view = viewed(query, theme, files or {}, behind)
        shown = answer.progress(view)
        if view.found is not None:
            behind.want(viewer, view.found)
            if shown["status.title"] != before:
                shown |= answer.found_shown(view)
        return [shown.get(output, no_update) for output in FILLED]

    @app.callback(
        Output("status", "children", allow_duplicate=True),
        Output("cancel", "hidden", allow_duplicate=True),
        Output("tick", "disabled", allow_duplicate=True),
        Output("verdict", "children", allow_duplicate=True),
        Input("cancel", "n_clicks"),
        State("viewer", "data"),
        State("status", "children"),
        State("status", "title"),
        prevent_initial_call=True,
    )
    def cancel(_: int, viewer: str, status: str, stage: str) -> tuple[Any, ...]:
        behind.cancel(viewer)
        said = no_update if stage else "The search was cancelled; change a control to search again."
        return f"{str(status).rstrip('.')}; cancelled.", True, True, said

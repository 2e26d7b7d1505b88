"""What a choice does on the page of a chain: controls change the URL, and the URL changes the page."""

from typing import Any

from dash import ALL, ClientsideFunction, Dash, Input, Output, State, no_update

from umm.explorer.behind import Behind
from umm.explorer.chains import answer
from umm.explorer.chains.answer import ChainView
from umm.explorer.chains.found import FoundBest
from umm.explorer.chains.state import read
from umm.explorer.point import machine_of, tried
from umm.explorer.wiring import anew, cancelled, given, outputs, register_theme, states

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
    register_theme(app)

    @app.callback(
        outputs(SHOWN),
        Input("url", "search"),
        Input("theme", "data"),
        Input("files", "data"),
        State("viewer", "data"),
        State("tick", "interval"),
        *states(answer.CONTROLS),
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
        shown["tick.interval"] = anew(interval)
        return given(SHOWN, shown)

    @app.callback(
        outputs(FILLED, again=True),
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
        return given(FILLED, shown)

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
        return cancelled(status), True, True, said

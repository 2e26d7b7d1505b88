"""What a choice does on the page of a chain: controls change the URL, and the URL changes the page."""

from dataclasses import replace
from typing import Any

from dash import Dash, Input, Output, State, no_update

from umm.errors import UmmError
from umm.explorer.background import Behind
from umm.explorer.chains import answer
from umm.explorer.chains.answer import ChainView
from umm.explorer.chains.files import Texts, dropped_chain, outline_of
from umm.explorer.chains.found import FoundBest
from umm.explorer.chains.state import read
from umm.explorer.layout import CHAINS
from umm.explorer.point import Files, machine_of, tried
from umm.explorer.uploads import content_of
from umm.explorer.wiring import Answer, Asked, register_answers
from umm.program.files import toml

MOST_KEPT = 4  # chains that were dropped in
SOON = 0.15  # seconds that the page waits for an answer that may be there at once


def viewed(query: str | None, theme: str, files: Files, texts: Texts, behind: Behind) -> ChainView:
    """Return what the page is given to show for an address.

    Args:
        query: Of the address.
        theme: ``dark`` or ``light``.
        files: Topology files that are there, as text by name.
        texts: Chains that are there, likewise.
        behind: Where searches run.
    """
    state, mistakes = read(query or "")

    def found() -> FoundBest:
        machine, outline = machine_of(state.machine, files), outline_of(state, texts)
        key = (state.asked, machine, texts.get(state.chain))
        return behind.of(key, lambda: FoundBest(state, outline, machine))

    question, problem = tried(found)
    return ChainView(state, question, [*mistakes, *filter(None, [problem])], theme == "dark")


def register(app: Dash, behind: Behind, named: Texts) -> None:
    """Give the page of a chain its callbacks.

    Args:
        app: The page.
        behind: Where searches run.
        named: Chains that every viewer finds dropped in, as text by name.
    """

    def there(dropped: Texts | None) -> Texts:
        return {**named, **(dropped or {})}

    def answered(asked: Asked) -> Answer:
        texts = there(asked.dropped)
        view = viewed(asked.query, asked.theme, asked.files, texts, behind)
        if view.found is not None:
            if asked.cancels:
                behind.cancel(asked.viewer)
            behind.want(asked.viewer, view.found)
            view.found.heard.wait(SOON)
            view = replace(view, cancelled=behind.has_cancelled(asked.viewer, view.found))
        shown = answer.progress(view)
        over = bool(shown["cancel.hidden"])
        if asked.stage is None:
            shown |= answer.control_values(view.state) | answer.words(view, asked.files, texts)
        if asked.stage is None or asked.cancels or shown["status.title"] != asked.stage:
            shown |= answer.found_shown(view)
        return Answer(shown, over)

    register_answers(app, CHAINS, answer.CONTROLS, "chain-files", dict, answered)

    @app.callback(
        Output("chain-files", "data"),
        Output("drop-words", "children"),
        Output("url", "search", allow_duplicate=True),
        Input("drop-chain", "contents"),
        State("drop-chain", "filename"),
        State("chain-files", "data"),
        State("url", "search"),
        prevent_initial_call=True,
    )
    def drop(upload: str, filename: str, dropped: Texts | None, query: str) -> tuple[Any, str, Any]:
        try:
            name, text = dropped_chain(filename or "", content_of(upload or ""))
        except UmmError as error:
            return no_update, str(error), no_update
        others = {x: kept for x, kept in (dropped or {}).items() if x != name}
        newest = {**dict(list(others.items())[1 - MOST_KEPT :]), name: text}
        return newest, f"{name} is read.", replace(read(query or "")[0], chain=name, row=1).query

    @app.callback(
        Output("download", "data"),
        Output("drop-words", "children", allow_duplicate=True),
        Input("to-toml", "n_clicks"),
        State("url", "search"),
        State("files", "data"),
        State("chain-files", "data"),
        prevent_initial_call=True,
    )
    def save(_: int, query: str, files: Files | None, dropped: Texts | None) -> tuple[Any, str]:
        view = viewed(query, "light", files or {}, there(dropped), behind)
        if view.found is None or view.chosen is None:
            return no_update, "There is no row to save yet."
        text = toml(view.found.outline.with_layouts("best", view.chosen.layouts))
        return {"content": text, "filename": "chain.toml", "type": "application/toml"}, ""

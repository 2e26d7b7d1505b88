"""What both pages have in common: their controls, the theme, and the answers that their browser asks for."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from dash import ALL, ClientsideFunction, Dash, Input, Output, State
from flask import Response, abort, request
from plotly.io.json import to_json_plotly

from umm.explorer.view import Shown


@dataclass(frozen=True)
class Asked:
    """What a browser asks about.

    Attributes:
        query: Of the page's address.
        viewer: Who asks.
        theme: ``dark`` or ``light``.
        files: Topology files that were dropped in, as text by name.
        dropped: What else was: the name of a trace or a store; of chains their texts by name.
        stage: What is shown already of what is found behind the page, in a word; None of nothing.
        cancels: Whether the viewer wants no more of that.
    """

    query: str
    viewer: str
    theme: str
    files: Mapping[str, str]
    dropped: Any
    stage: str | None = None
    cancels: bool = False


@dataclass(frozen=True)
class Answer:
    """What a page shows of it.

    Attributes:
        shown: By ``id.property``; what is not named stays as it is.
        over: Whether nothing more will be found.
        soon: Whether the page asks again once it has drawn: what is looked at is not there, or a bound.
    """

    shown: Shown
    over: bool
    soon: bool = False


def asked_of(told: Any, drops: type) -> Asked:
    """Return what a browser asks about as it sends it.

    Args:
        told: Any JSON.
        drops: How the page tells what was dropped in: by a name, ``str``, or as texts by name, ``dict``.

    Raises:
        ValueError: if it is nothing that a page sends.
    """
    if not isinstance(told, dict):
        raise ValueError
    query, viewer, theme = (told.get(name) or "" for name in ("query", "viewer", "theme"))
    files, stage = told.get("files") or {}, told.get("stage")
    dropped: Any = told.get("dropped") or drops()
    if not (isinstance(files, dict) and isinstance(dropped, drops)):
        raise ValueError
    texts = [query, viewer, theme, stage or "", *files.values()]
    texts += dropped.values() if isinstance(dropped, dict) else ()
    if not all(isinstance(x, str) for x in texts):
        raise ValueError
    return Asked(query, viewer, theme, files, dropped, stage, bool(told.get("cancels")))


def as_json(told: Any) -> str:
    """Return what a page shows as JSON, the numbers of figures as plotly.js takes them from arrays."""
    try:
        return json.dumps(told, default=_plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:  # of a number that JSON has not; plotly.py writes null, and takes five times as long
        return str(to_json_plotly(told))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return _array(value)
    return value.item() if isinstance(value, np.generic) else value.to_plotly_json()


def _array(values: np.ndarray[Any, Any]) -> Any:
    """Return numbers as the bytes that plotly.js reads, of integers at most 32 bits; words as they are."""
    if values.dtype.kind == "i" and abs(values).max(initial=0) < 2**31:
        values = values.astype(np.int32)
    if not values.size or values.dtype not in (np.int32, np.float32, np.float64):
        return values.tolist()
    said = {"dtype": f"{values.dtype.kind}{values.itemsize}", "bdata": b64encode(values.tobytes()).decode()}
    return said | ({"shape": ", ".join(map(str, values.shape))} if values.ndim > 1 else {})


def register_answers(
    app: Dash,
    path: str,
    controls: Iterable[str],
    dropped: str,
    drops: type,
    answer: Callable[[Asked], Answer],
) -> None:
    """Let a page's browser ask for what it shows, at each change and then for what is found behind it.

    The browser puts the answers into the page itself: as an output of a callback each of some two hundred
    properties would take its time, changed or not.

    Args:
        app: The page.
        path: Where it is served; it asks ``answer`` beside it.
        controls: What changes its address, as ``id.property``, beside sliders and texts.
        dropped: The store of what was dropped in beside topology files.
        drops: Whether that is a name or texts by name: ``str`` or ``dict``.
        answer: What it shows.
    """

    def answered() -> Response:
        try:
            asked = asked_of(request.get_json(silent=True), drops)
        except ValueError:
            abort(400)
        found = answer(asked)
        told = {"shown": found.shown, "over": found.over, "soon": found.soon}
        return Response(as_json(told), mimetype="application/json")

    app.server.add_url_rule(f"{path}answer", f"{path}answer", answered, methods=["POST"])
    app.clientside_callback(
        ClientsideFunction("umm", "change"),
        Output("url", "search"),
        *(Input(*name.split(".")) for name in controls),
        Input({"preset": ALL}, "n_clicks"),
        Input({"pick": ALL}, "n_clicks"),
        State("facts", "data"),
        State("presets", "data"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("umm", "show"),
        Output("shown", "data"),
        Input("theme", "data"),
        Input("files", "data"),
        Input(dropped, "data"),
        State("facts", "data"),
    )
    app.clientside_callback(
        ClientsideFunction("umm", "cancel"),
        Output("cancel", "disabled"),
        Input("cancel", "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("umm", "theme"), Output("theme", "data"), Input("dark", "n_clicks")
    )

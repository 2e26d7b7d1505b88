"""What the callbacks of both pages have in common: outputs by name, the theme, the clock of what is found."""

from collections.abc import Iterable, Mapping
from typing import Any

from dash import ClientsideFunction, Dash, Input, Output, State, no_update

from umm.explorer.layout import REST


def outputs(names: Iterable[str], again: bool = False) -> list[Output]:
    """Return outputs by name, such as ``verdict.children``.

    Args:
        names: Of a component and of what changes of it.
        again: Whether another callback has them too.
    """
    return [Output(*name.split("."), allow_duplicate=again) for name in names]


def states(names: Iterable[str]) -> list[State]:
    """Return by name what a callback is told."""
    return [State(*name.split(".")) for name in names]


def given(names: Iterable[str], shown: Mapping[str, Any]) -> list[Any]:
    """Return a value for each output: what is shown, and nothing new where that says nothing."""
    return [shown.get(name, no_update) for name in names]


def anew(interval: int) -> int:
    """Return another interval for the clock, which so starts anew."""
    return 2 * REST - interval + 1


def register_clock(app: Dash, names: Iterable[str], of: Iterable[str]) -> None:
    """Let the clock ask what has been found meanwhile, and show the answer, in the browser.

    One question at a time, for Dash drops an answer once a newer question is asked: where an answer takes
    longer than the clock's turn, none would ever be shown. An answer that comes after the page has gone on to
    something else is not shown either.

    Args:
        app: Has a callback from ``asked.data``, a question's number, to ``filled.data``, its answer: the
            number and what is shown by name.
        names: What answers may show.
        of: What the page is about.
    """
    app.clientside_callback(
        ClientsideFunction("umm", "ask"),
        Output("asked", "data"),
        Input("tick", "n_intervals"),
        *states(of),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        ClientsideFunction("umm", "fill"),
        outputs(names, again=True),
        Input("filled", "data"),
        *states(of),
        prevent_initial_call=True,
    )


def register_theme(app: Dash) -> None:
    """Let a click on Dark change the theme, in the browser."""
    app.clientside_callback(
        ClientsideFunction("umm", "theme"), Output("theme", "data"), Input("dark", "n_clicks")
    )

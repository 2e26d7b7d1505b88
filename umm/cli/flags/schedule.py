"""The flags of a schedule's choices, and what they ask for: one value of each, or an axis of each."""

from collections.abc import Callable
from typing import Any

import click

from umm.algorithms.option import Option
from umm.algorithms.universal.options import known
from umm.cli.flags.options import Command, all_of, option
from umm.errors import InputError

SCHEDULE = ("stationary", *(x.name for x in known()))
ON = {"on": True, "none": False}


def schedule_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the choices of a schedule beyond its problem."""
    stationary = option(
        "--stationary", default="auto", show_default=True, metavar="A|B|C|auto",
        help="Matrix that stays in place; auto is the largest.",
    )  # fmt: skip
    return all_of([stationary, *(_flag(x) for x in known())])


def axis_options() -> Callable[[Command], Command]:
    """Return a decorator that adds layouts and choices as axes: one value or a comma list."""
    form = "Layouts of A; all, also among others, is row, col and 2d with every replication factor."
    axes = {
        "a": ("all", form),
        "b": ("all", "Layouts of B."),
        "c": ("all", "Layouts of C."),
        "stationary": ("A,B,C", "Matrices that may stay in place."),
    }
    for x in known():
        values = f" One of {', '.join(_values(x))}." if _values(x) else ""
        axes[x.name.replace("_", "-")] = (_typed(x.default), x.help + values)
    return all_of(
        [
            option(f"--{name}", default=default, show_default=True, metavar="LIST", help=text)
            for name, (default, text) in axes.items()
        ]
    )


def asked_choices(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `umm.schedule` that the flags of `schedule_options` describe."""
    switched = {x.name: ON[flags[x.name]] for x in known() if isinstance(x.default, bool)}
    return {name: flags[name] for name in SCHEDULE} | switched


def asked_axes(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `umm.Space` that the flags of `axis_options` describe.

    Raises:
        InputError: if a list holds something that is not a whole number, or neither on nor none.
    """
    texts = {name: flags[name] for name in ("a", "b", "c", "stationary")}
    return texts | {x.name: [_value(x, text.strip()) for text in flags[x.name].split(",")] for x in known()}


def _flag(x: Option) -> Callable[[Any], Any]:
    return option(
        "--" + x.name.replace("_", "-"),
        type=click.Choice(list(ON)) if isinstance(x.default, bool) else type(x.default),
        default=_typed(x.default),
        show_default=True,
        metavar="|".join(_values(x)) or ("N" if isinstance(x.default, int) else "NAME"),
        help=x.help,
    )


def _values(x: Option) -> tuple[str, ...]:
    """Return the texts an option may be, if they are few."""
    return tuple(ON) if isinstance(x.default, bool) else x.values


def _typed(value: Any) -> str:
    """Return a value as it is typed."""
    return next(text for text, on in ON.items() if on == value) if isinstance(value, bool) else str(value)


def _value(x: Option, text: str) -> Any:
    """Return what a text means as a value of an option."""
    flag = "--" + x.name.replace("_", "-")
    if isinstance(x.default, bool):
        if text not in ON:
            raise InputError(f"{flag} {text!r} is unknown; choose from {', '.join(ON)}")
        return ON[text]
    if not isinstance(x.default, int):
        return text
    if not text.isdecimal():
        raise InputError(f"{flag}: {text!r} is not a whole number; write it like 2 or 1,2,4")
    return int(text)

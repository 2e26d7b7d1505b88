"""The flags of a schedule's choices, and what they ask for: one value of each, or an axis of each."""

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from umm.algorithms.algorithm import Algorithm
from umm.algorithms.scheduling import UNIVERSAL, find_algorithm, names
from umm.cli.flags.options import Command, all_of, given, option
from umm.cli.flags.values import among
from umm.errors import InputError
from umm.plans.multiply.options import known
from umm.plans.option import Option, check_names

UNIVERSAL_ONLY = ("stationary", *(x.name for x in known()))
SCHEDULE = ("algorithm", "settings", *UNIVERSAL_ONLY)


def schedule_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the choices of a schedule beyond its problem."""
    stationary = option(
        "--stationary", default="auto", show_default=True, metavar="A|B|C|auto",
        help="Matrix that stays in place; auto is the largest. Of a chain also by what multiplies write: "
        "dW1=A,H=B.",
    )  # fmt: skip
    algorithm = option(
        "--algorithm", default=UNIVERSAL, show_default=True, metavar="NAME", shell_complete=among(names),
        help="Another algorithm, which redistributes in and out of its own layouts: cannon, summa, …",
    )  # fmt: skip
    settings = option(
        "--with", "settings", multiple=True, metavar="NAME=VALUE",
        help="An option of another algorithm; may be given several times.",
    )  # fmt: skip
    return all_of([algorithm, settings, stationary, *(_flag(x) for x in known())])


def axis_options(searched: bool = False) -> Callable[[Command], Command]:
    """Return a decorator that adds layouts and choices as axes: one value or a comma list.

    Args:
        searched: Whether the choices that a search tries all values of have all of them as their default.
    """
    form = "Layouts of A; all adds row, col and 2d with every replication factor."
    axes = {
        "a": ("all", form),
        "b": ("all", "Layouts of B."),
        "c": ("all", "Layouts of C."),
        "stationary": ("A,B,C", "Matrices that may stay in place."),
    }
    for x in known():
        values = f" One of {', '.join(x.texts)}." if x.texts else ""
        default = ",".join(x.searched) if searched and x.searched else x.typed(x.default)
        axes[x.name.replace("_", "-")] = (default, x.help + values)
    return all_of(
        [
            option(
                f"--{name}",
                default=default,
                show_default=True,
                metavar="LIST",
                help=text,
                shell_complete=among(partial(_texts, name)),
            )
            for name, (default, text) in axes.items()
        ]
    )


def asked_choices(ctx: click.Context, flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `umm.schedule` that the flags of `schedule_options` describe.

    Raises:
        InputError: for an option of one algorithm with another, or a value that means nothing.
    """
    name = flags["algorithm"]
    if name == UNIVERSAL:
        if flags["settings"]:
            raise InputError(f"--with is for other algorithms; those of {UNIVERSAL} have their own flags")
        switched = {x.name: x.read(flags[x.name]) for x in known() if isinstance(x.default, bool)}
        found = {x: flags[x] for x in UNIVERSAL_ONLY} | switched
        for x in ("stationary", "movement"):
            if flags.get("chain") and "=" in found[x]:
                parts = (part.partition("=") for part in found[x].split(","))
                found[x] = {out.strip(): value.strip() for out, _, value in parts}
        return found
    typed = given(ctx, UNIVERSAL_ONLY)
    if typed:
        raise InputError(
            f"{', '.join(typed)} is for the {UNIVERSAL} algorithm; options of {name} are --with NAME=VALUE"
        )
    return {"algorithm": name} | _settings(find_algorithm(name), flags["settings"])


def _settings(algorithm: Algorithm, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return options of an algorithm, from texts such as ``panel=64``."""
    options = {x.name: x for x in algorithm.options}
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--with {text!r} is not NAME=VALUE")
        check_names(algorithm.options, [name], algorithm.name)
        found[name] = options[name].read(value, f"--with {name}")
    return found


def asked_axes(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `umm.Space` that the flags of `axis_options` describe.

    Raises:
        InputError: if a list holds something that is not a whole number, or neither on nor none.
    """
    texts: dict[str, Any] = {name: flags[name] for name in ("a", "b", "c", "stationary")}
    for x in known():
        flag = "--" + x.name.replace("_", "-")
        texts[x.name] = [x.read(text.strip(), flag) for text in flags[x.name].split(",")]
    return texts


def _flag(x: Option) -> Callable[[Any], Any]:
    return option(
        "--" + x.name.replace("_", "-"),
        type=click.Choice(list(x.texts)) if isinstance(x.default, bool) else type(x.default),
        default=x.typed(x.default),
        show_default=True,
        shell_complete=None if isinstance(x.default, bool) else among(lambda: x.texts),
        metavar="|".join(x.texts) or ("N" if isinstance(x.default, int) else "NAME"),
        help=x.help,
    )


def _texts(name: str) -> tuple[str, ...]:
    """Return the texts that an axis may have, if they are few."""
    return next((x.texts for x in known() if x.name.replace("_", "-") == name), ())

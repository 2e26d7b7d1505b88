"""The flags of a schedule's choices, and their requests: one value of each, or an axis of each."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from umm.algorithms.algorithm import Algorithm
from umm.algorithms.scheduling import UNIVERSAL, find_algorithm, names
from umm.cli.flags.declared import Flag, flag, flags
from umm.cli.flags.options import OfProblem, Typed
from umm.cli.flags.values import among
from umm.errors import InputError
from umm.plans.multiply.options import known
from umm.plans.option import Option, check_names

UNIVERSAL_ONLY = ("stationary", *(x.name for x in known()))
SCHEDULE = ("algorithm", "settings", *UNIVERSAL_ONLY)


def _one(x: Option) -> Flag:
    """Return the flag of one value of an option."""
    switch = isinstance(x.default, bool)
    return Flag((), False, {
        "type": click.Choice(list(x.texts)) if switch else type(x.default),
        "default": x.typed(x.default),
        "show_default": True,
        "shell_complete": None if switch else among(lambda: x.texts),
        "metavar": "|".join(x.texts) or ("N" if isinstance(x.default, int) else "NAME"),
        "help": x.help,
    })  # fmt: skip


class Scheduled(OfProblem, heading="Schedule"):
    """The choices of a schedule beyond its problem."""

    algorithm: str = flag(
        default=UNIVERSAL, metavar="NAME", shell_complete=among(names),
        help="Another algorithm, which redistributes in and out of its own layouts: cannon, summa, …",
    )  # fmt: skip
    settings: tuple[str, ...] = flag(
        "--with", multiple=True, metavar="NAME=VALUE",
        help="An option of another algorithm; may be given several times.",
    )  # fmt: skip
    stationary: str = flag(
        default="auto", metavar="A|B|C|auto", usual=True,
        help="Matrix that stays in place; auto is the largest. Of a chain also by what multiplies write: "
        "dW1=A,H=B.",
    )  # fmt: skip
    # Those of the universal algorithm by name, as typed.
    how: Mapping[str, Any] = flags({x.name: _one(x) for x in known()})

    @property
    def choices_asked(self) -> dict[str, Any]:
        """The keyword arguments of `umm.schedule`.

        InputError for an option of one algorithm with another, or a value that means nothing.
        """
        if self.algorithm == UNIVERSAL:
            if self.settings:
                raise InputError(f"--with is for other algorithms; those of {UNIVERSAL} have their own flags")
            texts: dict[str, Any] = {"stationary": self.stationary, **self.how}
            switched = {x.name: x.read(texts[x.name]) for x in known() if isinstance(x.default, bool)}
            for x in ("stationary", "movement"):
                if getattr(self, "chain", None) and "=" in texts[x]:
                    parts = (part.partition("=") for part in texts[x].split(","))
                    texts[x] = {out.strip(): value.strip() for out, _, value in parts}
            return texts | switched
        others = f"options of {self.algorithm} are --with NAME=VALUE"
        self.refuse(UNIVERSAL_ONLY, f"{{}} is for the {UNIVERSAL} algorithm; {others}")
        return {"algorithm": self.algorithm} | _settings(find_algorithm(self.algorithm), self.settings)


def _settings(algorithm: Algorithm, texts: tuple[str, ...]) -> dict[str, Any]:
    """Return options of an algorithm, from texts such as ``panel=64``."""
    options = {x.name: x for x in algorithm.options}
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--with {text!r} is not NAME=VALUE")
        check_names(algorithm.options, [name], algorithm.name)
        values[name] = options[name].read(value, f"--with {name}")
    return values


AXES = {
    "a": ("all", "Layouts of A, such as row,col@2; all has every replication factor of row, col and 2d."),
    "b": ("all", "Layouts of B."),
    "c": ("all", "Layouts of C."),
    "stationary": ("A,B,C", "Matrices that may stay in place."),
}


def _axes(searched: bool) -> Any:
    """Return the flags of layouts and choices as axes: one value or a comma list."""
    # searched: whether the choices that a search tries all values of have all of them as their default.
    axes, texts = dict(AXES), {x.name: x.texts for x in known()}
    for x in known():
        values = f" One of {', '.join(x.texts)}." if x.texts else ""
        default = ",".join(x.searched) if searched and x.searched else x.typed(x.default)
        axes[x.name] = (default, x.help + values)
    settings = {"show_default": True, "metavar": "LIST"}
    return flags({
        name: Flag((), name in "abc", {
            **settings, "default": default, "help": text,
            "shell_complete": among(partial(lambda x: texts.get(x, ()), name)),
        })
        for name, (default, text) in axes.items()
    })  # fmt: skip


class Axes(Typed, heading="Space"):
    """Layouts and choices as axes: one value or a comma list."""

    axes: Mapping[str, str] = _axes(searched=False)  # their texts by name

    @property
    def axes_asked(self) -> dict[str, Any]:
        """The keyword arguments of `umm.Space`.

        InputError if a list holds something that is not a whole number, or neither on nor none.
        """
        texts: dict[str, Any] = {name: self.axes[name] for name in AXES}
        for x in known():
            name = "--" + x.name.replace("_", "-")
            texts[x.name] = [x.read(text.strip(), name) for text in self.axes[x.name].split(",")]
        return texts


class SearchedAxes(Axes, heading="Space"):
    """Layouts and choices as axes of a search, which tries all values of some."""

    axes: Mapping[str, str] = _axes(searched=True)

"""The choices of a schedule beyond its problem, each with all that is to be known of it.

The keywords of ``umm.schedule``, the flags of the command line, the axes of a space, the columns of a
leaderboard and of a store all follow from the fields of :class:`Options`.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pkgutil import resolve_name
from typing import Any, TypeVar

from umm.algorithms.universal.oplist import OFFSETS
from umm.errors import ScheduleError
from umm.units import counted

# More in flight than this helps nobody, and each takes a slot or a lane of every rank.
MOST = 4096
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """What is to be known of a choice.

    Attributes:
        name: Its keyword and its column; a flag has dashes for underscores.
        default: Its value if nothing is said; it has the type of all its values: text, int or bool.
        help: What it sets, in one line.
        heading: Heading of a column of its values, short where the name is long.
        words: Returns what a value means in a list of words, empty if it goes without saying.
        choices: The texts it may be, for a text; or as ``module:name`` where they are by name.
        least: The least of its whole numbers.
    """

    name: str
    default: Any
    help: str
    heading: str
    words: Callable[[Any], str]
    choices: tuple[str, ...] | str = ()
    least: int = 0

    @property
    def values(self) -> tuple[str, ...]:
        """The texts it may be; none for a number or a switch."""
        return tuple(_found(self.choices)) if isinstance(self.choices, str) else self.choices

    def check(self, value: Any) -> None:
        """Refuse a value that means nothing.

        Raises:
            ScheduleError: says which ones do.
        """
        if isinstance(self.default, bool):
            if not isinstance(value, bool):
                raise ScheduleError(f"{self.name} = {value!r} is not possible; it must be True or False")
        elif isinstance(self.default, int):
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not self.least <= value <= MOST:
                raise ScheduleError(
                    f"{self.name} = {value!r} is not possible; "
                    f"it must be a whole number ≥ {self.least} and ≤ {MOST}"
                )
        elif value not in self.values:
            raise ScheduleError(f"{self.name} {value!r} is unknown; choose from {', '.join(self.values)}")


@lru_cache
def _found(where: str) -> Iterable[str]:
    """Return what is at ``module:name``; imported only now, for it imports this module itself."""
    found: Iterable[str] = resolve_name(where)
    return found


def _option(default: Any, sets: str, words: Callable[[Any], str], **more: Any) -> Any:
    return field(default=default, metadata={"help": sets, "words": words, **more})


@dataclass(frozen=True)
class Options:
    """How ops become actions; the defaults are those of the paper's direct execution.

    Raises:
        ScheduleError: for a value that means nothing.

    Source: Brock & Golin (2025), section 4.
    """

    policy: str = _option(
        "direct", "What orders the actions.", str, choices="umm.algorithms.universal.policies:POLICIES"
    )
    prefetch: int = _option(2, "Ops ahead whose tiles are got.", "prefetch {}".format, heading="pref.")
    max_gemms: int = _option(
        2, "Gemms in flight.", lambda n: f"{counted(n, 'gemm')} in flight", heading="gemms", least=1
    )
    max_accumulates: int = _option(
        2, "Accumulates in flight.", lambda n: counted(n, "accumulate"), heading="accs.", least=1
    )
    offset: str = _option("index", "Iteration offset.", "offset {}".format, choices=OFFSETS)
    granularity: str = _option(
        "tile",
        "What a get moves: the whole tile, or the slice its op needs.",
        {"tile": "whole tiles", "slice": "slices"}.__getitem__,
        choices=("tile", "slice"),
        heading="gran.",
    )
    reuse: bool = _option(
        True,
        "Whether the next op that needs the same range finds it there.",
        lambda on: "" if on else "no reuse",
    )
    final: str = _option(
        "reduce",
        "A replicated C ends complete in its origin, or in every replica.",
        {"reduce": "", "broadcast": "C in every replica"}.__getitem__,
        choices=("reduce", "broadcast"),
    )

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        for option in known():
            option.check(getattr(self, option.name))

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain values."""
        return dict(vars(self))


@lru_cache(maxsize=1)
def known() -> tuple[Option, ...]:
    """Return what is to be known of every choice, in the order of :class:`Options`."""
    return tuple(Option(x.name, x.default, **{"heading": x.name, **x.metadata}) for x in fields(Options))


def check_names(given: Iterable[str]) -> None:
    """Refuse a choice that there is none of.

    Raises:
        ScheduleError: names the nearest, or all.
    """
    names = [option.name for option in known()]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"choose from {', '.join(names)}"
            raise ScheduleError(f"{name!r} is not an option of a schedule; {hint}")


def showing_options(function: Function) -> Function:
    """Let the signature of a function with ``**options`` show them by name, for help and completion."""
    shown = inspect.signature(function)
    own = [x for x in shown.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(option.name, keyword, default=option.default) for option in known()]
    function.__signature__ = shown.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    return function


def in_words(options: Mapping[str, Any]) -> str:
    """Return the choices of a schedule in words; those it does not know are left out.

    >>> in_words(Options(prefetch=1, max_gemms=1).to_dict())
    'direct, prefetch 1, 1 gemm in flight, 2 accumulates, offset index, whole tiles'
    """
    words = []
    for option in known():
        if option.name in options:
            try:
                option.check(options[option.name])
            except ScheduleError:
                continue  # of a file that this umm did not write
            words.append(option.words(options[option.name]))
    gap = options.get("gap")
    words.append(f"within {100 * gap:.2g} % of the best steps" if isinstance(gap, int | float) else "")
    return ", ".join(word for word in words if word)

"""The choices of a schedule beyond its problem, each with all that is to be known of it.

The keywords of ``umm.schedule``, the flags of the command line, the axes of a space, the columns of a
leaderboard and of a store all follow from the fields of :class:`Options`.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar

from umm.algorithms.option import Option
from umm.algorithms.universal.oplist import OFFSETS
from umm.errors import ScheduleError
from umm.units import counted

Function = TypeVar("Function", bound=Callable[..., Any])


def _option(default: Any, sets: str, words: Callable[[Any], str], **more: Any) -> Any:
    return field(default=default, metadata={"help": sets, "words": words, **more})


FINALS = {
    "reduce": "",
    "broadcast": "C in every replica",
    "all-reduce": "C summed into every replica",
    "reduce-scatter": "C cut over its replicas by rows",
}
"""What becomes of a replicated C, and the words for it."""


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
        searched=True,
    )
    reuse: bool = _option(
        True,
        "Whether the next op that needs the same range finds it there.",
        lambda on: "" if on else "no reuse",
    )
    final: str = _option(
        "reduce",
        "A replicated C is summed into its origin, through it into every replica, into every replica, or a "
        "part of its rows into each.",
        FINALS.__getitem__,
        choices=tuple(FINALS),
        searched=True,
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
    return tuple(Option(x.name, x.default, **x.metadata) for x in fields(Options))


def showing_options(function: Function) -> Function:
    """Let the signature of a function with ``**options`` show them by name, for help and completion."""
    shown = inspect.signature(function)
    own = [x for x in shown.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(option.name, keyword, default=option.default) for option in known()]
    function.__signature__ = shown.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    return function


def in_words(options: Mapping[str, Any], among: Iterable[Option] | None = None) -> str:
    """Return the choices of a schedule in words; those it does not know are left out.

    Args:
        options: As the schedule has them.
        among: What is to be known of them; the universal algorithm's if not given.

    >>> in_words(Options(prefetch=1, max_gemms=1).to_dict())
    'direct, prefetch 1, 1 gemm in flight, 2 accumulates, offset index, whole tiles'
    """
    words = []
    for option in known() if among is None else among:
        if option.name in options:
            try:
                option.check(options[option.name])
            except ScheduleError:
                continue  # of a file that this umm did not write
            words.append(option.words(options[option.name]))
    way, gap = options.get("sums_by"), options.get("gap")
    words.append(f"sums by {way}" if isinstance(way, str) else "")
    words.append(f"within {100 * gap:.2g} % of the best steps" if isinstance(gap, int | float) else "")
    return ", ".join(word for word in words if word)

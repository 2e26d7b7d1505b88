"""The choices of a schedule beyond its problem, each with all that is to be known of it.

From the fields of :class:`Options` follow the keywords of ``umm.schedule``, the flags of the command line,
the axes of a space, and the columns of a leaderboard and of a store.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from umm.errors import ScheduleError
from umm.numbers import as_int
from umm.plans.multiply.oplist import OFFSETS
from umm.plans.option import Option
from umm.units import counted

Function = TypeVar("Function", bound=Callable[..., Any])


def _option(default: Any, sets: str, words: Callable[[Any], str], **more: Any) -> Any:
    return field(default=default, metadata={"help": sets, "words": words, **more})


class Final(NamedTuple):
    """How the replicas of C end."""

    words: str  # for a list of choices; empty where it goes without saying
    delivers: str  # where C is complete; only endings that deliver the same can be compared


EVERY, ORIGIN, PARTS = "every replica", "replica 0", "a part of its rows in each"
FINALS = {
    "complete": Final("", EVERY),
    "broadcast": Final("C complete in every replica, through replica 0", EVERY),
    "all-reduce": Final("C summed into every replica", EVERY),
    "reduce": Final("C complete in replica 0 alone", ORIGIN),
    "reduce-scatter": Final("C cut over its replicas by rows", PARTS),
}
"""What becomes of a replicated C. ``complete`` is whichever of the two ways to do so takes less, and a
schedule's options name that one."""
COMPLETE = "complete"
COMPLETING = ("all-reduce", "broadcast")  # the two ways by which every replica ends complete


def delivers(final: str) -> str:
    """Return where a replicated C is complete at the end.

    >>> [delivers(final) for final in ("complete", "broadcast", "reduce", "reduce-scatter")]
    ['every replica', 'every replica', 'replica 0', 'a part of its rows in each']
    """
    return FINALS[final].delivers


LAYOUTS = "layouts"
"""Has the layouts asked for, in words, where a schedule has all blocks of a rank as one tile."""
REMARK = "not_by_library"
"""Has a remark on tensors that a library of collectives does not move, where it was asked to."""
PANELS = "panels"
"""The movement of ``umm.multiply`` and ``pgemm``: what a rank reads of another comes as one piece."""
MOVEMENTS = {
    "auto": "",
    "flat": "flat one-sided",
    "two-level": "two-level one-sided",
    PANELS: "in panels as pgemm",
    "gathered": "gathered and summed by collectives",
    "chunks": "gathered and summed in chunks while multiplying",
    "library": "gathered and summed by the machine's library, one after another",
}
"""How operands and sums move, in words."""


@dataclass(frozen=True)
class Options:
    """How ops become actions; the defaults are those of the paper's direct execution.

    ScheduleError for a value that means nothing.

    Source: Brock & Golin (2025), section 4.
    """

    policy: str = _option(
        "direct", "What orders the actions.", str, choices="umm.plans.multiply.policies:policy_names"
    )
    prefetch: int = _option(2, "Ops ahead whose tiles are fetched.", "prefetch {}".format, heading="pref.")
    max_gemms: int = _option(
        2, "Gemms in flight.", lambda n: f"{counted(n, 'gemm')} in flight", heading="gemms", least=1
    )
    max_accumulates: int = _option(
        2, "Accumulates in flight.", lambda n: counted(n, "accumulate"), heading="accs.", least=1
    )
    offset: str = _option(
        "index", "Iteration offset: where a list of ops starts.", "offset {}".format, choices=OFFSETS
    )
    granularity: str = _option(
        "tile",
        "What a get fetches: the whole tile, or the slice its op needs, as in chains always.",
        {"tile": "whole tiles", "slice": "slices"}.__getitem__,
        choices=("tile", "slice"),
        heading="gran.",
        searched=("tile", "slice"),
    )
    reuse: bool = _option(
        True,
        "Whether the next op that needs the same range uses the fetched tile.",
        lambda reuse: "" if reuse else "no reuse",
    )
    final: str = _option(
        COMPLETE,
        "Which replicas of C end complete: all, by the faster of broadcast and all-reduce; replica 0 alone "
        "(reduce); or a part of the rows in each (reduce-scatter).",
        lambda final: FINALS[final].words,
        choices=tuple(FINALS),
        searched=COMPLETING,
    )

    movement: str = _option(
        "auto",
        "How operands and sums move: flat (one-sided, each rank for itself), two-level (one-sided, once "
        "per node), panels (as umm.multiply and pgemm run: all blocks of an owner as one), gathered "
        "(collectives), chunks (in parts, while multiplying) or library (collectives of NCCL or the like, in "
        "order); auto is flat, gathered in chains on several nodes, and library for fsdp. Of a chain also by "
        "what multiplies write: dW1=gathered,H=chunks.",
        MOVEMENTS.__getitem__,
        choices=tuple(MOVEMENTS),
    )

    def __post_init__(self) -> None:
        """Refuse values that mean nothing."""
        for option in known():
            value = as_int(getattr(self, option.name))
            object.__setattr__(self, option.name, value)
            option.check(value)

    @property
    def one_sided(self) -> bool:
        """Whether operands come by gets and sums go by accumulates, where nothing else decides.

        >>> Options().one_sided, Options(movement="gathered").one_sided
        (True, False)
        """
        return self.movement in ("auto", "flat")

    def to_dict(self) -> dict[str, Any]:
        """Return the choices as plain values."""
        return dict(vars(self))


@lru_cache(maxsize=1)
def known() -> tuple[Option, ...]:
    """Return the declaration of every choice, in the order of :class:`Options`."""
    return tuple(Option(x.name, x.default, **x.metadata) for x in fields(Options))


def showing_options(function: Function) -> Function:
    """Let the signature of a function with ``**options`` show them by name, for help and completion."""
    shown = inspect.signature(function)
    # A function's signature is what `help` and completion show; the call itself still takes **options.
    named_already = [x for x in shown.parameters.values() if x.kind is not inspect.Parameter.VAR_KEYWORD]
    keyword = inspect.Parameter.KEYWORD_ONLY
    named = [inspect.Parameter(option.name, keyword, default=option.default) for option in known()]
    function.__signature__ = shown.replace(parameters=[*named_already, *named])  # type: ignore[attr-defined]
    return function


def in_words(options: Mapping[str, Any], among: Iterable[Option] | None = None) -> str:
    """Return the choices of a schedule in words; those it does not know are left out.

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
    way, gap, moved = (options.get(x) for x in ("sums_by", "gap", "moved_by"))
    words.append(moved if isinstance(moved, str) else "")
    words.append(f"sums by {way}" if isinstance(way, str) else "")
    words.append(f"within {100 * gap:.2g} % of the best steps" if isinstance(gap, int | float) else "")
    return ", ".join(word for word in words if word)

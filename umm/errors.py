"""The errors umm raises on purpose, each with the exit code its command ends in, and how many of them end."""

import re
from collections.abc import Iterable
from typing import Any

INTERRUPTED = 130  # what a command ends with after Ctrl-C
MOST_NAMES = 80  # names that a message lists; ten times as many are searched for one that is meant
LONGEST_LIST = 600  # characters of all of these
_LONG = re.compile(r"\S{241,}")  # a word of a message that is cut: what was asked may be endless


def short_words(message: str) -> str:
    """Return a message without the middle of its endless words.

    >>> len(short_words("x" * 5000))
    201
    """
    return _LONG.sub(lambda word: f"{word[0][:160]}…{word[0][-40:]}", message)


class UmmError(Exception):
    """A failure with one clear line: the request, the reason, a remedy."""

    exit_code = 1  # exit status of the command line

    def __init__(self, message: str = "") -> None:
        super().__init__(short_words(message))


class InputError(UmmError, ValueError):
    """An impossible request: a usage error, a bad value or a bad file."""

    exit_code = 2


class LayoutError(InputError):
    """A layout that does not exist, such as 3 equal replicas of 8 ranks."""


class ProblemError(InputError):
    """A problem whose sizes, layouts or ranks do not fit together."""


class MachineError(InputError):
    """A machine that is unknown, or a machine file that does not describe one."""


class ScheduleError(InputError):
    """A schedule that breaks its own rules, or a file that does not hold one."""


class InfeasibleError(UmmError):
    """Nothing fits the limits that were asked for."""

    exit_code = 3


class CheckError(UmmError):
    """A product, tolerance or comparison that did not hold."""

    exit_code = 4


class ExecutorUnavailableError(UmmError):
    """An executor that cannot run here; the message ends with the line that fixes it."""

    exit_code = 5


class EndedEarlyError(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or the end of a time limit amid a computation that has an answer by now."""

    def __init__(self, result: Any) -> None:
        super().__init__("interrupted")
        # The answer so far, as the computation would return it; not complete, not proven. Its type says whose
        # answer it is: a computation that has none yet lets that of one inside it through.
        self.found = result


def expect(value: object, kinds: type | tuple[type, ...], what: str, works: str) -> None:
    """Refuse a value of another type where a person gives one; InputError in one line.

    Args:
        kinds: The types it may have.

    >>> expect("foo", int, "ranks", "a whole number")
    Traceback (most recent call last):
    umm.errors.InputError: ranks takes a whole number, not 'foo', a str
    """
    if not isinstance(value, kinds):
        shown = repr(value)
        shown = shown if len(shown) <= 40 else f"{shown[:37]}..."
        raise InputError(f"{what} takes {works}, not {shown}, a {type(value).__name__}")


def did_you_mean(wrong: str, right: Iterable[str]) -> str:
    """Return how an error about an unknown name ends: with the nearest known one, else with all of them.

    >>> did_you_mean("swtich", ["switch", "ring"]), did_you_mean("x", ["switch", "ring"])
    ("did you mean 'switch'?", 'choose from switch, ring')
    >>> did_you_mean("layer", ["mlp", "moe-layer", "transformer-layer"])
    "did you mean 'moe-layer' or 'transformer-layer'?"
    """
    import difflib  # only where something went wrong

    wrong, known = str(wrong), list(right)
    some = known[: 10 * MOST_NAMES]
    close = [x for x in some if wrong in x.split("-")] or difflib.get_close_matches(
        wrong[:MOST_NAMES], some, n=1
    )
    if close:
        return f"did you mean {' or '.join(map(repr, close[:3]))}?"
    listed, length = 0, 0
    while listed < min(len(known), MOST_NAMES) and length + len(known[listed]) <= LONGEST_LIST:
        length += len(known[listed]) + 2
        listed += 1
    more = [] if listed == len(known) else [f"… ({len(known)} in all)"]
    return f"choose from {', '.join((*known[:listed], *more))}"

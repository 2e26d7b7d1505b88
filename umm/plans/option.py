"""One choice of a schedule or an algorithm: its default, its values, how it is read and checked."""

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pkgutil import resolve_name
from typing import Any

from umm.errors import ScheduleError
from umm.files import shown
from umm.numbers import as_int, real_in, whole_in

# More in flight than this helps nobody, and each takes a slot or a lane of every rank.
MAX_INTEGER = 4096
SWITCH = {"on": True, "none": False}  # how a switch is typed


@dataclass(frozen=True)
class Option:
    """A choice of schedules: its name, default, values and help."""

    name: str  # its keyword and its column; a flag has dashes for underscores
    default: Any  # its value if nothing is said; it has the type of all its values: text, int, float or bool
    help: str  # what it sets, in one line
    # The texts it may be, for a text; or the function, as `module:name`, that returns them; none if the code
    # that uses the option checks it.
    choices: tuple[str, ...] | str = ()
    least: int = 0  # the least of its numbers
    heading: str = ""  # heading of a column of its values where the name is long; empty for the name
    # Returns what a value means in a list of words, empty if it goes without saying.
    words: Callable[[Any], str] = str
    # The values that a search tries where nothing is said; none if it keeps to the default.
    searched: tuple[Any, ...] = ()
    most: int = MAX_INTEGER  # the most of its whole numbers

    @property
    def values(self) -> tuple[str, ...]:
        """The texts it may be; none for a number or a switch."""
        return tuple(_resolved(self.choices)()) if isinstance(self.choices, str) else self.choices

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts it may be typed as; none for a number."""
        return tuple(SWITCH) if isinstance(self.default, bool) else self.values

    def typed(self, value: Any) -> str:
        """Return a value as it is typed: of a switch ``on`` or ``none``."""
        return ("on" if value else "none") if isinstance(value, bool) else str(value)

    def read(self, text: str, flag: str = "") -> Any:
        """Return the value that a text means; whether it is one of its choices is for :meth:`check`.

        ScheduleError if it is neither a number nor on or none, where it has to be.

        Args:
            flag: What the option is called in a message; its name if empty.

        >>> Option("reuse", True, "Whether …").read("none"), Option("panel", 64, "Columns of …").read("128")
        (False, 128)
        """
        flag = flag or self.name
        if isinstance(self.default, bool):
            if text not in SWITCH:
                raise ScheduleError(f"{flag} {text[:40]!r} is unknown; choose from {', '.join(SWITCH)}")
            return SWITCH[text]
        if isinstance(self.default, int):
            number = whole_in(text, below=10**12)
            if number is None:
                raise ScheduleError(f"{flag}: {text[:40]!r} is not a whole number; write it like 2 or 1,2,4")
            return number
        if isinstance(self.default, float):
            real = real_in(text)
            if real is None:
                raise ScheduleError(f"{flag}={text[:40]}: {text[:40]!r} is not a number")
            return real
        return text

    def check(self, value: Any) -> None:
        """Refuse a value that means nothing; ScheduleError says which ones do."""
        # In Python True is an int, and would pass as 1.
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if isinstance(self.default, bool):
            possible, must = isinstance(value, bool), "True or False"
        elif isinstance(self.default, int):
            possible = number and isinstance(value, int) and self.least <= value <= self.most
            must = f"a whole number ≥ {self.least} and ≤ {self.most}"
        elif isinstance(self.default, float):
            possible, must = number and self.least <= value < inf, f"a number ≥ {self.least}"
        else:
            possible, must = bool(self.choices) or isinstance(value, str), "a text"
            if self.choices and value not in self.values:
                choices = ", ".join(self.values)
                raise ScheduleError(f"{self.name} {shown(value)} is unknown; choose from {choices}")
        if not possible:
            raise ScheduleError(f"{self.name} = {value!r} is not possible; it must be {must}")


def check_names(options: Sequence[Option], given: Iterable[str], subject: str) -> None:
    """Refuse an unknown option; ScheduleError names the nearest, or all."""
    names = [option.name for option in options]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            known = f"choose from {', '.join(names)}" if names else "it has none"
            hint = f"did you mean {close[0]!r}?" if close else known
            raise ScheduleError(f"{name!r} is not an option of {subject}; {hint}")


def chosen(options: Sequence[Option], given: Mapping[str, Any], subject: str) -> dict[str, Any]:
    """Return a value for every option, its default where none is given.

    ScheduleError for an unknown option, or a value that means nothing.
    """
    check_names(options, given, subject)
    values = {option.name: option.default for option in options}
    values |= {name: as_int(value) for name, value in given.items()}
    for option in options:
        option.check(values[option.name])
    return values


@lru_cache
def _resolved(where: str) -> Callable[[], Iterable[str]]:
    """Return the function at ``module:name``; imported only now, for it may import whose option this is."""
    function: Callable[[], Iterable[str]] = resolve_name(where)
    return function

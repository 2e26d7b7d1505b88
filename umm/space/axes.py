"""The axes of a space along the choices of a schedule: for each of them the values it may have."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from umm.algorithms.option import check_names
from umm.algorithms.universal.options import Options, known
from umm.errors import ScheduleError
from umm.layouts.frameworks.text import split


@dataclass(frozen=True)
class Axes:
    """The values that each choice of a schedule may have.

    Attributes:
        values: Those of each field of ``Options``, in its order.
        said: The choices that somebody has said the values of; the others have their default.
    """

    values: tuple[tuple[Any, ...], ...]
    said: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, Any], others: "Axes | None" = None) -> "Axes":
        """Return the axes of some choices, each with one value or several.

        Args:
            given: The values; a choice left out has those of others, or its default.
            others: Axes to start from.

        Raises:
            ScheduleError: for a choice that there is none of, or a value that means nothing.

        >>> Axes.of({"prefetch": (0, 1), "offset": "none,index"}).varied
        ['prefetch', 'offset']
        """
        check_names(known(), given, "a schedule")
        start = others.values if others else [option.default for option in known()]
        values = [axis(given.get(x.name, value)) for x, value in zip(known(), start, strict=True)]
        for option, of_option in zip(known(), values, strict=True):
            if not of_option:
                raise ScheduleError(f"{option.name} has no value in the space; give one or several")
            for value in of_option:
                option.check(value)
        return cls(tuple(values), frozenset(given) | (others.said if others else frozenset()))

    @property
    def searched(self) -> "Axes":
        """The axes of a search: with the values it tries of each choice of which nothing is said.

        >>> Axes.of({"prefetch": (0, 1)}).searched.varied
        ['prefetch', 'granularity', 'final']
        """
        values = zip(known(), self.values, strict=True)
        tried = [now if x.name in self.said else x.searched or now for x, now in values]
        return Axes(tuple(tried), self.said)

    @property
    def combinations(self) -> list[Options]:
        """Every combination, the last choice varying fastest."""
        names = [option.name for option in known()]
        return [Options(**dict(zip(names, values, strict=True))) for values in product(*self.values)]

    @property
    def varied(self) -> list[str]:
        """The choices with more than one value."""
        return [x.name for x, values in zip(known(), self.values, strict=True) if len(values) > 1]


def axis(value: Any) -> tuple[Any, ...]:
    """Return an axis: one value, a comma list or a sequence of values, each once.

    The commas of a layout in the words of a framework stay in it.
    """
    if isinstance(value, str):
        value = split(value)
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    return tuple(dict.fromkeys(values))

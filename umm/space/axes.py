"""The axes of a space: the layouts an operand may have, and the values of each choice of a schedule."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from umm.errors import ScheduleError
from umm.layouts.edges import square_grid
from umm.layouts.frameworks import split
from umm.layouts.text import FLAGS
from umm.numbers import as_int, whole_in
from umm.plans.multiply.options import Options, known
from umm.plans.option import check_names


def written_layouts(
    ranks: int, partitions: Sequence[str], factors: Sequence[int], orders: Sequence[str], grids: str
) -> Iterable[str]:
    """Yield the text of every combination, those that mean the same included.

    Args:
        partitions: Partitions of one replica: ``row``, ``2d``, ``2d:3x4``, ``cyclic:256x128``, …
        orders: Replica orders: ``blocked``, ``interleaved``.
        grids: Process grids of ``2d`` and ``cyclic`` without one: ``square`` or ``all``.

    >>> list(written_layouts(4, ("row", "2d"), (1, 2), ("blocked",), "all"))
    ['row', '2d:1x4', '2d:2x2', '2d:4x1', 'row@2', '2d:1x2@2', '2d:2x1@2']
    """
    for factor, partition, order in product(factors, partitions, orders):
        if factor == 1 and order != orders[0]:
            continue  # one replica has no order
        suffix = "" if factor == 1 else f"@{factor}" + (f":{order}" if order != "blocked" else "")
        if ranks % factor:
            yield partition + f"@{factor}"  # parsing it says which factors there are
            continue
        for written in _with_grid(partition, ranks // factor, grids):
            yield written + suffix


def _with_grid(partition: str, places: int, grids: str) -> Iterable[str]:
    """Yield a partition with the process grids it may have on the places of a replica."""
    name, *rest = partition.split(":")
    inner = [word for word in rest if word not in FLAGS]
    tail = "".join(f":{flag}" for flag in FLAGS if flag in rest)
    # Words after the name with which a partition names its process grid itself, which is the last of them.
    given = len(inner) == {"2d": 1, "cyclic": 2, "edges": 2}.get(name, -1)
    if given:
        rows, _, cols = inner[-1].partition("x")
        above, across = whole_in(rows), whole_in(cols)
        # What is no grid passes on purpose: parsing the layout then gives the error.
        if above is None or across is None or above * across == places:
            yield partition
    elif name not in ("2d", "cyclic") or (name == "2d" and grids == "square"):
        yield partition
    else:
        divisors = [r for r in range(1, places + 1) if places % r == 0]
        pairs = [square_grid(places)] if grids == "square" else [(r, places // r) for r in divisors]
        for above, across in pairs:
            yield ":".join([name, *inner, f"{above}x{across}"]) + tail


@dataclass(frozen=True)
class Axes:
    """The values that each choice of a schedule may have."""

    values: tuple[tuple[Any, ...], ...]  # those of each field of `Options`, in its order
    # The choices that somebody has said the values of; the others have their default.
    said: frozenset[str] = frozenset()

    @classmethod
    def of(cls, given: Mapping[str, Any], others: "Axes | None" = None) -> "Axes":
        """Return the axes of some choices, each with one value or several.

        ScheduleError for an unknown choice, or a value that means nothing.

        Args:
            given: The values; a choice left out has those of others, or its default.

        >>> Axes.of({"prefetch": (0, 1), "offset": "none,index"}).varied
        ['prefetch', 'offset']
        """
        check_names(known(), given, "a schedule")
        # In the order of `known`, which `combinations` and `varied` rely on.
        start = others.values if others else [option.default for option in known()]
        texts = [axis(given.get(x.name, value)) for x, value in zip(known(), start, strict=True)]
        values = [tuple(map(as_int, of_option)) for of_option in texts]
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
    """Return an axis: one value, a comma list or a sequence of values, each once."""
    # The commas of a layout in the words of a framework stay in it.
    if isinstance(value, str):
        value = split(value)
    values = tuple(value) if isinstance(value, Iterable) else (value,)
    # A dict drops what is repeated and keeps the order, which numbers the points.
    return tuple(dict.fromkeys(values))

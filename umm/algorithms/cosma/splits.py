"""COSMA's strategy: which dimension to split next, into how many parts, and whether over ranks or in time.

A parallel step gives each part to a group of ranks; the matrix that it does not split is gathered in every
group before, or summed over the groups after. A sequential step does part after part and moves nothing.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from umm.errors import ScheduleError
from umm.numbers import parse_whole

DIMENSIONS = "mnk"
MOST_PARTS = 1024  # parts of a multiply that are done one after another


class Split(NamedTuple):
    """A step of a strategy.

    >>> str(Split("p", "m", 2))
    'pm2'
    """

    kind: str  # `p` over groups of ranks, `s` one part after another
    dimension: str  # m, n or k
    parts: int  # number of parts

    def __str__(self) -> str:
        return f"{self.kind}{self.dimension}{self.parts}"


Strategy = tuple[Split, ...]


def read_strategy(text: str) -> Strategy:
    """Return the steps that a text means; ScheduleError if it means none.

    >>> read_strategy("sm2,pk4")
    (Split(kind='s', dimension='m', parts=2), Split(kind='p', dimension='k', parts=4))
    """
    matches = [re.fullmatch("([ps])([mnk])([1-9][0-9]{0,4})", step.strip()) for step in text.split(",")]
    if not all(matches):
        raise ScheduleError(
            f"steps {text!r} are not possible; write them like pm2,sn2,pk3: parallel or sequential, "
            "m, n or k, parts"
        )
    return tuple(Split(x[1], x[2], parse_whole(x[3])) for x in matches if x)


def parts_of(steps: Sequence[Split], kind: str) -> dict[str, int]:
    """Return in how many parts all steps of a kind together cut each dimension."""
    return {x: prod(s.parts for s in steps if (s.kind, s.dimension) == (kind, x)) for x in DIMENSIONS}


def ranks_of(steps: Sequence[Split]) -> int:
    """Return how many ranks a strategy is for."""
    return prod(step.parts for step in steps if step.kind == "p")


def nearest_cube(sizes: Sequence[int], ranks: int) -> tuple[int, int, int]:
    """Return into how many parts to cut m, n and k so that each of so many ranks has nearly a cube.

    >>> nearest_cube((4096, 4096, 4096), 8), nearest_cube((8192, 49152, 12288), 12)
    ((2, 2, 2), (1, 6, 2))
    """
    # A cube has the least surface for its volume, and a rank's surface is what it has to receive or send.
    edge = (prod(sizes) / ranks) ** (1 / 3)
    divisors = [d for d in range(1, ranks + 1) if ranks % d == 0]
    grids = [(i, j, ranks // (i * j)) for i in divisors for j in divisors if ranks // i % j == 0]
    return min(grids, key=lambda grid: sum(abs(x / d - edge) for x, d in zip(sizes, grid, strict=True)))


@lru_cache(maxsize=256)
def strategy(sizes: tuple[int, int, int], ranks: int, memory: float = 0.0) -> Strategy | None:
    """Return the strategy for a multiply; None if memory does not suffice for one.

    The grid of ranks is the nearest to cubes. The largest dimension is split first, by the prime factors of
    its part of the grid for as long as it is the largest; where a rank would then hold more than memory
    allows, it is halved in time instead and the grid is chosen anew.

    Args:
        sizes: m, n and k.
        memory: Elements a rank may hold, as a multiple of (mk + kn + mn)/p; 0 if any number.

    >>> for memory in (0, 2, 1.5):
    ...     print(*strategy((8192, 49152, 12288), 8, memory))
    pn4 pk2
    pn4 sn2 pk2
    pn4 sn2 sk2 sm2 sn2 pk2
    """
    left = dict(zip(DIMENSIONS, sizes, strict=True))
    # At rest a rank has its share of A, B and C; gathered blocks are added as steps are chosen.
    elements = sum(_faces(left).values()) / ranks
    limit = memory * elements if memory else float("inf")
    steps: list[Split] = []
    while ranks > 1:
        cube = nearest_cube(tuple(left.values()), ranks)
        factors = {x: _primes(parts) for x, parts in zip(DIMENSIONS, cube, strict=True)}
        while any(factors.values()):
            # Splitting the largest dimension replicates the smallest of the three matrices, the one without
            # it.
            x = max((x for x in DIMENSIONS if factors[x]), key=left.__getitem__)
            parts = 1
            largest_other = max(size for other, size in left.items() if other != x)
            while factors[x] and (parts == 1 or left[x] / parts >= largest_other):
                # Memory for the block that this step leaves whole. A limit that is met exactly leaves nothing
                # for the next parallel step, so it is accepted only for the last one.
                more = _faces(left)[x] * parts * factors[x][0] / ranks  # all of what x does not split
                if elements + more > limit or (elements + more == limit and ranks > parts * factors[x][0]):
                    break  # the steps to come need some too
                parts *= factors[x].pop(0)
            if parts == 1:
                break
            steps.append(Split("p", x, parts))
            elements += _faces(left)[x] * parts / ranks
            # Rounded up: the rank with the largest part has to fit too.
            left[x] = -(-left[x] // parts)
            ranks //= parts
        else:
            continue
        # Reached by break alone: no parallel step fits in what is left. Half the problem in time halves the
        # blocks to gather, and the remaining ranks get a grid that suits the new shape.
        x = max(DIMENSIONS, key=left.__getitem__)
        steps.append(Split("s", x, 2))
        left[x] = -(-left[x] // 2)
        if prod(parts_of(steps, "s").values()) > MOST_PARTS:
            return None
    return _joined(steps)


def _faces(sizes: dict[str, int]) -> dict[str, int]:
    """Return for each dimension the elements of the matrix that a split of it leaves whole."""
    m, n, k = sizes.values()
    return {"m": k * n, "n": m * k, "k": m * n}


def _primes(number: int) -> list[int]:
    """Return the prime factors of a number, the smallest first."""
    factors, factor = [], 2
    while number > 1:
        while number % factor == 0:
            factors.append(factor)
            number //= factor
        factor += 1
    return factors


def _joined(steps: list[Split]) -> Strategy:
    """Return steps with those of one kind and dimension that follow each other made one."""
    joined: list[Split] = []
    for step in steps:
        if joined and joined[-1][:2] == step[:2]:
            step = step._replace(parts=joined.pop().parts * step.parts)
        joined.append(step)
    return tuple(joined)

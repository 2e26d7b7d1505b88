"""Ways to multiply two DTensors, and the seconds of each by measured curves. Knows nothing of torch.

On each axis of a mesh a way does one of three things. It keeps one side of the product cut and gathers the
other operand, cuts k and leaves a sum open (Partial), or has everyone multiply everything: the strategies of
DTensor itself. Operands are redistributed before the local multiply, the product after it.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, log, prod
from typing import NamedTuple

Use = int | str
"""What an axis of a mesh does with a tensor: cut a dimension, replicate (R), or hold a part of a sum (P)."""
Uses = tuple[Use, ...]


class Curve(NamedTuple):
    """Seconds by size, from measured points in increasing order of size.

    >>> curve = Curve((100.0, 1000.0), (1.0, 10.0))
    >>> curve.at(10), round(curve.at(300), 6), curve.at(2000)
    (1.0, 3.0, 20.0)
    """

    sizes: tuple[float, ...]
    seconds: tuple[float, ...]

    def at(self, size: float) -> float:
        """Interpolate between logarithms; below the first point its seconds, above the last in proportion."""
        right = bisect_right(self.sizes, size)
        if right == 0:
            return self.seconds[0]
        if right == len(self.sizes):
            return self.seconds[-1] * size / self.sizes[-1]
        (x, y), (s, t) = (numbers[right - 1 : right + 1] for numbers in self)
        seconds: float = s * (t / s) ** (log(size / x) / log(y / x))
        return seconds


class Step(NamedTuple):
    """One redistribution along one axis of a mesh."""

    kind: str  # from and to, `S0` for a first dimension that is cut, `S1` for another: `S0>R`, `P>S1`
    ranks: int  # ranks that are joined along the axis
    distance: int  # from one of them to the next
    nbytes: int  # of the tensor that they hold together


@dataclass(frozen=True)
class Costs:
    """Measured seconds of torch's processes, all of them at once."""

    # Seconds by bytes, for each kind, ranks and distance of a `Step`.
    moves: Mapping[tuple[str, int, int], Curve]
    product: Curve  # seconds of a local multiply by its flop, in float32
    stream: Curve  # seconds of one with few rows by its bytes, which no multiply is faster than
    in_place: Curve  # seconds of `umm.torch.multiply` by the work of its plan, in float32

    def move(self, step: Step) -> float:
        """Return the seconds of a step, by the curve of the most similar ranks; 0 if nothing moves."""
        near = [key for key in self.moves if key[0] == step.kind]
        if not near or step.ranks < 2:
            return 0.0
        key = min(near, key=lambda x: (abs(log(x[1] / step.ranks)), abs(x[2] - step.distance)))
        return self.moves[key].at(step.nbytes)


class Way(NamedTuple):
    """Placements of A and B in the local multiply, and those of its product."""

    name: str
    a: Uses
    b: Uses
    c: Uses


GATHER_B, GATHER_A, SPLIT_K, REPLICATE, SPLIT_BATCH = "gather B", "gather A", "split k", "replicate", "batch"


def rules(dims: int) -> dict[str, tuple[Use, Use, Use]]:
    """Return the ways of one axis: placements of A, B and C, matrices or batches of them."""
    rows, cols = dims - 2, dims - 1
    matrices: dict[str, tuple[Use, Use, Use]] = {
        GATHER_B: (rows, "R", rows),
        GATHER_A: ("R", cols, cols),
        SPLIT_K: (cols, rows, "P"),
        REPLICATE: ("R", "R", "R"),
    }
    return matrices | ({SPLIT_BATCH: (0, 0, 0)} if dims == 3 else {})


def target(a: Uses, b: Uses, torchs: Uses, dims: int) -> Uses:
    """Return the placements to give a product: torch's, unless it would move operands to leave a sum open.

    Such a sum moves more bytes later than gathering an operand now; A's rows and B's columns then stay as
    they are cut.

    >>> target((0,), (0,), ("P",), dims=2), target((1,), (0,), ("P",), dims=2)
    ((0,), ('P',))
    """
    rows, cols = dims - 2, dims - 1
    placements: list[Use] = []
    for of_a, of_b, of_c in zip(a, b, torchs, strict=True):
        free = of_a in (cols, "R") and of_b in (rows, "R")
        if of_c == "P" and not free:
            of_c = rows if of_a == rows else cols if of_b == cols else "R"
        placements.append(of_c)
    return tuple(placements)


def ways(axes: Sequence[int], a: Sequence[int], b: Sequence[int], wanted: Uses) -> Iterator[Way]:
    """Yield all ways on a mesh whose product can be redistributed to wanted placements.

    Args:
        a: Shape of A.
        b: Shape of B.

    >>> [x.name for x in ways((2,), (8, 8), (8, 8), (0,))]
    ['gather B', 'gather A', 'split k', 'replicate']
    >>> [x.name for x in ways((2,), (8, 8), (8, 8), ("P",))]
    ['split k']
    """
    for names in product(rules(len(a)), repeat=len(axes)):
        of_a, of_b, of_c = zip(*(rules(len(a))[name] for name in names), strict=True)
        open_sums = all(now == "P" for now, then in zip(of_c, wanted, strict=True) if then == "P")
        if open_sums and _divides(a, of_a, axes) and _divides(b, of_b, axes):
            yield Way(", ".join(names), of_a, of_b, of_c)


def _divides(shape: Sequence[int], uses: Uses, axes: Sequence[int]) -> bool:
    """Whether each dimension has an element for every rank that it is cut over."""
    cuts = [prod(n for n, use in zip(axes, uses, strict=True) if use == dim) for dim in range(len(shape))]
    return all(size >= cut for size, cut in zip(shape, cuts, strict=True))


def flop_and_elements(
    axes: Sequence[int], a: Sequence[int], b: Sequence[int], way: Way
) -> tuple[float, float]:
    """Return the flop of the fullest rank's local multiply, and the elements of its three matrices.

    >>> flop_and_elements((2,), (8, 8), (8, 8), Way("gather B", (0,), ("R",), (0,)))
    (512.0, 128.0)
    """
    of_a, of_b = local_shape(a, way.a, axes), local_shape(b, way.b, axes)
    rows, cols = prod(of_a[:-1]), of_b[-1]
    return 2.0 * rows * of_a[-1] * cols, float(prod(of_a) + prod(of_b) + rows * cols)


def local_shape(shape: Sequence[int], uses: Uses, axes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of the fullest part, cut as torch.chunk does."""
    sizes = list(shape)
    for length, use in zip(axes, uses, strict=True):
        if isinstance(use, int):
            sizes[use] = -(-sizes[use] // length)
    return tuple(sizes)


def cheapest(seconds: Mapping[str, float]) -> str:
    """Return the name of the cheapest option, the first of equal ones; all ranks find the same."""
    return min(seconds, key=lambda name: seconds.get(name, inf))


Steps = Callable[[str, Uses], list[Step]]
"""Steps of A or B to placements, or of C from placements to those wanted."""


def priced(costs: Costs, axes: Sequence[int], a: Sequence[int], b: Sequence[int], itemsize: int,
           options: Sequence[Way], steps: Steps) -> dict[str, float]:  # fmt: skip
    """Return the seconds of each way: redistributions, local multiply, redistribution of the product."""
    seconds = {}
    for way in options:
        flop, elements = flop_and_elements(axes, a, b, way)
        local = max(costs.product.at(flop * itemsize / 4), costs.stream.at(elements * itemsize))
        moves = (*steps("A", way.a), *steps("B", way.b), *steps("C", way.c))
        seconds[way.name] = local + sum(map(costs.move, moves))
    return seconds

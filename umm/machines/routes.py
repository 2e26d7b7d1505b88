"""What holds for a route, whatever fabric it crosses."""

from collections.abc import Iterable, Sequence

from umm.arrays import Floats


def narrowest(route: Iterable[int], bandwidth: Sequence[float] | Floats) -> int:
    """Return the link of a route that has the least bandwidth, the first of several.

    Args:
        route: Links in the order bytes cross them, at least one.
        bandwidth: Bytes/s of every link.

    >>> narrowest((3, 0, 2), [5e9, 1e9, 5e9, 9e9])
    0
    """
    return min(route, key=bandwidth.__getitem__)

"""A step of the optimizer in buckets: collectives of some run beside the compute of others."""

from collections.abc import Sequence
from typing import NamedTuple


class Bucket(NamedTuple):
    """Matrices that move and compute together."""

    before: float  # seconds of the collective that gathers momenta
    compute: float  # seconds of the rank that computes longest
    after: float  # seconds of the collectives that follow


def overlapped(buckets: Sequence[Bucket], backward: float = 0.0) -> float:
    """Return the seconds of a step whose collectives and compute are a lane each, in the order of buckets.

    The momenta of a bucket are complete as the backward pass goes on; collectives may run behind it, while
    compute begins at its end. Results that are ready go before momenta that are.

    Args:
        buckets: In the order in which the backward pass completes them.
        backward: Seconds of the backward pass that the network is free in.

    >>> overlapped([Bucket(1.0, 2.0, 1.0)] * 4), overlapped([Bucket(1.0, 2.0, 1.0)] * 4, backward=8.0)
    (10.0, 9.0)
    """
    count = len(buckets)
    network, compute = -backward, 0.0
    gathered, waiting = 0, list[tuple[float, float]]()
    while gathered < count or waiting:
        ready = -backward * (1 - (gathered + 1) / count) if gathered < count else float("inf")
        if waiting and (waiting[0][0] <= max(network, ready) or gathered == count):
            done, seconds = waiting.pop(0)
            network = max(network, done) + seconds
        else:
            network = max(network, ready) + buckets[gathered].before
            compute = max(compute, network) + buckets[gathered].compute
            waiting.append((compute, buckets[gathered].after))
            gathered += 1
    return max(network, compute, 0.0)

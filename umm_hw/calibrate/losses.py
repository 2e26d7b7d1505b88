"""What transfers cost the gemms beside them: a share of their rate, and seconds of their rank's core."""

from collections.abc import Sequence
from typing import NamedTuple

from umm_hw.calibrate.figures import Figure, figure

MOST_LOST = 0.95  # a gemm beside transfers goes on, however slowly


class Loss(NamedTuple):
    """What a transfer beside gemms takes.

    Attributes:
        nbytes: What it moves.
        cost: Seconds by which the gemms end later.
        own: Seconds from its own start to its end.
    """

    nbytes: int
    cost: float
    own: float

    @property
    def rate(self) -> float:
        """Its own bytes/s."""
        return self.nbytes / self.own

    @property
    def over(self) -> float:
        """Seconds of its rank's core that it takes beyond its own; 0 where it has a core of its own.

        A lane is woken, the core turns from the gemm to the transfer and back, and the gemm's data have left
        the core's cache: 15 to 30 µs beside gemms of 256 rows, whatever the transfer's size, 80 µs of 512.
        """
        return max(0.0, self.cost - self.own)


def overhead(losses: Sequence[Loss]) -> Figure:
    """Return the seconds of its rank's core that a transfer takes beyond its own."""
    found = figure([loss.over for loss in losses])
    return found if found.value else Figure(0.0, 0.0)


def lost_share(losses: Sequence[Loss], start: float) -> Figure:
    """Return the share of its GEMM rate a rank loses while transfers run.

    Args:
        losses: Those of a kind.
        start: The overhead of each.
    """
    whole = sum(loss.cost for loss in losses) / sum(start + loss.own for loss in losses)
    spread = figure([loss.cost / (start + loss.own) for loss in losses]).uncertainty
    return Figure(round(min(MOST_LOST, max(0.0, whole)), 3), spread)

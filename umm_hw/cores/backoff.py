"""Backoff: pauses of a wait that looks now and then, longer the longer it has waited."""

from time import perf_counter, sleep

FIRST_PAUSE = 20e-6  # seconds
GROWTH = 1.5
LONGEST_PAUSE = 0.2  # seconds; a wait that looks for failures sees one within this time
# Share of its time that a long wait may last too long. A look takes 25 us of a core that others may multiply
# on: one every 200 us slowed the multiplies of a pipeline's stages by 13 %.
SLACK = 0.02
# The same for a step of several rounds between ranks, which each rank passes on when it looks.
ROUND_SLACK = SLACK / 4


class Backoff:
    """Pauses between two looks of one wait.

    The first is 20 us. Each of the others is half as long again as the one before, up to ``usual`` or, where
    that is more, a share of the time waited so far. An event at time t is seen at most
    ``max(usual, slack * t)`` after it, and never more than 0.2 s.

    Args:
        usual: Most seconds between two looks of a short wait.
        slack: Share of its time by which a long wait may last too long.
    """

    def __init__(self, usual: float, slack: float = SLACK) -> None:
        self._usual, self._slack = usual, slack
        self.restart()

    def restart(self) -> None:
        """Begin another wait, whose first looks are quick."""
        self._began, self._next = perf_counter(), FIRST_PAUSE

    def pause(self) -> float:
        """Return the seconds from now to the next look."""
        most = max(self._usual, self._slack * (perf_counter() - self._began))
        pause = min(self._next, most, LONGEST_PAUSE)
        self._next = GROWTH * pause
        return pause

    def sleep(self) -> None:
        """Sleep until the next look."""
        sleep(self.pause())

"""A note on who keeps a rank waiting, once that takes long: the rank may compute, or be stuck."""

import os
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

FIRST_NOTE_S = 8.0  # seconds before the first note; each further one comes after twice the time
MAX_NAMED = 4  # ranks that a note names


class Ranks(Protocol):
    """The ranks that wait for each other."""

    @property
    def rank(self) -> int:
        """This rank's number."""

    @property
    def numbers(self) -> Sequence[int]:
        """The number by which each rank is named."""


class Late:
    """One wait for other ranks.

    Args:
        what: What is waited for.
    """

    def __init__(self, ranks: Ranks, what: str) -> None:
        self._ranks, self._what = ranks, what
        self._began, self._after = monotonic(), FIRST_NOTE_S

    @property
    def due(self) -> bool:
        """Whether this rank has waited so long that a note is to be written."""
        return monotonic() - self._began > self._after

    def write(self, late: Sequence[int], described: Callable[[int], str] | None = None) -> None:
        """Write a line to the standard error; the next is due after twice the time.

        Args:
            late: The ranks that are waited for.
            described: Returns a rank in words; by its number alone if None.
        """
        waited, numbers = monotonic() - self._began, self._ranks.numbers
        self._after = 2 * waited
        names = " ".join(map(described or (lambda rank: f"rank {numbers[rank]}"), late[:MAX_NAMED]))
        more = f" and {len(late) - MAX_NAMED} more" if len(late) > MAX_NAMED else ""
        me = numbers[self._ranks.rank]
        line = f"note: rank {me} has waited {waited:.0f} s for {self._what}; {names}{more} did not come\n"
        os.write(2, line.encode())

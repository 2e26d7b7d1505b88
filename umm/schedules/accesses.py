"""What has touched memory, and what a new access must wait for.

Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten
once a write covers it: whatever conflicts with it later conflicts with that write too.
"""

from collections.abc import Hashable
from typing import NamedTuple

READ, WRITE, ADD = range(3)


class Touch(NamedTuple):
    """An action's access to a rectangle of a buffer; the range's end is not in it."""

    action: int
    buffer: int
    top: int
    bottom: int
    left: int
    right: int

    def meets(self, other: "Touch") -> bool:
        """Whether two share memory of one place: an element of one buffer, or two buffers of one slot."""
        return self.buffer != other.buffer or (
            self.top < other.bottom
            and other.top < self.bottom
            and self.left < other.right
            and other.left < self.right
        )

    def covers(self, other: "Touch") -> bool:
        """Whether all that the other touches lies in this rectangle; a whole slot is not known to."""
        return (
            self.buffer == other.buffer
            and self.top <= other.top
            and other.bottom <= self.bottom
            and self.left <= other.left
            and other.right <= self.right
        )


class Accesses:
    """The accesses that later ones may conflict with, by place: an owned tile or a pool slot of a rank."""

    def __init__(self) -> None:
        self._places: dict[Hashable, tuple[list[Touch], list[Touch], list[Touch]]] = {}

    def conflicts(self, place: Hashable, how: int, touch: Touch) -> list[int]:
        """Return the actions of earlier accesses that a new one conflicts with.

        Args:
            place: An owned tile, or a pool slot of a rank.
            how: READ, WRITE or ADD.
            touch: What is touched.
        """
        known = self._places.get(place, ())
        return [
            old.action
            for kind, touches in enumerate(known)
            if kind != how or how == WRITE
            for old in touches
            if touch.meets(old)
        ]

    def note(self, place: Hashable, how: int, touch: Touch) -> None:
        """Remember an access."""
        known = self._places.get(place)
        if known is None:
            known = self._places[place] = ([], [], [])
        if how == WRITE:
            for touches in known:
                if touches:
                    touches[:] = [
                        old for old in touches if old.action == touch.action or not touch.covers(old)
                    ]
        known[how].append(touch)

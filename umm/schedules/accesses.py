"""What has touched memory, and what a new access must wait for.

Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten
once a write covers it: whatever conflicts with it later conflicts with that write too. Likewise, once a pool
slot holds another buffer, whatever touches that comes after all that touched the buffer before it.
"""

from collections.abc import Hashable, Iterable, Mapping

READ, WRITE, ADD = range(3)
AGAINST = ((ADD,), (READ, ADD), (READ,))
"""What reads, writes and adds conflict with, beside writes."""
Rectangle = tuple[int, int, int, int]
"""First row, row after the last, first column, column after the last."""
Touches = tuple[list[int], list[int], list[int]]
"""Actions that have read, written and added."""


class _Piece:
    """A rectangle of a buffer that has been touched, and others that it meets and covers."""

    __slots__ = ("covered", "meeting", "touches")

    def __init__(self, meeting: list["_Piece"]) -> None:
        self.touches: Touches = ([], [], [])
        self.meeting = [self, *meeting]
        self.covered = [self]


class _Place:
    """An owned tile, or what a pool slot holds at a time: the pieces of one buffer.

    Attributes:
        buffer: The buffer.
        before: What of the buffer that the slot held before has been touched.
        pieces: What of this one has been.
    """

    __slots__ = ("before", "buffer", "pieces")

    def __init__(self, buffer: int, before: Mapping[Rectangle, _Piece]) -> None:
        self.buffer, self.before = buffer, before
        self.pieces: dict[Rectangle, _Piece] = {}

    def piece(self, rectangle: Rectangle) -> _Piece:
        """Return a piece; it and those it meets get to know each other when it is new."""
        known = self.pieces.get(rectangle)
        if known is None:
            top, bottom, left, right = rectangle
            met = [
                (other, piece)
                for other, piece in self.pieces.items()
                if other[0] < bottom and top < other[1] and other[2] < right and left < other[3]
            ]
            known = self.pieces[rectangle] = _Piece([piece for _, piece in met])
            for (first, last, start, stop), piece in met:
                piece.meeting.append(known)
                if top <= first and last <= bottom and left <= start and stop <= right:
                    known.covered.append(piece)
                elif first <= top and bottom <= last and start <= left and right <= stop:
                    piece.covered.append(known)
        return known


class Accesses:
    """The accesses that later ones may conflict with, by place: an owned tile or a pool slot of a rank."""

    def __init__(self) -> None:
        self._places: dict[Hashable, _Place] = {}

    def conflicts(self, place: Hashable, how: int, buffer: int, rectangle: Rectangle) -> list[int]:
        """Return the actions that an access must come after; all others it conflicts with precede these.

        Args:
            place: An owned tile, or a pool slot of a rank.
            how: READ, WRITE or ADD.
            buffer: Which buffer there.
            rectangle: What of it.
        """
        known = self._places.get(place)
        if known is None:
            return []
        if known.buffer != buffer:
            return _against(how, known.pieces.values())
        # What is found came after all that the slot held before, so only the first to touch a piece asks.
        return _against(how, known.piece(rectangle).meeting) or _against(how, known.before.values())

    def note(self, place: Hashable, how: int, buffer: int, rectangle: Rectangle, action: int) -> None:
        """Remember an access; of one action what it writes last, for that covers what it read there."""
        known = self._places.get(place)
        if known is None or known.buffer != buffer:
            known = self._places[place] = _Place(buffer, known.pieces if known else {})
        piece = known.piece(rectangle)
        if how == WRITE:
            for covered in piece.covered:
                for touches in covered.touches:
                    touches.clear()
        piece.touches[how].append(action)


def _against(how: int, pieces: Iterable[_Piece]) -> list[int]:
    """Return the actions that have touched pieces in a way that conflicts with this one.

    All that a piece keeps came after its last write, so that one is named only if it keeps nothing else.
    """
    found = []
    for piece in pieces:
        since = [action for kind in AGAINST[how] for action in piece.touches[kind]]
        found += since or piece.touches[WRITE]
    return found

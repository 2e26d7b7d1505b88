"""What has touched memory, and what a new access must wait for.

Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten
once a write covers it: whatever conflicts with it later conflicts with that write too. Likewise, once a pool
slot holds another buffer, whatever touches that comes after all that touched the buffer before it.
"""

from bisect import bisect_left, insort
from collections.abc import Hashable, Iterable, Mapping

READ, WRITE, ADD = range(3)
FEW = 16
"""Pieces of a buffer of which all are looked at."""
Rectangle = tuple[int, int, int, int]
"""First row, row after the last, first column, column after the last."""


class _Piece:
    """A rectangle of a buffer that has been touched, and others that it meets and covers.

    Attributes:
        write: The action that has written all of it, −1 if none has.
        reads: Actions that have read all of it since.
        adds: Actions that have added to all of it since.
    """

    __slots__ = ("adds", "covered", "meeting", "reads", "write")

    def __init__(self) -> None:
        self.write = -1
        self.reads: list[int] = []
        self.adds: list[int] = []
        self.meeting: tuple[_Piece, ...] = ()
        self.covered: tuple[_Piece, ...] = ()

    def forget(self) -> None:
        """Forget who has touched it."""
        self.write = -1
        self.reads.clear()
        self.adds.clear()


class _Place:
    """An owned tile, or what a pool slot holds at a time: the pieces of one buffer.

    Attributes:
        buffer: The buffer.
        pieces: What of this one has been touched.
    """

    __slots__ = ("_before", "_edges", "_largest", "buffer", "pieces")

    def __init__(self, buffer: int, before: Mapping[Rectangle, _Piece]) -> None:
        self.buffer = buffer
        self._before: list[Mapping[Rectangle, _Piece] | list[int]] = [before] * 3
        self.pieces: dict[Rectangle, _Piece] = {}
        self._edges: tuple[list[Rectangle], list[Rectangle]] | None = None  # by first row, by first column
        self._largest = (0, 0)  # most rows and most columns of a piece

    def before(self, how: int) -> list[int]:
        """Return the actions on what the slot held before that an access must come after, found once."""
        found = self._before[how]
        if not isinstance(found, list):
            found = self._before[how] = _against(how, found.values())
        return found

    def piece(self, rectangle: Rectangle) -> _Piece:
        """Return a piece; it and those it meets get to know each other when it is new."""
        known = self.pieces.get(rectangle)
        if known is not None:
            return known
        known = _Piece()
        top, bottom, left, right = rectangle
        for other in self._near(rectangle):
            first, last, start, stop = other
            if first < bottom and top < last and start < right and left < stop:
                piece = self.pieces[other]
                known.meeting += (piece,)
                piece.meeting += (known,)
                if top <= first and last <= bottom and left <= start and stop <= right:
                    known.covered += (piece,)
                elif first <= top and bottom <= last and start <= left and right <= stop:
                    piece.covered += (known,)
        self.pieces[rectangle] = known
        if self._edges is not None:
            self._index(rectangle)
        return known

    def _near(self, rectangle: Rectangle) -> Iterable[Rectangle]:
        """Return the pieces that a rectangle may meet: all, or of many those about its rows or columns.

        A copy that is gathered from p ranks has p pieces, and to look at all for each new one takes p².
        """
        if len(self.pieces) < FEW:
            return self.pieces
        if self._edges is None:
            self._edges = [], []
            for known in self.pieces:
                self._index(known)
        top, bottom, left, right = rectangle
        (by_row, by_col), (tall, wide) = self._edges, self._largest
        rows = bisect_left(by_row, (top - tall,)), bisect_left(by_row, (bottom,))
        cols = bisect_left(by_col, (left - wide,)), bisect_left(by_col, (right,))
        if rows[1] - rows[0] <= cols[1] - cols[0]:
            return by_row[slice(*rows)]
        return [(top, bottom, left, right) for left, right, top, bottom in by_col[slice(*cols)]]

    def _index(self, rectangle: Rectangle) -> None:
        assert self._edges is not None
        top, bottom, left, right = rectangle
        insort(self._edges[0], rectangle)
        insort(self._edges[1], (left, right, top, bottom))
        self._largest = max(self._largest[0], bottom - top), max(self._largest[1], right - left)


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
        piece = known.piece(rectangle)
        # What is found came after all that the slot held before, so only the first to touch a piece asks.
        return _against(how, (piece, *piece.meeting)) or known.before(how)

    def changes(self, place: Hashable, buffer: int, rectangle: Rectangle) -> list[int]:
        """Return the actions that have last written to a rectangle, or added to it since."""
        known = self._places.get(place)
        if known is None or known.buffer != buffer:
            return []
        piece = known.piece(rectangle)
        pieces = (piece, *piece.meeting)
        return [x for each in pieces for x in each.adds] + [x.write for x in pieces if x.write >= 0]

    def note(self, place: Hashable, how: int, buffer: int, rectangle: Rectangle, action: int) -> None:
        """Remember an access; of one action what it writes last, for that covers what it read there."""
        known = self._places.get(place)
        if known is None or known.buffer != buffer:
            known = self._places[place] = _Place(buffer, known.pieces if known else {})
        piece = known.piece(rectangle)
        if how == WRITE:
            piece.forget()
            for covered in piece.covered:
                covered.forget()
            piece.write = action
        elif how == READ:
            piece.reads.append(action)
        else:
            piece.adds.append(action)


def _against(how: int, pieces: Iterable[_Piece]) -> list[int]:
    """Return the actions that have touched pieces in a way that conflicts with this one.

    All that a piece keeps came after its last write, so that one is named only if it keeps nothing else.
    """
    found: list[int] = []
    for piece in pieces:
        since = piece.adds if how == READ else piece.reads if how == ADD else (*piece.reads, *piece.adds)
        if since:
            found += since
        elif piece.write >= 0:
            found.append(piece.write)
    return found

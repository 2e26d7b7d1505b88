"""What has touched memory, and what a new access must wait for.

Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten
once a write covers it: whatever conflicts with it later conflicts with that write too. Likewise, once a pool
slot holds another buffer, whatever touches that comes after all that touched the buffer before it.
"""

from collections.abc import Hashable, Iterable, Mapping

READ, WRITE, ADD = range(3)
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
            known = self.pieces[rectangle] = _Piece()
            known.meeting = tuple(piece for _, piece in met)
            for (first, last, start, stop), piece in met:
                piece.meeting += (known,)
                if top <= first and last <= bottom and left <= start and stop <= right:
                    known.covered += (piece,)
                elif first <= top and bottom <= last and start <= left and right <= stop:
                    piece.covered += (known,)
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
        piece = known.piece(rectangle)
        # What is found came after all that the slot held before, so only the first to touch a piece asks.
        return _against(how, (piece, *piece.meeting)) or _against(how, known.before.values())

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

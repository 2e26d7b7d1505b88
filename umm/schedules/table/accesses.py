"""Accesses to memory so far, and those that a new access must wait for.

Two accesses conflict where they touch the same memory, unless both read or both add. An access is forgotten
once a write covers it: whatever conflicts with it later conflicts with that write too. Likewise, once a pool
slot holds another buffer, whatever touches that comes after all that touched the buffer before it.

:class:`Order` is the reference of what ``_accesses.c`` does where the package was compiled, row by row alike.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from umm.arrays import Ints, in_c, offsets_of
from umm.schedules.table.buffers import Slice

order_in_c: Callable[[int, bool], Any] | None = in_c("umm.schedules.table._accesses", "order")

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
    """An owned tile, or a pool slot's content at a time: the pieces of one buffer.

    Attributes:
        buffer: The buffer.
        pieces: Rectangles of this one that have been touched.
    """

    __slots__ = ("_before", "_edges", "_large", "_largest", "buffer", "pieces")

    def __init__(self, buffer: int, before: Mapping[Rectangle, _Piece]) -> None:
        self.buffer = buffer
        self._before: list[Mapping[Rectangle, _Piece] | list[int]] = [before] * 3
        self.pieces: dict[Rectangle, _Piece] = {}
        self._edges: tuple[list[Rectangle], list[Rectangle]] | None = None  # by first row, by first column
        self._large: list[Rectangle] = []  # those that cover many others, which are not among these
        self._largest = (0, 0)  # most rows and most columns of a piece by edges

    def before(self, how: int) -> list[int]:
        """Return the actions on the slot's content before that an access must come after, computed once."""
        actions = self._before[how]
        if not isinstance(actions, list):
            actions = self._before[how] = _against(how, actions.values())
        return actions

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

        A copy that is gathered from p ranks has p pieces, and to look at all for each new one takes p². So it
        does where the whole of it is among those by edges, beside which all of them may begin.
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
            return [*self._large, *by_row[slice(*rows)]]
        by_cols = by_col[slice(*cols)]
        return [*self._large, *((top, bottom, left, right) for left, right, top, bottom in by_cols)]

    def _index(self, rectangle: Rectangle) -> None:
        assert self._edges is not None
        if len(self.pieces[rectangle].covered) >= FEW // 2:
            self._large.append(rectangle)
            return
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
        """Record an access; for one action its write last, which covers its reads there."""
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
    actions: list[int] = []
    for piece in pieces:
        since = piece.adds if how == READ else piece.reads if how == ADD else (*piece.reads, *piece.adds)
        if since:
            actions += since
        elif piece.write >= 0:
            actions.append(piece.write)
    return actions


BARRIER = -1
"""The way in which a part's barrier touches memory."""


class Order:
    """The rows of a schedule in the making, and their dependencies.

    Args:
        first: Number of the first temporary; owned tiles come before.
        signals: Whether a row that waits for another rank waits for its signal too. For a gemm or a map that
            is a separate row.
    """

    def __init__(self, first: int, signals: bool) -> None:
        self._first, self._signals = first, signals
        self._accesses = Accesses()
        self._places: list[int] = []  # of each temporary
        self._ranks: list[int] = []
        self._computes: list[bool] = []
        self._after: list[list[int]] = []
        self._open: set[int] = set()  # rows that no other waits for yet
        self._barrier: int | None = None
        self._asked: tuple[tuple[Slice, ...] | None, set[int]] = None, set()  # what conflicts was asked last

    def hold(self, places: Iterable[int]) -> None:
        """Take further temporaries: the number of the place of each, none of an owned tile."""
        self._places += places

    def conflicts(self, how: int, pieces: tuple[Slice, ...]) -> set[int]:
        """Return the rows that an action must come after, by its slices.

        Args:
            how: How it accesses the first; it reads the others.
            pieces: The slices.
        """
        self._asked = pieces, self._against(how, [(x.buffer, x.rows + x.cols) for x in pieces])
        return set(self._asked[1])

    def add(
        self, rank: int, computes: bool, how: int, pieces: tuple[Slice, ...], after: Iterable[int | None]
    ) -> int:
        """Return the number of a new row; ``~number`` if it waits for another rank's signal.

        Args:
            rank: The rank that acts.
            computes: Whether it is a gemm or a map.
            how: How it accesses the first slice.
            pieces: Its slices.
            after: Rows it waits for beside those that it conflicts with; None is none.
        """
        touches: list[tuple[int, Rectangle]] = [(x.buffer, x.rows + x.cols) for x in pieces]
        conflicts = self._asked[1] if self._asked[0] is pieces else self._against(how, touches)
        self._asked = None, set()
        return self._settle(rank, computes, how, touches, conflicts.union(x for x in after if x is not None))

    def follow(self, rank: int, after: Iterable[int]) -> int:
        """Return the number of a new row that touches nothing and waits for no signal."""
        return self._row(rank, False, self._after_barrier(set(after)))

    def barrier(self) -> int:
        """Return the number of a new row that waits for all before; all after wait for it."""
        self._barrier = self._row(-1, False, self._open)
        self._accesses = Accesses()
        return self._barrier

    def computed(self, piece: Slice) -> bool:
        """Whether all rows that changed a slice last compute."""
        last = self._accesses.changes(self._place(piece.buffer), piece.buffer, (*piece.rows, *piece.cols))
        return all(self._computes[row] for row in last)

    def append(
        self,
        rank: Ints,
        ways: Ints,
        computes: Ints,
        buffers: Ints,
        spans: Ints,
        offsets: Ints,
        after: Ints,
        rows: Ints,
        late: Ints,
    ) -> None:
        """Add the rows of a part, which keep their waits in it and wait for conflicting rows before it.

        Args:
            rank: Of each action.
            ways: How it accesses its first slice; BARRIER is one.
            computes: Whether it does.
            buffers: Of each operand, shape (actions, operands); −1 for none.
            spans: First row, row after the last, first column, column after the last of each operand.
            offsets: Where the waits of each start.
            after: Actions of the part that each waits for.
            rows: Filled with the number of each.
            late: Filled with whether each waits for another rank's signal, for what it waited for in the part
                apart.
        """
        start = len(self._ranks)
        for i, way in enumerate(ways.tolist()):
            waits = {int(rows[x]) for x in after[offsets[i] : offsets[i + 1]]}
            if way == BARRIER:
                rows[i] = self._row(-1, False, self._after_barrier(waits))
                continue
            touches: list[tuple[int, Rectangle]] = [
                (buffer, (top, bottom, left, right))
                for buffer, (top, bottom, left, right) in zip(
                    buffers[i].tolist(), spans[i].tolist(), strict=True
                )
                if buffer >= 0
            ]
            waits |= {row for row in self._against(way, touches) if row < start}
            row = self._settle(int(rank[i]), bool(computes[i]), way, touches, waits, start)
            rows[i], late[i] = (~row, 1) if row < 0 else (row, 0)

    def size(self) -> tuple[int, int]:
        """Return how many rows there are, and how many waits."""
        return len(self._after), sum(map(len, self._after))

    def fill(self, offsets: Ints, after: Ints) -> None:
        """Fill arrays with where each row's waits start, and with the waits."""
        offsets[:] = offsets_of([len(row) for row in self._after])
        after[:] = [x for row in self._after for x in row]

    def _place(self, buffer: int) -> int:
        return buffer if buffer < self._first else self._places[buffer - self._first]

    def _against(self, how: int, touches: Sequence[tuple[int, Rectangle]]) -> set[int]:
        rows: set[int] = set()
        conflicts = self._accesses.conflicts
        for number, (buffer, rectangle) in enumerate(touches):
            rows.update(conflicts(self._place(buffer), READ if number else how, buffer, rectangle))
        return rows

    def _settle(
        self,
        rank: int,
        computes: bool,
        how: int,
        touches: Sequence[tuple[int, Rectangle]],
        waits: set[int],
        since: int | None = None,
    ) -> int:
        """Return the number of a new row, as ``add`` does; from row ``since`` on it waits for no signals."""
        waits, late = self._after_barrier(waits), False
        if self._signals:
            last = len(self._ranks) if since is None else since
            others = {row for row in waits if row < last and self._ranks[row] not in (rank, -1)}
            late = bool(others)
            if others and computes:
                waits = (waits - others) | {self._row(rank, False, others)}
        number = self._row(rank, computes, waits)
        for place in [*range(1, len(touches)), 0] if touches else []:  # what is written comes last
            buffer, rectangle = touches[place]
            self._accesses.note(self._place(buffer), READ if place else how, buffer, rectangle, number)
        return ~number if late else number

    def _row(self, rank: int, computes: bool, waits: Iterable[int]) -> int:
        after = sorted(waits)
        self._open.difference_update(after)
        self._open.add(len(self._after))
        self._ranks.append(rank)
        self._computes.append(computes)
        self._after.append(after)
        return len(self._after) - 1

    def _after_barrier(self, waits: set[int]) -> set[int]:
        """Return an action's waits with the last barrier, unless a later row is among them."""
        if self._barrier is None or max(waits, default=-1) >= self._barrier:
            return waits
        return waits | {self._barrier}


def order_of(first: int, signals: bool) -> Order:
    """Return an :class:`Order`, the compiled one if there is one."""
    order: Order = (order_in_c or Order)(first, signals)
    return order

"""Memory accesses of a schedule in the making, and the rows that a new one must wait for: ``_accesses.c``.

Two accesses conflict where they touch the same memory, unless both read or both add. A row waits for the last
that it conflicts with; all others it conflicts with precede these.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from umm.arrays import Ints, in_c
from umm.schedules.table.buffers import Slice

order_in_c = in_c("umm.schedules.table._accesses", "order")

READ, WRITE, ADD = range(3)
BARRIER = -1  # the way in which a part's barrier touches memory


class Order(Protocol):
    """The rows so far, and the dependencies of each.

    An action accesses its first slice in one of the ways above, and reads the others.
    """

    def hold(self, places: Iterable[int]) -> None:
        """Take further temporaries: the number of the place of each, none of an owned tile."""

    def conflicts(self, how: int, pieces: tuple[Slice, ...]) -> set[int]:
        """Return the rows that an action must come after, by its slices."""

    def add(
        self, rank: int, computes: bool, how: int, pieces: tuple[Slice, ...], after: Iterable[int | None]
    ) -> int:
        """Return the number of a new row; ``~number`` if it waits for another rank's signal.

        Args:
            computes: Whether it is a gemm or a map.
            how: How it accesses the first slice.
            after: Rows it waits for beside those that it conflicts with; None is none.
        """

    def follow(self, rank: int, after: Iterable[int]) -> int:
        """Return the number of a new row that touches nothing and waits for no signal."""

    def barrier(self) -> int:
        """Return the number of a new row that waits for all before; all after wait for it."""

    def computed(self, piece: Slice) -> bool:
        """Whether all rows that changed a slice last compute."""

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
            buffers: Of each operand, shape (actions, operands); −1 for none.
            spans: First row, row after the last, first column, column after the last of each operand.
            offsets: Where the waits of each start.
            after: Actions of the part that each waits for.
            rows: Filled with the number of each.
            late: Filled with whether each waits for another rank's signal, for what it waited for in the part
                apart.
        """

    def transfers(self, *columns: Any) -> None:
        """Add transfers at once, each as :meth:`add` does.

        Args:
            columns: How each accesses what it moves into; whose it is; whether it crosses a link; the buffer
                it moves into, and the rows and columns there; the same of what it reads; two that are filled,
                with the number of each, and whether it waits for another rank's signal. Then, in a
                collective, a dict of the row that starts it on each rank, else None: it is added where a
                rank first moves what none of its transfers has brought. Then a set of the rows that move
                what a collective moves, to which those of these are added.
        """

    def size(self) -> tuple[int, int]:
        """Return how many rows there are, and how many waits."""

    def fill(self, offsets: Ints, after: Ints) -> None:
        """Fill arrays with where each row's waits start, and with the waits."""


def order_of(first: int, signals: bool) -> Order:
    """Return no rows yet.

    Args:
        first: Number of the first temporary; owned tiles come before.
        signals: Whether what waits for another rank waits for its signal too. For what computes that is a row
            of its own.
    """
    # In C: every action of every schedule passes here, and its list of earlier accesses is searched.
    order: Order = order_in_c(first, signals)
    return order

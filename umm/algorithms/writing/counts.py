"""What each rank of a schedule moves: words and messages, as papers count them."""

from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.schedules.table.kinds import TRANSFERS
from umm.schedules.table.table import Table


class Counted(NamedTuple):
    """What each rank sends to others and gets from them; a word is an element, a message a transfer.

    It does not matter which of the two ranks acts: a get is received by the one and sent by the other.

    Attributes:
        words_sent: Words that leave each rank, shape (ranks,).
        words_received: Words that arrive there.
        messages_sent: Transfers that leave it.
        messages_received: Transfers that arrive there.
    """

    words_sent: Ints
    words_received: Ints
    messages_sent: Ints
    messages_received: Ints

    @property
    def words(self) -> int:
        """Most words that a rank sends or that a rank receives, whichever is more."""
        return int(max(self.words_sent.max(), self.words_received.max()))

    @property
    def messages(self) -> int:
        """Most messages that a rank sends or that a rank receives, whichever is more."""
        return int(max(self.messages_sent.max(), self.messages_received.max()))


def counted(schedule: Table) -> Counted:
    """Return what each rank of a schedule moves; what stays at a rank does not count.

    >>> import umm
    >>> problem = umm.Problem(m=12, n=12, k=12, a="2d", b="2d", c="2d", ranks=9)
    >>> moved = counted(umm.schedule(problem, "pvc-12", algorithm="cannon"))
    >>> moved.words, moved.messages  # 2n²/√p words, 2√p messages
    (96, 6)
    """
    moving = (np.isin(schedule.kind, TRANSFERS) & (schedule.src != schedule.dst)).nonzero()[0]
    words = np.prod(schedule.details.shape[moving, 0], axis=1)

    def per_rank(ranks: Ints, amounts: Ints) -> Ints:
        found = np.zeros(schedule.ranks, dtype=np.int64)
        np.add.at(found, ranks, amounts)
        return found

    src, dst, each = schedule.src[moving], schedule.dst[moving], np.ones_like(words)
    return Counted(per_rank(src, words), per_rank(dst, words), per_rank(src, each), per_rank(dst, each))

"""Which process of a job died first, as the system knows it, even if all others end at once after it."""

import os
import select
from contextlib import suppress


class Deaths:
    """Watches processes of this host; on a system that cannot, nothing is known of any.

    mpiexec ends all ranks as soon as it sees one of them dead, and names any of them. The system queues the
    ends of processes in the order in which they come, however late somebody asks (epoll, pidfd_open(2)).
    """

    def __init__(self) -> None:
        able = hasattr(select, "epoll") and hasattr(os, "pidfd_open")
        self._ends: select.epoll | None = select.epoll() if able else None
        self._words: dict[int, str] = {}
        self._first: str | None = None

    def watch(self, process: int, words: str) -> None:
        """Watch a process that is to be called so."""
        if self._ends is None:
            return
        with suppress(OSError):  # gone already, or in another container
            life = os.pidfd_open(process)
            self._words[life] = words
            self._ends.register(life, select.EPOLLIN)

    def first(self) -> str | None:
        """Return the name of the first process to die; None if all live, or it is not known."""
        if self._first is None and self._ends is not None:
            self._first = next((self._words[life] for life, _ in self._ends.poll(0)), None)
        return self._first

    def close(self) -> None:
        """Watch no more."""
        self.first()
        for life in self._words:
            os.close(life)
        self._words.clear()
        if self._ends is not None:
            self._ends.close()
            self._ends = None

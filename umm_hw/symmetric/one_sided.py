"""The seam to a library of symmetric memory: the few calls that an executor needs, and joining ranks."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from umm_hw.devices.device import Device, Stream


class OneSided(Protocol):
    """Symmetric memory of all ranks' devices.

    The promise: ``allocate`` and ``free`` are collective. An address of symmetric memory means the same place
    in every rank's part. What is given a stream is only queued there, in order; ``barrier`` waits on the
    stream for all ranks, and may hold up the host until they have queued theirs.
    """

    def allocate(self, nbytes: int) -> int:
        """Return the address of new symmetric memory, all zero."""

    def free(self, address: int) -> None:
        """Give symmetric memory back."""

    def peer(self, address: int, rank: int) -> int:
        """Return where this process sees a rank's part of symmetric memory; 0 if it cannot."""

    def get(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Queue a copy from a rank's symmetric memory to this rank's."""

    def put(self, into: int, source: int, nbytes: int, rank: int, stream: Stream) -> None:
        """Queue a copy to a rank's symmetric memory from this rank's."""

    def quiet(self, stream: Stream) -> None:
        """Queue a wait until all that this rank has put is visible."""

    def signal(self, address: int, rank: int, stream: Stream) -> None:
        """Queue writing 1 to a rank's 8 bytes of symmetric memory, after all that the stream did before."""

    def wait_signal(self, address: int, stream: Stream) -> None:
        """Queue a wait until these 8 bytes of this rank's are 1; nothing else waits on the host."""

    def barrier(self, stream: Stream) -> None:
        """Queue a wait for all ranks, and a quiet."""


class Ranks(Protocol):
    """The processes of one job, joined on the host."""

    rank: int
    size: int

    def barrier(self) -> None:
        """Wait until every rank has come here."""

    def broadcast(self, content: Any) -> Any:
        """Return rank 0's content on every rank."""

    def gather(self, content: Any) -> list[Any]:
        """Return all ranks' contents on rank 0, an empty list elsewhere, where it waits for nobody."""

    def offset(self) -> float:
        """Return the seconds to add to this rank's clock to get rank 0's; collective."""

    def take_lock(self, rank: int) -> None:
        """Wait until nobody holds a rank's lock, and hold it."""

    def release_lock(self, rank: int) -> None:
        """Let others hold a rank's lock."""


@dataclass
class Joined:
    """One rank that has joined the others."""

    ranks: Ranks  # the processes
    library: OneSided  # their symmetric memory
    device: Device  # this rank's; others may share it
    end: Callable[[], object] = lambda: None  # what parts them again; collective
    # Streams of the lanes, kept from run to run with their workspaces.
    streams: dict[int, Stream] = field(default_factory=dict)

    def stream(self, lane: int) -> Stream:
        """Return the stream of a lane."""
        if lane not in self.streams:
            self.streams[lane] = self.device.stream()
        return self.streams[lane]

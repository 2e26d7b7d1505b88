"""The ``[fabric]`` table of a machine file: the common part of its kinds."""

from abc import abstractmethod

from umm.errors import MachineError
from umm.machines.fabric import Ends, Fabric
from umm.machines.quantities import Bandwidth, Seconds, Table, noted

MOST_LINKS = 4_000_000


class Kind(Table):
    """The table of one kind of fabric; its ``kind`` is a ``Literal`` of the names a file may use."""

    kind: str

    @abstractmethod
    def fabric(self, ends: Ends) -> Fabric:
        """Return the links this table describes, between these devices.

        MachineError if it does not fit so many devices.
        """


class LinkNumbers(Table):
    """Bandwidth and latency of one link, one direction."""

    bandwidth: Bandwidth = noted(
        "of a port or link. What copies reach is about 80 % of what the data sheet says"
    )
    latency: Seconds = noted("of a port or link")

    @property
    def numbers(self) -> tuple[float, float]:
        """Bytes/s and seconds."""
        return self.bandwidth.number, self.latency.number


def expect_devices(count: int, right: int, what: str) -> None:
    """Refuse another number of devices than a fabric of fixed shape has.

    A MachineError says what has how many.
    """
    if count != right:
        raise MachineError(
            f"{what} has {right} devices, not {count}; make devices.count and the fabric agree"
        )


def expect_links(count: int, what: str) -> None:
    """Refuse more links than can be held; MachineError says which kinds of fabric have fewer."""
    if count > MOST_LINKS:
        raise MachineError(
            f"{what} have {count} links, and at most {MOST_LINKS} can be held; "
            "use kind = switch, tiers or fat_tree"
        )

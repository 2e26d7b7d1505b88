"""A vendor's library of collectives (NCCL, RCCL, oneCCL), as a machine's file describes it.

A library does one collective in several ways: a protocol for small messages and one for large ones, a ring,
a tree, sums inside the switch. What each takes is a start that grows with the ranks and a rate that the links
and the thread blocks of a rank limit, whatever the size; which way is least at a size follows.
"""

from math import log2
from typing import Annotated, Literal

from pydantic import Field, model_validator

from umm.machines.quantities import Bandwidth, Count, Name, Number, Seconds, Share, Size, Table

BLEND = 3.0
"""How two limits of a rate meet: the sum of the −3rd powers. Between them neither alone binds."""


class Times(Number):
    """A rate over that of the links, which a file states as the bandwidth of copies."""

    value: Annotated[float, Field(gt=0, le=4)]


class Pace(Table):
    """What one way to do a collective takes.

    Attributes:
        start: Seconds before the first bytes move, without steps.
        step: Seconds more for each step; none if None.
        steps: What is a step: each rank beyond the first (``ranks``), or each doubling of them.
        link: Rate of a port that nothing else limits, over that of the links.
        fading: Share of it that each doubling of the ranks takes away.
        blocks: Bytes/s that the thread blocks of a rank move together. They send in p − 1 of the p steps of a
            ring: the last only copies out what has come.
        channels: Channels that blocks exchange messages on, a peer each; a last round with fewer peers takes
            as long as a full one.
        path: What crosses a port: what a ring passes on, what a switch that adds passes on, or all that the
            others have.
        message: Least bytes for each peer from which this way is used.
    """

    start: Seconds
    step: Seconds | None = None
    steps: Literal["ranks", "doublings"] = "ranks"
    link: Times
    fading: Share | None = None
    blocks: Bandwidth | None = None
    channels: Count | None = None
    path: Literal["ring", "switch", "everything"] = "ring"
    message: Size | None = None

    def start_s(self, ranks: int) -> float:
        """Return seconds before the first bytes of so many ranks move."""
        steps = log2(ranks) if self.steps == "doublings" else ranks - 1
        return self.start.number + (0.0 if self.step is None else self.step.number * steps)

    def rate(self, ranks: int, width: float) -> float:
        """Return bytes/s through the ports of a rank.

        Args:
            ranks: Number of ranks.
            width: Bytes/s of all links together by which a rank hears from the others.
        """
        link = self.link.value * width
        if self.fading is not None:
            link *= max(0.05, 1.0 - self.fading.value * log2(ranks))
        if self.blocks is None:
            return link
        blocks = self.blocks.number * (ranks - 1) / ranks
        if self.channels is not None and ranks > self.channels.value:
            full = self.channels.value
            blocks *= ranks / (-(-ranks // full) * full)
        return float((link**-BLEND + blocks**-BLEND) ** (-1.0 / BLEND))

    def moved(self, what: str, nbytes: float, ranks: int) -> float:
        """Return the bytes that cross a rank's ports in the direction with more of them.

        A switch that adds takes each rank's part of every sum, and the rank sends what it added up.
        """
        if self.path == "everything":
            return nbytes * (ranks - 1)
        if self.path == "switch":
            return nbytes * (ranks + 1) / ranks
        return around(what, nbytes, ranks)

    def with_blocks(self, share: float) -> "Pace":
        """Return this way with so many times the thread blocks, whose rates add up.

        24 SMs of a B200 reach 643 GB/s and 64 reach 726 (DeepEP's dispatch, docs/legacy.md):

        >>> def text(value): return {"value": value, "source": "DeepEP"}
        >>> pace = Pace(start=text("0 us"), link=text(0.73), blocks=text("943 GB/s"))
        >>> [round((pace.with_blocks(n / 24).rate(10**6, 1e12)) / 1e9) for n in (12, 24, 64)]
        [435, 643, 724]
        """
        if self.blocks is None:
            return self
        rate = f"{self.blocks.number * share / 1e9:.6g} GB/s"
        return self.model_copy(update={"blocks": self.blocks.model_copy(update={"value": rate})})

    def seconds(self, what: str, nbytes: float, ranks: int, width: float) -> float:
        """Return what the way takes; see :meth:`rate`."""
        if self.message is not None and nbytes / ranks < self.message.number:
            return float("inf")
        return self.start_s(ranks) + self.moved(what, nbytes, ranks) / self.rate(ranks, width)


def around(what: str, nbytes: float, ranks: int) -> float:
    """Return the bytes that cross a rank's port where all go round a ring, as nccl-tests counts them."""
    return nbytes * (ranks - 1) / ranks * (2 if what == "all-reduce" else 1)


class Between(Table):
    """What ways take between nodes beside bytes: a step is each node beyond the first, or each doubling.

    Attributes:
        ring: A ring for each card, which goes through all ranks of a node before it leaves it.
        tree: Trees over nodes, for all-reduces.
        pairwise: Every rank with every other.
    """

    ring: Pace
    tree: Pace
    pairwise: Pace


Ways = Annotated[dict[Name, Pace], Field(min_length=1)]


class Library(Table):
    """A library of collectives: its name, and by collective and name of the way what that takes.

    Attributes:
        name: Of the library.
        kernels: All-reduces for small sizes that frameworks bring along; the library does not choose them.
        between: What comes in between nodes; None if that is not known.
        sms: Multiprocessors, or compute units, of a device that run the library's kernels.
        sms_rated: At how many the rates of ``blocks`` were measured.
    """

    name: Name
    all_gather: Ways = Field(alias="all-gather")
    reduce_scatter: Ways = Field(alias="reduce-scatter")
    all_reduce: Ways = Field(alias="all-reduce")
    all_to_all: Ways = Field(alias="all-to-all")
    kernels: dict[Name, Pace] = Field(default_factory=dict)
    between: Between | None = None
    sms: Count | None = None
    sms_rated: Count | None = None

    @model_validator(mode="after")
    def _rated(self) -> "Library":
        if (self.sms is None) != (self.sms_rated is None):
            raise ValueError("sms and sms_rated belong together; state both or none")
        return self

    def ways(self, what: str) -> dict[str, Pace]:
        """Return the ways to do a collective, by name, with the SMs that the library takes; {} for others."""
        found: dict[str, Pace] = getattr(self, what.replace("-", "_"), {})
        if self.sms is None or self.sms_rated is None or self.sms.value == self.sms_rated.value:
            return found
        share = self.sms.value / self.sms_rated.value
        return {name: pace.with_blocks(share) for name, pace in found.items()}

"""A vendor's library of collectives (NCCL, RCCL, oneCCL), as a machine's file describes it.

A library does one collective in several ways: a protocol for small messages and one for large ones, a ring,
a tree, sums inside the switch. What each takes is a start that grows with the ranks and a rate that the links
and the thread blocks of a rank limit, whatever the size. The library takes the way that is least by its own
estimates where the file states those, and the fastest one where it does not.
"""

from collections.abc import Mapping
from math import expm1, inf, log1p, log2
from typing import Annotated, Any, Literal

from umm.machines.declaring import Field, model_validator
from umm.machines.quantities import Bandwidth, Count, Name, Number, Seconds, Share, Size, Table

BLEND = 3.0  # How two limits of a rate meet: the sum of the −3rd powers. Between them neither alone binds.
GiB = 2.0**30
ROUND = {"broadcast": "all-gather", "reduce": "reduce-scatter"}
"""What goes round the same rings, by the same kernels: the whole from or to one rank, or a piece of each."""


class Times(Number):
    """A rate over that of the links, which a file states as the bandwidth of copies."""

    value: Annotated[float, Field(gt=0, le=4)]


class Estimate(Table):
    """The library's own estimate of a way, by which it chooses: constants of its source."""

    start: Seconds  # seconds, without steps
    step: Seconds  # seconds for each rank that a piece passes on its way round
    rate: Bandwidth  # Bytes/s of the way, as nccl-tests counts bus bandwidth

    def seconds(self, what: str, nbytes: float, ranks: int) -> float:
        """Return the library's own estimate of the way's seconds."""
        rounds = 2 if what == "all-reduce" else 1
        steps = self.start.number + self.step.number * rounds * (ranks - 1)
        return steps + around(what, nbytes, ranks) / self.rate.number


class Pace(Table):
    """Speeds of one way to do a collective."""

    start: Seconds  # seconds before the first bytes move, without steps
    step: Seconds | None = None  # seconds more for each step; none if None
    # What is a step: each rank beyond the first (`ranks`), each doubling of them, or one whose bytes cross
    # the link while it takes its latency: each of the `pieces` that a rank passes on, or each of the `levels`
    # of a tree, up and down, as many as doublings.
    steps: Literal["ranks", "doublings", "pieces", "levels"] = "ranks"
    link: Times  # rate of a port that nothing else limits, over that of the links
    fading: Share | None = None  # share of it that each doubling of the ranks takes away
    # Bytes/s that the thread blocks of a rank move together. They send in p − 1 of the p steps of a ring: the
    # last only copies out what has come.
    blocks: Bandwidth | None = None
    # Bytes/s that a kernel reads from one other rank. Its threads load from all of them at a time, so p − 1
    # times as much in all; where the switch adds, one load counts for p + 1.
    peer: Bandwidth | None = None
    # Seconds by which the slowest block ends later, for 1 GiB that passes; it grows with the root of the
    # bytes. Each block has a fixed share of them, and the delays of its chunks add up at random.
    drift: Seconds | None = None
    # Channels that blocks exchange messages on. A message goes over as many as leave one for each peer, a
    # power of two; what the fullest channel carries decides.
    channels: Count | None = None
    part: Size | None = None  # most bytes of a message on a channel; larger messages go over more channels
    batch: Count | None = None  # messages that are begun together; each further batch starts anew
    # What crosses a port: what a ring passes on, what a switch that adds passes on, or all that the others
    # have.
    path: Literal["ring", "switch", "everything"] = "ring"
    message: Size | None = None  # bytes for each peer above which this way is used, and no other
    # Bytes above which frameworks leave it to the library, or a library has another way; None if it serves
    # any size.
    largest: Size | None = None
    # Seconds that it takes at least: those in which a host issues it, without graphs.
    issue: Seconds | None = None
    # Ranks above which the library does not have this way; None if it has it for any number.
    most: Count | None = None
    estimate: Estimate | None = None  # The library's own estimate; None if unknown.

    def joins(self, ranks: int) -> bool:
        """Return whether the library has the way for so many ranks."""
        return self.most is None or ranks <= self.most.value

    def takes(self, nbytes: float) -> bool:
        """Return whether the way is used for so many bytes."""
        return self.largest is None or nbytes <= self.largest.number

    def start_s(self, ranks: int) -> float:
        """Return seconds before the first bytes of so many ranks move."""
        steps = log2(ranks) if self.steps in ("doublings", "levels") else ranks - 1
        batches = 1 if self.batch is None else -(-ranks // self.batch.value)
        return batches * self.start.number + (0.0 if self.step is None else self.step.number * steps)

    def rate(self, ranks: int, width: float, message: float = inf) -> float:
        """Return bytes/s through the ports of a rank, once the steps are paid for.

        Args:
            width: Bytes/s of all links together by which a rank hears from the others.
            message: Bytes for each peer; without them the rate is that of endless ones.

        Pieces of LL of 72 ranks of an NVL72 rack hide in the latency of a step until they are large:

        >>> def text(value): return {"value": value, "source": "XLA's table"}
        >>> pace = Pace(start=text("12.3 us"), step=text("1.44 us"), steps="pieces", link=text(0.23))
        >>> sizes = [2**22, 2**24, 2**25, 2**26]
        >>> [round(1e6 * pace.seconds("all-gather", nbytes, 72, 0.9e12)) for nbytes in sizes]
        [115, 129, 185, 335]

        A kernel that reads 200 GB/s of each peer is held up by them among 2 ranks, by the link among 8:

        >>> kernel = Pace(start=text("7 us"), link=text(1.0), peer=text("200 GB/s"), path="everything")
        >>> [round(kernel.rate(ranks, 0.8e12) / 1e9) for ranks in (2, 4, 8)]
        [199, 534, 756]
        """
        link = self.link.value * width
        if self.fading is not None:
            link *= max(0.05, 1.0 - self.fading.value * log2(ranks))
        if self.blocks is not None:
            link = blended(link, self.blocks.number * self.used(ranks, message))
        if self.peer is not None:
            link = blended(link, self.peer.number * (ranks + 1 if self.path == "switch" else ranks - 1))
        if message == inf:
            return link
        if self.hides:
            assert self.step is not None
            step = self.step.number
            if self.steps == "levels":  # of an all-reduce, whose 2(p - 1) pieces cross in log p levels
                step *= log2(ranks) / (2 * (ranks - 1))
            longer = step * expm1(log1p((message / link / step) ** BLEND) / BLEND)
            link = message / max(longer, 1e-12)
        if self.drift is not None:
            link = 1.0 / (1.0 / link + self.drift.number / (message * (ranks - 1) * GiB) ** 0.5)
        return link

    @property
    def hides(self) -> bool:
        """Whether the bytes of a step hide in its latency."""
        return self.steps in ("pieces", "levels") and self.step is not None

    def used(self, ranks: int, message: float) -> float:
        """Return the share of the blocks' time in which they send to other ranks.

        What a rank sends itself is copied at once, so it leaves its channels idle: of two ranks each uses
        half of them. Of 32 channels 18 ranks use 17, and on 4 of them 36 ranks have two peers while 28 wait.
        Messages above ``part`` go over more channels (NVIDIA/nccl, src/enqueue.cc):

        >>> def text(value): return {"value": value, "source": "NCCL"}
        >>> pace = Pace(start=text("0 us"), link=text(1.0), channels=text(32), part=text("16 MiB"))
        >>> [pace.used(ranks, 2**20) for ranks in (2, 8, 18, 36)], pace.used(2, 2**30), pace.used(36, 2**25)
        ([0.5, 0.875, 0.53125, 0.546875], 1.0, 0.7291666666666666)
        """
        if self.channels is None:
            return (ranks - 1) / ranks
        full = self.channels.value
        each = 1 << max(0, (full // ranks).bit_length() - 1)
        while self.part is not None and message > each * self.part.number and 2 * each <= full:
            each *= 2
        sent = (ranks - 1) * each
        return sent / (-(-sent // full) * full)

    def moved(self, what: str, nbytes: float, ranks: int) -> float:
        """Return the bytes that cross a rank's ports in the direction with more of them."""
        # A switch that adds takes each rank's part of every sum, and the rank sends what it added up.
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
        """Return the seconds of the way; see :meth:`rate`."""
        rate = self.rate(ranks, width, nbytes / ranks)
        took = self.start_s(ranks) + self.moved(what, nbytes, ranks) / rate
        return took if self.issue is None else max(took, self.issue.number)


def blended(one: float, other: Any) -> Any:
    """Return the rate that two limits leave together; of many others at once."""
    return (one**-BLEND + other**-BLEND) ** (-1.0 / BLEND)


def around(what: str, nbytes: float, ranks: int) -> float:
    """Return the bytes that cross a rank's port where all go round a ring, as nccl-tests counts them."""
    if what in ROUND:
        return nbytes
    return nbytes * (ranks - 1) / ranks * (2 if what == "all-reduce" else 1)


def considered(paces: Mapping[str, Pace], what: str, nbytes: float, ranks: int) -> list[str]:
    """Return the ways among which the library takes the fastest at a size.

    One where its own estimates decide, which need not be the fastest; all that the size of a message allows
    where it has none.

    >>> def text(value): return {"value": value, "source": "NCCL"}
    >>> def way(start, step, rate):
    ...     estimate = {"start": text(start), "step": text(step), "rate": text(rate)}
    ...     return Pace(start=text("9 us"), link=text(1.0), estimate=estimate)
    >>> nccl = {"ll": way("6.6 us", "0.6 us", "282 GB/s"), "ring": way("8.4 us", "3.4 us", "720 GB/s")}
    >>> [considered(nccl, "all-gather", size, 4) for size in (2**21, 2**23)]
    [['ll'], ['ring']]
    """
    paces = {name: pace for name, pace in paces.items() if pace.joins(ranks)} or paces
    estimates = {
        name: pace.estimate.seconds(what, nbytes, ranks)
        for name, pace in paces.items()
        if pace.estimate is not None
    }
    if estimates and len(estimates) == len(paces):
        return [min(estimates, key=estimates.__getitem__)]
    above = {
        name: pace.message is not None and nbytes / ranks > pace.message.number
        for name, pace in paces.items()
    }
    if any(above.values()):
        return [name for name in paces if above[name]]
    return [name for name, pace in paces.items() if pace.message is None] or list(paces)


class Between(Table):
    """Speeds of ways between nodes beside bytes: a step is each node beyond the first, or each doubling."""

    ring: Pace  # a ring for each card, which goes through all ranks of a node before it leaves it
    tree: Pace  # trees over nodes, for all-reduces, cut into chunks that follow each other
    pairwise: Pace  # every rank with every other
    # The same for small gathers and scattered sums, by a protocol that fills cards less.
    ring_ll: Pace | None = Field(default=None, alias="ring-ll")
    # The same for small sizes, by a protocol that passes everything on before the next level.
    tree_ll: Pace | None = Field(default=None, alias="tree-ll")


Ways = Annotated[dict[Name, Pace], Field(min_length=1)]


class Library(Table):
    """A library of collectives: its name, and its ways by collective and name."""

    name: Name  # of the library
    all_gather: Ways = Field(alias="all-gather")
    reduce_scatter: Ways = Field(alias="reduce-scatter")
    all_reduce: Ways = Field(alias="all-reduce")
    all_to_all: Ways = Field(alias="all-to-all")
    # All-reduces for small sizes that frameworks bring along; the library does not choose them.
    kernels: dict[Name, Pace] = Field(default_factory=dict)
    between: Between | None = None  # Ways between nodes; None if unknown.
    sms: Count | None = None  # multiprocessors, or compute units, of a device that run the library's kernels
    sms_rated: Count | None = None  # at how many the rates of `blocks` were measured

    @model_validator(mode="after")
    def _rated(self) -> "Library":
        if (self.sms is None) != (self.sms_rated is None):
            raise ValueError("sms and sms_rated belong together; state both or none")
        return self

    def ways(self, what: str) -> dict[str, Pace]:
        """Return the ways to do a collective, by name, with the SMs that the library takes; {} for others."""
        paces: dict[str, Pace] = getattr(self, ROUND.get(what, what).replace("-", "_"), {})
        if what in ROUND:
            paces = {name: pace for name, pace in paces.items() if pace.path == "ring"}
        if self.sms is None or self.sms_rated is None or self.sms.value == self.sms_rated.value:
            return paces
        share = self.sms.value / self.sms_rated.value
        return {name: pace.with_blocks(share) for name, pace in paces.items()}

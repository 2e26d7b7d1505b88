"""A way to do a collective, and helpers that ways share: slices, running sums, all-reduces in parts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, wraps
from typing import Any, Generic, TypeVar, cast

import numpy as np

from umm.arrays import Ints
from umm.machines import Machine
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import GET
from umm.schedules.writer.builder import Builder, How

COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")
Piece = Callable[[int], Slice]  # a slice for each rank
Pieces = Callable[[int, int], Slice]  # a slice for each pair of ranks; it lies at the first
_Given = TypeVar("_Given")
_Into = TypeVar("_Into")
_Write = TypeVar("_Write", bound=Callable[..., None])
OWN = "own"  # the lane on which a rank copies and adds within its own memory


@dataclass(frozen=True)
class Manner:
    """How the bytes of a collective go."""

    directions: int = 2  # both directions of a ring (2), or one
    means: str | None = None  # A way to move bytes that the machine names; None for each kind's own.
    # Parts that follow each other through a chain of ranks; None chooses by size and latency.
    chunks: int | None = None
    lane: str | None = None  # Lane that transfers go on; None for those of their group.
    # Of a ring, which lane of the group is that of its first direction; the next is the second's.
    port: int = 0
    apart: bool = False  # whether what goes to each partner has a lane of its own
    turns: int = 0  # how many such lanes partners share in turn; 0 for as many as partners
    charge: float = 0.0  # bytes on the links for each byte that moves; 0 for what the machine says
    between: float = 0.0  # the same on cards between nodes, where levels differ
    padded: int = 0  # elements that a message is charged for at least, where there is a charge
    card: str = "card"  # lane of what goes between nodes, for which a rank's other lanes need not wait
    # Messages of a rank under way between nodes, each on a lane of its own; one on `card` if 0.
    flights: int = 0
    rounds: int = 0  # rounds of messages with all partners under way, on lanes of their own; one round if 0
    way: str | None = None  # Which of its ways a library shall take; None for its own choice.

    @property
    def how(self) -> How:
        """The Builder's arguments for each transfer."""
        how = How()
        if self.means is not None:
            how["means"] = self.means
        if self.lane is not None:
            how["lane"] = self.lane
        if self.charge:
            how["charge"] = self.charge
            how["padded"] = self.padded
        return how

    def to(self, partner: int) -> How:
        """The Builder's arguments for a transfer with one partner, by its number among those of a rank."""
        how = self.how
        if self.apart:
            how["lane"] = f"{self.lane}.{partner % self.turns if self.turns else partner}"
        return how

    def of_round(self, number: int) -> "Manner":
        """How the messages of a round go: on other lanes than those of the round before."""
        return replace(self, lane=f"{self.lane}.{number % self.rounds}") if self.rounds else self

    @property
    def across(self) -> "Manner":
        """How bytes go between nodes: one after another, or some at a time, beside those inside."""
        # The lane name changes from that inside a node to the card's, so that a slow card does not block the
        # links inside.
        flies = self.flights > 0
        return replace(self, lane=self.card, apart=flies, charge=self.between, turns=self.flights)


PLAIN = Manner()


@dataclass(frozen=True, eq=False)
class Exchange(Generic[_Given, _Into]):
    """One collective: its ranks, input pieces and output pieces.

    ``given`` and ``into`` are functions from rank to slice; of two ranks the slice lies at the first:

    - all-gather: ``given(rank)``, ``into(rank, origin)``: every rank gets every piece.
    - reduce-scatter: ``given(rank, owner)``, ``into(owner)``: an owner gets the sum of what all give for it.
    - all-reduce: ``given(rank)``, ``into(rank)``: every rank gets the sum; running sums lie in ``into``.
    - all-to-all: ``given(rank, to)``, ``into(rank, origin)``: every rank gets its piece of every rank.
    - broadcast: ``given``, a slice at one of the ranks, and ``into(rank)``.
    - reduce: ``given(rank)``, and ``into``, a slice at one of the ranks.

    ``into`` may be what is given, and is then not copied or overwritten before its time.
    """

    build: Builder  # where the actions go
    ranks: Sequence[int]  # any of the schedule's, in any order
    given: _Given  # what is given
    into: _Into  # where it goes
    # Where ranks keep running sums for others; None for temporaries, `given` spoils what is given.
    room: _Given | None = None
    # Whether into and room hold zeros, so that a rank's own part can be added while others' arrive.
    zeroed: bool = False
    manner: Manner = PLAIN  # how bytes go


Gather = Exchange[Piece, Pieces]
Scatter = Exchange[Pieces, Piece]
AllReduce = Exchange[Piece, Piece]
AllToAll = Exchange[Pieces, Pieces]
Broadcast = Exchange[Slice, Piece]
Reduce = Exchange[Piece, Slice]
Writer = Callable[[Any], None]  # writes the actions of an exchange of the kind that its collective takes


@dataclass(frozen=True)
class Way:
    """A way to do collectives. To add one is to add a file to this package with a ``WAY`` in it.

    A writer is an :func:`one_collective` of an :class:`Exchange`, and may be used as a part of anything.
    """

    name: str  # what it is called
    summary: str  # what it does, in one line
    source: str  # where it is described
    writers: Mapping[str, Writer]  # by collective, what writes its actions
    # Returns why it cannot serve these ranks of a machine, of so many in all; None if it can.
    refuses: Callable[[Machine, Sequence[int], int], str | None] = lambda machine, ranks, total: None
    relays: bool = True  # whether ranks keep running sums for others
    # Returns the name of what it does for some ranks and bytes, if that is not always the same.
    named: Callable[[Machine, str, Sequence[int], int, str | None], str] | None = None
    # By collective, what writes several exchanges of the same ranks as one, with one start.
    buckets: Mapping[str, Callable[[Sequence[Any]], None]] = field(default_factory=dict)

    def write_all(self, what: str, exchanges: Sequence[Exchange[Any, Any]]) -> None:
        """Write exchanges of the same ranks, as one collective where the way can."""
        if what in self.buckets:
            self.buckets[what](exchanges)
            return
        for x in exchanges:
            self.writers[what](x)


def one_collective(write: _Write) -> _Write:
    """Return a writer whose transfers wait for the start of one collective; a decorator for all writers."""

    @wraps(write)
    def written(x: Exchange[Any, Any], **more: Any) -> None:
        with x.build.collective():
            write(x, **more)

    return cast(_Write, written)


def parted(piece: Slice, number: int, parts: int) -> Slice:
    """Return one of some nearly equal parts of a slice, rows where they divide or are not fewer.

    >>> from umm.interval import Interval
    >>> parted(Slice(0, 0, 0, Interval(0, 1), Interval(0, 8)), 1, 2).cols
    Interval(start=4, stop=8)
    """
    if parts == 1:
        return piece
    # Cutting rows keeps parts contiguous in row-major memory; columns are cut only where there are too few
    # rows.
    rows, cols = piece.shape
    return piece.part(number, parts, axis=int(rows % parts != 0 and rows < cols))


def copied(build: Builder, source: Slice, into: Slice) -> None:
    """Copy a slice within its rank, unless it lies there already."""
    if source != into:
        build.get(source, into, lane=OWN)


def each_copied(x: Exchange[Any, Any], source: Piece, into: Piece) -> None:
    """Copy a slice within each rank, unless it lies there already."""
    here = np.array(x.ranks, dtype=np.int64)
    sources, room = columns(source, here), columns(into, here)
    moves = ~sources.same(room)
    kinds = np.full(np.count_nonzero(moves), GET)
    x.build.transfers(kinds, sources.taken(moves), room.taken(moves), [How(lane=OWN)], np.zeros_like(kinds))


def columns(source: Piece | Pieces, *ranks: Ints) -> Slices:
    """Return the slices of many ranks, or pairs of them, as columns: at once where the source can."""
    # Plain functions of ranks are called pair by pair; large schedules use classes with `columns`, which stay
    # in NumPy.
    at_once: Callable[..., Slices] | None = getattr(source, "columns", None)
    if at_once is not None:
        return at_once(*ranks)
    return Slices.of([source(*x) for x in zip(*(each.tolist() for each in ranks), strict=True)])


def by_steps(build: Builder, kind: int, source: Slices, into: Slices, manner: Manner, steps: Ints) -> None:
    """Write transfers of one kind, each in the manner of its step."""
    # One `How` per step, not per transfer: transfers refer to it by number.
    hows = [manner.to(x) for x in range(int(steps.max(initial=-1)) + 1)]
    build.transfers(np.full(len(steps), kind), source, into, hows, steps)


class Held:
    """A slice for each rank, known beforehand."""

    def __init__(self, slices: Mapping[int, Slice]) -> None:
        self.held = slices
        self._row = places_of(slices)
        self._all = Slices.of([*slices.values()])

    def __call__(self, rank: int) -> Slice:
        """Return the slice of a rank."""
        return self.held[rank]

    def columns(self, ranks: Ints) -> Slices:
        """Return those of many."""
        return self._all.taken(self._row[ranks])


class Shares:
    """For each pair of ranks the first's slice, cut to the rows and columns of the second's."""

    def __init__(self, slices: Mapping[int, Slice] | Held, parts: Mapping[int, Slice] | Held) -> None:
        self._whole, self._parts = (x if isinstance(x, Held) else Held(x) for x in (slices, parts))

    def __call__(self, rank: int, other: int) -> Slice:
        """Return it for one pair."""
        part = self._parts.held[other]
        return self._whole.held[rank].cut(part.rows, part.cols)

    def columns(self, ranks: Ints, others: Ints) -> Slices:
        """Return it for many pairs."""
        return self._whole.columns(ranks).cut(self._parts.columns(others).spans)


class Parts:
    """For each pair of ranks the part of the first's slice that has the second's number."""

    def __init__(self, piece: Piece, number: Mapping[int, int], parts: int) -> None:
        self._whole, self._number, self._parts = piece, number, parts
        self._row = places_of(number)
        self._numbers = np.array([*number.values()], dtype=np.int64)[self._row]

    @cached_property
    def _table(self) -> Slices:
        """All parts of each slice in turn: collectives ask for most of them several times."""
        ranks = np.fromiter(self._number, np.int64, len(self._number))
        number = np.tile(np.arange(self._parts), len(ranks))
        return columns(self._whole, ranks.repeat(self._parts)).parts(number, number, self._parts)

    def __call__(self, rank: int, other: int) -> Slice:
        """Return it for one pair."""
        return parted(self._whole(rank), self._number[other], self._parts)

    def columns(self, ranks: Ints, others: Ints) -> Slices:
        """Return it for many pairs."""
        return self._table.taken(self._row[ranks] * self._parts + self._numbers[others])


@dataclass(frozen=True, eq=False)
class Cut:
    """One of some parts of every piece."""

    pieces: Callable[..., Slice]  # of ranks, or of pairs of them
    part: int  # its number
    parts: int  # how many there are

    def __call__(self, *ranks: int) -> Slice:
        """Return the part of one piece."""
        return parted(self.pieces(*ranks), self.part, self.parts)

    def columns(self, *ranks: Ints) -> Slices:
        """Return it of many."""
        pieces, number = columns(self.pieces, *ranks), np.full(len(ranks[0]), self.part)
        return pieces.parts(number, number, self.parts)


class Own:
    """Of slices for pairs of ranks that of each rank with itself."""

    def __init__(self, pieces: Pieces) -> None:
        self._of = pieces

    def __call__(self, rank: int) -> Slice:
        """Return the slice of a rank."""
        return self._of(rank, rank)

    def columns(self, ranks: Ints) -> Slices:
        """Return those of many."""
        return columns(self._of, ranks, ranks)


def places_of(ranks: Collection[int]) -> Ints:
    """Return the place of each of some ranks among them, by rank."""
    places = np.full(max(ranks, default=-1) + 1, -1, dtype=np.int64)
    places[np.fromiter(ranks, np.int64, len(ranks))] = np.arange(len(ranks))
    return places


def room_for(build: Builder, piece: Slice, rank: int, slot: object = None) -> Slice:
    """Return a temporary at a rank that holds the same rows and columns as a slice."""
    return build.temporary(rank, build.tensors[piece.tensor].name, piece.rows, piece.cols, slot=slot)


class Sums:
    """The running sums of one collective."""

    def __init__(self, x: Exchange[Any, Any]) -> None:
        self._build, self._zeroed = x.build, x.zeroed
        self._begun: set[Slice] = set()

    def so_far(self, given: Slice, room: Slice) -> Slice:
        """Return where the sum so far lies: in its room, or as given if nothing has come yet."""
        return room if room in self._begun else given

    def begun(self, given: Slice, room: Slice) -> Slice:
        """Return the room of a sum; the rank's own part is copied there once."""
        # Room of zeros gains it, so that what others add need not wait; other room is overwritten with it.
        # A slice is a key: equal slices are the same memory, so the own part is added exactly once.
        if room not in self._begun:
            self._begun.add(room)
            if self._zeroed and given != room:
                self._build.accumulate(given, room, lane=OWN)
            else:
                copied(self._build, given, room)
        return room


class Rooms:
    """The slices where each rank keeps the sum for each owner: ``into`` for itself, else ``room``."""

    def __init__(self, x: Scatter) -> None:
        self._build, self._given, self._into, self._room = x.build, x.given, x.into, x.room
        self._made: dict[tuple[int, int], Slice] = {}

    def __call__(self, rank: int, owner: int) -> Slice:
        """Return it for one rank and owner."""
        if rank == owner:
            return self._into(owner)
        if self._room is not None:
            return self._room(rank, owner)
        # Temporaries are made on first use, since many pairs of a relaying way never meet.
        if (rank, owner) not in self._made:
            self._made[rank, owner] = room_for(self._build, self._given(rank, owner), rank)
        return self._made[rank, owner]

    def columns(self, ranks: Ints, owners: Ints) -> Slices:
        """Return it for many."""
        if self._room is None:
            return Slices.of([self(*x) for x in zip(ranks.tolist(), owners.tolist(), strict=True)])
        at_owner = ranks == owners
        return columns(self._room, ranks, owners).replaced(at_owner, columns(self._into, owners[at_owner]))


def sum_places(x: Reduce) -> Piece:
    """Return the slice of each rank's sum in a reduce: ``into`` at its rank, else ``room``."""

    @cache
    def place(rank: int) -> Slice:
        if rank == x.into.rank:
            return x.into
        return room_for(x.build, x.given(rank), rank) if x.room is None else x.room(rank)

    return place


def in_parts(reduce_scatter: Writer, all_gather: Writer) -> Writer:
    """Return a writer of an all-reduce, from the writers of its two halves."""

    @one_collective
    def all_reduce(x: AllReduce) -> None:
        """Every rank gets the sum; running sums lie where it goes."""
        # Rabenseifner's all-reduce: reduce-scatter, then all-gather of the same parts.
        number = {rank: i for i, rank in enumerate(x.ranks)}
        theirs, targets = (Parts(each, number, len(x.ranks)) for each in (x.given, x.into))
        # Running sums use the target itself as room, so an all-reduce needs no temporaries.
        reduce_scatter(Exchange(x.build, x.ranks, theirs, Own(targets), targets, x.zeroed, x.manner))
        all_gather(Exchange(x.build, x.ranks, Own(targets), targets, manner=x.manner))

    return all_reduce

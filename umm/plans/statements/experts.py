"""Rows of a mixture of experts over ranks: to the experts, and back to their tokens.

*Dispatch*: a rank that owns routed rows gets each of their tokens once from its owner, who packs those that
are needed of what it owns; then it writes a row for each expert of a token. *Combine*: a rank adds up its
routed rows of each token, and the owner of the tokens adds up what comes from several ranks. So a token with
two experts at one rank travels once either way. Between nodes, where that is estimated to take less, a token
travels to each node once, to the rank that has its owner's place there, which sends it on inside; its sums
come back the same way.

Source: Lepikhin et al. (2020), GShard.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import lru_cache, partial
from itertools import accumulate, pairwise, permutations
from typing import Any, NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Ints
from umm.interval import Interval
from umm.layouts.frameworks.held import merged
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE
from umm.plans.collectives.way import room_for
from umm.plans.movement.blocks import held
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import gathered, own_part, pieces_in, tiles_of
from umm.plans.statements.sums import DONE, collectives_of, sum_groups
from umm.program import Combine, Dispatch
from umm.program.routing import Routing, routing
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder, How

Region = tuple[Interval, Interval]
Rows = tuple[Interval, ...]  # routed rows in ranges that do not overlap
Key = tuple[Rows, int]  # rows that some ranks have, and a number for each that has partial sums of them
Of = dict[str, Any]  # parameters of a function that say which rows
GATES, GATE_LANES = "gates", 4  # lanes of what is done with gates
SMALL_LANES, DIRECT_LANES = 6, 64
"""Small messages of a rank that are under way at once; those of a kernel for low latency, all of whose blocks
send."""
NETWORK = "network"
"""The lane of what relays get and send, and of other messages to a place in another node: network cards need
no copy engine."""
INSIDE = "rows"  # lanes of messages inside a node where a device has more links than copy engines
PACKING, UNPACKING = "packing", "unpacking"
"""Lanes of the passes before tokens and sums leave, and after they arrive: kernels of communication run on
a stream of their own, so what is multiplied next does not wait for them; both take of the device."""
LAST = 2**30  # the phase of what is sent inside a node
AT_ONCE, LEAST_PART = 8, 2**20
"""Messages that pass a relay one behind another, and bytes below which none is cut further."""


@write.register
def _(statement: Dispatch, build: Builder, context: Context) -> None:
    """Write rows of tokens to the ranks of their experts."""
    # A token's gates go beside its row, so their small messages wait for no other.
    known, moved, moves = statement.moved_by, _Passes(build), _Moves(build)
    relays = _Relays.chosen(build, statement.out, statement.x, statement, sums=False)
    lane = GATES if statement.gates else PACKING
    expanded: list[tuple[Slice, Slice, bool, Of]] = []
    tiles = (build.tile(statement.out, *tile, to) for _, tile, to in build.layout(statement.out).filled())
    pieces = (
        (part, tile._replace(rows=rows))
        for tile in tiles
        for part, rows in enumerate(_by_experts(known, tile.rows, statement.parts))
    )
    for number, (part, target) in enumerate(pieces):
        cols = target.cols
        if statement.gates:
            experts = known.experts_of(target.rows)
            cols = Interval(experts.start, experts.stop)
        # A token's gates are one row, with columns for all experts of the rank that gets them.
        by = statement.routed if statement.gates else known
        parameters: Of = {"routing": str(by), "first": target.rows.start, "last": target.rows.stop}
        # Choices that move by themselves are rows of the routed tensor; a rank may get more than tokens.
        packed_as = statement.out if by.each else statement.x
        writing = _Packing(
            build, moves, moved, relays, lane, statement.x, packed_as, number, part, statement.each
        )
        source, packed = writing.tokens(target.rank, cols, parameters)
        expanded.append((target, source, packed, parameters))
    moves.write(_start(build, statement))
    fn = "pick_gates" if statement.gates else "expand_tokens"
    for target, source, packed, parameters in expanded:
        seconds = moved.seconds(target.rank, 2 * target.elements, target)
        lane = GATES if statement.gates else UNPACKING
        build.map(fn, target, source, lane=lane, seconds=seconds, packed=int(packed), **parameters)


@write.register
def _(statement: Combine, build: Builder, context: Context) -> str:
    """Write a combine; return how its sums move where that is one collective."""
    partial = context.partial.get(statement.x, [])
    if partial and (way := _Combining(build, statement, partial).at_once(context)):
        return way
    _Combining(build, statement, partial).write()
    return ""


class _Moves:
    """Messages between pairs of ranks, in steps: at each a rank sends to one other and gets from one.

    If all sent to the same rank first, they would wait for its link one after another. So would the ranks of
    a node if each began with the first rank of the next: they are through with their own node at the same
    time. Hence each begins there with the rank that has its place.
    """

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._steps: list[tuple[tuple[int, ...], int, int, Callable[[], object]]] = []

    def add(self, src: int, dst: int, written: Callable[[], object], phase: tuple[int, ...]) -> None:
        """Add the message of a pair of ranks; smaller phases are written first."""
        # The sort key is (nodes further, places further): node by node, and within a node rotated by place.
        size = min(self._build.machine.fabric.near, self._build.ranks)
        nodes = -(-self._build.ranks // size)
        self._steps.append((phase, (dst // size - src // size) % nodes, (dst - src) % size, written))

    def write(self, start_s: float) -> None:
        """Write all, phase by phase, pairs at the same distance after each other."""
        # start_s: how long each rank waits before its first message.
        steps = [written for *_, written in sorted(self._steps, key=lambda x: x[:3])]
        with self._build.collective(start_s) if start_s else nullcontext():
            for written in steps:
                written()


def _start(build: Builder, statement: Dispatch | Combine) -> float:
    """Return how long moving rows takes to start."""
    # One kernel for low latency has a time of its own. Else it is an exchange of a library; before rows go to
    # experts for the first time another one says how many come to each rank. Gates go with their rows.
    if statement.gates:
        return 0.0
    if statement.each:
        return build.machine.direct_start_s
    # An all-to-all-v needs sizes first; the combine sends back what the dispatch has counted.
    counts = isinstance(statement, Dispatch) and not statement.again
    return build.machine.collective_start_s * (1 + counts)


class _Relays:
    """Ranks that relay rows between nodes, so that each row crosses the network once.

    The relay of a rank in another node is the rank with its place there, as each has a network card beside
    it. Rows of a routed tensor that are in a node are a range of its own, or there are no relays.

    Attributes:
        size: Ranks of a node.
        pieces: The routed rows of each rank of a node, of one part of its experts, by node and part.
        routing: The text of the routing.
        parts: Of the tokens of a rank, so that one is sent on while the next arrives.
    """

    def __init__(self, size: int, pieces: Mapping[tuple[int, int], Sequence[Interval]], routing: str) -> None:
        self.size, self.pieces, self.routing, self.parts = size, pieces, routing, 1
        # The same without those that several ranks have, as ranges.
        self.rows = {key: tuple(Interval(*x) for x in merged(spans)) for key, spans in pieces.items()}
        self.nodes = 1 + max(node for node, _ in pieces)
        self.held: dict[Hashable, Slice] = {}

    @classmethod
    def chosen(
        cls,
        build: Builder,
        routed: str,
        tokens: str,
        statement: Dispatch | Combine,
        sums: bool,
        partial: Sequence[tuple[int, Slice]] = (),
    ) -> "_Relays | None":
        """Return the relays by which a routed tensor and tokens are moved; None if they are no faster."""
        # tokens: the tensor of tokens. sums: whether sums of rows move. partial: partial sums of its rows
        # that ranks keep, if they do.
        fabric = build.machine.fabric
        size = fabric.near
        if (
            statement.gates
            or statement.each
            or not fabric.cards
            or not 1 < size < build.ranks <= build.machine.device_count
            or build.ranks % size
        ):
            return None
        spans, pieces = dict[int, Interval](), dict[tuple[int, int], list[Interval]]()
        layout = build.layout(routed)
        if any(x.cols.size < layout.shape[1] for _, x in partial):
            return None
        kept = [(x.rank, (x.rows, x.cols)) for _, x in partial]
        copies = max(Counter(x.rows for _, x in partial).values(), default=1)
        tiles = (rows.size for _, (rows, _) in _held_rows(build.layout(tokens)))
        if copies > 1 and copies * max(tiles, default=0) > statement.routed.tokens:
            return None  # the sums of a tile would not fit beside each other
        for rank, (rows, _) in kept or _held_rows(layout):
            span = spans.get(rank // size, rows)
            spans[rank // size] = Interval(min(span.start, rows.start), max(span.stop, rows.stop))
            for part, piece in enumerate(_by_experts(statement.routed, rows, statement.parts)):
                pieces.setdefault((rank // size, part), []).append(piece)
        ordered = sorted(spans.values())
        if len(ordered) < 2:  # all rows are in one node
            return None
        # Rows of nodes that overlap in part have no single node to relay to.
        if any(one.stop > other.start and one != other for one, other in pairwise(ordered)):
            return None
        if sums and len(set(ordered)) < len(ordered):  # nodes have different columns of the same rows
            return None
        relays = cls(size, pieces, statement.routing)
        return relays if relays._gain(build, tokens) > 0 else None

    def relay(self, node: int, rank: int) -> int:
        """Return the rank of a node that relays for a rank of another node."""
        return node * self.size + rank % self.size

    def distance(self, src: int, dst: int) -> int:
        """Return how many nodes further a rank is, round all nodes; from nearer ones messages come first."""
        return (dst // self.size - src // self.size) % self.nodes

    def apart(self, one: int, other: int) -> bool:
        """Whether two ranks are in different nodes."""
        return one // self.size != other // self.size

    def _gain(self, build: Builder, tokens: str) -> float:
        """Return about how many seconds relays save: the rank with most to send, over its card and inside."""
        # What is passed on inside goes behind what comes from the next node, all but the last message. To
        # each other node goes one message a part, where each of its ranks would get one, some of them at
        # once.
        machine, known = build.machine, routing(self.routing)
        owned = list(_held_rows(build.layout(tokens)))
        edges = np.array([rows for _, (rows, _) in owned]).T
        node = np.array([rank // self.size for rank, _ in owned])
        direct, relayed = np.zeros(len(owned)), np.zeros(len(owned))
        if build.layout(tokens).replicas > 1:
            return 0.0
        for (at, part), rows in self.rows.items():
            # Token lists are sorted, so a rank's count is the distance of two binary searches.
            first, last = np.searchsorted(known.tokens_of_all(rows), edges)
            relayed += (last - first) * (node != at)
            for piece in self.pieces[at, part]:
                first, last = np.searchsorted(known.tokens_of(piece), edges)
                direct += (last - first) * (node != at)
        if not direct.max():
            return 0.0
        tensor = build.tensors[build.number(tokens)]
        row = tensor.layout.shape[1] * tensor.itemsize
        # Devices 0 and `size` are the first of two neighbouring nodes and stand for any pair of nodes.
        route = machine.fabric.route(0, self.size)
        card, inside = float(min(machine.link_bandwidth[x] for x in route)), _inside(machine)
        step = machine.launch_s + machine.transfer_overhead_s
        messages = len(self.rows) - max(part + 1 for _, part in self.rows)  # which are parts already
        # More parts overlap the card with the links inside, until messages are so small that starts dominate.
        self.parts = max(1, min(round(AT_ONCE / messages), int(relayed.max() * row / messages / LEAST_PART)))
        passed, hidden = direct.max() * row / inside, (messages - 1) * relayed.max() * row / card / messages
        last = max(passed / messages, passed - hidden)
        starts = (messages - messages * self.size / SMALL_LANES) * step
        return float((direct.max() - relayed.max()) * row / card - last - starts)


def _held_rows(layout: Layout) -> Iterator[tuple[int, Region]]:
    """Yield the rank of each tile of a tensor, and its rows and columns."""
    for rank, tile, _ in layout.filled():
        yield rank, layout.tile_bounds(tile)


class _Passes:
    """Seconds of passes over memory; those of one statement at a rank are one kernel, launched once."""

    def __init__(self, build: Builder) -> None:
        self._build = build
        self._launched: set[int] = set()

    def seconds(self, rank: int, elements: int, like: Slice) -> float:
        """Return the seconds of reading and writing so many elements of a slice's type."""
        machine = self._build.machine
        pace = cost.pace_of(machine, np.array(rank), self._build.ranks).memory
        launch = 0.0 if rank in self._launched else machine.launch_s
        self._launched.add(rank)
        nbytes = elements * self._build.tensors[like.tensor].itemsize
        return launch + float(nbytes / machine.work_bandwidth / pace)


class _Packing(NamedTuple):
    """How the tokens of a statement are moved to ranks that have routed rows of them."""

    build: Builder  # where the actions go
    moves: _Moves  # where moving them goes
    moved: _Passes  # what passes over memory take
    relays: _Relays | None  # by which they go between nodes, if so
    lane: str  # of what is computed
    name: str  # the tensor of tokens
    packed_as: str  # the tensor whose rows are packed tokens
    number: int  # of the rows that need them, for their room
    part: int  # of its rank's rows; earlier parts are moved first
    direct: bool  # whether one kernel for low latency moves them

    def tokens(self, rank: int, cols: Interval, parameters: Of) -> tuple[Slice, bool]:
        """Return the tokens of some routed rows in a rank's memory, and whether they are packed."""
        # If all between the first and the last are needed, or the rank has them, they are read as they are.
        build, name, relays = self.build, self.name, self.relays
        known = routing(parameters["routing"])
        tokens = known.tokens_of(Interval(parameters["first"], parameters["last"]))
        hull = Interval(int(tokens[0]), int(tokens[-1]) + 1)
        layout = build.layout(name)
        replica = layout.replica(rank)
        owned = own_part(build, name, rank, hull, cols)
        if owned is not None:
            return owned, False
        # If all tokens of the range are needed, the tile is contiguous and a plain get replaces pack and put.
        packed = len(tokens) < hull.size or known.each or relays is not None
        needed: Of = {
            "routing": parameters["routing"],
            "needed": _text([Interval(parameters["first"], parameters["last"])]),
        }
        span = Interval(0, len(tokens)) if packed else hull
        kept_as = self.packed_as if packed else name
        room = build.temporary(rank, kept_as, span, cols, slot=("experts", name, self.number))
        for tile in layout.overlapping_tiles(hull, cols):
            source = build.tile(name, *tile, replica).cut(hull, cols)
            if not packed:
                into = room.cut(source.rows, source.cols)
                got = partial(build.get, source, into, **self._how(source, into))
                self.moves.add(source.rank, rank, got, (1, self.part, 0))
                continue
            if relays is not None and relays.apart(source.rank, rank):
                owned = build.tile(name, *tile, replica).cut(layout.tile_bounds(tile)[0], cols)
                outer = needed | {"outer": _text(relays.rows[rank // relays.size, self.part])}
                for number in range(relays.parts):
                    part = owned.part(number, relays.parts)
                    into = room.cut(_places(tokens, part.rows), part.cols)
                    held_at = self._relayed(relays, part, rank // relays.size)
                    key = "passed", tile, number
                    sent = partial(self._sent, "repack_tokens", held_at, into, key, outer)
                    # Passing on waits for arrivals, so messages from nearer nodes, which arrive first, are
                    # passed on first.
                    phase = 1 + relays.distance(source.rank, rank) * relays.parts + number
                    self.moves.add(held_at.rank, rank, sent, (1, self.part, phase))
            else:
                into = room.cut(_places(tokens, source.rows), source.cols)
                sent = partial(self._sent, "pack_tokens", source, into, ("packed", tile), needed)
                self.moves.add(source.rank, rank, sent, (1, self.part, 0))
        return room, packed

    def _relayed(self, relays: _Relays, source: Slice, node: int) -> Slice:
        """Return a tile's tokens that a node needs, at its relay; they are sent once, before rows inside."""
        # One message per source and node, whichever rank of the node asks first.
        key = source.rank, source.rows, source.cols, node, self.part
        if key not in relays.held:
            needed, at = relays.rows[node, self.part], relays.relay(node, source.rank)
            rows = _places(routing(relays.routing).tokens_of_all(needed), source.rows)
            room = self.build.temporary(at, self.name, rows, source.cols, slot=("relay", self.name, key))
            relays.held[key] = room
            parameters: Of = {"routing": relays.routing, "needed": _text(needed)}
            sent = partial(self._sent, "pack_tokens", source, room, key, parameters, NETWORK)
            self.moves.add(source.rank, at, sent, (0, self.part))
        return relays.held[key]

    def _sent(
        self, fn: str, source: Slice, into: Slice, key: Hashable, parameters: Of, lane: str = ""
    ) -> None:
        """Write that a rank packs the needed rows of a tile and sends them."""
        build, piece = self.build, into
        if not into.elements:
            return
        if source.rank != into.rank:
            slot = ("packed", self.name, self.number, key)
            piece = build.temporary(source.rank, self.packed_as, into.rows, into.cols, slot=slot)
        seconds = self.moved.seconds(source.rank, 2 * piece.elements, piece)
        build.map(fn, piece, source, lane=self.lane, seconds=seconds, **parameters)
        if piece != into:
            build.put(piece, into, **self._how(piece, into, lane))

    def _how(self, source: Slice, into: Slice, lane: str = "") -> How:
        if self.lane == GATES:
            return {"lane": f"{GATES}.{(into.rank + source.rank) % GATE_LANES}"}
        return _how(self.build, source, into, lane, direct=self.direct)


class _Combining:
    """Sums of each token's rows on the ranks of a builder, back from the ranks of its experts."""

    def __init__(self, build: Builder, statement: Combine, partial: Sequence[tuple[int, Slice]]) -> None:
        self.build, self.statement = build, statement
        # Partial sums of the rows that ranks keep, with the replica that each is of; none where the tensor
        # has all of it.
        self.partial = partial
        self.moved, self.moves = _Passes(build), _Moves(build)
        self.added: list[tuple[str, Slice, tuple[Slice, ...], Of]] = []

    def at_once(self, context: Context) -> str:
        """Write that ranks add up their rows of all tokens, and one collective these; return how it moves.

        Nothing if that moves more.
        """
        build, statement = self.build, self.statement
        known, out, groups_of = statement.routed, build.layout(statement.out), statement.routed.data
        routed = build.layout(statement.x)
        if statement.each or build.ranks % groups_of or routed.replicas > 1:
            return ""
        mesh = f"{groups_of}x{build.ranks // groups_of}:r-" if groups_of > 1 else f"{build.ranks}"
        tokens = Layout.parse(f"row@{mesh}", out.shape, build.ranks)
        groups, spans = collectives_of(tokens, out), held(tokens)
        if groups is None or spans is None or any(x.cols.size < routed.shape[1] for _, x in self.partial):
            return ""
        sources: dict[int, list[Slice]] = {}
        for _, source in self.partial:
            sources.setdefault(source.rank, []).append(source)
        sent = Counter[int]()
        within = {rank: Interval(*spans[rank, :2].tolist()) for ranks in groups.ranks for rank in ranks}
        for rank, pieces in sources.items():
            inside = [len(known.tokens_of(x.rows, within.get(rank, Interval(0, 0)))) for x in pieces]
            if sum(inside) < sum(len(known.tokens_of(x.rows)) for x in pieces):
                return ""  # rows of another group's tokens
            if sum(inside) > routed.shape[0]:
                return ""  # several products of one row, more sums than a temporary of the rows has room for
            sent[rank] = sum(inside)
        # One by one, sums go to each rank that wants them; at once every token moves, twice in an all-reduce.
        everywhere = groups.what == "all-reduce"
        wanted, moves = (len(groups.ranks[0]), 2) if everywhere else (1, 1)
        if moves * max(x.size for x in within.values()) > wanted * max(sent.values()):
            return ""
        cols, given, unsummed = Interval(0, out.shape[1]), dict[int, Slice](), context.unsummed
        with_next = everywhere and unsummed is not None
        for rank, rows in within.items():
            room = given[rank] = (
                build.own(statement.out, rank)
                if with_next
                else build.temporary(rank, statement.out, rows, cols, slot=("combine", "at once"))
            )
            self._add_up_all(room, sources.get(rank, []))
        if everywhere and unsummed is not None:
            unsummed.add(statement.out)
            return f"{DONE[groups.what]} with the next product"
        return sum_groups(build, groups, tokens, statement.out, given, context)

    def _add_up_all(self, room: Slice, sources: Sequence[Slice]) -> None:
        """Write the sums of a rank's rows for all tokens of a room, 0 for those without one."""
        build, statement, rows = self.build, self.statement, room.rows
        counts = [len(statement.routed.tokens_of(x.rows, rows)) for x in sources]
        parameters: Of = {"routing": statement.routing, "first": rows.start, "last": rows.stop}
        if counts == [rows.size]:
            self.add_up(room, sources[0], parameters | {"base": rows.start})
            return
        if not any(counts):
            build.map("zero", room)
            return
        span = Interval(0, sum(counts))
        packed = build.temporary(room.rank, statement.x, span, room.cols, slot=("combine", "packed"))
        for source, count, first in zip(sources, counts, accumulate(counts, initial=0), strict=False):
            if count:
                piece = packed.cut(Interval(first, first + count), room.cols)
                self.add_up(piece, source, parameters | {"base": first})
        sets = _sets((x.rows,) for x, count in zip(sources, counts, strict=True) if count)
        how: Of = {"routing": statement.routing, "sets": sets}
        self.map("add_parts", room, packed, PACKING, packed.elements + room.elements, how)

    def write(self) -> None:
        """Write each token's sums one by one."""
        build, one = self.build, self.statement
        relays = _Relays.chosen(build, one.x, one.out, one, sums=True, partial=self.partial)
        parts = 1 if relays is None else relays.parts
        targets = (
            (part, target.part(part, parts)) for part in range(parts) for target in tiles_of(build, one.out)
        )
        for number, (part, target) in enumerate(targets):
            if target.elements:
                self._sum(number, part, target, relays)
        self.moves.write(_start(build, one))
        for fn, into, rooms, parameters in self.added:
            elements = into.elements + sum(x.elements for x in rooms)
            self.map(fn, into, rooms, UNPACKING, elements, parameters)

    def _sum(self, number: int, part: int, target: Slice, relays: _Relays | None) -> None:
        """Write the sums of one tile of tokens, or of a part of it."""
        build, one, rank = self.build, self.statement, target.rank
        cols = Interval(0, 1) if one.gates else target.cols
        counts, order = dict[Rows, int](), dict[Slice, int]()
        for tile in self._sources(rank, cols):
            for part_of_tile, piece in enumerate(_by_experts(one.routed, tile.rows, one.parts)):
                counts[piece,] = self._rows_for((piece,), target.rows)
                if counts[piece,]:
                    order[tile._replace(rows=piece)] = part_of_tile
        if not order:
            build.map("zero", target)
            return
        near, far = _by_node(relays, order, rank)
        numbers = _numbered(order)
        # What one node sends is of its routed rows; in its own node each rank sends its sums.
        passed = {x: relays.rows[x] for x in far} if relays else {}
        counts |= {rows: self._rows_for(rows, target.rows) for rows in passed.values()}
        spans = sorted({((x.rows,), numbers[x]) for x in near} | {(rows, 0) for rows in passed.values()})
        total = {x: counts[x[0]] for x in spans}
        # One sender with a row for every token: its sums are the result and arrive in place.
        alone = len(spans) == 1 and total[spans[0]] == target.rows.size and not one.gates
        places: dict[Key, Slice] = {spans[0]: target} if alone else {}
        for batch, keys in enumerate(() if alone else _batches(total, build.layout(one.x).shape[0])):
            span = Interval(0, sum(total[x] for x in keys))
            room = build.temporary(rank, one.x, span, cols, slot=("combine", number, batch))
            senders = {*keys}  # of p ranks: in a list they would be looked through p³ times
            widths = Counter[Key]()
            for x in near:
                widths[(x.rows,), numbers[x]] += x.cols.size
            # Sources of the same rows and number may not have all columns together.
            if any(width < cols.size for key, width in widths.items() if key in senders):
                build.map("zero", room)
            # Each sender's sums are one contiguous run of the room, so one message carries them.
            starts = accumulate((total[x] for x in keys), initial=0)
            places |= {x: _rows_at(room, start, total[x]) for x, start in zip(keys, starts, strict=False)}
            fn = "spread_gates" if one.gates else "add_parts"
            sets: Of = {"routing": str(one.moved_by), "sets": _sets(rows for rows, _ in keys)}
            if batch:
                slot = ("combine", "more", number)
                more = build.temporary(rank, one.out, target.rows, cols, slot=slot)
                self.added += [(fn, more, (room,), sets), ("add_copy", target, (target, more), {})]
            else:
                self.added.append((fn, target, (room,), sets))
        parameters: Of = {
            "routing": str(one.moved_by), "first": target.rows.start, "last": target.rows.stop,
        }  # fmt: skip
        sending = _Sending(self, number, numbers, counts, parameters)
        for source in near:
            sending.add([source], places, (order[source], LAST))
        if relays is not None:
            for at, group in far.items():
                sending.relay(relays, at, group, places[passed[at], 0], part)

    def _rows_for(self, rows: Rows, tokens: Interval) -> int:
        """Return how many rows some tokens get from some routed rows."""
        known = self.statement.moved_by
        if self.statement.gates:
            return sum(known.count_for(x, tokens) for x in rows)
        return len(known.tokens_of_all(rows, tokens))

    def _sources(self, rank: int, cols: Interval) -> Iterator[Slice]:
        """Yield the tiles of rows, or partial sums, in some columns of the replica that a rank is in."""
        layout = self.build.layout(self.statement.x)
        replica = layout.replica(rank)
        if self.partial:
            pieces = (x.cut(x.rows, cols) for number, x in self.partial if number == replica)
            yield from (x for x in pieces if x.elements)
            return
        yield from pieces_in(self.build, self.statement.x, replica, Interval(0, layout.shape[0]), cols)

    def map(
        self, fn: str, into: Slice, reads: Slice | Sequence[Slice], lane: str, elements: int, how: Of
    ) -> None:
        """Write a pass over so many elements."""
        rank, operands = into.rank, (reads,) if isinstance(reads, Slice) else reads
        seconds = self.moved.seconds(rank, elements, into)
        self.build.map(fn, into, *operands, lane=lane, seconds=seconds, **how)

    def add_up(self, piece: Slice, source: Slice, parameters: Of) -> None:
        """Write the sums of the rows of one tile for some tokens, or with gates these rows."""
        one, reads = self.statement, [source]
        if one.gates:
            self.map("pick_rows", piece, source, PACKING, 2 * piece.elements, parameters)
            return
        if one.scale:
            slot = ("scale", source.rows)
            scale = gathered(self.build, one.scale, source.rank, source.rows, Interval(0, 1), slot)
            reads.append(scale)
        count = one.routed.count_for(source.rows, Interval(parameters["first"], parameters["last"]))
        fn = "add_weighted_rows" if one.scale else "add_rows"
        self.map(fn, piece, reads, PACKING, count * piece.cols.size + piece.elements, parameters)


def _rows_at(room: Slice, first: int, count: int) -> Slice:
    """Return some rows of a room, in all its columns."""
    return room.inner(Interval(first, first + count), room.cols)


def _batches(total: Mapping[Key, int], most: int) -> list[list[Key]]:
    """Return keys in as few lists as have at most so many rows together each, one key at least."""
    result, together = list[list[Key]](), 0
    for key, rows in total.items():
        together += rows
        if not result or together > most:
            result.append([])
            together = rows
        result[-1].append(key)
    return result


def _numbered(sources: Iterable[Slice]) -> dict[Slice, int]:
    """Return a number for each source, different for those with the same rows that share columns."""
    result, alike = dict[Slice, int](), dict[Interval, list[list[Slice]]]()
    for source in sources:
        several = alike.setdefault(source.rows, [])
        apart = (all(not source.cols.intersect(y.cols).size for y in x) for x in several)
        number = next((i for i, x in enumerate(apart) if x), -1)
        if number < 0:
            number = len(several)
            several.append([])
        several[number].append(source)
        result[source] = number
    return result


def _by_experts(known: Routing, rows: Interval, parts: int) -> list[Interval]:
    """Return routed rows cut between experts into so many parts, as far as there are experts; none empty."""
    if parts <= 1:
        return [rows] if rows.size else []
    slots = known.slots_of(rows)
    count = min(parts, len(slots))
    # Cut by number of experts, not rows: each part is then a grouped multiply of whole experts.
    firsts = [slots[len(slots) * part // count] for part in range(count)] + [slots.stop]
    spans = (Interval(int(known.edges[a]), int(known.edges[b])) for a, b in pairwise(firsts))
    return [piece for piece in map(rows.intersect, spans) if piece.size]


def _by_node(
    relays: _Relays | None, order: Mapping[Slice, int], rank: int
) -> tuple[list[Slice], dict[tuple[int, int], list[Slice]]]:
    """Return sources that send to a rank by themselves, and those that send through a relay."""
    # order: of each source the part of its rank's experts.
    near, far = list[Slice](), dict[tuple[int, int], list[Slice]]()
    for source, part in order.items():
        if relays is not None and relays.apart(source.rank, rank):
            far.setdefault((source.rank // relays.size, part), []).append(source)
        else:
            near.append(source)
    return near, far


def _how(build: Builder, source: Slice, into: Slice, lane: str = "", direct: bool = False) -> How:
    """Return how a message goes: a kernel moves it, whose blocks take of the device beside multiplies."""
    # Small ones are sent by threads of one kernel, to many ranks at once.
    if direct:  # in a collective
        return {"lane": f"direct.{(into.rank + source.rank) % DIRECT_LANES}"}
    machine, size = build.machine, build.machine.fabric.near
    nbytes = into.elements * build.tensors[into.tensor].itemsize
    how: How = {"means": COLLECTIVE} if COLLECTIVE in machine.means and source.rank != into.rank else {}
    # The sum of both ranks spreads the messages of each rank over its lanes.
    if not lane and nbytes < LEAST_PART:
        lane = f"small.{(into.rank + source.rank) % SMALL_LANES}"
    elif not lane and size > 1 and machine.fabric.cards and into.rank // size != source.rank // size:
        lane = f"{NETWORK}.{into.rank % size}"
    elif not lane and (ways := _ways(machine)) > machine.copy_engines:
        lane = f"{INSIDE}.{(into.rank - source.rank) % ways}"
    return {**how, "lane": lane} if lane else how


@lru_cache(maxsize=16)
def _ways(machine: Machine) -> int:
    """Return over how many links a device sends to those of its node, such as seven in a mesh of eight."""
    size = machine.fabric.near if machine.fabric.near > 1 else machine.device_count
    return len({machine.fabric.route(0, other)[0] for other in range(1, size)})


@lru_cache(maxsize=16)
def _inside(machine: Machine) -> float:
    """Return the bytes/s that each device of a node can send if all send as much to each of the others."""
    size = machine.fabric.near
    # The busiest link of a uniform all-to-all decides, which covers switches, meshes and rings alike.
    crossed = Counter(x for pair in permutations(range(size), 2) for x in machine.fabric.route(*pair))
    return (size - 1) / max(count / float(machine.link_bandwidth[x]) for x, count in crossed.items())


def _places(tokens: Ints, rows: Interval) -> Interval:
    """Return where some rows of tokens are among those that are packed."""
    return Interval(*np.searchsorted(tokens, (rows.start, rows.stop)).tolist())


def _text(rows: Iterable[Interval]) -> str:
    return "+".join(f"{span.start}-{span.stop}" for span in rows)


def _sets(sets: Iterable[Rows]) -> str:
    return ",".join(map(_text, sets))


class _Sending(NamedTuple):
    """How the sums of a tile of tokens are moved to its owner."""

    combining: _Combining
    number: int  # of the tile, for its room
    numbers: Mapping[Slice, int]  # of sources with the same rows
    counts: Mapping[Rows, int]  # rows that the tile gets from some routed rows
    parameters: Of  # of the functions that add up rows of its tokens

    def add(self, sources: Sequence[Slice], places: Mapping[Key, Slice], phase: tuple[int, int]) -> None:
        """Write that ranks add up their rows of each token and send the sums to where some begin."""
        for source in sources:
            room = places[(source.rows,), self.numbers[source]]
            into = room.cut(room.rows, source.cols)
            key = ("combine", "sent", self.number, source.rows, source.cols)
            sent = partial(self._sent, source, into, key, self.parameters | {"base": room.rows.start})
            self.combining.moves.add(source.rank, room.rank, sent, phase)

    def relay(
        self, relays: _Relays, at: tuple[int, int], sources: Sequence[Slice], into: Slice, part: int
    ) -> None:
        """Write that a relay adds up the rows of each token in its node and sends the sums."""
        node, order = at
        sets = sorted({((x.rows,), self.numbers[x]) for x in sources})
        counts = [self.counts[rows] for rows, _ in sets]
        starts = accumulate(counts, initial=0)
        rank, key = relays.relay(node, into.rank), ("combine", "relay", self.number, at)
        name, rows = self.combining.statement.x, Interval(0, sum(counts))
        room = self.combining.build.temporary(rank, name, rows, into.cols, slot=(*key, "held"))
        # A relay adds up after it has sent its own sums of the next message, so that it does not wait.
        phase = 2 * (relays.distance(sources[0].rank, into.rank) * relays.parts + part)
        places: dict[Key, Slice] = {
            x: _rows_at(room, start, self.counts[x[0]]) for x, start in zip(sets, starts, strict=False)
        }
        self.add(sources, places, (order, phase))
        more: Of = {
            "sets": _sets(rows for rows, _ in sets), "outer": _text(relays.rows[at]), "base": into.rows.start,
        }  # fmt: skip
        sent = partial(self._passed, room, into, key, self.parameters | more)
        self.combining.moves.add(rank, into.rank, sent, (order, phase + 3))

    def _sent(self, source: Slice, into: Slice, key: Hashable, parameters: Of) -> None:
        """Write that a rank adds up its rows of a tile for some tokens and sends the sums."""
        build, direct = self.combining.build, self.combining.statement.each
        piece = into if source.rank == into.rank else room_for(build, into, source.rank, key)
        self.combining.add_up(piece, source, parameters)
        if piece != into:
            build.put(piece, into, **_how(build, piece, into, direct=direct))

    def _passed(self, room: Slice, into: Slice, key: Hashable, parameters: Of) -> None:
        build = self.combining.build
        piece = room_for(build, into, room.rank, key)
        self.combining.map("add_packed", piece, room, PACKING, room.elements + piece.elements, parameters)
        build.put(piece, into, **_how(build, piece, into, NETWORK))

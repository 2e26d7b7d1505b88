"""Ranks that shall have the same tile gather its pieces by a collective among them."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from umm.arrays import Ints
from umm.interval import Interval
from umm.plans.collectives.way import OWN, Exchange, Way
from umm.plans.redistribution.pieces import Piece, gets
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.writer.builder import Builder, How, Row

Group = tuple[int, ...]
GATHERING = ("all-gather", "broadcast")


class Share(NamedTuple):
    """Part of a tile that one rank of a group has, or will have got, and the others gather from it."""

    rank: int
    piece: Piece


def gathers(way: Way) -> bool:
    """Whether ranks gather a tile in a way; direct gets have another name here, MPI's is for panels."""
    return way.name not in ("direct", "mpi") and any(what in way.writers for what in GATHERING)


def refusal(build: Builder, pieces: Iterable[Piece], way: Way) -> str | None:
    """Return why a way cannot serve the groups; None if it can."""
    groups = _groups(pieces)
    if not groups:
        return "no rank lacks what another will have too"
    for group, theirs in groups.items():
        root = _root(theirs)
        what, ranks = ("all-gather", group) if root is None else ("broadcast", _with(root, group))
        if what not in way.writers:
            return f"it does no {what}"
        why = way.refuses(build.machine, ranks, build.ranks)
        if why is not None:
            return why
    return None


def collective(build: Builder, pieces: list[Piece], way: Way) -> None:
    """Broadcast pieces of one rank to each group; else bring each rank a share, and gather the shares."""
    groups = _groups(pieces)
    grouped = {id(piece) for theirs in groups.values() for piece in theirs}
    rooted = {group: _root(theirs) for group, theirs in groups.items()}
    # van de Geijn's idea for several owners: scatter equal shares first, then all-gather them, so that no
    # owner sends all its bytes to everyone.
    shares = {group: _shares(group, groups[group]) for group, root in rooted.items() if root is None}
    brought = [
        Piece(piece.held, {rank: piece.wanted[rank]})
        for theirs in shares.values()
        for rank, piece in theirs
        if rank not in piece.held
    ]
    # By identity, as pieces hold dictionaries and cannot be hashed.
    gets(build, brought + [piece for piece in pieces if id(piece) not in grouped])
    if brought:  # who began to pass on what it has would slow down those who still wait for theirs
        build.barrier()
    with build.collective():  # all groups at once: their ranks wait for one start
        for group, root in rooted.items():
            if root is None:
                _gather(build, group, shares[group], way)
                continue
            for piece in groups[group]:
                # A root that is not of the group takes part with what it has.
                into = {root: piece.held[root], **piece.wanted}
                ranks = _with(root, group)
                way.writers["broadcast"](Exchange(build, ranks, piece.held[root], into.__getitem__))


def _groups(pieces: Iterable[Piece]) -> dict[Group, list[Piece]]:
    """Return the pieces that several ranks want and some lack, by the ranks that want them."""
    groups: dict[Group, list[Piece]] = {}
    for piece in pieces:
        if len(piece.wanted) > 1 and piece.takers:
            groups.setdefault(tuple(sorted(piece.wanted)), []).append(piece)
    return groups


def _root(pieces: list[Piece]) -> int | None:
    """Return the one rank that has all of some pieces; None if there is none, or another has some too."""
    holders = {rank for piece in pieces for rank in piece.held}
    return holders.pop() if len(holders) == 1 else None


def _with(root: int, group: Group) -> Group:
    return group if root in group else (root, *group)


def _shares(group: Group, pieces: list[Piece]) -> list[Share]:
    """Shares that the ranks of a group give each other: pieces they have, or will receive."""
    # No share is larger than an equal one; ranks receive the elements that they lack.
    # An all-gather takes as long as its largest share; equal shares are the best there are.
    equal = -(-sum(piece.elements for piece in pieces) // len(group))
    given = dict.fromkeys(group, 0)
    shares = []
    # Greedy (longest first, to the rank with least so far); pieces that a member already has come first,
    # since only they are bound to certain ranks.
    both = [(sorted(piece.held.keys() & piece.wanted.keys()), piece) for piece in pieces]
    for givers, piece in sorted(both, key=lambda x: (not x[0], -x[1].elements)):
        most = max(1, len(givers))
        share = equal * most
        # Those who have it give all of it anyway. Rows of a layout that do not divide are fewer than twice an
        # equal share, and a second round among those who have more than that would find its ranks unequal.
        parts = most * max(1, piece.elements // share if givers else -(-piece.elements // share))
        for part in piece.cut(parts):
            rank = min(givers or group, key=given.__getitem__)
            given[rank] += part.elements
            shares.append(Share(rank, part))
    return shares


def _gather(build: Builder, group: Group, shares: list[Share], way: Way) -> None:
    """Gather shares, in as many rounds as the rank with most of them has."""
    by_rank: dict[int, list[Piece]] = {rank: [] for rank in group}
    for rank, piece in sorted(shares, key=lambda share: -share.piece.elements):
        by_rank[rank].append(piece)
        for other in piece.held.keys() & piece.wanted.keys() - {rank}:
            build.get(piece.held[other], piece.wanted[other], lane=OWN)
    nothing = Slice(-1, -1, -1, Interval(0, 0), Interval(0, 0))
    # A collective writes a transfer to every member; this wrapper drops those to members that have the piece.
    lacking = cast(Builder, _Lacking(build, {x for _, piece in shares for x in piece.held.values()}))
    # An all-gather takes one piece a rank, so ranks with several take part in several rounds.
    turns = [
        _Turn({rank: theirs[number] for rank, theirs in by_rank.items() if number < len(theirs)}, nothing)
        for number in range(max(map(len, by_rank.values())))
    ]
    way.write_all("all-gather", [Exchange(lacking, group, turn.given, turn) for turn in turns])


class _Turn:
    """Where ranks gather one piece of each: for each pair of ranks where the first has that of the second."""

    def __init__(self, turn: dict[int, Piece], nothing: Slice) -> None:
        self._turn, self._nothing = turn, nothing

    def given(self, rank: int) -> Slice:
        """Slice that a rank gives: one that it has, or will have got."""
        if rank not in self._turn:
            return self._nothing
        piece = self._turn[rank]
        return piece.held.get(rank, piece.wanted[rank])

    def __call__(self, rank: int, origin: int) -> Slice:
        """Return it for one pair."""
        if origin not in self._turn:
            return self._nothing
        piece = self._turn[origin]
        # The origin's copy goes to where it is wanted; any other holder is shown its own copy, which
        # `_Lacking` recognises.
        return piece.wanted[rank] if rank == origin else piece.held.get(rank, piece.wanted[rank])

    def columns(self, ranks: Ints, origins: Ints) -> Slices:
        """Return it for many pairs, which pieces are looked up for origin by origin."""
        slices = Slices.of([self._nothing] * len(ranks))
        order = origins.argsort(kind="stable")
        for some in np.split(order, np.diff(origins[order]).nonzero()[0] + 1):
            origin = int(origins[some[0]]) if len(some) else -1
            if origin in self._turn:
                piece = self._turn[origin]
                slice_of = {**piece.wanted, **piece.held, origin: piece.wanted[origin]}
                (top, bottom), (left, right) = piece.wanted[origin].rows, piece.wanted[origin].cols
                which = [slice_of[x] for x in ranks[some].tolist()]
                slices.buffer[some] = [x.buffer for x in which]
                slices.tensor[some] = [x.tensor for x in which]
                slices.spans[some] = top, bottom, left, right
                slices.rank[some] = ranks[some]
        return slices


class _Lacking:
    """A Builder that leaves out moves to ranks that have the piece; those pass on their own copy."""

    def __init__(self, build: Builder, slices: Iterable[Slice]) -> None:
        self._build, self._tensors = build, {piece.tensor for piece in slices}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._build, name)

    def get(self, source: Slice, into: Slice, **how: Any) -> Row:
        """Get it unless it is there."""
        return None if into.tensor in self._tensors else self._build.get(source, into, **how)

    def put(self, source: Slice, into: Slice, **how: Any) -> Row:
        """Put it unless it is there."""
        return None if into.tensor in self._tensors else self._build.put(source, into, **how)

    def transfers(self, kind: Ints, source: Slices, into: Slices, hows: Sequence[How], how: Ints) -> None:
        """Write those that move to where it is not yet."""
        # Slices of the source tensor are read-only here: a transfer into one would overwrite what is given.
        new = ~np.isin(into.tensor, list(self._tensors))
        self._build.transfers(kind[new], source.taken(new), into.taken(new), hows, how[new])

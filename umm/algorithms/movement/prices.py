"""What multiplies by collectives take: gemms, and bytes between ranks; without writing an action."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from umm import cost
from umm.algorithms.collectives.rings import nodes_of
from umm.algorithms.movement.blocks import Blocks, groups_of, held
from umm.algorithms.movement.gathers import by_level
from umm.algorithms.movement.multiply import Gathered
from umm.algorithms.movement.sums import Summed, size_of
from umm.arrays import Bools, Floats, Ints
from umm.machines import Machine
from umm.schedules.writer.builder import COLLECTIVE


@dataclass(frozen=True, eq=False)
class Price:
    """What the ranks of a multiply do and move; copies and adds within a rank are left out.

    Attributes:
        gemms: Seconds of each rank's gemms.
        gathered: Bytes charged from rank to rank for each operand, shape (ranks, ranks).
        summed: The same for its sums.
        own: Of those the bytes that are added to what each rank owns, or on the way there.
        copied: Of those the bytes of copies of sums, to their other replicas.
        payload: Bytes of A, B and C that reach the rank that gets most of each, those that move.
        transfers: The most transfers of a rank, about.
    """

    gemms: Floats
    gathered: dict[str, Floats]
    summed: Floats
    own: Floats
    copied: Floats
    payload: dict[str, int]
    transfers: int


def price_of(how: Gathered, machine: Machine) -> Price:
    """Return what a multiply takes."""
    blocks, problem = how.blocks, how.blocks.problem
    sizes = dict(zip("mnk", blocks.sizes, strict=True))
    sizes[how.along] = sizes[how.along] // how.chunks
    took = cost.gemm_seconds(
        machine, problem.dtype, sizes["m"], sizes["n"], sizes["k"], problem.itemsize("C")
    )
    gemms = np.where(blocks.works, how.chunks * took, 0.0)
    p, transfers = problem.p, 0
    gathered, payload = {}, dict[str, int]()
    for x in how.collects:
        between = _gathered(blocks, x, machine)
        transfers = max(transfers, int((between > 0).sum(axis=0).max()))
        between *= problem.itemsize(x)
        payload[x] = int(between.sum(axis=0).max())
        gathered[x] = _charged(between, machine, False)
    summed, own, copied = np.zeros((3, p, p))
    for group in how.sums.groups:
        transfers = max(transfers, len(group.ranks) - 1)
        adds, ends, copies = _add_up(group, machine, p, problem.itemsize("C"))
        payload["C"] = max(payload.get("C", 0), int((adds + copies).sum(axis=0).max()))
        copies = _charged(copies, machine, False)
        summed += _charged(adds, machine, True) + copies
        own += _charged(ends, machine, True)
        copied += copies
    return Price(gemms, gathered, summed, own, copied, payload, transfers * how.chunks)


def _gathered(blocks: Blocks, matrix: str, machine: Machine) -> Floats:
    """Return the elements that gathering A or B moves from rank to rank."""
    layout, need = blocks.problem.layout(matrix), blocks.of(matrix)
    own, replica, p = held(layout), layout.replica_of_rank, len(need)
    assert own is not None
    # What each rank (down) holds of what each rank (across) needs, all pairs at once.
    rows, cols = (
        np.minimum(own[:, i + 1, None], need[:, i + 1]) - np.maximum(own[:, i, None], need[:, i])
        for i in (0, 2)
    )
    has = np.maximum(rows, 0) * np.maximum(cols, 0) * (replica[:, None] == replica)
    between = np.where(blocks.lacks[matrix] & ~np.eye(p, dtype=bool), has, 0).astype(np.float64)
    for _, ranks in groups_of(np.column_stack((need, replica)), blocks.lacks[matrix]):
        if len(ranks) > 3 and by_level(machine, ranks, p):
            theirs = has[:, ranks[0]].astype(np.float64)
            if np.isin(np.flatnonzero(theirs), ranks).all():
                between[:, ranks] = 0.0
                _exchange(between, theirs, np.array(ranks), machine)
    return between


def _charged(nbytes: Floats, machine: Machine, adds: bool) -> Floats:
    """Return what bytes are charged on links at least, whatever the size of messages."""
    means = machine.means.get(COLLECTIVE)
    if means is not None:
        return np.asarray(nbytes / means.efficiency)
    return np.asarray(nbytes / machine.accumulate_efficiency) if adds else nbytes


def _exchange(between: Floats, has: Floats, ranks: Ints, machine: Machine) -> None:
    """Add what an all-gather among ranks moves, of what every rank has."""
    total = len(between)
    owners = np.flatnonzero(has)
    if len(ranks) > 3 and by_level(machine, ranks.tolist(), total) and np.isin(owners, ranks).all():
        nodes = np.array(nodes_of(machine, ranks.tolist(), total))
        share = has[nodes]
        for a in range(len(nodes)):
            for b in range(len(nodes)):
                if a != b:
                    between[nodes[a], nodes[b]] += share[a]
        inside = share.sum(axis=0)
        for node in nodes:
            between[node[:, None], node] += inside[:, None] * (1 - np.eye(len(node)))
        return
    between[owners[:, None], ranks] += has[owners][:, None] * (owners[:, None] != ranks)


def _add_up(group: Summed, machine: Machine, total: int, itemsize: int) -> tuple[Floats, Floats, Floats]:
    """Return the bytes that a sum moves from rank to rank: by its reduce-scatter, then between replicas.

    The second are those of the reduce-scatter that each rank's own part waits for: by level a rank also adds
    up what it passes on to other nodes.
    """
    ranks = np.array(group.ranks)
    each = size_of(group.own) * (itemsize / group.copies)
    adds, copies = np.zeros((total, total)), np.zeros((total, total))
    share = np.zeros(total)
    share[ranks] = each
    back = np.zeros((total, total))
    if by_level(machine, group.ranks, total):
        _exchange(back, share, ranks, machine)  # a reduce-scatter by level is an all-gather backwards
        adds += back.T
        nodes = np.array(nodes_of(machine, group.ranks, total))
        ends = adds.copy()
        for node in nodes:
            ends[np.ix_(node, node)] /= len(nodes)
    else:
        adds[ranks[:, None], ranks] += each * (1 - np.eye(len(ranks)))
        ends = adds
    if group.copies > 1:
        for _, same in groups_of_rows(group):
            theirs = np.zeros(total)
            theirs[same] = share[same]
            _exchange(copies, theirs, same, machine)
    return adds, ends, copies


def groups_of_rows(group: Summed) -> list[tuple[tuple[int, ...], Ints]]:
    """Return the replicas of each piece of a sum."""
    found: dict[tuple[int, ...], list[int]] = {}
    for rank, piece in zip(group.ranks, map(tuple, group.own.tolist()), strict=True):
        found.setdefault(piece, []).append(rank)
    return [(piece, np.array(ranks)) for piece, ranks in found.items()]


def inward_seconds(between: Floats, machine: Machine, lanes: int = 0) -> Floats:
    """Return how long each rank is busy at least with what arrives, shape (3, ranks).

    Args:
        between: Bytes from rank to rank.
        machine: Where.
        lanes: Lanes on which a rank gets that from its node; 0 where others send it.

    Returns:
        First the links from its node, then those from others, then the mean of its lanes.
    """
    near, rates, inverse = _inward(machine, len(between))
    inside, outside = np.where(near, between, 0.0), np.where(near, 0.0, between).sum(axis=0)
    alone = (inside * inverse).sum(axis=0) / lanes if lanes else np.zeros(len(between))
    return np.stack((inside.sum(axis=0) / rates[0], outside / rates[1], alone))


@lru_cache(maxsize=16)
def _inward(machine: Machine, ranks: int) -> tuple[Bools, Floats, Floats]:
    """Return which ranks are in one node, and the bandwidth into each rank from its node and from others.

    The last are the seconds that a byte takes by itself from each rank to each of its node.
    """
    device = np.array([machine.device_of(rank, ranks) for rank in range(ranks)])
    near = device[:, None] // machine.fabric.near == device // machine.fabric.near
    heads = np.unique(device // machine.fabric.near, return_index=True)[1]
    rates, inverse = np.full((2, ranks), np.inf), np.zeros((ranks, ranks))
    for rank in range(ranks):
        far = [x for x in heads.tolist() if not near[x, rank]]
        for level, sources in enumerate((np.flatnonzero(near[:, rank]).tolist(), far)):
            routes = [
                machine.route(int(device[x]), int(device[rank])) for x in sources if device[x] != device[rank]
            ]
            last = {route[-1] for route in routes if route}
            if not level:
                alone = [
                    max((1.0 / machine.link_bandwidth[x] for x in route), default=0.0) for route in routes
                ]
                inverse[[x for x in sources if device[x] != device[rank]], rank] = alone
            if last:
                rates[level, rank] = sum(float(machine.link_bandwidth[link]) for link in last)
    return near, rates, inverse


def busy_links(price: Price, machine: Machine, ranks: int) -> tuple[float, float]:
    """Return how long the busiest rank's links are busy, those in its node and those between nodes.

    Args:
        price: What moves.
        machine: Where.
        ranks: How many.
    """
    between = np.asarray(sum(price.gathered.values(), price.summed))
    near, rates, _ = _inward(machine, ranks)
    found = [0.0, 0.0]
    for level, pairs in enumerate((near, ~near)):
        moved = np.where(pairs, between, 0.0)
        found[level] = max(float((moved.sum(axis=axis) / rates[level]).max()) for axis in (0, 1))
    return found[0], found[1]

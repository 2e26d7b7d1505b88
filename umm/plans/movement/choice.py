"""How a multiply moves its operands and sums, which matrix stays in place, by price, and its schedule."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from umm.dtypes import itemsize
from umm.host.collector import without_collector
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE, COPY_ENGINE
from umm.numbers import parse_whole, whole_in
from umm.plans.collectives.hierarchical import CARD
from umm.plans.collectives.hierarchical import WAY as BY_LEVEL
from umm.plans.collectives.library import BY_LIBRARY
from umm.plans.collectives.replicas import summed
from umm.plans.collectives.rings import nodes_of
from umm.plans.movement.blocks import SIDES, blocks
from umm.plans.movement.copies import at_ranks, gather
from umm.plans.movement.gathers import Operand, sharers
from umm.plans.movement.multiply import Gathered, Products, gathered, multiply_blocks
from umm.plans.movement.prices import Price, busy_links, price_of, price_one_sided
from umm.program.problem import MATRICES, Problem, largest_matrix
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder

AUTO, FLAT, TWO_LEVEL, GATHERED, CHUNKS, LIBRARY = WAYS = (
    "auto", "flat", "two-level", "gathered", "chunks", "library",
)  # fmt: skip
"""How operands and sums move; ``auto`` is flat for one multiply, and in a chain on one node."""
AHEAD = (AUTO, FLAT)  # those that a search of chains tries with prefetch depths of their own
COLLECTIVES = (GATHERED, CHUNKS, LIBRARY)  # those by collectives
MOST_CHUNKS, LEAST_OF_CHUNK = 8, 128
"""Chunks of a multiply at most, and of the dimension that is cut the least in each: a tile of a GEMM."""
WORTH = 0.05  # share by which a multiply in chunks must be faster than a whole one: its messages are smaller
EXPOSED = 0.1  # share of what a collective moves that is taken to be exposed, where ways are compared


MAX_COMPARED_BYTES, FEW_RANKS, LANES = 2**20, 128, 2
"""Bytes of a sum, and ranks, up to which all ways to sum are compared, with so many accumulates in flight."""
COMPLETING = ("complete", "all-reduce", "broadcast")
"""The values of ``final`` that leave every replica of C complete, as collectives do."""


MAX_NAMED = 6  # tensors that a remark names


class Chosen(NamedTuple):
    """How one multiply is done."""

    stationary: str  # the matrix that stays in place
    how: Gathered | None  # By collectives; None for one-sided.
    price: Price | None  # what it takes then


def chosen(problem: Problem, machine: Machine, stationary: str, movement: str) -> Chosen:
    """Return how a multiply of a chain is done.

    On a machine with nodes ``auto`` gathers and sums by collectives wherever ranks hold one tile of each
    matrix: they move no more between any two levels than one-sided gets and accumulates do, and one copy
    serves several multiplies. The stationary matrix ``auto`` is then the one with which it takes least. Where
    the largest one stays only with one-sided sums of few bytes, as others own these than those who multiply,
    ``auto`` is what takes less: one token's row has one owner, who would gather all weights. Few bytes that
    all ranks have, and nothing else, are summed as one-sided products are: in the fastest way. So are sums
    that all of a group have, if their nodes hold unlike numbers of it, where nothing goes by level.

    Args:
        movement: One of :data:`WAYS`; a one-sided one may have a depth, see :func:`of_movement`.
    """
    # The cheap answer first: on one node no block has to be cut.
    if one_sided(machine, problem.p, movement):
        return Chosen(largest_matrix(problem) if stationary == "auto" else stationary, None, None)
    # Part of the cache's key: equal layouts may number their tiles in different ways, where some are empty.
    key = tuple(layout.cuts for layout in problem.layouts)
    choice = _by_collectives(problem, key, machine, stationary, movement)
    # A decode step's sum is latency-bound, and the one-sided ending picks among all known ways of summing.
    few = movement == AUTO and choice.how is not None and _sums_few(choice.how, machine)
    if few or (choice.how is not None and _sums_unlike(choice.how, machine)):
        return Chosen(choice.stationary, None, None)
    if movement == LIBRARY and choice.how is not None and has_library(machine, problem.p):
        return choice._replace(how=replace(choice.how, library=True))
    return choice


def _is_little(problem: Problem) -> bool:
    """Return whether C has few bytes."""
    return problem.m * problem.n * itemsize(problem.c_dtype) <= MAX_COMPARED_BYTES


def _sums_few(how: Gathered, machine: Machine) -> bool:
    """Return whether all that moves is a sum of few bytes over all ranks, faster otherwise than by level."""
    problem, layout = how.blocks.problem, how.blocks.problem.layouts[2]
    few = _is_little(problem) and problem.p <= FEW_RANKS
    if how.collects or not few or layout.replicas < problem.p:
        return False
    return summed("all-reduce", layout, problem.c_dtype, machine, LANES).way != BY_LEVEL.name


def _sums_unlike(how: Gathered, machine: Machine) -> bool:
    """Return whether all that moves is sums that every rank of a group has, over unlike parts of nodes."""
    p, groups = how.blocks.problem.p, [x for x in how.sums.groups if len(x.ranks) > 1]
    if how.collects or not machine.fabric.nodes or any(x.copies < len(x.ranks) for x in groups):
        return False
    return any(len({len(node) for node in nodes_of(machine, x.ranks, p)}) > 1 for x in groups)


def _seconds(price: Price, machine: Machine) -> float:
    """Seconds of a multiply beside others."""
    # What moves then is not all hidden, so of two ways as long the one that moves less.
    moving = busy_links(price.flows, machine)
    # A roofline: the slowest of compute, links in a node and links between nodes, plus a share of all moves.
    return max(float(price.gemms.max()), *moving) + EXPOSED * sum(moving)


def in_words(how: Gathered, machine: Machine, names: Mapping[str, str]) -> str:
    """Return how the operands of a multiply come and how its sum goes: ``X gathered by level``."""
    return ", ".join(f"{names[x]} {what}" for x, what in moves(how, machine).items())


def moves(how: Gathered, machine: Machine) -> dict[str, str]:
    """How each of A, B and C moves, in words: ``gathered by level``."""
    words = {
        x: f"gathered {_level([ranks for ranks, _ in sharers(how.blocks.needed(x))], machine, how)}"
        for x in how.collects
    }
    groups = [group for group in how.sums.groups if len(group.ranks) > 1]
    if groups:
        # copies = ranks: all hold the same sum (all-reduce); copies = 1: each holds its part
        # (reduce-scatter).
        everywhere = all(group.copies == len(group.ranks) for group in groups)
        scattered = all(group.copies == 1 for group in groups)
        what = "all-reduced" if everywhere else "reduce-scattered" if scattered else "summed over copies"
        words["C"] = f"{what} {_level([x.ranks for x in groups], machine, how)}"
    return words


def _level(groups: Sequence[Sequence[int]], machine: Machine, how: Gathered) -> str:
    """Return how groups exchange: by a library, within a node, across nodes one of each, or by level."""
    if how.library and machine.library is not None:
        return f"by {machine.library.name}"
    p, near = how.blocks.problem.p, machine.fabric.near
    if node_count(machine, p) == 1:
        return "by all at once"
    nodes = [{machine.device_of(rank, p) // near for rank in ranks} for ranks in groups]
    if all(len(x) == 1 for x in nodes):
        return "within its node"
    if all(len(x) == len(ranks) for x, ranks in zip(nodes, groups, strict=True)):
        return "across nodes"
    return "by level"


def of_movement(movement: str) -> dict[str, Any]:
    """Return the options that a multiply's movement stands for: ``flat:8`` has a prefetch depth of its own.

    >>> of_movement("flat:8"), of_movement("chunks")
    ({'movement': 'flat', 'prefetch': 8}, {'movement': 'chunks'})
    """
    name, _, depth = movement.partition(":")
    return {"movement": name} | ({"prefetch": parse_whole(depth)} if depth else {})


def way_of(movement: str | Mapping[str, str], product: str) -> str:
    """Return the movement of the multiplies that write a tensor, where it may be said of each or of all.

    >>> way_of("chunks", "H"), way_of({"H": "gathered"}, "H"), way_of({"H": "gathered"}, "Y")
    ('chunks', 'gathered', 'auto')
    """
    return movement if isinstance(movement, str) else movement.get(product, AUTO)


def in_pairs(values: Mapping[str, str]) -> str:
    """Choices by product as a text: ``H=A,Y=B``."""
    return ",".join(f"{name}={value}" for name, value in values.items())


def is_movement(text: str) -> bool:
    """Whether a text is the movement of one multiply of a chain, which has a depth if it is one-sided."""
    name, colon, depth = text.partition(":")
    return name in WAYS and (not colon or (name in (FLAT, TWO_LEVEL) and whole_in(depth) is not None))


def one_sided(machine: Machine, ranks: int, movement: str) -> bool:
    """Whether no multiply of a chain is done by collectives."""
    return movement not in COLLECTIVES and (movement != AUTO or node_count(machine, ranks) == 1)


@lru_cache(maxsize=64)
def has_library(machine: Machine, ranks: int) -> bool:
    """Whether the movement ``library`` is by a library of collectives: the machine's, in as many nodes."""
    return BY_LIBRARY.refuses(machine, range(ranks), ranks) is None


def meant(machine: Machine, ranks: int, movement: str) -> str:
    """Resolve a movement on a machine: ``library`` is ``gathered`` where there is none."""
    return GATHERED if movement == LIBRARY and not has_library(machine, ranks) else movement


@lru_cache(maxsize=64)
def node_count(machine: Machine, ranks: int) -> int:
    """Return how many nodes ranks are in; 1 if there are none, or they hold different numbers of ranks."""
    if not machine.fabric.nodes or machine.fabric.near < 2:
        return 1
    nodes = nodes_of(machine, range(ranks), ranks)
    sizes = {len(node) for node in nodes}
    return len(nodes) if len(sizes) == 1 else 1


def host_count(machine: Machine, ranks: int) -> int:
    """Return how many nodes ranks are in, which may hold one each, or unlike numbers; 1 without nodes."""
    return len(nodes_of(machine, range(ranks), ranks)) if machine.fabric.nodes else 1


@lru_cache(maxsize=65536)
def _by_collectives(
    problem: Problem, key: object, machine: Machine, stationary: str, movement: str
) -> Chosen:
    usual = largest_matrix(problem)
    able = (usual, *(x for x in MATRICES if x != usual)) if stationary == "auto" else (stationary,)
    best, least, alone = Chosen(able[0], None, None), np.inf, None
    for matrix in able:
        cut = blocks(problem, matrix)
        how = None if cut is None else gathered(cut)
        if how is None:
            alone = cut if matrix == usual else alone
            continue
        price = price_of(how, machine)
        seconds = _seconds(price, machine)
        # The largest matrix is tried first and keeps ties, so that float noise does not flip the choice.
        if seconds < least * (1 - 1e-6):
            best, least = Chosen(matrix, how, price), seconds
    if (
        movement == AUTO
        and _is_little(problem)
        and best.how is not None
        and alone is not None
        and not alone.split
    ):
        one_by_one = price_one_sided(alone, machine)
        # One-sided messages have latencies, too, which few bytes do not pay for.
        if one_by_one is not None and _seconds(one_by_one, machine) + machine.collective_start_s < least:
            best = Chosen(usual, None, None)
    if movement == CHUNKS and best.how is not None:
        best = _in_chunks(best.stationary, best.how, machine)
    return best


def _in_chunks(stationary: str, how: Gathered, machine: Machine) -> Chosen:
    """Return a multiply in the fastest number of chunks; moves hide behind all but one of them."""
    # Smaller multiplies fill a device worse, and what moves beside them slows them down; so few chunks, or
    # none, may be better than many. The price is no more than that of the whole multiply, which a chain takes
    # where an earlier statement has gathered the operands.
    p, undivided = how.blocks.problem.p, price_of(how, machine)
    groups = [ranks for x in how.collects for ranks, _ in sharers(how.blocks.needed(x))]
    # Whether those who gather from each other are in one node.
    near = node_count(machine, p) == 1 or all(len(nodes_of(machine, x, p)) == 1 for x in groups)
    size = max(x[1] - x[0] for x in how.blocks.ranges[how.along].tolist())
    # A multiply that moves nothing has nothing to hide.
    most = min(MOST_CHUNKS, size // LEAST_OF_CHUNK) if how.collects or how.sums.groups else 1
    candidates = []
    for parts in [x for x in (1, 2, 4, 8) if x <= max(1, most)]:
        each = gathered(how.blocks, parts, near)
        assert each is not None
        price = price_of(each, machine)
        moving, multiplying = sum(busy_links(price.flows, machine)), float(price.gemms.max())
        cut = [flow for x, flow in price.gathered.items() if each.along in SIDES[x]]
        # The first chunk's gather, or the last one's sum, has no multiply to hide behind: 1/chunks stays
        # exposed, and nothing hides behind more compute than there is.
        hidden = sum(busy_links([*cut, price.adds, price.copied], machine)) * (1 - 1 / each.chunks)
        hidden = min(hidden, multiplying)
        # Hidden bytes are not free: they slow the multiplies beside them by the interference.
        seconds = multiplying + moving - hidden * (1.0 - _slowed(machine, each))
        candidates.append((seconds * (1.0 if each.chunks == 1 else 1.0 + WORTH), parts, each, price))
    _, _, each, price = min(candidates, key=lambda x: x[:2])
    return Chosen(stationary, each, replace(price, gemms=np.minimum(price.gemms, undivided.gemms)))


def _slowed(machine: Machine, how: Gathered) -> float:
    """Share of their rate that multiplies lose to transfers beside them."""
    name = COPY_ENGINE if how.turns and COPY_ENGINE in machine.means else COLLECTIVE
    if name in machine.means:
        return machine.means[name].interference
    kinds = ["accumulate"] * bool(how.sums.groups) + ["get"] * bool(how.collects)
    return max((machine.interference.get(kind, 0.0) for kind in kinds), default=0.0)


def by_collectives(
    problem: Problem, machine: Machine, stationary: str, movement: str, options: Mapping[str, Any]
) -> Schedule | None:
    """Return the schedule of a multiply whose operands are gathered and whose products are summed.

    None where collectives do not fit: several tiles a rank, sums that others own than those who add to them,
    or an ending that leaves fewer replicas of C complete.
    """
    how = chosen(problem, machine, stationary, movement).how
    if how is None or options["final"] not in COMPLETING:
        return None
    words = in_words(how, machine, dict(zip(MATRICES, MATRICES, strict=True)))
    lanes = max(2, options.get("max_accumulates", 2))
    made = {**options, "moved_by": words}
    build = Builder(stationary, problem, machine, accumulate_lanes=lanes, options=made)
    names = {x: Operand(x, x) for x in MATRICES}
    with without_collector():
        copies = {x: gather(build, how, names[x], slot) for slot, x in enumerate(how.collects)}
        operands = {x: at_ranks(build, how.blocks, names[x], copies.get(x, {})) for x in "AB"}
        multiply_blocks(build, how, names, operands, Products({}), alpha=1.0, beta=0.0, first=True, last=True)
        return build.schedule()


def without_library(schedule: Schedule, machine: Machine) -> str:
    """Return a remark on tensors that move between ranks without the machine's library, and why.

    Empty if all go by the library, or nothing moves.
    """
    names_of_lanes = schedule.lanes.names
    by_library, between = (
        np.array([x.startswith(way) for x in names_of_lanes], np.bool_)[schedule.lane]
        for way in (BY_LIBRARY.name, CARD)
    )
    # Between nodes the library's bytes cross cards, on the lane of all that does.
    between &= np.isin(schedule.moved_tensors, schedule.moved_tensors[by_library])
    moves = (schedule.src >= 0) & (schedule.dst >= 0) & (schedule.src != schedule.dst)
    numbers = np.unique(schedule.moved_tensors[moves & ~by_library & ~between])
    names = list(dict.fromkeys(schedule.tensors[x].name.partition(".")[0] for x in numbers.tolist()))
    if not names:
        return ""
    listed = ", ".join(names[:MAX_NAMED]) + (
        f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    )
    if machine.library is None:
        return f"{listed} not by a library: the file of {machine.name} names none"
    name = machine.library.name
    if not has_library(machine, schedule.ranks):
        return f"{listed} not by {name}: it is modelled with a device to each rank, as many in every node"
    return f"{listed} not by {name}: they are not gathered or summed whole by ranks that need the same"

"""How long a collective takes by its bytes and the links' bandwidths alone, and nccl-tests' bus bandwidth."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from umm.machines import Machine
from umm.plans.collectives.rings import ring_of, tiers_of

HALVES = {"all-reduce": ("reduce-scatter", "all-gather")}
OUT = ("reduce-scatter", "reduce")
"""Collectives of which a group of ranks must send much; into others it must get much."""


class Group(NamedTuple):
    """Some of the ranks, and the bytes/s by which they hear from the others, or others from them."""

    ranks: frozenset[int]
    bandwidth: float


class Groups(NamedTuple):
    """Groups that have no rank in common, and the bytes/s of the links of all of them together."""

    groups: tuple[Group, ...]
    bandwidth: float


def closed_form(
    what: str, nbytes: float, machine: Machine, ranks: int, root: int = 0, members: tuple[int, ...] = ()
) -> float:
    """Lower bound in seconds: bytes that enter or leave a rank, a node or half of the ranks, over its links.

    With W, the bytes/s of all links by which a rank hears from others, and D ranks: (D − 1)/D · V/W for an
    all-gather and a reduce-scatter, twice that for an all-reduce, V/W for a broadcast and a reduce. Half of
    a ring in two directions hears from the other half by two links: D · V/(4W) for an all-to-all, and
    (D − 1/D) · V/(4W) where D is odd. Latencies and launches are left out.

    Args:
        nbytes: V: the whole gathered or reduced buffer; a rank's for an all-to-all.
        members: Those of the ranks that take part; all if none is named.

    >>> from umm.machines import machine
    >>> tpu = machine("tpu-v5e-4")  # a ring of four, 50 GB/s each way
    >>> [closed_form(what, 1e9, tpu, 4) for what in ("all-gather", "all-reduce", "all-to-all")]
    [0.0075, 0.015, 0.01]

    Source: How to Scale Your Model, part 3; NVIDIA nccl-tests, PERFORMANCE.md.
    """
    if what in HALVES:
        return sum(closed_form(half, nbytes, machine, ranks, root, members) for half in HALVES[what])
    seconds, members = 0.0, members or tuple(range(ranks))
    # Every cut of the machine gives a lower bound: the bytes that must cross it over its width. The largest
    # of them holds, and so does that of all groups of a family over the union of their links.
    for groups, together in _families(machine, ranks, what in OUT, members):
        moved = [moves(what, group.ranks, nbytes, len(members), root) for group in groups]
        seconds = max(
            seconds, sum(moved) / together, *(x / y.bandwidth for x, y in zip(moved, groups, strict=True))
        )
    return seconds


def moves(what: str, group: frozenset[int], nbytes: float, ranks: int, root: int) -> float:
    """Return the bytes that some of the ranks must get from the others, or of sums send to them."""
    share = len(group) / ranks
    if what in ("all-gather", "reduce-scatter"):
        return nbytes * (1 - share)
    if what == "all-to-all":
        return nbytes * len(group) * (1 - share)
    return 0.0 if root in group else nbytes


def bandwidth(machine: Machine, ranks: int) -> float:
    """Return W: the least bytes/s, over ranks, of all links together by which a rank hears from others.

    >>> from umm.machines import machine
    >>> [bandwidth(machine(name), p) / 1e9 for name, p in (("h100-8", 8), ("tpu-v5e-16", 16))]
    [374.0, 100.0]
    """
    singles, together = _families(machine, ranks, False, tuple(range(ranks)))[0]
    return min(together / ranks, *(group.bandwidth for group in singles))


def bus_factor(what: str, ranks: int) -> float:
    """Return busbw over algbw, as nccl-tests has it.

    Source: NVIDIA nccl-tests, PERFORMANCE.md.
    """
    around = (ranks - 1) / ranks
    factors = {"all-reduce": 2 * around, "broadcast": 1.0, "reduce": 1.0}
    return factors.get(what, around)


@lru_cache(maxsize=256)
def _families(machine: Machine, ranks: int, out: bool, members: tuple[int, ...]) -> tuple[Groups, ...]:
    """Return the ranks one by one, by node or tier, and in halves."""
    order, half = ring_of(machine, members, ranks).order, len(members) // 2
    families: list[Sequence[Sequence[int]]] = [[[rank] for rank in members]]
    if half:
        # Halves in ring order cut a ring or torus at few links; halves by number separate whole nodes.
        families += [(order[:half], order[half:]), (members[:half], members[half:])]
    nodes = tiers_of(machine, members, ranks)
    if len(nodes) > 1:
        families.append(nodes)
    return tuple(
        _measured(machine, [frozenset(x) for x in family], ranks, out, members) for family in families
    )


def _measured(
    machine: Machine, family: Sequence[frozenset[int]], ranks: int, out: bool, members: Sequence[int]
) -> Groups:
    cuts = [_cut(machine, group, ranks, out, members) for group in family]

    def width(links: Iterable[int]) -> float:
        return sum(float(machine.link_bandwidth[link]) for link in links)

    # Groups may share a link, such as a switch's; the union counts it once for all of them.
    together = min((width(set().union(*layer)) for layer in zip(*cuts, strict=False)), default=float("inf"))
    groups = [
        Group(group, min(map(width, cut), default=float("inf")))
        for group, cut in zip(family, cuts, strict=True)
    ]
    return Groups(tuple(groups), together)


def _cut(
    machine: Machine, group: frozenset[int], ranks: int, out: bool, members: Sequence[int]
) -> list[set[int]]:
    """Return sets of links, of each of which all that reaches (or leaves) some ranks crosses one."""
    routes = set()
    for inside, outside in product(group, set(members) - group):
        ends = machine.device_of(outside, ranks), machine.device_of(inside, ranks)
        # Routes are oriented to begin at the group, so that links at the same index form one layer of the
        # cut.
        routes.add(machine.route(*ends[::-1]) if out else machine.route(*ends)[::-1])
    shortest = min(map(len, routes), default=0)
    cut = []
    for x in range(shortest):
        layer = {route[x] for route in routes if len(route) == shortest}
        # Where devices pass on what is for others, longer routes come by the links of the shortest ones.
        cut.append(layer | {route[x] for route in routes if layer.isdisjoint(route)})
    return cut

"""An all-reduce of few bytes by one kernel: each rank sums a part of all, then every rank reads all parts.

No library starts it, so it costs no more than its two exchanges: what serving engines use for the small sums
of a layer. The machine states it as the means ``two_shot``.
"""

from collections.abc import Sequence

from umm.algorithms.collectives.grids import nodes_of
from umm.algorithms.collectives.way import PLAIN, Manner, Piece, Way, copied, parted
from umm.machines import Machine
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

MEANS = "two_shot"
"""How a machine file names it."""
MOST_RANKS = 16


def all_reduce(
    build: Builder,
    ranks: Sequence[int],
    given: Piece,
    into: Piece,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """Every rank adds to the part of each other one, then gets the others' parts, all at once."""
    p = len(ranks)
    for rank in ranks:
        copied(build, given(rank), into(rank))
    for act in (_add, _get):
        for step in range(1, p):
            for place, rank in enumerate(ranks):
                theirs = (place + step) % p
                mine, part = parted(into(rank), theirs, p), parted(into(ranks[theirs]), theirs, p)
                act(build, mine, part, f"peer.{step}")


def _add(build: Builder, mine: Slice, theirs: Slice, lane: str) -> None:
    build.accumulate(mine, theirs, lane=lane, means=MEANS)


def _get(build: Builder, mine: Slice, theirs: Slice, lane: str) -> None:
    build.get(theirs, mine, lane=lane, means=MEANS)


def _refuses(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    if MEANS not in machine.means:
        return f"{machine.name} states no means {MEANS}"
    apart = machine.fabric.near > 1 and len(nodes_of(machine, ranks, total)) > 1
    if len(ranks) > MOST_RANKS or apart:
        return f"it is for at most {MOST_RANKS} ranks of one node"
    return None


WAY = Way(
    "two-shot",
    "By one kernel in two exchanges, for sums of few bytes in a node.",
    "custom all-reduce of vLLM (pull request 2192) and SGLang (2904)",
    {"all-reduce": all_reduce},
    _refuses,
    relays=False,
)

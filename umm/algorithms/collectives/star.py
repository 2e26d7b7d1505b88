"""An all-reduce in two steps: every rank adds to the sum at one of them, then gets it from there."""

from collections.abc import Sequence

from umm.algorithms.collectives import direct
from umm.algorithms.collectives.way import PLAIN, Manner, Piece, Way, one_collective
from umm.schedules.writer.builder import Builder


@one_collective
def all_reduce(
    build: Builder,
    ranks: Sequence[int],
    given: Piece,
    into: Piece,
    zeroed: bool = False,
    manner: Manner = PLAIN,
) -> None:
    """To the first rank and back: the fewest steps there are, for sums of a few bytes."""
    direct.reduce(build, ranks, given, into(ranks[0]), into, zeroed, manner)
    direct.broadcast(build, ranks, into(ranks[0]), into, manner)


WAY = Way(
    "star",
    "To one rank and back, in two steps.",
    "Thakur, Rabenseifner and Gropp (2005)",
    {"all-reduce": all_reduce},
    relays=False,
)

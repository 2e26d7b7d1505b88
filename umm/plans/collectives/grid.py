"""Collectives along all axes of a mesh or torus at once: each axis starts with a part of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from umm.machines import Machine
from umm.plans.collectives import ring, way
from umm.plans.collectives.rings import lines_of
from umm.schedules.table.buffers import Slice


class Turn(NamedTuple):
    """A line of ranks along which a part of some pieces is gathered."""

    # The ranks of the line, and for each the rank whose piece it has and the others get.
    origins: dict[int, int]
    part: int  # which part of the pieces
    parts: int  # of how many
    first: bool  # whether each has its own piece alone
    last: bool  # whether each has all pieces then
    axis: int  # number of the axis

    def ports(self, manner: way.Manner) -> way.Manner:
        """Return how bytes go along this axis, on two lanes of its own."""
        return replace(manner, port=2 * self.axis)

    def of(self, pieces: way.Pieces, rank: int, holder: int) -> Slice:
        """Return at a rank the part of the piece that another of the line has."""
        return way.parted(pieces(rank, self.origins[holder]), self.part, self.parts)


@way.one_collective
def all_gather(x: way.Gather) -> None:
    """Along one axis after another; each axis is the first for a part of every piece."""
    for turn in turns(x.build.machine, x.ranks, x.build.ranks):
        # A line of the grid is a ring collective; only what counts as a rank's piece differs by stage.
        placed = partial(turn.of, x.into)
        here: way.Piece = way.Cut(x.given, turn.part, turn.parts) if turn.first else way.Own(placed)
        ring.all_gather(way.Exchange(x.build, list(turn.origins), here, placed, manner=turn.ports(x.manner)))


@way.one_collective
def reduce_scatter(x: way.Scatter) -> None:
    """The way of an all-gather back."""
    kept = way.Rooms(x)
    # A reduce-scatter is the all-gather run backwards, so the last axis of each part comes first.
    for turn in reversed(list(turns(x.build.machine, x.ranks, x.build.ranks))):
        here, placed = partial(turn.of, x.given if turn.last else kept), partial(turn.of, kept)
        line, ports = list(turn.origins), turn.ports(x.manner)
        ring.reduce_scatter(way.Exchange(x.build, line, here, way.Own(placed), placed, x.zeroed, ports))


def turns(machine: Machine, ranks: Sequence[int], total: int) -> Iterator[Turn]:
    """Yield the lines along which parts of pieces are gathered, one axis of every part after another."""
    axes = lines_of(machine, ranks, total)
    count = len(axes)
    # With n axes the pieces are cut into n parts and part i starts along axis i: at every stage each axis is
    # busy with another part, which is how the axes' bandwidths add up.
    origins_of = [{rank: [rank] for rank in ranks} for _ in axes]
    for stage in range(count):
        for part in range(count):
            axis, gathered = (part + stage) % count, dict[int, list[int]]()
            for line in axes[axis]:
                for number in range(len(origins_of[part][line[0]])):
                    origins = {rank: origins_of[part][rank][number] for rank in line}
                    yield Turn(origins, part, count, stage == 0, stage == count - 1, axis)
                # After a line's gather each of its ranks holds what the whole line held, the input of the
                # next axis.
                everything = [origin for rank in line for origin in origins_of[part][rank]]
                gathered |= dict.fromkeys(line, everything)
            origins_of[part] = gathered


def refuses(machine: Machine, ranks: Sequence[int], total: int) -> str | None:
    """It takes ranks that fill a box of a grid with more than one axis."""
    if len(machine.fabric.shape) < 2:
        return f"the devices of {machine.name} lie on no mesh or torus of several axes"
    if len(lines_of(machine, ranks, total)) < 2:
        return f"{len(ranks)} ranks do not fill a box of {'x'.join(map(str, machine.fabric.shape))} devices"
    return None


WAY = way.Way(
    "grid",
    "Along all axes of a mesh or torus at once.",
    "How to Scale Your Model, part 3: the bandwidth of all axes adds up",
    {
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "all-reduce": way.in_parts(reduce_scatter, all_gather),
    },
    refuses,
)

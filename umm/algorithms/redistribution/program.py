"""The schedule of a redistribution by itself: X goes in, and comes out as Y in another layout."""

from umm.algorithms.redistribution.ways import check_way, possible, redistribute
from umm.errors import LayoutError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.program import Chain, Copy
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder
from umm.units import counted

NAME = "redistribute"


def program(x: Layout, y: Layout, dtype: str) -> Chain:
    """Return what is computed: Y is a copy of X; of the same layout X itself, as it is.

    Raises:
        LayoutError: for layouts of two shapes, or for two numbers of ranks.
    """
    for of in (x, y):
        if (of.shape, of.ranks) != (x.shape, x.ranks):
            ends = (f"{z} is {z.shape[0]}x{z.shape[1]} on {counted(z.ranks, 'rank')}" for z in (x, y))
            raise LayoutError(
                f"{', '.join(ends)}; redistribute between layouts of one shape and as many ranks"
            )
    if x == y:
        return Chain(NAME, (Tensor("X", x, dtype, "both"),), (), x.ranks)
    tensors = Tensor("X", x, dtype, "input"), Tensor("Y", y, dtype, "output")
    return Chain(NAME, tensors, (Copy("Y", "X"),), x.ranks)


def lowered(chain: Chain, machine: Machine, way: str, final: str = "broadcast") -> Schedule:
    """Return the schedule of a redistribution in one way, from replicas as ``Options.final`` leaves them.

    Raises:
        ScheduleError: for a way that there is none of, or that cannot do it, and what would work.
        MachineError: for more ranks than the machine holds.
    """
    check_way(way)
    build = Builder(way, chain, machine, options={"way": way})
    if chain.statements:
        redistribute(build, "X", "Y", way, final)
    return build.schedule()


def ways_of(chain: Chain, machine: Machine, final: str = "broadcast") -> list[str]:
    """Return the names of the ways that can do a redistribution between two layouts."""
    return possible(Builder(NAME, chain, machine), "X", "Y", final)

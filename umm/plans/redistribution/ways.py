"""The ways to redistribute, by name, and the schedule of a redistribution by one of them."""

from functools import lru_cache

from umm.errors import LayoutError, ScheduleError
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.collectives.collective import ways as collective_ways
from umm.plans.redistribution import groups
from umm.plans.redistribution.pieces import Piece, gets, pieces_of
from umm.plans.redistribution.relays import MOST_WORK, planning_work, relays
from umm.program import Chain, Copy
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.assembly import Room
from umm.schedules.writer.builder import Builder
from umm.units import counted

GETS, RELAYS = "gets", "relays"


def ways() -> list[str]:
    """Return the names of all ways.

    >>> ways()[:2]
    ['gets', 'relays']
    """
    return [GETS, RELAYS, *(name for name, way in collective_ways().items() if groups.gathers(way))]


def check_way(way: str) -> None:
    """Refuse an unknown way; ScheduleError listing those there are."""
    if way not in ways():
        raise ScheduleError(f"way {way!r} is unknown; choose from {', '.join(ways())}")


def redistribute(build: Builder, source: str, target: str, way: str = GETS, final: str = "broadcast") -> None:
    """Copy a tensor into another of the same shape and type but another layout.

    A rank that holds a piece already copies it. In every way each other piece reaches a rank once.

    ScheduleError for an unknown way, or one that cannot do it, and what would work.

    Args:
        way: ``gets``: from a rank that has it; ``relays``: passed on by those that got it; or the name of a
            way to do collectives, by which ranks that shall have the same tile gather what it is made of.
        final: Which replicas of the source are complete, as ``Options.final`` leaves those of C.
    """
    check_way(way)
    _write(build, source, target, list(pieces_of(build, source, target, final)), way)


def _write(build: Builder, source: str, target: str, pieces: list[Piece], way: str) -> None:
    """Write a redistribution by its pieces; see :func:`redistribute`."""
    # Checked before anything is written, and only then are the other ways asked, since that is slow.
    why = _refusal(build, pieces, way)
    if why is not None:
        able = ", ".join(name for name in ways() if _refusal(build, pieces, name) is None)
        ends = f"{build.layout(source)} to {build.layout(target)}"
        raise ScheduleError(f"{way} cannot redistribute {ends}: {why}; {able} would work")
    if way == GETS:
        gets(build, pieces)
    elif way == RELAYS:
        relays(build, pieces)
    else:
        groups.collective(build, pieces, collective_ways()[way])


def _refusal(build: Builder, pieces: list[Piece], way: str) -> str | None:
    if way == GETS:
        return None
    if way == RELAYS:
        many = planning_work(pieces) > MOST_WORK
        return "the plan of so many pieces and ranks would take minutes" if many else None
    return groups.refusal(build, pieces, collective_ways()[way])


NAME = "redistribute"


def program(x: Layout, y: Layout, dtype: str) -> Chain:
    """Return the chain: Y is a copy of X; for equal layouts X itself.

    LayoutError for layouts of two shapes, or for two numbers of ranks.
    """
    for layout in (x, y):
        if (layout.shape, layout.ranks) != (x.shape, x.ranks):
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

    ScheduleError for an unknown way, or one that cannot do it, and what would work. MachineError for more
    ranks than the machine holds.
    """
    check_way(way)
    build = Builder(way, chain, machine)
    if chain.statements:
        _write(build, "X", "Y", _pieces_of(*_both(chain), final), way)
    return build.schedule()


def ways_of(chain: Chain, machine: Machine, final: str = "broadcast") -> list[str]:
    """Return the names of the ways that can do a redistribution between two layouts."""
    build, pieces = Builder(NAME, chain, machine), _pieces_of(*_both(chain), final)
    return [name for name in ways() if _refusal(build, pieces, name) is None]


def _both(chain: Chain) -> tuple[Tensor, Tensor, object]:
    """Source and target of a redistribution, and how their tiles are numbered."""
    x, y = chain.tensors
    return x, y, (x.layout.cuts, y.layout.cuts)


@lru_cache(maxsize=1)  # the ways between two layouts are compared one after another
def _pieces_of(x: Tensor, y: Tensor, cuts: object, final: str) -> list[Piece]:
    return list(pieces_of(Room((x, y), x.layout.ranks), "X", "Y", final))

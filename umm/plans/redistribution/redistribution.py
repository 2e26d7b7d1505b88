"""From one layout of a matrix to another: the schedule of one way to do it, or of the fastest there is."""

from dataclasses import replace
from typing import Any, Protocol, overload, runtime_checkable

from umm.dtypes import canonical
from umm.errors import InputError, expect
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.collectives.collective import Makespan, fastest_of
from umm.plans.redistribution.ways import lowered, program, ways_of
from umm.schedules.schedule import Schedule


@runtime_checkable
class Redistributable(Protocol):
    """A matrix with elements, on ranks that run, which can be laid out anew: ``umm.DistributedMatrix``."""

    def redistributed(self, layout: Layout | str) -> Any:
        """Return the same matrix in another layout; collective."""


@overload
def redistribute(x: Redistributable, y: Layout | str) -> Any: ...


@overload
def redistribute(
    x: Layout,
    y: Layout,
    *,
    machine: Machine | str,
    dtype: str = ...,
    way: str | None = ...,
    makespan: Makespan | None = ...,
) -> Schedule: ...


def redistribute(
    x: Layout | Redistributable,
    y: Layout | str,
    *,
    machine: Machine | str | None = None,
    dtype: str = "float32",
    way: str | None = None,
    makespan: Makespan | None = None,
) -> Any:
    """Return the schedule that brings a matrix from one layout to another; X goes in and Y comes out.

    Of a ``umm.DistributedMatrix`` return the matrix itself in the other layout, as ScaLAPACK's PDGEMR2D does.

    Every rank gets what it lacks and nothing else, once, from a rank that has it. For equal layouts the
    schedule is empty, and X comes out.

    LayoutError for layouts of two shapes, or for two numbers of ranks. ScheduleError for an unknown way, or
    one that cannot do it, and what would work. MachineError for an unknown machine, or too many ranks.

    Args:
        x: Where it lies.
        y: Where it shall lie, complete in every replica; of the same shape and for as many ranks.
        machine: A machine, its name, or the path of its machine file; not for matrices.
        way: ``gets``, ``relays``, or a way to do collectives, by which ranks that shall have the same tile
            gather it; None for the fastest of those that can do it.
        makespan: Returns how long one takes, to choose the fastest; None for the executor ``sim``.

    Returns:
        The schedule, named by its way. Options of the fastest have ``why`` in words and the seconds of every
        way (``seconds.gets``), the fastest first.

    >>> import umm
    >>> x, y = (umm.Layout.parse(text, (4096, 4096), ranks=32) for text in ("row", "row@32"))
    >>> schedule = umm.redistribute(x, y, machine="dgx-h100x4")
    >>> schedule.name
    'hierarchical'
    """
    if isinstance(x, Redistributable):
        return x.redistributed(y)
    for layout in (x, y):
        expect(layout, Layout, "redistribute", 'two Layouts: umm.Layout.parse("row", (64, 48), ranks=8)')
    assert isinstance(x, Layout)
    assert isinstance(y, Layout)
    if machine is None:
        raise InputError("redistribute of two layouts takes machine=, as in machine='h100-8'")
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    chain = program(x, y, canonical(dtype))
    machine.check_ranks(chain.ranks)
    # A way that is asked for is used even between equal layouts, where it has nothing to move.
    if way is not None:
        return lowered(chain, machine, way)
    if x == y:
        same = {"why": "the layouts are the same; nothing moves"}
        return replace(lowered(chain, machine, "gets"), options=same)
    # No closed form covers every pair of layouts and every fabric, so each way is written and simulated.
    made = {name: lowered(chain, machine, name) for name in ways_of(chain, machine)}
    fastest = fastest_of(made, makespan)
    times = {f"seconds.{name}": seconds for name, seconds in fastest.seconds.items()}
    return replace(fastest.schedule, options={"why": fastest.verdict} | times)

"""The search of one multiply's space: its best points, with proof."""

import math

from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.space.points import Points, Space
from umm.space.search.best_first import BestFirst, Progress
from umm.space.search.budget import DEVICE, device_share, least_memory, rank_limit
from umm.space.search.found import Found
from umm.space.search.looked_at import LookedAt, Makespan
from umm.units import format_bytes


class SearchInterruptedError(KeyboardInterrupt):
    """Ctrl-C during a search.

    Attributes:
        found: The best points by then, not proven.
    """

    def __init__(self, found: Found) -> None:
        super().__init__("interrupted")
        self.found = found


def search(
    space: Space,
    machine: Machine | str,
    *,
    makespan: Makespan | None = None,
    memory: str | int | None = DEVICE,
    top: int = 10,
    progress: Progress | None = None,
) -> Found:
    """Return the best points of a space, with proof.

    All points get a closed-form lower bound at once. From the lowest up, a point's schedule is built for its
    exact memory and a tighter bound, then simulated, until no bound left is below the top's last makespan.
    Points that are one schedule, as stationary A, B and C are where nothing is communicated, are one of the
    top, and its ``ties``.

    Args:
        space: What may be chosen, see :attr:`Space.searched`; without ranks it gets the machine's own number.
        machine: A machine, its name, or the path of its topology file.
        makespan: What simulates a schedule, in seconds; None for the executor ``sim``. The proof holds
            for anything that never beats the bounds.
        memory: Budget per rank: bytes (``16GiB``), a multiple of the unreplicated share (``2x``), ``device``
            for what a rank has of its device less a tenth for all else, or None for all of that.
        top: How many of the best to find.
        progress: Called now and then with the number of points settled and of all points.

    Raises:
        InfeasibleError: if no point fits the budget and the device; says the smallest that would do.
        InputError: for a budget, layout or machine that does not exist.
        SearchInterruptedError: on Ctrl-C, with the best found by then.
    """
    if top < 1:
        raise InputError(f"top = {top} is not possible; it must be a whole number ≥ 1")
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    points = space.searched.on(machine.default_ranks).points()
    machine.check_ranks(points.bare.p)
    limit = rank_limit(memory, points.bare, machine)
    if progress:
        progress(0, len(points))  # the bounds of many ranks take a while
    looked = LookedAt(points, machine, makespan or executor("sim").makespan)
    return best_of(looked, limit, top, reserves=memory == DEVICE, progress=progress)


def best_of(
    looked: LookedAt, limit: int, top: int, *, reserves: bool = False, progress: Progress | None = None
) -> Found:
    """Return the best of some points, with proof.

    Args:
        looked: The points with what is known of them.
        limit: Bytes a rank may hold.
        top: How many of the best to find.
        reserves: Whether the limit is the device less a reserve, because no budget was given.
        progress: As :func:`search` takes it.

    Raises:
        InfeasibleError: if none fits.
        SearchInterruptedError: on Ctrl-C, with the best found by then.
    """
    ordered, points, machine = BestFirst(looked, limit, top), looked.points, looked.machine
    try:
        ordered.run(progress)
    except KeyboardInterrupt:
        raise SearchInterruptedError(_found(ordered, reserves)) from None
    if not ordered.best:
        whole = limit == device_share(machine, points.bare.p)
        where = f", what a rank has of a device of {machine.name}" if whole else ""
        raise InfeasibleError(
            f"nothing fits {format_bytes(limit)} per rank{where}; the smallest memory that works is "
            f"{_at_least(least_memory(points, machine, looked.bounds), points)}"
        )
    return _found(ordered, reserves)


def _found(ordered: BestFirst, reserves: bool) -> Found:
    """Return what has been found; before the end, what is open yet counts as neither."""
    looked = ordered.looked
    return Found(
        machine=looked.machine.name,
        limit=ordered.limit,
        top=ordered.choices(),
        priced=looked.points.written,
        distinct=len(looked.points),
        pruned=ordered.settled - ordered.simulated,
        bounded=looked.bounded,
        simulated=ordered.simulated,
        proven=looked.respected and ordered.done,
        reserves=reserves,
        looked=looked,
    )


def _at_least(nbytes: int, points: Points) -> str:
    """Return a budget that just suffices, in bytes and as a multiple of the unreplicated share."""
    multiple = math.ceil(100 * nbytes / points.bare_share) / 100
    return f"{nbytes} bytes ({format_bytes(nbytes)}, {multiple:g}x)"

"""A collective by name: the schedule of one way to do it, or of the fastest there is."""

from umm.algorithms.collectives.program import Collective
from umm.algorithms.collectives.registry import lowered, possible
from umm.algorithms.collectives.way import Manner
from umm.algorithms.fastest import Makespan, fastest_of
from umm.dtypes import canonical
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.schedules.schedule import Schedule


def collective(
    what: str,
    *,
    nbytes: int,
    machine: Machine | str,
    algorithm: str | None = None,
    ranks: int | None = None,
    directions: int = 2,
    dtype: str = "float32",
    root: int = 0,
    means: str | None = None,
    chunks: int | None = None,
    makespan: Makespan | None = None,
) -> Schedule:
    """Return the schedule of a collective.

    What is given is X and what comes out is Y; an all-reduce changes X in place. Partial sums are given as
    an operand with a third dimension, a slice for each rank.

    Args:
        what: all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce.
        nbytes: V, the whole gathered, reduced or exchanged buffer.
        machine: A machine, its name, or the path of its topology file.
        algorithm: ring, direct, tree, star, halving-doubling, hierarchical, grid; None for the fastest of
            those that can do it.
        ranks: Number of ranks; the machine's own if None.
        directions: Directions that are used of a ring.
        dtype: Type of the elements.
        root: Rank that a broadcast starts from and a reduce ends at.
        means: A way to move bytes that the machine names.
        chunks: Parts that follow each other along a chain of ranks; by size and latency if None.
        makespan: What tells which is fastest; None for the executor ``sim``.

    Raises:
        ScheduleError: for a way that cannot do it, and what would work.
        ProblemError: for a collective, size or root that cannot be.
        MachineError: for an unknown machine, or too many ranks.

    >>> import umm
    >>> schedule = umm.collective("all-gather", nbytes=2**28, machine="tpu-v5e-4")
    >>> schedule.stationary, len(schedule)
    ('ring', 20)
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    ranks = machine.default_ranks if ranks is None else ranks
    machine.check_ranks(ranks)
    asked = Collective(what, nbytes, ranks, canonical(dtype), root)
    manner = Manner(directions, means, chunks)
    if algorithm is not None:
        return lowered(asked, machine, algorithm, manner)
    return fastest(asked, machine, manner, makespan)


def fastest(
    asked: Collective,
    machine: Machine,
    manner: Manner,
    makespan: Makespan | None = None,
) -> Schedule:
    """Return the schedule of the fastest way to do a collective; see :func:`collective`."""
    made = {name: lowered(asked, machine, name, manner) for name in possible(asked, machine)}
    return fastest_of(made, makespan).schedule

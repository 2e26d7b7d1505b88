"""A collective by name: its ways, their refusals, and the schedule of one or of the fastest."""

import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib import import_module
from typing import NamedTuple

import umm.plans.collectives
from umm.dtypes import canonical
from umm.errors import ScheduleError
from umm.executor import executor
from umm.files import shown
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.numbers import as_int
from umm.plans.collectives import library
from umm.plans.collectives.program import SUMMING, SUMS, Collective
from umm.plans.collectives.way import PLAIN, Exchange, Manner, Way
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder
from umm.units import format_seconds

Makespan = Callable[[Schedule], float]


class Fastest(NamedTuple):
    """The fastest way of a collective."""

    name: str  # of the fastest
    schedule: Schedule  # the fastest; of equals the first
    seconds: dict[str, float]  # makespan of each by name, the fastest first

    @property
    def verdict(self) -> str:
        """Why it is this one, in a line.

        >>> Fastest("ring", None, {"ring": 1e-3, "tree": 2e-3}).verdict
        'ring 1.00 ms; tree 2.00 ms'
        >>> Fastest("ring", None, {"ring": 1e-3}).verdict
        'ring 1.00 ms; nothing else can do it'
        """
        times = [f"{name} {format_seconds(seconds)}" for name, seconds in self.seconds.items()]
        return f"{times[0]}; {', '.join(times[1:])}" if times[1:] else f"{times[0]}; nothing else can do it"


def fastest_of(schedules: Mapping[str, Schedule], makespan: Makespan | None = None) -> Fastest:
    """Return the fastest of some schedules.

    Args:
        schedules: By name, at least one.
        makespan: Returns how long one takes, in seconds; None for the executor ``sim``.
    """
    measure = makespan or executor("sim").makespan
    # `sorted` is stable: of equal makespans the first name stays first, which keeps the choice reproducible.
    seconds = {name: measure(schedule) for name, schedule in schedules.items()}
    names = sorted(seconds, key=seconds.__getitem__)
    return Fastest(names[0], schedules[names[0]], {name: seconds[name] for name in names})


@lru_cache(maxsize=1)
def ways() -> dict[str, Way]:
    """Return all ways by name, sorted: every file of this package that has one."""
    package = umm.plans.collectives
    modules = [import_module(f"{package.__name__}.{x.name}") for x in pkgutil.iter_modules(package.__path__)]
    # Discovery by file: a new module with WAY or WAYS is found here and needs no registration.
    result = [way for module in modules for way in vars(module).get("WAYS", ())]
    result += [module.WAY for module in modules if hasattr(module, "WAY")]
    return {way.name: way for way in sorted(result, key=lambda way: way.name)}


def refusals(asked: Collective, machine: Machine) -> dict[str, str | None]:
    """Return for each way why it cannot do a collective on a machine; None where it can."""

    def why(way: Way) -> str | None:
        if asked.what not in way.writers:
            return f"it does only {', '.join(way.writers)}"
        if machine.library is not None and way.name in machine.library.kernels:
            kernel = machine.library.kernels[way.name]
            # Frameworks switch to the library above a size; offering the kernel there would model nothing
            # that runs.
            if kernel.largest is not None and not kernel.takes(asked.nbytes):
                return f"frameworks leave more than {kernel.largest.value} to {machine.library.name}"
        return way.refuses(machine, range(asked.ranks), asked.ranks)

    return {name: why(way) for name, way in ways().items()}


def possible(asked: Collective, machine: Machine) -> list[str]:
    """Return the names of the ways that can do a collective on a machine."""
    return [name for name, why in refusals(asked, machine).items() if why is None]


def able(
    what: str, machine: Machine, groups: Sequence[Sequence[int]], total: int, kernels: bool = True
) -> list[str]:
    """Return the names of the ways among which the fastest is looked for, if nothing else is asked for.

    Where the machine's file says what its vendor's library takes, those are the library, which chooses among
    its own ways, and for all-reduces the kernels that frameworks ship. Where no kernel is known, as
    between nodes, sums are looked for among all ways. So are broadcasts and reduces anywhere, whose library's
    times are known only by what goes round the same rings; without a library everything is.

    Args:
        kernels: Whether more than the library is looked at.
    """

    def can(way: Way) -> bool:
        return what in way.writers and not any(way.refuses(machine, x, total) for x in groups)

    names = [name for name, way in ways().items() if can(way)]
    if library.LIBRARY not in names:
        return names
    if not kernels:
        return [library.LIBRARY]
    if what in library.ROOTED:
        return names
    # Few bytes are sooner summed by our own ways than a library starts, where no kernel is known for them.
    known = [x for x in library.KERNELS if not any(ways()[x].refuses(machine, y, total) for y in groups)]
    return [library.LIBRARY, *(x for x in known if x in names)] if known else names


def known(
    what: str, machine: Machine, ranks: int, groups: Sequence[Sequence[int]] | None = None
) -> list[str]:
    """Return the ways among which a collective alone is the fastest, as a sum of replicas in a node is.

    Between nodes no kernel is known, and our own ways have not been measured beside a library, which then
    does it alone.

    Args:
        groups: The ranks of each of several collectives; None for one of all ranks.
    """
    names = able(what, machine, groups or [range(ranks)], ranks)
    measured = [x for x in names if x == library.LIBRARY or x in library.KERNELS]
    return measured if library.LIBRARY in names and what not in library.ROOTED else names


def in_words(what: str, machine: Machine, ranks: int) -> str:
    """Return the default way of a collective in words."""
    names = known(what, machine, ranks)
    if machine.library is None or library.LIBRARY not in names:
        return f"the fastest of {', '.join(names)}"
    words = [f"{machine.library.name} as it chooses" if x == library.LIBRARY else x for x in names]
    return f"the fastest of {', '.join(words)}" if words[1:] else words[0]


def lowered(asked: Collective, machine: Machine, algorithm: str, manner: Manner = PLAIN) -> Schedule:
    """Return the schedule of a collective in one way.

    ScheduleError for an unknown way, or one that cannot do it, and what would work. MachineError for more
    ranks than the machine holds.
    """
    machine.check_ranks(asked.ranks)
    # "nccl-tree" is the way `library` with a manner; from here on both spellings are one.
    algorithm, manner = _of_library(asked, machine, algorithm, manner)
    if not isinstance(algorithm, str) or algorithm not in ways():
        raise ScheduleError(f"algorithm {shown(algorithm)} is unknown; choose from {', '.join(ways())}")
    if manner.directions not in (1, 2):
        raise ScheduleError(f"a ring has no {manner.directions!r} directions; choose 1 or 2")
    chunks = as_int(manner.chunks)
    if chunks is not None and (not isinstance(chunks, int) or chunks < 1):
        raise ScheduleError(f"{shown(chunks)} chunks are not possible; it must be a whole number ≥ 1")
    way = ways()[algorithm]
    why = refusals(asked, machine)[algorithm]
    if why is not None:
        raise ScheduleError(
            f"{way.name} cannot do {asked.what} among {asked.ranks} ranks of {machine.name}: {why}; "
            f"choose from {', '.join(possible(asked, machine))}"
        )
    # Relayed sums need room at every rank. An all-reduce has it in its result, and direct ways relay nothing.
    keeps = way.relays and asked.what in SUMMING and asked.what != "all-reduce"
    work = [Tensor(SUMS, asked.layout(f"row@{asked.ranks}"), asked.dtype)] if keeps else []
    ranks = range(asked.ranks)
    build = Builder(
        way.name if way.named is None else way.named(machine, asked.what, ranks, asked.nbytes, manner.way),
        asked.chain,
        machine,
        work,
        accumulate_lanes=machine.copy_engines,
        options={"directions": manner.directions},
    )
    way.writers[asked.what](Exchange(build, ranks, **asked.slices(build), manner=manner))
    return build.schedule()


def _of_library(asked: Collective, machine: Machine, algorithm: str, manner: Manner) -> tuple[str, Manner]:
    """Return the way and manner meant by the name of a machine's library, or by that with one of its ways."""
    if machine.library is None or not isinstance(algorithm, str):
        return algorithm, manner
    name, _, way = algorithm.lower().partition("-")
    if name != machine.library.name.lower():
        return algorithm, manner
    known = [x for x, pace in machine.library.ways(asked.what).items() if pace.joins(asked.ranks)]
    if way and way not in known:
        choices = ", ".join(f"{name}-{x}" for x in known) or "none of its ways"
        raise ScheduleError(
            f"{machine.library.name} does no {asked.what} as {shown(way)} on {machine.name}; "
            f"choose from {choices}"
        )
    return library.LIBRARY, replace(manner, way=way or None)


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

    ScheduleError for a way that cannot do it, and what would work. ProblemError for a collective, size or
    root that cannot be. MachineError for an unknown machine, or too many ranks.

    Args:
        what: all-gather, reduce-scatter, all-reduce, all-to-all, broadcast or reduce.
        nbytes: V as nccl-tests counts it: the whole gathered or reduced buffer; a rank's buffer for an
            all-to-all.
        machine: A machine, its name, or the path of its machine file.
        algorithm: ring, direct, tree, star, halving-doubling, hierarchical, grid; where the machine's file
            has a library, ``library`` or its name, and for all-reduces one-shot, two-shot, multimem. None for
            the fastest that is known of the machine: of its library, as that chooses, and the kernels for
            all-reduces; without a library of all that can do it.
        ranks: Number of ranks; the machine's own if None.
        directions: Directions that are used of a ring.
        dtype: Type of the elements.
        root: Rank that a broadcast starts from and a reduce ends at.
        means: A way to move bytes that the machine names.
        chunks: Parts that follow each other along a chain of ranks; by size and latency if None.
        makespan: Returns how long one takes, to choose the fastest; None for the executor ``sim``.

    >>> import umm
    >>> schedule = umm.collective("all-gather", nbytes=2**28, machine="tpu-v5e-4")
    >>> schedule.name, len(schedule)
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
    asked: Collective, machine: Machine, manner: Manner, makespan: Makespan | None = None
) -> Schedule:
    """Return the schedule of the fastest known way to do a collective; see :func:`collective`."""
    why = refusals(asked, machine)
    names = [name for name in known(asked.what, machine, asked.ranks) if why[name] is None]
    made = {name: lowered(asked, machine, name, manner) for name in names}
    return fastest_of(made, makespan).schedule

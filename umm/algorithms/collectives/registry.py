"""Ways to do collectives by name, what each refuses, and the schedule of one."""

import pkgutil
from functools import lru_cache
from importlib import import_module

import umm.algorithms.collectives
from umm.algorithms.collectives.program import SUMMING, Collective
from umm.algorithms.collectives.way import PLAIN, Manner, Way
from umm.errors import ScheduleError
from umm.files import shown
from umm.machines import Machine
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder


@lru_cache(maxsize=1)
def ways() -> dict[str, Way]:
    """Return all ways by name, sorted: every file of this package that has one."""
    package = umm.algorithms.collectives
    modules = [import_module(f"{package.__name__}.{x.name}") for x in pkgutil.iter_modules(package.__path__)]
    found = [module.WAY for module in modules if hasattr(module, "WAY")]
    return {way.name: way for way in sorted(found, key=lambda way: way.name)}


def refusals(asked: Collective, machine: Machine) -> dict[str, str | None]:
    """Return for each way why it cannot do a collective on a machine; None where it can."""

    def why(way: Way) -> str | None:
        if asked.what not in way.writers:
            return f"it does only {', '.join(way.writers)}"
        return way.refuses(machine, range(asked.ranks), asked.ranks)

    return {name: why(way) for name, way in ways().items()}


def possible(asked: Collective, machine: Machine) -> list[str]:
    """Return the names of the ways that can do a collective on a machine."""
    return [name for name, why in refusals(asked, machine).items() if why is None]


def lowered(asked: Collective, machine: Machine, algorithm: str, manner: Manner = PLAIN) -> Schedule:
    """Return the schedule of a collective in one way.

    Raises:
        ScheduleError: for a way that there is none of, or that cannot do it, and what would work.
        MachineError: for more ranks than the machine holds.
    """
    machine.check_ranks(asked.ranks)
    if algorithm not in ways():
        raise ScheduleError(f"algorithm {shown(algorithm)} is unknown; choose from {', '.join(ways())}")
    if manner.directions not in (1, 2):
        raise ScheduleError(f"a ring has no {manner.directions!r} directions; choose 1 or 2")
    if manner.chunks is not None and manner.chunks < 1:
        raise ScheduleError(f"{manner.chunks} chunks are not possible; it must be a whole number ≥ 1")
    way = ways()[algorithm]
    why = refusals(asked, machine)[algorithm]
    if why is not None:
        raise ScheduleError(
            f"{way.name} cannot do {asked.what} among {asked.ranks} ranks of {machine.name}: {why}; "
            f"choose from {', '.join(possible(asked, machine))}"
        )
    work = [asked.running_sums] if way.relays and asked.what in SUMMING and asked.what != "all-reduce" else []
    build = Builder(
        way.name,
        asked.chain,
        machine,
        work,
        accumulate_lanes=machine.copy_engines,
        options={"directions": manner.directions},
    )
    way.writers[asked.what](build, range(asked.ranks), **asked.slices(build), manner=manner)
    return build.schedule()

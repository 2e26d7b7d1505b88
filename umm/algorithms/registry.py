"""From a problem and a machine to a schedule, by the name of an algorithm.

An algorithm is a file in this package with an ``ALGORITHM`` of :class:`umm.algorithms.algorithm.Algorithm`;
other packages add theirs in the entry-point group ``umm.algorithms``. The universal algorithm stands apart:
it works on any layouts in place.
"""

import pkgutil
from functools import lru_cache
from importlib import import_module
from importlib.metadata import entry_points

from umm.algorithms.algorithm import Algorithm
from umm.algorithms.universal.options import in_words
from umm.errors import ScheduleError
from umm.files import shown
from umm.schedules.schedule import Schedule

GROUP = "umm.algorithms"
UNIVERSAL = "universal"


@lru_cache(maxsize=1)
def algorithms() -> dict[str, Algorithm]:
    """Return all algorithms but the universal one, by name."""
    modules = [
        import_module(f"{GROUP}.{x.name}") for x in pkgutil.iter_modules(import_module(GROUP).__path__)
    ]
    found = [module.ALGORITHM for module in modules if hasattr(module, "ALGORITHM")]
    found += [entry.load() for entry in entry_points(group=GROUP)]
    return {algorithm.name: algorithm for algorithm in found}


def names() -> list[str]:
    """Return the names of all algorithms, the universal one first."""
    return [UNIVERSAL, *sorted(algorithms())]


def find_algorithm(name: str) -> Algorithm:
    """Return the algorithm of a name.

    Raises:
        ScheduleError: listing those there are.
    """
    if name not in algorithms():
        algorithms.cache_clear()  # its package may have been installed since
    if name not in algorithms():
        raise ScheduleError(f"algorithm {shown(name)} is unknown; choose from {', '.join(names())}")
    return algorithms()[name]


def choices_in_words(schedule: Schedule) -> str:
    """Return the choices of a schedule in words, whichever algorithm has made it.

    >>> import umm
    >>> problem = umm.Problem(m=8, n=8, k=8, ranks=4)
    >>> choices_in_words(umm.schedule(problem, "h100-8", algorithm="summa", grid="1x4"))
    'grid 1x4, broadcast by tree, whole panels, prefetch 1'
    """
    other, said = algorithms().get(schedule.stationary), schedule.options
    if other:
        return in_words(said, other.options)
    if schedule.program.kind == "problem" and schedule.problem.layout("C").replicas == 1:
        said = {name: value for name, value in said.items() if name != "final"}
    return in_words(said)

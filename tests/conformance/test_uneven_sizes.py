"""Every option of every algorithm where shares are uneven or empty: lawful, race-free and exact."""

from math import ceil

import pytest
from conformance.algorithm_suite import all_replicas_are_right, meshes_of
from conformance.executor_suite import MACHINE
from examples import WHOLE

import umm
from umm.algorithms.scheduling import algorithms
from umm.errors import ProblemError, ScheduleError
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm_hw.numpy.executor import NumpyExecutor

SIZES = [(13, 11, 7), (2, 17, 1), (5, 1, 3), (1, 2, 19)]
RANKS = (3, 4, 6) if not WHOLE else (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16)
STEPS = {
    3: ["pk3", "pm3,sk2", "sk3,pn3"],
    4: ["pk4", "pm2,pk2", "sk2,pm2,pn2", "sm2,pk2,sn3,pn2"],
    6: ["pm2,pk3", "sk5,pn3,pm2", "pk2,sk2,pk3"],
    8: ["pm2,pn2,pk2", "pk4,sk3,pm2", "sn2,sk2,pn8"],
}
LENGTHS = (0, 1, 2, 5)
PAIRS = 12
"""Pairs of options on a number of ranks where not all are tried."""


def values_of(algorithm, option, ranks):
    """Values of an option other than its default."""
    if option.name == "grid":
        return meshes_of(ranks, 3 if algorithm.name == "3d" else 2)
    if option.name == "mesh":
        return [mesh for axes in (1, 2, 3) for mesh in meshes_of(ranks, axes)]
    if option.name == "steps":
        return STEPS.get(ranks, [])
    if option.name == "memory":
        return [1.5, 3.0]
    if isinstance(option.default, str):
        return [x for x in option.values if x != option.default]
    if isinstance(option.default, bool):
        return [not option.default]
    if isinstance(option.default, int):
        return [x for x in LENGTHS if x >= option.least and x != option.default]
    return [1e-6]


def requests_of(algorithm, ranks):
    """No option, each value of each alone, and two options at once: some pairs, or all of them."""
    single = [{x.name: value} for x in algorithm.options for value in values_of(algorithm, x, ranks)]
    pairs = [one | other for one in single for other in single if min(one) < min(other)]
    return [{}, *single, *pairs[:: 1 if WHOLE else ceil(len(pairs) / PAIRS) or 1]]


@pytest.mark.parametrize("name", algorithms())
def test_every_option_is_exact_and_race_free_on_uneven_sizes(name):
    """On its own layouts, so that no redistribution comes between; temporaries are NaN before the run."""
    algorithm, tried = algorithms()[name], 0
    for p in RANKS:
        for turn, options in enumerate(requests_of(algorithm, p)):
            m, n, k = SIZES[turn % len(SIZES)]
            problem = umm.Problem(m=m, n=n, k=k, ranks=p, dtype="float64")
            try:
                values = algorithm.chosen(options)
                if algorithm.refusal(problem, MACHINE, values) is not None:
                    continue
                native = algorithm.native(problem, **values)
                problem = umm.Problem(m=m, n=n, k=k, dtype="float64", **dict(zip("abc", native, strict=True)))
                schedule = umm.schedule(problem, MACHINE, algorithm=name, **options)
            except (ProblemError, ScheduleError):
                continue
            check(schedule)
            assert [str(race) for race in races(schedule)] == [], (p, options, (m, n, k))
            assert all_replicas_are_right(schedule, NumpyExecutor(replica=None)), (p, options, (m, n, k))
            tried += 1
    assert tried

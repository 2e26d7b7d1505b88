"""A chain performed in NumPy or on processes, once it is lawful and free of races, against its reference."""

import numpy as np
from conformance.executor_suite import MACHINE

import umm
from umm.checks import random_inputs
from umm.plans.lower import lower
from umm.schedules.races import races
from umm.schedules.rules.invariants import check

NODES_OF_TWO = umm.machine("dgx-h100x4", {"fabric.node_size": "2"})
EXACT = 1e-11
"""Of the largest value of a tensor: float64 sums in another order."""


def assert_right(chain, operands, results):
    """Every output, in every replica, to the rounding of float64."""
    expected = chain.reference(operands)
    assert set(results) == set(chain.outputs)
    for name, replicas in results.items():
        most = 1 + np.abs(expected[name]).max()
        for replica in replicas:
            assert np.abs(replica - expected[name]).max() <= EXACT * most, f"{name} is wrong"


def assert_performed(chain, number, mpi=None, machine=None):
    """Perform a chain on operands of a number, in NumPy in any order, or on the processes of an executor.

    Where no machine is given, half of the numbers are of one whose nodes have two devices.
    """
    schedule = lower(chain, machine or (NODES_OF_TWO if number // 2 % 2 else MACHINE))
    check(schedule)
    assert races(schedule) == []
    operands = random_inputs(chain, number)
    if mpi is None:
        how = {"replica": None, "order": "random", "seed": number}
        run = umm.run(schedule, executor="numpy", operands=operands, **how)
    else:
        run = mpi.run(schedule, operands)
    assert_right(chain, operands, run.results)


def slope(loss, x, name, at):
    """Difference of a loss by one number, 1e-6 to either side."""
    ends = []
    for step in (1e-6, -1e-6):
        moved = x[name].copy()
        moved[at] += step
        ends.append(loss(x | {name: moved}))
    return (ends[0] - ends[1]) / 2e-6


def result_slope(chain, x, name, at, result="Y"):
    """Difference of the sum of a result times its gradient, by one number of an operand."""
    return slope(lambda y: (chain.reference(y)[result] * x[f"d{result}"]).sum(), x, name, at)

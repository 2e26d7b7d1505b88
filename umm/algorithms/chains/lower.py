"""From a chain to one schedule: every statement's actions, joined by the slices they share."""

from typing import Any

from umm.algorithms.chains.maps import map_tiles
from umm.algorithms.chains.multiplies import multiply
from umm.algorithms.chains.sums import sum_replicas
from umm.algorithms.redistribution import redistribute
from umm.chains import Chain, Copy, Map, Multiply, Sum
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.schedules.builder import Builder
from umm.schedules.schedule import Schedule


def lower(chain: Chain, machine: Machine | str, **options: Any) -> Schedule:
    """Return the schedule of a chain on a machine, every tensor in the layout the chain gives it.

    Every replica of what a statement writes is complete afterwards. Statements overlap tile by tile: an
    action waits for what it reads and overwrites, not for the statement before.

    Args:
        chain: The statements and their tensors.
        machine: A machine, its name, or the path of its topology file.
        options: ``stationary`` and the universal algorithm's, for its multiplies.

    Raises:
        ScheduleError: for an option that there is none of or a value that means nothing.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    build = Builder(chain.name, chain, machine, options=options)
    written: set[str] = set()
    for statement in chain.statements:
        again = statement.out in written
        match statement:
            case Multiply():
                multiply(build, statement, again, options)
            case Map():
                map_tiles(build, statement, again)
            case Copy():
                redistribute(build, statement.x, statement.out)
            case Sum():
                sum_replicas(build, statement, again)
        written.add(statement.out)
    return build.schedule()

"""From a chain to one schedule: every statement's actions, joined by the slices they share."""

from collections.abc import Mapping
from typing import Any

from umm.algorithms.chains.attention import attention
from umm.algorithms.chains.experts import combine, dispatch, grouped
from umm.algorithms.chains.maps import map_tiles
from umm.algorithms.chains.movement import Moved, moved_by, plans_of
from umm.algorithms.chains.multiplies import multiply
from umm.algorithms.chains.sums import sum_replicas
from umm.algorithms.movement.multiply import Gathered
from umm.algorithms.moves import move
from umm.algorithms.option import check_names
from umm.algorithms.redistribution import redistribute
from umm.algorithms.universal.options import Options, known
from umm.errors import ProblemError, did_you_mean
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.program import (
    Attention,
    AttentionGrad,
    Chain,
    Combine,
    Copy,
    Dispatch,
    Grouped,
    Map,
    Multiply,
    Sum,
)
from umm.schedules.schedule import Schedule
from umm.schedules.writer.assembly import without_collector
from umm.schedules.writer.builder import Builder


def lower(
    chain: Chain, machine: Machine | str, *, stationary: str | Mapping[str, str] = "auto", **options: Any
) -> Schedule:
    """Return the schedule of a chain on a machine, every tensor in the layout the chain gives it.

    Every replica of what a statement writes is complete afterwards. Statements overlap tile by tile: an
    action waits for what it reads and overwrites, not for the statement before.

    Args:
        chain: The statements and their tensors.
        machine: A machine, its name, or the path of its topology file.
        stationary: A, B, C or ``auto`` for every multiply that is not a batch, or one for each by the name of
            what it writes; ``auto`` is the largest matrix.
        options: The universal algorithm's, for its multiplies.

    Raises:
        ScheduleError: for an option that there is none of or a value that means nothing.
        MachineError: for an unknown machine, too many ranks, or a dtype without a peak.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    check_names(known(), options, "a schedule")
    stays = stationary if isinstance(stationary, Mapping) else dict.fromkeys(_products(chain), stationary)
    _check_stationary(chain, stays)
    said = {"stationary": stationary if isinstance(stationary, str) else _in_words(stays)}
    chosen = Options(**options)
    plans = plans_of(chain, machine, stays, chosen.movement)
    said |= {"moved_by": moved_by(chain, plans, machine)} if plans else {}
    build = Builder(chain.name, chain, machine, options=chosen.to_dict() | said)
    with without_collector():
        _write(build, chain, stays, options, plans)
        return build.schedule()


def _write(
    build: Builder,
    chain: Chain,
    stays: Mapping[str, str],
    options: Mapping[str, Any],
    plans: Mapping[int, Gathered],
) -> None:
    """Write the actions of all statements."""
    written: set[str] = set()
    moved = Moved(build, chain.statements, plans)
    for number, statement in enumerate(chain.statements):
        again = statement.out in written
        match statement:
            case Multiply() if number in moved.plans:
                moved.write(number, again)
            case Multiply():
                multiply(build, statement, again, stays.get(statement.out, "auto"), options)
            case Map():
                map_tiles(build, statement, again)
            case Copy():
                redistribute(build, statement.x, statement.out, _way(build, statement))
            case Sum():
                sum_replicas(build, statement, again)
            case Attention() | AttentionGrad():
                attention(build, statement, written)
            case Dispatch():
                dispatch(build, statement)
            case Combine():
                combine(build, statement)
            case Grouped():
                grouped(build, statement, again)
        written.update(statement.outs)
        moved.forget(statement.outs)


def _way(build: Builder, statement: Copy) -> str:
    """Return the way to redistribute that takes least by itself."""
    ends = (build.layout(statement.x), build.layout(statement.out))
    return move(*ends, build.machine, build.tensors[build.number(statement.x)].dtype).way


def _check_stationary(chain: Chain, stationary: Mapping[str, str]) -> None:
    """Refuse a stationary matrix that is none, or of what no multiply writes.

    Raises:
        ProblemError: in one line.
    """
    products = _products(chain)
    for name, matrix in stationary.items():
        if name not in products:
            raise ProblemError(
                f"no multiply of chain {chain.name} writes {name!r}; {did_you_mean(name, products)}"
            )
        if matrix not in ("A", "B", "C", "auto"):
            raise ProblemError(
                f"stationary matrix {matrix!r} of {name} is unknown; choose from A, B, C, auto"
            )


def _products(chain: Chain) -> list[str]:
    return list(dict.fromkeys(x.out for x in chain.statements if isinstance(x, Multiply)))


def _in_words(stationary: Mapping[str, str]) -> str:
    return ",".join(f"{name}={matrix}" for name, matrix in stationary.items())

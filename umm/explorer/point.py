"""The point that the page shows: its machine, its problem and its trace, kept for the next look."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from umm.algorithms.scheduling import UNIVERSAL, schedule
from umm.algorithms.universal.policies import POLICIES
from umm.errors import InputError, MachineError, UmmError
from umm.executor import executor
from umm.explorer.state import State
from umm.files import parse_toml
from umm.machines import Machine, machine_names
from umm.machines import machine as named_machine
from umm.program.problem import Problem
from umm.space import Choice, Space, makespan_range
from umm.space.budget import DEVICE, rank_limit
from umm.space.what_if.advice import Decides, deciding, space_around
from umm.traces.trace import Trace

Files = Mapping[str, str]
MOST_FILE = 256 * 1024
# More local multiplies than this take longer than a page should to lower, simulate and draw.
MOST_OPS = 100_000
MOST_ORDERED = 400  # by a policy that searches
MOST_SURE = 20_000  # actions of a schedule that is simulated at the ends of the machine's ranges


@dataclass(frozen=True, eq=False)
class Point:
    """A state that has an answer.

    Attributes:
        state: What was asked.
        machine: Where it runs.
        problem: What is multiplied, with its ranks.
        trace: What the simulator predicts.
        limit: Bytes a rank may have: the budget, or without one its share of its device less a reserve.
    """

    state: State
    machine: Machine
    problem: Problem
    trace: Trace
    limit: int


def machine_of(name: str, files: Files) -> Machine:
    """Return a machine by name: one that was dropped in, or a shipped one.

    A path is no name: the page reads no file of the host but the machines that it lists.

    Raises:
        MachineError: if there is none of this name, or its file does not describe one.
    """
    if name in files:
        return machine_from(files[name], name)
    if name not in machine_names():
        raise MachineError(
            f"there is no machine {name!r}; choose from {', '.join(machine_names())}, or drop its file in"
        )
    return named_machine(name)


@lru_cache(maxsize=32)
def machine_from(text: str, name: str) -> Machine:
    """Return the machine that the text of a topology file describes.

    Raises:
        InputError: if it is not TOML.
        MachineError: if it does not describe one.
    """
    from umm.machines.build import build

    if len(text) > MOST_FILE:
        raise MachineError(
            f"{name}: {len(text)} characters are too many for a topology file; {MOST_FILE} are read"
        )
    return build(parse_toml(text, name), Path(f"{name}.toml"), name)


def space_of(point: Point) -> Space:
    """Return the space whose points stand beside a point: the same problem, any layouts.

    That of a search has all process grids and all values of what a search tries; the paper's has square
    grids and the point's own choices.
    """
    state, problem = point.state, point.problem
    options = state.options.to_dict()
    if state.space == "search":
        return space_around(problem, options).searched
    sizes = {x: getattr(problem, x) for x in ("m", "n", "k", "dtype", "c_dtype", "given")}
    return Space(**sizes, ranks=problem.p, **options)


def how_of(state: State) -> dict[str, Any]:
    """Return the keyword arguments of ``umm.schedule`` beside the problem and the machine."""
    if state.algorithm != UNIVERSAL:
        return {"algorithm": state.algorithm}
    return {"stationary": state.stationary, **state.options.to_dict()}


@lru_cache(maxsize=64)
def _predicted(state: State, machine: Machine) -> tuple[Problem, Trace]:
    layouts = {x: getattr(state, x) for x in ("a", "b", "c")}
    ranks = state.ranks or machine.default_ranks
    sizes = {x: getattr(state, x) for x in "mnk"}
    problem = Problem(**sizes, dtype=state.dtype, ranks=ranks, given=state.given, **layouts)
    machine.check_ranks(ranks)
    _refuse_many(problem, state)
    return problem, executor("sim").run(schedule(problem, machine, **how_of(state)))


def is_varied(point: Point) -> bool:
    """Return whether a point is small enough to be simulated at the ends of the machine's ranges."""
    return len(point.trace.schedule) <= MOST_SURE and not POLICIES[point.state.options.policy].searches


def range_of(state: State, machine: Machine) -> tuple[float, float] | None:
    """Return the least and the most makespan of a state's point within the ranges of the machine's numbers.

    It takes a few simulations, so it comes behind the point itself.
    """
    problem, trace = _predicted(state, machine)
    lower = partial(schedule, problem, **how_of(state))
    return makespan_range(machine, lower, executor("sim").makespan, trace.makespan_s)


def deciding_of(state: State, machine: Machine, better: Choice | None) -> Decides | None:
    """Return the assumed number that decides whether a point is the best way to its product, if one does.

    It takes some dozens of simulations, so it comes behind the point itself.

    Args:
        state: What is looked at, of the universal algorithm.
        machine: Where.
        better: What a search has found to be better, if anything is.
    """
    problem, _ = _predicted(state, machine)
    lower, found = partial(schedule, problem, **how_of(state)), better.schedule if better else None
    return deciding(machine, problem, lower, found, executor("sim").makespan)


def _refuse_many(problem: Problem, state: State) -> None:
    """Refuse what would take longer than a page should."""
    a, b, c = problem.layouts
    cuts = ((a.row_edges, c.row_edges), (b.col_edges, c.col_edges), (a.col_edges, b.row_edges))
    ops = prod(len(np.union1d(x, y)) - 1 for x, y in cuts)
    most = MOST_ORDERED if POLICIES[state.options.policy].searches else MOST_OPS
    if ops > most:
        raise InputError(
            f"these layouts cut the multiply into {ops} parts, more than the page draws ({most} with policy "
            f"{state.options.policy}); choose larger tiles, or use umm simulate"
        )


def point_of(state: State, files: Files) -> Point:
    """Return the point of a state.

    Raises:
        InputError: if it has none; says why, and what would work.
    """
    machine = machine_of(state.machine, files)
    problem, trace = _predicted(state.point, machine)
    return Point(state, machine, problem, trace, rank_limit(state.memory or DEVICE, problem, machine))


def tried(ask: Callable[[], Any]) -> tuple[Any, str]:
    """Return what a question gives, or nothing and why not."""
    try:
        return ask(), ""
    except UmmError as error:
        return None, str(error)

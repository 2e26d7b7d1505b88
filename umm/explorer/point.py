"""The point that the page shows: its machine, its problem and its trace, kept for the next look."""

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from umm.algorithms.registry import UNIVERSAL, schedule
from umm.algorithms.universal.policies import POLICIES
from umm.errors import InputError, MachineError, UmmError
from umm.executor import executor
from umm.explorer.state import State
from umm.machines import Machine, machine_names
from umm.machines import machine as named_machine
from umm.problem import Problem
from umm.space import Space
from umm.space.search.budget import device_share, memory_limit
from umm.traces.trace import Trace

Files = Mapping[str, str]
MOST_FILE = 256 * 1024
# More local multiplies than this take longer than a page should to lower, simulate and draw.
MOST_OPS = 100_000
MOST_ORDERED = 400  # by a policy that searches


@dataclass(frozen=True, eq=False)
class Point:
    """A state that has an answer.

    Attributes:
        state: What was asked.
        machine: Where it runs.
        problem: What is multiplied, with its ranks.
        trace: What the simulator predicts.
        limit: Bytes a rank may have: the budget or its share of its device, whichever is less.
    """

    state: State
    machine: Machine
    problem: Problem
    trace: Trace
    limit: int


def machine_of(state: State, files: Files) -> Machine:
    """Return the machine of a state: one that was dropped in, or a shipped one.

    A path is no name: the page reads no file of the host but the machines that it lists.

    Raises:
        MachineError: if there is none of this name, or its file does not describe one.
    """
    if state.machine in files:
        return machine_from(files[state.machine], state.machine)
    if state.machine not in machine_names():
        raise MachineError(
            f"there is no machine {state.machine!r}; choose from {', '.join(machine_names())}, or drop its "
            "file in"
        )
    return named_machine(state.machine)


@lru_cache(maxsize=32)
def machine_from(text: str, name: str) -> Machine:
    """Return the machine that the text of a topology file describes.

    Raises:
        MachineError: if it does not describe one.
    """
    from umm.machines.build import build

    if len(text) > MOST_FILE:
        raise MachineError(
            f"{name}: {len(text)} characters are too many for a topology file; {MOST_FILE} are read"
        )
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise MachineError(f"{name} is not TOML: {str(error)[:120]}") from None
    return build(content, Path(f"{name}.toml"), name)


def space_of(state: State, machine: Machine) -> Space:
    """Return the space whose points stand beside a state's: the same problem and choices, any layouts."""
    choices: dict[str, Any] = state.options.to_dict()
    sizes = {x: getattr(state, x) for x in "mnk"}
    return Space(
        **sizes, dtype=state.dtype, ranks=state.ranks or machine.default_ranks, given=state.given, **choices
    )


@lru_cache(maxsize=64)
def _predicted(state: State, machine: Machine) -> tuple[Problem, Trace]:
    layouts = {x: getattr(state, x) for x in ("a", "b", "c")}
    ranks = state.ranks or machine.default_ranks
    sizes = {x: getattr(state, x) for x in "mnk"}
    problem = Problem(**sizes, dtype=state.dtype, ranks=ranks, given=state.given, **layouts)
    machine.check_ranks(ranks)
    how: dict[str, Any] = {"algorithm": state.algorithm}
    if state.algorithm == UNIVERSAL:
        how = {"stationary": state.stationary, **state.options.to_dict()}
    _refuse_many(problem, state)
    return problem, executor("sim").run(schedule(problem, machine, **how))


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
    machine = machine_of(state, files)
    problem, trace = _predicted(state.point, machine)
    share = device_share(machine, problem.p)
    budget = memory_limit(state.memory or None, problem)
    return Point(state, machine, problem, trace, share if budget is None else min(share, budget))


def tried(ask: Callable[[], Any]) -> tuple[Any, str]:
    """Return what a question gives, or nothing and why not."""
    try:
        return ask(), ""
    except UmmError as error:
        return None, str(error)

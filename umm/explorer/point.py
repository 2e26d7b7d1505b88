"""The point that the page shows: a program in its layouts on a machine, and the trace of its schedule."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from umm.algorithms.scheduling import UNIVERSAL, schedule
from umm.errors import InputError, MachineError, UmmError
from umm.executor import executor
from umm.explorer.state import TOML, State
from umm.files import parse_toml, shown
from umm.layouts.layout import Layout
from umm.machines import Machine, machine_names
from umm.machines import machine as named_machine
from umm.machines.machine import TF32
from umm.machines.settings import NODES, with_settings
from umm.numbers import parse_whole
from umm.plans.multiply.policies import find_policy
from umm.plans.steady import of_several
from umm.program import Chain, Multiply, Outline
from umm.program.files import parse_chain
from umm.program.presets import chain
from umm.program.problem import MATRICES, Problem
from umm.quoting.terminal import in_lines
from umm.space import Choice, Space
from umm.space.assignments import Assignments
from umm.space.bounds.tables import beside_a_layer, tables_of
from umm.space.budget import DEVICE, limit_of
from umm.space.what_if.advice import space_around
from umm.traces.trace import Trace

Files = Mapping[str, str]
"""Files that are there, as text by name: topologies, and chains, whose names end in .toml."""
NONE: Files = MappingProxyType({})
Machines = Mapping[str, str | Machine]
"""Machines by name, as the text of a file that was dropped in or as the command has read its file."""
MOST_FILE = 256 * 1024  # characters of a machine file
MOST_CHAIN = 128 * 1024  # and of a chain's
MOST_PARTS = 200  # tensors of a chain, and statements: three layers, forward and backward
MOST_RANKS = 256  # of a chain, whose search prices pairs of layouts
# More local multiplies than this take longer than a page should to lower, simulate and draw.
MOST_TILES = 2**18  # of a matrix
MOST_OPS = 100_000
MOST_ORDERED = 400  # by a policy that searches
MOST_SURE = 20_000  # actions of a schedule that is simulated at the ends of the machine's ranges
MOST_DRAWN = 20_000  # actions of a chain's schedule that is drawn


@dataclass(frozen=True, eq=False)
class Case:
    """A state's question before layouts are chosen."""

    state: State  # what was asked
    machine: Machine  # where it runs
    bare: Problem | Outline  # what is computed: a multiply in any layouts, or a chain before it is laid out
    ranks: int  # over so many
    space: Space  # the points that stand beside its own
    limit: int  # bytes a rank may have: the budget, or without one its share of its device less a reserve
    text: str = ""  # of the chain's file, if it is one of a file


@dataclass(frozen=True, eq=False)
class Point:
    """A case in the layouts that were chosen."""

    case: Case  # what was asked
    state: State  # the same, a row of a search by its layouts
    program: Problem | Chain  # what is computed, in these layouts
    way: Mapping[str, Any]  # the keyword arguments of `umm.schedule` beside the program and the machine
    trace: Trace  # what the simulator predicts

    @property
    def machine(self) -> Machine:
        """Where it runs."""
        return self.case.machine

    @property
    def problem(self) -> Problem:
        """The program, of one multiply."""
        return cast(Problem, self.program)

    @cached_property
    def layouts(self) -> dict[str, Layout]:
        """The layout in which each tensor is worked with; inputs that are given elsewhere are moved there."""
        return layouts_of(self.program)

    @property
    def lower(self) -> Callable[..., Any]:
        """Makes its schedule for a machine."""
        return partial(schedule, self.program, **self.way)

    @cached_property
    def here(self) -> tuple[float, int]:
        """Its seconds and bytes as a search counts them: of a layer in the middle, and of all layers."""
        state, made, seconds = self.state, self.trace.schedule, self.trace.makespan_s
        if not state.chain:
            return seconds, self.trace.memory_bytes
        outline = outline_of(state, self.case.text)
        layers = 1 if outline.given else state.layers or 1
        beside = [beside_a_layer(outline, x, state.optimizer, layers) for x in made.tensors]
        if layers > 1:
            texts = {x.name: str(x.layout) for x in self.program.tensors}
            two = of_several(outline, texts, made.ranks, self.machine, 2, **self.way)
            seconds = executor("sim").makespan(two) - seconds
        return seconds, int((made.memory_bytes + np.sum(beside, axis=0)).max())


def machine_of(name: str, files: Machines) -> Machine:
    """Return a machine by name: one that was dropped in, or a shipped one; with ``:tf32`` in TF32.

    A path is no name: the page reads no file of the host but the machines that it lists. MachineError if no
    machine has this name, or its file does not describe one.
    """
    if name in files:
        given = files[name]
        return given if isinstance(given, Machine) else machine_from(given, name.removesuffix(TOML))
    if name.endswith(TF32):
        return machine_of(name.removesuffix(TF32), files).with_tf32()
    if name not in machine_names():
        raise MachineError(
            f"there is no machine {name!r}; choose from {', '.join(machine_names())}, or drop its file in"
        )
    return named_machine(name)


@lru_cache(maxsize=32)
def machine_from(text: str, name: str) -> Machine:
    """Return the machine that the text of a machine file describes.

    InputError if it is not TOML. MachineError if it does not describe one.
    """
    from umm.machines.build import build

    if len(text) > MOST_FILE:
        raise MachineError(
            f"{name}: {len(text)} characters are too many for a machine file; {MOST_FILE} are read"
        )
    return build(in_lines(parse_toml(text, name)), Path(f"{name}.toml"), name)


@lru_cache(maxsize=32)
def chain_from(text: str, name: str) -> Outline:
    """Return the chain that the text of a file holds.

    InputError if it holds none, or one too large for the page.
    """
    if len(text) > MOST_CHAIN:
        raise InputError(f"{name}: {len(text)} characters are too many for a chain; {MOST_CHAIN} are read")
    outline = parse_chain(text, name)
    if max(len(outline.tensors), len(outline.statements)) > MOST_PARTS:
        raise InputError(
            f"{name} has {len(outline.statements)} statements on {len(outline.tensors)} tensors; the page "
            f"takes up to {MOST_PARTS} of each, umm search --chain any number"
        )
    return outline


def outline_of(state: State, text: str) -> Outline:
    """Return the chain that a state asks for, before it is laid out.

    InputError if its sizes do not fit together, its file is not there, or is not a chain.

    Args:
        text: Of its file, if it is of one; nothing if that is not there.
    """
    if not state.of_file:
        asked: dict[str, Any] = {**state.sizes, **state.named}
        outline = chain(state.chain, **asked)
    elif text:
        outline = chain_from(text, state.chain)
    else:
        raise InputError(f"the file {shown(state.chain)} is not here; drop it in, or choose another chain")
    return outline.with_given(state.given) if state.given else outline


def case_of(state: State, files: Machines = NONE, chains: Files = NONE) -> Case:
    """Return a state's question before layouts are chosen.

    InputError if it is not possible; says why, and what would work.
    """
    machine = machine_of(state.machine, files)
    if state.nodes:
        machine = with_settings(machine, {NODES: str(state.nodes)})
    text = chains.get(state.chain, "") if state.of_file else ""
    ranks = state.ranks or machine.default_ranks
    if not state.chain:
        bare = Problem(**state.sizes, dtype=state.dtype, ranks=ranks, given=state.given)
        machine.check_ranks(ranks)
        for name, (rows, cols) in zip(
            MATRICES, ((bare.m, bare.k), (bare.k, bare.n), (bare.m, bare.n)), strict=True
        ):
            # Block-cyclic layouts of very many tiles are refused before they are made.
            tile = re.match(r"\s*cyclic:([0-9]{1,18})x([0-9]{1,18}):", getattr(state, name.lower()))
            if tile is None or "0" in (tile[1], tile[2]):
                continue
            tiles = -(-rows // max(1, parse_whole(tile[1]))) * -(-cols // max(1, parse_whole(tile[2])))
            if tiles > MOST_TILES:
                raise InputError(f"{name} has {tiles} tiles, the page takes {MOST_TILES}; choose larger ones")
        limit = limit_of(state.memory or DEVICE, bare.unreplicated_share, machine, ranks)
        # The points beside it have the same problem and any layouts. Those of a search have all process grids
        # and all values of what a search tries; the paper's have square grids and the point's own choices.
        options = state.options.to_dict()
        if state.space == "search":
            return Case(state, machine, bare, ranks, space_around(bare, options).searched, limit)
        sizes = {x: getattr(bare, x) for x in ("m", "n", "k", "dtype", "c_dtype", "given")}
        return Case(state, machine, bare, ranks, Space(**sizes, ranks=ranks, **options), limit)
    outline = outline_of(state, text)
    if ranks > MOST_RANKS:
        raise InputError(f"{ranks} ranks of a chain are more than this page takes; choose up to {MOST_RANKS}")
    machine.check_ranks(ranks)
    space = Space(
        chain=outline, ranks=ranks, layouts=state.texts, stationary=state.stationary,
        state=state.optimizer, layers=state.layers or 1,
    )  # fmt: skip
    points = Assignments(outline, ranks, dict(space.layouts))
    assert points.choices  # refuses texts that are no layouts
    limit = limit_of(state.memory or DEVICE, points.share, machine, ranks)
    return Case(state, machine, outline, ranks, space, limit, text)


def point_of(case: Case, choice: Choice | None = None) -> Point:
    """Return the point of a case; InputError, with reason and remedy, if it has none.

    Args:
        choice: The row of a search that is asked for in place of layouts.
    """
    state = case.state
    if choice is not None:
        if choice.actions > MOST_DRAWN:
            raise InputError(_too_many(choice.actions))
        state = state.at(choice.layouts, choice.kept, choice.options)
    return Point(case, state, *predicted(state.point, case.machine, case.text))


def is_long(state: State) -> bool:
    """Whether the schedule of a point may take longer than a request: the order of its parts is searched."""
    return not state.chain and find_policy(state.options.policy).searches


@lru_cache(maxsize=64)
def predicted(state: State, machine: Machine, text: str) -> tuple[Problem | Chain, Mapping[str, Any], Trace]:
    """Return the program of a point, the keyword arguments that schedule it, and its trace.

    InputError if it is too large for the page, or not possible.

    Args:
        text: Of the chain's file, if it is of one.
    """
    ranks, program = state.ranks or machine.default_ranks, _program(state, machine, text)
    most = MOST_ORDERED if find_policy(state.options.policy).searches else MOST_OPS
    most = MOST_DRAWN if state.chain else most
    if (ops := _ops(program)) > most:
        raise InputError(
            f"these layouts cut the program into {ops} parts, more than the page draws ({most} with policy "
            f"{state.options.policy}); choose larger tiles, or use umm simulate"
        )
    way: dict[str, Any] = {"stationary": state.stationary, **state.options.to_dict()}
    if state.chain:
        stays: Any = state.stationary
        if stays == "best":
            # The best stationary matrix of each multiply for these layouts alone.
            outline = outline_of(state, text)
            texts = outline.layouts_of(state.layouts or None, ranks)
            only = {x.name: (texts.get(x.name, "row"),) for x in outline.tensors}
            points = Assignments(outline, ranks, only, stationary="best")
            tables = tables_of(points, machine, points.options.to_dict(), 0.0)
            stays = tables.stationary([0] * len(points.choices))
        way = {"stationary": stays}
    elif state.algorithm != UNIVERSAL:
        way = {"algorithm": state.algorithm}
    made = schedule(program, machine, **way)
    if state.chain and len(made) > MOST_DRAWN:
        raise InputError(_too_many(len(made)))
    return program, way, executor("sim").run(made)


def _program(state: State, machine: Machine, text: str) -> Problem | Chain:
    ranks = state.ranks or machine.default_ranks
    if state.chain:
        return outline_of(state, text).laid_out(state.layouts or None, ranks)
    layouts = {x: getattr(state, x) for x in "abc"}
    return Problem(**state.sizes, dtype=state.dtype, ranks=ranks, given=state.given, **layouts)


def _ops(program: Any) -> int:
    """Return into how many local multiplies layouts cut a program, about."""
    layouts = layouts_of(program)
    statements = (Multiply("C", "A", "B"),) if program.kind == "problem" else program.statements
    return sum(x.pieces(lambda name: layouts[_plain(name)]) for x in statements)


def layouts_of(program: Any) -> dict[str, Layout]:
    """Return the layout in which each tensor is used: of a moved one the later layout."""
    if program.kind == "problem":
        return dict(zip(MATRICES, program.layouts, strict=True))
    return {_plain(x.name): x.layout for x in program.tensors}


def _plain(name: str) -> str:
    return name.removesuffix(".here")


def _too_many(actions: int) -> str:
    return (
        f"its schedule has {actions:,} actions, more than the page draws ({MOST_DRAWN:,}); "
        "copy its command below and give it --html"
    )


def tried(ask: Callable[[], Any]) -> tuple[Any, str]:
    """Return the answer of a question, or nothing and the reason."""
    try:
        return ask(), ""
    except UmmError as error:
        return None, str(error)


def searched(state: State, machine: Machine, text: str) -> tuple[Any, str]:
    """Return :func:`predicted`, or None and the reason; it runs behind the page."""
    return tried(lambda: predicted(state, machine, text))

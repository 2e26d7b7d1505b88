"""From the values of flags to a machine, a problem, a schedule and an executor."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import click

from umm.algorithms.scheduling import schedule as build
from umm.cli.flags.chain import CHAIN, asked_chain, scheme_of
from umm.cli.flags.options import PROBLEM, given
from umm.cli.flags.schedule import SCHEDULE, asked_choices
from umm.cli.printed.output import STANDS, Output
from umm.errors import INTERRUPTED, ExecutorUnavailableError, InputError, UmmError
from umm.executor import Executor, Leader, executor, times_of
from umm.host.launcher import launched_rank, launched_size
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.machines.cluster import cards_in_words
from umm.machines.settings import GRAPHS, KERNELS, NODES, read_setting
from umm.plans.movement.choice import LIBRARY
from umm.plans.movement.remarks import REMARK, without_library
from umm.program import Chain
from umm.program.problem import Problem
from umm.program.systems import choices_left
from umm.schedules.schedule import Schedule

CARDS = "umm.cli.cards"
"""Whether a command has said by what cards nodes are joined, by its context."""


@contextmanager
def performing(
    ctx: click.Context, name: str, options: dict[str, Any], flags: dict[str, Any], output: Output
) -> Iterator[Executor]:
    """Give an executor for a command, and end it with the command.

    Of the ranks that mpiexec has started, rank 0 performs the command; the others do what it asks for, and
    leave the command here with its exit code.

    Args:
        ctx: The command.
        name: Name of the executor.
        options: The executor's own.
        flags: Those of the problem; without --ranks it gets the ranks that run already.
        output: Where notes go.

    Raises:
        ExecutorUnavailableError: if the executor cannot run here.
        InputError: for the one that only predicts, or an option the executor does not take.
    """
    performer = executor(name, **options)
    if times_of(performer) == "predicted":
        raise InputError(f"{name} predicts, it does not execute; use umm simulate")
    reason = performer.available()
    if reason is not None:
        raise ExecutorUnavailableError(reason)
    if not isinstance(performer, Leader):
        if launched_rank() == 0 and (launched_size() or 1) > 1:
            output.note(
                f"each of the {launched_size()} processes runs all ranks by itself; with --executor mpi "
                "they are the ranks"
            )
        yield performer
        return
    code = performer.follow()
    if code is not None:
        ctx.exit(code)
    processes = performer.processes()
    if processes:
        output.note(processes)
    if flags["ranks"] is None:
        flags["ranks"] = performer.ranks
    code = UmmError.exit_code
    try:
        yield performer
        code = 0
    except UmmError as error:
        code = error.exit_code
        raise
    except (KeyboardInterrupt, click.Abort):
        code = INTERRUPTED
        raise
    finally:
        performer.close(code)


def asked_machine(flags: dict[str, Any]) -> Machine:
    """Return the machine that --machine, --nodes and --set describe.

    Raises:
        InputError: for several values of a number.
        MachineError: for a machine or a number that does not exist, or a value that cannot be.
    """
    for key, values in _settings(flags):
        if len(values) > 1:
            flag = f"--{key}" if key in (NODES, KERNELS) else f"--set {key}"
            raise InputError(f"{flag} has several values; a list is an axis of umm search and umm sweep")
    return asked_machines(flags["machine"], flags)[0]


def asked_machines(name: str, flags: dict[str, Any]) -> list[Machine]:
    """Return a machine with every combination of the values that --nodes and --set give.

    Args:
        name: The machine's name or file.
        flags: Those of the command.

    Raises:
        MachineError: for a machine or a number that does not exist, or a value that cannot be.
    """
    settings = _settings(flags)
    keys, lists = [key for key, _ in settings], [values for _, values in settings]
    machines = [find_machine(name, dict(zip(keys, values, strict=True))) for values in product(*lists)]
    _say_kernels(machines)
    if flags.get(NODES) is not None:
        _say_cards(machines)
    return machines


def _say_kernels(machines: list[Machine]) -> None:
    """Say once on stderr whose kernels machines have, where that was chosen; answers in JSON have it too."""
    engines = dict.fromkeys(x.engine for x in machines if x.engine is not None)
    ctx = click.get_current_context(silent=True)
    if ctx is None or not engines or STANDS in ctx.meta:
        return
    ctx.meta[STANDS] = [engine.model_dump() for engine in engines]
    if not ctx.params.get("quiet") and not ctx.params.get("as_json"):
        for engine in engines:
            click.echo(engine.in_words, err=True)


def _say_cards(machines: list[Machine]) -> None:
    """Say once on stderr by what cards nodes are joined, where --nodes asks for some."""
    ctx = click.get_current_context(silent=True)
    if ctx is None or CARDS in ctx.meta or ctx.params.get("quiet") or ctx.params.get("as_json"):
        return
    ctx.meta[CARDS] = True
    cards = [cards_in_words(x.document, x.source_path.stem) for x in machines]
    for words in dict.fromkeys(filter(None, cards)):
        click.echo(words, err=True)


def _settings(flags: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Return each number that is set, with its values; that of nodes first."""
    nodes = [] if flags.get(NODES) is None else [(NODES, flags[NODES])]
    graphs = flags.get(GRAPHS)
    if flags.get(KERNELS) is not None:
        nodes.append((KERNELS, flags[KERNELS]))
    if graphs is not None:
        nodes.append((GRAPHS, "yes" if graphs else "no"))
    found = [*nodes, *(read_setting(text) for text in flags["changes"])]
    keys = [key for key, _ in found]
    twice = next((key for key in keys if keys.count(key) > 1), None)
    if twice is not None:
        raise InputError(f"{twice} is set twice; keep one, or write a list: --set {twice}=x0.5,x1")
    return [(key, [part.strip() for part in value.split(",")]) for key, value in found]


@dataclass(frozen=True)
class Asked:
    """What the flags describe.

    Attributes:
        problem: The problem or the chain, with its number of ranks.
        machine: The machine.
        choices: The keyword arguments of `umm.schedule`.
        by_library: Whether --movement library was given: what moves otherwise is named.
    """

    problem: Problem | Chain
    machine: Machine
    choices: dict[str, Any]
    by_library: bool = False

    def on(self, machine: Machine, **choices: Any) -> Schedule:
        """Return the schedule of the problem on another machine, or with some other choices."""
        return self._with_remark(build(self.problem, machine, **(self.choices | choices)), machine)

    def lower(self, problem: Problem | Chain) -> Schedule:
        """Return the schedule of a problem with the choices that were asked for."""
        return self._with_remark(build(problem, self.machine, **self.choices), self.machine)

    def _with_remark(self, schedule: Schedule, machine: Machine) -> Schedule:
        """Return a schedule with a remark on tensors that --movement library leaves to other ways."""
        remark = without_library(schedule, machine) if self.by_library else ""
        return replace(schedule, options={**schedule.options, REMARK: remark}) if remark else schedule


def asked(ctx: click.Context, flags: dict[str, Any]) -> Asked:
    """Return what the flags of `problem_options`, `chain_options` and `schedule_options` describe.

    Raises:
        InputError: if a dimension is missing, or what is asked cannot be.
    """
    machine = asked_machine(flags)
    chain = asked_chain(ctx, flags, machine) if "chain" in flags else None
    choices = asked_choices(ctx, flags)
    if chain is not None and "stationary" in choices:
        choices |= choices_left(chain, flags, scheme_of(flags["layouts"]))
    by_library = flags.get("movement") == LIBRARY
    return Asked(chain or asked_problem(flags), machine, choices, by_library)


def asked_problem(flags: dict[str, Any]) -> Problem:
    """Return what the flags of `problem_options` describe; without --ranks on all of the machine's.

    Raises:
        InputError: if a dimension is missing, or what is asked cannot be.
    """
    machine = asked_machine(flags)
    ranks = machine.default_ranks if flags["ranks"] is None else flags["ranks"]
    machine.check_ranks(ranks)
    layouts = {name: flags[name] for name in "abc"}
    types = {"dtype": flags["dtype"], "c_dtype": flags["c_dtype"]}
    return Problem(**dimensions(flags), **layouts, **types, given=flags["given"], ranks=ranks)


def dimensions(flags: dict[str, Any]) -> dict[str, Any]:
    """Return m, n and k.

    Raises:
        InputError: if one is missing.
    """
    missing = [f"-{name}" for name in "mnk" if flags[name] is None]
    if missing:
        raise InputError(f"the problem lacks {' and '.join(missing)}; give -m, -n and -k, or --preset mlp1")
    return {name: flags[name] for name in "mnk"}


def saved_or_asked(
    ctx: click.Context, path: Path | None, flags: dict[str, Any], scale: Fraction | None = None
) -> tuple[Schedule, Asked | None]:
    """Return the schedule of a file, or the one that the flags describe together with what they describe.

    Args:
        ctx: The command.
        path: The file, if one is given.
        flags: Those of the command.
        scale: Factor of every dimension.

    Raises:
        InputError: if a file is given and flags that it already decides, or either cannot be.
    """
    if path is None:
        request = asked(ctx, flags if scale is None else flags | {"scale": scale})
        if scale is not None and request.problem.kind == "problem":
            request = replace(request, problem=request.problem.at_scale(float(scale)))
        return request.lower(request.problem), request
    typed = given(ctx, (*PROBLEM, *CHAIN, *SCHEDULE, "scale"))
    if typed:
        raise InputError(
            f"the schedule in {path} already decides {', '.join(typed)}; leave out one or the other"
        )
    from umm.schedules.files import load

    return load(path), None

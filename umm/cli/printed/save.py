"""Writing results to the requested files, or as a program in a framework."""

import importlib.util
from collections.abc import Mapping
from pathlib import Path

from umm.algorithms import scheduling
from umm.cli.printed.output import Output
from umm.errors import InputError, UmmError
from umm.executor import executor
from umm.files import target_of
from umm.layouts.frameworks.words import shared_mesh
from umm.machines import Machine
from umm.space import Choice
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds, percent


def check_targets(targets: Mapping[str, Path]) -> None:
    """Refuse files that cannot be written, by the flags that name them.

    InputError if a folder does not exist, or two results have one file. UmmError if a Perfetto trace is asked
    for without its package.
    """
    files: set[Path] = set()
    for path in targets.values():
        target = target_of(path)
        if target in files:
            raise InputError(f"cannot write two results to {path}; give each its own file")
        files |= {target} if target else set()
    if "perfetto" in targets and importlib.util.find_spec("perfetto") is None:
        raise UmmError('writing a Perfetto trace needs the perfetto package; pip install "umm-sim[perfetto]"')


def save_files(
    made: Trace,
    output: Output,
    schedule: Path | None = None,
    trace: Path | None = None,
    perfetto: Path | None = None,
) -> None:
    """Write a trace's schedule, the trace and its Perfetto form; one note for each.

    UmmError if a file cannot be written.
    """
    if schedule is not None:
        from umm.schedules.files import save

        save(made.schedule, schedule)
        output.note(f"wrote the schedule to {schedule}")
    if trace is not None:
        from umm.traces.files import save_trace

        save_trace(made, trace)
        output.note(f"wrote the trace to {trace}")
    if perfetto is not None:
        made.to_perfetto(perfetto)
        output.note(f"wrote {perfetto}; open it at https://ui.perfetto.dev")


def program_of(choice: Choice, machine: Machine, named: str, target: str) -> str:
    """Return a program that sets up a point of a space.

    InputError for layouts that the framework cannot have, naming the property.

    Args:
        machine: The machine it was found for.
        named: Its name or file, with what of it was set.
        target: ``torch``, ``jax`` or ``umm``.
    """
    from umm.emit.program import emit
    from umm.plans.multiply.options import EVERY, FINALS, delivers

    note, problem = _predicted(choice, named), choice.problem
    final = choice.options.final
    if target != "umm" and problem.layout("C").replicas > 1 and delivers(final) != EVERY:
        note += f"; that ends with {FINALS[final].words}, this program with C in every replica"
    if target == "jax":
        note += "; XLA chooses collectives and overlap itself, and their time is not predicted"
    elif target == "torch" and shared_mesh([*problem.outside, problem.layout(choice.kept)]) is None:
        note += "; this program sends the same ranges by batches of messages, whose time is not predicted"
    elif target == "torch":  # DTensor's own schedule, where umm has it
        try:
            theirs = scheduling.schedule(problem, machine, algorithm="dtensor")
            seconds = format_seconds(executor("sim").makespan(theirs))
            note += f"; DTensor's own dispatch of them is predicted to take {seconds}"
        except UmmError:
            note += "; DTensor dispatches collectives of its own for them, whose time is not predicted"
    return emit(target, problem, named, choice.kept, choice.options.to_dict(), f"{note}.")


def _predicted(made: Choice | Trace, named: str) -> str:
    return (
        f"umm predicts {format_seconds(made.makespan_s)} for its own schedule of these layouts on {named}, "
        f"{percent(made.fraction_of_peak, 1)} of peak, {format_bytes(made.memory_bytes)} a rank"
    )


def chain_program(target: str, trace: Trace, machine: Machine) -> str:
    """Return a simulated chain as a framework's program or flags.

    InputError for layouts that the framework cannot have, naming the property.
    """
    from umm.emit.chains.program import emit_chain

    return emit_chain(target, trace, machine, f"{_predicted(trace, machine.name)}.")

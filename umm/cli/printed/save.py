"""Write what a command made to the files that were asked for, or as a program in a framework."""

import importlib.util
from pathlib import Path

from umm.cli.printed.output import Output
from umm.emit.program import emit
from umm.errors import InputError, UmmError
from umm.files import target_of
from umm.space import Choice
from umm.traces.trace import Trace
from umm.units import format_bytes, format_seconds


def check_targets(*targets: Path | None, perfetto: Path | None = None) -> None:
    """Refuse files that cannot be written, before the work whose results they are to hold.

    Raises:
        InputError: if a folder does not exist, or two results have one file.
        UmmError: if a Perfetto trace is asked for without its package.
    """
    files: set[Path] = set()
    for path in (*targets, perfetto):
        target = None if path is None else target_of(path)
        if target in files:
            raise InputError(f"cannot write two results to {path}; give each its own file")
        files |= {target} if target else set()
    if perfetto is not None and importlib.util.find_spec("perfetto") is None:
        raise UmmError('writing a Perfetto trace needs the perfetto package; pip install "umm-sim[perfetto]"')


def save_files(
    made: Trace,
    output: Output,
    schedule: Path | None = None,
    trace: Path | None = None,
    perfetto: Path | None = None,
    html: Path | None = None,
    verdict: str = "",
) -> None:
    """Write a trace's schedule, the trace, its Perfetto form and its page; one note for each.

    Args:
        made: The trace.
        output: Where notes go.
        schedule: Where its schedule goes.
        trace: Where the trace goes.
        perfetto: Where its Perfetto form goes.
        html: Where its page goes.
        verdict: What the page says of it; the trace's own verdict if empty.

    Raises:
        UmmError: if a file cannot be written.
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
    if html is not None:
        from umm.figures.report import write_html

        write_html(made, html, verdict)
        output.note(f"wrote {html}; it opens in any browser, offline")


def program_of(choice: Choice, machine: str, target: str) -> str:
    """Return a program that sets up a point of a space.

    Args:
        choice: The point.
        machine: Name or file of the machine it was found for.
        target: ``torch``, ``jax`` or ``umm``.

    Raises:
        InputError: for layouts that the framework cannot have, naming the property.
    """
    note = (
        f"umm predicts {format_seconds(choice.makespan_s)} on {machine}, "
        f"{choice.fraction_of_peak:.1%} of peak, {format_bytes(choice.memory_bytes)} a rank."
    )
    return emit(target, choice.problem, machine, choice.kept, choice.options.to_dict(), note)

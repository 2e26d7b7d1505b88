"""Write what a command made to the files that were asked for."""

from pathlib import Path

from umm.cli.output import Output
from umm.trace import Trace


def save_files(
    made: Trace,
    output: Output,
    schedule: Path | None = None,
    trace: Path | None = None,
    perfetto: Path | None = None,
    html: Path | None = None,
) -> None:
    """Write a trace's schedule, the trace, its Perfetto form and its page; one note for each.

    Raises:
        UmmError: if a file cannot be written.
    """
    if schedule is not None:
        from umm.schedules.codec import save

        save(made.schedule, schedule)
        output.note(f"wrote the schedule to {schedule}")
    if trace is not None:
        from umm.trace_io import save_trace

        save_trace(made, trace)
        output.note(f"wrote the trace to {trace}")
    if perfetto is not None:
        made.to_perfetto(perfetto)
        output.note(f"wrote {perfetto}; open it at https://ui.perfetto.dev")
    if html is not None:
        from umm.figures.report import write_html

        write_html(made, html)
        output.note(f"wrote {html}; it opens in any browser, offline")

"""``umm compare``: predicted against measured."""

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import CHAIN, chain_options
from umm.cli.flags.options import (
    PROBLEM,
    READ,
    WRITE,
    given,
    measure_options,
    option,
    output_options,
    problem_options,
    time_limit,
)
from umm.cli.flags.schedule import SCHEDULE, schedule_options
from umm.cli.flags.values import share
from umm.cli.printed.output import Output
from umm.errors import CheckError, InputError

if TYPE_CHECKING:
    from umm.comparison import Comparison
    from umm.space.what_if.advice import Beside


@click.command()
@click.argument("traces", nargs=-1, type=READ)
@option(
    "--fail-above",
    callback=share,
    metavar="SHARE",
    help="Exit with code 4 if the predicted makespan is off by more than this.",
)
@problem_options(machine="localhost")
@chain_options()
@schedule_options()
@option("--schedule", "saved", type=READ, help="Run a saved schedule instead.")
@measure_options(executor="numpy")
@time_limit()
@option("--html", type=WRITE, help="Write a standalone page with figures and every action.")
@output_options()
@click.pass_context
def compare(
    ctx: click.Context,
    /,
    traces: tuple[Path, ...],
    fail_above: float | None,
    saved: Path | None,
    executor: str,
    options: dict[str, Any],
    iters: int,
    warmup: int,
    scale: Fraction | None,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Compare a predicted trace with a measured one, action by action.

    TRACES are two files that 'umm simulate --save-trace' and 'umm run --save-trace' wrote, the predicted
    first. Without them the schedule is simulated, executed with --executor, and the best run is compared.
    """
    from umm.cli.commands.simulate import sure_of
    from umm.cli.flags.asked import performing, saved_or_asked
    from umm.cli.printed.report import (
        comparison_record,
        measured_record,
        note_scale,
        predicted_record,
        print_comparison,
        problem_record,
        say_needs,
    )
    from umm.cli.printed.save import check_targets
    from umm.comparison import compare as compare_traces
    from umm.executor import run as perform
    from umm.executor import times_of
    from umm.measure import Measured, measure, needs
    from umm.traces.files import load_trace

    output = Output(as_json, quiet, no_color)
    check_targets(html)
    all_runs: dict[str, Any] | None = None
    sure: Beside | None = None
    if traces:
        if len(traces) != 2:
            wrong = "1 trace is not enough" if len(traces) == 1 else f"{len(traces)} traces are too many"
            raise InputError(f"{wrong} to compare; give the predicted and the measured")
        typed = given(ctx, (*PROBLEM, *CHAIN, *SCHEDULE, "executor", "options", "iters", "warmup", "scale"))
        if typed or saved:
            raise InputError(
                f"the traces already decide {', '.join(typed or ['--schedule'])}; leave it out, or the traces"
            )
        predicted, measured = (load_trace(path) for path in traces)
        if measured.times == "predicted" != predicted.times:
            output.note(f"{traces[1]} is the predicted one; taken first")
            predicted, measured = measured, predicted
    else:
        with performing(ctx, executor, options, flags, output) as performer:
            check_tolerance(fail_above, times_of(performer) != "meaningless")
            schedule, request = saved_or_asked(ctx, saved, flags, scale)
            note_scale(scale, schedule, output)
            needed = needs(schedule, performer, iters=iters, warmup=warmup, check=False)
            say_needs(needed, output, offers=saved is None)
            predicted = perform(schedule, "sim")
            sure = sure_of(predicted, request)
            with output.ending(Measured) as answer, output.tracking(f"running with {executor}") as track:
                answer.append(measure(schedule, performer, executor, iters=iters, warmup=warmup, track=track))
            measured, all_runs = answer[0].best, answer[0].record()
    comparison = compare_traces(predicted, measured, None if sure is None else sure.ends)
    check_tolerance(fail_above, comparison.times_comparable)
    if as_json:
        record = problem_record(predicted.schedule) | {
            "predicted": predicted_record(predicted),
            "measured": measured_record(measured, all_runs),
            "comparison": comparison_record(comparison)
            | {"measure_next": sure.widest._asdict() if sure and sure.widest else None},
        }
        output.json("compare", record)
    else:
        print_comparison(output.console(), comparison)
        if sure and sure.widest:
            output.console().print(sure.widest.in_words(predicted.makespan_s))
    if html is not None:
        from umm.figures.report import write_comparison

        write_comparison(comparison, html)
        output.note(f"wrote {html}; it opens in any browser, offline")
    refuse(comparison, fail_above)
    output.end()


def check_tolerance(fail_above: float | None, comparable: bool) -> None:
    """Refuse to hold times to a share that cannot be compared.

    Raises:
        InputError: if so.
    """
    if fail_above is not None and not comparable:
        raise InputError("--fail-above needs times of real ranks, not of one process in place of all")


def refuse(comparison: "Comparison", fail_above: float | None) -> None:
    """Raise if the order is broken or the makespan is further off than asked.

    Raises:
        CheckError: for either.
    """
    if not comparison.order_kept:
        raise CheckError("some actions started before what they wait for had finished")
    if fail_above is None:
        return
    if not abs(comparison.makespan_error) <= fail_above:
        raise CheckError(
            f"the predicted makespan is {100 * comparison.makespan_error:+.1f} % off, "
            f"more than the {100 * fail_above:g} % allowed"
        )

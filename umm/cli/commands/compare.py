"""``umm compare``: predicted against measured."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.asked import PROBLEM, ToSchedule
from umm.cli.flags.chain import CHAIN
from umm.cli.flags.declared import argument, command, flag, names_of
from umm.cli.flags.options import READ, Answering, FromFile, Limited, Located, Measured, Paged
from umm.cli.flags.performing import performing
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.flags.values import share
from umm.errors import CheckError, InputError
from umm.files import opened

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.profiles.kernel import Kernel


class Compare(ToSchedule, FromFile, Measured, Paged, Limited, Answering, heading="Execution"):
    """Two traces, or a schedule and who executes it."""

    traces: tuple[Path, ...] = argument(nargs=-1, type=READ)
    profile: Path | None = flag(
        type=READ, metavar="FILE", usual=True,
        help="A profile instead: torch.profiler's JSON (also .gz) or a Chakra trace, beside a prediction: a "
        "trace of 'umm simulate --save-trace', 'umm step --json -o FILE', or flags of a multiply or chain.",
    )  # fmt: skip
    module: str | None = flag(
        metavar="PACKAGE.MODULE:FUNCTION",
        help="With --profile, an nn.Module as eager PyTorch runs it, a kernel for each operation: the "
        "function returns it and its inputs. --backward adds gradients.",
    )  # fmt: skip
    steps: int | None = flag(
        type=click.IntRange(1, 1_000_000), metavar="COUNT",
        help="Steps that a --profile without ProfilerStep marks is of; 1 if not given.",
    )  # fmt: skip
    fail_above: float | None = flag(
        callback=share, metavar="SHARE", usual=True,
        help="Exit with code 4 if the predicted makespan is off by more than this.",
    )  # fmt: skip


@command(Compare, machine="localhost")
def compare(asked: Compare) -> None:
    """Compare a predicted trace with a measured one, action by action.

    TRACES are two files that 'umm simulate --save-trace' and 'umm run --save-trace' wrote, the predicted
    first. Without them the schedule is simulated, executed with --executor, and the best run is compared.

    --profile puts a framework's kernels beside predicted ones: the share of their time that is explained,
    where both part, and the numbers of the machine that would close the gap.
    """
    for name in ("steps", "module"):
        if getattr(asked, name) is not None and asked.profile is None:
            raise InputError(f"--{name} is of a --profile; leave it out, or give one")
    if asked.profile is not None:
        explain_profile(asked, asked.profile)
        return
    from umm.cli.commands.simulate import sure_of
    from umm.cli.printed.report import comparison_of, note_scale, print_comparison, say_needs
    from umm.comparison import compare as compare_traces
    from umm.executor import run, times_of
    from umm.measure import Measured, measure, needs
    from umm.traces.files import load_trace

    traces, output, name, all_runs, sure = asked.traces, asked.output, asked.executor, None, None
    if traces:
        if len(traces) != 2:
            count = "1 trace is not enough" if len(traces) == 1 else f"{len(traces)} traces are too many"
            raise InputError(f"{count} to compare; give the predicted and the measured")
        runs = ("executor", "options", "iters", "warmup", "scale", "saved")
        decided = (*PROBLEM, *CHAIN, *SCHEDULE, *runs)
        asked.refuse(decided, "the traces already decide {}; leave it out, or the traces")
        predicted, measured = (load_trace(path) for path in traces)
        if measured.times == "predicted" != predicted.times:
            output.note(f"{traces[1]} is the predicted one; taken first")
            predicted, measured = measured, predicted
    else:
        with performing(asked, name, asked.options, asked.ranks) as (performer, ranks):
            check_tolerance(asked.fail_above, times_of(performer) != "meaningless")
            schedule, request = replace(asked, ranks=ranks).saved_or_asked(asked.saved, asked.scale)
            note_scale(asked.scale, schedule, output)
            often: dict[str, Any] = {"iters": asked.iters, "warmup": asked.warmup, "check": False}
            say_needs(needs(schedule, performer, **often), output, offers=asked.saved is None)
            predicted = run(schedule, "sim")
            sure = sure_of(predicted, request)
            with output.ending(Measured) as answer, output.tracking(f"running with {name}") as track:
                answer.append(measure(schedule, performer, name, track=track, **often))
            measured, all_runs = answer[0].best, answer[0].record()
    comparison = compare_traces(predicted, measured, None if sure is None else sure.ends)
    check_tolerance(asked.fail_above, comparison.times_comparable)
    widest, allowed = sure.widest if sure else None, asked.fail_above
    wrong: CheckError | None = None
    if not comparison.order_kept:
        wrong = CheckError("some actions started before what they wait for had finished")
    elif allowed is not None and abs(comparison.makespan_error) > allowed:
        off = f"{100 * comparison.makespan_error:+.1f} %"
        wrong = CheckError(f"the predicted makespan is {off} off, more than the {100 * allowed:g} % allowed")

    asked.answer(
        lambda: comparison_of(comparison, all_runs, widest),
        lambda console: print_comparison(console, comparison, widest),
        [comparison],
        wrong,
    )


def explain_profile(asked: Compare, path: Path) -> None:
    """Put a profile beside a prediction; InputError for flags of an execution, or several predictions."""
    from umm.cli.printed.profile_page import print_profile, profile_record
    from umm.profiles.beside import beside
    from umm.profiles.files import load_profile
    from umm.space.what_if.profiled import causes

    of_runs = ("executor", "iters", "warmup", "fail_above", "html")
    asked.refuse(of_runs, "{} does not apply to --profile; leave it out")
    if len(asked.traces) > 1:
        raise InputError(f"{len(asked.traces)} predictions are too many for one profile; give one")
    profile = load_profile(path)
    if asked.steps is not None:
        if profile.marks:
            raise InputError(f"the profile marks {profile.steps} steps itself; leave out --steps")
        profile = replace(profile, steps=asked.steps)
    kernels, machine, dtype, seconds = _predicted(asked)
    result = beside(profile, kernels)
    known = causes(result, machine, dtype)
    asked.answer(
        lambda: {"machine": machine.name} | profile_record(result, known, seconds),
        lambda console: print_profile(console, result, known, seconds, machine.name),
    )


def _predicted(asked: Compare) -> "tuple[list[Kernel], Machine, str, float]":
    """Return the kernels of a prediction, its machine, the type of its multiplies, and its seconds."""
    from umm.executor import run
    from umm.machines import machine
    from umm.machines.settings import split_settings
    from umm.profiles.scheduled import trace_kernels
    from umm.step.kernels import step_kernels
    from umm.step.record import load_question
    from umm.step.step import simulated
    from umm.traces.files import load_trace

    if asked.module is not None:
        return _of_module(asked, asked.module)
    if not asked.traces:
        if not asked.saved and not asked.typed((*PROBLEM, *CHAIN)):
            raise InputError("give what was predicted: a trace, a step, or flags of a multiply or chain")
        if not asked.saved and not asked.typed(["machine"]):
            raise InputError("--profile needs the machine that it is of, such as --machine h100-8")
        schedule, request = asked.saved_or_asked(asked.saved, asked.scale)
        trace, hardware = run(schedule, "sim"), request.machine if request else asked.hardware
    elif _is_step(asked.traces[0]):
        question = load_question(asked.traces[0])
        return step_kernels(question), question.machine, question.rates.dtype, simulated(question)[0]
    else:
        trace = load_trace(asked.traces[0])
        name, settings = split_settings(trace.schedule.machine)
        hardware = asked.hardware if asked.typed(["machine"]) else machine(name, settings)
    dtype = trace.schedule.program.tensors[0].dtype
    return trace_kernels(trace), hardware, dtype, trace.makespan_s


def _of_module(asked: Compare, text: str) -> "tuple[list[Kernel], Machine, str, float]":
    """Return the same of a module in eager PyTorch, whose kernels run one after the other."""
    from umm.cli.flags.framework import load_program
    from umm.torch.eager import kernels

    taken = ("backward", *names_of(Located))
    others = [x for x in (*PROBLEM, *CHAIN, *SCHEDULE) if x not in taken]
    given = ["TRACES"] if asked.traces else []
    asked.refuse(others, "--module decides what is computed; leave out {}", *given)
    if not asked.typed(["machine"]):
        raise InputError("--profile needs the machine that it is of, such as --machine h100-8")
    module, inputs = load_program(text)
    result = kernels(module, inputs, asked.hardware, bool(asked.backward))
    dtype = next((str(x.dtype).removeprefix("torch.") for x in module.parameters()), "float32")
    return result, asked.hardware, dtype, sum(x.seconds for x in result)


def _is_step(path: Path) -> bool:
    """Whether a file is the answer of umm step, not a trace."""
    with opened(path) as file:
        return path.suffix != ".npz" and b'"command": "step"' in file.read(200)


def check_tolerance(fail_above: float | None, comparable: bool) -> None:
    """Refuse to hold times to a share that cannot be compared; InputError if so."""
    if fail_above is not None and not comparable:
        raise InputError("--fail-above needs times of real ranks, not of one process in place of all")

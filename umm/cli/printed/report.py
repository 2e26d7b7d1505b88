"""Traces, measured runs and comparisons in words, and as plain values."""

import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.console import Console
from rich.text import Text

from umm.algorithms.scheduling import choices_in_words
from umm.cli.printed.output import Output, facts
from umm.errors import InfeasibleError, MachineError
from umm.machines import Machine
from umm.machines.files import last_named
from umm.plans.multiply.options import LAYOUTS, MOVEMENTS, REMARK
from umm.program.chain import Chain
from umm.program.problem import MATRICES, Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import GEMM, KINDS
from umm.space.budget import device_share, over_limit
from umm.traces.bottleneck import lost_in_words
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind
from umm.units import counted, duration, format_bytes, format_rate, format_seconds, percent

if TYPE_CHECKING:
    from umm.measure import Needs
    from umm.space.what_if.beside import Beside

BAR = 36  # columns of the bar that stands for the whole makespan


def problem_record(schedule: Schedule) -> dict[str, Any]:
    """Return the program, its machine and its options as plain values."""
    program = schedule.program
    remarks = cast(Chain, program).remarks() if program.kind == "chain" else {}
    return {
        "problem": program.record() | {"stationary": _stationary(schedule)} | remarks,
        "machine": schedule.machine,
        "options": dict(schedule.options),
    }


def _stationary(schedule: Schedule) -> str:
    """Return the stationary matrix; of a chain the choice for all its multiplies."""
    if schedule.program.kind == "problem":
        return schedule.name
    return str(schedule.options.get("stationary", schedule.name))


def predicted_record(trace: Trace) -> dict[str, Any]:
    """Return a trace's figures: times in seconds, sizes in bytes; breakdown is the mean over ranks."""
    return {
        "makespan_s": trace.makespan_s,
        "fraction_of_peak": trace.fraction_of_peak,
        "breakdown": trace.breakdown().mean,
        **moved_record(trace),
        "bound_by": trace.bound_by,
        "verdict": trace.verdict,
    }


def moved_record(trace: Trace) -> dict[str, Any]:
    """Return a trace's memory and traffic, in bytes, and its number of actions."""
    names = ("memory_bytes", "pool_bytes", "get_bytes", "put_bytes", "accumulate_bytes", "reduce_bytes")
    return {**{name: getattr(trace, name) for name in names}, "actions": len(trace.schedule)}


def measured_record(trace: Trace, runs: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the best run's figures, and those of all together, None of a trace alone.

    Args:
        runs: Best, mean and spread of all runs, and the check.
    """
    unknown = dict.fromkeys(("mean_s", "std_s", "iters", "max_abs_error", "ok"))
    of_runs = {"best_s": trace.makespan_s, **unknown} if runs is None else runs
    return {**of_runs, **moved_record(trace), "verdict": trace.verdict}


def print_schedule(console: Console, schedule: Schedule, move_s: Mapping[str, float] | None = None) -> None:
    """Print a multiply and its schedule, in a few lines.

    Args:
        move_s: Seconds to move operands from rows, where that is known and nothing is given.
    """
    table = facts()
    program = schedule.program
    where = f"{counted(program.p, 'rank')} on {schedule.machine}"
    for name, text in program.facts(where):
        table.add_row(name, text)
    machine = _machine_of(schedule)
    if machine is not None:
        if machine.rank:
            table.add_row("a rank", machine.rank)
        if nodes := on_nodes(machine, schedule.ranks):
            table.add_row("nodes", nodes)
    single = program.kind == "problem"
    by_policy = "policy" in schedule.options or not single
    words = str(schedule.options.get(LAYOUTS, program.layout_words))
    table.add_row("layouts", words + (f"; stationary {_stationary(schedule)}" if by_policy else ""))
    if not by_policy:
        choices = choices_in_words(schedule)
        table.add_row("choices", schedule.name + (f": {choices}" if choices else ""))
    elif schedule.options:
        table.add_row("choices", choices_in_words(schedule) + _one_sided(schedule))
    if isinstance(remark := schedule.options.get(REMARK), str):
        table.add_row("library", remark)
    if single and schedule.problem.given:
        problem, moved_ = schedule.problem, []
        for x, inside, outside in zip(MATRICES, problem.layouts, problem.outside, strict=True):
            if inside != outside:  # with its layout and way: `A from row by gets, C to col by ring`
                how = schedule.options.get(f"bring_{x.lower()}")
                way = f" by {how}" if how else ""
                moved_.append(f"{x} {'to' if x == 'C' else 'from'} {outside}{way}")
        table.add_row("operands", ", ".join(moved_) or "all there already")
    elif single:
        names = {"A": "A", "B": "B", "C": "C back"}
        parts = ", ".join(f"{names[x]} {_briefly(seconds)}" for x, seconds in (move_s or {}).items())
        more = f"; starting from row, moving them would add: {parts}" if parts else ""
        table.add_row("operands", f"start in the layouts shown{more}")
    which, first, counts = np.unique(schedule.kind, return_index=True, return_counts=True)
    parts = ", ".join(f"{counts[i]} {KINDS[which[i]]}" for i in first.argsort())
    table.add_row("schedule", f"{counted(len(schedule), 'action')}: {parts}")
    console.print(table)


def _one_sided(schedule: Schedule) -> str:
    """Return that multiplies of a chain move operands one-sided where nobody chose it, and who chooses."""
    options = schedule.options
    usual = (
        schedule.program.kind == "chain" and options.get("movement") == "auto" and "moved_by" not in options
    )
    if not usual or (schedule.src == schedule.dst).all():
        return ""
    return f", {MOVEMENTS['flat']} (umm peers also tries collectives)"


def _briefly(seconds: float) -> str:
    """Return a time in words; copies inside a rank's memory have no start, so short ones have no meaning.

    >>> _briefly(1.22e-9), _briefly(2e-5)
    ('under 1 µs', '20.00 µs')
    """
    return format_seconds(seconds) if seconds >= 1e-6 else "under 1 µs"


def _machine_of(schedule: Schedule) -> Machine | None:
    """Return the machine by its name in a schedule; None if none here has it."""
    try:
        return last_named(schedule.machine)
    except MachineError:
        return None


def device_room(schedule: Schedule) -> int | None:
    """Return the bytes a rank has of its device's memory; None if no machine here has the schedule's name."""
    machine = _machine_of(schedule)
    return None if machine is None else device_share(machine, schedule.ranks)


def on_nodes(machine: Machine, ranks: int) -> str:
    """Return how many nodes ranks fill where they do not fill all, and how to spread them; else nothing."""
    size = machine.fabric.near
    if not machine.fabric.nodes or not 1 < size < ranks < machine.device_count:
        return ""
    nodes = machine.device_count // size
    filled, rest = divmod(ranks, size)
    words = f"{filled + (rest > 0)} of {nodes}, {size} ranks on each"
    words += f", {rest} on the last" if rest else ""
    spread = ranks // nodes
    return words + (f"; --set ranks_per_node={spread} spreads them" if spread * nodes == ranks else "")


def print_prediction(console: Console, trace: Trace, beside: "Beside") -> None:
    """Print the time, its parts, the traffic and the memory."""
    table = facts()
    reached = trace.schedule.program.flop / trace.makespan_s if trace.makespan_s else 0.0
    peak = trace.fraction_of_peak
    of_peak = "" if math.isnan(peak) else f", {percent(peak, 1)} of peak ({format_rate(reached)})"
    ends = beside.within(trace)
    within = f" ({ends})" if ends else ""
    table.add_row("makespan", Text(format_seconds(trace.makespan_s) + within + of_peak, style="bold"))
    if beside.noise and beside.spread:
        p50, p95 = map(format_seconds, beside.spread)
        table.add_row("draws", f"p50 {p50}, p95 {p95} with {beside.noise}")
    for part in parts_in_words(trace.breakdown().mean, trace.makespan_s):
        table.add_row("", part)
    if lost := lost_in_words(trace):
        table.add_row("off peak", f"{percent(1 - peak)}: {lost}")
    table.add_row("moved", moved(trace))
    over = "" if beside.room is None else over_limit(trace.memory_bytes, beside.room)
    table.add_row(
        "memory",
        f"{format_bytes(trace.memory_bytes)} on the fullest rank, "
        f"of it {format_bytes(trace.pool_bytes)} pool{over}",
    )
    console.print(table)


def print_verdict(console: Console, trace: Trace, beside: "Beside", reasons: str = "") -> None:
    """Print the bottleneck, a better choice, and the assumed number that decides."""
    table = facts()
    table.add_row("verdict", Text(beside.verdict(trace), style="bold"))
    if beside.left_out:
        from umm.algorithms.summa import block_cyclic

        program = trace.schedule.program
        by_blocks = isinstance(program, Problem) and block_cyclic(program)
        gives = f"'umm {'peers' if by_blocks else 'search'}' with these sizes, ranks and machine gives it"
        table.add_row("advice", f"left out at this size; {gives}")
    if beside.assumed:
        table.add_row("assumed", str(beside.assumed))
    if beside.widest:
        table.add_row("range", beside.widest.in_words(trace.makespan_s))
    console.print(table)
    if reasons:
        console.print(reasons, soft_wrap=True)


def parts_in_words(parts: Mapping[str, float], total: float) -> Iterator[str]:
    """Yield a line for each part of a time: its share, and a bar as long."""
    for part, seconds in parts.items():
        share = seconds / total if total else 0.0
        yield f"{percent(share, 1):>7} {part.replace('_', ' '):21} {'█' * round(share * BAR)}"


def moved(trace: Trace) -> str:
    """Return the bytes of each kind of transfer in words, over all ranks."""
    return moved_in_words(bytes_by_kind(trace.schedule))


def moved_in_words(sizes: Mapping[str, int]) -> str:
    """Return bytes of kinds of transfers in words, those of all ranks."""
    shown = ("get", "accumulate", "reduce", "put")
    parts = [f"{kind} {format_bytes(sizes[kind])}" for kind in shown if sizes[kind]]
    return f"{', '.join(parts)}, all ranks together" if parts else "nothing between ranks"


def note_scale(scale: Fraction | None, schedule: Schedule, output: Output) -> None:
    """Note the effect of a scale."""
    if scale is None:
        return
    if schedule.program.kind == "problem":
        sizes = ", ".join(f"{x} = {getattr(schedule.problem, x)}" for x in "mnk")
        idle = schedule.ranks - len(np.unique(schedule.rank[schedule.kind == GEMM]))
        alike = (
            "the layouts cut it alike" if not idle else f"{idle} of {schedule.ranks} ranks multiply nothing"
        )
        output.note(f"at {scale} of every dimension: {sizes}; {alike}")
    else:
        output.note(f"at {scale} of tokens, hidden and ffn; as many heads, each smaller")


def say_needs(needs: "Needs | None", output: Output, offers: bool) -> None:
    """Note the time and memory of runs on this host, if more than a second.

    InfeasibleError if this host lacks the memory; says what would fit.

    Args:
        needs: Time and memory; None if unknown.
        offers: Whether the problem can be scaled down.
    """
    if needs is None:
        return
    takes = f"{format_bytes(needs.nbytes)} of this host's memory"
    if needs.nbytes > needs.free:
        by = needs.scale_within(nbytes=needs.free)
        fits = f"--scale 1/{by} takes {format_bytes(needs.nbytes / by**2)}" if offers else "run a smaller one"
        raise InfeasibleError(f"this would take {takes}, of which {format_bytes(needs.free)} is free; {fits}")
    if needs.seconds < 1.0:
        return
    work = format_rate(needs.flop).removesuffix("/s")
    words = f"about {duration(needs.seconds)} and {takes}: {counted(needs.runs, 'run')} of {work}"
    by = needs.scale_within(seconds=10.0)
    if offers and by > 1:
        words += f"; --scale 1/{by} takes about {duration(needs.seconds / by**3)}"
    output.note(words)

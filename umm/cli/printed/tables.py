"""Tables of collectives over sizes, of numbers of ranks, and of all layers of a model."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.text import Text

from umm.cli.printed import report
from umm.cli.printed.output import facts, print_fitting
from umm.machines import Machine
from umm.plans.collectives.closed_forms import bandwidth, bus_factor, closed_form
from umm.plans.collectives.program import Collective
from umm.program.presets import next_tokens
from umm.space.budget import device_share, over_limit, usual_limit
from umm.traces.bottleneck import lost_in_words
from umm.units import counted, format_bandwidth, format_bytes, format_seconds, range_in_words

if TYPE_CHECKING:
    from umm.plans.steady import Steady
    from umm.space.scaling import Scaling


DIFFERENT = 0.02  # share by which layers have to differ for that to be said


def layers_record(
    layers: "Steady", machine: Machine, ends: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return the keys of ``simulate``: figures of all layers, the bottleneck of a few."""
    record = report.problem_record(layers.trace.schedule)
    predicted = report.predicted_record(layers.trace) | layers.to_dict()
    predicted["fraction_of_peak"] = _fraction(layers)
    predicted["makespan_range_s"] = None if ends is None else list(ends)
    predicted["simulated_actions"] = predicted.pop("actions")
    return record | {"predicted": predicted}


def print_layers(
    console: Console,
    layers: "Steady",
    machine: Machine,
    ends: tuple[float, float] | None = None,
    reasons: str = "",
) -> None:
    """Print the time of all layers and of one in the middle, where it goes, and the memory of all."""
    schedule, table = layers.trace.schedule, facts()
    peak, room = _fraction(layers), device_share(machine, schedule.ranks)
    where = f"{counted(schedule.ranks, 'rank')} on {schedule.machine}"
    many = f"{len(layers.kinds)} kinds" if layers.kinds else schedule.program.name
    table.add_row("layers", f"{layers.layers} of {many}, {where}")
    again = f"recompute {layers.recompute}; " if layers.kept_bytes or layers.recompute != "none" else ""
    table.add_row("", f"{again}{_simulated(layers)}")
    trained = "; neither the loss nor the optimizer's update" if layers.state else ""
    of_peak = "" if math.isnan(peak) else f", {100 * peak:.1f} % of peak in useful flop (MFU)"
    within = "" if ends is None else f" ({range_in_words(layers.makespan_s, ends)})"
    table.add_row("all", format_seconds(layers.makespan_s) + within + of_peak + trained)
    for part in report.parts_in_words(layers.breakdown, layers.makespan_s):
        table.add_row("", part)
    for name, kind in layers.kinds.items():
        seconds = f"{format_seconds(kind.makespan_s)}, {format_seconds(kind.layer_s)} a layer"
        table.add_row("", f"{kind.layers} of {name}: {seconds}")
    if not layers.kinds:
        table.add_row("layer", f"{format_seconds(layers.layer_s)} a layer (steady)")
    least, most = layers.range_s
    if most > least * (1 + DIFFERENT):
        apart = f"{format_seconds(least)} to {format_seconds(most)} by depth: ranks do not keep step"
        table.add_row("", apart)
    if layers.ends:
        of_ends = (f"{name} {format_seconds(seconds)}" for name, seconds in layers.ends.items())
        program: Any = schedule.program
        rows = {x.name: x.shape[0] for x in program.tensors}
        few = 0 < next_tokens(program.statements, rows) < rows["X"]
        last = " (of each sequence's last token)" if few and "head" in layers.ends else ""
        table.add_row("ends", f"{', '.join(of_ends)}{last}, added to the layers' time")
    of_few = "" if layers.depths[-1] == layers.layers else f" (in the {layers.depths[-1]} layers simulated)"
    if lost := lost_in_words(layers.trace):
        table.add_row("off peak", lost + of_few)
    table.add_row("moved", report.moved_in_words(layers.moved))
    rest = {"all else": layers.memory_bytes - sum(layers.held.values())}
    parts = ", ".join(f"{what} {format_bytes(x)}" for what, x in {**layers.held, **rest}.items() if x > 0)
    memory = f"{format_bytes(layers.memory_bytes)} on the fullest rank" + (
        f": {parts}" if layers.held else ""
    )
    few, more = (layers.fits(usual_limit(room), chunked) for chunked in (False, True))
    over = over_limit(layers.memory_bytes, room)
    if over:
        memory += f"{over}, where {counted(few, 'layer')} fit"
    table.add_row("memory", memory)
    if over and more > few:
        logits = f"the head's logits and their gradients are {format_bytes(layers.logits_bytes)} of it, whole"
        table.add_row("", f"{logits}; with the loss in chunks of tokens up to {counted(more, 'layer')} fit")
    if layers.kept_bytes and not layers.state:
        table.add_row("", "without an optimizer's states; --optimizer adam for Adam in mixed precision")
    table.add_row("verdict", Text(f"{layers.trace.verdict.removesuffix('.')}{of_few}.", style="bold"))
    console.print(table)
    report.print_reasons(console, reasons)


def _simulated(layers: "Steady") -> str:
    """Return the number of simulated layers, and how the others are extrapolated."""
    depth = layers.depths[-1]
    if layers.kinds:
        return "a few of each kind simulated, others extrapolated; layers of two kinds do not overlap"
    if depth == layers.layers:
        return "all simulated"
    if layers.waits:
        return (
            f"{counted(depth, 'layer')} simulated, {layers.layers - depth} extrapolated as if ranks kept step"
        )
    return f"{counted(depth, 'layer')} simulated, {layers.layers - depth} extrapolated"


def _fraction(layers: "Steady") -> float:
    """Return the share of peak that the useful flop of all reach (MFU); NaN where there is no peak."""
    peak = layers.trace.schedule.peak
    return layers.flop / (layers.makespan_s * peak) if peak else math.nan


NUMBERS = (
    "nodes", "ranks", "m", "n", "k", "tokens", "sequences", "makespan", "speed-up", "efficiency", "GPU-s",
    "memory", "gap", "$/million",
)  # fmt: skip
"""Headings of columns that are aligned on the right."""


def print_scaling(console: Console, scaling: "Scaling") -> None:
    """Print a row for each number, and the verdict."""
    grows = f"; {scaling.grows}" if scaling.grows else ""
    console.print(f"{scaling.words} on {scaling.machine}{grows}")
    print_fitting(console, scaling.in_words(), NUMBERS, ["dim", *[""] * len(scaling.rows)])
    if scaling.left_out:
        console.print(scaling.left_out)
    if scaling.verdict:
        console.print(Text(scaling.verdict, style="bold"))


LINE = "{:>12} {:>12} {:>9} {:>17} {:>12} {:>9} {:>9} {:>12} {}"


class Timed(NamedTuple):
    """One collective by one algorithm."""

    asked: Collective  # what was done
    algorithm: str  # how
    seconds: float  # how long it took, the best of several runs
    ok: bool | None = None  # Whether what came out was right; None if that was not looked at.


def row(timed: Timed, machine: Machine) -> dict[str, Any]:
    """Return a row as plain values, in bytes, seconds and bytes/s; None for a bandwidth in no time.

    algbw is the bytes of the whole buffer over the time; busbw what each rank's links carry for that, so
    that it can be compared with their bandwidth whatever the collective and the number of ranks.
    """
    asked, nbytes = timed.asked, timed.asked.moved_bytes
    algbw = nbytes / timed.seconds if timed.seconds else None
    values = {
        "nbytes": nbytes,
        "algorithm": timed.algorithm,
        "seconds": timed.seconds,
        "algbw": algbw,
        "busbw": algbw and algbw * bus_factor(asked.what, asked.ranks),
        "closed_form_s": closed_form(asked.what, nbytes, machine, asked.ranks, asked.root),
    }
    return values if timed.ok is None else values | {"ok": timed.ok}


def collective_record(rows: list[Timed], machine: Machine, source: str) -> dict[str, Any]:
    """Return the collective, its machine, and a row for each size and algorithm."""
    first = rows[0].asked
    return {
        "what": first.what,
        "machine": machine.name,
        "ranks": first.ranks,
        "dtype": first.dtype,
        "executor": source,
        "bandwidth": bandwidth(machine, first.ranks),
        "rows": [row(timed, machine) for timed in rows],
    }


def print_collectives(
    console: Console, rows: list[Timed], machine: Machine, source: str, chosen: str
) -> None:
    """Print the collective, its machine, and a line for each size and algorithm.

    Args:
        rows: Results, all of one collective.
        source: Executor of the times.
        chosen: Chosen way by size, in words; empty if the way was given.
    """
    first, checked = rows[0].asked, rows[0].ok is not None
    heard = format_bandwidth(bandwidth(machine, first.ranks))
    hears = f"; {heard} into a rank from the others" if first.ranks > 1 else ""
    lines = [
        f"# {first.what} among {counted(first.ranks, 'rank')} of {machine.name}, times from {source}{hears}",
        *([f"# each size by {chosen}"] if chosen else []),
        LINE.format("# size", "count", "type", "algorithm", "time", "algbw", "busbw", "closed form", ""),
        LINE.format("# (B)", "(elements)", "", "", "(us)", "(GB/s)", "(GB/s)", "(us)", ""),
    ]
    for timed in rows:
        cells = row(timed, machine)
        algbw, busbw = (
            "–" if cells[key] is None else f"{cells[key] / 1e9:.2f}" for key in ("algbw", "busbw")
        )
        seconds, closed = (f"{cells[key] * 1e6:.2f}" for key in ("seconds", "closed_form_s"))
        kind = cells["nbytes"], timed.asked.count, timed.asked.dtype, timed.algorithm
        right = ("right" if timed.ok else "wrong") if checked else ""
        lines.append(LINE.format(*kind, seconds, algbw, busbw, closed, right).rstrip())
    console.print("\n".join(lines), markup=False, soft_wrap=True)

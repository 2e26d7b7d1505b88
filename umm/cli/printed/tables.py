"""Tables of collectives over sizes, of numbers of ranks, and of all layers of a model."""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.text import Text

from umm.cli.printed.output import print_fitting
from umm.cli.printed.report import (
    facts,
    moved_in_words,
    parts_in_words,
    predicted_record,
    print_reasons,
    problem_record,
)
from umm.machines import Machine
from umm.plans.collectives.closed_forms import bandwidth, bus_factor, closed_form
from umm.plans.collectives.program import Collective
from umm.program.presets import next_tokens
from umm.space.budget import device_share, over_limit, usual_limit
from umm.traces.bottleneck import lost_in_words
from umm.units import counted, format_bandwidth, format_bytes, format_seconds, range_in_words

if TYPE_CHECKING:
    from rich.console import Console

    from umm.plans.lower import Steady
    from umm.space.scaling import Scaling


DIFFERENT = 0.02
"""Share by which layers have to differ for that to be said."""


def layers_record(
    found: "Steady", machine: Machine, ends: tuple[float, float] | None = None
) -> dict[str, Any]:
    """Return it as the keys of ``simulate``: all figures are of all layers, what binds is of a few."""
    record = problem_record(found.trace.schedule)
    predicted = predicted_record(found.trace) | found.to_dict()
    predicted["fraction_of_peak"] = _fraction(found)
    predicted["makespan_range_s"] = None if ends is None else list(ends)
    predicted["simulated_actions"] = predicted.pop("actions")
    return record | {"predicted": predicted}


def print_layers(
    console: "Console",
    found: "Steady",
    machine: Machine,
    ends: tuple[float, float] | None = None,
    reasons: str = "",
) -> None:
    """Print the time of all layers and of one in the middle, where it goes, and the memory of all."""
    schedule, table = found.trace.schedule, facts()
    peak, room = _fraction(found), device_share(machine, schedule.ranks)
    where = f"{counted(schedule.ranks, 'rank')} on {schedule.machine}"
    many = f"{len(found.kinds)} kinds" if found.kinds else schedule.program.name
    table.add_row("layers", f"{found.layers} of {many}, {where}")
    again = f"recompute {found.recompute}; " if found.kept_bytes or found.recompute != "none" else ""
    table.add_row("", f"{again}{_simulated(found)}")
    trained = "; neither the loss nor the optimizer's update" if found.state else ""
    of_peak = "" if math.isnan(peak) else f", {100 * peak:.1f} % of peak in useful flop (MFU)"
    within = "" if ends is None else f" ({range_in_words(found.makespan_s, ends)})"
    table.add_row("all", format_seconds(found.makespan_s) + within + of_peak + trained)
    for said in parts_in_words(found.breakdown, found.makespan_s):
        table.add_row("", said)
    for name, kind in found.kinds.items():
        seconds = f"{format_seconds(kind.makespan_s)}, {format_seconds(kind.layer_s)} a layer"
        table.add_row("", f"{kind.layers} of {name}: {seconds}")
    if not found.kinds:
        table.add_row("layer", f"{format_seconds(found.layer_s)} a layer (steady)")
    least, most = found.range_s
    if most > least * (1 + DIFFERENT):
        apart = f"{format_seconds(least)} to {format_seconds(most)} by depth: ranks do not keep step"
        table.add_row("", apart)
    if found.ends:
        of_ends = (f"{name} {format_seconds(seconds)}" for name, seconds in found.ends.items())
        program: Any = schedule.program
        rows = {x.name: x.shape[0] for x in program.tensors}
        few = 0 < next_tokens(program.statements, rows) < rows["X"]
        last = " (of each sequence's last token)" if few else ""
        table.add_row("ends", f"{', '.join(of_ends)}{last}, added to the layers' time")
    of_few = "" if found.depths[-1] == found.layers else f" (in the {found.depths[-1]} layers simulated)"
    if lost := lost_in_words(found.trace):
        table.add_row("off peak", lost + of_few)
    table.add_row("moved", moved_in_words(found.moved))
    rest = {"all else": found.memory_bytes - sum(found.held.values())}
    parts = ", ".join(f"{what} {format_bytes(x)}" for what, x in {**found.held, **rest}.items() if x > 0)
    held = f"{format_bytes(found.memory_bytes)} on the fullest rank" + (f": {parts}" if found.held else "")
    few, more = (found.fits(usual_limit(room), chunked) for chunked in (False, True))
    over = over_limit(found.memory_bytes, room)
    if over:
        held += f"{over}, where {counted(few, 'layer')} fit"
    table.add_row("memory", held)
    if over and more > few:
        whole = f"the head's logits and their gradients are {format_bytes(found.logits_bytes)} of it, whole"
        table.add_row("", f"{whole}; with the loss in chunks of tokens up to {counted(more, 'layer')} fit")
    if found.kept_bytes and not found.state:
        table.add_row("", "without an optimizer's states; --optimizer adam for Adam in mixed precision")
    table.add_row("verdict", Text(f"{found.trace.verdict.removesuffix('.')}{of_few}.", style="bold"))
    console.print(table)
    print_reasons(console, reasons)


def _simulated(found: "Steady") -> str:
    """Return how many layers the time is from, and what each of the others takes."""
    depth = found.depths[-1]
    if found.kinds:
        return "a few of each kind simulated, others extrapolated; layers of two kinds do not overlap"
    if depth == found.layers:
        return "all simulated"
    if found.waits:
        return (
            f"{counted(depth, 'layer')} simulated, {found.layers - depth} extrapolated as if ranks kept step"
        )
    return f"{counted(depth, 'layer')} simulated, {found.layers - depth} extrapolated"


def _fraction(found: "Steady") -> float:
    """Return the share of peak that the useful flop of all reach (MFU); NaN where there is no peak."""
    peak = found.trace.schedule.peak
    return found.flop / (found.makespan_s * peak) if peak else math.nan


NUMBERS = (
    "nodes",
    "ranks",
    "m",
    "n",
    "k",
    "tokens",
    "sequences",
    "makespan",
    "speed-up",
    "efficiency",
    "GPU-s",
    "memory",
    "gap",
    "$/million",
)
"""Headings of columns that are aligned on the right."""


def print_scaling(console: "Console", found: "Scaling") -> None:
    """Print a row for each number, and what to use."""
    grows = f"; {found.grows}" if found.grows else ""
    console.print(f"{found.words} on {found.machine}{grows}")
    print_fitting(console, found.in_words(), NUMBERS, ["dim", *[""] * len(found.rows)])
    if found.left_out:
        console.print(found.left_out)
    if found.verdict:
        console.print(Text(found.verdict, style="bold"))


LINE = "{:>12} {:>12} {:>9} {:>17} {:>12} {:>9} {:>9} {:>12} {}"


class Timed(NamedTuple):
    """One collective by one algorithm.

    Attributes:
        asked: What was done.
        algorithm: How.
        seconds: How long it took, the best of several runs.
        ok: Whether what came out was right; None if that was not looked at.
    """

    asked: Collective
    algorithm: str
    seconds: float
    ok: bool | None = None


def row(timed: Timed, machine: Machine) -> dict[str, Any]:
    """Return a row as plain values, in bytes, seconds and bytes/s; None for a bandwidth in no time.

    algbw is the bytes of the whole buffer over the time; busbw what each rank's links carry for that, so
    that it can be compared with their bandwidth whatever the collective and the number of ranks.
    """
    asked, nbytes = timed.asked, timed.asked.moved_bytes
    algbw = nbytes / timed.seconds if timed.seconds else None
    found = {
        "nbytes": nbytes,
        "algorithm": timed.algorithm,
        "seconds": timed.seconds,
        "algbw": algbw,
        "busbw": algbw and algbw * bus_factor(asked.what, asked.ranks),
        "closed_form_s": closed_form(asked.what, nbytes, machine, asked.ranks, asked.root),
    }
    return found if timed.ok is None else found | {"ok": timed.ok}


def collective_record(rows: list[Timed], machine: Machine, source: str) -> dict[str, Any]:
    """Return what was done, where, and a row for each size and algorithm."""
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
    console: "Console", rows: list[Timed], machine: Machine, source: str, chosen: str
) -> None:
    """Print what was done, where, and a line for each size and algorithm.

    Args:
        console: Where to.
        rows: What was done; all are the same collective.
        machine: On which machine.
        source: Which executor the times are from.
        chosen: By what each size is done, in words; nothing if that was asked for.
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
        lines.append(
            LINE.format(
                cells["nbytes"],
                timed.asked.count,
                timed.asked.dtype,
                timed.algorithm,
                f"{cells['seconds'] * 1e6:.2f}",
                algbw,
                busbw,
                f"{cells['closed_form_s'] * 1e6:.2f}",
                ("right" if timed.ok else "wrong") if checked else "",
            ).rstrip()
        )
    console.print("\n".join(lines), markup=False, soft_wrap=True)

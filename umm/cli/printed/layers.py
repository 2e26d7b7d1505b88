"""What many layers take, as ``umm simulate --layers`` shows it."""

import math
from typing import TYPE_CHECKING, Any

from umm.algorithms.chains.steady import FEW, Steady
from umm.cli.printed.report import facts, predicted_record, problem_record
from umm.machines import Machine
from umm.space.budget import device_share
from umm.units import counted, format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def layers_record(found: Steady, machine: Machine) -> dict[str, Any]:
    """Return it as the keys of ``simulate``: times and memory are of all layers, the rest of a few."""
    record = problem_record(found.trace.schedule)
    predicted = predicted_record(found.trace) | found.to_dict()
    predicted["fraction_of_peak"] = _fraction(found)
    return record | {"predicted": predicted}


def print_layers(console: "Console", found: Steady, machine: Machine) -> None:
    """Print the time of a layer in the middle and of all, where it goes, and the memory of all."""
    schedule, table = found.trace.schedule, facts()
    few, peak, room = min(found.layers, FEW), _fraction(found), device_share(machine, schedule.ranks)
    where = f"{counted(schedule.ranks, 'rank')} on {schedule.machine}"
    table.add_row("layers", f"{found.layers} of {schedule.program.name}, {where}")
    table.add_row("", f"recompute {found.recompute}; from schedules of {few} and {few + 1} layers")
    of_peak = "" if math.isnan(peak) else f", {100 * peak:.1f} % of peak"
    table.add_row("layer", f"{format_seconds(found.layer_s)} in the middle{of_peak}")
    for part, seconds in found.parts.items():
        share = 100 * seconds / found.layer_s if found.layer_s else 0.0
        table.add_row("", f"{share:5.1f} % {part.replace('_', ' '):21} {format_seconds(max(seconds, 0.0))}")
    table.add_row("all", format_seconds(found.makespan_s))
    held = f"{format_bytes(found.memory_bytes)} on the fullest rank"
    if found.kept_bytes:
        held += f", of it {format_bytes(found.kept_bytes * found.layers)} kept for the backward part"
    if found.memory_bytes > room:
        held += f"; more than the {format_bytes(room)} it has of a device of {schedule.machine}"
    table.add_row("memory", held)
    console.print(table)


def _fraction(found: Steady) -> float:
    """Return the share of peak that a layer in the middle reaches; NaN where there is no peak."""
    schedule = found.trace.schedule
    few = min(found.layers, FEW) + 1
    return schedule.program.flop / few / (found.layer_s * schedule.peak) if schedule.peak else float("nan")

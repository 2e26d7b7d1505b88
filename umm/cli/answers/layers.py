"""The answer of ``umm simulate --layers``: a few layers of a model simulated, all of them extrapolated."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from rich.console import Console
from rich.text import Text

from umm.algorithms.scheduling import UNIVERSAL
from umm.cli.commands.simulate import Simulate
from umm.cli.printed import report
from umm.cli.printed.explanation import explain
from umm.cli.printed.output import facts
from umm.errors import InputError
from umm.executor import executor
from umm.machines import Machine
from umm.plans.lower import lower
from umm.plans.steady import Steady, steady, together, weights_stored
from umm.program import Chain, Outline
from umm.program.presets import next_tokens
from umm.program.systems import choices_left
from umm.schedules.schedule import Schedule
from umm.space.budget import device_share, over_limit, usual_limit
from umm.space.search.uncertainty import layers_range
from umm.traces.bottleneck import lost_in_words
from umm.traces.trace import Trace
from umm.units import counted, format_bytes, format_seconds, percent, range_in_words

DIFFERENT = 0.02  # share by which layers have to differ for that to be said


def simulate_layers(asked: Simulate) -> Trace:
    """Predict a model of many layers: the time of all and of one, the memory of all; return a few's trace.

    InputError if no chain is asked for, or it is not a layer.
    """
    machine = asked.hardware
    with asked.output.progress() as bar:
        bar.add_task(f"simulating a few of {asked.layers} layers", total=None)
        layers, alone, assumed = of_layers(asked)
        ends = layers_range(layers, machine, alone, executor("sim").makespan)
    for text in assumed:
        asked.output.note(text)
    trace, schedule = layers.trace, layers.trace.schedule
    program: Any = schedule.program
    reasons = explain(trace.schedule, trace) if asked.explain == "time" else ""
    within = "" if ends is None else f" ({range_in_words(layers.makespan_s, ends)})"
    # The share of peak that the useful flop of all reach (MFU).
    fraction = layers.flop / (layers.makespan_s * schedule.peak) if schedule.peak else math.nan

    def shown(console: Console) -> None:
        table = facts()
        room = device_share(machine, schedule.ranks)
        where = f"{counted(schedule.ranks, 'rank')} on {schedule.machine}"
        many = f"{len(layers.kinds)} kinds" if layers.kinds else program.name
        table.add_row("layers", f"{layers.layers} of {many}, {where}")
        again = f"recompute {layers.recompute}; " if layers.kept_bytes or layers.recompute != "none" else ""
        table.add_row("", f"{again}{_simulated(layers)}")
        trained = "; neither the loss nor the optimizer's update" if layers.state else ""
        of_peak = "" if math.isnan(fraction) else f", {percent(fraction, 1)} of peak in useful flop (MFU)"
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
            rows = {x.name: x.shape[0] for x in program.tensors}
            few = 0 < next_tokens(program.statements, rows) < rows["X"]
            last = " (of each sequence's last token)" if few and "head" in layers.ends else ""
            table.add_row("ends", f"{', '.join(of_ends)}{last}, added to the layers' time")
        depth = layers.depths[-1]
        without = f" (of the layers, without {' and '.join(layers.ends)})" if layers.ends else ""
        of_few = without if depth == layers.layers else f" (in the {depth} layers simulated)"
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
            logits = f"logits and their gradients are {format_bytes(layers.logits_bytes)} of it, whole"
            fits = f"with the loss in chunks of tokens up to {counted(more, 'layer')} fit"
            table.add_row("", f"the head's {logits}; {fits}")
        if layers.kept_bytes and not layers.state:
            table.add_row("", "without an optimizer's states; --optimizer adam for Adam in mixed precision")
        table.add_row("verdict", Text(f"{layers.trace.verdict.removesuffix('.')}{of_few}.", style="bold"))
        console.print(table)
        if reasons:
            console.print(reasons, soft_wrap=True)

    predicted = report.predicted_record(trace) | layers.to_dict()
    predicted |= {"fraction_of_peak": fraction, "makespan_range_s": ends and list(ends)}
    predicted["simulated_actions"] = predicted.pop("actions")
    record = report.problem_record(schedule) | {"predicted": predicted}
    asked.answer(lambda: record | ({"explained": reasons.splitlines()} if reasons else {}), shown)
    return trace


def of_layers(asked: Simulate) -> tuple[Steady, Callable[[Machine], Schedule], list[str]]:
    """Simulate the layers asked for; also return a function that lowers one on a machine, and assumed prices.

    Of several kinds the one is of the kind that takes longest.
    """
    kinds = {name: _of_kind(of_kind) for name, of_kind in (asked.kinds() or {"": asked}).items()}
    longest = max(kinds.values(), key=lambda x: x.steady.makespan_s)
    result = together({name: x.steady for name, x in kinds.items()})
    ranks = result.trace.schedule.ranks
    # A layer of experts alone does not know the sequences, whose last tokens a head multiplies.
    layers = [x.layer for x in kinds.values()]
    known = (x for x in layers if next_tokens(x.statements, {tensor.name for tensor in x.tensors}))
    ends = asked.ends(next(known, longest.layer), ranks)
    programs = [cast("Chain", x.steady.trace.schedule.program) for x in kinds.values()]
    remarks = dict.fromkeys(text for x in programs for text in x.remarks().values())
    assumed = [x for x in remarks if x.startswith("assumed")]
    return result.with_ends(ends, ranks, asked.hardware, **asked.choices_asked), longest.alone, assumed


class _Kind(NamedTuple):
    """Layers of one kind: the chain of one, their time, and a function that lowers one on a machine."""

    layer: Outline
    steady: Steady
    alone: Callable[[Machine], Schedule]


def _of_kind(asked: Simulate) -> _Kind:
    """Simulate equal layers."""
    machine = asked.hardware
    layer, layouts, ranks = asked.layer_laid_out()
    recompute, *others = asked.recompute
    if others:
        raise InputError("--recompute has several values; umm peers takes the first of a list that fits")
    if asked.algorithm != UNIVERSAL:
        raise InputError("layers are simulated by the universal algorithm; leave out --algorithm")
    choices = asked.choices_asked
    how = choices | choices_left(layer.laid_out(layouts, ranks), choices, asked.scheme)
    assert asked.layers is not None
    result = steady(
        layer, layouts, ranks, machine, asked.layers,
        recompute=recompute, state=asked.optimizer,
        room=usual_limit(device_share(machine, ranks)), **how,
    )  # fmt: skip
    result = weights_stored(result, asked.stored)
    return _Kind(layer, result, lambda other: lower(layer.laid_out(layouts, ranks), other, **how))


def _simulated(layers: Steady) -> str:
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

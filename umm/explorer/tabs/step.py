"""A training step on the page's machine: where its time goes, and each stage's memory over time."""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

from dash import html

from umm.errors import InputError, UmmError, did_you_mean
from umm.explorer.view import Shown, Tab, View, bar, text_input, words_of
from umm.figures.steps import memory_figure, stage_frame, verdict_of
from umm.machines import Machine
from umm.numbers import parse_whole
from umm.program.models import PUBLIC, find_model
from umm.step.parallel import Parallel
from umm.step.step import Step, predict, question, rates_of, with_prediction
from umm.units import format_bytes, parse_dimension

USUAL = "model=llama-3-8b batch=64 length=8K"
SIZES: Mapping[str, type] = {x.name: str if x.type in (str, "str") else int for x in fields(Parallel)}
OTHERS = ("model", "stack", "mtp")
MAX_PASSES = 200_000  # passes of all micro-batches that a request simulates at most: some seconds


def sizes_of(text: str) -> dict[str, Any]:
    """Return the values that a text such as ``model=llama-3-8b batch=64 tp=2`` names.

    InputError for what is no name and value, an unknown name, or no number.
    """
    values: dict[str, Any] = {}
    for part in text.split():
        name, equals, value = part.partition("=")
        name = name.lstrip("-").replace("-", "_")
        if not equals or not value:
            raise InputError(f"{part[:40]!r} names no size; write it like tp=2")
        if name not in (*SIZES, *OTHERS):
            raise InputError(f"{name[:40]!r} is no size of a step; {did_you_mean(name, [*SIZES, *OTHERS])}")
        is_count = SIZES.get(name) is int or name == "mtp"
        values[name] = parse_dimension(value) if name in ("batch", "length") else value
        if is_count and isinstance(values[name], str):
            values[name] = parse_whole(value, name)
    lacking = [x for x in ("model", "batch", "length") if x not in values]
    if lacking:
        raise InputError(f"a step needs its {', '.join(lacking)}; write them like {USUAL}")
    return values


@lru_cache(maxsize=32)
def step_of(text: str, machine: Machine, ranks: int) -> Step:
    """Return the step that a text asks of some ranks of a machine.

    UmmError for a text that means nothing, or a step that cannot be.
    """
    values = {"ranks": ranks} | sizes_of(text)
    name, stack, depths = values.pop("model"), values.pop("stack", "megatron"), values.pop("mtp", None)
    if values.get("vp", 1) > 1:
        values.setdefault("schedule", "interleaved")
    if name not in PUBLIC:  # nor is a file of this host read for a viewer
        raise InputError(f"model {name[:40]!r} is unknown; {did_you_mean(name, PUBLIC)}")
    model, parallel = find_model(name), Parallel(**values)
    if parallel.micro_batches * parallel.chunks * 2 > MAX_PASSES:
        raise InputError(f"{parallel.micro_batches:,} micro-batches take too long here; use umm step")
    rates = rates_of(machine, parallel.precision, stack)
    return predict(question(model if depths is None else with_prediction(model, depths), parallel, rates))


def step_words(step: Step, machine: Machine) -> str:
    """Return a step's time, memory and parts in words, and whether it needs more than a device has."""
    over = step.memory_bytes > machine.memory
    more = f", more than the device's {format_bytes(machine.memory)}" if over else ""
    return f"{verdict_of(step)}{more}. Time: {step.shares}."


def show(view: View) -> Shown:
    """Return a step's memory over time and its time by part, or the mistake in its text."""
    shown: Shown = {"remembered.figure": {}, "step-data.children": None, "step-words.children": ""}
    if view.case is None:
        return shown
    machine = view.case.machine
    try:
        step = step_of(view.state.step or USUAL, machine, view.state.ranks or machine.device_count)
    except UmmError as error:
        return shown | {"step-words.children": str(error)}
    return {
        "remembered.figure": view.drawn(memory_figure, step, float(machine.memory)),
        "step-words.children": step_words(step, machine),
        "step-data.children": view.table(lambda: stage_frame(step)),
    }


TAB = Tab(
    "step",
    "Training step",
    "A whole training step on this machine, by the flags of umm step: its time, and the memory of a rank of "
    "each pipeline stage over the step.",
    ("remembered",),
    show,
    [bar(html.Label("Step", htmlFor="step"), text_input("step", USUAL, "wide")), words_of("step-words")],
    others=("step-words.children",),
)

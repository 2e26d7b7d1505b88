"""Answers of the commands in :mod:`umm.cli.commands.step`."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import click
from rich.console import Console

from umm.cli.commands import step as flags
from umm.cli.printed.output import facts
from umm.errors import InputError
from umm.machines.settings import split_settings
from umm.program.models.config import APART
from umm.program.models.layers import Model
from umm.step.flags import emitted
from umm.step.parallel import Parallel
from umm.step.peers import PeerRow, step_peers
from umm.step.rates import Rates
from umm.step.search import SearchResult, search, usable_memory
from umm.step.step import Step, predict, question, rates_of, with_prediction
from umm.units import counted, format_bytes, format_seconds, percent

SIZES = ("micro_batch", "tp", "pp", "vp", "cp", "ep", "fsdp", "zero", "schedule", "recompute")
"""Flags that a search chooses where they are not given."""

STATED = ("offload", "keep_bf16", "chunk_layers")  # flags that it does not choose
SPLITS = ("tp", "pp", "vp", "cp", "ep", "fsdp")
HEADINGS = ("sizes", "micro", "recompute", "step", "tok/s", "memory")


def step(asked: flags.Step) -> None:
    """Answer ``umm step``."""
    machine, memory, power = asked.hardware, asked.memory, asked.power or 0.0
    named = [asked.machine, *(f"{x}={y}" for x, y in split_settings(machine.name)[1].items())]
    again = {"asked": {"model": asked.model, "machine": " ".join(named), "power_w": power}}
    if asked.ignore:
        again["asked"]["ignore"] = list(asked.ignore)
    if asked.mtp is not None:
        again["asked"]["mtp"] = asked.mtp
    rates = rates_of(machine, asked.precision, asked.stack, power)
    given: dict[str, Any] = {
        x: getattr(asked, x) for x in (*SIZES, "batch", "length", "precision", "optimizer", *STATED)
    }
    given = {name: value for name, value in given.items() if value is not None}
    given["ranks"] = asked.ranks or machine.device_count
    model = asked.read_model(priced=APART)
    if asked.mtp is not None:
        model = with_prediction(model, asked.mtp)
    limit = usable_memory(machine) if memory is None else memory
    if asked.emit and (asked.html or asked.output.as_json):
        raise InputError("--emit prints a configuration alone; leave out --html and --json, or --emit")
    if not asked.searches:
        asked.refuse(("top",), "{} is of a search; add --search, or leave it out")
    if asked.peers:
        if asked.searches or asked.emit or asked.html:
            raise InputError("--peers searches by itself; leave out --search, --emit and --html")
        rows = step_peers(model, rates, given, limit)
        records = [
            {"name": row.name, "why": row.why}  # why it has no step
            | ({} if row.step is None else step_record(row.step, model, rates))
            for row in rows
        ]
        asked.answer(lambda: {"rows": records}, lambda console: print_peers(console, rows, model, rates))
        return
    if asked.searches:
        result = search(model, rates, given, limit, asked.top)
        best = result.top[0]
        record, shown = partial(search_record, result), partial(print_search, result=result)
    else:
        if memory is not None:
            raise InputError("--memory limits a search; add --search or --peers, or leave it out")
        if given.get("vp", 1) > 1:
            given.setdefault("schedule", "interleaved")
        if asked.chunk_layers and given.get("pp", 1) == 1:
            raise InputError("--chunk-layers cuts pipeline stages; give --pp of at least 2")
        if asked.schedule not in (None, "1f1b") and given.get("pp", 1) == 1:
            raise InputError(f"--schedule {asked.schedule} orders pipeline stages; give --pp of at least 2")
        best = predict(question(model, Parallel(**given), rates))
        record, shown = partial(step_record, best), partial(print_step, step=best)
    if asked.emit:
        text = emitted(asked.emit, best.parallel, rates.stack, best.seconds, best.tokens_per_second)
        click.echo(text, nl=False)
        return

    asked.answer(
        lambda: record(model=model, rates=rates) | again,
        lambda console: shown(console, model=model, rates=rates),
        [best, model.name, rates],
    )


def print_step(console: Console, step: Step, model: Model, rates: Rates) -> None:
    """Print a step: its time and range, where it goes, and its memory."""
    p = step.parallel
    tokens = p.batch * p.length
    ranks = counted(p.ranks, "rank")
    console.print(f"{model.name} on {ranks} of {rates.machine.name}, {p.precision}: {p.words()}")
    low, high = format_seconds(step.lowest), format_seconds(step.highest)
    table = facts()
    table.add_row("step", f"{format_seconds(step.seconds)} ({low} to {high}) for {tokens:,} tokens")
    rate = f"{step.tokens_per_second:,.0f} tokens/s a device"
    table.add_row("rate", f"{rate}, {percent(step.mfu, 1)} of peak as model flop")
    table.add_row("time", step.shares)
    parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in step.memory.items())
    over, device = step.memory_bytes > rates.machine.memory, format_bytes(rates.machine.memory)
    more = f"; more than the device's {device}: --search finds sizes that fit" if over else ""
    table.add_row("memory", f"{format_bytes(step.memory_bytes)} a device at most: {parts}{more}")
    table.add_row("assumes", _assumed(rates))
    console.print(table)


def _assumed(rates: Rates) -> str:
    load = rates.load
    shares = f"{percent(load.clock)} of the first multiplies' rate under load"
    return f"stack {rates.stack.name}; {shares}, ± {percent(load.spread)}"


def print_search(console: Console, result: SearchResult, model: Model, rates: Rates) -> None:
    """Print the best configurations, one a row, and how they were found."""
    best = result.top[0]
    p = best.parallel
    ranks = counted(p.ranks, "rank")
    console.print(f"{model.name} on {ranks} of {rates.machine.name}, {p.precision}, "
                  f"{p.batch} sequences of {p.length}")  # fmt: skip
    line = "{:>3}  {:<26} {:>5} {:<9} {:>9} {:>9} {:>9}"
    console.print(line.format("", *HEADINGS))
    for number, step in enumerate(result.top, 1):
        console.print(line.format(number, *_cells(step)))
    _print_modules(console, result.top)
    proof = "proven best" if result.proven else f"within {percent(result.gap, 1)} of the best"
    console.print(
        f"{proof} of {result.priced:,} configurations: {result.fitting:,} fit, {result.simulated} simulated, "
        "the others ruled out by bounds"
    )
    close = [x for x in result.top[1:] if x.lowest <= best.highest]
    if close:
        console.print(f"{len(close)} of the others may be faster: their ranges overlap the best one's")
    console.print(f"assumes   {_assumed(rates)}")


def print_peers(console: Console, rows: Sequence[PeerRow], model: Model, rates: Rates) -> None:
    """Print recipes of a step side by side, and why those that cannot be are not there."""
    steps = [row.step for row in rows if row.step is not None]
    console.print(f"{model.name} on {rates.machine.name}, {rates.precision}")
    line = "{:<14} {:<19} {:>5} {:<9} {:>9} {:>8} {:>9}"
    console.print(line.format("", *HEADINGS))
    fastest = min((x.seconds for x in steps), default=0.0)
    for row in rows:
        if row.step is None:
            why = row.why.partition("; ")[2] or row.why
            console.print(f"{row.name:<14} {why.partition(':')[0]}", style="dim")
            continue
        mark = "*" if row.step.seconds <= fastest * (1 + 1e-9) else ""
        console.print(line.format(row.name + mark, *_cells(row.step)))
    if steps:
        console.print("* the fastest; best is of all sizes that --search tries")
    _print_modules(console, steps)
    console.print(f"assumes   {_assumed(rates)}")


def _print_modules(console: Console, steps: Sequence[Step]) -> None:
    """Print the modules that a table's column calls modules."""
    named = dict.fromkeys(x.parallel.recompute for x in steps if _again(x.parallel) == "modules")
    for modules in named:
        console.print(f"modules   {modules.replace(',', ', ')}")


def _again(p: Parallel) -> str:
    if p.offload != "none" and p.recompute == "none":
        return "offload"
    return "modules" if p.again else p.recompute


def _cells(step: Step) -> tuple[Any, ...]:
    """Return a row of a table below ``HEADINGS``."""
    p = step.parallel
    sizes = [f"{x}{getattr(p, x)}" for x in SPLITS if getattr(p, x) > 1]
    words = " ".join(sizes + [f"zero{p.zero}"] * (p.zero != 1)) or "data parallel"
    rate, memory = f"{step.tokens_per_second:,.0f}", format_bytes(step.memory_bytes)
    return words, p.micro_batch, _again(p), format_seconds(step.seconds), rate, memory


def step_record(step: Step, model: Model, rates: Rates) -> dict[str, Any]:
    """Return a step as ``--json`` has it; sizes that follow from others are in its configuration, too."""
    p = step.parallel
    return {
        "model": model.name,
        "machine": rates.machine.name,
        "stack": rates.stack.name,
        "assumptions": {"stack": rates.stack.source, "load": rates.load.source},
        "step_s": step.seconds,
        "range_s": [step.lowest, step.highest],
        "tokens_per_s_per_gpu": step.tokens_per_second,
        "mfu": step.mfu,
        "memory_bytes": int(step.memory_bytes),
        "memory_parts": {name: int(nbytes) for name, nbytes in step.memory.items()},
        "breakdown": dict(step.parts),
        "configuration": asdict(p) | {"dp": p.dp, "micro_batches": p.micro_batches},
    }


def search_record(result: SearchResult, model: Model, rates: Rates) -> dict[str, Any]:
    """Return a search as ``--json`` has it: the best step, and the top of the others."""
    return step_record(result.top[0], model, rates) | {
        "priced": result.priced,
        "fitting": result.fitting,
        "simulated": result.simulated,
        "proven": result.proven,
        "gap": result.gap,
        "top": [step_record(x, model, rates) for x in result.top],
    }

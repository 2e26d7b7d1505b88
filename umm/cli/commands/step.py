"""``umm step``: the time and memory of a training step, spread as asked or as is fastest."""

from math import inf
from typing import Any

import click

from umm.cli.flags.options import (
    READ,
    kernels_option,
    nodes_option,
    option,
    output_options,
    ranks_option,
    set_option,
)
from umm.cli.flags.values import among, dimension, load_config, machines
from umm.cli.printed.output import Output

SIZES = ("micro_batch", "tp", "pp", "vp", "cp", "ep", "fsdp", "zero", "schedule", "recompute")
"""Flags that a search chooses where they are not given."""


def _watts(ctx: click.Context, param: click.Parameter, text: str | None) -> float:
    """Return the watts that a text such as 500W means."""
    from umm.numbers import real_in

    if text is None:
        return 0.0
    watts = real_in(text.removesuffix("W").strip())
    if watts is None or watts <= 0:
        raise click.BadParameter(f"{text[:40]!r} is no power; write it like 500W", ctx, param)
    return watts


def _limit(ctx: click.Context, param: click.Parameter, text: str | None) -> float | None:
    """Return the bytes of a memory limit, infinity for ``none``."""
    from umm.errors import InputError
    from umm.units import parse_bytes

    if text is None or text == "none":
        return None if text is None else inf
    try:
        return parse_bytes(text)
    except InputError as error:
        raise click.BadParameter(str(error), ctx, param) from None


@click.command()
@option(
    "--config",
    type=READ,
    is_eager=True,
    callback=load_config,
    expose_value=False,
    help="TOML file with flag names as keys.",
)
@option("--model", required=True, metavar="NAME|FILE", help="A model of 'umm models', or its config.json.")
@option(
    "--machine",
    default="h100-8",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=among(machines),
    help="A machine of 'umm machine list' or a machine file.",
)
@nodes_option()
@ranks_option()
@option(
    "--batch",
    callback=dimension,
    metavar="SEQUENCES",
    required=True,
    help="Sequences of a step, of all ranks.",
)
@option("--length", callback=dimension, metavar="TOKENS", required=True, help="Tokens of a sequence.")
@option("--micro-batch", type=int, metavar="SEQUENCES", help="Sequences of a micro-batch; 1 if not given.")
@option("--tp", type=int, metavar="P", help="Tensor parallel ranks, with sequence parallel norms.")
@option("--pp", type=int, metavar="P", help="Pipeline stages.")
@option("--vp", type=int, metavar="V", help="Chunks of layers a stage: interleaved stages.")
@option("--cp", type=int, metavar="P", help="Context parallel ranks.")
@option("--ep", type=int, metavar="P", help="Expert parallel ranks.")
@option("--fsdp", type=int, metavar="P", help="Ranks that share weights, gathered layer by layer.")
@option(
    "--zero",
    type=click.IntRange(0, 3),
    help="0: optimizer states whole on each data parallel rank; 1: split (if not given); "
    "2: gradients too; 3: weights too, gathered layer by layer.",
)
@option(
    "--schedule",
    type=click.Choice(["1f1b", "interleaved", "zero-bubble", "dualpipe-v"]),
    help="Order of the pipeline's passes; interleaved with --vp, else 1f1b, if not given.",
)
@option(
    "--precision",
    type=click.Choice(["bf16", "fp8", "fp8-block", "mxfp8", "nvfp4"]),
    default="bf16",
    show_default=True,
    help="Type of the layers' multiplies; attention and the head are bf16.",
)
@option(
    "--recompute",
    metavar="WHAT",
    help="Activations computed again in the backward pass: none, attention, selective (all but "
    "multiplies by weights), full, every:N (each N-th layer in full).",
)
@option(
    "--optimizer",
    type=click.Choice(["adam", "muon", "sgd"]),
    default="adam",
    show_default=True,
    help="What updates the weights.",
)
@option(
    "--stack",
    default="megatron",
    show_default=True,
    metavar="NAME",
    help="Software whose overlap, passes and host times are assumed: megatron, megatron-26.06, "
    "megatron-plain, torchtitan, fsdp1, jax, eager.",
)
@option("--power", callback=_watts, metavar="500W", help="Power limit of a device, below its own.")
@option("--search", "searches", is_flag=True, help="Choose the sizes that are not given.")
@option(
    "--memory",
    callback=_limit,
    metavar="LIMIT",
    help="Bytes of a device that a search may use, or none; the machine's if not given.",
)
@option("--top", type=click.IntRange(1, 100), default=5, show_default=True, help="Rows of a search.")
@set_option()
@kernels_option()
@output_options()
@click.pass_context
def step(
    ctx: click.Context, /, model: str, machine: str, searches: bool, memory: float | None, top: int,
    stack: str, power: float, as_json: bool, quiet: bool, no_color: bool, **flags: Any,
) -> None:  # fmt: skip
    """Predict a training step: layers, pipeline, loss, gradients, optimizer.

    Layers are priced kernel by kernel for one micro-batch at a rank; the passes of all micro-batches then
    run through the stages of the pipeline in the order of the schedule. What the answer assumes of clocks
    under load and of the software is named by --stack, and held by the range.
    """
    from umm.cli.flags.asked import asked_machine
    from umm.cli.printed.step_page import print_search, print_step, search_record, step_record
    from umm.errors import InputError
    from umm.program.models import find_model
    from umm.step.parallel import Parallel
    from umm.step.search import search
    from umm.step.step import predict, question, rates_of

    output = Output(as_json, quiet, no_color)
    asked = asked_machine(flags | {"machine": machine})
    ranks = flags["ranks"] or asked.device_count
    rates = rates_of(asked, flags["precision"], stack, power)
    given = {x: flags[x] for x in (*SIZES, "batch", "length", "precision", "optimizer")}
    given = {name: value for name, value in given.items() if value is not None} | {"ranks": ranks}
    chosen = find_model(model)
    if searches:
        limit = asked.memory if memory is None else memory
        result = search(chosen, rates, given, limit, top)
        if as_json:
            output.json("step", search_record(result, chosen, rates))
        else:
            print_search(output.console(), result, chosen, rates)
        return
    if memory is not None:
        raise InputError("--memory limits a search; add --search, or leave it out")
    if given.get("vp", 1) > 1:
        given.setdefault("schedule", "interleaved")
    predicted = predict(question(chosen, Parallel(**given), rates))
    if as_json:
        output.json("step", step_record(predicted, chosen, rates))
    else:
        print_step(output.console(), predicted, chosen, rates)

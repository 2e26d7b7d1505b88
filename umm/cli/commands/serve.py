"""``umm serve``: the steady state of a deployment: time to the first token, time of each further one."""

from typing import Any

import click

from umm.cli.flags.options import READ, nodes_option, option, output_options, set_option
from umm.cli.flags.values import among, dimension, load_config, machines
from umm.cli.printed.output import Output


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
@option("--ranks", type=int, metavar="P", help="Ranks; --tp times --attention-dp if not given.")
@option("--tp", type=int, metavar="P", help="Ranks that share attention's heads; --ranks if not given.")
@option(
    "--attention-dp",
    type=int,
    default=1,
    show_default=True,
    metavar="P",
    help="Groups of them, each with its own requests.",
)
@option("--moe-tp", type=int, default=1, metavar="P", help="Ranks that share each expert.")
@option("--ep", type=int, default=1, metavar="P", help="Groups of experts.")
@option("--prefill-ranks", type=int, metavar="P", help="Ranks that compute prompts alone, tensor parallel.")
@option(
    "--input",
    "input_",
    callback=dimension,
    default="1024",
    show_default=True,
    metavar="TOKENS",
    help="Tokens of a prompt.",
)
@option(
    "--output",
    "output_length",
    callback=dimension,
    default="1024",
    show_default=True,
    metavar="TOKENS",
    help="Tokens of an answer.",
)
@option(
    "--concurrency",
    type=int,
    default=64,
    show_default=True,
    metavar="N",
    help="Requests at a time, of all ranks.",
)
@option(
    "--precision",
    type=click.Choice(["bf16", "fp8", "fp8-block", "nvfp4", "int4"]),
    default="bf16",
    show_default=True,
    help="Type of weights; of a mixture in 4 bits, of its experts alone.",
)
@option(
    "--cache",
    type=click.Choice(["bf16", "fp8"]),
    default="bf16",
    show_default=True,
    help="Type of the cache.",
)
@option(
    "--kernels",
    default="vllm",
    show_default=True,
    metavar="ENGINE",
    help="The engine and its kernels: trtllm, sglang or vllm.",
)
@set_option()
@output_options(file=False)
def serve(
    model: str, machine: str, nodes: Any, kernels: str, input_: int, output_length: int, cache: str,
    prefill_ranks: int | None, ranks: int | None, tp: int | None, attention_dp: int,
    as_json: bool, quiet: bool, no_color: bool, **flags: Any,
) -> None:  # fmt: skip
    """Predict a deployment in steady state: TTFT, TPOT, tokens/s, memory.

    Requests of one length come at a steady concurrency; prompts are computed beside decoding, or by ranks of
    their own. Kernels are those of the engine where the machine's file has them.
    """
    from dataclasses import replace

    from umm.cli.flags.asked import asked_machine
    from umm.cli.printed.serve_page import print_served, served_record
    from umm.errors import MachineError
    from umm.program.models import find_model
    from umm.serve.deployment import Deployment
    from umm.serve.serve import rates_of
    from umm.serve.serve import serve as predict

    output = Output(as_json, quiet, no_color)
    if tp is None:
        tp = max(1, (ranks or 1) // attention_dp)
    asked = flags | {"machine": machine, "nodes": nodes, "graphs": True}
    try:
        found = asked_machine(asked | {"kernels": kernels})
    except MachineError:  # its file has no kernels of that engine
        found = asked_machine(asked | {"kernels": None, "graphs": None})
        output.note(f"{found.name} has no kernels of {kernels}; its own numbers are taken")
    sizes = {x: flags[x] for x in ("moe_tp", "ep", "concurrency", "precision")}
    deployment = Deployment(
        input_,
        output_length,
        tp=tp,
        attention_dp=attention_dp,
        cache_bits=8 if cache == "fp8" else 16,
        **sizes,
    )
    chosen = find_model(model)
    apart = None
    if prefill_ranks:
        apart = replace(deployment, tp=prefill_ranks, attention_dp=1, moe_tp=1, ep=1)
    result = predict(chosen, deployment, rates_of(chosen, found, deployment, kernels), apart)
    if as_json:
        output.json("serve", served_record(result, deployment, chosen, found, kernels))
    else:
        print_served(output.console(), result, deployment, chosen, found, kernels)

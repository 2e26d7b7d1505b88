"""``umm serve``: the steady state of a deployment: time to the first token, time of each further one."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Configured, FromModel, OnRanks, Printed
from umm.cli.flags.values import dimension
from umm.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from umm.machines import Machine
    from umm.program.models.layers import Model
    from umm.serve.deployment import Deployment
    from umm.serve.serve import Served

CACHES = {"bf16": 16, "fp8": 8}  # bits of an element of the cache by name


class Serve(OnRanks, Configured, FromModel, Printed):
    """A model, its requests, and the ranks that serve them."""

    ranks: int | None = flag(
        type=int, metavar="P", usual=True, help="Ranks; --tp times --attention-dp if not given."
    )  # fmt: skip
    tp: int | None = flag(
        type=int, metavar="P", usual=True,
        help="Ranks that share attention's heads; --ranks if not given, else the fewest that have room.",
    )  # fmt: skip
    attention_dp: int = flag(
        type=int, default=1, show_default=True, metavar="P", usual=True,
        help="Groups of them, each with its own requests.",
    )  # fmt: skip
    moe_tp: int = flag(type=int, default=1, metavar="P", usual=True, help="Ranks that share each expert.")
    ep: int = flag(type=int, default=1, metavar="P", usual=True, help="Groups of experts.")
    prefill_ranks: int | None = flag(
        type=int, metavar="P", usual=True, help="Ranks that compute prompts alone, tensor parallel."
    )  # fmt: skip
    prompt: int = flag(
        "--input", callback=dimension, default="1024", show_default=True, metavar="TOKENS", usual=True,
        help="Tokens of a prompt.",
    )  # fmt: skip
    answered: int = flag(
        "--output", callback=dimension, default="1024", show_default=True, metavar="TOKENS", usual=True,
        help="Tokens of an answer.",
    )  # fmt: skip
    concurrency: int = flag(
        type=int, default=64, show_default=True, metavar="N", usual=True,
        help="Requests at a time, of all ranks.",
    )  # fmt: skip
    chunk: int | None = flag(
        callback=dimension, metavar="TOKENS",
        help="Tokens of prompts in one batch with those decoded; prompts have iterations of their own if not "
        "given.",
    )  # fmt: skip
    precision: str | None = flag(
        type=click.Choice(["bf16", "fp8", "fp8-block", "nvfp4", "int4"]), usual=True,
        help="Type of weights, of a mixture's experts if 4 bits; else by quantization_config.",
    )  # fmt: skip
    cache: str = flag(
        type=click.Choice(["auto", *CACHES]), default="auto", show_default=True, usual=True,
        help="Type of the cache; auto is the engine's for the precision.",
    )  # fmt: skip
    kernels: Any = flag(
        default="vllm", show_default=True, metavar="ENGINE", usual=True,
        help="The engine and its kernels: trtllm, sglang or vllm.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(["vllm", "sglang"]), usual=True,
        help="Print the deployment as the flags of vLLM or SGLang, alone.",
    )  # fmt: skip


def _stored(asked: Serve, model: "Model") -> str:
    """Return the precision that most of a model's weights have by its file, and say so where it quantises."""
    from umm.program.models.count import count
    from umm.serve.rates import QUANTIZED, STORED

    if not model.quantization:
        return "bf16"
    nbytes = count(model).by_type
    elements = {x: nbytes[x] / STORED[QUANTIZED[x]] for x in nbytes if x in QUANTIZED}
    if not elements:
        asked.output.note("quantization_config is not priced: weights are bf16; --precision takes another")
        return "bf16"
    name = max(elements, key=elements.__getitem__)
    precision = QUANTIZED[name]
    asked.output.note(
        f"most weights are {name} by quantization_config, priced as {precision}, "
        f"{STORED[precision]:.2f} bytes each; --precision takes another type"
    )
    return precision


@command(Serve, machine="h100-8")
def serve(asked: Serve) -> None:
    """Predict a deployment in steady state: TTFT, TPOT, tokens/s, memory.

    Requests of one length come at a steady concurrency; prompts are computed beside decoding, or by ranks of
    their own. Kernels are those of the engine where the machine's file has them.
    """
    from umm.errors import InputError, MachineError, ProblemError
    from umm.program.models.split import check_split
    from umm.serve.deployment import Deployment
    from umm.serve.rates import find_engine
    from umm.serve.serve import check_room, rates_of, table_shares, with_fewest_ranks
    from umm.serve.serve import serve as predict

    if asked.chunk and asked.prefill_ranks:
        raise InputError("--chunk is of prompts beside decoding; leave it or --prefill-ranks out")
    if asked.emit and asked.output.as_json:
        raise InputError("--emit prints flags alone; leave out --json")
    engine, tp = asked.kernels, asked.tp
    if tp is None:
        tp = max(1, (asked.ranks or asked.moe_tp * asked.ep) // asked.attention_dp)
    try:
        machine = replace(asked, graphs=asked.graphs is not False).hardware
    except MachineError:  # its file has no kernels of that engine
        if "+" in engine:  # nor can its own numbers be those of a backend
            raise
        machine = replace(asked, kernels=None, graphs=None).hardware
        asked.output.note(f"{machine.name} has no kernels of {engine}; its own numbers are taken")
    model, apart = asked.read_model(), None
    precision = asked.precision or _stored(asked, model)
    bits = find_engine(engine).cache_bits(precision) if asked.cache == "auto" else CACHES[asked.cache]
    deployment = Deployment(
        asked.prompt,
        asked.answered,
        tp=tp,
        attention_dp=asked.attention_dp,
        cache_bits=bits,
        moe_tp=asked.moe_tp,
        ep=asked.ep,
        concurrency=asked.concurrency,
        precision=precision,
        chunk=asked.chunk,
    )
    if asked.ranks not in (None, deployment.ranks):
        raise InputError(
            f"--ranks {asked.ranks} must be the {deployment.ranks} of --tp {deployment.tp} x --attention-dp "
            f"{deployment.attention_dp}; leave out --ranks, or change these"
        )
    if asked.tp is None and asked.ranks is None and asked.moe_tp * asked.ep == 1:
        deployment = with_fewest_ranks(model, deployment, machine, engine)
    rates = rates_of(model, machine, deployment, engine)
    check_room(model, deployment, machine, engine)
    if asked.prefill_ranks is not None:
        try:
            apart = replace(deployment, tp=asked.prefill_ranks, attention_dp=1, moe_tp=1, ep=1)
            check_split(model, apart.tp, 1)
        except ProblemError as error:
            raise InputError(str(error).replace("--tp", "--prefill-ranks", 1)) from None
        machine.check_alike(deployment.ranks + apart.ranks)
    result = predict(model, deployment, rates, apart)
    if asked.emit is not None:
        from umm.emit.serving import serving

        note = (
            f"{model.name} on {machine.name}: TTFT {format_seconds(result.ttft)}, "
            f"TPOT {format_seconds(result.tpot)} predicted"
        )
        click.echo(serving(asked.emit, deployment, asked.model, note, asked.prefill_ranks or 0), nl=False)
        return
    shares = table_shares(model, deployment, rates, apart)
    asked.answer(
        lambda: served_record(result, deployment, model, machine, engine, shares),
        lambda console: print_served(console, result, deployment, model, machine, engine, shares, apart),
    )


def print_served(
    console: "Console", result: "Served", d: "Deployment", model: "Model", machine: "Machine", engine: str,
    shares: tuple[float, float] | None = None, apart: "Deployment | None" = None,
) -> None:  # fmt: skip
    """Print times with their ranges, rate and memory, and the shares that measured tables decide."""
    words = f"tp{d.tp}" + (f" x {d.attention_dp} groups" if d.attention_dp > 1 else "")
    words += f" + tp{apart.tp} for prompts" if apart else ""
    console.print(
        f"{model.name} on {machine.name} by {engine}, {d.precision}: {words}, {d.concurrency} requests"
    )
    for name, seconds, ends in (
        ("TTFT", result.ttft, result.ttft_range),
        ("TPOT", result.tpot, result.tpot_range),
    ):
        low, high = map(format_seconds, ends)
        console.print(f"{name}      {format_seconds(seconds)} ({low} to {high})")
    if result.running < 0.99 * d.concurrency:
        lacking = "the caches or chunks" if d.chunk else "the caches"
        console.print(f"waiting   {d.concurrency - result.running:.0f} requests, without room in {lacking}")
    digits = 0 if result.tokens_per_second >= 10 else 3
    console.print(f"rate      {result.tokens_per_second:,.{digits}f} tokens/s a device")
    console.print(
        f"alone     an iteration that decodes {format_seconds(result.decode)}, "
        f"a prompt {format_seconds(result.prefill)}"
    )
    if d.chunk:
        tokens = min(d.chunk, d.input)
        console.print(
            f"mixed     one that decodes beside {tokens} of a prompt {format_seconds(result.mixed)}"
        )
    if shares is not None:
        console.print(f"tables    decide {shares[0]:.0%} of TTFT, {shares[1]:.0%} of TPOT; laws the rest")
    parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in result.memory.items())
    console.print(f"memory    {format_bytes(result.memory_bytes)} a device: {parts}")


def served_record(
    result: "Served", d: "Deployment", model: "Model", machine: "Machine", engine: str,
    shares: tuple[float, float] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return a deployment as ``--json`` has it; ``range_s`` is that of a further token."""
    return {
        "model": model.name,
        "machine": machine.name,
        "engine": engine,
        "ttft_s": result.ttft,
        "tpot_s": result.tpot,
        "range_s": list(result.tpot_range),
        "ttft_range_s": list(result.ttft_range),
        "tokens_per_s_per_gpu": result.tokens_per_second,
        "running": result.running,
        "mixed_s": result.mixed,
        "memory_bytes": int(result.memory_bytes),
        "memory_parts": {name: int(nbytes) for name, nbytes in result.memory.items()},
        "deployment": asdict(d),
    } | ({} if shares is None else {"ttft_by_tables": shares[0], "tpot_by_tables": shares[1]})

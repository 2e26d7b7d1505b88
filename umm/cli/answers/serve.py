"""Answers of the commands in :mod:`umm.cli.commands.serve`."""

from dataclasses import asdict, replace

import click
from rich.console import Console

from umm.cli.commands.serve import CACHES, Serve
from umm.cli.printed.output import facts
from umm.errors import InputError, MachineError, ProblemError
from umm.program.models.layers import Model
from umm.program.models.split import check_split
from umm.program.models.weights import cache_bits
from umm.serve.deployment import Deployment
from umm.serve.rates import QUANTIZED, STORED, find_engine, stored_type
from umm.serve.serve import USED, check_room, device_memory, rates_of, table_shares, with_fewest_ranks
from umm.serve.serve import serve as predict
from umm.units import format_bytes, format_seconds, percent


def _stored(asked: Serve, model: Model) -> str:
    """Return the precision that most of a model's weights have by its file, and say so where it quantises."""
    if not model.quantization:
        return "bf16"
    name = stored_type(model)
    if not name:
        asked.output.note("quantization_config is not priced: weights are bf16; --precision takes another")
        return "bf16"
    precision = QUANTIZED[name]
    asked.output.note(
        f"most weights are {name} by quantization_config, priced as {precision}, "
        f"{STORED[precision]:.2f} bytes each; --precision takes another type"
    )
    return precision


def serve(asked: Serve) -> None:
    """Answer ``umm serve``."""
    if asked.chunk and asked.prefill_ranks:
        raise InputError("--chunk is of prompts beside decoding; leave it or --prefill-ranks out")
    if asked.emit and asked.output.as_json:
        raise InputError("--emit prints flags alone; leave out --json")
    engine, tp = asked.kernels, asked.tp
    if tp is None:
        tp = max(1, (asked.ranks or asked.moe_tp * asked.ep) // asked.attention_dp)
    try:
        machine = replace(asked, graphs=asked.graphs is not False).hardware
    except MachineError:
        machine = replace(asked, kernels=None, graphs=None).hardware
        # Its file has the engine, which lacks a number of --set; nor are its own numbers those of a backend.
        if engine in machine.choices.get("engines", ()) or "+" in engine:
            raise
        asked.output.note(f"{machine.name} has no kernels of {engine}; its own numbers are taken")
    model, apart = asked.read_model(), None
    precision = asked.precision or _stored(asked, model)
    bits = find_engine(engine).cache_bits(precision)
    if asked.cache != "auto":
        bits = CACHES[asked.cache]
    elif not asked.precision:  # engines take the type of a cache that a checkpoint states
        bits = cache_bits(model.quantization) or bits
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
    d = deployment

    def shown(console: Console) -> None:
        words = f"tp{d.tp}" + (f" x {d.attention_dp} groups" if d.attention_dp > 1 else "")
        words += f" + tp{apart.tp} for prompts" if apart else ""
        console.print(
            f"{model.name} on {machine.name} by {engine}, {d.precision}: {words}, {d.concurrency} requests"
        )
        table = facts()
        for name in ("ttft", "tpot"):
            seconds, *ends = map(format_seconds, (getattr(result, name), *getattr(result, f"{name}_range")))
            table.add_row(name.upper(), f"{seconds} ({' to '.join(ends)})")
        if result.running < 0.99 * d.concurrency:
            lacking = "the caches or chunks" if d.chunk else "the caches"
            if result.memory["weights"] > USED * device_memory(machine):
                lacking += f": weights leave none of the {percent(USED)} of a device that engines fill"
            waiting = f"{d.concurrency - result.running:.0f} requests"
            table.add_row("waiting", f"{waiting}, without room in {lacking}")
        digits = 0 if result.tokens_per_second >= 10 else 3
        table.add_row("rate", f"{result.tokens_per_second:,.{digits}f} tokens/s a device")
        decode, prefill, mixed = map(format_seconds, (result.decode, result.prefill, result.mixed))
        table.add_row("alone", f"an iteration that decodes {decode}, a prompt {prefill}")
        if d.chunk:
            table.add_row("mixed", f"one that decodes beside {min(d.chunk, d.input)} of a prompt {mixed}")
        if shares is not None:
            first, later = map(percent, shares)
            table.add_row("tables", f"decide {first} of TTFT, {later} of TPOT; laws the rest")
        parts = ", ".join(f"{name} {format_bytes(nbytes)}" for name, nbytes in result.memory.items())
        table.add_row("memory", f"{format_bytes(result.memory_bytes)} a device: {parts}")
        console.print(table)

    record = {
        "model": model.name,
        "machine": machine.name,
        "engine": engine,
        "ttft_s": result.ttft,
        "tpot_s": result.tpot,
        "range_s": list(result.tpot_range),  # of a further token
        "ttft_range_s": list(result.ttft_range),
        "tokens_per_s_per_gpu": result.tokens_per_second,
        "running": result.running,
        "mixed_s": result.mixed,
        "memory_bytes": int(result.memory_bytes),
        "memory_parts": {name: int(nbytes) for name, nbytes in result.memory.items()},
        "deployment": asdict(d),
    } | ({} if shares is None else {"ttft_by_tables": shares[0], "tpot_by_tables": shares[1]})
    asked.answer(lambda: record, shown)

"""A predicted deployment on 80 columns, and as JSON."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from umm.machines import Machine
from umm.program.models.layers import Model
from umm.serve.deployment import Deployment
from umm.serve.serve import Served
from umm.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console


def print_served(
    console: "Console", result: Served, d: Deployment, model: Model, machine: Machine, engine: str,
    shares: tuple[float, float] | None = None, apart: Deployment | None = None,
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
    result: Served, d: Deployment, model: Model, machine: Machine, engine: str,
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

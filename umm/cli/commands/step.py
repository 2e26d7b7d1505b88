"""``umm step``: the time and memory of a training step, spread as asked or as is fastest."""

from math import inf

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering, Configured, FromModel, OnRanks, Paged
from umm.cli.flags.values import dimension, parsed_by
from umm.errors import InputError
from umm.numbers import real_in
from umm.step.parallel import OPTIMIZERS, PRECISIONS
from umm.step.pipeline import SCHEDULES
from umm.units import parse_bytes


@parsed_by
def _watts(text: str) -> float:
    """Return the watts that a text such as 500W means."""
    watts = real_in(text.removesuffix("W").strip())
    if watts is None or watts <= 0:
        raise InputError(f"{text[:40]!r} is no power; write it like 500W")
    return watts


@parsed_by
def _limit(text: str) -> float:
    """Return the bytes of a memory limit, infinity for ``none``."""
    limit = inf if text == "none" else parse_bytes(text)
    if limit <= 0:
        raise InputError(f"{text[:40]!r} is no limit; write it like 60GiB, or none")
    return limit


@command("umm.cli.answers.step:step", machine="h100-8")
class Step(OnRanks, Configured, FromModel, Paged, Answering):
    """Predict a training step: layers, pipeline, loss, gradients, optimizer.

    Layers are priced kernel by kernel for one micro-batch at a rank; the passes of all micro-batches then
    run through the stages of the pipeline in the order of the schedule. --stack names what the answer
    assumes of clocks under load and of the software; the range includes it.
    """

    batch: int = flag(
        callback=dimension, metavar="SEQUENCES", required=True, usual=True,
        help="Sequences of a step, of all ranks.",
    )  # fmt: skip
    length: int = flag(
        callback=dimension, metavar="TOKENS", required=True, usual=True, help="Tokens of a sequence.",
    )  # fmt: skip
    micro_batch: int | None = flag(
        metavar="SEQUENCES", usual=True, help="Sequences of a micro-batch; 1 if not given."
    )  # fmt: skip
    tp: int | None = flag(
        metavar="P", usual=True, help="Tensor parallel ranks, with sequence parallel norms."
    )  # fmt: skip
    pp: int | None = flag(metavar="P", usual=True, help="Pipeline stages.")
    vp: int | None = flag(metavar="V", usual=True, help="Chunks of layers a stage: interleaved stages.")
    chunk_layers: int | None = flag(
        type=click.IntRange(1), metavar="N",
        help="Layers of each chunk but the last, which has the rest; if not given as many in each, or cut by "
        "time where that cannot be.",
    )  # fmt: skip
    cp: int | None = flag(metavar="P", usual=True, help="Context parallel ranks.")
    ep: int | None = flag(metavar="P", usual=True, help="Expert parallel ranks.")
    fsdp: int | None = flag(
        metavar="P", usual=True, help="Ranks that share weights, gathered layer by layer."
    )  # fmt: skip
    zero: int | None = flag(
        type=click.IntRange(0, 3),
        help="0: optimizer states whole on each data parallel rank; 1: split (if not given); 2: gradients "
        "too; 3: weights too, gathered layer by layer.",
    )  # fmt: skip
    schedule: str | None = flag(
        type=click.Choice(SCHEDULES),
        help="Order of the pipeline's passes; interleaved with --vp, else 1f1b, if not given.",
    )  # fmt: skip
    precision: str = flag(
        type=click.Choice(PRECISIONS), default="bf16",
        usual=True, help="Type of the layers' multiplies; attention and the head are bf16.",
    )  # fmt: skip
    recompute: str | None = flag(
        metavar="WHAT", usual=True,
        help="Activations computed again in the backward pass: none, attention, selective (all but "
        "multiplies by weights), full, every:N (each N-th layer in full), or Megatron-LM's modules with "
        "commas: core_attn, layernorm, moe_act, mla_up_proj, mlp, moe, shared_experts.",
    )  # fmt: skip
    offload: str | None = flag(
        metavar="WHAT",
        help="What waits in the host's memory: activations, activations:N (of the first N layers), or "
        "optimizer, whose states the host updates.",
    )  # fmt: skip
    mtp: int | None = flag(
        type=click.IntRange(0, 8), metavar="N",
        help="Depths of multi-token prediction, each an attention layer with its MLP, a head and a loss; the "
        "model's if not given.",
    )  # fmt: skip
    keep_bf16: str | None = flag(
        metavar="WHAT",
        help="What stays in bfloat16 in a step of fewer bits, with commas: attention, latent, mtp, last:N.",
    )  # fmt: skip
    optimizer: str = flag(type=click.Choice(OPTIMIZERS), default="adam", help="What updates the weights.")
    stack: str = flag(
        default="megatron", metavar="NAME",
        help="Software whose overlap, passes and host times are assumed: megatron, "
        "megatron-hybridep, megatron-26.06, megatron-26.06-head, megatron-plain, torchtitan, fsdp1, jax, "
        "eager.",
    )  # fmt: skip
    power: float = flag(callback=_watts, metavar="500W", help="Power limit of a device, below its own.")
    searches: bool = flag("--search", usual=True, help="Choose the sizes that are not given.")
    peers: bool = flag(
        usual=True,
        help="Compare published recipes, each at its best micro-batch and recomputation, and the best of "
        "all: ZeRO-1, FSDP2, HSDP, TP8, TP8 + PP, EP.",
    )  # fmt: skip
    memory: float | None = flag(
        callback=_limit, metavar="LIMIT",
        help="Bytes of a device that --search and --peers may use, or none; if not given 14 GiB less than "
        "programs see, or 97 % of the machine's.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(["megatron", "torchtitan"]), usual=True,
        help="Print the configuration as the flags of Megatron-LM or as torchtitan's TOML, alone.",
    )  # fmt: skip
    top: int = flag(type=click.IntRange(1, 100), default=5, help="Rows of a search.")

"""``umm serve``: the steady state of a deployment: time to the first token, time of each further one."""

from typing import Any

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Configured, FromModel, OnRanks, Printed
from umm.cli.flags.values import dimension

CACHES = {"bf16": 16, "fp8": 8}  # bits of an element of the cache by name


@command("umm.cli.answers.serve:serve", machine="h100-8")
class Serve(OnRanks, Configured, FromModel, Printed):
    """Predict a deployment in steady state: TTFT, TPOT, tokens/s, memory.

    Requests of one length come at a steady concurrency; prompts are computed beside decoding, or by ranks of
    their own. Kernels are those of the engine where the machine's file has them.
    """

    ranks: int | None = flag(metavar="P", usual=True, help="Ranks; --tp times --attention-dp if not given.")
    tp: int | None = flag(
        metavar="P", usual=True,
        help="Ranks that share attention's heads; --ranks if not given, else the fewest that have room.",
    )  # fmt: skip
    attention_dp: int = flag(
        default=1, metavar="P", usual=True,
        help="Groups of them, each with its own requests.",
    )  # fmt: skip
    moe_tp: int = flag(
        default=1, show_default=False, metavar="P", usual=True,
        help="Ranks that share each expert.",
    )  # fmt: skip
    ep: int = flag(default=1, show_default=False, metavar="P", usual=True, help="Groups of experts.")
    prefill_ranks: int | None = flag(
        metavar="P", usual=True, help="Ranks that compute prompts alone, tensor parallel."
    )  # fmt: skip
    prompt: int = flag(
        "--input", callback=dimension, default="1024", metavar="TOKENS", usual=True,
        help="Tokens of a prompt.",
    )  # fmt: skip
    answered: int = flag(
        "--output", callback=dimension, default="1024", metavar="TOKENS", usual=True,
        help="Tokens of an answer.",
    )  # fmt: skip
    concurrency: int = flag(default=64, metavar="N", usual=True, help="Requests at a time, of all ranks.")
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
        type=click.Choice(["auto", *CACHES]), default="auto", usual=True,
        help="Type of the cache; auto is the file's, else the engine's for the precision.",
    )  # fmt: skip
    kernels: Any = flag(
        default="vllm", metavar="ENGINE", usual=True,
        help="The engine and its kernels: trtllm, sglang or vllm.",
    )  # fmt: skip
    emit: str | None = flag(
        type=click.Choice(["vllm", "sglang"]), usual=True,
        help="Print the deployment as the flags of vLLM or SGLang, alone.",
    )  # fmt: skip

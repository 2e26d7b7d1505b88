"""A deployment as the flags of vLLM and SGLang, with comments on the parts that they cannot express."""

from collections.abc import Callable, Iterator
from math import ceil

from umm.quoting import shell
from umm.serve.deployment import Deployment

CHECKPOINTS = {
    "fp8-block": "blocks of 128 come from the checkpoint's quantization_config; bf16 gets a scale a row",
    "nvfp4": "4-bit weights come from the checkpoint's quantization_config",
    "int4": "4-bit integers come from the checkpoint (AWQ, GPTQ, compressed-tensors)",
}  # fmt: skip
"""Precisions that no flag makes."""


def vllm(d: Deployment, model: str) -> Iterator[str]:
    """Yield lines of vLLM's flags, and comments for the rest.

    Source: vllm/engine/arg_utils.py.
    """
    data = f" --data-parallel-size {d.attention_dp}" * (d.attention_dp > 1)
    yield f"vllm serve {shell.word(model)} --tensor-parallel-size {d.tp}{data}"
    shared, groups = d.experts_split
    if groups > 1:
        yield "--enable-expert-parallel"
    yield f"--max-num-seqs {ceil(d.sequences)} --max-model-len {d.input + d.output}"
    if d.chunk:
        yield f"--max-num-batched-tokens {ceil(d.sequences) + d.chunk}"
    yield from _types(d, "--kv-cache-dtype fp8")
    if groups > 1 and shared > 1:
        yield (
            f"# experts in {groups} groups of {shared} ranks each: vLLM spreads whole experts over all "
            f"{d.ranks} ranks, or shares each among all"
        )


def sglang(d: Deployment, model: str) -> Iterator[str]:
    """Yield lines of SGLang's flags, and comments for the rest.

    Source: sglang/srt/server_args.py; --attn-dp-size as in 0.5.23.
    """
    data = f" --attn-dp-size {d.attention_dp}" * (d.attention_dp > 1)
    yield f"python -m sglang.launch_server --model-path {shell.word(model)} --tp-size {d.ranks}{data}"
    if d.experts_split[1] > 1:
        yield f"--ep-size {d.experts_split[1]}"
    yield f"--max-running-requests {d.concurrency} --context-length {d.input + d.output}"
    if d.chunk:
        yield f"--chunked-prefill-size {d.chunk} --enable-mixed-chunk"
    yield from _types(d, "--kv-cache-dtype fp8_e4m3")


def _types(d: Deployment, cache: str) -> Iterator[str]:
    if d.precision == "fp8":
        yield "--quantization fp8"
    if d.cache_bits == 8:
        yield cache
    elif d.cache_bits != 16:
        yield f"# a cache of {d.cache_bits} bits has no flag; this one has 16"
    if d.precision in CHECKPOINTS:
        yield f"# {d.precision}: {CHECKPOINTS[d.precision]}"


ENGINES: dict[str, Callable[[Deployment, str], Iterator[str]]] = {"vllm": vllm, "sglang": sglang}
"""Writers by the name that --emit takes."""


def serving(engine: str, deployment: Deployment, model: str, note: str, prefill: int = 0) -> str:
    """Return the flags of a deployment for an engine, after a comment with the prediction.

    Args:
        engine: ``vllm`` or ``sglang``.
        note: What is predicted, in a line.
        prefill: Ranks that compute prompts apart; 0 if none do.
    """
    *lines, last = ENGINES[engine](deployment, model)
    flags = [x for x in (*lines, last) if not x.startswith("#")]
    comments = [x for x in (*lines, last) if x.startswith("#")]
    if prefill:
        comments.append(
            f"# {prefill} ranks compute prompts apart: start a second instance with flags for that "
            "(vLLM --kv-transfer-config, SGLang --disaggregation-mode)"
        )
    return "\n".join([shell.comment(note), " \\\n  ".join(flags), *comments]) + "\n"

"""A configuration as the flags of a training framework, and the parts that it cannot say."""

from collections.abc import Callable, Iterator

from umm.step.parallel import IN_BF16, Parallel
from umm.step.rates import BF16
from umm.step.stacks import Stack

RECIPES = {
    "bf16": "", "fp8": "--fp8-format hybrid --fp8-recipe tensorwise",
    "fp8-block": "--fp8-format e4m3 --fp8-recipe blockwise", "mxfp8": "--fp8-format e4m3 --fp8-recipe mxfp8",
    "nvfp4": "--fp4-format e2m1 --fp4-recipe nvfp4",
}  # fmt: skip
SHARDING = {1: "optim", 2: "optim_grads", 3: "optim_grads_params"}  # Megatron-FSDP's names of ZeRO's stages
SCHEDULES = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "zero-bubble": "InterleavedZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""torch.distributed.pipelining's names."""


def megatron(p: Parallel, stack: Stack) -> Iterator[str]:
    """Yield lines of Megatron-LM's flags, and comments for the rest.

    Source: megatron/training/arguments.py.
    """
    overlaps = " --overlap-grad-reduce --overlap-param-gather" if stack.data_overlap or p.is_fsdp else ""
    yield f"--micro-batch-size {p.micro_batch} --global-batch-size {p.batch} --seq-length {p.length} --bf16"
    tensor = f"--tensor-model-parallel-size {p.tp}" + " --sequence-parallel" * (p.tp > 1)
    yield tensor + " --tp-comm-overlap" * (p.tp > 1 and stack.overlaps_tensor(p.precision))
    yield f"--pipeline-model-parallel-size {p.pp}"
    if p.schedule == "interleaved" and p.vp > 1:
        yield f"--num-virtual-stages-per-pipeline-rank {p.vp}"
    if p.chunk_layers and p.pp > 1:
        yield f"# {p.chunk_layers} layers a chunk, the rest in the last one: --pipeline-model-parallel-layout"
    if p.cp > 1:
        yield f"--context-parallel-size {p.cp}"
    if p.ep > 1:
        yield f"--expert-model-parallel-size {p.ep} --expert-tensor-parallel-size 1"
    if p.is_fsdp:
        sharding = SHARDING[3 if p.shards > 1 else p.zero]
        yield (
            f"--use-megatron-fsdp --data-parallel-sharding-strategy {sharding} --use-distributed-optimizer"
            f"{overlaps} --no-gradient-accumulation-fusion --ckpt-format fsdp_dtensor"
        )
        if p.optimizer == "muon":
            yield "# Megatron-FSDP does not have muon yet: take --zero 1"
        if 1 < p.shards < p.dp * p.cp:
            copies = p.dp * p.cp // p.shards
            yield f"--num-distributed-optimizer-instances {copies} --outer-dp-sharding-strategy no_shard"
    elif p.zero:
        yield f"--use-distributed-optimizer{overlaps}"
    if stack.gradient_bytes == BF16:
        yield "--grad-reduce-in-bf16"
    if RECIPES[p.precision]:
        # MXFP8's weights are gathered through the buffer of gradients, but not by Megatron-FSDP.
        reused = " --reuse-grad-buf-for-mxfp8-param-ag" * (p.precision == "mxfp8" and not p.is_fsdp)
        gathers = f" --fp8-param-gather{reused}" if p.keeps_stored(stack) else ""
        yield RECIPES[p.precision] + gathers
    if p.recompute == "full" or p.every:
        yield "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    elif p.recompute != "none":
        named = {"attention": "core_attn", "selective": "core_attn layernorm moe_act"}
        modules = named.get(p.recompute) or p.recompute.replace(",", " ")
        yield f"--recompute-granularity selective --recompute-modules {modules}"
    if p.offload == "optimizer":
        if p.optimizer == "adam" and (p.zero or p.shards > 1):
            yield "--optimizer-cpu-offload --use-precision-aware-optimizer"
        else:
            yield "# Megatron-LM keeps states in the host's memory of adam alone, split by --zero 1 or more"
    elif p.offloaded_layers:
        layers = "all" if p.offload == "activations" else f"the first {p.offloaded_layers}"
        yield f"# activations of {layers} layers wait in the host's memory: cpu_offloading_num_layers"
    if p.last_bf16:
        yield (
            "--first-last-layers-bf16 --num-layers-at-start-in-bf16 0 "
            + f"--num-layers-at-end-in-bf16 {p.last_bf16}"
        )
    if kept := sorted(p.kept_bf16 & set(IN_BF16)):
        yield f"# {', '.join(kept)} stay in bfloat16: name them in --te-precision-config-file"
    yield f"--optimizer {p.optimizer}"
    if p.every:
        yield f"# every {p.every}. layer alone is computed again; Megatron-LM repeats all, or the first N"
    if p.recompute == "selective":
        yield "# a dense MLP's activation is kept: Megatron-LM repeats it with its multiplies alone"
    if p.schedule not in ("1f1b", "interleaved"):
        yield f"# schedule {p.schedule} is not in Megatron-LM; this runs 1F1B"


def torchtitan(p: Parallel, stack: Stack) -> Iterator[str]:
    """Yield lines of torchtitan's TOML, and comments for the rest.

    Source: torchtitan/config/job_config.py.
    """
    # FSDP2 shares weights among context parallel ranks too.
    shard = p.shards // p.cp if p.shards % p.cp == 0 else 1
    yield "[training]"
    yield f"local_batch_size = {p.micro_batch * (p.micro_batches if p.pp > 1 else 1)}"
    yield f"global_batch_size = {p.batch}"
    yield f"seq_len = {p.length}"
    yield "[parallelism]"
    yield f"data_parallel_shard_degree = {shard}"
    yield f"data_parallel_replicate_degree = {p.dp // shard}"
    yield f"tensor_parallel_degree = {p.tp}"
    yield f"pipeline_parallel_degree = {p.pp}"
    if p.pp > 1:
        yield f'pipeline_parallel_schedule = "{SCHEDULES.get(p.schedule, "1F1B")}"'
        if p.schedule not in SCHEDULES:
            yield f"# schedule {p.schedule} is not in torchtitan; this runs 1F1B"
        yield f"pipeline_parallel_microbatch_size = {p.micro_batch}"
        if p.chunk_layers:
            yield f"# {p.chunk_layers} layers a chunk, the rest in the last one: module_fqns_per_model_part"
    yield f"context_parallel_degree = {p.cp}"
    if p.shards % p.cp:
        where = f"split over {p.shards} ranks" if p.shards > 1 else "whole on each rank"
        yield f"# weights {where}: FSDP2 splits them over the {p.cp} that share a context"
    yield f"expert_parallel_degree = {p.ep}"
    yield "[activation_checkpoint]"
    mode = {"none": "none", "full": "full"}.get(p.recompute, "selective")
    yield f'mode = "{mode}"'
    if p.every:
        yield f'selective_ac_option = "{p.every}"'
    elif mode == "selective":
        yield 'selective_ac_option = "op"'
        yield "# op saves every other multiply and repeats the rest; here all multiplies are kept"
    if p.precision != "bf16":
        yield f"# {p.precision}: name its converter in [model] converters; recipes differ"
    if p.offload != "none":
        yield f"# {p.offload} in the host's memory: enable_cpu_offload moves weights and states too"
    if p.kept_bf16:
        yield f"# {p.keep_bf16} in bfloat16: name their modules in filter_fqns of the converter"
    if stack.gradient_bytes == BF16:
        yield f"# gradients are summed in bfloat16 by stack {stack.name}, in float32 by torchtitan"
    if p.zero in (1, 2) and p.shards == 1:
        yield "# states of the optimizer alone are split (ZeRO-1, 2): FSDP2 splits weights too, or nothing"


FRAMEWORKS: dict[str, Callable[[Parallel, Stack], Iterator[str]]] = {
    "megatron": megatron,
    "torchtitan": torchtitan,
}
"""Writers by the name that --emit takes."""


def emitted(framework: str, parallel: Parallel, stack: Stack, seconds: float, tokens: float) -> str:
    """Return the flags of a configuration for a framework, after a comment with the prediction."""
    first = f"# {parallel.words()}: {seconds:.4g} s a step, {tokens:,.0f} tokens/s a device predicted"
    return "\n".join([first, *FRAMEWORKS[framework](parallel, stack)]) + "\n"

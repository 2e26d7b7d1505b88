"""A configuration as flags: read back, they are the configuration; comments name the rest."""

import shlex
import tomllib

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from umm.cli.main import main
from umm.step.flags import FRAMEWORKS, emitted
from umm.step.parallel import OPTIMIZERS, PRECISIONS, Parallel
from umm.step.pipeline import SCHEDULES
from umm.step.stacks import find_stack, stack_names

STACK = find_stack("megatron")


@st.composite
def parallels(draw):
    tp, pp, cp = (draw(st.sampled_from([1, 2, 4])) for _ in range(3))
    dp = draw(st.sampled_from([1, 2, 3, 4]))
    schedule = draw(st.sampled_from(SCHEDULES))
    vp = 2 if schedule == "interleaved" and pp > 1 else 1
    ep = draw(st.sampled_from([1, tp * cp * dp]))
    zero = draw(st.sampled_from([0, 1, 2, 3]))
    sharing = [x for x in range(2, dp * cp + 1) if dp * cp % x == 0]
    fsdp = draw(st.sampled_from([0, *sharing]))
    return Parallel(
        tp * pp * cp * dp, 8 * dp * pp, 4096, draw(st.sampled_from([1, 2])), tp, pp, vp, cp, ep, fsdp, zero,
        schedule=schedule, precision=draw(st.sampled_from(PRECISIONS)),
        optimizer=draw(st.sampled_from(OPTIMIZERS)),
        recompute=draw(st.sampled_from(["none", "selective", "full", "every:3", "moe_act,mla_up_proj"])),
        offload=draw(st.sampled_from(["none", "activations:4", "optimizer"])),
        keep_bf16=draw(st.sampled_from(["", "last:3", "attention,last:3"])),
        chunk_layers=draw(st.sampled_from([0, 4])),
    )  # fmt: skip


def flags_of(text):
    """Return the flags of a text with their values; comments left out."""
    words = shlex.split(text, comments=True)
    starts = [i for i, x in enumerate(words) if x.startswith("--")]
    return {words[i]: words[i + 1 : j] for i, j in zip(starts, [*starts[1:], len(words)], strict=True)}


@given(parallels(), st.sampled_from(["megatron", "torchtitan"]))
def test_a_comment_says_layers_of_chunks_that_are_given(parallel, framework):
    text = emitted(framework, parallel, STACK, 1.5, 1000.0)
    assert ("# 4 layers a chunk" in text) == (parallel.chunk_layers == 4 and parallel.pp > 1)


@given(parallels())
def test_megatrons_flags_say_the_sizes(parallel):
    flags = flags_of(emitted("megatron", parallel, STACK, 1.5, 1000.0))
    assert flags["--tensor-model-parallel-size"] == [str(parallel.tp)]
    assert flags["--pipeline-model-parallel-size"] == [str(parallel.pp)]
    assert flags["--global-batch-size"] == [str(parallel.batch)]
    assert ("--sequence-parallel" in flags) == (parallel.tp > 1)
    assert ("--context-parallel-size" in flags) == (parallel.cp > 1)
    assert ("--num-virtual-stages-per-pipeline-rank" in flags) == (parallel.vp > 1)
    assert ("--use-distributed-optimizer" in flags) == (parallel.zero > 0 or parallel.shards > 1)
    replicas = parallel.dp * parallel.cp // parallel.shards if parallel.shards > 1 else 1
    assert flags.get("--num-distributed-optimizer-instances", ["1"]) == [str(replicas)]
    offloads = parallel.offload == "optimizer" and parallel.optimizer == "adam"
    offloads = offloads and "--use-distributed-optimizer" in flags
    assert ("--optimizer-cpu-offload" in flags) == offloads
    assert flags.get("--num-layers-at-end-in-bf16", ["0"]) == [str(parallel.last_bf16)]
    if parallel.again:
        assert set(flags["--recompute-modules"]) == parallel.again
    assert ("--fp8-recipe" in flags) == ("fp8" in parallel.precision)


@given(parallels(), st.sampled_from(stack_names()))
def test_megatrons_flags_say_how_weights_and_gradients_were_priced(parallel, name):
    """Weights in 8 bits alone need a distributed optimizer; MXFP8's come through the buffer of gradients."""
    stack = find_stack(name)
    flags = flags_of(emitted("megatron", parallel, stack, 1.5, 1000.0))
    split = parallel.zero > 0 or parallel.shards > 1
    narrow = name in ("megatron", "megatron-hybridep") or "26.06" in name
    gathers = narrow and split and parallel.offload != "optimizer" and parallel.precision in ("fp8", "mxfp8")
    assert ("--fp8-param-gather" in flags) == gathers
    ddp = parallel.zero == 1 and parallel.shards == 1
    reused = gathers and ddp and parallel.precision == "mxfp8"
    assert ("--reuse-grad-buf-for-mxfp8-param-ag" in flags) == reused
    assert ("--grad-reduce-in-bf16" in flags) == (stack.gradient_bytes == 2)
    overlaps = parallel.shards > 1 or parallel.zero > 1 or (parallel.zero and stack.data_overlap > 0)
    assert ("--overlap-grad-reduce" in flags) == ("--overlap-param-gather" in flags) == bool(overlaps)
    hides = parallel.tp > 1 and narrow and parallel.precision != "nvfp4"
    assert ("--tp-comm-overlap" in flags) == hides


@given(parallels())
def test_torchtitans_degrees_multiply_to_the_ranks(parallel):
    document = tomllib.loads(emitted("torchtitan", parallel, STACK, 1.5, 1000.0))
    sizes = document["parallelism"]
    names = (
        "data_parallel_shard",
        "data_parallel_replicate",
        "tensor_parallel",
        "pipeline_parallel",
        "context_parallel",
    )
    product = 1
    for name in names:
        product *= sizes[f"{name}_degree"]
    assert product == parallel.ranks
    assert document["training"]["seq_len"] == 4096


def test_weights_that_a_context_does_not_share_are_a_comment():
    """Six ranks share weights, four a context: the degrees made up 8 ranks of 12."""
    text = emitted("torchtitan", Parallel(ranks=12, batch=3, length=64, cp=4, fsdp=6), STACK, 1.5, 1000.0)
    assert "# weights split over 6 ranks: FSDP2 splits them over the 4 that share a context" in text
    assert "data_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 3\n" in text


def test_a_zero_bubble_of_one_chunk_a_stage_is_not_the_v_shaped_one_in_torchtitan():
    """ZBVZeroBubble has two chunks a stage; ZB-H1 is the zero bubble of stages in order."""
    text = emitted("torchtitan", Parallel(8, 8, 64, pp=4, schedule="zero-bubble"), STACK, 1.5, 1000.0)
    assert 'pipeline_parallel_schedule = "InterleavedZeroBubble"' in text


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_command_prints_flags_alone(framework):
    result = CliRunner().invoke(
        main,
        ["step", "--model", "llama-3-8b", "--batch", "64", "--length", "8K", "--search", "--emit", framework],
    )
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("# ")
    assert "predicted" in result.stdout.splitlines()[0]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_new_schedule_that_a_framework_lacks_is_a_comment(framework, monkeypatch):
    monkeypatch.setattr("umm.step.parallel.SCHEDULES", (*SCHEDULES, "gpipe"))
    parallel = Parallel(ranks=8, batch=8, length=64, pp=2, schedule="gpipe")
    assert "# schedule gpipe is not in" in emitted(framework, parallel, STACK, 1.5, 1000.0)

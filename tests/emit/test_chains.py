"""Chains and deployments as programs, flags and traces, without the frameworks themselves."""

import ast
import shlex
import tomllib
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from emit_chains import CHAINS, JAX_ALONE, MACHINE, SCHEMES, emitted, laid_out, simulated
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.cli.main import main
from umm.emit.chains.chakra_trace import nodes_of, write_chakra
from umm.emit.chains.forward import Forward
from umm.emit.chains.program import emit_chain
from umm.emit.chains.spread import spread_of
from umm.emit.serving import serving
from umm.errors import InputError
from umm.profiles import chakra
from umm.program.systems import in_scheme
from umm.schedules.table.details import KINDS
from umm.serve.deployment import Deployment


@pytest.mark.parametrize(("scheme", "words"), [
    ("megatron", "tensor parallel 2"), ("sequence", "tensor parallel 2 with split tokens"),
    ("fsdp2", "weights split and gathered 2"),
    ("sp2-dp2", "tensor parallel 2 with split tokens, data parallel 2"),
    ("hsdp2x2", "weights split and gathered 2, data parallel 2"),
    ("fsdp2-sp2", "tensor parallel 2 with split tokens, weights split and gathered 2"),
])  # fmt: skip
@pytest.mark.parametrize("name", CHAINS)
def test_a_schemes_axes_have_their_usual_names(name, scheme, words):
    """With gradients or without: the forward part is the same."""
    for backward in (False, True):
        assert spread_of(Forward(laid_out(name, scheme, backward=backward))).words == words


@pytest.mark.parametrize("target", ["torch", "jax"])
@pytest.mark.parametrize("name", CHAINS)
def test_a_program_parses_and_names_what_it_cannot_express(name, target):
    for scheme in SCHEMES:
        tree = ast.parse(emitted(target, name, scheme))
        assert "Not expressed: " in ast.get_docstring(tree).replace("\n", " ")


def test_a_torch_plan_has_the_styles_of_megatron_and_of_sequence_parallelism():
    """Tokens whole: columns, then rows, whose sums are replicated; split: norms split, sums scattered."""
    full, split = (emitted("torch", "transformer-layer", x) for x in ("megatron", "sequence"))
    assert "'W1': ColwiseParallel()" in full
    assert "'W2': RowwiseParallel(output_layouts=Replicate())" in full
    assert "SequenceParallel" not in full
    assert "'W2': RowwiseParallel(output_layouts=Shard(0))" in split
    assert "'g1': SequenceParallel(sequence_dim=0" in split
    assert (
        split.count("PrepareModuleInput(\n") == 2
    )  # tokens are gathered once for Q, K and V, once for the MLP
    assert 'fully_shard(block, mesh=mesh["fsdp"])' in emitted("torch", "gated-mlp", "fsdp2")


def test_flags_have_the_sizes_and_leave_out_what_a_scheme_has_not():
    def flags(scheme):
        return shlex.split(emitted("megatron", "transformer-layer", scheme), comments=True)

    assert "--sequence-parallel" in flags("sequence")
    assert "--sequence-parallel" not in flags("megatron")
    assert "--use-megatron-fsdp" in flags("fsdp2")
    toml = tomllib.loads(emitted("torchtitan", "transformer-layer", "fsdp2-sp2"))
    assert toml["parallelism"]["data_parallel_shard_degree"] == 2
    assert toml["parallelism"]["tensor_parallel_degree"] == 2
    assert toml["training"] == {"local_batch_size": 2, "global_batch_size": 4, "seq_len": 16}
    full = tomllib.loads(emitted("torchtitan", "gated-mlp", "megatron"))
    assert "enable_sequence_parallel" not in full["parallelism"]  # which 0.2 refuses
    assert "# tokens stay whole: torchtitan 0.2 splits them" in emitted(
        "torchtitan", "transformer-layer", "megatron"
    )


@pytest.mark.parametrize(("target", "name", "scheme", "says"), [
    ("torch", "gated-mlp", "2d2x2", "no data, tensor or split-weight parallelism"),
    ("megatron", "gated-mlp", "tp2x2", "both tensor parallel|no data, tensor"),
    ("torch", "attention", "fsdp2", "context parallelism|no one mesh"),
])  # fmt: skip
def test_what_a_framework_cannot_have_is_refused_in_a_line(target, name, scheme, says):
    more = {"sequences": 1} if name == "attention" else {}
    chain = umm.chain(name, **CHAINS[name] | more)
    ranks = (SCHEMES | JAX_ALONE)[scheme]
    trace = simulated(chain.laid_out(chain.layouts_of(scheme, ranks), ranks))
    with pytest.raises(InputError, match=says) as refused:
        emit_chain(target, trace, MACHINE, "")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["megatron", "sequence", "fsdp2"])
@pytest.mark.parametrize("target", ["torch", "jax", "megatron", "torchtitan"])
def test_norms_of_heads_and_biases_are_left_out_and_named(target, scheme):
    """The rest is the program of a layer without them."""
    texts = []
    for more in ({}, {"qk_norm": 1, "qkv_bias": 1, "out_bias": 1, "mlp_bias": 1}):
        chain = umm.chain("transformer-layer", **CHAINS["transformer-layer"], **more, backward=True)
        layer = in_scheme(scheme, chain, 2)
        trace = simulated(layer.laid_out(layer.layouts_of(scheme, 2), 2))
        texts.append(emit_chain(target, trace, MACHINE, ""))
    if target in ("torch", "jax"):
        plain, more = ([ast.dump(part) for part in ast.parse(x).body[1:]] for x in texts)
    else:
        plain, more = ([line for line in x.splitlines() if not line.startswith("#")] for x in texts)
    assert more == plain
    text = " ".join(texts[1].split())
    assert "norms of queries and keys are left out" in text
    assert "biases are left out" in text


def test_experts_have_no_program():
    chain = umm.chain("moe", hidden=64, ffn=96, experts=4, top_k=2, shared=0, tokens=32)
    trace = simulated(chain.laid_out(chain.layouts_of("expert", 2), 2))
    with pytest.raises(InputError, match="no program is emitted for"):
        emit_chain("jax", trace, MACHINE, "")


def test_nccls_lines_name_the_collectives_of_a_plan():
    """X is gathered and Y scattered over eight ranks; a machine without NCCL has no lines."""
    chain = umm.chain("gated-mlp", hidden=1024, ffn=4096, tokens=1024, dtype="bfloat16")
    trace = simulated(chain.laid_out(chain.layouts_of("sequence", 8), 8))
    rows = [
        x.split(",") for x in emit_chain("nccl", trace, MACHINE, "").splitlines() if not x.startswith("#")
    ]
    assert {x[0] for x in rows} == {"allgather", "reducescatter"}
    for row in rows:
        assert row[3] in ("ring", "tree", "nvls")
        assert row[4] in ("ll", "ll128", "simple")
        assert row[5:] == ["-1", "1", "8"]
        assert int(row[1]) < 1024 * 1024 * 2 < int(row[2])
    with pytest.raises(InputError, match="no library that takes a tuner"):
        emit_chain("nccl", trace, umm.machine("pvc-12"), "")


def test_a_chakra_trace_of_64_ranks_comes_back_with_the_same_times(tmp_path):
    """Each rank's end within 1 %, each node to the nanosecond; every message has both ends."""
    machine = umm.machine("h100-8", {"nodes": "8"})
    chain = umm.chain("gated-mlp", hidden=2048, ffn=8192, tokens=4096, dtype="bfloat16")
    trace = simulated(chain.laid_out(chain.layouts_of("sp8-dp8", 64), 64), machine)
    back = [chakra.nodes_of(x.read_bytes()) for x in write_chakra(trace, tmp_path / "layer")]
    assert len(back) == 64
    ends = np.array([max(x.start + x.seconds for x in nodes) for nodes in back])
    mine = [
        trace.end[(trace.schedule.rank == rank) | (trace.schedule.dst == rank)].max() for rank in range(64)
    ]
    assert ends == pytest.approx(np.array(mine), rel=0.01)
    assert ends.max() == pytest.approx(trace.makespan_s, rel=0.01)
    sent, received = (
        sorted(
            tuple(x.attributes[f"comm_{y}"] for y in ("src", "dst", "tag", "size"))
            for nodes in back for x in nodes if x.type == kind
        )
        for kind in (chakra.SENDS, chakra.RECEIVES)
    )  # fmt: skip
    assert sent == received
    for nodes in back:
        assert all(y < x.id for x in nodes for y in x.after)
    busy = sum(x.seconds for nodes in back for x in nodes if x.type == chakra.COMP)
    local = (trace.schedule.src < 0) | (trace.schedule.src == trace.schedule.dst)
    assert busy == pytest.approx((trace.end - trace.start)[local].sum(), rel=0.01)


def test_a_barrier_is_one_sum_at_every_rank():
    chain = laid_out("transformer-layer", "megatron")
    trace = simulated(chain)
    barriers = sum(KINDS[x] == "barrier" for x in trace.schedule.kind)
    for nodes in nodes_of(trace).values():
        assert sum(x.type == chakra.COLLECTIVE for x in nodes) == barriers


@given(
    st.sampled_from([1, 2, 8]),
    st.sampled_from([1, 2]),
    st.sampled_from(["bf16", "fp8", "nvfp4"]),
    st.booleans(),
)
def test_a_deployments_flags_say_its_sizes(tp, groups, precision, spread):
    ranks = tp * groups
    d = Deployment(1000, 500, 64, tp, groups, ep=ranks if spread else 1, precision=precision, cache_bits=8)
    name = "meta-llama/Llama 3'; rm -rf ~"
    for engine in ("vllm", "sglang"):
        text = serving(engine, d, name, "TTFT 3 ms\npredicted", prefill=4)
        words = shlex.split(text.replace("\\\n", " "), comments=True)
        flags = dict(pairwise(words))
        assert name in words
        if engine == "vllm":
            assert flags["--tensor-parallel-size"] == str(tp)
            assert flags.get("--data-parallel-size", "1") == str(groups)
            assert ("--enable-expert-parallel" in words) == (spread and ranks > 1)
        else:
            assert flags["--tp-size"] == str(ranks)
            assert flags.get("--attn-dp-size", "1") == str(groups)
            assert flags.get("--ep-size", "1") == str(ranks if spread else 1)
        assert ("--quantization" in words) == (precision == "fp8")
        assert "4 ranks compute prompts apart" in text


def test_commands_emit_and_refuse(tmp_path):
    """Of a named scheme, of a search's winner, of a deployment; one multiply has other targets."""
    run = CliRunner().invoke
    sizes = ["--chain", "gated-mlp", "--hidden", "1K", "--ffn", "4K", "--tokens", "1K", "--machine", "h100-8"]
    outcome = run(main, ["simulate", *sizes, "--layouts", "sequence", "--emit", "torch"])
    assert outcome.exit_code == 0, outcome.output
    ast.parse(outcome.output)
    outcome = run(
        main, ["simulate", *sizes, "--layouts", "sequence", "--chakra", str(tmp_path / "x"), "--quiet"]
    )
    assert outcome.exit_code == 0, outcome.output
    assert len(list(tmp_path.glob("x.*.et"))) == 8
    result = run(main, ["search", *sizes, "--choices", "row,col", "--emit", "jax", "--quiet"])
    assert result.exit_code == 0, result.output
    ast.parse(result.output)
    serve = ["serve", "--model", "llama-3-8b", "--machine", "h100-8", "--tp", "2", "--emit", "vllm"]
    assert "--tensor-parallel-size 2" in run(main, serve).output
    for command, says in (
        (["search", *sizes, "--emit", "umm"], "--emit umm is for one multiply"),
        (
            ["search", "-m", "1K", "-n", "1K", "-k", "1K", "--emit", "megatron"],
            "--emit megatron is for --chain",
        ),
        (["simulate", "-m", "1K", "-n", "1K", "-k", "1K", "--emit", "torch"], "--emit of one multiply"),
    ):
        refused = run(main, command)
        assert refused.exit_code == 2
        assert says in refused.output


def test_a_program_says_which_weights_it_does_not_quantise():
    outline = umm.chain("gated-mlp", hidden=64, ffn=64, tokens=32, dtype="bfloat16", weights="int4")
    forward = Forward(outline.laid_out("megatron", 4))
    assert forward.left_out == ("weights are not quantised to int4",)

"""Chains and deployments as programs, flags and traces, without the frameworks themselves."""

import ast
import shlex
import tomllib
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from emit_chains import CHAINS, JAX_ALONE, MACHINE, SCHEMES, emitted, laid_out, simulated
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.cli.main import main
from umm.emit.chains import torch_block
from umm.emit.chains.chakra_trace import nodes_of, write_chakra
from umm.emit.chains.forward import Forward
from umm.emit.chains.program import emit_chain, flags
from umm.emit.chains.spread import spread_of
from umm.emit.serving import serving
from umm.errors import InputError
from umm.profiles import chakra
from umm.program.outline import Outline
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


def one_of(tensors, *statements, dtype="float32"):
    """A chain on one rank of square tensors, the last of them its result, simulated."""
    rows = [{"name": x, "shape": [8, 8], "dtype": dtype, "role": role} for x, role in tensors.items()]
    outline = Outline.from_dict(
        {"name": "odd", "tensors": rows, "statements": list(statements), "layouts": {"mine": {}}}
    )
    return simulated(outline.laid_out(outline.layouts_of("mine", 1), 1))


def multiply(out, a, b):
    return {"kind": "multiply", "out": out, "a": a, "b": b}


XWQY = {"X": "input", "W": "input", "Q": "work", "Y": "output"}


@pytest.mark.parametrize("target", ["torch", "jax", "torchtitan", "megatron"])
def test_a_chain_on_one_rank_has_a_program_and_flags(target):
    """All but JAX ended in a traceback: the mesh of one rank had an axis without a role."""
    text = emit_chain(
        target,
        one_of(XWQY, multiply("Q", "X", "W"), {"kind": "map", "out": "Y", "fn": "relu", "reads": ["Q"]}),
        MACHINE,
        "",
    )
    assert "on 1 ranks" in text or "one rank" in text


@pytest.mark.parametrize(("target", "sum_"), [("torch", "Q + -0.5 * X"), ("jax", "t['Q'] + -0.5 * t['X']")])
def test_a_sum_in_a_program_has_its_factor(target, sum_):
    """It was left out, and the program computed something else."""
    add = {"kind": "map", "out": "Y", "fn": "add", "reads": ["Q", "X"], "parameters": {"factor": -0.5}}
    text = emit_chain(target, one_of(XWQY, multiply("Q", "X", "W"), add), MACHINE, "")
    assert sum_ in text


@pytest.mark.parametrize(("target", "length"), [("torch", "length=8,"), ("jax", ", 8, 8, True, 0)")])
def test_attention_in_a_program_sees_its_chunk_alone(target, length):
    """Of 2 sequences of 16 tokens in chunks of 8 it saw all 16."""
    tensors = {"Q": "input", "K": "input", "V": "input", "O": "output"}
    rows = [{"name": x, "shape": [32, 8], "dtype": "float32", "role": role} for x, role in tensors.items()]
    rows.append({"name": "L", "shape": [32, 1], "dtype": "float32"})
    attention = {"kind": "attention", "out": "O", "q": "Q", "k": "K", "v": "V", "lse": "L", "head": 8}
    attention |= {"sequences": 2, "chunks": 2}
    outline = Outline.from_dict(
        {"name": "odd", "tensors": rows, "statements": [attention], "layouts": {"mine": {}}}
    )
    text = emit_chain(target, simulated(outline.laid_out(outline.layouts_of("mine", 1), 1)), MACHINE, "")
    assert length in text


@pytest.mark.parametrize(("sizes", "says"), [
    ({"Q": 16, "K": 32, "V": 32}, "it has not as many queries as keys"),
    ({"Q": 32, "K": 32, "V": 32, "value": 4}, "its heads of values are not as wide as those of keys"),
])  # fmt: skip
def test_attention_that_programs_cut_otherwise_is_refused(sizes, says):
    """Keys were cut as queries are, and values as keys."""
    value = sizes.pop("value", 8)
    shapes = {x: [n, value if x == "V" else 8] for x, n in sizes.items()} | {"O": [sizes["Q"], value]}
    rows = [
        {"name": x, "shape": shape, "dtype": "float32", "role": "output" if x == "O" else "input"}
        for x, shape in shapes.items()
    ]
    rows.append({"name": "L", "shape": [sizes["Q"], 1], "dtype": "float32"})
    attention = {"kind": "attention", "out": "O", "q": "Q", "k": "K", "v": "V", "lse": "L", "head": 8}
    attention |= {"value": value, "sequences": 2}
    outline = Outline.from_dict(
        {"name": "odd", "tensors": rows, "statements": [attention], "layouts": {"mine": {}}}
    )
    trace = simulated(outline.laid_out(outline.layouts_of("mine", 1), 1))
    for target in ("torch", "jax"):
        with pytest.raises(InputError, match=says):
            emit_chain(target, trace, MACHINE, "")


def test_a_chain_in_float64_has_64_bits_in_jax():
    """Without the switch JAX makes float32 of it, and the program's own check fails."""
    text = emit_chain(
        "jax", one_of(XWQY, multiply("Q", "X", "W"), multiply("Y", "Q", "W"), dtype="float64"), MACHINE, ""
    )
    assert text.index('jax.config.update("jax_enable_x64", True)') < text.index("DTYPE = jnp.float64")


@pytest.mark.parametrize(("statements", "says"), [
    ([multiply("Y", "X", "X")], "reads a weight as an activation"),
    ([multiply("Q", "X", "W"), multiply("Y", "X", "Q")], "multiplies two activations"),
    ([multiply("Q", "X", "W"), multiply("Y", "W", "Q")], "reads a weight as an activation"),
    ([multiply("Q", "X", "W"), {"kind": "map", "out": "Y", "fn": "add", "reads": ["Q", "W"]}],
     "reads a weight as an activation"),
])  # fmt: skip
def test_what_is_no_layer_of_torch_is_refused_and_jax_has_it(statements, says):
    """The program named tensors that it did not have."""
    used = {x for row in statements for x in (row["out"], row.get("a"), row.get("b"), *row.get("reads", []))}
    trace = one_of({x: role for x, role in XWQY.items() if x in used}, *statements)
    with pytest.raises(InputError, match=says):
        emit_chain("torch", trace, MACHINE, "")
    assert "cut('Y', " in emit_chain("jax", trace, MACHINE, "")


def test_a_chain_that_names_no_tokens_has_no_flags():
    with pytest.raises(InputError, match="odd has no tokens that come in"):
        emit_chain("megatron", one_of({"X": "input", "Y": "output"}, multiply("Y", "X", "X")), MACHINE, "")


def test_ranks_that_fall_along_an_axis_are_refused_in_torch_and_named_in_flags():
    """torch sorts the ranks of a group, so its collectives would order parts otherwise than the mesh."""
    spread = spread_of(Forward(laid_out("gated-mlp", "megatron")))
    turned = replace(spread, ranks=spread.ranks[::-1])
    with pytest.raises(InputError, match="fall along an axis"):
        torch_block.program(turned, "")
    assert "order, tensor parallel ones innermost: 1 0" in flags("megatron", turned, "")
    assert "innermost" not in flags("megatron", spread, "")


def test_a_chain_that_looks_like_gradients_alone_is_refused():
    trace = one_of({"X": "input", "dX": "input", "Y": "output"}, multiply("Y", "X", "dX"))
    with pytest.raises(InputError, match="all of odd depends on Y, dX"):
        emit_chain("jax", trace, MACHINE, "")


def test_a_tensor_does_not_replace_a_name_of_the_program():
    """A weight called forward was no part that torch calls, and tokens called first were named twice."""
    names = {"first": "input", "forward": "input", "attention": "work", "rope": "output"}
    add = {"kind": "map", "out": "rope", "fn": "add", "reads": ["attention", "first"]}
    text = emit_chain("torch", one_of(names, multiply("attention", "first", "forward"), add), MACHINE, "")
    ast.parse(text)
    assert "attention_ = self.forward_(first_)" in text
    assert "rope_ = attention_ + first_" in text


def test_a_program_says_which_types_it_does_not_have():
    types = {"X": ("bfloat16", "input"), "W": ("bfloat16", "input"), "Y": ("float32", "output")}
    rows = [{"name": x, "shape": [8, 8], "dtype": dtype, "role": role} for x, (dtype, role) in types.items()]
    outline = Outline.from_dict(
        {"name": "odd", "tensors": rows, "statements": [multiply("Y", "X", "W")], "layouts": {"mine": {}}}
    )
    trace = simulated(outline.laid_out(outline.layouts_of("mine", 1), 1))
    for target in ("torch", "jax"):
        text = emit_chain(target, trace, MACHINE, "").replace("\n", " ")
        assert "tensors of float32 are bfloat16 like the others" in text


def test_each_size_has_one_line_of_nccls_tuner():
    """Gathers of 384 and of 768 KiB had lines that overlap, of which the tuner takes the first."""
    chain = umm.chain("gated-mlp", hidden=1024, ffn=1536, tokens=512, dtype="bfloat16", backward=True)
    trace = simulated(chain.laid_out(chain.layouts_of("fsdp4", 4), 4))
    lines = [x.split(",") for x in emit_chain("nccl", trace, MACHINE, "").splitlines() if x[0] != "#"]
    spans = [(int(x[1]), int(x[2])) for x in lines if x[0] == "allgather"]
    assert len(spans) == 4
    assert all(before[1] + 1 == after[0] for before, after in pairwise(spans))

"""Deployments: more work takes longer, ranges hold the answer, engines are named, bad sizes are refused."""

import json
import re
from dataclasses import replace

import pytest
from click.testing import CliRunner
from command import good
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.cli.main import main
from umm.errors import InputError, ProblemError
from umm.machines.settings import with_settings
from umm.program.models import PUBLIC, find_model
from umm.program.models.count import count
from umm.program.models.layers import Attention, Indexer, Layer, Mlp
from umm.serve.deployment import Deployment
from umm.serve.rates import engine_names, find_engine
from umm.serve.serve import rates_of, serve, stalls

NODE = umm.machine("h200-8", kernels="vllm")
SMALL = find_model("llama-3-8b")


def served(model=SMALL, machine=NODE, engine="vllm", prefill=None, **sizes):
    deployment = Deployment(**{"input": 1024, "output": 1024, "concurrency": 16} | sizes)
    return serve(model, deployment, rates_of(model, machine, deployment, engine), prefill)


@settings(max_examples=30)
@given(st.sampled_from(sorted(PUBLIC)), st.sampled_from([1, 8, 64]), st.sampled_from(["bf16", "fp8", "int4"]))
def test_every_model_is_served_and_its_range_holds_the_answer(name, concurrency, precision):
    model = find_model(name)
    result = served(model, concurrency=concurrency, precision=precision, tp=8)
    assert result.tpot_range[0] <= result.tpot <= result.tpot_range[1]
    assert result.ttft_range[0] <= result.ttft <= result.ttft_range[1]
    assert result.ttft > result.prefill > 0
    assert result.tokens_per_second == pytest.approx(result.running / result.tpot / 8)
    assert 0 < result.running <= concurrency


def test_a_token_takes_at_least_the_weights_over_the_memory_bandwidth():
    """llama-3-8b in bfloat16: 7.5 billion weights of 2 bytes at 4.8 TB/s are 3.1 ms."""
    assert served(concurrency=1).decode > 7.5e9 * 2 / 4.8e12
    assert served(concurrency=1).decode < 3 * 7.5e9 * 2 / 4.8e12


def test_more_requests_and_longer_contexts_take_longer_and_more_ranks_less():
    alone = served()
    assert served(concurrency=64).tpot > alone.tpot
    assert served(concurrency=64).tokens_per_second > alone.tokens_per_second
    assert served(input=8192).tpot > alone.tpot
    assert served(tp=4).tpot < alone.tpot
    assert served(precision="fp8").tpot < alone.tpot
    assert served(cache_bits=8).memory["cache"] == alone.memory["cache"] / 2


@settings(max_examples=15)
@given(
    st.sampled_from(sorted(PUBLIC)), st.sampled_from([1, 100, 8192]), st.sampled_from([2, 128]),
    st.sampled_from([1, 16, 256]), st.sampled_from(["bf16", "fp8-block", "int4"]),
    st.sampled_from([None, 2048]),
)  # fmt: skip
def test_no_faster_part_of_a_machine_makes_a_deployment_slower(name, length, output, count, precision, chunk):
    """Memory, links and peaks twice as fast; nor does a longer prompt, of as many requests, take less."""
    model = find_model(name)
    sizes = {"tp": 8, "input": length, "output": output, "concurrency": count, "chunk": chunk}
    sizes["precision"] = precision
    usual = served(model, **sizes)
    for part in ("memory_bandwidth", "fabric.bandwidth", "peak.bfloat16", "peak.float8"):
        faster = served(model, machine=with_settings(NODE, {part: "x2"}), **sizes)
        for time in ("ttft", "tpot", "decode", "prefill"):
            assert getattr(faster, time) <= getattr(usual, time) * (1 + 1e-9)
    longer = served(model, **sizes | {"input": 2 * length})
    if longer.running == usual.running:
        assert longer.decode > 0.99 * usual.decode
        assert longer.prefill > 0.99 * usual.prefill


def test_weights_of_a_rank_are_those_of_the_checkpoint_over_its_ranks():
    """671 billion weights of deepseek-v3 in 8 bits: 8 ranks hold 84 GB each, ends in bfloat16 apart."""
    result = served(find_model("deepseek-v3"), tp=8, precision="fp8-block")
    assert result.memory["weights"] == pytest.approx(671e9 / 8, rel=0.02)


def test_a_vision_tower_is_loaded_beside_the_language_model():
    """0.6 billion weights of a tower take 1.2 GB of a device, a fourth of it on 4 ranks."""
    model = replace(SMALL, vision=600_000_000)
    for tp in (1, 4):
        more = served(model, tp=tp).memory["weights"] - served(tp=tp).memory["weights"]
        assert more == pytest.approx(1.2e9 / tp)


def test_experts_with_attention_groups_exchange_tokens():
    mixture = find_model("qwen3-30b-a3b")
    apart = served(mixture, attention_dp=8, ep=8, concurrency=256)
    full = served(mixture, tp=8, moe_tp=8, concurrency=256)
    assert apart.memory["cache"] < full.memory["cache"] * 8
    assert apart.tpot > 0 < full.tpot


def test_prompts_on_ranks_of_their_own_leave_decoding_alone():
    """A further token takes an iteration that decodes; the first one waits for the cache too."""
    sizes = {"input": 8192, "concurrency": 64}
    deployment = Deployment(**sizes, output=1024)
    together, apart = served(**sizes), served(**sizes, prefill=replace(deployment, tp=4))
    assert apart.tpot == together.decode < together.tpot


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"tp": 16}, "16 ranks need as many devices; h200-8 kernels=vllm has 8"),
        ({"tp": 4, "moe_tp": 2}, "--moe-tp 2 x --ep 1 must be the 4 ranks"),
        ({"tp": 3}, "--tp 3 does not divide the 32 heads of llama-3-8b"),
        ({"ep": 2, "tp": 2}, "--ep 2 splits experts, and llama-3-8b has none"),
        ({"moe_tp": 2, "tp": 2}, "--moe-tp 2 splits experts, and llama-3-8b has none"),
        ({"output": 1}, "--output 1 has no further token to time; use --output 2 or more"),
        ({"concurrency": 0}, "--concurrency 0 must be at least 1"),
        ({"precision": "fp5"}, "--precision 'fp5' is unknown; did you mean 'fp8'"),
    ],
)
def test_sizes_that_cannot_be_are_refused_in_a_line(sizes, message):
    with pytest.raises(InputError) as refused:
        served(**sizes)
    assert message in str(refused.value)


def test_every_engine_states_its_source():
    assert all(len(find_engine(x).source) > 20 for x in engine_names())
    with pytest.raises(ProblemError, match="engine 'vlm' is unknown; did you mean 'vllm'"):
        find_engine("vlm")


COMMAND = ["serve", "--model", "llama-3-8b", "--machine", "h200-8", "--input", "1024", "--output", "512"]


def test_the_command_prints_and_writes_json():
    text = CliRunner().invoke(main, COMMAND)
    assert text.exit_code == 0, text.output
    assert max(map(len, text.stdout.splitlines())) <= 80
    assert all(word in text.stdout for word in ("TTFT", "TPOT", "tokens/s a device", "cache"))
    record = json.loads(CliRunner().invoke(main, [*COMMAND, "--json", "--concurrency", "8"]).stdout)
    assert record["range_s"][0] <= record["tpot_s"] <= record["range_s"][1]
    assert record["deployment"]["output"] == 512
    assert record["memory_bytes"] > 15e9


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tp", "8", "--ranks", "4"], "--ranks 4 must be the 8 of --tp 8 x --attention-dp 1"),
        (["--tp", "8", "--prefill-ranks", "8"], "16 ranks need as many devices"),
        (["--tp", "2", "--prefill-ranks", "3"], "--prefill-ranks 3 does not divide the 32 heads"),
        (["--tp", "2", "--prefill-ranks", "0"], "--prefill-ranks 0 must be at least 1"),
        (["--emit", "vllm", "--json"], "--emit prints flags alone; leave out --json"),
    ],
)
def test_ranks_that_contradict_each_other_or_have_no_device_are_refused(flags, message):
    refused = CliRunner().invoke(main, [*COMMAND, *flags])
    assert refused.exit_code == 2
    assert message in refused.stderr.splitlines()[-1]


def test_requests_without_room_wait_and_no_longer_slow_the_others():
    """llama-3-70b in 8 bits on one H200: 67.7 GiB of weights, 62 of cache: 43 of 64 or 128 requests.

    Measured (TensorRT-LLM, AIConfigurator's collection): 79.2 ms a token at 64 requests, 80.5 at 128.
    """
    model = find_model("llama-3-70b")
    sizes = {"input": 8192, "precision": "fp8", "cache_bits": 8}
    many, more = (
        served(model, umm.machine("h200-8", kernels="trtllm"), "trtllm", concurrency=x, **sizes)
        for x in (64, 128)
    )
    assert more.running == many.running < 64
    assert more.tpot == many.tpot == pytest.approx(0.08, rel=0.1)
    assert more.ttft > 10 * more.prefill  # until others end
    assert more.memory_bytes <= 0.9 * 143771 * 2**20
    assert "waiting   " in good(
        "serve", "--model", "llama-3-70b", "--machine", "h200-8", "--kernels", "trtllm", "--precision", "fp8",
        "--tp", "1", "--input", "8K", "--concurrency", "64",
    )  # fmt: skip


def test_groups_of_attention_wait_for_every_prompt():
    """Prompts of 8 groups hardly ever begin together, so each of all 16 requests stalls all groups."""
    model = find_model("deepseek-v3")
    result = served(model, input=8192, tp=1, attention_dp=8, ep=8, precision="fp8", concurrency=16)
    assert result.tpot - result.decode == pytest.approx(16 / 1024 * result.prefill, rel=0.02)
    assert stalls(2.0, 1) == 2.0 < stalls(2.0, 8) < 16


def test_groups_that_begin_prompts_together_wait_for_their_own_alone():
    """TensorRT-LLM balances prompts over groups: 16 requests of 8 groups are 2 prompts an answer of 1024."""
    model, node = find_model("deepseek-v3"), umm.machine("h200-8", kernels="trtllm")
    sizes = {"input": 8192, "tp": 1, "attention_dp": 8, "ep": 8, "precision": "fp8", "concurrency": 16}
    result = served(model, node, "trtllm", **sizes)
    assert result.tpot - result.decode == pytest.approx(2 / 1024 * result.prefill, rel=1e-6)


def test_attention_groups_without_an_exchange_kernel_gather_rows_and_scatter_sums():
    """TensorRT-LLM, 8 ranks of 2 tokens, 7168 columns: an all-gather and a reduce-scatter of 224 KiB."""
    node = umm.machine("h200-8", kernels="trtllm")
    model = find_model("deepseek-v3")
    deployment = Deployment(1024, 1024, 16, tp=1, attention_dp=8, ep=8, precision="fp8")
    rates = rates_of(model, node, deployment, "trtllm")
    ways = (umm.collective(x, nbytes=16 * 7168 * 2, machine=node) for x in ("all-gather", "reduce-scatter"))
    took = sum(umm.executor.executor("sim").makespan(x) for x in ways)
    assert rates.exchange(8, 2, 7168, 8, 256, True) == pytest.approx(took, rel=0.2)


def test_chunks_of_prompts_beside_decoding_read_weights_once():
    """2,048 tokens beside 64 decoded take less than both apart; chunks of 16 leave most requests waiting."""
    alone, chunk = (served(input=2048, concurrency=64, chunk=x) for x in (None, 2048))
    host = 0.4e-3 + 64 * 8e-6
    assert max(alone.decode, alone.prefill) < chunk.mixed < alone.decode + alone.prefill
    assert chunk.mixed - host < 0.97 * (alone.decode - host + alone.prefill)
    assert alone.decode == chunk.decode < chunk.tpot < alone.tpot
    few = served(input=2048, concurrency=64, chunk=16)  # 8 requests of 1024 tokens end in 128 iterations
    assert (few.running, few.tpot) == (8, pytest.approx(few.mixed))
    assert few.ttft > 8 * chunk.ttft
    asked = (*COMMAND, "--concurrency", "64", "--chunk", "2K")
    assert "decodes beside 1024 of a prompt" in good(*asked)
    assert "--max-num-batched-tokens 2112" in good(*asked, "--emit", "vllm")
    result = CliRunner().invoke(main, [*asked, "--prefill-ranks", "1"])
    assert result.exit_code == 2
    assert "leave it or --prefill-ranks out" in result.output


def test_a_range_holds_the_answer_where_chunks_have_many_prompts_of_short_answers():
    """85 prompts come with each iteration, and a chunk adds less to decoding that is slower."""
    sizes = {"input": 32768, "output": 3, "chunk": 10**6, "tp": 8, "ep": 8, "concurrency": 256}
    model, machine = find_model("llama-4-maverick"), umm.machine("mi300x-8")
    result = served(model, machine, "trtllm", **sizes)
    assert result.tpot_range[0] <= result.tpot <= result.tpot_range[1]
    assert result.ttft_range[0] <= result.ttft <= result.ttft_range[1]


def test_the_cache_has_the_engines_type_unless_another_is_asked_for():
    """TensorRT-LLM caches in 8 bits beside weights of 8; vLLM only where checkpoints say so."""
    flags = ("--concurrency", "8", "--json", "--precision", "fp8")

    def bits(*more):
        return json.loads(good(*COMMAND, *flags, *more))["deployment"]["cache_bits"]

    assert bits("--kernels", "trtllm") == 8
    assert bits("--kernels", "trtllm", "--cache", "bf16") == bits("--kernels", "vllm") == 16
    assert bits("--cache", "fp8") == 8


def test_the_cache_has_the_type_that_a_checkpoint_states(tmp_path):
    """compressed-tensors in 8 bits with kv_cache_scheme: vLLM caches in 8 bits, without it in 16."""
    weights = {"weights": {"num_bits": 8, "type": "float"}, "targets": ["Linear"]}
    quantised = {"quant_method": "compressed-tensors", "config_groups": {"group_0": weights}}
    for scheme, expected in ((None, 16), ({"num_bits": 8, "type": "float"}, 8)):
        config = WIDE | {"quantization_config": quantised | {"kv_cache_scheme": scheme}}
        (tmp_path / "config.json").write_text(json.dumps(config))
        text = good("serve", "--model", str(tmp_path / "config.json"), "--machine", "h200-8", "--json")
        assert json.loads(text)["deployment"]["cache_bits"] == expected


def test_rows_are_sorted_for_experts_in_8_bits_that_are_spread_over_ranks():
    """SGLang, 58 layers of experts: 40 us each, by expert parallelism and not by tensor parallelism."""
    model, node = find_model("deepseek-v3"), umm.machine("b200-8", kernels="sglang")
    deployment = Deployment(1024, 1024, 16, tp=8, ep=8, precision="fp8-block")
    for sizes, layers in ({}, 58), ({"ep": 1}, 0), ({"precision": "nvfp4"}, 0):
        one = replace(deployment, **sizes)
        rates = rates_of(model, node, one, "sglang")
        free = replace(rates, engine=replace(rates.engine, scatter_s=0.0), _known={})
        longer = serve(model, one, rates).decode - serve(model, one, free).decode
        assert longer == pytest.approx(layers * 40e-6, abs=1e-9)


def test_scales_of_blocks_take_time_beside_few_rows():
    """Of 16 rows, 448 by 448: three kernels of TensorRT-LLM on B200 that read the same; 0.1 us of bytes."""
    node = umm.machine("b200-8", kernels="trtllm")
    deployment = Deployment(1024, 1024, 16)
    one, blocks = (
        rates_of(SMALL, node, replace(deployment, precision=x), "trtllm") for x in ("fp8", "fp8-block")
    )
    assert blocks.gemm(16, 448, 448, blocks.dense) > 1.5 * one.gemm(16, 448, 448, one.dense)


def test_layers_with_a_window_keep_no_more_tokens_than_it_has():
    """gpt-oss-120b: 18 layers keep all 2048 tokens and 18 keep 128, each 2 KiB, of one request."""
    model = find_model("gpt-oss-120b")
    kept = served(model, tp=1, concurrency=1, input=1024, output=1024).memory["cache"]
    assert kept == 18 * 2048 * (2048 + 128)


def test_states_of_any_length_take_room_beside_the_cache():
    """nemotron-3-nano keeps 47.6 MiB of states a request and 6 KiB a token of 2 heads of keys, over 2 ranks.

    Of an H100's 80 GB 29.4 GiB are weights, so 1,529 requests run, where all 4,000 had room for their caches.
    """
    model = find_model("nemotron-3-nano")
    sizes = {"tp": 2, "machine": umm.machine("h100-8", kernels="vllm"), "concurrency": 4000}
    states, kept = count(model).state_bytes, 6 * 1024
    assert served(model, **sizes | {"concurrency": 1}).memory["cache"] == (states + kept * 2048) / 2
    result = served(model, **sizes)
    room = result.memory_bytes - result.memory["weights"]
    assert result.running == pytest.approx(room / (states + kept * 1536) * 2)


def without_indexers(model):
    """The model with the choice of a layer before it in each."""
    shared = (replace(x.mixer, indexer=replace(x.mixer.indexer, shared=True)) for x in model.layers)
    return replace(
        model, layers=tuple(replace(x, mixer=y) for x, y in zip(model.layers, shared, strict=True))
    )


def test_sparse_attention_reads_the_keys_that_it_chooses_from():
    """glm-5: 78 layers score 131,584 keys, each 128 columns of 8 bits with a scale of 4 bytes.

    A score of 4 bytes is written and read: 1.4 GB in all at 4.8 TB/s are .3 ms. DeepGEMM's cache has 132
    bytes a key whatever type that of attention has.
    """
    model, sizes = find_model("glm-5"), {"tp": 8, "concurrency": 1, "input": 2**17}
    without = without_indexers(model)
    alone, shared = served(model, **sizes), served(without, **sizes)
    read = 78 * (2**17 + 512) * (132 + 8) / 4.8e12
    assert read < alone.decode - shared.decode < 1.2 * read + 78 * 40e-6
    for bits in (8, 16):
        caches = (
            served(x, cache_bits=bits, **sizes).memory["cache"] for x in (model, without_indexers(model))
        )
        assert next(caches) - next(caches) == 78 * (2**17 + 1024) * 132


def test_scores_of_latent_attention_are_multiplied_in_8_bits():
    """glm-5 before 131,072 tokens: 78 layers of 32 heads of 128 columns, at half of 1,979 Tflop/s."""
    model, sizes = find_model("glm-5"), {"tp": 8, "concurrency": 1, "input": 2**17}
    scores = 78 * 2 * 32 * 128 * 2.0**33 / (1979e12 / 2)
    longer = served(model, **sizes).prefill - served(without_indexers(model), **sizes).prefill
    projected = 78 * 2 * 2**17 * (2048 * 32 * 128 + 6144 * 160) / 989e12
    assert scores + projected < longer < scores + 2 * projected


def test_scores_of_plain_attention_are_split_and_have_no_weights():
    """MiniMax-M3 has a head of scores for each of 4 heads of keys: a rank of 4 scores a fourth."""
    layer = Attention(64, 4, 128, 128, indexer=Indexer(4, 128, 2048))
    model = replace(SMALL, hidden=6144, layers=(Layer(layer, (Mlp(12288),)),) * 60)
    model_without = without_indexers(model)
    assert served(model, tp=4).memory["cache"] == 60 * 2 * (2 * 128 + 128) * 2048 * 16
    taken = []
    for tp in (1, 4):
        sizes = {"tp": tp, "concurrency": 1, "input": 2**17}
        taken.append(served(model, **sizes).prefill - served(model_without, **sizes).prefill)
    scores = 60 * 2 * 4 * 128 * 2.0**33 / (989e12 / 2)
    assert taken[0] > scores
    assert taken[0] - taken[1] > 0.75 * scores


def test_values_that_are_keys_have_no_weight_and_are_read_from_the_cache():
    """Gemma 4: 60 layers of 4 heads of 512 columns, which engines cache as keys and as values of 2 bytes."""
    layer = Attention(32, 4, 512, 512, norms=1024)
    model = replace(SMALL, hidden=5376, layers=(Layer(layer, (Mlp(21504),)),) * 60)
    shared = tuple(replace(x, mixer=replace(x.mixer, keys_only=True)) for x in model.layers)
    sizes = {"tp": 4, "concurrency": 8, "input": 2**16}
    apart, same = served(model, **sizes), served(replace(model, layers=shared), **sizes)
    weights = 60 * 5376 * 2048 * 2 / 4
    assert apart.memory["cache"] == same.memory["cache"] == 60 * 2 * 2 * 512 * (2**16 + 1024) * 8
    assert apart.memory["weights"] - same.memory["weights"] == weights
    assert 0 < apart.decode - same.decode < 2 * weights / 4.8e12
    assert same.decode > (same.memory["weights"] + same.memory["cache"]) * 0.99 / 4.8e12


def test_values_of_more_columns_than_keys_take_their_time_beside_a_prompt():
    """glm-5 has 192 + 64 columns of keys and 256 of values: 64 more than 192, of 8 heads in 78 layers."""
    model, sizes = find_model("glm-5"), {"tp": 8, "input": 16384, "concurrency": 1}
    fewer = tuple(replace(x, mixer=replace(x.mixer, value=192)) for x in model.layers)
    longer = served(model, **sizes).prefill - served(replace(model, layers=fewer), **sizes).prefill
    weights = 2 * 16384 * 8 * 64 * (512 + 6144)  # of values and of the result
    attended = 2 * 8 * 64 * 2048 * 16384  # 2,048 keys that a token chooses
    assert longer > 78 * (weights + attended) / 989e12


def test_a_gate_of_latent_attention_is_read():
    """deepseek-v3 with one as Kimi K3 has it: 61 matrices of 7168 x 128·128 over 8 ranks in bfloat16."""
    model = find_model("deepseek-v3")
    gated = replace(model, layers=tuple(replace(x, mixer=replace(x.mixer, gate=True)) for x in model.layers))
    plain, longer = (served(x, tp=8, concurrency=1) for x in (model, gated))
    nbytes = 61 * 7168 * 128 * 128 * 2 / 8
    assert longer.memory["weights"] - plain.memory["weights"] == nbytes
    assert nbytes / 4.8e12 < longer.decode - plain.decode < 2 * nbytes / 4.8e12


def test_ranks_that_compute_prompts_are_named():
    assert "tp2 + tp4 for prompts" in " ".join(good(*COMMAND, "--tp", "2", "--prefill-ranks", "4").split())


def test_an_engine_serves_with_a_backend_of_attention_that_its_machine_has_and_no_other():
    asked = [*COMMAND[:3], "--machine", "b200-8", "--tp", "4", "--kernels"]
    assert "by sglang+triton" in " ".join(good(*asked, "sglang+triton").split())
    result = CliRunner().invoke(main, [*asked, "sglang+tritn"])
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "did you mean 'triton'?" in result.stderr


def test_an_engine_serves_a_hybrid_model_with_the_backend_that_it_takes_for_it():
    asked = ["serve", "--model", "nemotron-3-nano", "--kernels", "sglang", "--tp", "1", "--machine"]
    assert "kernels=sglang+flashinfer" in " ".join(good(*asked, "b200-8").split())
    assert "kernels=sglang graphs" in " ".join(good(*asked, "h100-8").split())


def test_a_machine_without_the_engine_says_so():
    result = CliRunner().invoke(main, [*COMMAND[:3], "--machine", "mi300x-8"])
    assert result.exit_code == 0
    assert "has no kernels of vllm; its own numbers are taken" in result.stderr


def test_a_number_that_only_the_machine_without_the_engine_has_is_refused():
    """The engine's NCCL has no tree-ll; the file's own kernels would answer with half the time."""
    setting = "library.all-reduce.tree-ll.step=x0.999"
    asked = [*COMMAND[:3], "--machine", "h100-8", "--tp", "8", "--set", setting]
    result = CliRunner().invoke(main, asked)
    assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
    assert "h100-8 kernels=vllm has no number 'library.all-reduce.tree-ll.step'" in result.stderr


def test_a_model_takes_the_fewest_ranks_that_have_room():
    """llama-3-70b: 131.4 GiB of weights and 10 of cache for 64 requests; two devices of 80 GB lack room."""
    text = good("serve", "--machine", "h100-8", "--model", "llama-3-70b")
    assert "tp4, 64 requests" in text
    assert "tp1, 64 requests" in good("serve", "--machine", "h100-8", "--model", "llama-3-8b")


@pytest.mark.parametrize(
    ("model", "flags", "remedy"),
    [
        ("llama-3-70b", ["--tp", "1"], "131.4 GiB of weights"),
        ("llama-3-70b", ["--tp", "1"], "; --tp 4 fits"),
        ("llama-3-8b", ["--input", "1M", "--tp", "1"], "; --tp 8 fits"),
        ("deepseek-v3", [], "; --precision int4 --tp 8 fits"),
        ("kimi-k2", [], "; --precision int4 --tp 8 fits"),
        ("deepseek-v3", ["--set", "devices.memory=16GB"], "; take a machine with more memory"),
    ],
)
def test_a_deployment_without_room_ends_in_3_with_one_that_fits(model, flags, remedy):
    """Of 79.6 GiB: 131.4 GiB on 4 ranks; a request of 1 Mi tokens 128 GiB; 671 B weights."""
    for more in ([], ["--emit", "vllm"], ["--json"]):
        refused = CliRunner().invoke(main, ["serve", "--machine", "h100-8", "--model", model, *flags, *more])
        assert refused.exit_code == 3
        assert not refused.stdout
        line = refused.stderr.splitlines()[-1]
        assert remedy in line
    fits = re.search(r"; (--.*) fits", line)
    assert fits is None or good("serve", "--machine", "h100-8", "--model", model, *flags, *fits[1].split())


def test_weights_beyond_what_engines_fill_are_named_where_requests_wait():
    """78.3 of 79.6 GiB: one request fits the device, and engines fill 90 % of it."""
    asked = ("serve", "--machine", "h100-8", "--model", "deepseek-v3", "--tp", 8, "--precision", "fp8")
    text = " ".join(good(*asked, "--concurrency", 64).split())
    assert "63 requests, without room in the caches: weights leave none of the 90 % of a device" in text


WIDE = {
    "hidden_size": 4096, "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 1024, "vocab_size": 32000, "num_experts": 32, "num_experts_per_tok": 4,
}  # fmt: skip


@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ({}, "bf16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "mxfp4"}, "nvfp4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "bitsandbytes"}, "bf16"),
    ],
)
def test_a_quantised_file_is_served_in_its_type_and_says_so(quantization, precision, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(WIDE | {"quantization_config": quantization}))
    command = ["serve", "--model", str(path), "--machine", "h200-8", "--concurrency", "8"]
    ran = CliRunner().invoke(main, command)
    assert ran.exit_code == 0, ran.output
    # The page may break its lines anywhere.
    words = " ".join(ran.output.split())
    assert f"by vllm, {precision}:" in words
    assert ("quantization_config" in words) == bool(quantization)


NARROW = {f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"} for i in range(4) for x in "qkvo"}
WIDER = {f"model.layers.{i}.mlp.experts": {"quant_algo": "NVFP4"} for i in range(4)}


@pytest.mark.parametrize(
    ("quantization", "precision"),
    [
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["self_attn"]}, "nvfp4"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8-block"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": NARROW | WIDER},
         "nvfp4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4"),
    ],
)  # fmt: skip
def test_weights_of_a_quantised_file_take_the_bytes_that_it_stores(quantization, precision, tmp_path):
    """MXFP4 has 4.25 bits a weight, where NVFP4 has 4.5; modules that stay in bfloat16 have 16."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(WIDE | {"quantization_config": quantization}))
    model = find_model(str(path))
    nbytes = served(model, concurrency=1, precision=precision).memory["weights"]
    assert nbytes == pytest.approx(sum(count(model).by_type.values()), rel=2e-3)
    other = served(model, concurrency=1, precision="bf16").memory["weights"]
    assert other == pytest.approx(2 * count(model).parameters)


def test_weights_outside_experts_multiply_in_the_type_of_the_file(tmp_path):
    """8 bits with one scale a tensor, as the file says, or with scales of blocks, as is usual of mixtures."""
    path, machine = tmp_path / "config.json", umm.machine("b200-8", kernels="trtllm")
    path.write_text(json.dumps(WIDE | {"quantization_config": {"quant_method": "fp8"}}))
    model = find_model(str(path))
    outside = [
        rates_of(x, machine, Deployment(1024, 1024, 1, precision="fp8"), "trtllm").outside
        for x in (model, replace(model, quantization={}))
    ]
    assert outside == ["fp8", "fp8-block"]


def test_ranks_have_the_matrices_that_they_multiply_whole():
    """deepseek-v3's latent vectors, and heads of keys that are fewer than ranks, in bfloat16."""
    model = find_model("deepseek-v3")
    one, eight = (served(model, tp=x, concurrency=1, precision="bf16").memory["weights"] for x in (1, 8))
    latent, norms = 61 * 7168 * (1536 + 512 + 64), 61 * (2 * 7168 + 1536 + 512)
    routers = 58 * (7168 + 1) * 256
    assert eight - one / 8 == pytest.approx(2 * (latent + routers + norms) * 7 / 8, rel=1e-6)
    few = replace(SMALL, layers=(replace(SMALL.layers[0], mixer=replace(SMALL.layers[0].mixer, kv_heads=2)),))
    one, eight = (served(few, tp=x, concurrency=1).memory["weights"] for x in (1, 8))
    assert eight - one / 8 == 2 * (2 * 4096 * 256 * (1 / 2 - 1 / 8) + 2 * 4096 * 7 / 8)


def test_short_prompts_share_a_chunk():
    """64 requests of 8 tokens for 2 answered begin 32 prompts an iteration, which multiply together."""
    sizes = {"input": 8, "output": 2, "concurrency": 64, "chunk": 512}
    together = served(**sizes)
    alone = served(**sizes | {"concurrency": 2})
    assert together.tpot < together.decode + 12 * (alone.mixed - alone.decode)
    assert together.tokens_per_second > 15 * alone.tokens_per_second


def test_a_head_in_8_bits_is_read_and_kept_so_where_the_file_names_it():
    """qwen3-32b: 151,936 rows of 5,120 weights took 2 bytes each, whatever the file says of lm_head."""
    model, named = find_model("qwen3-32b"), {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    layers = {f"model.layers.{i}.mlp.{x}_proj": "FP8" for i in range(64) for x in ("gate", "up", "down")}
    plain, short = (
        replace(
            model, quantization=named | {"quantized_layers": {x: {"quant_algo": y} for x, y in z.items()}}
        )
        for z in (layers, layers | {"lm_head": "FP8"})
    )
    before, after = (served(x, concurrency=1, precision="fp8") for x in (plain, short))
    fewer = 151_936 * 5_120
    assert before.memory["weights"] - after.memory["weights"] == fewer
    assert 0.7 * fewer / 4.8e12 < before.decode - after.decode < 1.5 * fewer / 4.8e12
    same = [served(x, concurrency=1, precision="bf16") for x in (plain, short)]
    assert same[0] == same[1]
    tied = [served(replace(x, tied=True), concurrency=1, precision="fp8") for x in (plain, short)]
    assert tied[0] == tied[1]


def test_few_rows_read_weights_of_4_bits_as_stored_also_where_the_device_has_no_rate_of_them():
    """qwen3-32b, one request, one rank: 32 billion weights of 2, 1 and 0.53 bytes."""
    model = find_model("qwen3-32b")
    bf16, fp8, int4, nvfp4 = (
        served(model, concurrency=1, precision=x).decode for x in ("bf16", "fp8", "int4", "nvfp4")
    )
    assert int4 < fp8 < bf16
    assert nvfp4 == pytest.approx(int4 * 0.5625 / 0.53, rel=0.05)
    assert 31e9 * 0.53 / 4.8e12 < int4 < 0.6 * bf16
    old = umm.machine("a100-8", kernels="vllm")  # without a rate of 8 bits
    assert (
        served(model, old, concurrency=1, precision="fp8").decode < served(model, old, concurrency=1).decode
    )

"""Layers of each kind are simulated by themselves and added up; quantised weights multiply in their type."""

import json

import pytest
from click.testing import CliRunner
from command import times_only
from examples import WHOLE
from model_configs import BASE, CONFIGS, EXPERTS, LATENT, MAMBA

from umm.cli.main import main
from umm.errors import InputError
from umm.program.models import find_model, model_of
from umm.program.models.priced import kinds_priced, weights_priced
from umm.program.presets import chain

SMALL = BASE | {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 6, "vocab_size": 512,
}  # fmt: skip
MIXED = SMALL | {
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256, "first_k_dense_replace": 2,
}  # fmt: skip


def simulated(config, tmp_path, *flags):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    typed = ["simulate", "--model", str(path), "--tokens", "512", "--dtype", "bf16", "--ranks", "2", *flags]
    result = CliRunner().invoke(main, [*typed, "--machine", "h100-8", "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout), result.stderr


def test_kinds_have_their_own_sizes_and_their_count():
    kinds = [(x.chain, x.layers, x.first, x.sizes["ffn"]) for x in kinds_priced(model_of(MIXED, "m"))]
    assert kinds == [("transformer-layer", 2, 0, 512), ("moe-layer", 4, 2, 256)]
    assert [x.layers for x in kinds_priced(model_of(MIXED, "m"), 3)] == [2, 1]
    assert [x.layers for x in kinds_priced(find_model("llama-3-8b"), 40)] == [40]
    with pytest.raises(InputError, match="m has 6 layers of 2 kinds; give --layers up to that"):
        kinds_priced(model_of(MIXED, "m"), 7)


def test_windows_and_chunks_set_kinds_apart():
    assert [x.sizes.get("window") for x in kinds_priced(find_model("gpt-oss-120b"))] == [128, None]
    assert [x.sizes.get("chunk") for x in kinds_priced(find_model("llama-4-scout"))] == [8192, None]


def test_layers_that_share_a_choice_of_keys_attend_to_no_more_of_them():
    """GLM-5.2: every fourth layer has an indexer; the others took the price of attention to all keys."""
    config = BASE | LATENT | {"index_n_heads": 3, "index_head_dim": 2, "index_topk": 64,
                              "indexer_types": ["full", "shared", "shared", "full"]}  # fmt: skip
    model = model_of(config, "m")
    assert {x.sizes["top_keys"] for x in kinds_priced(model)} == {64}
    assert [x.cache for x in model.layers] == [7, 5, 5, 7]
    assert "indexer_types" in model.not_modelled


def test_chunks_see_themselves_alone_and_a_decoded_token_those_of_its_own():
    """Of 64 tokens in 4 chunks of 16: 4 · 136 pairs a head; a cache of 40 has 8 of the third chunk."""
    sizes = {"hidden": 8, "heads": 1, "chunk": 16}
    outline = chain("attention", tokens=64, **sizes)
    weights = 2 * 4 * 8 * 8 * 64
    assert outline.laid_out("data", 1).flop - weights == 4 * 8 * 4 * (16 * 17 // 2)
    decoded = chain("attention", decode=True, batch=2, context=40, **sizes)
    assert {x.name: x.rows for x in decoded.tensors}["K.cache"] == 2 * 8
    with pytest.raises(InputError, match=r"40 tokens are no multiple of the chunk of 16 .* choose 32 or 48"):
        chain("attention", tokens=40, **sizes)


def test_blocks_of_a_hybrid_are_chains_of_one_part_each():
    """Mamba-2, attention and MLP blocks alone: 8·(2·16 + 2·6 + 4) + 16·8 weights of a Mamba block."""
    config = BASE | MAMBA | {"hybrid_override_pattern": "M*-M", "model_type": "nemotron_h"}
    kinds = kinds_priced(model_of(config, "m"))
    assert [(x.kind, x.layers) for x in kinds] == [("mamba-2", 2), ("attention", 1), ("mlp", 1)]
    for kind in kinds:
        outline = chain(kind.chain, model=model_of(config, "m"), layer=kind.first, tokens=4, backward=True)
        written = {name for x in outline.statements for name in x.outs}
        assert {f"d{x}" for x in outline.weights} | {"dX", "Y"} <= written
    flop = chain("transformer-layer", model=model_of(config, "m"), layer=0, tokens=4).laid_out("data", 1).flop
    assert flop == 2 * 4 * (8 * (2 * 16 + 2 * 6 + 4) + 16 * 8) + 4 * 3 * 16 * 4


def test_results_that_are_normalised_and_an_mlp_beside_experts_are_priced():
    """Gemma 3 normalises each part's result; Gemma 4 adds an MLP of 12 columns to experts of 4."""
    (kind, *_) = kinds_priced(find_model("gemma-3-27b"))
    outline = chain(kind.chain, model=find_model("gemma-3-27b"), layer=kind.first, tokens=4)
    assert sum(x.kind == "map" and x.fn == "rms_norm" for x in outline.statements) == 4
    model = model_of(BASE | EXPERTS | {"enable_moe_block": True}, "m")
    (kind,) = kinds_priced(model)
    assert (kind.chain, kind.sizes["shared"]) == ("moe-layer", 3)
    assert "enable_moe_block" in model.not_modelled
    outline = chain(kind.chain, model=model, tokens=4)
    assert {x.name: x.cols for x in outline.tensors}["Ws1"] == 12
    assert "side by side" in model_of(BASE | {"model_type": "cohere"}, "m").not_modelled["model_type"]


def test_values_of_full_attention_that_are_keys_have_no_weight_of_their_own():
    """Gemma 4: sliding layers multiply values, those of full attention take the keys' product."""
    kinds = {"attention_k_eq_v": True, "layer_types": ["sliding_attention", "full_attention"] * 2}
    model = model_of(BASE | kinds | {"model_type": "gemma4", "sliding_window": 8, "use_qk_norm": True}, "m")
    outlines = [chain(x.chain, model=model, layer=x.first, tokens=4) for x in kinds_priced(model)]
    assert ["Wv" in x.weights for x in outlines] == [True, False]


def test_layers_of_mamba_1_are_simulated(tmp_path):
    """Falcon-Mamba's alone, Jamba's beside attention and experts; a decoded token reads a state a column."""
    alone = {"model_type": "falcon_mamba", "hidden_size": 256, "num_hidden_layers": 4, "state_size": 16,
             "intermediate_size": 512, "time_step_rank": 16, "vocab_size": 512, "conv_kernel": 4}  # fmt: skip
    jamba = MIXED | {
        "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 16, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_dt_rank": 16, "first_k_dense_replace": 0,
    }  # fmt: skip
    for config, kinds in ((alone, ["mamba-1"]), (jamba, ["mamba-1 + experts", "attention + experts"])):
        assert [x.kind for x in kinds_priced(model_of(config, "m"))] == kinds
        result, output = simulated(config, tmp_path, "--layers", str(config["num_hidden_layers"]))
        assert result["predicted"]["makespan_s"] > 0
        assert ("mamba_dt_rank" in output) == (config is jamba)
        assert "assumed: seconds of scans" in output
    decoded = chain("transformer-layer", model=model_of(alone, "m"), decode=True, batch=2, context=9)
    assert {x.name: (x.rows, x.cols) for x in decoded.tensors}["St.cache"] == (2 * 16, 512)


def test_layers_of_a_hybrid_add_up_beside_experts(tmp_path):
    """Mamba-2, experts, attention and an MLP alone; the head multiplies one token of each of 4 sequences."""
    config = SMALL | MAMBA | {
        "hybrid_override_pattern": "ME*-", "num_hidden_layers": 4, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 64, "mamba_head_dim": 64,
    }  # fmt: skip
    flags = ("--layers", "4", "--layouts", "ep2", "--chain", "moe-layer", "--sequences", "4")
    result, _ = simulated(config, tmp_path, *flags)
    assert [x["layers"] for x in result["predicted"]["kinds"]] == [1, 1, 1, 1]
    every, _ = simulated(config | {"vocab_size": 2**17}, tmp_path, *flags[:-1], "512")
    few, _ = simulated(config | {"vocab_size": 2**17}, tmp_path, *flags)
    assert few["predicted"]["ends"]["head"] < every["predicted"]["ends"]["head"]


def test_layers_without_attention_have_none_to_compute_again(tmp_path):
    """Mamba-2 and attention blocks: the second kind alone takes longer by --recompute attention."""
    config = SMALL | MAMBA | {"hybrid_override_pattern": "M*M*", "num_hidden_layers": 4, "mamba_head_dim": 64}
    flags = ("--layers", "4", "--layouts", "data", "--backward", "--recompute")
    (kept, _), (again, _) = (simulated(config, tmp_path, *flags, x) for x in ("none", "attention"))
    assert again["predicted"]["recompute"] == "attention"
    took = [[x["layer_s"] for x in y["predicted"]["kinds"]] for y in (kept, again)]
    assert took[0][0] == took[1][0]
    assert took[0][1] < took[1][1]


def test_linear_attention_values_of_another_width_and_short_tokens_of_experts_are_simulated(tmp_path):
    for config in (
        CONFIGS["qwen3-next"][0], CONFIGS["values of another width"][0],
        BASE | EXPERTS | {"moe_latent_size": 4}, BASE | EXPERTS | {"model_type": "nemotron"},
    ):  # fmt: skip
        for kind in kinds_priced(model_of(config, "m")):
            outline = chain(kind.chain, model=model_of(config, "m"), layer=kind.first, tokens=4)
            assert outline.laid_out(next(iter(outline.layouts)), 2).flop > 0


def test_a_window_takes_less_time_and_a_decoded_token_reads_no_more_than_it():
    """Of 4,096 tokens each sees 64 at most: 260,000 pairs a head in place of 8.4 million."""
    sizes = {"hidden": 512, "heads": 4}
    full, narrow = (chain("attention", tokens=4096, window=x, **sizes) for x in (0, 64))
    flop = [x.laid_out("data", 1).flop for x in (full, narrow)]
    weights = 2 * 4 * 512 * 512 * 4096
    assert [x - weights for x in flop] == [4 * 512 * 4096 * 4097 // 2, 4 * 512 * (4096 * 64 - 64 * 63 // 2)]
    decoded = chain("attention", decode=True, batch=2, context=1000, window=64, **sizes)
    assert {x.name: x.rows for x in decoded.tensors}["K.cache"] == 2 * 63


def test_a_model_of_two_kinds_takes_what_its_kinds_take(tmp_path):
    """Two dense layers and four with experts; embedding and head come once."""
    result, _ = simulated(MIXED, tmp_path, "--chain", "moe-layer", "--layers", "6", "--layouts", "ep2")
    predicted = result["predicted"]
    dense, sparse = predicted["kinds"]
    assert (dense["layers"], sparse["layers"]) == (2, 4)
    full = dense["makespan_s"] + sparse["makespan_s"] + sum(predicted["ends"].values())
    assert predicted["makespan_s"] == pytest.approx(full)
    alike = SMALL | {"num_hidden_layers": 2}
    alone, _ = simulated(alike, tmp_path, "--layers", "2", "--layouts", "context")
    took = alone["predicted"]["makespan_s"] - sum(alone["predicted"]["ends"].values())
    assert dense["makespan_s"] == pytest.approx(took)


def test_an_fp8_file_differs_from_its_twin_and_says_why(tmp_path):
    quantised = SMALL | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    plain, silent = simulated(SMALL, tmp_path, "--layers", "6")
    eight, result = simulated(quantised, tmp_path, "--layers", "6")
    assert "quantization_config" not in silent
    assert "weights are float8_e4m3:128 (attention and mlp) by quantization_config" in result
    weights = [x["predicted"]["held_bytes"]["weights"] for x in (plain, eight)]
    assert weights[1] == pytest.approx(weights[0] * (1 + 4 / 128**2) / 2, rel=0.03)
    assert eight["predicted"]["makespan_s"] != plain["predicted"]["makespan_s"]
    again, _ = simulated(quantised, tmp_path, "--layers", "6", "--weights", "bf16")
    assert again["predicted"]["makespan_s"] == plain["predicted"]["makespan_s"]


def test_weights_of_four_bits_are_counted_and_read_in_their_bits(tmp_path):
    how = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]}
    config = SMALL | {"quantization_config": how}
    weights = weights_priced(model_of(config, "m"), 0)
    assert (weights.types, weights.stored) == ({"mlp": "fp4"}, 1.0)
    result, output = simulated(config, tmp_path, "--layers", "6")
    assert (
        "nvfp4 (mlp) by quantization_config, nvfp4 multiplied in 4 bits where the machine has a rate"
        in output
    )
    attention, mlp = 4 * 256 * 256, 3 * 256 * 512
    per_layer = 2 * (attention + 2 * 256) + 4.5 / 8 * mlp  # with the scales of norms, over 2 ranks
    assert result["predicted"]["held_bytes"]["weights"] == pytest.approx(6 * per_layer / 2, rel=0.01)


WIDE = SMALL | {"hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
                "num_key_value_heads": 8}  # fmt: skip


@pytest.mark.parametrize(
    ("how", "name", "bits"),
    [
        ({"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4", 4.625),
        ({"quant_method": "awq", "bits": 8, "group_size": -1}, "int8", 8),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
    ],
)
@times_only()
def test_few_bits_make_decoding_faster_and_a_prompt_about_as_fast(tmp_path, how, name, bits):
    """A layer of 1.6 GiB in bfloat16 takes as long as its bytes; 4,096 tokens multiply at bfloat16's rate."""
    path, took = tmp_path / "config.json", dict[str, list[float]]()
    for asked in (["--decode", "--batch", "8", "--context", "1024"], ["--tokens", "4096"]):
        for config in (WIDE, WIDE | {"quantization_config": how}):
            path.write_text(json.dumps(config))
            typed = ["simulate", "--model", str(path), "--dtype", "bf16", "--ranks", "2", *asked]
            result = CliRunner().invoke(main, [*typed, "--layers", "6", "--json"])
            assert result.exit_code == 0, result.stderr
            assert (f"{name} (attention and mlp)" in result.stderr) == ("quantization_config" in config)
            predicted = json.loads(result.stdout)["predicted"]
            took.setdefault(asked[0], []).append(predicted["makespan_s"])
            took.setdefault("weights", []).append(predicted["held_bytes"]["weights"])
    assert took["--decode"][1] < (0.4 + bits / 32) * took["--decode"][0]
    assert took["--tokens"][1] == pytest.approx(took["--tokens"][0], rel=0.03)
    assert took["weights"][1] == pytest.approx(took["weights"][0] * bits / 16, rel=0.001)


@pytest.mark.parametrize(
    ("chain", "how", "named", "share"),
    [
        ("mlp", {"quant_method": "gptq", "bits": 4, "group_size": 32}, "int4 (mlp)", 4.125 / 16),
        ("gated-mlp", {"quant_method": "fp8", "weight_block_size": [128, 128]}, "float8_e4m3:128 (mlp)", 0.5),
        ("attention", {"quant_method": "awq", "bits": 8, "group_size": -1}, "int8 (attention)", 0.5),
        ("attention", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]}, "", 1),
        ("mlp", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["*self_attn*"]},
         "nvfp4 (mlp)", 4.5 / 16),
        ("head", {"quant_method": "gptq", "bits": 4, "group_size": 32}, "", 1),
    ],
)  # fmt: skip
@times_only()
def test_a_part_of_a_layer_has_the_types_of_its_weights_in_the_file(tmp_path, chain, how, named, share):
    """Of 64 tokens nearly all of the memory are weights, and nearly all of the time is to read them."""
    path, results = tmp_path / "config.json", []
    for config in (WIDE, WIDE | {"quantization_config": how}):
        path.write_text(json.dumps(config))
        typed = ["simulate", "--model", str(path), "--dtype", "bf16", "--ranks", "2", "--tokens", "64"]
        result = CliRunner().invoke(main, [*typed, "--chain", chain, "--json"])
        assert result.exit_code == 0, result.stderr
        results.append(json.loads(result.stdout)["predicted"])
        output = result.stderr
    wide, few = results
    assert f"weights are {named} by quantization_config" in output if named else "weights" not in output
    assert few["memory_bytes"] == pytest.approx(share * wide["memory_bytes"], rel=0.1)
    times = few["makespan_s"], wide["makespan_s"]
    assert times[0] < times[1] if named else times[0] == times[1]


@times_only()
def test_search_and_peers_price_and_hold_weights_of_four_bits(tmp_path):
    """Peers of a whole layer look for the best of 118,098 layouts, of an MLP of a few."""
    path, results = tmp_path / "config.json", []
    how = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    decoded = ["--decode", "--batch", "8", "--context", "64"]
    asked = ["--dtype", "bf16", "--ranks", "2", "--layers", "2", "--json"]
    for config in (WIDE, WIDE | {"quantization_config": how}):
        path.write_text(json.dumps(config))
        for command in (
            ["search", "--choices", "row,row@p", *decoded],
            ["peers", *(decoded if WHOLE else ["--chain", "mlp", "--tokens", "8"])],
        ):
            result = CliRunner().invoke(main, [*command, "--model", str(path), *asked])
            assert result.exit_code == 0, result.stderr
            results.append(json.loads(result.stdout))
    (wide, wide_peers), (few, few_peers) = results[:2], results[2:]
    assert few["proven"]
    assert few["top"][0]["makespan_s"] < 0.6 * wide["top"][0]["makespan_s"]
    assert few["top"][0]["memory_bytes"] < 0.4 * wide["top"][0]["memory_bytes"]
    assert few_peers["rows"][0]["makespan_s"] < 0.6 * wide_peers["rows"][0]["makespan_s"]


def test_a_part_has_the_type_of_most_of_its_weights(tmp_path):
    """Attention in 8 bits beside an MLP in 4: each multiplies in its own."""
    layers = {f"model.layers.{i}.self_attn.{x}_proj": {"quant_algo": "FP8"} for i in range(6) for x in "qkvo"}
    layers |= {
        f"model.layers.{i}.mlp.{x}_proj": {"quant_algo": "NVFP4"}
        for i in range(6)
        for x in ("gate", "up", "down")
    }
    how = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    model = model_of(SMALL | {"quantization_config": how}, "m")
    priced = weights_priced(model, 0)
    assert priced.types == {"attention": "fp8", "mlp": "fp4"}
    outline = chain("transformer-layer", model=model, tokens=8, dtype="bfloat16", weights=priced.types)
    types = {x.name: (x.dtype, x.stored) for x in outline.tensors if x.name in outline.weights}
    assert types["Wq"] == ("float8_e4m3:128", "")
    assert types["W1"] == ("bfloat16", "float4_e2m1")
    assert types["g1"] == ("bfloat16", "")


def test_what_a_file_leaves_out_of_the_price_is_in_the_json_and_on_stderr(tmp_path):
    result, output = simulated(SMALL | {"new_switch": True, "attn_logit_softcapping": 50.0}, tmp_path)
    assert result["not_modelled"] == ["new_switch", "attn_logit_softcapping"]
    remarks = "new_switch (not understood), attn_logit_softcapping (not priced)"
    assert f"not modelled: {remarks}" in output


def test_keys_to_ignore_without_a_model_are_refused():
    args = ["simulate", "--chain", "mlp", "--ignore", "new_switch", "--tokens", "64"]
    result = CliRunner().invoke(main, args)
    assert result.exit_code == 2
    assert result.stderr == "error: --ignore is of --model's config.json; name it, or leave --ignore out\n"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            BASE | EXPERTS | {"enable_moe_block": True, "intermediate_size": 14},
            "shared experts of 14 columns are no multiple of 4.*enable_moe_block",
        ),
        (
            BASE | EXPERTS | {"shared_expert_intermediate_size": 6},
            "shared experts of 6 columns are no multiple of 4.*shared_expert_intermediate_size",
        ),
    ],
)
def test_layers_that_no_chain_computes_are_refused_by_their_key(config, why):
    with pytest.raises(InputError, match=why):
        kinds_priced(model_of(config, "m"))


def test_only_parts_that_are_quantised_multiply_in_few_bits():
    outline = chain("transformer-layer", hidden=16, ffn=32, heads=2, tokens=8, dtype="bfloat16",
                    weights={"mlp": "fp8"})  # fmt: skip
    few = {x.name for x in outline.tensors if x.dtype != "bfloat16" and x.role == "input"}
    assert few == {"W1", "W2", "W3"}


def test_a_head_multiplies_in_the_type_that_its_file_names(tmp_path):
    """A head of 256 columns and 262,144 tokens: 134 MB of bfloat16, 67 of fp8 and its scales."""
    wide = SMALL | {"vocab_size": 2**18, "tie_word_embeddings": False}
    config = tmp_path / "config.json"

    def asked(command, chosen, *flags):
        config.write_text(json.dumps(chosen))
        typed = [command, "--model", str(config), "--tokens", "64", "--dtype", "bf16", "--ranks", "2", *flags]
        result = CliRunner().invoke(main, [*typed, "--machine", "h100-8", "--json"])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout), result.stderr

    named = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}
    quantised = wide | {
        "quantization_config": named | {"quantized_layers": {"lm_head": {"quant_algo": "FP8"}}}
    }
    layers = ("--layers", "6")
    alone = ("--chain", "head", "--layouts", "sequence")
    plain, short = (asked("simulate", x, *layers) for x in (wide, quantised))
    ends = [x[0]["predicted"]["ends"] for x in (plain, short)]
    assert 0.4 < ends[1]["head"] / ends[0]["head"] < 0.9
    assert ends[1]["embedding"] == ends[0]["embedding"]
    assert "lm_head is priced as fp8" in short[1]
    assert "lm_head" not in plain[1]
    typed = asked("simulate", quantised, *layers, "--weights", "bf16")
    assert typed[0]["predicted"]["ends"] == ends[0]
    assert "lm_head" not in typed[1]
    times = [asked("simulate", x, *alone)[0]["predicted"]["makespan_s"] for x in (wide, quantised)]
    assert times[1] < 0.9 * times[0]
    rows = [asked("peers", x, *layers)[0]["rows"] for x in (wide, quantised)]
    best = [min(y["makespan_s"] for y in x) for x in rows]
    assert best[0] - best[1] == pytest.approx(ends[0]["head"] - ends[1]["head"], rel=0.5)
    bests = [asked("search", x, "--chain", "head")[0]["top"][0]["makespan_s"] for x in (wide, quantised)]
    assert bests[1] < 0.9 * bests[0]

"""Weights are stored in the types that quantization_config gives them."""

import pytest
from model_configs import BASE, EXPERTS

from umm.errors import InputError
from umm.program.models import model_of
from umm.program.models.count import count


def bytes_by_type(quantization, config=BASE, **more):
    text = {**config, **more, "quantization_config": quantization}
    return count(model_of(text, "config.json")).by_type


MATRICES = 4 * (8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 12)
OTHERS = 2 * 32 * 8 + 9 * 8


def test_eight_bits_halve_the_bytes_of_matrices_and_of_nothing_else():
    assert bytes_by_type({}) == {"bfloat16": 2 * (MATRICES + OTHERS)}
    assert bytes_by_type({"quant_method": "fp8"}) == {"float8_e4m3": MATRICES, "bfloat16": 2 * OTHERS}
    blocks = bytes_by_type({"quant_method": "fp8", "weight_block_size": [128, 128]})
    assert blocks["float8_e4m3:128"] == round(MATRICES * (1 + 4 / 128**2))


@pytest.mark.parametrize(
    ("how", "dtype", "bits"),
    [
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4", 4.5),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4", 4 + 20 / 128),
        ({"quant_method": "awq", "bits": 8, "group_size": -1}, "int8", 8),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "mxfp4", 4.25),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", 8),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4", 4.5),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True},
            "int4",
            4 + 8 / 64 + 32 / 256 / 64,
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {
                    "group_0": {
                        "targets": ["Linear"],
                        "weights": {"num_bits": 4, "type": "int", "group_size": 32},
                    }
                },
                "ignore": ["lm_head"],
            },
            "int4",
            4.5,
        ),
    ],
)
def test_bits_count_with_their_scales(how, dtype, bits):
    assert bytes_by_type(how)[dtype] == round(MATRICES * bits / 8)


@pytest.mark.parametrize(
    "stays",
    [
        [
            "model.layers.0.self_attn*",
            "model.layers.1.self_attn*",
            "model.layers.2.*attn*",
            "*.3.self_attn.*",
        ],
        ["re:.*self_attn.*"],
        ["self_attn"],
        [f"model.layers.{i}.self_attn.{x}_proj" for i in range(4) for x in "qkvo"],
        ["model.layers.*.self_attn"],
    ],
)
def test_modules_that_a_list_names_stay_as_they_are(stays):
    stored = bytes_by_type({"quant_method": "modelopt", "quant_algo": "FP8", "ignore": stays})
    assert stored["float8_e4m3"] == 4 * 3 * 8 * 12


def test_modules_that_bitsandbytes_skips_stay_as_they_are():
    skips = {"load_in_8bit": True, "llm_int8_skip_modules": ["lm_head", "model.layers.0.mlp", "self_attn"]}
    assert bytes_by_type({"quant_method": "bitsandbytes"} | skips)["int8"] == 3 * 3 * 8 * 12


def test_experts_beside_an_mlp_are_no_part_of_it():
    """Gemma 4 in NVFP4 leaves its MLPs out: layers.0.mlp*, and has experts at layers.0.experts."""
    stays = [f"model.language_model.layers.{i}.{x}*" for i in range(4) for x in ("mlp", "self_attn")]
    config = BASE | EXPERTS | {"enable_moe_block": True, "model_type": "gemma4"}
    stored = bytes_by_type({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": stays}, config)
    assert stored["nvfp4"] == 4 * 6 * 3 * 8 * 4 * 4.5 / 8


def test_layers_named_one_by_one_have_their_own_types():
    layers = {
        "model.layers.0.mlp.gate_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
        "model.layers.1.self_attn.q_proj": {"quant_algo": "FP8"},
        "lm_head": {"quant_algo": "FP8"},
    }
    how = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    stored = bytes_by_type(how)
    assert (stored["nvfp4"], stored["float8_e4m3"]) == (8 * 12 * 9 / 16, 8 * 8 + 8 * 32)


def test_mxfp4_is_of_experts_alone():
    stored = bytes_by_type({"quant_method": "mxfp4"}, BASE | EXPERTS)
    assert stored["mxfp4"] == 4 * 6 * 3 * 8 * 4 * 4.25 / 8


def test_an_unknown_method_is_named_and_a_pattern_that_may_take_long_is_refused():
    text = BASE | {"quantization_config": {"quant_method": "new"}}
    assert "quantization_config" in model_of(text, "config.json").not_modelled
    with pytest.raises(InputError, match="not a simple pattern"):
        bytes_by_type({"quant_method": "fp8", "ignore": ["re:(a+)+$"]})


def test_a_cache_of_eight_bits_halves_what_a_token_leaves():
    scheme = {
        "quant_method": "modelopt",
        "quant_algo": "FP8",
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    }
    full, half = (count(model_of(BASE | {"quantization_config": x}, "config.json")) for x in ({}, scheme))
    assert (full.cache_bytes_per_token, half.cache_bytes_per_token) == (4 * 2 * 4 * 2, 4 * 2 * 4)
    asked = count(model_of(BASE, "config.json"), cache="fp8")
    assert (asked.cache_type, asked.cache_bytes_per_token) == ("fp8", half.cache_bytes_per_token)

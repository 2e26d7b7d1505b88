"""Norms of queries and keys, and biases: exact under every scheme, with gradients, and their cost."""

import numpy as np
import pytest
from performed import assert_performed, result_slope

import umm
from umm.errors import InputError
from umm.plans.lower import lower
from umm.program.systems import in_scheme

SIZES = {"hidden": 16, "ffn": 8, "heads": 4, "kv_heads": 2, "dtype": "float64"}
DECODED, PROMPTS = {"decode": True, "batch": 4, "context": 6}, {"tokens": 12, "sequences": 2}
BIASES = {"qkv_bias": 1, "out_bias": 1, "mlp_bias": 1}
CASES = [{"qk_norm": 1} | BIASES, {"qk_norm": 2, "qkv_bias": 1}, {"qk_norm": 1, "k_eq_v": 1, "qkv_bias": 1}]


@pytest.mark.parametrize("length", [DECODED, PROMPTS, PROMPTS | {"backward": True}])
@pytest.mark.parametrize("more", CASES)
@pytest.mark.parametrize("scheme", ["megatron", "sequence", "data"])
def test_norms_and_biases_are_exact_by_every_scheme(scheme, more, length):
    assert_performed(umm.chain("transformer-layer", **SIZES, **more, **length).laid_out(scheme, 4), 1)


@pytest.mark.parametrize("layout", ["cyclic:2x3:1x3", "edges:0-12x0-1-2-16:1x3"])
def test_a_scales_gradient_is_exact_where_tiles_cut_heads(layout):
    outline = umm.chain("transformer-layer", **SIZES, qk_norm=1, **PROMPTS, backward=True)
    texts = {x.name: layout if x.name == "dQ" else "row" for x in outline.tensors}
    assert_performed(outline.laid_out(texts, 3), 1)


@pytest.mark.parametrize("more", CASES)
def test_their_gradients_are_slopes_of_the_result(more):
    """dY·Y by a number of each input, scales and biases among them, by differences of 1e-6."""
    outline = umm.chain("transformer-layer", **SIZES, **more, backward=True, tokens=6)
    chain, rng = outline.laid_out("data", 1), np.random.default_rng(0)
    x = {y.name: rng.uniform(-1, 1, y.shape) for y in chain.tensors if y.is_input}
    made = chain.reference(x)
    assert {"gq", "gk", "bq", "bk"} <= {*x}
    assert ("bv" in x) == ("Wv" in x) == ("k_eq_v" not in more)
    for name in x.keys() - {"dY"}:
        at = tuple(rng.integers(0, size) for size in x[name].shape)
        expected = result_slope(chain, x, name, at)
        assert made[f"d{name}"][at] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_a_norm_shares_a_pass_with_positions_and_a_bias_the_kernel_that_multiplies():
    """Positions are turned in the norm's pass, so the scales' bytes alone come on top, as those of biases."""
    machine, seconds = umm.machine("h200-8"), []
    sizes = {"hidden": 8192, "heads": 64, "kv_heads": 8, "tokens": 8192, "dtype": "bfloat16"}
    for more in ({}, {"qk_norm": 1}, {"qkv_bias": 1, "out_bias": 1}):
        chain = umm.chain("attention", **sizes, **more).laid_out("data", 1)
        seconds.append(umm.run(lower(chain, machine)).makespan_s)
    plain, normed, biased = seconds
    assert 0 < normed - plain < machine.launch_s
    assert 0 < biased - plain < machine.launch_s


def test_values_that_are_keys_take_no_product_of_their_own():
    """Gemma 4's full attention: 16 heads of 512 columns, keys and values of 2."""
    sizes = {"hidden": 2816, "heads": 16, "kv_heads": 2, "head_dim": 512, "tokens": 64, "qk_norm": 1}
    apart, shared = (umm.chain("attention", **sizes, **x).laid_out("data", 1) for x in ({}, {"k_eq_v": 1}))
    assert apart.flop - shared.flop == 2 * 64 * 2816 * 2 * 512
    x = {y.name: np.ones(y.shape) for y in shared.tensors if y.is_input}
    np.testing.assert_array_equal(shared.reference(x)["Y"], apart.reference(x | {"Wv": x["Wk"]})["Y"])
    with pytest.raises(InputError, match="need qk_norm and no value_dim"):
        umm.chain("attention", hidden=8, heads=2, tokens=4, k_eq_v=1)


def test_a_models_file_says_which_norms_and_biases_its_layers_have():
    names = {
        model: {x.fn for x in umm.chain("attention", model=model, tokens=4).statements if x.kind == "map"}
        for model in ("qwen3-8b", "qwen-2.5-72b", "minimax-m2", "llama-3-8b")
    }
    assert names["llama-3-8b"] == {"rope"}
    assert names["qwen3-8b"] == {"rope", "head_rms_norm"}
    assert names["qwen-2.5-72b"] == {"rope", "bias"}
    assert names["minimax-m2"] == {"rope", "row_sum_squares", "rms_rstd", "mul_rows", "mul_cols"}


@pytest.mark.parametrize("scheme", ["ep4", "tensor", "whole"])
@pytest.mark.parametrize("length", [DECODED, PROMPTS | {"backward": True}])
def test_wide_norms_are_exact_beside_experts_and_each_layer_keeps_their_statistics(scheme, length):
    """MiniMax-M2 has both."""
    sizes = SIZES | {"experts": 4, "top_k": 2, "qk_norm": 2}
    outline = umm.chain("moe-layer", **sizes, **length)
    assert {"Q.rstd", "K.rstd"} <= {*outline.kept} or "backward" not in length
    changed = in_scheme(scheme, outline, 4)
    assert_performed(changed.laid_out(changed.layouts_of(scheme, 4), 4), 1)

"""Caches of keys and values in 8 bits: exact under every scheme, half the bytes, written by prompts."""

import json

import pytest
from click.testing import CliRunner
from model_configs import BASE
from performed import assert_performed

import umm
from umm.cli.main import main
from umm.errors import InputError, ProblemError
from umm.plans.lower import lower
from umm.program import Outline, Shape
from umm.program.statements.attention import Attention

LATENT = {"kv_rank": 5, "rope_dim": 2, "q_rank": 4, "head_dim": 3}
INDEXED = {"index_heads": 2, "index_dim": 3, "top_keys": 4}


@pytest.mark.parametrize(
    "length", [{"decode": True, "batch": 4, "context": 6}, {"tokens": 12, "sequences": 2}]
)
@pytest.mark.parametrize("more", [{"kv_heads": 2}, LATENT, INDEXED])
@pytest.mark.parametrize("scheme", ["megatron", "sequence", "data"])
def test_attention_with_a_cache_of_8_bits_is_exact_by_every_scheme(scheme, more, length):
    outline = umm.chain("attention", hidden=16, heads=4, dtype="float64", cache="fp8", **more, **length)
    cached = {x.name for x in outline.tensors if x.dtype == "float8_e4m3:128"}
    assert cached == {x.name for x in outline.tensors if x.name.endswith(".cache")}
    assert cached >= {"Nk.cache", "Kr.cache"} if more == LATENT else {"K.cache", "V.cache"}
    assert_performed(outline.laid_out(scheme, 4), 1)


def test_a_decoded_token_reads_half_as_many_bytes_and_the_cache_takes_half_the_memory():
    """64 sequences of 8,192 tokens on one H100: 2 GiB of keys and values in 16 bits, 1 GiB in 8."""
    sizes = {"hidden": 1024, "heads": 8, "kv_heads": 8, "decode": True, "batch": 64, "context": 2**13}
    traces = [
        umm.run(
            lower(umm.chain("attention", dtype="bfloat16", cache=x, **sizes).laid_out("data", 1), "h100-8")
        )
        for x in ("", "fp8")
    ]
    nbytes = 2 * 64 * 2**13 * 1024  # of keys and values, an element a byte
    memory = umm.machine("h100-8").pass_bandwidth
    assert traces[0].memory_bytes - traces[1].memory_bytes == nbytes
    assert traces[0].makespan_s - traces[1].makespan_s == pytest.approx(nbytes / memory, rel=0.01)


def test_prompts_write_their_keys_and_values_once_in_one_kernel():
    """4,096 tokens of 1,024 columns twice: 3 bytes an element move for the cache, 1 stays."""
    sizes = {"hidden": 1024, "heads": 8, "tokens": 4096, "dtype": "bfloat16"}
    plain, written = (
        umm.run(lower(umm.chain("attention", cache=x, **sizes).laid_out("data", 1), "h100-8"))
        for x in ("", "fp8")
    )
    machine, elements = umm.machine("h100-8"), 2 * 4096 * 1024
    assert written.memory_bytes - plain.memory_bytes == elements
    took = machine.launch_s + 3 * elements / machine.pass_bandwidth
    assert written.makespan_s - plain.makespan_s == pytest.approx(took, rel=1e-6)


def simulated(tmp_path, config, *flags):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    typed = ["simulate", "--model", str(path), "--dtype", "bf16", "--ranks", "2", "--decode", "--batch", "8"]
    return CliRunner().invoke(main, [*typed, "--context", "1K", "--machine", "h100-8", "--json", *flags])


SMALL = BASE | {
    "hidden_size": 256, "intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 4,
    "num_hidden_layers": 6, "vocab_size": 512, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 256, "first_k_dense_replace": 2,
}  # fmt: skip


def test_the_caches_of_layers_of_all_kinds_add_up_in_memory(tmp_path):
    """2 dense layers and 4 with experts: 8 · 1,024 keys and values of 256 columns each, on 2 ranks."""
    nbytes = []
    for flags in ((), ("--cache", "fp8")):
        result = simulated(tmp_path, SMALL, "--layers", "6", *flags)
        assert result.exit_code == 0, result.stderr
        nbytes.append(json.loads(result.stdout)["predicted"]["held_bytes"]["cache"])
    assert nbytes == [6 * 2 * 2 * 8 * 1024 * 256 // 2, 6 * 2 * 8 * 1024 * 256 // 2]


def test_a_file_that_says_so_has_a_cache_of_8_bits(tmp_path):
    scheme = {"quant_method": "compressed-tensors", "config_groups": {}, "kv_cache_scheme": {"num_bits": 8}}
    result = simulated(tmp_path, SMALL | {"quantization_config": scheme}, "--layers", "6")
    assert "the cache is fp8 by quantization_config; --cache takes another type" in result.stderr
    assert json.loads(result.stdout)["predicted"]["held_bytes"]["cache"] == 6 * 2 * 8 * 1024 * 256 // 2
    result = simulated(
        tmp_path, SMALL | {"quantization_config": scheme}, "--chain", "gated-mlp", "--context", "0"
    )
    assert "the cache is" not in result.stderr  # an MLP has none
    assert result.exit_code == 0, result.stderr


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (
            {"cache": "int4"},
            "a cache of int4 is not possible; choose fp8, e5m2 or the chain's own type float32",
        ),
        ({"cache": "fp8", "backward": True}, "chain attention has gradients: leave out --cache"),
    ],
)
def test_caches_that_cannot_be_are_refused(asked, why):
    with pytest.raises(InputError, match=why):
        umm.chain("attention", hidden=16, heads=4, tokens=8, **asked)
    with pytest.raises(InputError, match="chain mlp has no fused attention: leave out --cache"):
        umm.chain("mlp", hidden=16, ffn=16, tokens=8, cache="fp8")
    stored = "attention-stored"
    with pytest.raises(InputError, match=f"chain {stored} has no fused attention: leave out --cache"):
        umm.chain(stored, hidden=16, heads=4, tokens=8, cache="fp8")
    with pytest.raises(InputError, match=f"chain {stored} stores its scores and caches no keys"):
        umm.chain(stored, hidden=16, heads=4, decode=True, batch=4, context=6)


def test_keys_and_values_of_a_cache_have_one_type():
    types = {"Q": "float64", "K": "float64", "V": "float64", "Kc": "float8_e4m3", "Vc": "float64"}
    tensors = [Shape(x, 4, 8, dtype, "input") for x, dtype in types.items()]
    tensors += [Shape("O", 4, 8, "float64", "output"), Shape("L", 4, 2, "float64", "output")]
    one = Attention("O", "Q", "K", "V", "L", head=4, cache=("Kc", "Vc"))
    with pytest.raises(ProblemError, match="Kc and Vc differ in type; make them one type"):
        Outline("attention", tuple(tensors), (one,))

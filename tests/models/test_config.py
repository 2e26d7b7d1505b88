"""Every key of a config.json is read, known to change nothing, named, or refuses the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_configs import BASE, CONFIGS, DELTA, EXPERTS, LATENT, MAMBA

from umm.errors import InputError
from umm.program.models import PUBLIC, find_model, model_of
from umm.program.models.count import count


def model(config, **more):
    return model_of({**config, **more}, "config.json")


@pytest.mark.parametrize("name", CONFIGS)
def test_parameters_of_each_family_are_those_counted_by_hand(name):
    config, parameters = CONFIGS[name]
    assert count(model(config)).parameters == parameters


PUBLISHED = {  # billions, from the models' cards and reports; layers of multi-token prediction left out
    "llama-3-8b": 8.03, "llama-3-70b": 70.6, "llama-3-405b": 405.9, "qwen-2.5-72b": 72.7,
    "mistral-large": 123, "gpt-3-175b": 175, "mixtral-8x7b": 46.7, "mixtral-8x22b": 140.6,
    "deepseek-v3": 671, "kimi-k2": 1026, "qwen3-8b": 8.19, "qwen3-32b": 32.8, "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235.1, "gpt-oss-20b": 20.9, "gpt-oss-120b": 116.8, "llama-4-scout": 108.6,
    "llama-4-maverick": 401, "glm-4.5": 355, "glm-4.5-air": 106.9, "glm-5": 744, "minimax-m2": 228.7,
    "nemotron-3-nano": 31.6, "nemotron-3-super": 120.6, "gemma-3-27b": 27.0, "phi-4": 14.7,
}  # fmt: skip
ACTIVE = {"deepseek-v3": 37, "qwen3-30b-a3b": 3.3, "gpt-oss-120b": 5.1, "glm-4.5": 32, "kimi-k2": 32,
          "nemotron-3-super": 12, "qwen3-235b-a22b": 22, "llama-4-maverick": 17}  # fmt: skip


@pytest.mark.parametrize("name", PUBLIC)
def test_public_models_have_their_published_parameters(name):
    counted = count(find_model(name))
    assert counted.parameters / 1e9 == pytest.approx(PUBLISHED[name], rel=0.01)
    if name in ACTIVE:
        assert counted.active / 1e9 == pytest.approx(ACTIVE[name], rel=0.09)


def test_layers_keep_their_order():
    """DeepSeek-V3 begins with three dense layers; Llama 4 Maverick has experts in every second one."""
    deepseek, llama = find_model("deepseek-v3"), find_model("llama-4-maverick")
    assert [bool(x.experts) for x in deepseek.layers] == [False] * 3 + [True] * 58
    assert [bool(x.experts) for x in llama.layers] == [False, True] * 24
    windows = [x.mixer.window for x in llama.layers]
    assert windows == [8192, 8192, 8192, 0] * 12


@pytest.mark.parametrize(
    ("more", "windows"),
    [
        ({"sliding_window": 9}, [9] * 4),
        ({"sliding_window": 9, "use_sliding_window": False}, [0] * 4),
        ({"sliding_window": 9, "max_position_embeddings": 9}, [0] * 4),
        ({"sliding_window": None, "layer_types": ["sliding_attention"] * 4}, [0] * 4),
        ({"sliding_window": 9, "use_sliding_window": True, "max_window_layers": 3}, [0, 0, 0, 9]),
        ({"sliding_window": 9, "sliding_window_pattern": 2}, [9, 0, 9, 0]),
        ({"sliding_window": 9, "sliding_window_pattern": "LLG"}, [9, 9, 0, 9]),
        ({"sliding_window": 9, "model_type": "gemma2"}, [9, 0, 9, 0]),
        ({"sliding_window": 9, "layer_types": ["full_attention"] * 3 + ["sliding_attention"]}, [0, 0, 0, 9]),
    ],
)
def test_windows_are_where_the_family_has_them(more, windows):
    result = model(BASE, **more)
    assert [x.mixer.window for x in result.layers] == windows


def test_a_key_that_reads_like_a_size_refuses_and_ignore_goes_on():
    config = BASE | {"new_latent_dim": 64}
    with pytest.raises(
        InputError, match=r"new_latent_dim = 64, which is not modelled.*--ignore new_latent_dim"
    ):
        model_of(config, "config.json")
    result = model_of(config, "config.json", ["new_latent_dim"])
    assert result.not_modelled == {"new_latent_dim": "ignored as asked"}
    assert count(result).parameters == CONFIGS["llama"][1]


def test_all_keys_that_refuse_a_file_are_named_at_once():
    with pytest.raises(InputError, match="--ignore compress_ratios --ignore hc_mult reads it without"):
        model(BASE, compress_ratios=[4, 4], hc_mult=4)
    with pytest.raises(
        InputError, match=r"keys one_dim = 64, two_dim = 8, .*--ignore one_dim --ignore two_dim"
    ):
        model(BASE, one_dim=64, two_dim=8)


def test_a_key_to_ignore_that_the_file_lacks_is_refused_with_the_nearest_one():
    with pytest.raises(InputError, match="no key 'new_latent' to ignore; did you mean 'new_latent_dim'"):
        model_of(BASE | {"new_latent_dim": 64}, "config.json", ["new_latent"])
    with pytest.raises(InputError, match="llama-3-70b has no key 'foo' to ignore"):
        find_model("llama-3-70b", ["foo"])
    nested = {"text_config": dict(BASE), "new_latent_dim": 64}
    assert model_of(nested, "config.json", ["new_latent_dim"]).layers


def test_a_misspelt_name_gets_one_hint():
    with pytest.raises(InputError, match=r"no model 'lama-3-70b'; did you mean 'llama-3-70b'\?$"):
        find_model("lama-3-70b")


def test_layers_that_predict_further_tokens_are_said_to_be_counted_apart():
    result = model_of(BASE | {"num_nextn_predict_layers": 1}, "config.json")
    assert count(result).mtp > 0
    assert result.not_modelled["num_nextn_predict_layers"] == "counted apart, not priced"


def test_biases_of_latent_vectors_are_said_not_to_be_priced():
    assert model(BASE | LATENT, attention_bias=True).not_modelled.keys() == {"attention_bias"}
    assert model(BASE, attention_bias=True).not_modelled == {}


def test_a_tower_without_sizes_that_can_be_is_counted_apart_and_named():
    for size in (-1, 10**400):
        result = model(BASE, vision_config={"hidden_size": size, "depth": 2})
        assert result.vision == 0
        assert result.not_modelled["vision_config"] == "neither counted nor priced"


def test_a_vocabulary_that_no_key_says_is_named():
    """Gemma 3's class has one, others do not, and count neither embedding nor head."""
    bare = {key: value for key, value in BASE.items() if key != "vocab_size"}
    assert "vocab_size" in model(bare).not_modelled
    assert model(bare, model_type="gemma3_text").vocab == 262208


def test_other_unknown_keys_are_named_and_those_that_are_off_are_not():
    result = model(BASE, new_trick=True, other_trick=False, some_rank=0, some_text="x", pad_token_id=3)
    assert result.not_modelled == dict.fromkeys(("new_trick", "some_text"), "not understood")


@pytest.mark.parametrize(
    ("config", "key"),
    [
        (BASE | {"compress_ratios": [0, 4, 4, 0]}, "compress_ratios"),
        (BASE | {"layer_types": ["full_attention"]}, "layer_types of config.json has 1 entries"),
        (BASE | {"layer_types": ["wave"] * 4}, "layer_types of config.json has 'wave'"),
        (BASE | {"layer_types": ["linear_attention"] * 4}, "linear_num_value_heads"),
        (BASE | {"layer_types": ["mamba"] * 4, "mamba_dt_rank": 4}, "mamba_d_state"),
        (BASE | {"hybrid_override_pattern": "MX*-"} | MAMBA, "pattern of config.json has a block"),
        (BASE | {"hybrid_override_pattern": "**"}, "num_hidden_layers 4"),
        (BASE | {"hybrid_override_pattern": [["*"]]}, "must list the blocks of all layers"),
        (BASE | {"num_experts": 4}, "num_experts_per_tok"),
        (BASE | EXPERTS | {"num_experts_per_tok": 7}, "has 6 experts, fewer than the 7 that a token takes"),
        (BASE | {"block_auto_adjust_ff_dim": True, "block_ffn_dim_multiplier": 1e300}, "block_ffn_dim_multi"),
        ({**BASE, "model_type": "mpt", "intermediate_size": None, "expansion_ratio": -4}, "expansion_ratio"),
        (BASE | {"num_hidden_layers": 10**6}, "num_hidden_layers of config.json is 1000000"),
        (BASE | {"hidden_size": "8"}, "hidden_size of config.json = '8' is not possible"),
        (BASE | {"hidden_act": ["gelu"]}, "hidden_act of config.json"),
        (BASE | {"quantization_config": 4}, "quantization_config of config.json is 4"),
        (BASE | {"block_configs": [1] * 4}, r"block_configs\[0\]"),
        (BASE | {"text_config": [1]}, "text_config of config.json is not an object"),
        ({"hidden_size": 64}, "num_hidden_layers"),
        ({"hidden_size": 64, "n_layer": 2}, "lacks any of the keys num_attention_heads"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_the_name_of_its_key(config, key):
    with pytest.raises(InputError, match=key) as refused:
        model(config)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(("text", "why"), [("[]", "is not an object"), ("{", "not a config.json")])
def test_what_is_no_object_is_refused(text, why, tmp_path):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InputError, match=why):
        find_model(str(tmp_path / "config.json"))


_ALL = BASE | EXPERTS | LATENT | MAMBA | DELTA
_VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 70), st.floats(), st.text(max_size=3),
    st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["full_attention", "mamba", "moe"])), max_size=5),
    st.dictionaries(st.sampled_from(["quant_method", "bits", "ignore", "kda_layers"]), st.integers(0, 3)),
)  # fmt: skip
_KEYS = st.sampled_from([*_ALL, *(key for config, _ in CONFIGS.values() for key in config)])


@given(st.sampled_from(sorted(CONFIGS)), st.dictionaries(_KEYS, _VALUES, max_size=4))
def test_whatever_a_config_has_it_is_counted_or_refused_in_one_line(name, changes):
    """Any value under any key: no traceback, no number below nothing."""
    config = CONFIGS[name][0] | changes
    try:
        counted = count(model(config))
    except InputError as error:
        refused = str(error)
    else:
        assert 0 <= counted.active <= counted.parameters
        return
    assert "\n" not in refused


def test_a_file_that_nests_too_deep_is_refused_in_a_line(tmp_path):
    """700 brackets: Python's parser in C takes them, and its functions do not."""
    path = tmp_path / "config.json"
    path.write_text('{"a": ' + "[" * 700 + "]" * 700 + "}")
    with pytest.raises(InputError, match="the file nests too deep"):
        find_model(str(path))

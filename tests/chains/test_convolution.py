"""The statement convolution: as published, exact in every layout, with gradients; mixers that have it."""

import numpy as np
import pytest
from conformance.executor_suite import laws
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed, result_slope
from strategies import layout_texts

import umm
from umm.errors import ProblemError
from umm.plans.lower import lower
from umm.program import Outline, Shape, load_chain, save_chain
from umm.program.statements.convolution import Convolution, ConvolutionGrad

RANKS = 4


def outlined(*, tokens, sequences, cols, taps, before=False, backward=False):
    rows = sequences if before else tokens * sequences
    shapes = {"X": (rows, cols), "W": (1, cols * taps)}
    shapes |= {"B": (rows, cols * (taps - 1))} if before else {}
    shapes |= {"dY": (rows, cols)} if backward else {}
    outs = {"Y": (rows, cols)} | ({"dX": (rows, cols), "dW": (1, cols * taps)} if backward else {})
    how = {"taps": taps, "sequences": sequences}
    statements = [Convolution("Y", "X", "W", before="B" if before else "", **how)]
    statements += [ConvolutionGrad("dX", "X", "W", "dY", "dW", **how)] if backward else []
    tensors = [Shape(x, *size, "float64", "input") for x, size in shapes.items()]
    tensors += [Shape(x, *size, "float64", "output") for x, size in outs.items()]
    return Outline("convolution", tuple(tensors), tuple(statements))


@st.composite
def sizes(draw):
    before = draw(st.booleans())
    result = {
        "tokens": draw(st.integers(1, 7)),
        "sequences": draw(st.integers(1, 3)),
        "cols": draw(st.integers(1, 5)),
    }
    return result | {
        "taps": draw(st.integers(2 if before else 1, 4)), "before": before,
        "backward": not before and draw(st.booleans()),
    }  # fmt: skip


@settings(laws, max_examples=500 if WHOLE else 30)
@given(st.data())
def test_a_convolution_and_its_gradients_are_exact_in_any_layouts(data):
    outline = outlined(**data.draw(sizes()))
    texts = {x.name: data.draw(layout_texts((x.rows, x.cols), RANKS)) for x in outline.tensors}
    assert_performed(outline.laid_out(texts, RANKS), data.draw(st.integers(0, 99)))


def operands(chain, seed=0):
    rng = np.random.default_rng(seed)
    return {x.name: rng.uniform(-1, 1, x.shape) for x in chain.tensors if x.is_input}


def test_each_column_sees_the_last_tokens_of_its_sequence():
    """Two sequences of 4 tokens, 3 taps: np.convolve of each column, cut to the tokens there are."""
    chain = outlined(tokens=4, sequences=2, cols=2, taps=3).laid_out({}, 1)
    x = operands(chain)
    result, weights = chain.reference(x)["Y"], x["W"].reshape(2, 3)
    for sequence in (slice(0, 4), slice(4, 8)):
        for col in range(2):
            expected = np.convolve(x["X"][sequence, col], weights[col])[:4]
            assert result[sequence, col] == pytest.approx(expected)


def test_a_decoded_token_is_the_last_of_its_sequence():
    """The fourth token with the three before it as a state is the fourth row of all four."""
    every = outlined(tokens=4, sequences=1, cols=2, taps=4).laid_out({}, 1)
    x = operands(every)
    earlier = x["X"][2::-1].T.reshape(1, -1)  # by column, the one before first
    step = outlined(tokens=1, sequences=1, cols=2, taps=4, before=True).laid_out({}, 1)
    result = step.reference({"X": x["X"][3:], "W": x["W"], "B": earlier})["Y"]
    assert result == pytest.approx(every.reference(x)["Y"][3:])


@settings(laws, max_examples=examples(30))
@given(sizes(), st.data())
def test_its_gradients_are_the_slopes_of_its_result(asked, data):
    chain = outlined(**asked | {"before": False, "backward": True}).laid_out({}, 1)
    x = operands(chain)
    for name in "XW":
        at = tuple(data.draw(st.integers(0, size - 1)) for size in x[name].shape)
        expected = result_slope(chain, x, name, at)
        assert chain.reference(x)[f"d{name}"][at] == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_by_tokens_three_rows_go_to_the_next_rank():
    chain = outlined(tokens=4096, sequences=1, cols=64, taps=4)
    schedule = lower(chain.laid_out({"X": "row", "Y": "row", "W": "row@4"}, 4), umm.machine("h100-8"))
    payload = [
        x for x, src, dst in zip(schedule.payload, schedule.src, schedule.dst, strict=True) if src != dst
    ]
    assert payload == [3 * 64 * 8] * 3


def test_a_convolution_is_read_from_a_file(tmp_path):
    outline = outlined(tokens=4, sequences=2, cols=2, taps=3, backward=True)
    save_chain(outline, tmp_path / "conv.toml")
    assert load_chain(tmp_path / "conv.toml") == outline


PARALLEL = {"heads": 4, "kv_heads": 2, "scan_heads": 4, "scan_groups": 2, "scan_key": 3, "scan_value": 4}
DECODED, PROMPTS = {"decode": True, "batch": 4, "context": 6}, {"tokens": 12, "sequences": 2}


@pytest.mark.parametrize("length", [DECODED, PROMPTS, PROMPTS | {"backward": True}])
@pytest.mark.parametrize("mixer", [{"taps": 3}, PARALLEL])
@pytest.mark.parametrize("scheme", ["megatron", "sequence", "data"])
def test_layers_of_convolutions_and_of_two_mixers_are_exact_by_every_scheme(scheme, mixer, length):
    outline = umm.chain("transformer-layer", hidden=16, ffn=8, dtype="float64", **mixer, **length)
    assert_performed(outline.laid_out(scheme, RANKS), 1)


LATENT = {"heads": 2, "kv_rank": 5, "rope_dim": 2, "q_rank": 4, "head_dim": 3}
INDEXED = {"index_heads": 2, "index_dim": 3, "top_keys": 4}


@pytest.mark.parametrize("mixer", [{"taps": 3}, PARALLEL, LATENT | INDEXED, {"heads": 4} | INDEXED])
def test_the_gradient_by_the_input_is_the_slope_of_the_result(mixer):
    """dY·Y by some numbers of X and of the first weight that is not the indexer's."""
    chain = umm.chain("attention", hidden=16, dtype="float64", backward=True, tokens=6, **mixer).laid_out(
        "data", 1
    )
    x = operands(chain)
    made = chain.reference(x)
    weight = next(y for y in x if y.startswith(("Wv", "mWv")))
    for name, at in (("X", (2, 3)), ("X", (5, 0)), (weight, (1, 1)), ("Wo", (0, 2))):
        expected = result_slope(chain, x, name, at)
        assert made[f"d{name}"][at] == pytest.approx(expected, rel=1e-4, abs=1e-6)


def test_shapes_that_do_not_fit_are_refused():
    tensors = [x for x in outlined(tokens=4, sequences=1, cols=2, taps=3).tensors if x.name != "W"]
    tensors.append(Shape("W", 1, 4, "float64", "input"))
    with pytest.raises(ProblemError, match="W is 1x4; it must be 1x6 beside X"):
        Outline("convolution", tuple(tensors), (Convolution("Y", "X", "W", taps=3),))

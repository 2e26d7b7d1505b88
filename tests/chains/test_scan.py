"""The statements scan and scan_grad: as Mamba-2 and gated delta nets are published, exact in every layout."""

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, laws
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed, result_slope
from strategies import layout_texts

import umm
from umm.errors import ProblemError
from umm.plans.lower import lower
from umm.program import Outline, Shape, load_chain, save_chain
from umm.program.statements.scan import Scan, ScanGrad

RANKS = 4
OUTS = {"O": "v", "S": "state", "dQ": "q", "dK": "q", "dV": "v", "dD": "decay", "dR": "rate", "dS": "state"}


def chain_of(
    *, key, value, groups, share, tokens, sequences, delta, wide, before, backward, rated=False, layouts=None,
    p=RANKS,
):  # fmt: skip
    """O = scan(Q, K, V, D, R), perhaps from states B, and the gradients given dO."""
    rows, heads = tokens * sequences, groups * share
    sizes = {
        "q": (rows, groups * key), "v": (rows, heads * value), "rate": (rows, heads),
        "decay": (1 if rated else rows, heads * (key if wide else 1)),
        "state": (sequences * key, heads * value),
    }  # fmt: skip
    inputs = {"Q": "q", "K": "q", "V": "v", "D": "decay", "R": "rate"}
    inputs |= {"B": "state"} if before else {}
    inputs |= {"dO": "v"} if backward else {}
    outs = OUTS if backward else {x: OUTS[x] for x in "OS"}
    shapes = [Shape(x, *sizes[kind], "float64", "input") for x, kind in inputs.items()]
    shapes += [Shape(x, *sizes[kind], "float64", "output") for x, kind in outs.items()]
    how = {"key": key, "value": value, "share": share, "sequences": sequences, "delta": delta, "rated": rated}
    how["state"] = "B" if before else ""
    statements = [Scan("O", "Q", "K", "V", "D", "R", "S", **how)]
    if backward:
        grads = ("dK", "dV", "dD", "dR", "dS")
        statements.append(ScanGrad("dQ", "Q", "K", "V", "D", "R", "dO", *grads, **how))
    outline = Outline("scan", tuple(shapes), tuple(statements))
    if layouts is None:
        return outline
    return outline.laid_out({x.name: layouts(x) for x in shapes}, p)


@st.composite
def sizes(draw):
    small = st.integers(1, 3)
    return {x: draw(small) for x in ("key", "value", "groups", "share", "sequences")} | {
        "tokens": draw(st.integers(1, 6)), "delta": draw(st.booleans()), "wide": draw(st.booleans()),
        "rated": draw(st.booleans()),
        "before": draw(st.booleans()), "backward": draw(st.booleans()),
    }  # fmt: skip


@settings(laws, max_examples=500 if WHOLE else 30)
@given(st.data())
def test_a_scan_and_its_gradients_are_exact_in_any_layouts(data):
    """By heads, sequences and tokens, cut anywhere, on 4 ranks."""
    asked = data.draw(sizes())
    chain = chain_of(**asked, layouts=lambda x: data.draw(layout_texts((x.rows, x.cols), RANKS)))
    assert_performed(chain, data.draw(st.integers(0, 99)))


def operands(outline, seed=0):
    rng = np.random.default_rng(seed)
    return {x.name: rng.uniform(-1, 1, (x.rows, x.cols)) for x in outline.tensors if x.role == "input"}


CASE = {
    "key": 3, "value": 2, "groups": 2, "share": 2, "tokens": 5, "sequences": 1, "wide": False,
    "before": False, "backward": False,
}  # fmt: skip


@pytest.mark.parametrize("delta", [False, True])
def test_a_scan_is_what_the_papers_say(delta):
    """Mamba-2: O = (L ∘ QKᵀ)·(Δ·V) with L the products of decays; a delta net: S ← S·α(I − βkkᵀ) + βvkᵀ."""
    outline = chain_of(**CASE | {"delta": delta})
    x = operands(outline)
    result = outline.laid_out({y.name: "row" for y in outline.tensors}, 1).reference(x)["O"]
    for head in range(4):
        of_keys, of_values = slice(head // 2 * 3, head // 2 * 3 + 3), slice(2 * head, 2 * head + 2)
        q, k, v = x["Q"][:, of_keys], x["K"][:, of_keys], x["V"][:, of_values]
        rate, total = x["R"][:, head : head + 1], x["D"][:, head].cumsum()
        if delta:
            state, expected = np.zeros((2, 3)), []
            for t in range(5):
                outer = np.eye(3) - rate[t] * np.outer(k[t], k[t])
                state = np.exp(x["D"][t, head]) * state @ outer + rate[t] * np.outer(v[t], k[t])
                expected.append(state @ q[t])
        else:
            expected = np.tril(np.exp(total[:, None] - total[None, :]) * (q @ k.T)) @ (rate * v)
        assert result[:, of_values] == pytest.approx(np.array(expected), abs=1e-13)


@settings(laws, max_examples=examples(60))
@given(sizes(), st.data())
def test_its_gradients_are_the_slopes_of_its_result(asked, data):
    """dO·dOut by each operand, by differences of 1e-6 in float64."""
    outline = chain_of(**asked | {"backward": True})
    chain = outline.laid_out({x.name: "row@1" for x in outline.tensors}, 1)
    x = operands(outline)
    values = chain.reference(x)
    pairs = {"dQ": "Q", "dK": "K", "dV": "V", "dD": "D", "dR": "R"} | ({"dS": "B"} if asked["before"] else {})
    for grad, name in pairs.items():
        at = tuple(data.draw(st.integers(0, size - 1)) for size in x[name].shape)
        expected = result_slope(chain, x, name, at, "O")
        assert values[grad][at] == pytest.approx(expected, rel=1e-5, abs=1e-7)


def test_decays_that_are_rated_are_those_of_mamba_1():
    """h ← exp(ΔA)·h + Δ·B·x and y = C·h for each column: Gu & Dao (2023), equation 4 with section 3.2."""
    asked = {"value": 1, "groups": 1, "share": 4, "delta": False, "wide": True, "rated": True}
    outline = chain_of(**CASE | asked)
    x = operands(outline)
    result = outline.laid_out({y.name: "row" for y in outline.tensors}, 1).reference(x)["O"]
    slopes, state = x["D"].reshape(4, 3), np.zeros((4, 3))
    for t in range(5):
        rate = x["R"][t][:, None]
        state = np.exp(rate * slopes) * state + rate * x["V"][t][:, None] * x["K"][t][None, :]
        assert result[t] == pytest.approx(state @ x["Q"][t], abs=1e-13)


def test_by_tokens_states_go_from_rank_to_rank_and_by_heads_nothing_moves():
    """8 tokens of 4 heads of 3·2: by rows the 24 numbers of the states go from each rank to the next."""
    asked = CASE | {"groups": 4, "share": 1, "tokens": 8, "delta": True}

    def moved(text):
        layouts = {"S": "row@4"} if text == "row" else {}
        schedule = lower(
            chain_of(**asked, layouts=lambda x: layouts.get(x.name, text)), umm.machine("h100-8")
        )
        away = schedule.src != schedule.dst
        return int(schedule.nbytes[away].sum())

    assert moved("col") == 0
    assert moved("row") == (3 + 3) * 24 * 8  # along the ranks, then the last states to the three others


def test_a_scan_is_read_from_a_file_and_searched(tmp_path):
    outline = chain_of(**CASE | {"delta": True, "tokens": 16, "backward": True, "before": True})
    save_chain(outline, tmp_path / "scan.toml")
    assert load_chain(tmp_path / "scan.toml") == outline
    answer = umm.search(umm.Space(chain=outline, ranks=2, layouts=("row", "col", "row@p")), MACHINE)
    assert answer.proven


def test_shapes_that_do_not_fit_are_refused():
    tensors = chain_of(**CASE | {"delta": False}).tensors
    one = Scan("O", "Q", "K", "V", "D", "R", "S", key=3, value=2, share=3)
    with pytest.raises(ProblemError, match="4 heads of V cannot share keys by 3"):
        Outline("scan", tensors, (one,))

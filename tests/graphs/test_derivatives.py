"""Derivatives of expressions, against differences."""

import numpy as np
import pytest

from umm.program.functions import function
from umm.program.functions.expressions import ELEMENTS, ROWS
from umm.program.graph.derivatives import derivative

OTHERS = {"minimum", "maximum", "sign", "step", "stop", "gelu_slope", "gelu_tanh_slope"}
SMOOTH = sorted(ELEMENTS.keys() - OTHERS)
TEXTS = [
    *(f"{name}(a) * b" for name in SMOOTH),
    *(f"{name}(a * b, 2) * a" for name in ("mean", "sum", "softmax", "logsumexp", "amax", "amin")),
    "layer_norm(a, 4, 1e-05) * b", "a / (b + 2)", "a ** 3 - b", "(a * b) ** b",
    "maximum(a, b) + minimum(a, 2 * b)", "-(a * b) - a", "rope(a * b, 4, 3)",
    "rope_halves(a * b, 4, 3, 500000, 1, 2)",
    "a * rsqrt(mean(a ** 2, 4) + 1e-05) * b",
]  # fmt: skip


def computed(text, lines, arrays):
    f = function(f"{text} | {lines}->rc")
    return f(*arrays, rows=(0, 3), cols=(0, 4), shape=(3, 4))


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("operand", [0, 1])
def test_a_derivative_is_the_limit_of_differences(text, operand):
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(0.2, 1.5, (3, 4)) for _ in "ab"]
    weights, step = rng.standard_normal((3, 4)), 1e-6
    result = computed(derivative(text, "ab"[operand], "c"), "rc,rc,rc", [*arrays, weights])
    for place in np.ndindex(3, 4):
        ends = []
        for sign in (1, -1):
            moved = [x.copy() for x in arrays]
            moved[operand][place] += sign * step
            ends.append((computed(text, "rc,rc", moved) * weights).sum())
        assert result[place] == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def test_what_is_stopped_has_no_gradient():
    assert derivative("stop(a) * b", "a", "c") == ""
    assert derivative("stop(a) * b", "b", "c") == "c * stop(a)"


def test_a_softmax_that_is_written_out_has_the_gradient_of_one_and_no_maximum():
    """The two terms by the largest element cancel."""
    shares = "exp(a * b - amax(a * b, 4))"
    assert derivative(f"{shares} / sum({shares}, 4)", "a", "c") == derivative("softmax(a * b, 4)", "a", "c")


def test_elements_that_tie_for_the_largest_share_its_gradient():
    tied = np.array([[1.0, 3.0, 3.0, 2.0]] * 3)
    arrays = [tied, tied, np.ones((3, 4))]
    result = computed(derivative("amax(a, 4)", "a", "c"), "rc,rc,rc", arrays)
    assert result.tolist() == [[0.0, 2.0, 2.0, 0.0]] * 3


def test_functions_of_rows_have_rules():
    assert {"mean", "sum", "softmax", "logsumexp", "layer_norm"} <= ROWS.keys()

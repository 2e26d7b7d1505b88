"""The functions of a map: the same under every cut, the right values, the right gradients, clear refusals."""

from math import erf, exp, pi, sqrt, tanh

import numpy as np
import pytest
from examples import examples
from function_reads import COLS, PARAMETERS, PLAIN, ROWS, operands, shape_of
from hypothesis import given, settings
from hypothesis import strategies as st

from umm.errors import InputError, ProblemError
from umm.interval import Interval
from umm.program.functions import FUNCTIONS, Function, Parameter, function, register
from umm.program.functions.forms import kept


def apply(name, *reads, **parameters):
    """A function on whole matrices."""
    shape = function(name).whole([shape_of(x, *_sizes(name, reads)) for x in function(name).operands])
    return function(name)(*reads, rows=(0, shape[0]), cols=(0, shape[1]), shape=shape, **parameters)


def _sizes(name, reads):
    """r and c, from the reads that have them."""
    letters = function(name).operands[1:]
    rows = [x.shape[0] for x, letter in zip(reads, letters, strict=True) if letter[0] == "r"]
    cols = [x.shape[1] for x, letter in zip(reads, letters, strict=True) if letter[1] == "c"]
    return rows[0] if rows else 1, cols[0] if cols else 1


@st.composite
def cuts(draw, size, unit):
    """Edges of pieces of one dimension, at multiples of a unit; none inside if the unit is 0."""
    inner = draw(st.lists(st.sampled_from(range(0, size, unit)), max_size=3)) if unit else []
    return sorted({0, *inner, size})


@pytest.mark.parametrize("name", PLAIN)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_pieces_of_any_cut_make_the_whole(name, data):
    """A letter that the result lacks adds up; everything else is put side by side."""
    mapped, given_ = function(name), PARAMETERS.get(name, {})
    letters = "".join(mapped.operands)
    rows, cols = ROWS if "r" in letters else 1, COLS if "c" in letters else 1
    reads = operands(name)
    full = mapped(*reads, rows=(0, rows), cols=(0, cols), shape=(rows, cols), **given_)
    result = np.zeros_like(full)
    row_edges = data.draw(cuts(rows, 1))
    col_edges = data.draw(cuts(cols, mapped.unit(given_)))
    for i in map(Interval, row_edges, row_edges[1:]):
        for j in map(Interval, col_edges, col_edges[1:]):
            (out_rows, out_cols), *ranges = mapped.ranges(i, j)
            pieces = [x[r.slice, c.slice] for x, (r, c) in zip(reads, ranges, strict=True)]
            result[out_rows.slice, out_cols.slice] += mapped(
                *pieces, rows=i, cols=j, shape=(rows, cols), **given_
            )
    np.testing.assert_allclose(result, full, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", PLAIN)
def test_half_precision_is_computed_in_float32_and_float64_stays(name):
    letters = "".join(function(name).operands)
    where = {
        "rows": (0, ROWS if "r" in letters else 1),
        "cols": (0, COLS if "c" in letters else 1),
        "shape": (ROWS if "r" in letters else 1, COLS if "c" in letters else 1),
    }
    given_ = PARAMETERS.get(name, {})
    half, double = operands(name, "float16"), operands(name)
    result = function(name)(*half, **where, **given_)
    assert result.dtype == np.float32
    if double:
        assert function(name)(*double, **where, **given_).dtype == np.float64
        exact = function(name)(*(x.astype("float64") for x in half), **where, **given_)
        np.testing.assert_allclose(result, exact, rtol=1e-4, atol=1e-5)


def test_gelu_is_the_exact_one_not_the_tanh_form():
    """At x = 1 the exact form gives 0.841345, the tanh form 0.841192."""
    x = np.array([[-40.0, -6.0, -1.0, 0.0, 1e-9, 0.5, 1.0, 3.0, 40.0]])
    expected = [[v * 0.5 * (1 + erf(v / sqrt(2))) for v in x[0]]]
    np.testing.assert_allclose(apply("gelu", x), expected, rtol=1e-13, atol=1e-15)
    by_tanh = 0.5 * (1 + tanh(sqrt(2 / pi) * 1.044715))
    assert abs(apply("gelu", x)[0, 6] - by_tanh) > 1e-4


def test_activations_stay_finite_far_out():
    x = np.array([[-1e30, -1e4, -100.0, 100.0, 1e4, 1e30]], dtype=np.float32)
    for name in ("gelu", "silu"):
        np.testing.assert_allclose(apply(name, x), np.maximum(x, 0), atol=1e-40)
        np.testing.assert_allclose(apply(name + "_grad", x, np.ones_like(x)), x > 0, atol=1e-40)


def numeric(f, x, dy, step=1e-6):
    """Gradient of sum(dy · f(x)) by x, by central differences."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        shift = np.zeros_like(x)
        shift[place] = step
        result[place] = (dy * (f(x + shift) - f(x - shift))).sum() / (2 * step)
    return result


DRAWN = np.random.default_rng(1)
X, DY = DRAWN.standard_normal((6, 8)), DRAWN.standard_normal((6, 8))


@pytest.mark.parametrize("name", ["relu", "gelu", "silu"])
def test_a_gradient_takes_x_and_the_gradient_by_the_result(name):
    np.testing.assert_allclose(
        apply(f"{name}_grad", X, DY), numeric(lambda x: apply(name, x), X, DY), atol=1e-8
    )


@pytest.mark.parametrize(("name", "given_"), [
    ("softmax", {}), ("softmax", {"keys": 4}), ("masked_softmax", {"queries": 3}),
    ("masked_softmax", {"queries": 3, "keys": 4}),
])  # fmt: skip
def test_the_gradient_of_softmax_takes_its_result_masked_or_not(name, given_):
    y = apply(name, X, **given_)
    expected = numeric(lambda x: apply(name, x, **given_), X, DY)
    keys = given_.get("keys", 0)
    np.testing.assert_allclose(apply("softmax_grad", y, DY, keys=keys), expected, atol=1e-8)


def test_rope_and_dropout_are_linear_so_their_gradients_are_their_transposes():
    for name in ("rope", "rope_halves"):
        given_ = PARAMETERS[name]
        expected = numeric(lambda x, name=name, how=given_: apply(name, x, **how), X, DY)
        np.testing.assert_allclose(apply(f"{name}_grad", DY, **given_), expected, atol=1e-8)
        back = apply(f"{name}_grad", apply(name, X, **given_), **given_)
        np.testing.assert_allclose(back, X, atol=1e-14)
    given_ = PARAMETERS["dropout"]
    expected = numeric(lambda x: apply("dropout", x, **given_), X, DY)
    np.testing.assert_allclose(apply("dropout", DY, **given_), expected, atol=1e-8)


def test_swiglu_goes_backward_by_three_maps():
    """y = silu(g)·u: du = silu(g)·dy, dg = silu'(g)·(u·dy)."""
    gate, up = X, X[::-1] * 2
    by_gate = numeric(lambda x: apply("silu_mul", x, up), gate, DY)
    by_up = numeric(lambda x: apply("silu_mul", gate, x), up, DY)
    np.testing.assert_allclose(apply("silu_grad", gate, apply("mul", up, DY)), by_gate, atol=1e-8)
    np.testing.assert_allclose(apply("silu_mul", gate, DY), by_up, atol=1e-8)


def layer_norm(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)


def test_layer_norm_goes_both_ways_by_sums_over_rows():
    """Forward two sums a row, backward two more: all that split columns need to exchange."""
    total, squares = apply("row_sum", X), apply("row_sum_squares", X)
    y = apply("normalise", X, total, squares)
    np.testing.assert_allclose(y, layer_norm(X), atol=1e-12)
    along = apply("norm_grad", DY, y, apply("row_dot", DY, y))
    centred = apply("centre", along, apply("row_sum", DY))
    dx = apply("mul_rows", centred, apply("rstd", total, squares, columns=8))
    # With ε > 0 the rows of y have a mean square just below 1, which norm_grad takes for 1.
    np.testing.assert_allclose(dx, numeric(layer_norm, X, DY), atol=1e-4)


def test_rms_norm_goes_both_ways_by_one_sum_over_rows():
    squares = apply("row_sum_squares", X)
    scale = apply("rms_rstd", squares, columns=8, epsilon=0.0)
    y = apply("mul_rows", X, scale)
    np.testing.assert_allclose((y**2).mean(1), 1.0)
    dx = apply("mul_rows", apply("norm_grad", DY, y, apply("row_dot", DY, y)), scale)
    expected = numeric(lambda x: x / np.sqrt((x**2).mean(1, keepdims=True)), X, DY)
    np.testing.assert_allclose(dx, expected, atol=1e-8)


def test_a_query_sees_the_keys_up_to_its_own_and_heads_lie_one_after_another():
    """2 heads of 3 queries and 4 keys: the last query sees all 4, the one before it 3, the first 2."""
    shares = apply("masked_softmax", np.zeros((6, 4)), queries=3)
    np.testing.assert_allclose(
        shares, np.tile([[1 / 2, 1 / 2, 0, 0], [1 / 3] * 3 + [0], [1 / 4] * 4], (2, 1))
    )
    unseen = apply("masked_softmax", np.full((3, 1), 1e300))
    assert unseen.ravel().tolist() == [0.0, 0.0, 1.0]


def test_rope_turns_pairs_of_columns_by_the_position():
    """Position 1, head of 4: the pair (0, 1) turns by 1, the pair (2, 3) by 1/100."""
    turned = apply("rope", np.array([[1.0, 0, 1, 0]] * 4), head=4, positions=2)
    one = [np.cos(1), np.sin(1), np.cos(0.01), np.sin(0.01)]
    np.testing.assert_allclose(turned, [[1, 0, 1, 0], one] * 2, atol=1e-15)


def splitmix64(word):
    word = (word + 0x9E3779B97F4A7C15) % 2**64
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ word >> 27) * 0x94D049BB133111EB % 2**64
    return word ^ word >> 31


@given(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 2**40), st.floats(0, 1, exclude_max=True))
def test_a_mask_is_a_function_of_seed_row_and_column_alone(seed, row, col, rate):
    """Also of the textbook's splitmix64, whose first word from seed 0 is 0xe220a8397b1dcdaf."""
    assert splitmix64(0) == 0xE220A8397B1DCDAF
    mask = kept(Interval(row, row + 2), Interval(col, col + 3), rate, seed)
    expected = [
        [
            splitmix64((splitmix64((splitmix64(seed) + i) % 2**64) + j) % 2**64) / 2**64
            for j in range(col, col + 3)
        ]
        for i in range(row, row + 2)
    ]
    close = np.abs(np.array(expected) - rate) < 1e-15
    assert np.all((mask == (np.array(expected) >= rate)) | close)


def test_dropout_drops_its_rate_and_keeps_the_mean():
    x = np.ones((400, 500))
    y = apply("dropout", x, rate=0.25, seed=3)
    assert abs((y == 0).mean() - 0.25) < 0.005
    np.testing.assert_allclose(y[y > 0], 4 / 3)
    assert (apply("dropout", x, rate=0.25, seed=4) != y).mean() > 0.3
    np.testing.assert_array_equal(apply("dropout", x, rate=0.0, seed=3), x)


def test_a_function_from_outside_is_named_like_any_other():
    cube = Function("cube", "rc->rc", lambda x, times: times * x**3, {"times": Parameter(1.0, least=0.0)})
    try:
        assert register(cube) is function("cube")
        assert apply("cube", np.array([[2.0]]), times=2).tolist() == [[16.0]]
        with pytest.raises(ProblemError, match="a function cube is there already"):
            register(cube)
    finally:
        del FUNCTIONS["cube"]


@pytest.mark.parametrize(
    ("signature", "why"),
    [
        ("rq->rc", "'rq->rc' of odd is not a signature; write it like rc,1c->rc"),
        ("rc", "is not a signature"),
        ("rc," * 9 + "rc->rc", "odd reads 10 operands; a map reads at most 9"),
    ],
)
def test_what_a_map_cannot_call_is_refused(signature, why):
    with pytest.raises(ProblemError, match=why):
        register(Function("odd", signature, lambda *reads: reads[0]))
    assert "odd" not in FUNCTIONS


@pytest.mark.parametrize(
    ("name", "given_", "why"),
    [
        ("scale", {}, "scale needs a parameter factor"),
        ("scale", {"factor": "2"}, "factor of scale = '2' is not possible; it must be a finite number"),
        ("scale", {"factor": float("nan")}, "must be a finite number"),
        ("scale", {"factor": True}, "must be a finite number"),
        ("relu", {"slope": 1}, "relu has no parameter 'slope'; it takes none"),
        (
            "dropout",
            {"rate": 1.0, "seed": 0},
            "rate of dropout = 1.0 is not possible; it must be ≥ 0 and < 1",
        ),
        ("dropout", {"rate": 0.1, "seed": 1.0}, "seed of dropout = 1.0 is not possible; it must be a whole"),
        ("dropout", {"rate": 0.1, "sede": 1}, "has no parameter 'sede'; choose from rate, seed"),
        ("rope", {"head": 3}, "head of rope = 3 is not possible; it must be a multiple of 2"),
        ("rope", {"head": 6}, r"rope cannot work on \(6, 8\): head = 6 does not divide its columns"),
        ("rope", {"head": 2, "positions": 4}, "positions = 4 does not divide its rows"),
        ("normalise", {"epsilon": -1}, "epsilon of normalise = -1 is not possible; it must be ≥ 0"),
    ],
)
def test_a_parameter_that_does_not_fit_is_refused_in_one_line(name, given_, why):
    with pytest.raises(InputError, match=why) as error:
        function(name).checked(given_, (6, 8))
    assert "\n" not in str(error.value)


def test_all_parameters_come_back_with_their_defaults():
    full = {"head": 4, "base": 10000.0, "positions": 0, "first": 0}
    assert function("rope").checked({"head": 4}) == full


@pytest.mark.parametrize(
    ("name", "shapes", "why"),
    [
        ("bias", [(4, 6), (4, 6), (1, 5)], "bias is rc,1c->rc, not 4x6, 1x5 -> 4x6"),
        ("row_sum", [(4, 2), (4, 6)], "row_sum is rc->r1, not 4x6 -> 4x2"),
        ("add", [(4, 6), (4, 6)], "add is rc,rc->rc, not 4x6 -> 4x6"),
    ],
)
def test_shapes_that_do_not_fit_the_signature_are_refused(name, shapes, why):
    with pytest.raises(ProblemError, match=why):
        function(name).whole(shapes)


def test_an_unknown_function_is_answered_with_those_there_are():
    with pytest.raises(ProblemError, match=r"function 'gelo' is unknown; choose from add, bias, .*softmax"):
        function("gelo")


def test_the_density_of_the_gradient_of_gelu_is_that_of_a_normal_distribution():
    """gelu'(1) = Φ(1) + φ(1)."""
    phi = exp(-0.5) / sqrt(2 * pi)
    grad = apply("gelu_grad", np.array([[1.0]]), np.array([[1.0]]))[0, 0]
    assert grad == pytest.approx(0.5 * (1 + erf(1 / sqrt(2))) + phi, rel=1e-14)

"""Chains as one schedule: results equal the float64 reference, in every replica, in any legal order."""

import random

import numpy as np
import pytest

import umm
from umm.layouts.layout import Layout
from umm.plans.lower import lower
from umm.program import Chain, Copy, Map, Multiply, Sum
from umm.program.tensors import Tensor
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import KINDS

MACHINE = umm.machine("dgx-h100x4")
ORDERS = ({"order": "rows"}, {"order": "random", "seed": 1}, {"order": "random", "seed": 2})


class Drawn:
    """Tensors in random layouts over a few ranks."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.ranks = self.random.choice([1, 2, 3, 4, 6])
        self.tensors = []

    def size(self, most=9):
        return self.random.randint(1, most)

    def tensor(self, name, rows, cols, role="work", layout=None):
        replicas = self.random.choice([c for c in range(1, self.ranks + 1) if self.ranks % c == 0])
        text = layout or f"{self.random.choice(['row', 'col', '2d', 'row:balanced'])}@{replicas}"
        self.tensors.append(Tensor(name, Layout.parse(text, (rows, cols), self.ranks), "float64", role))

    def chain(self, *statements):
        return Chain("drawn", tuple(self.tensors), statements, self.ranks)


def assert_right(chain, operands, **options):
    """Every output, in every replica, equals the reference."""
    schedule = lower(chain, MACHINE, **options)
    check(schedule)
    expected = chain.reference(operands)
    for order in ORDERS:
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, **order)
        for name in chain.outputs:
            for replica in trace.results[name]:
                assert np.allclose(replica, expected[name], rtol=1e-12, atol=1e-12), (name, order)


def whole_numbers(chain, seed):
    rng = np.random.default_rng(seed)
    return {x.name: rng.integers(-3, 4, x.shape).astype(float) for x in chain.tensors if x.is_input}


SECOND = {
    "relu": (Map("Y", "relu", ("H",)), "ac"),
    "a row softmax, whatever splits the rows": (Map("Y", "softmax", ("H",)), "ac"),
    "the largest of rows, whatever splits them": (Map("Y", "row_max", ("H",)), "a1"),
    "row sums": (Map("Y", "row_sum", ("H",)), "a1"),
    "another layout": (Copy("Y", "H"), "ac"),
    "a second multiply": (Multiply("Y", "H", "W2"), "ad"),
    "the gradient of a weight": (Multiply("Y", "X", "H", trans=("a",)), "bc"),
}


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("second", SECOND)
def test_two_statements_are_joined_right(second, seed):
    """H = αX·W or αX·(Wᵀ)ᵀ, and then its readers; sizes from 1, so many tiles are empty."""
    drawn = Drawn(seed)
    statement, shape = SECOND[second]
    sizes = {letter: drawn.size() for letter in "abcd"} | {"1": 1}
    a, b, c, d = (sizes[x] for x in "abcd")
    turned = drawn.random.random() < 0.5
    drawn.tensor("X", a, b, "input")
    drawn.tensor("W", *((c, b) if turned else (b, c)), "input")
    if second == "a second multiply":
        drawn.tensor("W2", c, d, "input")
    drawn.tensor("H", a, c)
    drawn.tensor("Y", sizes[shape[0]], sizes[shape[1]], "output")
    first = Multiply("H", "X", "W", trans=("b",) if turned else (), alpha=2.0)
    chain = drawn.chain(first, statement)
    assert_right(chain, whole_numbers(chain, seed), stationary=drawn.random.choice("ABC"))


@pytest.mark.parametrize("beta", [0.0, 1.0, 0.5])
@pytest.mark.parametrize("seed", range(6))
def test_a_multiply_onto_what_was_written_keeps_beta_of_it(seed, beta):
    drawn = Drawn(seed)
    a, b, c = (drawn.size() for _ in range(3))
    for name, rows, cols, role in (("X", a, b, "input"), ("W", b, c, "input"), ("Z", a, c, "input")):
        drawn.tensor(name, rows, cols, role)
    drawn.tensor("Y", a, c, "output")
    chain = drawn.chain(Copy("Y", "Z"), Multiply("Y", "X", "W", beta=beta))
    assert_right(chain, whole_numbers(chain, seed))


@pytest.mark.parametrize("seed", range(12))
def test_attention_with_shared_keys_is_right_forward_and_backward(seed):
    """Scores, softmax and output of 2 or 4 heads, pairs of which may share keys; and the gradients."""
    drawn = Drawn(seed)
    tokens, heads, width = drawn.size(5), drawn.random.choice([2, 4]), drawn.size(3)
    share = drawn.random.choice([1, 2])
    wide, narrow = heads * width, heads // share * width
    for name, cols in (("Q", wide), ("K", narrow), ("V", narrow), ("dO", wide)):
        drawn.tensor(name, tokens, cols, "input")
    for name in ("S", "dS"):
        drawn.tensor(name, heads * tokens, tokens)
    for name, cols in (("O", wide), ("dQ", wide), ("dK", narrow), ("dV", narrow)):
        drawn.tensor(name, tokens, cols, "output")

    def heads_of(out, a, b, trans, axes, groups):
        return Multiply(out, a, b, trans, 0.5, 0.0, heads, axes, groups)

    chain = drawn.chain(
        heads_of("S", "Q", "K", ("b",), (0, 1, 1), (1, 1, share)),
        Map("S", "masked_softmax", ("S",), {"queries": tokens}),
        heads_of("O", "S", "V", (), (1, 0, 1), (1, 1, share)),
        heads_of("dV", "S", "dO", ("a",), (1, 0, 1), (share, 1, 1)),
        heads_of("dS", "dO", "V", ("b",), (0, 1, 1), (1, 1, share)),
        Map("dS", "softmax_grad", ("dS", "S")),
        heads_of("dQ", "dS", "K", (), (1, 0, 1), (1, 1, share)),
        heads_of("dK", "dS", "Q", ("a",), (1, 0, 1), (share, 1, 1)),
    )
    rng = np.random.default_rng(seed)
    assert_right(chain, {x.name: rng.standard_normal(x.shape) for x in chain.tensors if x.is_input})


def test_a_batch_of_one_tensor_by_itself_gathers_both_of_its_factors():
    """Two members of X, 1x4 each by rows, times two of X, 2x2 each by columns; rows on other ranks."""
    drawn = Drawn(0)
    drawn.ranks = 2
    drawn.tensor("X", 2, 4, "input", layout="row")
    drawn.tensor("Y", 4, 2, "output", layout="row")
    chain = drawn.chain(Multiply("Y", "X", "X", batch=2, batch_axes=(0, 1, 1)))
    assert_right(chain, {"X": np.arange(8.0).reshape(2, 4)})


@pytest.mark.parametrize("layouts", ["row@4", "row"])
def test_statistics_of_whole_rows_move_nothing(layouts):
    """Of X on every rank, or cut by rows, every rank sums its share, where the sums shall lie."""
    drawn = Drawn(0)
    drawn.ranks = 4
    drawn.tensor("X", 8, 6, "input", layout=layouts)
    drawn.tensor("s", 8, 1, "output", layout=layouts)
    schedule = lower(drawn.chain(Map("s", "row_sum", ("X",))), MACHINE)
    assert [KINDS[x] for x in schedule.kind] == ["map"] * 4
    assert schedule.pool_bytes.tolist() == [0] * 4


@pytest.mark.parametrize("seed", range(6))
def test_partial_sums_of_replicas_are_added_up(seed):
    """Into another layout and in place; operands with a third dimension give each replica its own."""
    drawn = Drawn(seed)
    a, b = drawn.size(), drawn.size()
    drawn.tensor("P", a, b, "input")
    drawn.tensor("R", a, b, "both")
    drawn.tensor("Y", a, b, "output")
    chain = drawn.chain(Sum("Y", "P"), Sum("R", "R"))
    rng = np.random.default_rng(seed)
    parts = {x.name: rng.integers(-3, 4, (x.layout.replicas, a, b)).astype(float) for x in chain.tensors[:2]}
    assert_right(chain, parts)


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
def test_a_block_of_two_multiplies_is_right_on_processes():
    """Y = gelu(X·W1 + bias)·W2 over four ranks, and the gradient of W2."""
    drawn = Drawn(0)
    drawn.ranks = 4
    for name, rows, cols, layout in (
        ("X", 8, 12, "row"), ("W1", 12, 20, "col"), ("v", 1, 20, "col"), ("W2", 20, 12, "row"),
        ("dY", 8, 12, "row"),
    ):  # fmt: skip
        drawn.tensor(name, rows, cols, "input", layout)
    drawn.tensor("H", 8, 20, layout="col")
    drawn.tensor("Y", 8, 12, "output", "row@2")
    drawn.tensor("dW2", 20, 12, "output", "row")
    chain = drawn.chain(
        Multiply("H", "X", "W1"),
        Map("H", "bias", ("H", "v")),
        Map("H", "gelu", ("H",)),
        Multiply("Y", "H", "W2"),
        Multiply("dW2", "H", "dY", trans=("a",)),
    )
    rng = np.random.default_rng(0)
    operands = {x.name: rng.standard_normal(x.shape) for x in chain.tensors if x.is_input}
    trace = umm.run(lower(chain, MACHINE), executor="mpi", operands=operands)
    expected = chain.reference(operands)
    for name in ("Y", "dW2"):
        assert np.allclose(trace.results[name], expected[name], rtol=1e-10)

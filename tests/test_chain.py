"""Chains: their results in float64, their exact form in files, and refusals."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import layout_texts, problems

import umm
from umm import Layout, Problem
from umm.errors import InputError, ProblemError
from umm.program import Chain, Copy, Map, Multiply, Sum
from umm.program.tensors import Program, Tensor

RANKS = 4


def tensor(name, rows, cols, role="work", layout="row", dtype="float64", ranks=RANKS):
    return Tensor(name, Layout.parse(layout, (rows, cols), ranks), dtype, role)


def chain(tensors, *statements, ranks=RANKS):
    return Chain("test", tuple(tensors), statements, ranks)


def drawn(chain, seed=0):
    """Random operands of a chain."""
    random = np.random.default_rng(seed)
    shapes = {x.name: x.shape for x in chain.tensors}
    return {name: random.standard_normal(shapes[name]) for name in chain.operand_names}


@given(problems())
def test_the_chain_of_a_problem_gives_the_product(problem):
    operands = drawn(problem.chain)
    result = problem.chain.reference(operands)
    np.testing.assert_array_equal(result["C"], operands["A"] @ operands["B"])
    assert (problem.chain.flop, problem.chain.tensors) == (problem.flop, problem.tensors)


def test_a_problem_and_its_chain_are_both_programs():
    problem = Problem(m=4, n=6, k=2, ranks=2)
    programs: list[Program] = [problem, problem.chain]
    for program in programs:
        assert (program.name, program.p, program.flop, len(program.tensors)) == ("multiply", 2, 96, 3)
        assert json.loads(json.dumps(program.to_dict())) == program.to_dict()
    with pytest.raises(ProblemError, match="give ranks="):
        _ = Problem(m=4, n=6, k=2).chain


@pytest.mark.parametrize("trans", [(), ("a",), ("b",), ("a", "b")])
def test_an_operand_may_be_stored_transposed_and_alpha_and_beta_scale(trans):
    """Y = 2·X·W − Y/2, where Y is there before."""
    random = np.random.default_rng(0)
    x, w, y = (random.standard_normal(shape) for shape in ((3, 4), (4, 5), (3, 5)))
    stored = {"X": x.T if "a" in trans else x, "W": w.T if "b" in trans else w, "Y": y}
    product = Multiply("Y", "X", "W", trans, alpha=2.0, beta=-0.5)
    roles = {"X": "input", "W": "input", "Y": "both"}
    program = chain((tensor(name, *stored[name].shape, roles[name]) for name in roles), product)
    np.testing.assert_allclose(program.reference(stored)["Y"], 2 * x @ w - 0.5 * y)
    assert program.flop == 2 * 3 * 4 * 5
    assert product.reads == ("X", "W", "Y")


HEADS, KV_HEADS, QUERIES, KEYS, HEAD = 6, 2, 5, 7, 4
SHARED = HEADS // KV_HEADS


def attention_tensors():
    """6 query heads on 2 key and value heads; heads of Q, K, V, O lie in columns, of S in rows."""
    return [
        tensor("Q", QUERIES, HEADS * HEAD, "input", "col"),
        tensor("K", KEYS, KV_HEADS * HEAD, "input", "col"),
        tensor("V", KEYS, KV_HEADS * HEAD, "input", "col"),
        tensor("dO", QUERIES, HEADS * HEAD, "input", "col"),
        *(tensor(name, HEADS * QUERIES, KEYS) for name in ("S", "P", "dP", "dS")),
        *(tensor(name, QUERIES, HEADS * HEAD, "output", "col") for name in ("O", "dQ")),
        *(tensor(name, KEYS, KV_HEADS * HEAD, "output", "col") for name in ("dK", "dV")),
    ]


SCALE = HEAD**-0.5


def attention():
    """Forward and backward of attention with grouped queries, a statement a line."""
    each = {"batch": HEADS}
    return chain(
        attention_tensors(),
        Multiply("S", "Q", "K", ("b",), SCALE, **each, batch_axes=(0, 1, 1), groups=(1, 1, SHARED)),
        Map("P", "masked_softmax", ("S",), {"queries": QUERIES}),
        Multiply("O", "P", "V", **each, batch_axes=(1, 0, 1), groups=(1, 1, SHARED)),
        Multiply("dV", "P", "dO", ("a",), **each, batch_axes=(1, 0, 1), groups=(SHARED, 1, 1)),
        Multiply("dP", "dO", "V", ("b",), **each, batch_axes=(0, 1, 1), groups=(1, 1, SHARED)),
        Map("dS", "softmax_grad", ("P", "dP")),
        Multiply("dQ", "dS", "K", alpha=SCALE, **each, batch_axes=(1, 0, 1), groups=(1, 1, SHARED)),
        Multiply("dK", "dS", "Q", ("a",), SCALE, **each, batch_axes=(1, 0, 1), groups=(SHARED, 1, 1)),
    )


def plain_attention(q, k, v):
    """O by einsum: h over key and value heads, g over the query heads that share one."""
    q = q.reshape(QUERIES, KV_HEADS, SHARED, HEAD)
    k, v = (x.reshape(KEYS, KV_HEADS, HEAD) for x in (k, v))
    s = SCALE * np.einsum("qhgd,khd->hgqk", q, k)
    hidden = np.arange(KEYS) > np.arange(QUERIES)[:, None] + KEYS - QUERIES
    p = np.exp(np.where(hidden, -np.inf, s))
    p /= p.sum(-1, keepdims=True)
    return s, np.einsum("hgqk,khd->qhgd", p, v).reshape(QUERIES, HEADS * HEAD)


def test_attention_with_grouped_queries_is_a_batched_multiply_with_groups():
    """Members of the gradients of K and V add up over the query heads that share a head."""
    program = attention()
    operands = drawn(program)
    result = program.reference(operands)
    q, k, v = (operands[x] for x in "QKV")
    s, o = plain_attention(q, k, v)
    np.testing.assert_allclose(result["S"].reshape(s.shape), s)
    np.testing.assert_allclose(result["O"], o)
    for name in "QKV":
        grad = np.zeros_like(operands[name])
        for place in np.ndindex(grad.shape):
            shift = {x: np.zeros_like(operands[x]) for x in "QKV"}
            shift[name][place] = 1e-6
            more, less = (
                plain_attention(*(operands[x] + sign * shift[x] for x in "QKV"))[1] for sign in (1, -1)
            )
            grad[place] = (operands["dO"] * (more - less)).sum() / 2e-6
        np.testing.assert_allclose(result[f"d{name}"], grad, atol=1e-7)
    seen = QUERIES * KEYS - QUERIES * (QUERIES - 1) // 2
    assert sum(program.flop_of_types.values()) == 6 * (2 * HEADS * QUERIES * KEYS * HEAD)
    assert program.flop == 6 * (2 * HEADS * seen * HEAD)  # what the mask drops is not useful


@st.composite
def batched(draw):
    """A batched multiply that conforms, and its tensors: any axes, groups, transposes."""
    batch = draw(st.integers(1, 6))
    divisors = st.sampled_from([d for d in range(1, batch + 1) if batch % d == 0])
    axes = draw(st.tuples(*[st.integers(0, 1)] * 3))
    groups = draw(st.tuples(divisors, divisors, divisors))
    trans = draw(st.sampled_from([(), ("a",), ("b",), ("a", "b")]))
    m, n, k = draw(st.tuples(*[st.integers(1, 3)] * 3))
    sizes = [(m, n), (k, m) if "a" in trans else (m, k), (n, k) if "b" in trans else (k, n)]
    tensors = []
    for name, size, axis, group, role in zip(
        "CAB", sizes, axes, groups, ("both", "input", "input"), strict=True
    ):
        shape = [size[0], size[1]]
        shape[axis] *= batch // group
        tensors.append(tensor(name, *shape, role))
    alpha, beta = draw(st.sampled_from([1.0, -2.0])), draw(st.sampled_from([0.0, 0.5]))
    return chain(tensors, Multiply("C", "A", "B", trans, alpha, beta, batch, axes, groups)), (m, n, k)


@given(batched())
def test_a_batched_multiply_is_one_einsum_over_its_members(drawn_chain):
    """C[i // gc] gets alpha · A[i // ga] · B[i // gb] of every member i."""
    program, (m, n, k) = drawn_chain
    (multiply,) = program.statements
    operands = drawn(program)
    groups = dict(zip("CAB", multiply.groups, strict=True))
    axes = dict(zip("CAB", multiply.batch_axes, strict=True))

    def stacked(name, array):
        return np.stack(np.split(array, multiply.batch // groups[name], axis=axes[name]))

    a = np.repeat(stacked("A", operands["A"]), groups["A"], axis=0)
    b = np.repeat(stacked("B", operands["B"]), groups["B"], axis=0)
    letters = ("ikm" if "a" in multiply.trans else "imk", "ink" if "b" in multiply.trans else "ikn")
    products = np.einsum(f"{letters[0]},{letters[1]}->imn", a, b)
    summed = products.reshape(-1, groups["C"], m, n).sum(axis=1)
    expected = multiply.alpha * summed + multiply.beta * stacked("C", operands["C"])
    result = program.reference(operands)["C"]
    np.testing.assert_allclose(stacked("C", result), expected, atol=1e-12)
    assert program.flop == 2 * multiply.batch * m * n * k


def test_an_mlp_block_with_bias_gelu_dropout_and_residual_has_the_right_gradients():
    """Backward by statements against differences of the forward half: weights, biases and input."""
    drop = {"rate": 0.25, "seed": 11}
    forward = (
        Multiply("H", "X", "W1"),
        Map("H", "bias", ("H", "b1")),
        Map("G", "gelu", ("H",)),
        Multiply("Z", "G", "W2"),
        Map("D", "dropout", ("Z",), drop),
        Map("Y", "add", ("D", "X")),
    )
    backward = (
        Map("dZ", "dropout", ("dY",), drop),
        Multiply("dW2", "G", "dZ", ("a",)),
        Multiply("dG", "dZ", "W2", ("b",)),
        Map("dH", "gelu_grad", ("H", "dG")),
        Map("db1", "col_sum", ("dH",)),
        Multiply("dW1", "X", "dH", ("a",)),
        Copy("dX", "dY"),
        Multiply("dX", "dH", "W1", ("b",), beta=1.0),
    )
    tensors = [
        *(tensor(x, 3, 4, "input", "row@2") for x in ("X", "dY")),
        *(tensor(x, 4, 5, role, "col") for x, role in (("W1", "input"), ("dW1", "output"))),
        *(tensor(x, 5, 4, role, "2d") for x, role in (("W2", "input"), ("dW2", "output"))),
        *(tensor(x, 1, 5, role, "row@4") for x, role in (("b1", "input"), ("db1", "output"))),
        *(tensor(x, 3, 5) for x in ("H", "G", "dG", "dH")),
        *(tensor(x, 3, 4) for x in ("Z", "D", "dZ")),
        *(tensor(x, 3, 4, "output") for x in ("Y", "dX")),
    ]
    program = chain(tensors, *forward, *backward)
    operands = drawn(program)
    result = program.reference(operands)
    assert 0 < (result["D"] == 0).sum() < 12
    for name in ("X", "W1", "b1", "W2"):
        expected = np.zeros_like(operands[name])
        for place in np.ndindex(expected.shape):
            shift = np.zeros_like(expected)
            shift[place] = 1e-6
            more, less = (
                program.reference(operands | {name: operands[name] + sign * shift})["Y"] for sign in (1, -1)
            )
            expected[place] = (operands["dY"] * (more - less)).sum() / 2e-6
        np.testing.assert_allclose(result[f"d{name}"], expected, atol=1e-7)
    assert (program.operand_names, program.outputs) == (
        ("X", "dY", "W1", "W2", "b1"),
        ("dW1", "dW2", "db1", "Y", "dX"),
    )


def test_a_chain_has_one_reference_before_and_after_it_is_laid_out():
    outline = umm.chain("gated-mlp", hidden=5, ffn=7, tokens=3, backward=True, dtype="float64")
    chain = outline.laid_out("megatron", ranks=4)
    random, shape_of = np.random.default_rng(8), {x.name: x.shape for x in chain.tensors}
    operands = {name: random.standard_normal(shape_of[name]) for name in chain.operand_names}
    wanted, result = chain.reference(operands), outline.reference(operands)
    assert result.keys() == wanted.keys() >= {"Y", "dX", "dW1"}
    assert all(np.array_equal(result[name], wanted[name]) for name in wanted)


def test_a_sum_adds_what_the_replicas_were_given():
    """2 replicas with partial sums, and one matrix that both hold; the last is an all-reduce in place."""
    x, y = np.arange(12.0).reshape(2, 2, 3), np.ones((2, 3))
    program = chain(
        [
            tensor("X", 2, 3, "input", "col@2"),
            tensor("Y", 2, 3, "both", "col@2"),
            tensor("Z", 2, 3, "output", "row"),
        ],
        Sum("Z", "X"),
        Sum("Y", "Y"),
    )
    result = program.reference({"X": x, "Y": y})
    assert result["Z"].tolist() == [[6, 8, 10], [12, 14, 16]]
    assert result["Y"].tolist() == [[2, 2, 2], [2, 2, 2]]
    assert y.max() == 1


def test_replicas_that_differ_are_read_by_a_sum_alone():
    program = chain([tensor("X", 2, 3, "input", "col@2"), tensor("Y", 2, 3, "output")], Copy("Y", "X"))
    with pytest.raises(ProblemError, match="replicas of X hold different values, which Y = copy of X cannot"):
        program.reference({"X": np.zeros((2, 2, 3))})


@pytest.mark.parametrize(
    ("operands", "why"),
    [
        ({}, "operand X of chain test is missing; it takes X"),
        ({"X": np.zeros((3, 2))}, r"has shape \(3, 2\); it must be \(2, 3\), or \(2, 2, 3\) with a slice"),
        ({"X": np.zeros((2, 3)), "Z": 0}, "'Z' is not an operand of chain test; it takes X"),
    ],
)
def test_operands_must_be_those_of_the_chain(operands, why):
    program = chain([tensor("X", 2, 3, "input", "col@2"), tensor("Y", 2, 3, "output")], Copy("Y", "X"))
    with pytest.raises(ProblemError, match=why):
        program.reference(operands)


# Files ----------------------------------------------------------------------------------------------

NAMES = ("X", "Y", "Z", "T.1", "U_2")
MAPS = {
    1: [
        ("gelu", {}),
        ("scale", {"factor": 0.5}),
        ("dropout", {"rate": 0.125, "seed": 2**60}),
        ("rope", {"head": 2}),
    ],
    2: [("add", {}), ("mul", {})],
}


@st.composite
def chains(draw):
    """2 to 6 statements on square tensors of any layouts, each reading existing tensors."""
    ranks, size = draw(st.integers(1, 6)), draw(st.sampled_from([2, 4, 6]))
    roles = ["input", *(draw(st.sampled_from(["input", "both", "work"])) for _ in NAMES[1:])]
    names = [name for name, role in zip(NAMES, roles, strict=True) if role != "work"]
    statements = []
    for _ in range(draw(st.integers(2, 6))):
        writable = [name for name, role in zip(NAMES, roles, strict=True) if role != "input"]
        out = draw(st.sampled_from(writable or ["last"]))
        known = st.sampled_from(names)
        others = st.sampled_from([x for x in names if x != out] or ["X"])
        kind = draw(st.sampled_from(["multiply", "map", "copy"]))
        if kind == "multiply":
            statements.append(
                Multiply(
                    out,
                    draw(others),
                    draw(others),
                    draw(st.sampled_from([(), ("a",), ("b",), ("a", "b")])),
                    draw(st.sampled_from([1, -0.5])),
                    draw(st.sampled_from([0, 1, 0.25])) if out in names else 0,
                    **draw(st.sampled_from([{}, {"batch": 2, "groups": (2, 2, 2), "batch_axes": (1, 0, 1)}])),
                )
            )
        elif kind == "map":
            reads = draw(st.integers(1, 2))
            name, parameters = draw(st.sampled_from(MAPS[reads]))
            statements.append(Map(out, name, tuple(draw(known) for _ in range(reads)), parameters))
        else:
            statements.append(Copy(out, draw(others)))
        names.append(out)
    writes = {x.out for x in statements}
    named = dict(zip(NAMES, roles, strict=True)) | ({"last": "output"} if "last" in writes else {})
    tensors = []
    for name, role in named.items():
        fit = "input" if role == "both" and name not in writes else role
        tensors.append(tensor(name, size, size, fit, draw(layout_texts((size, size), ranks)), ranks=ranks))
    return chain(tensors, *statements, ranks=ranks)


@given(chains())
def test_a_chain_comes_back_from_json_as_it_was(program):
    again = Chain.from_dict(json.loads(json.dumps(program.to_dict())))
    assert again == program
    assert hash(again) == hash(program)
    operands = drawn(program)
    result = program.reference(operands)
    assert list(result) == list(again.reference(operands))
    assert set(result) == {x.out for x in program.statements}


ODD = (None, True, False, 0, 1, 2, -1, 2**70, 1.0, 0.5, float("nan"), "", "X", "row", [], [[]], {}, ["a"])
DEFAULTS = {"alpha": 1, "beta": 0, "batch": 1, "trans": [], "reads": [], "parameters": {}}


def paths(data, above=()):
    """Every place in nested lists and objects."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*above, key)
        yield from paths(value, (*above, key))


def same(given_, taken):
    """Whether a value was taken as it was given: no bool or text for a number, and nothing left out."""
    if isinstance(given_, dict) and isinstance(taken, dict):
        left_out = {key for key in given_.keys() - taken.keys() if not same(given_[key], DEFAULTS.get(key))}
        return not left_out and all(same(given_.get(key), value) for key, value in taken.items())
    if isinstance(given_, list) and isinstance(taken, list):
        return len(given_) == len(taken) and all(map(same, given_, taken))
    return given_ == taken and isinstance(given_, bool) == isinstance(taken, bool)


@given(chains(), st.data())
def test_a_changed_file_is_refused_or_taken_as_it_says(program, data):
    text = json.dumps(program.to_dict())
    changed = json.loads(text)
    *above, last = data.draw(st.sampled_from(list(paths(changed))))
    inner = changed
    for key in above:
        inner = inner[key]
    inner[last] = data.draw(st.sampled_from(ODD))
    try:
        taken = Chain.from_dict(changed).to_dict()
    except InputError:
        return
    assert same(changed, taken)


X, Y = tensor("X", 4, 6, "input").to_dict(), tensor("Y", 4, 6, "output").to_dict()
COPY = {"kind": "copy", "out": "Y", "x": "X"}
GOOD = {"name": "test", "ranks": RANKS, "tensors": [X, Y], "statements": [COPY]}
MULTIPLY = {"kind": "multiply", "out": "Y", "a": "X", "b": "X"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ranks": 4.0}, "ranks of a chain = 4.0 is not possible; it must be a whole number ≥ 1"),
        ({"ranks": 2**40}, "and < 1048577"),
        ({"name": "a\nb"}, "cannot name a chain; write 1 to 64 printable characters"),
        ({"tensors": {"X": X}}, "tensors of a chain must be a list"),
        ({"colour": 1}, "a chain has no key 'colour'; choose from name, ranks, tensors, statements"),
        ({"tensors": [X, X]}, "two tensors are named X"),
        (
            {"statements": [7]},
            "7 is not a statement; its kind must be one of attention, attention_grad, combine",
        ),
        ({"statements": [COPY | {"kind": []}]}, "is not a statement; its kind must be"),
        ({"statements": [COPY | {"x": None}]}, "x = None of a copy is not a name"),
        ({"statements": [COPY | {"y": "X"}]}, "a copy has no key 'y'; choose from kind, out, x"),
        ({"statements": [{"kind": "copy", "out": "Y"}]}, "a copy lacks 'x'"),
        ({"statements": [MULTIPLY | {"trans": "b"}]}, "trans = 'b' of a multiply is not a list of names"),
        ({"statements": [MULTIPLY | {"trans": ["c"]}]}, r"choose \(\), \(\"a\",\), \(\"b\",\)"),
        ({"statements": [MULTIPLY | {"alpha": True}]}, "must be a finite number"),
        ({"statements": [MULTIPLY | {"batch": 2.0}]}, "batch of Y = X·X.* must be a whole number ≥ 1"),
        ({"statements": [MULTIPLY | {"batch": 0}]}, "must be a whole number ≥ 1"),
        ({"statements": [MULTIPLY | {"groups": [1, 1.0, 1]}]}, "is not a list of whole numbers"),
        ({"statements": [MULTIPLY | {"batch_axes": [0, 0]}]}, "must have three numbers, for Y, X, X"),
        ({"statements": [MULTIPLY | {"batch_axes": [0, 2, 0]}]}, "must be a whole number ≥ 0 and < 2"),
        ({"statements": [MULTIPLY | {"batch": 4, "groups": [3, 1, 1]}]}, "groups must divide 4"),
        ({"statements": [{"kind": "map", "out": "Y", "fn": "gelo"}]}, "choose from add, bias"),
        ({"statements": [{"kind": "map", "out": "Y", "fn": "gelu", "reads": [1]}]}, "not a list of names"),
        ({"statements": [{"kind": "map", "out": "Y", "fn": "scale", "parameters": 2}]}, "is not an object"),
        (
            {"statements": [{"kind": "map", "out": "Y", "fn": "scale", "reads": ["X"]}]},
            "scale needs a parameter",
        ),
    ],
)
def test_what_is_not_a_chain_is_refused_in_one_line(change, why):
    with pytest.raises(InputError, match=why) as error:
        Chain.from_dict(GOOD | change)
    assert "\n" not in str(error.value)


STORE = [
    tensor("X", 4, 6, "input"),
    tensor("W", 6, 8, "input"),
    tensor("half", 6, 8, "input", dtype="float16"),
    tensor("b", 1, 8, "input"),
    tensor("H", 4, 8),
    tensor("T", 4, 8),
]


@pytest.mark.parametrize(
    ("statements", "why"),
    [
        ([Multiply("H", "X", "X")], "4x6 times 4x6 cannot give 4x8; it needs m x k times k x n for m x n"),
        ([Multiply("H", "W", "X", ("a", "b"))], "8x6 times 6x4 cannot give 4x8"),
        ([Multiply("H", "X", "half")], "X is float64 and half float16; make them one type by map cast"),
        ([Multiply("H", "X", "W", batch=3)], "4 rows of H cannot be cut into 3 equal members"),
        ([Multiply("H", "X", "W", beta=1.0)], "H is read before it is written; write it first"),
        ([Multiply("H", "X", "V")], "there is no tensor 'V'; choose from X, W, half, b, H, T"),
        ([Multiply("W", "X", "W")], "W is an input and never written; give it role both"),
        ([Map("H", "gelu", ("T",))], "T is read before it is written; write it first, or make it an input"),
        ([Map("H", "bias", ("X", "b"))], "bias is rc,1c->rc, not 4x6, 1x8 -> 4x8"),
        ([Map("H", "zero"), Map("T", "rope", ("H",), {"head": 6})], "head = 6 does not divide its columns"),
        ([Copy("H", "X")], "X is 4x6 and H 4x8; they must have one shape"),
        ([Map("H", "zero"), Copy("H", "H")], "H is copied to itself; leave it out"),
        (
            [Map("H", "zero"), Multiply("H", "H", "H")],
            "it reads H while it writes it; write to another tensor",
        ),
        ([Map("H", "zero"), Sum("T", "H")], "the replicas of H are alike after it is computed; sum only"),
    ],
)
def test_a_statement_that_does_not_fit_its_tensors_is_named(statements, why):
    with pytest.raises(ProblemError, match=why) as error:
        chain(STORE, *statements)
    last = len(statements) - 1
    assert str(error.value).startswith(f"statement {last} of chain test, {statements[-1]}: ")
    assert "\n" not in str(error.value)


def test_copies_and_sums_keep_the_type():
    tensors = [tensor("X", 4, 6, "input"), tensor("Y", 4, 6, "output", dtype="float32")]
    for statement in (Copy("Y", "X"), Sum("Y", "X")):
        with pytest.raises(ProblemError, match="X is float64 and Y float32; convert by map cast"):
            chain(tensors, statement)
    assert chain(tensors, Map("Y", "cast", ("X",))).outputs == ("Y",)


def test_more_work_than_can_be_counted_is_refused():
    """Members that share everything make any number of multiplies out of two small matrices."""
    shared = {"batch": 2**30, "groups": (2**30,) * 3}
    tensors = [tensor("X", 2**11, 2**11, "input"), tensor("Y", 2**11, 2**11, "output")]
    with pytest.raises(ProblemError, match=r"2\^64 flop .* must stay below 2\^60"):
        chain(tensors, Multiply("Y", "X", "X", **shared))


def test_what_goes_in_and_comes_out_needs_no_statement():
    given = np.arange(24.0).reshape(4, 6)
    nothing = chain([tensor("X", 4, 6, "both")])
    assert nothing.outputs == ("X",)
    assert np.array_equal(nothing.reference({"X": given})["X"], given)


def test_an_output_that_nothing_writes_and_a_tensor_on_other_ranks_are_refused():
    with pytest.raises(ProblemError, match="no statement of chain test writes Y, which has role output"):
        chain([tensor("Y", 4, 6, "output")])
    with pytest.raises(ProblemError, match="tensor Y is laid out over 2 ranks, but chain test has 4"):
        chain([tensor("Y", 4, 6, "output", ranks=2)], Map("Y", "zero"))


@pytest.mark.parametrize("layout", ["row@2", "2d:2x2", "row@4", "2d:2x1@2"])
def test_an_input_may_be_given_in_replicas_or_on_a_grid(layout):
    """It was refused, for the chain was checked with it on one rank."""
    outline, machine = umm.chain("mlp", hidden=8, ffn=12, tokens=4), umm.machine("h100-8")
    x, w1, w2 = (np.arange(i * j, dtype=np.float32).reshape(i, j) % 5 for i, j in ((4, 8), (8, 12), (12, 8)))
    result, wanted = (
        umm.run(
            umm.schedule(each.laid_out("megatron", 4), machine),
            executor="numpy",
            operands={"X": x, "W1": w1, "W2": w2},
        ).results["Y"]
        for each in (outline.with_given({"X": layout}), outline)
    )
    assert np.allclose(result, wanted)

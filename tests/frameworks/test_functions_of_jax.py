"""Functions of JAX as chains, against JAX's own results, and layers in a scan."""

import re

import numpy as np
import pytest
from command import record
from hostile import hostile_texts

from umm.errors import InputError
from umm.jax import chain

jax = pytest.importorskip("jax", reason="JAX is not installed; make test-frameworks has it")
jnp = jax.numpy


def layer(x, g, q, k, v, o, up, down):
    """A layer without positions: causal attention of heads, an MLP, both of a normalised input."""
    normed = x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g
    queries, keys, values = (jnp.einsum("bsk,khd->bshd", normed, w) for w in (q, k, v))
    scores = jnp.einsum("bshd,bthd->bhst", queries, keys) / q.shape[-1] ** 0.5
    seen = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1)
    x = x + jnp.einsum("bshd,hdk->bsk", jnp.einsum("bhst,bthd->bshd", shares, values), o)
    return x + jax.nn.silu(x @ up) @ down


def test_a_chain_computes_the_function():
    rng = np.random.default_rng(0)
    shapes = [(2, 8, 16), (16,), *[(16, 2, 8)] * 3, (2, 8, 16), (16, 32), (32, 16)]
    arrays = [rng.standard_normal(x).astype(np.float32) for x in shapes]
    result = chain(layer, *arrays)
    assert (result.share, result.unknown) == (1.0, {})
    program = result.chain.laid_out(ranks=1)
    names = {"X": arrays[0], **dict(zip(("g", "q", "k", "v", "o", "up", "down"), arrays[1:], strict=True))}
    operands = {x.name: names[x.name].reshape(x.shape) for x in program.tensors if x.is_input}
    expected = np.asarray(layer(*arrays)).reshape(16, 16)
    np.testing.assert_allclose(program.reference(operands)["Y"], expected, rtol=0, atol=1e-3)
    (attention,) = [x for x in program.statements if x.kind == "attention"]
    assert (attention.causal, attention.sequences, attention.head) == (True, 2, 8)


def attention(change=lambda s: s, axis=-1):
    """Attention of heads, scores changed before their softmax."""

    def attends(q, k, v):
        q, k, v = (x.reshape(2, 8, 4, 4) for x in (q, q @ k, q @ v))
        scores = change(jnp.einsum("bshd,bthd->bhst", q, k))
        return jnp.einsum("bhst,bthd->bshd", jax.nn.softmax(scores, axis), v).reshape(16, 16)

    return attends


def of_shares(shares):
    """Attention of heads by a function in place of their softmax."""

    def attends(q, k, v):
        q, k, v = (x.reshape(2, 8, 4, 4) for x in (q, q @ k, q @ v))
        scores = shares(jnp.einsum("bshd,bthd->bhst", q, k))
        return jnp.einsum("bhst,bthd->bshd", scores, v).reshape(16, 16)

    return attends


AT = np.arange(8)
COMPUTED = {
    "a factor": (attention(lambda s: 0.3 * s), [(16, 16)] * 3),
    "parts of a product": (lambda q, k: jax.nn.glu(q @ k), [(6, 10), (10, 28)]),
    "a matrix by itself": (lambda q: q @ q.T, [(6, 10)]),
    "a weight and its transpose": (
        lambda q, k: (lambda t: jnp.einsum("sk,nk->sn", q, k) @ t.T)(k.T),
        [(6, 10), (14, 10)],
    ),
    "a number in an array": (lambda q, k: np.array([3.0]) * (q @ k), [(6, 10), (10, 14)]),
    "an exact gelu": (lambda q, k: jax.nn.gelu(q @ k, approximate=False), [(6, 10), (10, 14)]),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_a_chain_computes(name):
    f, shapes = COMPUTED[name]
    arrays = [np.random.default_rng(0).standard_normal(x).astype(np.float32) for x in shapes]
    result = chain(f, *arrays)
    assert (result.share, result.unknown, result.left_out) == (1.0, {}, {})
    program = result.chain.laid_out(ranks=1)
    named = dict(zip("Xkv", arrays, strict=False))
    parts = {f"k.{i}": x for i, x in enumerate(np.split(named.get("k", arrays[0]), 2, axis=1))}
    operands = {x.name: (named | parts)[x.name] for x in program.tensors if x.is_input}
    np.testing.assert_allclose(program.reference(operands)["Y"], f(*arrays), rtol=0, atol=1e-3)


def _exponentials(s):
    return jnp.exp(s - s.max(-1, keepdims=True))


stopped = jax.lax.stop_gradient
GRADIENTS = {
    "a factor that is stopped": lambda x, w: (lambda h: h * stopped(h))(x @ w),
    "a gradient passed through": lambda x, w: (lambda h: h + stopped(jnp.tanh(h) - h))(x @ w),
    "a softmax": lambda x, w: jax.nn.softmax(x @ w),
    "a softmax by hand": lambda x, w: _exponentials(x @ w) / _exponentials(x @ w).sum(-1, keepdims=True),
    "a logarithm of sums": lambda x, w: (
        jax.nn.log_softmax(x @ w) - jax.nn.logsumexp(x @ w, -1, keepdims=True)
    ),
    "a variance": lambda x, w: (x @ w) * jax.lax.rsqrt((x @ w).var(-1, keepdims=True) + 1e-5),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_the_functions(name):
    f, rng = GRADIENTS[name], np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(size).astype(np.float32) for size in ((6, 10), (10, 14), (6, 14)))
    result = chain(f, x, w)
    assert (result.unknown, result.left_out) == ({}, {})
    results = result.with_gradients().chain.laid_out(ranks=1).reference({"X": x, "w": w, "dY": dy})
    y, back = jax.vjp(f, x, w)
    for name_, expected in zip(("Y", "dX", "dw"), (y, *back(dy)), strict=True):
        np.testing.assert_allclose(results[name_], expected, rtol=0, atol=2e-4)


@jax.custom_vjp
def reversed_back(x):
    return x


reversed_back.defvjp(lambda x: (x, None), lambda _, dy: (-dy,))


@pytest.mark.parametrize(
    ("f", "why"),
    [
        (lambda x, w: stopped(x @ w) @ w.T, "without gradient is read by more than a map"),
        (lambda x, w: reversed_back(x @ w), "its own custom_vjp"),
    ],
)
def test_gradients_that_no_rule_gives_are_refused(f, why):
    result = chain(f, np.ones((6, 10), np.float32), np.ones((10, 14), np.float32))
    assert result.share == 1
    with pytest.raises(InputError, match=why):
        result.with_gradients()


@pytest.mark.parametrize(
    ("f", "operation"),
    [
        (lambda x, w: (x @ w).astype(jnp.int32).astype(jnp.float32) @ w.T, "convert_element_type"),
        (
            lambda x, w: jax.nn.one_hot(jnp.arange(6) + x[0, 0].astype(int), 14) * (x @ w),
            "convert_element_type",
        ),
    ],
)
def test_casts_to_integers_are_not_understood(f, operation):
    assert operation in chain(f, np.ones((6, 10), np.float32), np.ones((10, 14), np.float32)).unknown


def test_what_a_barrier_passes_on_is_each_array_it_takes():
    """The second was taken for the first."""
    x, w = np.ones((6, 10), np.float32), np.ones((10, 10), np.float32)
    program = chain(lambda x, w: jax.lax.optimization_barrier((x @ w, 2 * x))[1] @ w, x, w).chain.laid_out(
        ranks=1
    )
    assert (program.reference({"X": x, "w": w})["Y"] == 20).all()


@pytest.mark.parametrize(
    "f",
    [
        attention(axis=1),
        attention(axis=2),
        attention(lambda s: s + s),
        of_shares(lambda s: s / s.sum(-1, keepdims=True)),
        of_shares(lambda s: _exponentials(s) / (1 + _exponentials(s).sum(-1, keepdims=True))),
        of_shares(lambda s: _exponentials(_exponentials(s)) / _exponentials(s).sum(-1, keepdims=True)),
        attention(lambda s: 2 * jax.nn.softmax(s)),
        attention(lambda s: jnp.where(AT[:, None] >= AT, s, 0.0)),
    ],
)
def test_what_is_no_attention_is_not_taken_for_one(f):
    with pytest.raises(InputError, match="no statement is"):
        chain(f, *[np.ones((16, 16), np.float32)] * 3)


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (
            lambda s: jnp.where(abs(AT[:, None] - AT) < 3, s, -1e30),
            "a mask that is no window of earlier keys",
        ),
        (lambda s: s - abs(AT[:, None] - AT), "a bias of scores"),
        (lambda s: 5 * jnp.tanh(s / 5), "a cap of scores"),
    ],
)
def test_what_is_not_kept_of_scores_is_named(change, note):
    assert chain(attention(change), *[np.ones((16, 16), np.float32)] * 3).left_out == {note: 1}


def model(tokens, weights):
    def step(x, w):
        return x + (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"], None

    x, _ = jax.lax.scan(jax.checkpoint(step), weights["table"][tokens], weights["layers"])
    return jax.nn.log_softmax(x @ weights["table"].T)


def test_steps_of_a_scan_are_layers():
    shape = jax.ShapeDtypeStruct
    stacked = {
        name: shape((3, *size), jnp.bfloat16)
        for name, size in (("gate", (16, 64)), ("up", (16, 64)), ("down", (64, 16)))
    }
    weights = {"table": shape((100, 16), jnp.bfloat16), "layers": stacked}
    result = chain(model, shape((2, 8), jnp.int32), weights)
    assert [(x.block, x.count) for x in result.parts] == [("", 1), ("scan1", 3), ("", 1)]
    assert [x.kind for x in result.chain.statements] == ["multiply", "multiply", "map", "multiply", "map"]
    assert result.flop == 2 * 16 * (3 * 3 * 16 * 64 + 16 * 100)
    assert sum(x.count * x.outline.laid_out(ranks=1).flop for x in result.parts) == result.flop
    assert {x.dtype for x in result.chain.tensors} == {"bfloat16"}


def test_mistakes_are_refused_in_a_line():
    with pytest.raises(InputError, match="int is no function"):
        chain(3)
    with pytest.raises(InputError, match="JAX refuses"):
        chain(jnp.matmul, jax.ShapeDtypeStruct((2, 3), "float32"), jax.ShapeDtypeStruct((4, 5), "float32"))
    with pytest.raises(InputError, match="no multiply"):
        chain(jnp.tanh, jax.ShapeDtypeStruct((2, 3), "float32"))


def test_hostile_keys_of_weights_are_names_of_tensors():
    """100 weights in a dictionary, each under its text."""
    weights = {x: jnp.ones((4, 4)) for x in hostile_texts(100)}

    def f(x, weights):
        for one in weights.values():
            x = x @ one
        return x

    names = [x.name for x in chain(f, jnp.ones((2, 4)), weights).chain.tensors]
    assert len(names) == len(set(names)) > 2 * len(weights)
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", x) for x in names)


def test_a_function_is_simulated_searched_and_compared_at_the_command_line(tmp_path, monkeypatch):
    """Two multiplies of 2.1 Gflop each; rows need no exchange, tensor parallelism one sum."""
    (tmp_path / "my_functions.py").write_text(
        "import jax\n"
        "def mlp():\n"
        "    shapes = [jax.ShapeDtypeStruct(x, 'float32') for x in ((1024, 512), (512, 2048), (2048, 512))]\n"
        "    return lambda x, up, down: jax.nn.relu(x @ up) @ down, shapes\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["--module", "my_functions:mlp", "--machine", "h100-8", "--ranks", "4"]
    simulated = record("simulate", *asked, "--layouts", "data")["predicted"]
    assert simulated["get_bytes"] == simulated["reduce_bytes"] == 0
    best = record("search", *asked)["top"][0]
    rows = {x["algorithm"]: x for x in record("peers", *asked)["rows"]}
    assert best["makespan_s"] <= rows["data"]["makespan_s"] == pytest.approx(simulated["makespan_s"])
    assert rows["data"]["bytes"] == 0 < rows["megatron"]["bytes"]

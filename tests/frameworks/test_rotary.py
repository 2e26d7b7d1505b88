"""Rotary positions as models write them, in torch and JAX: values and gradients of their chains."""

import re
import runpy

import numpy as np
import pytest

import umm.jax
import umm.torch
from umm.emit.chains.program import emit_chain
from umm.executor import executor
from umm.plans.lower import lower

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
jax = pytest.importorskip("jax", reason="JAX is not installed; make test-frameworks has it")
jnp, F = jax.numpy, torch.nn.functional

MACHINE = umm.machine("h100-8")
SEQUENCES, TOKENS, HEADS, HEAD = 2, 6, 2, 8
WIDE = HEADS * HEAD


def angles(base, turned=HEAD, first=0, slower=1.0):
    """Angles by position and pair of columns; `slower` divides the later half of the frequencies."""
    pair = np.arange(0, turned, 2)
    return (
        (first + np.arange(TOKENS))[:, None]
        * base ** (-pair / turned)
        / np.where(2 * pair < turned, 1, slower)
    )


def rotate_half(lib, x):
    half = x.shape[-1] // 2
    parts = -x[..., half:], x[..., :half]
    return torch.cat(parts, -1) if lib is torch else jnp.concatenate(parts, -1)


def added(lib, x, angle):
    """As in Hugging Face's Llama."""
    cos, sin = (lib.asarray(np.tile(f(angle), 2))[:, None] for f in (np.cos, np.sin))
    return x * cos + rotate_half(lib, x) * sin


def twice(lib, x, angle):
    """No rotation: the first half times cosines is added once more."""
    half = x.shape[-1] // 2
    one, other = x[..., :half], x[..., half:]
    cos, sin = (lib.asarray(f(angle))[:, None] for f in (np.cos, np.sin))
    return torch.cat([one * cos - other * sin + one * cos, other * cos + one * sin], -1)


def beside(lib, x, angle):
    """As in gpt-oss: halves turned apart."""
    cos, sin = (lib.asarray(f(angle))[:, None] for f in (np.cos, np.sin))
    half = x.shape[-1] // 2
    one, other = x[..., :half], x[..., half:]
    parts = one * cos - other * sin, other * cos + one * sin
    return torch.cat(parts, -1) if lib is torch else jnp.concatenate(parts, -1)


def neighbours(lib, x, angle):
    """As in DeepSeek: neighbours are turned, and even columns put before odd ones."""
    cos, sin = (lib.asarray(f(angle))[:, None] for f in (np.cos, np.sin))
    even, odd = x[..., ::2], x[..., 1::2]
    parts = even * cos - odd * sin, odd * cos + even * sin
    return torch.cat(parts, -1) if lib is torch else jnp.concatenate(parts, -1)


def stacked(lib, x, angle):
    """As in Cohere's: neighbours are turned where they are."""
    cos, sin = (lib.asarray(np.repeat(f(angle), 2, axis=1))[:, None] for f in (np.cos, np.sin))
    parts = -x[..., 1::2], x[..., ::2]
    return x * cos + (torch if lib is torch else jnp).stack(parts, -1).reshape(x.shape) * sin


def apart(lib, x, angle):
    """As in RoFormer: columns as pairs, turned and put together again."""
    cos, sin = (lib.asarray(f(angle))[:, None] for f in (np.cos, np.sin))
    pairs = x.reshape(*x.shape[:-1], -1, 2)
    even, odd = pairs[..., 0], pairs[..., 1]
    parts = even * cos - odd * sin, even * sin + odd * cos
    return (torch if lib is torch else jnp).stack(parts, -1).reshape(x.shape)


def partly(lib, x, angle):
    """As in Phi: the first columns of a head alone are turned."""
    turned = 2 * angle.shape[1]
    parts = added(lib, x[..., :turned], angle), x[..., turned:]
    return torch.cat(parts, -1) if lib is torch else jnp.concatenate(parts, -1)


WRITTEN = {
    "halves": (added, angles(10000.0)),
    "the base of Llama 3": (added, angles(500000.0)),
    "an odd base": (added, angles(12345.0)),
    "later positions": (added, angles(500000.0, first=7)),
    "halves apart": (beside, angles(500000.0)),
    "neighbours": (neighbours, angles(500000.0)),
    "neighbours swapped and stacked": (stacked, angles(500000.0)),
    "pairs turned and stacked": (apart, angles(500000.0)),
    "a part of the columns": (partly, angles(500000.0, turned=4)),
}


class Attends(torch.nn.Module):
    """Causal attention of heads, its queries and keys turned."""

    def __init__(self, turn, angle):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(WIDE, WIDE, bias=False) for _ in range(3))
        self.turn, self.angle = turn, angle

    def forward(self, x):
        q, k, v = (y(x).view(SEQUENCES, TOKENS, HEADS, HEAD) for y in (self.q, self.k, self.v))
        q, k = (self.turn(torch, y, self.angle) for y in (q, k))
        made = F.scaled_dot_product_attention(*(y.transpose(1, 2) for y in (q, k, v)), is_causal=True)
        return made.transpose(1, 2).reshape(SEQUENCES, TOKENS, WIDE)


def attends(turn, angle):
    """The same as a function of JAX."""

    def f(x, q, k, v):
        q, k, v = ((x @ w).reshape(SEQUENCES, TOKENS, HEADS, HEAD) for w in (q, k, v))
        q, k = (turn(jnp, y, angle) for y in (q, k))
        scores = jnp.einsum("bshd,bthd->bhst", q, k) / HEAD**0.5
        seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
        shares = jax.nn.softmax(jnp.where(seen, scores, -1e30), -1)
        return jnp.einsum("bhst,bthd->bshd", shares, v).reshape(SEQUENCES, TOKENS, WIDE)

    return f


@pytest.fixture(params=WRITTEN)
def written(request):
    return WRITTEN[request.param]


def test_turned_queries_and_keys_of_torch_have_the_modules_values_and_gradients(written):
    torch.manual_seed(0)
    module = Attends(*written).double()
    x = torch.randn(SEQUENCES, TOKENS, WIDE, dtype=torch.float64, requires_grad=True)
    result = umm.torch.chain(module, (x.detach(),))
    assert (result.unknown, result.left_out) == ({}, {})
    y = module(x)
    dy = torch.randn_like(y)
    y.backward(dy)
    weights = {name.removesuffix(".weight"): w.detach().numpy().T for name, w in module.named_parameters()}
    operands = {z: w.detach().reshape(-1, WIDE).numpy() for z, w in (("X", x), ("dY", dy))} | weights
    results = result.with_gradients().chain.laid_out(ranks=1).reference(operands)
    np.testing.assert_allclose(results["Y"], y.detach().reshape(-1, WIDE), rtol=0, atol=1e-6)
    np.testing.assert_allclose(results["dX"], x.grad.reshape(-1, WIDE), rtol=0, atol=1e-5)
    for name in "qkv":
        gradient = getattr(module, name).weight.grad.numpy().T
        np.testing.assert_allclose(results[f"d{name}"], gradient, rtol=0, atol=1e-5)


def test_turned_queries_and_keys_of_jax_have_the_functions_values(written):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((SEQUENCES, TOKENS, WIDE)).astype(np.float32)
    weights = [rng.standard_normal((WIDE, WIDE)).astype(np.float32) / 4 for _ in "qkv"]
    f = attends(*written)
    result = umm.jax.chain(f, x, *weights)
    assert (result.unknown, result.left_out) == ({}, {})
    operands = {"X": x.reshape(-1, WIDE), **dict(zip("qkv", weights, strict=True))}
    y = result.chain.laid_out(ranks=1).reference(operands)["Y"]
    np.testing.assert_allclose(y, np.asarray(f(x, *weights)).reshape(-1, WIDE), rtol=0, atol=1e-4)


def test_turned_halves_run_on_ranks_as_the_module_does():
    """Heads stay whole where columns are cut: Megatron's layouts, on two virtual ranks."""
    torch.manual_seed(0)
    module = Attends(added, angles(500000.0)).double()
    x = torch.randn(SEQUENCES, TOKENS, WIDE, dtype=torch.float64)
    program = umm.torch.chain(module, (x,)).with_gradients().chain.laid_out("megatron", 2)
    operands = {name.removesuffix(".weight"): w.detach().numpy().T for name, w in module.named_parameters()}
    operands |= {"X": x.reshape(-1, WIDE).numpy(), "dY": x.reshape(-1, WIDE).numpy()}
    run = executor("numpy").run(lower(program, MACHINE), operands=operands)
    expected = program.reference(operands)
    for name in ("Y", "dX", "dq", "dk", "dv"):
        np.testing.assert_allclose(run.results[name], expected[name], rtol=0, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("name", ["the base of Llama 3", "a part of the columns"])
@pytest.mark.parametrize("target", ["torch", "jax"])
def test_emitted_programs_turn_halves_as_the_module_does(target, name, tmp_path):
    torch.manual_seed(0)
    module = Attends(*WRITTEN[name]).double()
    x = torch.randn(SEQUENCES, TOKENS, WIDE, dtype=torch.float64)
    program = umm.torch.chain(module, (x,)).chain.laid_out("megatron", 2)
    text = emit_chain(target, umm.run(lower(program, MACHINE), "sim"), MACHINE, "")
    # Run in this process its first lines would set the number of devices of all tests.
    text = text.replace("if jax.device_count() < RANKS:", "if False:").replace(
        "MESH = Mesh(", "MESH = None and Mesh("
    )
    path = tmp_path / "layer.py"
    path.write_text(re.sub(r"^os\.environ\[.*\n", "", text, flags=re.MULTILINE))
    emitted, tokens = runpy.run_path(str(path)), x.reshape(-1, WIDE)
    weights = {y.removesuffix(".weight"): w.detach() for y, w in module.named_parameters()}
    if target == "jax":
        values = {y: w.numpy().T.astype(np.float32) for y, w in weights.items()}
        made = emitted["layer"](values | {"X": tokens.numpy().astype(np.float32)})["Y"]
    else:
        block = emitted["Block"]().double()
        block.load_state_dict({f"{y}.weight": w for y, w in weights.items()})
        made = block(tokens).detach()
    np.testing.assert_allclose(made, module(x).detach().reshape(-1, WIDE), rtol=0, atol=1e-5)


def test_tables_of_no_one_base_are_named():
    """Those of Llama 3.1, which turn slowly later, and one angle for all columns of a position."""
    x, w = np.ones((SEQUENCES, TOKENS, WIDE)), np.ones((WIDE, WIDE))
    named = {"rotary positions of no single base, taken as of base 10,000": 2}
    for turn, angle in ((added, angles(500000.0, slower=8.0)), (beside, angles(500000.0)[:, :1])):
        assert umm.torch.chain(Attends(turn, angle).double(), (torch.from_numpy(x),)).left_out == named
        assert umm.jax.chain(attends(turn, angle), x, w, w, w).left_out == named


@pytest.mark.parametrize(
    ("swapped", "angle"),
    [
        (lambda lib, x, _: torch.cat([x[..., HEAD // 2 :], x[..., : HEAD // 2]], -1), None),
        (lambda lib, x, _: torch.cat([2 * x[..., : HEAD // 2], x[..., HEAD // 2 :]], -1), None),
        (lambda lib, x, _: torch.cat([x[..., : HEAD // 2], x[..., : HEAD // 2]], -1), None),
        (lambda lib, x, _: x + rotate_half(lib, x), None),
        (twice, angles(500000.0)),
    ],
)
def test_halves_beside_each_other_are_not_taken_for_turned_ones(swapped, angle):
    """All were read as rotary positions, or ran as if they were."""
    module = Attends(swapped, angle).double()
    with pytest.raises(umm.errors.InputError, match=r"no multiply|no statement|otherwise than for rotary"):
        umm.torch.chain(module, (torch.randn(SEQUENCES, TOKENS, WIDE, dtype=torch.float64),))

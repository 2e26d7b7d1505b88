"""Modules of PyTorch as chains: architectures of transformers without weights, and a small one's results."""

import json
import re
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from command import record
from command import umm as umm_command
from hostile import hostile_texts

import umm
from umm.errors import InputError
from umm.executor import executor
from umm.plans.lower import lower
from umm.program.presets import chain as preset
from umm.torch import chain

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
F = torch.nn.functional
transformers = pytest.importorskip("transformers", reason="make test-frameworks has transformers")

TOKENS = 512
CONFIGS = {
    "llama": ("LlamaConfig", {}),
    "qwen3": ("Qwen3Config", {}),
    "mixtral": ("MixtralConfig", {}),
    "gpt-oss": ("GptOssConfig", {}),
    "deepseek-v3": ("DeepseekV3Config", {"first_k_dense_replace": 1}),
    "gemma-3": ("Gemma3TextConfig", {}),
    "phi-3": ("Phi3Config", {"pad_token_id": 0}),
    "phi": ("PhiConfig", {}),
    "bert": ("BertConfig", {}),
    "gpt-2": ("GPT2Config", {}),
    "t5": ("T5Config", {}),
    "vit": ("ViTConfig", {}),
}
HEADS = {
    "bert": "AutoModelForMaskedLM",
    "t5": "AutoModelForSeq2SeqLM",
    "vit": "AutoModelForImageClassification",
}


def config(name, layers=2):
    kind, settings = CONFIGS[name]
    depth = {"t5": "num_layers", "gpt-2": "n_layer"}.get(name, "num_hidden_layers")
    return getattr(transformers, kind)(**{depth: layers}, **settings)


@cache
def traced(name, layers=2):
    head = getattr(transformers, HEADS.get(name, "AutoModelForCausalLM"))
    with torch.device("meta"):
        module = head.from_config(config(name, layers), dtype=torch.bfloat16)
    tokens = torch.zeros(1, TOKENS, dtype=torch.long)
    inputs = {"input_ids": tokens} | ({"decoder_input_ids": tokens} if name == "t5" else {})
    if name == "vit":
        inputs = {"pixel_values": torch.zeros(1, 3, 224, 224, dtype=torch.bfloat16)}
    return chain(module, inputs, name=name)


def flop(part):
    return part.count * part.outline.laid_out(ranks=1).flop


@pytest.mark.parametrize("name", CONFIGS)
def test_all_flop_of_an_architecture_are_understood(name):
    """The chains' own flop, without masked scores, are no more than torch's, and no less than 90 %."""
    result = traced(name)
    assert result.share >= 0.99, result.remarks()
    assert not result.unknown
    assert 0.9 <= sum(map(flop, result.parts)) / result.flop <= 1 + 1e-12


@pytest.mark.parametrize("name", CONFIGS)
def test_gradients_have_twice_the_flop(name):
    result = traced(name)
    for part, both in zip(result.parts, result.with_gradients().parts, strict=True):
        assert flop(both) == 3 * flop(part)


def test_a_deeper_model_is_the_same_layer_more_often():
    parts = [traced("llama", layers).parts for layers in (2, 5)]
    assert [x.count for x in parts[0]] == [1, 2, 1]
    assert [x.count for x in parts[1]] == [1, 5, 1]
    assert parts[0][1].outline == parts[1][1].outline


# What is one weight of a module, and several of the preset.
LATENT = (("Ck", "Kr"), ("Q", "Qr"), ("K", "V"))
JOINT = {"phi-3": (("Q", "K", "V"), ("H1", "H3")), "deepseek-v3": LATENT}


def joined(outline, groups):
    """A preset whose multiplies by parts of one weight are one kernel."""
    cols = {x.name: x.cols for x in outline.tensors}
    multiplies = {x.out: x for x in outline.statements if x.kind == "multiply"}
    kernels = {x: group for group in groups for x in group}
    statements = []
    for one in outline.statements:
        group = kernels.get(one.out, ()) if one.kind == "multiply" else ()
        if not group:
            statements.append(one)
        elif one.out == group[0]:
            before = [sum(cols[x] for x in group[:i]) for i in range(len(group))]
            besides = [{"beside": group[0], "besides": x} if x else {} for x in before]
            statements += [replace(multiplies[x], **y) for x, y in zip(group, besides, strict=True)]
    return replace(outline, statements=tuple(statements))


@pytest.mark.parametrize(
    ("name", "layer", "ranks", "layouts"),
    [
        ("llama", 0, 8, ("megatron", "sequence", "data")),
        ("qwen3", 0, 8, ("megatron", "sequence", "data")),
        ("gemma-3", 0, 4, ("megatron", "sequence", "data")),
        ("phi-3", 0, 8, ("megatron", "sequence", "data")),
        ("deepseek-v3", 0, 8, ("megatron", "sequence", "data")),
        ("deepseek-v3", 1, 8, ("tensor", "expert", "whole")),
        ("mixtral", 0, 8, ("tensor", "expert", "whole")),
        ("gpt-oss", 0, 8, ("tensor", "expert", "whole")),
    ],
)
def test_a_layer_takes_the_time_of_its_preset(name, layer, ranks, layouts, tmp_path):
    """GPT-2, Phi, BERT, T5 and ViT have layers that no preset is."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(name).to_dict()))
    machine, makespan = umm.machine("h100-8"), executor("sim").makespan
    part = [x for x in traced(name).parts if x.block][layer]
    kind = "moe-layer" if layouts[0] == "tensor" else "transformer-layer"
    # Biases of a module are taken to be in the kernels that multiply, wherever these run.
    without = dict.fromkeys(("qkv_bias", "out_bias"), 0)
    theirs = preset(kind, model=str(path), layer=layer, tokens=TOKENS, dtype="bfloat16", **without)
    theirs = joined(theirs, JOINT.get(name, ()))
    for layout in layouts:
        times = [makespan(lower(x.laid_out(layout, ranks), machine)) for x in (part.outline, theirs)]
        assert times[0] == pytest.approx(times[1], rel=0.01), layout


def test_joint_projections_are_one_kernel():
    """Phi-3 multiplies by Q, K and V together: their weights lie side by side."""
    part = next(x for x in traced("phi-3").parts if x.block)
    first, *others = [x for x in part.outline.statements if x.kind == "multiply" and "qkv" in x.b]
    assert len(others) == 2
    assert {x.beside for x in others} == {first.out}


def test_a_scan_is_refused_in_a_line():
    """At once: export writes out each step of a scan, of 16K tokens in 64 layers for hours."""
    with torch.device("meta"):
        module = transformers.MambaModel(transformers.MambaConfig(num_hidden_layers=64))
    with pytest.raises(InputError, match="conv1d, which no statement is"):
        chain(module, {"input_ids": torch.zeros(1, 16384, dtype=torch.long)})


class Block(torch.nn.Module):
    """A layer without positions, all of whose maps umm computes."""

    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.norm, self.scale = torch.nn.LayerNorm(hidden), torch.nn.RMSNorm(hidden)
        self.qkv = torch.nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = torch.nn.Linear(hidden, hidden, bias=False)
        self.up, self.down = (
            torch.nn.Linear(hidden, 2 * hidden, bias=False),
            torch.nn.Linear(2 * hidden, hidden, bias=False),
        )

    def forward(self, x):
        batch, tokens, hidden = x.shape
        q, k, v = (
            y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1)
        )
        scores = torch.softmax(q @ k.transpose(2, 3) / (hidden // self.heads) ** 0.5, -1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(torch.nn.functional.gelu(self.up(self.scale(x))))


def test_a_chain_computes_the_module_and_its_gradients():
    torch.manual_seed(0)
    module = Block(16, 2).double()
    x = torch.randn(2, 4, 16, dtype=torch.float64, requires_grad=True)
    result = chain(module, (x.detach(),)).with_gradients()
    program = result.chain.laid_out(ranks=1)
    weights = dict(module.named_parameters())

    def named(of_weight):
        """Tensors of the chain by their names, from those of the module."""
        flat = {y: of_weight[y].detach().numpy()[None] for y in ("norm.weight", "norm.bias", "scale.weight")}
        turned = {y: of_weight[f"{y}.weight"].detach().numpy().T for y in ("qkv", "out", "up", "down")}
        parts = dict(zip(("qkv.0", "qkv.1", "qkv.2"), np.split(turned.pop("qkv"), 3, axis=1), strict=True))
        return turned | parts | {y.removesuffix(".weight"): z for y, z in flat.items()}

    y = module(x)
    dy = torch.randn(*y.shape, dtype=torch.float64)
    y.backward(dy)
    operands = {"X": x.detach().reshape(8, 16).numpy(), "dY": dy.reshape(8, 16).numpy(), **named(weights)}
    results = program.reference(operands)
    np.testing.assert_allclose(results["Y"], y.detach().reshape(8, 16).numpy(), rtol=0, atol=1e-6)
    expected = {"X": x.grad.reshape(8, 16).numpy(), **named({name: w.grad for name, w in weights.items()})}
    for name, gradient in expected.items():
        np.testing.assert_allclose(results[f"d{name}"], gradient, rtol=0, atol=1e-5, err_msg=name)


class Applied(torch.nn.Module):
    """A function of itself, rows, other rows and a column, with a weight and a buffer."""

    def __init__(self, f):
        super().__init__()
        self.f, self.w = f, torch.nn.Parameter(torch.randn(10, 14))
        self.register_buffer("three", torch.tensor(3.0))

    def forward(self, x, y, z):
        return self.f(self, x, y, z)


def _two_means(m, x, y, z):
    h = x @ m.w
    mean = h.mean(-1, keepdim=True)
    return (h - mean) @ m.w.T @ (m.w @ (h * mean).T)


def _without_gradients(m, x, y, z):
    with torch.no_grad():
        h = torch.tanh(x @ m.w)
    return h * (x @ m.w)


def _softmax_by_hand(m, x, y, z):
    h = x @ m.w
    shares = (h - h.amax(-1, keepdim=True)).exp()
    return shares / shares.sum(-1, keepdim=True)


OPERATIONS = {
    "logarithm of softmax": lambda m, x, y, z: F.log_softmax(x @ m.w, -1),
    "sum and factors of a multiply": lambda m, x, y, z: torch.addmm(y, x, m.w, beta=0.5, alpha=2.0),
    "of a batch": lambda m, x, y, z: torch.baddbmm(y[None], x[None], m.w[None], beta=0.5, alpha=2.0),
    "a constant factor": lambda m, x, y, z: (x @ m.w) * torch.tensor(3.0),
    "a buffer": lambda m, x, y, z: (x @ m.w) / m.three,
    "an einsum with dots": lambda m, x, y, z: torch.einsum("...k,kn", x, m.w),
    "a transposed weight": lambda m, x, y, z: F.gelu(x @ m.w) @ m.w.T,
    "a factor of rows": lambda m, x, y, z: (x @ m.w) * z,
    "a power": lambda m, x, y, z: 2 ** (x @ m.w),
    "largest of rows": lambda m, x, y, z: torch.amax(x @ m.w, -1, keepdim=True),
    "sums of rows": lambda m, x, y, z: ((x @ m.w) ** 2).sum(-1, keepdim=True),
    "a mean in two passes": _two_means,
    "a matrix by itself": lambda m, x, y, z: torch.einsum("ik,jk->ij", x @ m.w, x @ m.w),
    "a detached factor": lambda m, x, y, z: (x @ m.w) * (x @ m.w).detach(),
    "a gradient passed through": lambda m, x, y, z: (lambda h: h + (h.tanh() - h).detach())(x @ m.w),
    "a region without gradients": _without_gradients,
    "a softmax by hand": _softmax_by_hand,
    "the norm's own epsilon": lambda m, x, y, z: F.rms_norm(1e-4 * (x @ m.w), (14,)),
    "a factor of a sum": lambda m, x, y, z: torch.add(x @ m.w, 2, alpha=3),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_and_its_gradients_are_the_modules(name):
    torch.manual_seed(0)
    module = Applied(OPERATIONS[name]).double()
    of_shape = {
        shape: torch.randn(*shape, dtype=torch.float64).requires_grad_()
        for shape in ((6, 10), (6, 14), (6, 1))
    }
    result = chain(module, tuple(x.detach() for x in of_shape.values()))
    assert (result.unknown, result.left_out) == ({}, {})
    y = module(*of_shape.values())
    dy = torch.randn_like(y)
    y.backward(dy)
    program = result.with_gradients().chain.laid_out(ranks=1)
    inputs = [x for x in program.tensors if x.is_input and x.name != "dY"]
    leaves = [of_shape.get(x.shape, module.w) for x in inputs]
    operands = {x.name: y.detach().numpy() for x, y in zip(inputs, leaves, strict=True)}
    rows = next(x.shape for x in program.tensors if x.name == "Y")
    results = program.reference(operands | {"dY": dy.reshape(rows).numpy()})
    np.testing.assert_allclose(results["Y"], y.detach().reshape(rows).numpy(), rtol=0, atol=1e-6)
    for x, leaf in zip(inputs, leaves, strict=True):
        np.testing.assert_allclose(results[f"d{x.name}"], leaf.grad.numpy(), rtol=0, atol=1e-5)


def test_a_part_that_is_changed_in_place_is_not_taken_as_it_was():
    def halved(m, x, y, z):
        h = x @ m.w
        h[:, :7].mul_(0.5)
        return h @ m.w.T

    result = chain(Applied(halved), (torch.zeros(6, 10), torch.zeros(6, 14), torch.zeros(6, 1)))
    assert "mul_" in result.unknown
    assert result.share == 0.5


ZEROS = torch.zeros(6, 10), torch.zeros(6, 14), torch.zeros(6, 1)


def _alias_changed(m, x, y, z):
    h = x @ m.w
    seen = h.view(3, 28)
    h.mul_(0.5)
    return seen.view(6, 14) @ m.w.T


OTHERWISE = {
    "another view of what is changed": (_alias_changed, "mul_"),
    "a cast to whole numbers": (lambda m, x, y, z: (x @ m.w).int().double() @ m.w.T, "to"),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_arrays_that_would_be_read_wrongly_are_not_understood(name):
    f, operation = OTHERWISE[name]
    inputs = tuple(torch.zeros(6, x, dtype=torch.float64) for x in (10, 14, 1))
    made = chain(Applied(lambda m, *x: f(m, *x) + x[0] @ m.w @ m.w.T).double(), inputs)
    assert operation in made.unknown


def test_a_condition_is_not_understood_and_its_larger_part_is_counted():
    """Its weights, which nothing else reads, ended in an IndexError."""

    class Chosen(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = (torch.nn.Linear(10, 10, bias=False) for _ in range(2))

        def forward(self, x):
            chosen = torch.cond(x.sum() > 0, lambda h: self.inner(self.inner(h)), lambda h: 2 * h, (x,))
            return self.outer(self.outer(self.outer(chosen + x)))

    result = chain(Chosen(), ZEROS[:1])
    assert result.unknown["cond"] == 2 * (2 * 6 * 10 * 10)
    assert result.share == pytest.approx(3 / 5)


def test_a_mask_that_inputs_give_is_named():

    class Masked(torch.nn.Module):
        def forward(self, q, k, v, seen):
            q, k, v = map(_heads, (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, seen).transpose(1, 2).reshape(-1, 16)

    given = chain(Masked(), (*torch.randn(3, 12, 16), torch.ones(6, 6, dtype=torch.bool)))
    assert given.left_out == {"a mask that inputs give, taken as of ones": 1}


def test_dropout_that_evaluation_keeps_is_named():
    result = chain(Applied(lambda m, x, y, z: F.dropout(x @ m.w, 0.5, True)), ZEROS)
    assert result.left_out == {"dropout that is not switched off in evaluation": 1}


def test_a_detached_operand_of_a_multiply_has_no_gradients_here():
    result = chain(Applied(lambda m, x, y, z: (x @ m.w).detach() @ m.w.T), ZEROS)
    assert result.share == 1
    with pytest.raises(InputError, match="without gradient is read by more than a map"):
        result.with_gradients()


def _heads(x):
    return x.reshape(2, 6, 4, 4).transpose(1, 2)


CAUSAL = torch.ones(6, 6, dtype=torch.bool).tril()
ATTENTIONS = {
    "a factor": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=0.3),
    "a large factor": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=2.0),
    "keys that are values": lambda q, k, v: F.scaled_dot_product_attention(q, k, k),
    "filled": lambda q, k, v: (q @ k.mT / 2).masked_fill(~CAUSAL, -1e30).softmax(-1) @ v,
    "chosen": lambda q, k, v: torch.where(CAUSAL, q @ k.mT / 2, -1e30).softmax(-1) @ v,
}
NOT_FUSED = {
    "softmax over queries": lambda q, k, v: (q @ k.mT).softmax(-2) @ v,
    "softmax of softmax": lambda q, k, v: (q @ k.mT).softmax(-1).softmax(-1) @ v,
    "two products": lambda q, k, v: (q @ k.mT + k @ q.mT).softmax(-1) @ v,
    "heads in turns": lambda q, k, v: F.scaled_dot_product_attention(
        q, *(x[:, None, ::2].expand(2, 2, 2, 6, 4).reshape(2, 4, 6, 4) for x in (k, v))
    ),
}
OTHER_MASKS = {
    "both sides": torch.arange(6).sub(torch.arange(6)[:, None]).abs() < 3,
    "documents": torch.arange(6)[:, None] // 3 == torch.arange(6) // 3,
    "distances": -torch.arange(6.0).sub(torch.arange(6.0)[:, None]).abs(),
}


class Attends(torch.nn.Module):
    """Attention of three arrays by a function."""

    def __init__(self, f):
        super().__init__()
        self.f = f

    def forward(self, q, k, v):
        made = self.f(*map(_heads, (q, k, v)))
        return made.transpose(1, 2).reshape(-1, 16)


@pytest.mark.parametrize("name", ATTENTIONS)
def test_attention_is_the_modules(name):
    torch.manual_seed(0)
    inputs = torch.randn(3, 12, 16, dtype=torch.float64)
    result = chain(Attends(ATTENTIONS[name]), tuple(inputs))
    program = result.chain.laid_out(ranks=1)
    (one,) = [x for x in program.statements if x.kind == "attention"]
    names = [x.name for x in program.tensors if x.is_input]
    (first,) = {*"qkv"[: len(names)]} - {*names}  # which is X in the chain
    values = {x: inputs["qkv".index(x.replace("X", first))].numpy() for x in names}
    expected = Attends(ATTENTIONS[name])(*inputs).numpy()
    np.testing.assert_allclose(program.reference(values)["Y"], expected, rtol=0, atol=1e-6)
    assert one.causal == (name in ("filled", "chosen"))


@pytest.mark.parametrize("name", NOT_FUSED)
def test_what_is_no_attention_is_not_taken_for_one(name):
    with pytest.raises(InputError, match=r"no multiply|no statement"):
        chain(Attends(NOT_FUSED[name]), tuple(torch.randn(3, 12, 16)))


@pytest.mark.parametrize("name", [*OTHER_MASKS, "more keys than queries"])
def test_masks_that_are_not_kept_are_named(name):
    how = {"attn_mask": OTHER_MASKS[name]} if name in OTHER_MASKS else {"is_causal": True}
    queries = 6 if name in OTHER_MASKS else 4

    def attends(q, k, v):
        return F.scaled_dot_product_attention(q[:, :, :queries], k, v, **how)

    result = chain(Attends(attends), tuple(torch.randn(3, 12, 16)))
    wanted = "a bias of scores" if name == "distances" else "a mask that is no window of earlier keys"
    assert result.left_out == {wanted: 1}


@pytest.mark.parametrize("name", ["llama", "mixtral"])
def test_gradients_of_a_layer_take_the_time_of_its_preset(name, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config(name).to_dict()))
    machine, makespan = umm.machine("h100-8"), executor("sim").makespan
    part = next(x for x in traced(name).with_gradients().parts if x.block)
    kind, layout = ("moe-layer", "expert") if name == "mixtral" else ("transformer-layer", "sequence")
    theirs = preset(kind, model=str(path), layer=0, tokens=TOKENS, dtype="bfloat16", backward=True)
    assert part.outline.laid_out(ranks=1).flop == theirs.laid_out(ranks=1).flop
    times = [makespan(lower(x.laid_out(layout, 8), machine)) for x in (part.outline, theirs)]
    assert times[0] == pytest.approx(times[1], rel=0.02)


def test_the_command_counts_layers_and_what_is_around_them(tmp_path, monkeypatch):
    (tmp_path / "my_models.py").write_text(
        "import torch\n"
        "from test_modules_block import Block\n"
        "def deep():\n"
        "    layers = [Block(16, 2) for _ in range(3)]\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 16), *layers), (torch.zeros(2, 4, 8),)\n"
    )
    module = type(torch)("test_modules_block")
    module.Block = Block
    monkeypatch.setitem(sys.modules, "test_modules_block", module)
    monkeypatch.syspath_prepend(tmp_path)
    settings = ["--module", "my_models:deep", "--machine", "h100-8", "--ranks", "2", "--layouts", "megatron"]
    result = record("simulate", *settings)
    assert result["predicted"]["layers"] == 3
    assert list(result["predicted"]["ends"]) == ["before"]
    assert (
        record("simulate", *settings, "--backward")["predicted"]["makespan_s"]
        > result["predicted"]["makespan_s"]
    )
    assert "no-such" in umm_command("simulate", "--module", "my_models:no-such").stderr


def test_a_module_is_searched_and_compared_at_the_command_line(tmp_path, monkeypatch):
    """Rows need no exchange; the command of a row names the module again."""
    (tmp_path / "small_models.py").write_text(
        "from torch import nn, zeros\n"
        "def mlp():\n"
        "    made = nn.Sequential(nn.Linear(512, 2048, False), nn.ReLU(), nn.Linear(2048, 512, False))\n"
        "    return made.to('meta'), (zeros(1024, 512, device='meta'),)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    asked = ["--module", "small_models:mlp", "--machine", "h100-8", "--ranks", "4"]
    best = record("search", *asked)["top"][0]
    rows = {x["algorithm"]: x for x in record("peers", *asked)["rows"]}
    assert best["makespan_s"] <= rows["data"]["makespan_s"] < rows["megatron"]["makespan_s"]
    assert "--module small_models:mlp" in rows["data"]["command"]


def test_hostile_names_of_parameters_are_names_of_tensors():
    """100 weights, each of its name: as many multiplies of tensors that a chain may have."""
    texts = [x for x in hostile_texts(100) if "." not in x]

    class Odd(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for text in texts:
                self.register_parameter(text, torch.nn.Parameter(torch.ones(4, 4)))

        def forward(self, x):
            for one in self.parameters():
                x = x @ one
            return x

    result = chain(Odd(), (torch.ones(2, 4),))
    assert result.share == 1
    names = [x.name for x in result.chain.tensors]
    assert len(names) == len(set(names)) > 2 * len(texts)
    assert all(re.fullmatch(r"[A-Za-z0-9_.]+", x) for x in names)


@pytest.mark.parametrize("made", [lambda x: x, torch.compile, "exported"])
def test_a_layer_alone_compiled_or_exported_is_one_multiply(made):
    """A weight that is the module's own has no path; an exported program cannot change its mode."""
    layer, x = torch.nn.Linear(8, 4, bias=False), torch.zeros(2, 8)
    module = torch.export.export(layer, (x,)).module() if made == "exported" else made(layer)
    (multiply,) = chain(module, (x,)).chain.statements
    assert multiply.kind == "multiply"


def test_mistakes_are_refused_in_a_line():
    with pytest.raises(InputError, match="computes mostly by conv2d"):
        chain(torch.nn.Conv2d(3, 8, 3, padding=1), (torch.zeros(1, 3, 8, 8),))
    with pytest.raises(InputError, match="is not an"):
        chain(3, ())
    with pytest.raises(InputError, match="export refuses Linear"):
        chain(torch.nn.Linear(4, 4), (torch.zeros(2, 3),))
    with pytest.raises(InputError, match="no multiply"):
        chain(torch.nn.GELU(), (torch.zeros(2, 3),))

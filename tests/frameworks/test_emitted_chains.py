"""Emitted layers under torch (gloo) and JAX (host devices): spread as planned they equal umm's reference."""

import re
import runpy
import subprocess
import sys

import numpy as np
import pytest
from emit_chains import JAX, TORCH, emitted, laid_out

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
pytest.importorskip("jax", reason="jax is not installed; make test-frameworks has it")


def ran(path):
    """The output of a program with --check; its errors if it fails."""
    done = subprocess.run([sys.executable, path, "--check"], capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def operands_of(chain):
    """Random operands, and umm's results for them."""
    rng = np.random.default_rng(0)
    values = {x.name: rng.uniform(-1, 1, x.shape) / np.sqrt(x.shape[0]) for x in chain.tensors if x.is_input}
    return values, chain.reference(values)


def near(result, true):
    assert np.abs(np.asarray(result) - true).max() <= 2e-5 * np.abs(true).max()


@pytest.mark.parametrize(("name", "scheme"), TORCH)
def test_a_torch_block_spread_as_planned_equals_the_reference(name, scheme, tmp_path):
    """Spread it equals itself on one device, and that umm's float64."""
    path = tmp_path / "block.py"
    path.write_text(emitted("torch", name, scheme))
    assert "right: largest error" in ran(path)
    program, chain = runpy.run_path(str(path)), laid_out(name, scheme)
    values, true = operands_of(chain)
    block = program["Block"]()
    with torch.no_grad():
        for module, layer in block.named_children():
            if hasattr(layer, "weight"):
                layer.weight.copy_(torch.tensor(values[module].T).squeeze())
    near(block(torch.tensor(values["X"], dtype=torch.float32)).detach(), true["Y"])


@pytest.mark.parametrize(("name", "scheme"), JAX)
def test_a_jax_layer_cut_as_planned_equals_the_reference(name, scheme, tmp_path):
    path = tmp_path / "layer.py"
    path.write_text(emitted("jax", name, scheme))
    assert "Y is right: largest error" in ran(path)
    # Run in this process its first lines would set the number of devices of all tests.
    text = path.read_text().replace("if jax.device_count() < RANKS:", "if False:")
    text = text.replace("MESH = Mesh(", "MESH = None and Mesh(")
    text = re.sub(r"^os\.environ\[.*\n", "", text, flags=re.MULTILINE)
    (tmp_path / "whole.py").write_text(text)
    values, true = operands_of(laid_out(name, scheme))
    layer = runpy.run_path(str(tmp_path / "whole.py"))["layer"]
    near(layer({x: y.astype(np.float32) for x, y in values.items()})["Y"], true["Y"])


@pytest.mark.parametrize("name", ["head", "transformer-layer"])
def test_a_jax_layer_in_float64_passes_its_own_check(name, tmp_path):
    """A norm keeps the type; JAX's attention takes its softmax in float32, which the check allows for."""
    path = tmp_path / "layer.py"
    path.write_text(emitted("jax", name, "sequence", dtype="float64"))
    assert "Y is right: largest error" in ran(path)

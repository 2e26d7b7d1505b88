"""Chains at the command line: simulated, executed and checked, from presets and from files."""

import pytest
from command import good, record, umm

from umm.chains import save_chain
from umm.chains.presets import chain

MLP = ["--chain", "mlp", "--hidden", "64", "--ffn", "96", "--tokens", "40", "--backward"]
CHECKED = ["--executor", "numpy", "--check", "--iters", "1", "--warmup", "0"]


@pytest.mark.parametrize("layouts", ["megatron", "sequence", "data", "sequence,X=row@2,dW1=2d"])
def test_run_holds_every_output_of_a_chain(layouts):
    found = record("run", "--machine", "h100-8", *MLP, *CHECKED, "--layouts", layouts)
    assert found["measured"]["ok"]
    assert found["problem"]["chain"] == "mlp"


def test_run_takes_a_chain_from_a_file(tmp_path):
    outline = chain("gated-mlp", hidden=8, ffn=12, tokens=6, backward=True)
    save_chain(outline, tmp_path / "layer.toml")
    path = tmp_path / "layer.toml"
    found = record("run", "--machine", "h100-8", "--ranks", 4, "--chain", path, *CHECKED)
    assert found["measured"]["ok"]
    assert found["problem"]["layouts"]["W1"] == "col"


def test_simulate_tells_the_layouts_and_the_makespan():
    text = good("simulate", *MLP, "--layouts", "sequence")
    assert "H = X·W1; G = gelu(H); Y = G·W2" in text
    assert "row: X 40x64, Y 40x64" in text
    found = record("simulate", *MLP)
    assert found["problem"]["layouts"]["X"] == "row@8"
    assert found["predicted"]["makespan_s"] > 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--hidden", "4"], "--hidden is of a chain; give one, such as --chain mlp"),
        (["--chain", "mlp", "-m", "4"], "--chain mlp takes the place of -m"),
        (["--chain", "mpl"], "there is no chain 'mpl'; did you mean 'mlp'?"),
        (["--chain", "none.toml"], "cannot read none.toml"),
        (["--chain", "none.toml", "--ffn", "4"], "none.toml already decides --ffn"),
        ([*MLP, "--layouts", "megatrom"], "did you mean 'megatron'?"),
        ([*MLP, "--layouts", "W9=row"], "has no tensor 'W9'"),
        ([*MLP, "--layouts", "megatron,W1"], "has no layouts 'megatron,W1'"),
    ],
)
def test_what_is_not_a_chain_is_refused(flags, message):
    refused = umm("simulate", *flags)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


def test_search_proves_the_best_layouts_of_a_chain():
    asked = ["search", *MLP, "--choices", "row,col", "--machine", "h100-8", "--top", 2, "--memory", "none"]
    found = record(*asked)
    assert found["proven"]
    assert found["top"][0]["makespan_s"] <= found["top"][1]["makespan_s"]
    assert found["top"][0]["layouts"].keys() == found["problem"]["tensors"].keys()
    assert found["named"].keys() == {"megatron", "sequence", "data"}
    assert "Proven best: 32 assignments priced" in good(*asked)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--tokens", "4"], "--tokens is of a chain"),
        ([*MLP, "--prefetch", "1,2"], "--prefetch is not an axis of a chain's search"),
        ([*MLP, "--choices", "rwo"], "rwo"),
    ],
)
def test_what_a_chain_is_not_searched_by_is_refused(flags, message):
    refused = umm("search", *flags)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())

"""umm run --save and --load: operands and results in a folder, back in other layouts on other ranks."""

import numpy as np
import pytest
from command import good, record, umm

import umm as library

SIZES = ["--hidden", 24, "--ffn", 16, "--tokens", 10, "--backward"]
MLP = ["run", "--machine", "h100-8", "--chain", "mlp", *SIZES, "--iters", 2, "--check"]


@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("executor", ["numpy", pytest.param("mpi", marks=pytest.mark.mpi)])
def test_a_chain_that_one_run_saved_is_loaded_by_another(tmp_path, executor):
    """Saved by 4 ranks as 'sequence', run again by 2 as 'data': the same results."""
    first, again = tmp_path / "first", tmp_path / "again"
    good(*MLP, "--ranks", 4, "--layouts", "sequence", "--executor", executor, "--save", first)
    good(*MLP, "--ranks", 2, "--layouts", "data", "--load", first, "--save", again)
    before, after = library.load(first), library.load(again)
    assert set(before) == set(after) == {"X", "W1", "W2", "Y", "dY", "dX", "dW1", "dW2"}
    assert (before.ranks, after.ranks) == (4, 2)
    for name in before:
        assert np.allclose(before[name], after[name], rtol=1e-4, atol=1e-5), name
    for name in ("X", "W1", "W2", "dY"):
        assert np.array_equal(before[name], after[name])


def test_a_multiply_is_saved_and_loaded_too(tmp_path):
    sizes = ["-m", 6, "-n", 5, "-k", 4, "--ranks", 2, "--machine", "h100-8", "--c", "row@2"]
    good("run", *sizes, "--save", tmp_path)
    result = library.load(tmp_path)
    assert np.allclose(result["C"], result["A"] @ result["B"], atol=1e-5)
    assert record("run", *sizes, "--load", tmp_path, "--check")["measured"]["ok"]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--load", "nowhere"], "nowhere has no checkpoint.json, so it is not a checkpoint"),
        (["--load", "{saved}"], "operand X has shape (3, 24), but the schedule's is (10, 24)"),
        (["--load", "{empty}"], "operand X is missing; there are W1"),
        (["--save", "/dev/null/x"], "cannot make the folder /dev/null/x: Not a directory"),
    ],
)
def test_what_cannot_be_loaded_or_saved_is_one_line(tmp_path, flags, message):
    chain = library.chain("mlp", hidden=24, ffn=16, tokens=3).laid_out("data", 1)
    library.save(tmp_path / "saved", {"X": np.zeros((3, 24))}, chain.tensors)
    library.save(tmp_path / "empty", {"W1": np.zeros((24, 16))}, chain.tensors)
    flags = [x.format(saved=tmp_path / "saved", empty=tmp_path / "empty") for x in flags]
    refused = umm(*MLP, *flags)
    assert refused.exit_code == 2
    assert message in " ".join(refused.stderr.split())


def test_a_folder_is_not_made_for_a_run_that_cannot_be(tmp_path):
    result = umm("run", "-m", "8", "-n", "8", "-k", "8", "--a", "diagonal", "--save", tmp_path / "x" / "y")
    assert result.exit_code == 2
    assert list(tmp_path.iterdir()) == []

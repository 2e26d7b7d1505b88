"""--einsum and --module at the command line."""

import pytest
from command import good, record, umm

SCORES = ["--einsum", "bshd,bthd->bhst", "b=2", "s=64", "t=64", "h=4", "d=32"]


def test_an_einsum_is_simulated_and_searched():
    found = record("simulate", *SCORES, "--dtype", "bf16", "--layouts", "A=row,B=row,Y=row")
    assert found["problem"]["dtype"] == "bfloat16"
    assert [x["kind"] for x in found["problem"]["statements"]] == ["multiply"]
    assert "Proven best" in good("search", *SCORES, "--quiet")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["b=2"], "'b=2' is the size of no --einsum"),
        (["--einsum", "ij,jk->ik", "i=2", "j=2"], "needs the size of k; write k=128"),
        (["--einsum", "ij,jk->ik", "i=2", "j=2", "k"], "'k' is not the size of a letter"),
        (["--einsum", "ij,jk->ik", "i=2", "i=3"], "'i=3' is not the size of a letter"),
        (["--einsum", "ij,jk->ik", "i=x"], "x"),
        (["--einsum", "ij,jk->ik", "--chain", "mlp"], "--einsum decides what is computed; leave out --chain"),
        (["--einsum", "ij,jk->ik", "--module", "a:b"], "leave out --einsum"),
        (["--module", "models"], "'models' is not package.module:function"),
        (["--module", "../models:f"], "'../models:f' is not package.module:function"),
    ],
)
def test_mistakes_are_refused_in_a_line(arguments, words):
    result = umm("simulate", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_module_without_torch_is_answered_with_its_install_line(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    result = umm("simulate", "--module", "models:llama")
    assert result.exit_code == 2
    assert "pip install 'umm-sim[torch]'" in result.stderr

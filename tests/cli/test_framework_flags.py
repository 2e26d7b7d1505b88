"""--einsum and --module at the command line."""

import shlex
import sys

import pytest
from command import good, record, times_only, umm

SCORES = ["--einsum", "bshd,bthd->bhst", "b=2", "s=64", "t=64", "h=4", "d=32"]


def test_an_einsum_is_simulated_and_searched():
    result = record("simulate", *SCORES, "--dtype", "bf16", "--layouts", "A=row,B=row,Y=row")
    assert result["problem"]["dtype"] == "bfloat16"
    assert [x["kind"] for x in result["problem"]["statements"]] == ["multiply"]
    assert "Proven best" in good("search", *SCORES, "--quiet")


def test_an_einsum_and_a_model_are_planned_and_asked_what_if():
    assert "Y = gemm(A, B)" in good("plan", *SCORES, "--ranks", 4, "--layouts", "A=row,B=row,Y=row")
    assert "rms_norm(X, g1)" in good("plan", "--model", "llama-3-8b", "--tokens", 256, "--ranks", 2)
    assert "Another choice" in good(
        "what-if", "--einsum", "ij,jk->ik", "i=512", "j=512", "k=512", "--ranks", 4, "--quiet"
    )


@times_only()
def test_an_einsum_has_peers_whose_commands_simulate_their_rows():
    """Rows split b, both operands whole on no rank; each command gives its row's time again."""
    rows = record("peers", *SCORES, "--ranks", 2)["rows"]
    assert rows[0]["algorithm"] == "universal"
    for row in rows:
        assert "--einsum 'bshd,bthd->bhst' b=2 s=64" in row["command"]
        again = record(*shlex.split(row["command"])[1:])
        assert again["predicted"]["makespan_s"] == pytest.approx(row["makespan_s"])


@times_only()
def test_an_einsum_of_one_plain_multiply_has_peers():
    """A search calls its tensors A, B and C; its rows have the einsum's own."""
    best = record("peers", "--einsum", "ab,bc->ac", "a=512", "b=512", "c=256", "--ranks", 4)["rows"][0]
    assert best["algorithm"] == "universal"
    again = record(*shlex.split(best["command"])[1:])
    assert again["predicted"]["makespan_s"] == pytest.approx(best["makespan_s"])


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


@pytest.mark.parametrize("framework", ["torch", "jax"])
def test_a_module_without_its_framework_is_answered_with_its_install_line(framework, tmp_path, monkeypatch):
    (tmp_path / f"needs_{framework}.py").write_text(f"import {framework}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, framework, None)
    result = umm("peers", "--module", f"needs_{framework}:llama")
    assert result.exit_code == 2
    assert result.stderr.endswith(f"pip install 'umm-sim[{framework}]'\n")

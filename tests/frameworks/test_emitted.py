"""Emitted programs under torch (gloo, four processes) and JAX (four host devices): products and layouts."""

import json
import subprocess
import sys

import pytest
from emit_problems import NOT_IN_JAX, PROBLEMS, problem_of, written
from framework_words import held

import umm
from umm.emit.program import emit

pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
pytest.importorskip("jax", reason="jax is not installed; make test-frameworks has it")

SHARDINGS = """
import json, runpy, sys
found = runpy.run_path(sys.argv[1])
def spans(x):
    shape = found[x + "_SHAPE"]
    at = found[x].devices_indices_map(shape)
    return {d.id: [list(s.indices(n)[:2]) for s, n in zip(i, shape)] for d, i in at.items()}
print(json.dumps({x: spans(x) for x in "ABC"}))
"""


def ran(*command):
    """The output of a program; its errors if it fails."""
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_torch_program_gives_the_right_product_in_the_layout_asked_for(name, tmp_path):
    """The program itself holds C's placements, and each tile of C where it lists ranges."""
    assert "C is right: largest error" in ran(written(name, "torch", tmp_path), "--check")


@pytest.mark.parametrize("name", [name for name in PROBLEMS if name not in NOT_IN_JAX])
def test_a_jax_program_gives_the_right_product_in_the_layouts_asked_for(name, tmp_path):
    path = written(name, "jax", tmp_path)
    assert "C is right: largest error" in ran(path, "--check")
    problem = problem_of(name)
    for matrix, spans in json.loads(ran("-c", SHARDINGS, path)).items():
        layout = problem.outside["ABC".index(matrix)]
        shape = problem.shape(matrix)
        for rank, sides in enumerate(held(layout)):
            unpadded = [list(range(a, min(b, n))) for (a, b), n in zip(spans[str(rank)], shape, strict=True)]
            assert (unpadded if all(unpadded) else [[], []]) == sides


@pytest.mark.parametrize("target", ["torch", "jax"])
def test_a_check_in_bfloat16_refuses_a_product_of_zeros(target, tmp_path):
    """However long k is, the allowed difference is a share of the largest element."""
    problem = umm.Problem(m=8, n=8, k=16384, a="row", b="row", c="row", ranks=4, dtype="bfloat16")
    right = emit(target, problem, "h100-8", "B", {}, "")
    zeros = right.replace('    if "--check" in', '    c = 0 * c\n    if "--check" in')
    assert zeros != right
    path = tmp_path / "zeros.py"
    path.write_text(zeros)
    done = subprocess.run([sys.executable, path, "--check"], capture_output=True, text=True, timeout=250)
    assert done.returncode != 0
    assert "C is wrong: largest error 1.0e+00 of its largest element" in done.stderr

"""Real DTensors multiplied, updated and chosen for by umm: programs of four processes, by their output."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
HELPERS = Path(__file__).parents[1] / "helpers"
WORDS = "is a Tensor; give a DTensor: distribute_tensor(x, mesh, placements)"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        # 27 choices of placements on a line, 12 on a mesh of 2x2; bfloat16; a plain tensor.
        ("dtensor_multiplies", f"39 right; B {WORDS}"),
        # All ways of mm, addmm, bmm; a gradient, a kept decision, bfloat16, uninstalled.
        ("dtensor_choices", "402 right, 35 complete where DTensor leaves a sum"),
        # A line and 2x2, three types; bit for bit where matrices are orthogonalised whole.
        ("dtensor_updates", f"108 right; up {WORDS}"),
    ],
)
def test_four_processes_have_what_one_has(program, words):
    done = subprocess.run(
        [sys.executable, HELPERS / f"{program}.py"],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{words}\n"

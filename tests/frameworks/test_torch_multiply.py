"""umm.torch.multiply on real DTensors: the products are DTensor's own, with the placements asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
PROGRAM = Path(__file__).parents[1] / "helpers/dtensor_multiplies.py"


def test_products_of_dtensors_are_those_of_dtensor():
    """Four processes, 27 choices of placements on a line, 12 on a mesh of 2x2; bfloat16; a plain tensor."""
    done = subprocess.run(
        [sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "39 right; B is a Tensor; give a DTensor: distribute_tensor(x, mesh, placements)\n"

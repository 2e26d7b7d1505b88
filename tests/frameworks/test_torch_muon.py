"""umm.torch.muon on real DTensors: every placement is the plain update, with the placements that came."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")
PROGRAM = Path(__file__).parents[1] / "helpers/dtensor_updates.py"


def test_updates_of_dtensors_are_the_plain_ones():
    """Four processes on a line and 2x2, three types; bit for bit where matrices are orthogonalised whole."""
    done = subprocess.run(
        [sys.executable, PROGRAM],
        capture_output=True,
        text=True,
        timeout=250,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = "108 right; up is a Tensor; give a DTensor: distribute_tensor(x, mesh, placements)\n"
    assert done.stdout == expected

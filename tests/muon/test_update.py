"""umm.muon.update: every placement, of matrices in any layout, is the plain update of one process."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from examples import WHOLE, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from muon_cases import case, orthogonalized
from thread_exchange import on_threads

import umm
from umm.errors import InputError
from umm.muon import Matrix
from umm.muon.program import JORDAN
from umm_hw.mpi.job.job import find_mpiexec
from umm_hw.muon.update import update

HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.mark.timeout(1800)
@settings(max_examples=1000 if WHOLE else 12)
@given(st.integers(1, 8), st.integers(0, 2**32))
def test_any_update_is_that_of_one_process(ranks, seed):
    """Where a matrix is orthogonalised as a whole, bit for bit; else within rounding."""
    for right, words in on_threads(ranks, lambda group: case(group, np.random.default_rng(seed))):
        assert right, words


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", range(1, 9) if WHOLE else (3,))
def test_updates_of_processes_are_those_of_one(ranks):
    """200 on 1 to 8 ranks with all examples; ranks that share no memory send messages."""
    for window in ("", "remote") if ranks in (3, 4) else ("",):
        program = [sys.executable, "-m", "mpi4py", HELPERS / "muon_cases.py", str(examples(20)), "7"]
        done = subprocess.run(
            [find_mpiexec(), "-n", str(ranks), *program],
            env=os.environ
            | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HELPERS), "UMM_MPI_WINDOW": window},
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.stdout == f"{examples(20)} of {examples(20)} right on {ranks} ranks\n", done.stderr


def test_five_steps_bring_singular_values_near_one():
    """Norms of 16 x 40 normal numbers; they end between 0.65 and 1.25, as Jordan writes."""
    values = np.linalg.svd(orthogonalized(np.random.default_rng(2).standard_normal((40, 16)), JORDAN))[1]
    assert 0.65 < values.min() < values.max() < 1.25


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda given: {"b": given["a"]}, "lack a"),
        (lambda given: {"a": given["a"], "c": given["a"]}, "have c"),
        (lambda given: {"a": given["a"].member(0)}, "comes as 1 matrices; the plan has 2"),
        (lambda given: {"a": [given["a"][0:2, :]] * 2}, "is 2x6 of 4x6"),
    ],
)
def test_momenta_that_are_not_the_plans_are_refused_on_every_rank(change, words):
    plan = umm.muon.plan([Matrix("a", 4, 6, 2)], "fsdp2", "localhost")

    def call(group):
        given = {"a": umm.DistributedMatrix.wrap(group, "row", (2, 4, 6), np.ones((2, 2, 6)))}
        with pytest.raises(InputError, match=words):
            # One rank's mistake is every rank's error.
            update(plan, change(given) if group.rank else given)
        return True

    assert on_threads(2, call) == [True, True]


def test_a_plan_for_other_ranks_is_refused():
    plan = umm.muon.plan([Matrix("a", 4, 6, 2)], "fsdp4", "localhost")

    def call(group):
        given = umm.DistributedMatrix.wrap(group, "row", (2, 4, 6), np.ones((2, 2, 6)))
        with pytest.raises(InputError, match="for 4 ranks, but the communicator has 2"):
            update(plan, {"a": given})
        return True

    assert on_threads(2, call) == [True, True]
    with pytest.raises(InputError, match="at least one momentum"):
        update(plan, {})

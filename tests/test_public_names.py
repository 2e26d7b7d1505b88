"""The names that the packages offer at their top: all there, and none costs anything before it is used."""

import subprocess
import sys
from importlib.metadata import entry_points

import pytest

import umm
import umm_hw
from umm_hw.arrays.matrix import WrappedMatrix
from umm_hw.matrix import DistributedMatrix


def printed(code):
    """The output of a new process."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", umm.__all__)
def test_every_public_name_is_there(name):
    if name in umm._OFFERED and not entry_points(group="umm.names"):
        pytest.skip("installed before pyproject.toml had umm.names; make venv installs it again")
    assert getattr(umm, name) is not None
    assert name in dir(umm)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'umm' has no attribute 'multipy'"):
        umm.multipy  # noqa: B018
    with pytest.raises(AttributeError, match="module 'umm_hw' has no attribute 'Matrix'"):
        umm_hw.Matrix  # noqa: B018


def test_pgemm_is_imported_as_from_any_module():
    """``from umm.scalapack import pgemm``, though nothing of umm imports that module."""
    code = "from umm.scalapack import pgemm; import umm; print(pgemm is umm.scalapack.pgemm)"
    assert printed(code) == "True\n"
    with pytest.raises(AttributeError, match=r"module 'umm.scalapack' has no attribute 'pdgemm'"):
        umm.scalapack.pdgemm  # noqa: B018


def test_executors_are_made_by_name_with_nothing_else_imported():
    assert printed("import umm; print(type(umm.executor.executor('sim')).__name__)") == "SimExecutor\n"


def test_errors_and_prices_of_kernels_need_no_import_of_their_own():
    code = "import umm; print(umm.errors.UmmError.__name__, umm.cost.gemm_seconds.__name__)"
    assert printed(code) == "UmmError gemm_seconds\n"


def test_the_step_model_prices_a_schedule_of_one_step():
    """One rank, one gemm: the model's cost is the gemm's own seconds."""
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=1), "h100-8", policy="greedy")
    assert umm.model_cost(schedule) == schedule.seconds.sum() > 0


def test_there_is_one_distributed_matrix():
    """Zeros in symmetric memory by a transport, or the caller's arrays by wrap: one class."""
    assert umm.DistributedMatrix is umm_hw.DistributedMatrix is DistributedMatrix
    assert issubclass(WrappedMatrix, DistributedMatrix)


def test_the_packages_import_nothing_until_a_name_is_used():
    assert printed("import sys, umm, umm_sim, umm_hw; print('numpy' in sys.modules)") == "False\n"

"""Fixtures of all tests: compiled C, hypothesis without deadlines, poisoned memory, checked bounds."""

import gc
import os
from pathlib import Path

import pytest
from examples import examples
from hypothesis import settings

from umm_sim import build

if (tree := Path(build.__file__).parents[1]).joinpath(build.SOURCES[0]).exists():  # no installed wheel
    build.build_in_place(tree)

# Programs that tests start, on packages that need not be here: no doctests are looked for in them.
collect_ignore = [
    "helpers/dtensor_choices.py",
    "helpers/dtensor_multiplies.py",
    "helpers/dtensor_updates.py",
    "helpers/opencl_programs.py",
    "helpers/over_gloo.py",
]

settings.register_profile("umm", deadline=None, print_blob=True, max_examples=examples(100))
settings.load_profile("umm")

# Memory that nothing has written is NaN on every executor, processes that tests start included.
os.environ["UMM_POISON"] = "1"


def pytest_collection_finish():
    """Look for garbage less often, and not among the collected tests: that took 15 % of their time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_itemcollected(item):
    """Refuse the mark mpi where its file does not name it: ``python -m tests`` would leave the test out."""
    if item.get_closest_marker("mpi") and "mark.mpi" not in item.path.read_text(encoding="utf-8"):
        raise pytest.UsageError(f"{item.nodeid} starts ranks; write pytest.mark.mpi in its file")


@pytest.fixture(scope="session")
def _lent_ranks():
    import lent_ranks

    yield lent_ranks
    lent_ranks.end()


@pytest.fixture
def shared_ranks(_lent_ranks, monkeypatch):
    """Have executors of this process take ranks that run already, where they would start their own."""
    monkeypatch.setattr("umm_hw.mpi.job.job.MpiJob", _lent_ranks.lent)


@pytest.fixture(scope="session")
def lent(_lent_ranks):
    """A function that lends so many ranks, which run for all tests; not for programs that end them."""
    return _lent_ranks.lent


@pytest.fixture(scope="session", autouse=True)
def _bounds_are_checked():
    """Let every search of every test fail where a simulated time is less than its bound."""
    from checked_bounds import check_bounds

    with pytest.MonkeyPatch.context() as patch:
        check_bounds(patch.setattr)
        yield

"""Ranks keep to cores of their own; the locks of their memory let in one at a time."""

import os
from functools import partial
from threading import Thread

import mpi_programs
import pytest

from umm_hw.cores.threads import own_core

bound = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind threads")


@bound
def test_a_rank_and_the_threads_it_starts_keep_to_one_core_where_each_has_one():
    cores = os.sched_getaffinity(0)
    result = []
    with own_core(0, len(cores)):
        thread = Thread(target=lambda: result.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
    assert result == [{min(cores)}]
    assert os.sched_getaffinity(0) == cores


@bound
def test_where_ranks_share_cores_nobody_is_bound():
    cores = os.sched_getaffinity(0)
    with own_core(0, len(cores) + 1):
        assert os.sched_getaffinity(0) == cores


@pytest.mark.mpi
def test_threads_that_hold_one_lock_while_others_wait_for_another_are_no_deadlock(lent):
    """The system takes locks of a process, not of a thread, for a circle that is none."""
    assert lent(2).call(2, partial(mpi_programs.crossed, times=300)) == [True, True]


@pytest.mark.mpi
@pytest.mark.parametrize("window", ["shared", "remote"])
def test_one_at_a_time_holds_a_lock_of_all_threads_of_all_ranks(lent, tmp_path, monkeypatch, window):
    monkeypatch.setenv("UMM_MPI_WINDOW", window)
    number = tmp_path / "number"
    number.write_text("0")
    lent(2).call(2, partial(mpi_programs.additions, path=number, times=50))
    assert number.read_text() == "200"

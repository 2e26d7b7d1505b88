"""Ranks keep to cores of their own; the locks of their memory let in one at a time."""

import os
from contextlib import closing
from functools import partial
from threading import Thread
from time import sleep

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


def additions(transport, path, times):
    """Add 1 to a number in a file so many times under rank 0's lock, by two threads."""

    def add():
        for _ in range(times):
            transport.take_lock(0)
            number = int(path.read_text())
            sleep(1e-5)  # others run meanwhile
            path.write_text(str(number + 1))
            transport.release_lock(0)

    threads = [Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def crossed(transport, times):
    """Each of two threads takes the locks of both ranks in turns that cross those of the peer."""

    def take(first):
        for number in range(times):
            rank = (first + number) % 2
            transport.take_lock(rank)
            sleep(1e-5)
            transport.release_lock(rank)

    threads = [Thread(target=take, args=(first,)) for first in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return True


@pytest.mark.mpi
def test_threads_that_hold_one_lock_while_others_wait_for_another_are_no_deadlock():
    """The system takes locks of a process, not of a thread, for a circle that is none."""
    from umm_hw.mpi.job.job import MpiJob

    with closing(MpiJob(2)) as job:
        assert job.call(2, partial(crossed, times=300)) == [True, True]


@pytest.mark.mpi
@pytest.mark.parametrize("window", ["shared", "remote"])
def test_one_at_a_time_holds_a_lock_of_all_threads_of_all_ranks(tmp_path, monkeypatch, window):
    from umm_hw.mpi.job.job import MpiJob

    monkeypatch.setenv("UMM_MPI_WINDOW", window)
    number = tmp_path / "number"
    number.write_text("0")
    with closing(MpiJob(2)) as job:
        job.call(2, partial(additions, path=number, times=50))
    assert number.read_text() == "200"

"""Signs of a lost rank to the keeper of an MPI job, on processes that are made up."""

import os
import subprocess

import pytest

from umm_hw.mpi.job import keeper
from umm_hw.mpi.job.deaths import Deaths

MPIEXEC = 10


class Table:
    """Processes by number: their parents' children, their kinds, the faults of children that have ended."""

    def __init__(self):
        self.below = {MPIEXEC: []}
        self.proxies, self.faults, self.dead = set(), {}, set()

    def children(self, number):
        return list(self.below.get(number, []))

    def descendants(self, number):
        result = self.children(number)
        for x in result:
            result += self.children(x)
        return result


@pytest.fixture
def watched(monkeypatch, tmp_path):
    table, clock = Table(), [0.0]
    for name, value in {
        "children": table.children,
        "descendants": table.descendants,
        "is_dead": table.dead.__contains__,
        "is_proxy": table.proxies.__contains__,
        "faults_of_lost_children": lambda x: table.faults.get(x, 0),
        "monotonic": lambda: clock[0],
    }.items():
        monkeypatch.setattr(keeper, name, value)
    watch = keeper.Watch(MPIEXEC, tmp_path, size=4)

    def after(seconds):
        clock[0] += seconds
        return watch.trouble()

    return table, after


def test_children_that_a_launchers_shell_had_are_no_ranks(watched):
    """Two shells that have run hostname become proxies, one three seconds after the other."""
    table, after = watched
    table.below[MPIEXEC] = [20, 30]
    table.faults |= {20: 200, 30: 210}
    assert after(0.1) is None
    table.proxies.add(20)
    table.below[20] = [21, 22]
    assert [after(1.0) for _ in range(3)] == [None] * 3
    table.proxies.add(30)
    assert [after(1.0) for _ in range(3)] == [None] * 3
    table.below[30] = [31, 32]
    assert [after(1.0) for _ in range(3)] == [None] * 3


def test_a_rank_lost_after_its_proxy_was_seen_is_trouble_a_second_later(watched):
    table, after = watched
    table.below |= {MPIEXEC: [20], 20: [21, 22, 23, 24]}
    table.proxies.add(20)
    assert after(0.1) is None
    table.below[20].remove(23)
    table.faults[20] = 90
    assert after(0.1) is None
    assert "a rank was killed or ended while the ranks started" in after(1.1)


def test_a_rank_lost_before_its_proxy_was_seen_is_missing(watched):
    """Four ranks, of which one ended before anybody looked."""
    table, after = watched
    table.below |= {MPIEXEC: [20], 20: [21, 22, 24]}
    table.proxies.add(20)
    table.faults[20] = 90
    assert after(0.1) is None
    assert "a rank was killed or ended while the ranks started" in after(1.1)


def test_the_first_to_die_is_known_however_late_it_is_asked_for():
    """Five processes are killed in another order than they were begun in, all before anybody asks."""
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(5)]
    watch = Deaths()
    for number, process in enumerate(sleepers):
        watch.watch(process.pid, f"number {number}")
    assert watch.first() is None
    for number in (3, 0, 4, 1, 2):
        sleepers[number].kill()
        os.waitid(os.P_PID, sleepers[number].pid, os.WEXITED | os.WNOWAIT)
    assert watch.first() == "number 3"
    watch.close()
    assert watch.first() == "number 3"
    for process in sleepers:
        process.wait()

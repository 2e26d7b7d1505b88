"""Any pool of concurrent.futures performs a sweep: umm's own, and those that packages bring."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from command import umm

from umm.errors import ExecutorUnavailableError, InputError
from umm.host import launcher as segments
from umm.space import Space, sweep
from umm.space.store.pools import find_pool, pool_names

SPACE = Space(m=64, n=96, k=48, a="row", partitions=("row", "col"), replication=(1, 2))  # 48 points
ENTRIES = """[umm.pools]
threads = concurrent.futures:ThreadPoolExecutor
absent = no_such_package:pool
"""


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package with two pools on the import path; one needs a missing package."""
    info = tmp_path / "site" / "pools-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pools\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(info.parent)


@pytest.mark.usefixtures("installed")
def test_a_pool_of_another_package_performs_a_sweep(tmp_path):
    assert pool_names() == ["absent", "dask", "mpi", "none", "process", "threads"]
    swept = sweep(SPACE, "h100-8", tmp_path / "s.db", pool="threads", jobs=2)
    assert (swept.performed, swept.failed) == (48, 0)
    with pytest.raises(ExecutorUnavailableError, match="pool absent needs no_such_package"):
        find_pool("absent")


def test_an_unknown_pool_is_one_line_with_those_there_are(tmp_path):
    result = umm("sweep", "-m", 4, "-n", 4, "-k", 4, "--pool", "magic", "-o", tmp_path / "s.db")
    assert result.exit_code == 2
    assert result.stderr == "error: pool 'magic' is unknown; choose from dask, mpi, none, process\n"


def test_a_pool_that_loses_workers_is_made_anew(tmp_path, monkeypatch):
    """The first one breaks after a task; its results are kept."""
    made = []

    @contextmanager
    def pool(jobs):
        made.append(jobs)
        with ThreadPoolExecutor(1) as threads:
            yield threads
            if len(made) == 1:
                raise BrokenExecutor

    monkeypatch.setattr("umm.space.store.sweeps.find_pool", lambda name: pool)
    swept = sweep(SPACE, "h100-8", tmp_path / "s.db", jobs=3)
    assert made == [3, 3]
    assert (swept.found, swept.performed) == (0, 48)


WAITS = """
import os, signal, sys, threading, time
from pathlib import Path
from umm.space.store.pools import find_pool

def reads(number):
    return "pipe" in Path(f"/proc/{number}/wchan").read_text()

if __name__ == "__main__":
    with find_pool("process")(2) as workers:
        list(workers.map(time.sleep, [0.2, 0.2]))
        time.sleep(0.2)
        first = [x for x in workers._processes if reads(x)]
        if len(first) != 1:
            sys.exit("the system does not say who waits for what")
        os.kill(first[0], signal.SIGSTOP)
        threading.Timer(0.5, os.kill, (first[0], signal.SIGKILL)).start()
"""


def test_a_worker_that_is_killed_when_all_is_done_leaves_no_other_waiting(tmp_path):
    """It may have the lock of the tasks' queue, for which the others wait to be told the end."""
    script = tmp_path / "script.py"
    script.write_text(WAITS)
    done = subprocess.run([sys.executable, str(script)], timeout=60, check=False, capture_output=True)
    if b"does not say" in done.stderr:
        pytest.skip(done.stderr.decode())
    assert done.returncode == 0, done.stderr


NAMED = """
import os, time
from umm.host import launcher as segments
from umm.space.store.pools import find_pool

def forget():
    os.write(1, f"{os.getpid()}\\n".encode())
    time.sleep(60)

segments.forget = forget
with find_pool("mpi")(None):
    pass
"""


@contextmanager
def two_ranks(tmp_path, program):
    """A running mpiexec of a program on two ranks, and the first line of each."""
    mpiexec = pytest.importorskip("umm_hw.mpi.job.job").find_mpiexec()
    script = tmp_path / "script.py"
    script.write_text(program)
    command = [mpiexec, "-n", "2", sys.executable, str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        yield process, [process.stdout.readline() for _ in range(2)]


@pytest.mark.mpi
def test_ranks_of_mpiexec_that_are_killed_leave_no_segment(tmp_path):
    """Killed while their shared memory has its names still."""
    with two_ranks(tmp_path, NAMED) as (process, lines):
        ranks = [int(x) for x in lines]
        named = {Path(x) for rank in ranks for x in segments._mapped_by(str(rank))}
        assert named
        for rank in ranks:
            # Once the first is dead, mpiexec may end the other before its turn comes.
            with suppress(ProcessLookupError):
                os.kill(rank, signal.SIGKILL)
        process.wait(30)
    end = time.monotonic() + 20
    while any(x.exists() for x in named) and time.monotonic() < end:
        time.sleep(0.05)
    assert not [x for x in named if x.exists()]


APART = """
import os, sys, time
from umm.space.store.pools import find_pool

os.write(1, b"began\\n")
if os.environ["PMI_RANK"] == "1":
    try:
        time.sleep(60)
    except KeyboardInterrupt:
        sys.exit(130)
with find_pool("mpi")(None):
    pass
"""


@pytest.mark.mpi
def test_ctrl_c_ends_a_rank_that_waits_for_another_while_mpi_starts(tmp_path):
    """It waited for ever where the other was interrupted before it had come to MPI."""
    with two_ranks(tmp_path, APART) as (process, lines):
        assert all(lines)
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        try:
            assert process.wait(20)
        finally:
            process.kill()


def test_this_process_alone_lets_an_interruption_through(tmp_path):
    """Of 48 points each is a task, and stored by itself."""

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none", progress=interrupt)
    assert sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none").found == 1


def test_a_dask_cluster_performs_a_sweep(tmp_path):
    pytest.importorskip("distributed", reason="NOT TESTED WITH DASK: pip install 'umm-sim[dask]'")
    swept = sweep(SPACE, "h100-8", tmp_path / "s.db", pool="dask", jobs=1)
    assert (swept.performed, swept.failed) == (48, 0)


def test_dask_that_is_missing_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    with (
        pytest.raises(ExecutorUnavailableError, match=r"pip install 'umm-sim\[dask\]'"),
        find_pool("dask")(1),
    ):
        pass


def test_jobs_are_at_least_one(tmp_path):
    with pytest.raises(InputError, match="jobs = 0"):
        sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none", jobs=0)

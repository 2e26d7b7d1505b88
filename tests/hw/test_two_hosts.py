"""Commands across two hosts: their answers, also when one of the hosts dies or freezes."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from conformance.two_hosts import NamespaceError, two_hosts
from machine_text import GOOD

from umm.space import Store

pytestmark = [pytest.mark.mpi, pytest.mark.two_hosts]
TWO_NODES = """[fabric]
kind = "tiers"
bandwidth = { value = "10 GB/s", source = "test" }
latency = { value = "1 us", source = "test" }
node_size = { value = 2, source = "test" }
[fabric.nic]
owner = "device"
bandwidth = { value = "2 GB/s", source = "test" }
latency = { value = "2 us", source = "test" }
"""
UMM = [sys.executable, "-m", "umm.cli.main"]
SIZES = ["-m", "64", "-n", "48", "-k", "32"]
FOREVER = ["run", "--executor", "mpi", *SIZES, "--b", "row", "--c", "row", "--iters", "1000000"]


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    try:
        made = two_hosts(tmp_path_factory.mktemp("hosts"))
        result = made.__enter__()
    except NamespaceError as error:
        pytest.skip(f"NOT TESTED ON TWO HOSTS: {error}")
    try:
        yield result
    finally:
        made.__exit__(None, None, None)


@pytest.fixture
def launched(hosts):
    """Start a command on four ranks; afterwards no process of the hosts is left."""

    def launch(*words):
        return subprocess.Popen(
            [hosts.mpiexec, "-n", "4", *UMM, *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        )

    yield launch
    end = time.monotonic() + 10
    while (left := hosts.processes(0) + hosts.processes(1)) and time.monotonic() < end:
        time.sleep(0.1)
    for process in left:
        os.kill(process, signal.SIGKILL)
    assert not left


def answered(process):
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 0, stderr
    return stdout


def test_a_run_is_right_across_hosts(launched):
    words = [
        "run",
        "--executor",
        "mpi",
        *SIZES,
        "--b",
        "col",
        "--c",
        "2d",
        "--iters",
        "2",
        "--check",
        "--json",
    ]
    result = json.loads(answered(launched(*words)))
    assert result["problem"]["ranks"] == 4
    assert result["measured"]["ok"]


def test_a_prediction_is_compared_with_a_run_across_hosts(launched):
    result = json.loads(answered(launched("compare", "--executor", "mpi", *SIZES, "--iters", "2", "--json")))
    assert result["measured"]["best_s"] > 0


def test_a_sweep_is_shared_by_the_ranks_of_two_hosts(launched, tmp_path):
    words = ["sweep", *SIZES, "--a", "row,col", "--b", "row,col", "--c", "row,col"]
    answered(launched(*words, "--pool", "mpi", "-o", tmp_path / "s.db"))
    with Store(tmp_path / "s.db") as store:
        assert len(store) == 24


def test_on_two_levels_each_byte_crosses_to_the_other_host_once(tmp_path):
    """Two ranks a host: half of A, 512 x 1024, goes to each host; flat each rank gets it. UCX goes by TCP,
    because between namespaces of one kernel it would take shared memory."""
    machine = tmp_path / "two.toml"
    machine.write_text(GOOD + TWO_NODES, encoding="utf-8")
    words = ["run", "--executor", "mpi", "--machine", machine, "-m", 512, "-n", 64, "-k", 1024]
    words += ["--a", "row", "--b", "col", "--c", "col", "--stationary", "C", "--iters", 2, "--warmup", 0]
    crossed = {}
    try:
        with two_hosts(tmp_path, per_host=2) as hosts:
            for movement in ("flat", "two-level"):
                before = hosts.sent()
                done = subprocess.run(
                    [
                        hosts.mpiexec,
                        "-n",
                        "4",
                        *UMM,
                        *map(str, words),
                        "--movement",
                        movement,
                        "--check",
                        "--json",
                    ],
                    capture_output=True,
                    text=True,
                    timeout=120,
                    check=True,
                    env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "UCX_TLS": "tcp"},
                )
                assert json.loads(done.stdout)["measured"]["ok"]
                crossed[movement] = hosts.sent() - before
    except NamespaceError as error:
        pytest.skip(f"NOT TESTED ON TWO HOSTS: {error}")
    expected = 2 * 512 * 1024 * 4
    assert crossed["flat"] - crossed["two-level"] == pytest.approx(expected, rel=0.15)


@pytest.mark.parametrize(
    ("sent", "seconds", "named"),
    [
        (signal.SIGKILL, 10, r"rank [13] |control_cb .* assert \(!closed\) failed"),  # mpiexec's own words
        (
            signal.SIGSTOP,
            20,
            # On a busy host one of the two may have been heard of a little later than the other.
            r"rank (1 and rank 3|1|3) gave no sign of life for 10 s \(frozen, or its host is gone\)",
        ),
    ],
    ids=["killed", "frozen"],
)
def test_a_host_that_is_killed_or_frozen_ends_the_command(hosts, launched, sent, seconds, named):
    process = launched(*FOREVER)
    assert re.search(r"0 is \d+ on", process.stderr.readline())  # the note that names the ranks
    time.sleep(1.0)
    processes = hosts.processes(1)
    for number in processes:
        os.kill(number, sent)
    began = time.monotonic()
    try:
        _, stderr = process.communicate(timeout=60)
    finally:
        for number in processes if sent == signal.SIGSTOP else ():
            os.kill(number, signal.SIGKILL)
    assert process.returncode != 0
    assert time.monotonic() - began < seconds
    assert re.search(named, stderr), stderr


@pytest.mark.parametrize("how", ["SIGKILL", "SIGSTOP"])
def test_own_arrays_name_a_rank_of_the_other_host_that_is_killed_or_stopped(hosts, how):
    """No other rank of its host can see that it is stopped: each rank that waits writes a note."""
    program = f"""
import os, signal, numpy, umm
from mpi4py import MPI
from umm_hw.arrays import late
comm, late.FIRST_NOTE_S = MPI.COMM_WORLD, 1.0
A = umm.DistributedMatrix.wrap(comm, "row", (64, 64), numpy.ones((32, 64)))
umm.multiply(A, A, "row")
print(os.getpid(), flush=True)
if comm.rank == 1:
    os.kill(os.getpid(), signal.{how})
umm.multiply(A, A, "row")
"""
    process = subprocess.Popen(
        [hosts.mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # One kernel has both hosts: left to itself it would share memory.
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "UMM_MPI_WINDOW": "remote"},
    )
    try:
        wanted = r"note: rank 0 has waited 1 s for all to call; rank 1 did not come"
        if how == "SIGKILL":
            wanted = r"error: rank 1 \(process \d+\) was killed.*; its last call multiplies 64x64 in row"
        lines = iter(process.stderr.readline, "")
        assert any(re.search(wanted, line) for line in lines)
    finally:
        for host in (0, 1):
            for left in hosts.processes(host):
                with suppress(ProcessLookupError):
                    os.kill(left, signal.SIGKILL)
        process.communicate(timeout=60)

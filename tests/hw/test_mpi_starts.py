"""A job that does not come to start ends soon, says why, and leaves no process, folder or segment."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import mpi_programs
import pytest

from umm.errors import UmmError
from umm.host.launcher import children
from umm_hw.mpi.job import job
from umm_hw.mpi.job.job import MpiJob, find_mpiexec, job_environment, meeting_place

pytestmark = pytest.mark.mpi
SCRIPT = """
import sys
from umm_hw.mpi.job import job
job.find_mpiexec = lambda: sys.argv[1]
job.MpiJob(2)
"""
FEW = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (5, 5))
try:
    job.MpiJob(2)
except Exception as error:
    print(type(error).__name__, error)
"""
OWN = """
import sys
from umm.cli.main import main
print("begun", flush=True)
sys.argv[1:] = "run --executor mpi -m 8 -n 8 -k 8 --iters 1000000".split()
main()
"""
HALTS = """
import os, signal, time
named = {line.split(maxsplit=5)[-1] for line in open("/proc/self/maps") if "/dev/shm/" in line}
path = os.path.join(os.path.dirname(__file__), os.environ["PMI_RANK"])
with open(path + ".new", "w") as note:
    note.writelines(named)
os.rename(path + ".new", path + ".segments")
if os.environ["PMI_RANK"] == os.environ.get("KILLED_RANK"):
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    """A folder for temporary files that is this test's own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    return tmp_path / "tmp"


def launcher(folder, text):
    """A script in place of mpiexec."""
    path = folder / "mpiexec"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.05)
    return condition()


def running(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_an_mpiexec_that_ends_at_once_is_told_from_one_that_takes_too_long(tmp_path, temporary, monkeypatch):
    monkeypatch.setattr(job, "find_mpiexec", lambda: launcher(tmp_path, "echo no such host; exit 3"))
    with pytest.raises(UmmError, match="the MPI job of 2 ranks ended while it started: no such host"):
        MpiJob(2)
    monkeypatch.setattr(job, "find_mpiexec", lambda: launcher(tmp_path, "exec sleep 60"))
    monkeypatch.setattr(job, "START_WITHIN", 0.3)
    with pytest.raises(UmmError, match="did not start within 0 s: it printed nothing"):
        MpiJob(2)
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("end", ["kill -KILL $$", "sleep 0.5; exit 130", "exit 130", "exit 0"])
def test_a_rank_that_ends_before_it_runs_ends_the_job(tmp_path, temporary, monkeypatch, end):
    """By a kill, Ctrl-C or itself: mpiexec may not notice, and the others would wait for it in MPI_Init.

    One that ends at once is there between two looks of the keeper, and nobody lists it afterwards.
    """
    kill = f'if [ "$PMI_RANK" = 1 ]; then {end}; fi; exec "$@"'
    text = f"shift 2; exec {find_mpiexec()} -n 3 sh -c '{kill}' sh \"$@\""
    monkeypatch.setattr(job, "find_mpiexec", lambda: launcher(tmp_path, text))
    began = time.monotonic()
    with pytest.raises(UmmError, match=r"(a process|process \d+|a rank) (on \S+ )?was killed or ended"):
        MpiJob(3)
    assert time.monotonic() - began < 20
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("started", ["sleep 0.5 &", "/bin/true;"])
def test_an_mpiexec_that_stays_when_all_it_started_is_gone_is_ended(
    tmp_path, temporary, monkeypatch, started
):
    """The second is gone before anybody has seen it."""
    monkeypatch.setattr(job, "find_mpiexec", lambda: launcher(tmp_path, f"{started} exec sleep 60"))
    with pytest.raises(UmmError, match="all that mpiexec had started was killed or ended early"):
        MpiJob(2)
    assert not list(temporary.iterdir())


def test_what_a_rank_has_said_before_it_ended_is_the_reason(tmp_path, temporary, monkeypatch):
    text = 'if [ "$PMI_RANK" = 1 ]; then echo ImportError: no library x >&2; exit 1; fi; exec "$@"'
    text = f"shift 2; exec {find_mpiexec()} -n 2 sh -c '{text}' sh \"$@\""
    monkeypatch.setattr(job, "find_mpiexec", lambda: launcher(tmp_path, text))
    with pytest.raises(UmmError, match=r"ended while the ranks started: ImportError: no library x$"):
        MpiJob(2)
    assert not list(temporary.iterdir())


@pytest.fixture
def begun(tmp_path, monkeypatch):
    """Let ranks halt right after MPI_Init, their segments noted; returns a wait for two or more segments."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "threadpoolctl.py").write_text(HALTS)  # imported right after MPI_Init
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *sys.path]))

    def named():
        notes = [x.read_text().split() for x in site.glob("*.segments")]
        return [Path(x) for note in notes for x in note] if len(notes) > 1 else []

    return named


def test_a_rank_that_is_killed_while_mpi_begins_is_named_and_leaves_no_segment(temporary, begun, monkeypatch):
    """Its supervisor names it, and ends so that mpiexec notices."""
    monkeypatch.setenv("KILLED_RANK", "1")
    with pytest.raises(UmmError, match=r"rank 1 \(process \d+\) was ended by SIGKILL"):
        MpiJob(3)
    assert not list(temporary.iterdir())
    assert begun()
    assert until(lambda: not any(x.exists() for x in begun()))


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_ends_while_mpi_begins_leaves_neither_segment_nor_folder(temporary, begun, sent):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, find_mpiexec()], stderr=subprocess.DEVNULL)
    try:
        assert until(begun, 30)
        assert any(x.exists() for x in begun())
        process.send_signal(sent)
        process.wait(20)
    finally:
        process.kill()
        process.wait()
    assert until(lambda: not any(x.exists() for x in begun()))
    assert until(lambda: not list(temporary.iterdir()))


def test_ctrl_c_while_the_keeper_starts_ends_it_in_a_process_that_goes_on(temporary, monkeypatch):
    """It comes once the keeper is there and nobody has it yet: on a busy host for hundredths of a second."""
    before, usual = set(children(os.getpid())), os.read

    def interrupted(*_):
        monkeypatch.setattr(os, "read", usual)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        MpiJob(2)
    assert set(children(os.getpid())) == before
    assert not list(temporary.iterdir())


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_a_command_that_ends_while_ranks_start_takes_all_with_it(tmp_path, temporary, sent):
    """The launcher here leaves a child that would outlive it, in a session of its own."""
    note = tmp_path / "children"
    mpiexec = launcher(tmp_path, f"setsid sleep 60 &\necho $! $$ > {note}.new; mv {note}.new {note}; wait")
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, mpiexec], stderr=subprocess.DEVNULL)
    try:
        assert until(note.exists, 30)
        assert list(temporary.iterdir())
        process.send_signal(sent)
        process.wait(20)
    finally:
        process.kill()
    assert until(lambda: not any(running(x) for x in note.read_text().split()))
    assert until(lambda: not list(temporary.iterdir()))


def test_too_few_open_files_are_one_line(temporary):
    text = SCRIPT.replace("job.MpiJob(2)", FEW)
    done = subprocess.run(
        [sys.executable, "-c", text, find_mpiexec()], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "UmmError the MPI job of 2 ranks cannot start: Too many open files\n", done.stderr
    assert not list(temporary.iterdir())


def test_ranks_meet_in_a_folder_of_a_short_name(tmp_path, monkeypatch):
    """A socket's name has at most 107 bytes."""
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    folder = meeting_place()
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "socket"))
        (folder / "socket").unlink()
    finally:
        folder.rmdir()


def test_a_folder_that_nobody_has_removed_goes_at_the_next_start(temporary):
    old, young = (temporary / f"umm-mpi-{x}" for x in ("old", "young"))
    for folder in (old, young):
        folder.mkdir()
    os.utime(old, (time.time() - 121,) * 2)
    assert set(temporary.iterdir()) == {old, young}
    made = meeting_place()
    assert set(temporary.iterdir()) == {young, made}


@pytest.mark.parametrize("seconds", [0.1, 0.2, 0.4])
def test_ctrl_c_before_mpi_begins_in_an_mpiexec_of_the_user_s_own_is_one_line(temporary, seconds):
    """Ctrl-C reaches mpiexec and its ranks; most of the first half second goes to imports before MPI."""
    process = subprocess.Popen(
        [find_mpiexec(), "-n", "2", sys.executable, "-c", OWN],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        assert sorted(process.stdout.read(12)) == sorted("begun\n" * 2)  # lines of two ranks may mix
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        result = process.communicate(timeout=20)[1]
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 130
    assert [x for x in result.splitlines() if x and not x.startswith("[mpiexec@")] == ["error: interrupted"]
    assert not list(temporary.iterdir())


def test_ranks_learn_nothing_of_an_mpiexec_of_before():
    before = {"PMI_RANK": "3", "PMI_FD": "9", "PMIX_RANK": "3", "MPI_LOCALRANKID": "1", "HYDRA_IFACE": "eth1"}
    assert set(job_environment(before)) & set(before) == {"HYDRA_IFACE"}


def test_mpiexec_keeps_its_topology_library():
    """Without one its proxies leave descriptions of the host in the temporary folder."""
    assert "HYDRA_TOPOLIB" not in job_environment({})


def test_mpiexec_s_advice_is_not_the_reason():
    result = (
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        "=   PID 47 RUNNING AT n3\n=   EXIT CODE: 9\n"
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)\nPlease see the FAQ page\n"
    )
    assert job._reason(result) == "process 47 on n3 was killed or ended early"
    failed = "Traceback (most recent call last):\nRuntimeError: cannot load MPI library\n"
    assert job._reason(failed + result).endswith(
        "was killed or ended early: RuntimeError: cannot load MPI library"
    )


def test_an_mpiexec_that_missed_how_a_process_ended_says_that_one_has():
    result = (
        "[mpiexec@vm] control_cb (mpiexec/pmiserv_cb.c:280): assert (!closed) failed\n"
        "[mpiexec@vm] main (mpiexec/mpiexec.c:270): process manager error waiting for completion\n"
    )
    assert job._reason(result) == "a process was killed or ended early"


def test_the_first_line_of_mpiexec_is_the_cause():
    first = "[proxy:0@vm] HYDU_create_process (lib/utils/launch.c:26): pipe error (Too many open files)"
    result = f"{first}\n[proxy:0@vm] main (proxy/pmip.c:122): demux engine error waiting for event\n"
    assert job._reason(result) == first


def test_no_rank_of_one_host_can_be_reached_from_another(lent):
    assert lent(2).call(2, mpi_programs.open_ports) == [set(), set()]


def parent(number):
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def test_ranks_end_with_the_proxy_of_mpiexec():
    """It is the parent of a rank's supervisor, and mpiexec does not notice."""
    made = MpiJob(2, timeout=60)
    os.kill(parent(parent(made.processes[0][1])), signal.SIGKILL)
    assert until(lambda: not any(running(number) for _, number in made.processes))
    with pytest.raises(UmmError, match="ended early"):
        made.call(2, mpi_programs.ranks)

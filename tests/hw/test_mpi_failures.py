"""Nothing hangs: ranks that freeze, die, fail or get stuck end the job, with a message that names them."""

import os
import re
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import mpi_programs
import numpy as np
import pytest

import umm
from umm.errors import InfeasibleError, InputError, UmmError
from umm.schedules.file.arrays import to_arrays
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob, find_mpiexec
from umm_hw.performance import operands_of

pytestmark = pytest.mark.mpi
COMMAND = [
    sys.executable,
    "-m",
    "umm.cli.main",
    "run",
    "--executor",
    "mpi",
    "-m",
    "64",
    "-n",
    "64",
    "-k",
    "64",
]
LONG = ["--iters", "1000000"]


def small(ranks, **layouts):
    return umm.schedule(umm.Problem(m=64, n=48, k=32, ranks=ranks, **layouts), "dgx-h100x4")


def segments():
    """Shared memory that MPI jobs have on this host, and the folders of jobs."""
    folders = [path for path in Path("/tmp").glob("umm-mpi-*") if (path / "socket").exists()]
    return {*Path("/dev/shm").glob("mpich*"), *folders}


def are_gone(before):
    """Whether all segments and folders that are new now go in time; jobs of others have some meanwhile."""
    new = segments() - before
    return until(lambda: not new & segments(), 10)


def is_running(process):
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def until(condition, seconds):
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return False


def ended_by(program, ranks=3):
    """The message of a job that a program ends, and the seconds it took."""
    job = MpiJob(ranks, timeout=60)
    began = time.monotonic()
    with pytest.raises(UmmError) as error:
        job.call(ranks, program)
    seconds = time.monotonic() - began
    assert until(lambda: not any(is_running(process) for _, process in job.processes), 5)
    assert not job.running
    return str(error.value), seconds


def test_a_job_leaves_no_description_of_the_host():
    """Hydra's proxies write one each, in /tmp wherever TMPDIR points; those of others' jobs go with them."""

    def described():
        return set(Path("/tmp").glob("hydra_hwloc_xmlfile_*"))

    before = described()
    for _ in range(2):
        job = MpiJob(2, timeout=60)
        assert job.call(2, mpi_programs.ranks) == [0, 1]
        job.close()
    left = described() - before
    assert until(lambda: not left & described(), 20)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_killed_rank_is_named(rank):
    message, seconds = ended_by(partial(mpi_programs.die, rank=rank))
    assert re.search(rf"rank {rank} \(process \d+ on .+\) was killed or ended early", message)
    assert seconds < 5


def test_a_rank_that_was_killed_between_two_runs_is_named():
    job = MpiJob(2, timeout=60)
    os.kill(job.processes[0][1], signal.SIGKILL)
    assert until(lambda: not is_running(job.processes[0][1]), 5)
    with pytest.raises(UmmError, match=r"rank 0 .* was killed or ended early"):
        job.call(2, mpi_programs.ranks)


def test_a_frozen_rank_is_named_with_what_was_waited_for():
    message, _ = ended_by(partial(mpi_programs.freeze, rank=1, silence=2.0))
    assert "rank 1 gave no sign of life for 2 s" in message
    assert "while rank 0 waited for" in message


def test_a_rank_that_fails_alone_is_named_with_its_error():
    message, seconds = ended_by(partial(mpi_programs.fail, rank=1), ranks=2)
    assert message.endswith("rank 1 failed: ZeroDivisionError: on purpose")
    assert seconds < 5


def test_an_action_that_never_ends_is_named():
    arrays = to_arrays(small(3, a="col", b="row", c="row"))
    job = MpiJob(3, timeout=60)
    with pytest.raises(UmmError, match=r"rank 1 is stuck in action \d+ \(gemm of rank 1\), which runs for"):
        job.call(3, partial(mpi_programs.stick, arrays=arrays, limit=1.5), operands_of(small(3)))


def test_memory_that_is_not_there_is_refused_before_it_is_taken_and_the_ranks_go_on(lent):
    """64x48x32 in float32 is 62.0 KiB with its pools and the gathered C; 20,000 bytes are free."""
    job = lent(2)
    schedule = small(2, b="row", c="row")
    with pytest.raises(InfeasibleError, match=r"2 ranks on one host need .* 19.5 KiB is free: .* short"):
        job.call(2, partial(mpi_programs.starve, arrays=to_arrays(schedule), free=20_000))
    assert job.call(2, mpi_programs.ranks) == [0, 1]


def test_clocks_of_ranks_are_aligned_better_than_50_microseconds(lent):
    """By questions and answers, as between hosts; on this one all ranks read the same clock."""
    job = lent(2)
    offsets = min(
        (job.call(2, mpi_programs.clock_offset) for _ in range(5)), key=lambda result: abs(result[1])
    )
    assert offsets[0] == 0
    assert abs(offsets[1]) < 50e-6


@pytest.mark.usefixtures("shared_ranks")
def test_more_ranks_than_the_job_has_are_refused_and_fewer_are_fine():
    executor = MpiExecutor(ranks=2, timeout=60)
    schedule = small(3)
    with pytest.raises(InputError, match="the schedule is for 3 ranks, but 2 run"):
        executor.run(schedule)
    assert executor.run(small(1)).makespan_s > 0
    executor.close()


def test_a_plain_program_runs_a_schedule_without_mpi_of_its_own():
    schedule = small(2, b="col", c="2d")
    a, b = operands_of(schedule).values()
    before = segments()
    trace = umm.run(schedule, executor="mpi", operands=(a, b), timeout=60)
    assert trace.source == "mpi"
    assert np.allclose(trace.result, a @ b, atol=1e-4)
    assert are_gone(before)


SCRIPT = """
import sys, umm
schedule = umm.schedule(umm.Problem(m=64, n=64, k=64, ranks=2), "localhost")
umm.run(schedule, executor="mpi")
print("done, MPI here:", "mpi4py.MPI" in sys.modules)
"""


def scripted(script, ranks=None):
    """Exit code and stdout of a Python script, under mpiexec if ranks are given."""
    launcher = [] if ranks is None else [find_mpiexec(), "-n", str(ranks)]
    done = subprocess.run(
        [*launcher, sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stdout


def test_mpi_starts_in_the_ranks_alone():
    assert scripted(SCRIPT) == (0, "done, MPI here: False\n")


def test_a_script_under_mpiexec_is_led_by_rank_0_and_ends_with_it():
    assert scripted(SCRIPT, ranks=2) == (0, "done, MPI here: True\n")
    assert scripted(SCRIPT + "raise SystemExit(5)", ranks=2)[0] == 5


# Commands -----------------------------------------------------------------------------------------


def command(*arguments, ranks=None, **extra):
    """A running umm command, under mpiexec if ranks are given."""
    launcher = [] if ranks is None else [find_mpiexec(), "-n", str(ranks)]
    return subprocess.Popen(
        [*launcher, *COMMAND, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **extra,
    )


def finished(process, timeout=60):
    """Exit code, stdout and stderr of a command that ends by itself."""
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    finally:
        process.kill()
    return process.returncode, stdout, stderr


def ranks_of(process):
    """The process of each rank, from the note that a command under mpiexec begins with."""
    output = []
    for line in process.stderr:
        if result := re.findall(r"is (\d+) on", line):
            return [int(number) for number in result]
        output.append(line)
    raise AssertionError("no rank was named: " + "".join(output))


@pytest.mark.parametrize("ranks", [1, 2])
def test_under_mpiexec_one_rank_speaks_for_all(ranks):
    code, stdout, stderr = finished(command("--iters", "2", "--check", "--b", "col", ranks=ranks))
    assert code == 0, stderr
    assert stdout.count("C is right") == 1
    assert f"{ranks} rank" in stdout


def test_a_bad_schedule_file_fails_on_every_rank_with_one_message(tmp_path):
    bad = tmp_path / "bad.json"
    bad.write_text('{"schema": 1}')
    process = subprocess.run(
        [find_mpiexec(), "-n", "3", *COMMAND[:6], "--schedule", str(bad), "--quiet"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert process.returncode == 2
    assert process.stderr.startswith(f"error: {bad}: not a schedule of schema 2: schema is 1; make it anew")
    assert process.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("sent", "seconds", "named"),
    [
        (signal.SIGSTOP, 15, "rank 1 gave no sign of life for 10 s"),
        (signal.SIGKILL, 5, "rank 1 (process {} on"),
    ],
    ids=["frozen", "killed"],
)
def test_a_frozen_or_killed_rank_of_a_command_ends_it_within_seconds_and_is_named(sent, seconds, named):
    process = command(*LONG, ranks=2)
    ranks = ranks_of(process)
    time.sleep(1.0)
    os.kill(ranks[1], sent)
    began = time.monotonic()
    code, _, stderr = finished(process)
    assert time.monotonic() - began < seconds
    assert code != 0
    assert named.format(ranks[1]) in stderr


@pytest.mark.parametrize("ranks", [None, 2])
def test_ctrl_c_ends_a_command_with_130_and_leaves_nothing_behind(ranks):
    before = segments()
    process = command(*LONG, ranks=ranks)
    next(line for line in process.stderr if "running with mpi" in line)
    time.sleep(1.0)
    process.send_signal(signal.SIGINT)
    code, _, stderr = finished(process)
    assert code == 130, stderr
    assert are_gone(before), segments() - before


def test_ranks_whose_command_is_killed_end_and_leave_nothing_behind():
    before = segments()
    process = command(*LONG, "--ranks", "2")
    assert until(lambda: segments() - before, 30)
    time.sleep(2.0)
    process.kill()
    finished(process)
    assert are_gone(before), segments() - before


def test_the_mpiexec_of_another_mpi_is_told_apart():
    environment = os.environ | {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}
    code, _, stderr = finished(command(env=environment))
    assert code == 1
    assert "mpiexec started 4 processes, but mpi4py sees 1: they belong to different MPIs" in stderr

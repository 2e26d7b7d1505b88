"""Programs that hold distributed matrices multiply them where they are: run by mpiexec, as anybody would."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from umm_hw.mpi.job.job import find_mpiexec

ROOT = Path(__file__).parents[2]
HELPERS = ROOT / "tests/helpers"
GUIDE = ROOT / "docs/guides/your-own-arrays.md"

pytestmark = pytest.mark.mpi


def launched(ranks, *command, code=0, **environment):
    """The output of ranks, and their errors."""
    set_ = {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HELPERS), **environment}
    done = subprocess.run(
        [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "mpi4py", *map(str, command)],
        env=os.environ | set_,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == code or code is None, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def stories():
    """The result of each story of array_stories.py, on four ranks."""
    return json.loads(launched(4, HELPERS / "array_stories.py")[0])


def agreed(stories, name):
    """The results that all ranks share."""
    first = stories[name][0]
    assert all(story == first for story in stories[name]), stories[name]
    return first


def test_random_cases_equal_numpy_and_nothing_else_is_written(stories):
    """Types, transposes, factors, windows, uneven and cyclic layouts, replicas, gaps between columns."""
    assert agreed(stories, "random_cases") == []
    out, _ = launched(3, HELPERS / "array_cases.py", 8, 38)
    assert out == "8 of 8 right on 3 ranks\n"


def test_ranks_that_share_no_memory_send_messages_and_get_the_same():
    out, _ = launched(3, HELPERS / "array_cases.py", 8, 38, UMM_MPI_WINDOW="remote")
    assert out == "8 of 8 right on 3 ranks\n"


def test_the_product_comes_in_a_layout_or_in_ones_own_memory(stories):
    assert agreed(stories, "in_a_layout") == ["2d", True]
    assert agreed(stories, "copied") == [True, True]


def test_a_matrix_and_a_window_of_it_are_redistributed(stories):
    assert agreed(stories, "redistributed") is True


def test_batches_multiplies_in_flight_and_halves_of_the_ranks(stories):
    assert agreed(stories, "batched") == [3, True]
    assert agreed(stories, "in_flight") is True
    assert agreed(stories, "on_half") is True


def test_memory_beside_the_operands_is_what_the_plan_says(stories):
    """Within 5 %: NumPy's own peak and the shared memory of each rank, in steps that fit 6 MiB."""
    (ranks, in_steps) = agreed(stories, "planned")
    assert in_steps
    for taken, planned in ranks:
        assert taken == pytest.approx(planned, rel=0.05)


def test_the_cases_of_the_testers_of_pblas(stories):
    """Eight problems with submatrices and gaps, on three grids."""
    assert agreed(stories, "pblas_cases") == 24


@pytest.mark.parametrize(
    ("story", "words"),
    [
        ("layouts_differ", "the layout is row on rank 0 and cyclic:1x96:4x1 on rank 2; nothing was moved"),
        ("calls_differ", "into 96x96 in row, float64 by 1, 0; rank 1 multiplies"),
        ("factors_differ", "by 1.0, 0; rank 3 multiplies"),
        ("one_is_read_only", "rank 2's local matrix is read-only"),
        ("one_is_strided", "the local matrix of rank 1 is strided both ways"),
        ("one_is_short", "rank 3 holds 24x96 of 96x96 in row, but its local array is 23x96"),
        ("sizes_do_not_fit", "C = op(A)·op(B) needs B of 96 rows"),
        ("too_little_memory", "no way to multiply fits 100 B"),
        ("writes_to_itself", "C shares memory with A"),
        ("a_layout_as_out", "a layout goes third, not 'row', a str"),
        ("submatrix_leaves", "ia=2, ja=1 leaves A of 8x8"),
        ("reads_a_tile", "a wrapped matrix has no one-sided access"),
    ],
)
def test_what_cannot_be_is_refused_on_every_rank_before_anything_is_moved(stories, story, words):
    assert all(words in message for message in stories[story]), stories[story]


WAYS = pytest.mark.parametrize("environment", [{}, {"UMM_MPI_WINDOW": "remote"}], ids=["shared", "messages"])
MULTIPLIES = """
import os, signal, sys, time, numpy, umm
from mpi4py import MPI
from umm_hw.arrays import board, late
comm, rank = MPI.COMM_WORLD, MPI.COMM_WORLD.rank
A = umm.DistributedMatrix.wrap(comm, "row", (64, 64), numpy.ones((16, 64)))
umm.multiply(A, A, "row")
"""
LAST_CALL = r"its last call multiplies 64x64 in row by 64x64 in row into 64x64 in row, float64 by 1, 0"


@WAYS
def test_a_killed_rank_is_named_with_its_last_call_and_leaves_no_shared_memory(environment):
    """MPICH's segments are still named while its ranks run, and mpiexec kills those."""
    program = """
print(*(x.split()[-1] for x in open("/proc/self/maps") if "/dev/shm/mpich" in x), flush=True)
comm.Barrier()
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
umm.multiply(A, A, "row")
"""
    out, result = launched(4, "-c", MULTIPLIES + program, code=None, **environment)
    assert re.search(
        rf"error: rank 2 \(process \d+\) was killed( by SIGKILL|; the others end)?; {LAST_CALL}", result
    ), result
    segments = {Path(name) for name in out.split()}
    assert segments
    end = time.monotonic() + 20
    while (left := [x for x in segments if x.exists()]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


@WAYS
def test_a_stopped_rank_is_an_error_with_its_last_call_on_every_other(environment):
    program = """
board.STOPPED = 1.0
if rank == 2:
    os.kill(os.getpid(), signal.SIGSTOP)
try:
    umm.multiply(A, A, "row")
except umm.errors.UmmError as error:
    os.write(1, f"{error}\\n".encode())
    time.sleep(1)
    comm.Abort(1)
"""
    out, _ = launched(4, "-c", MULTIPLIES + program, code=None, **environment)
    lines = out.splitlines()
    assert len(lines) == 3
    assert len(set(lines)) == 1
    assert re.match(
        r"rank 2 \(process \d+\) has been stopped for 1 s, and the others wait for it; ", lines[0]
    )
    assert re.search(LAST_CALL, lines[0])


NOTES = """
late.FIRST_NOTE_S = 0.3
for slow in (0, 2):
    if rank == slow:
        time.sleep(1.5)
    C = umm.multiply(A, A, "row")
    assert (C.local == 64).all()
late.FIRST_NOTE_S = 8.0
"""
CALLS = """
calls = {
    "wraps 64x64": lambda: umm.DistributedMatrix.wrap(comm, "row", (64, 64), numpy.ones((16, 64))),
    "multiplies 64x64 in row": lambda: umm.multiply(A, A, "row"),
    "redistributes 64x64 from row to col": lambda: umm.redistribute(A, "col"),
    "gathers 64x64 of row": lambda: A.gather(),
}
for here in calls:
    for there in calls:
        try:
            calls[there if rank == 1 else here]()
            said = ""
        except umm.errors.LayoutError as error:
            said = str(error)
        every = comm.allgather(said)
        assert len(set(every)) == 1, every
        words = f"ranks ask for different operations, nothing was moved: rank 0 {here}", f"; rank 1 {there}"
        assert all(x in said for x in words) if here != there else not said, (here, there, said)
assert (umm.multiply(A, A, "row").local == 64).all()
"""


@WAYS
def test_ranks_that_wait_or_make_different_calls_say_so_and_go_on(environment):
    """A rank that lets others wait is named while they wait: it may compute, and no rank is ended.

    Then every pair of calls, the one on rank 1 and the other on the others: all get one error.
    """
    _, result = launched(4, "-c", MULTIPLIES + NOTES + CALLS, **environment)
    for rank, slow in [(1, 0), (2, 0), (3, 0), (0, 2), (1, 2), (3, 2)]:
        assert re.search(
            rf"note: rank {rank} has waited \d s for all to call; rank {slow}\b.* did not come", result
        )


def test_the_program_of_the_guide_runs_on_four_ranks(tmp_path):
    program = re.search(r"```python\n(# own\.py\n.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)[1]
    assert len([line for line in program.splitlines()[1:] if line]) == 10
    (tmp_path / "own.py").write_text(program)
    out, _ = launched(4, tmp_path / "own.py")
    assert out.count("float64, 1200x800 in 2d:2x2 over 4 ranks") == out.count("True") == 4, out

"""Sweeps: every point once, whoever fills the store, however often it is stopped."""

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import pytest
from command import good, umm

from umm.errors import InputError, MachineError, UmmError
from umm.space import Space, Store, search, sweep
from umm.space.store.pools import find_pool
from umm.space.store.runs import Task

SPACE = Space(m=64, n=96, k=48, partitions=("row", "col"), replication=(1, 2))  # 192 points
SCRIPT = """
import sys
from umm.space import Space, sweep
if __name__ == "__main__":
    space = Space(m=64, n=96, k=48, partitions=("row", "col"), replication=eval(sys.argv[3]))
    sweep(space, ["h100-8", "pvc-12"], sys.argv[1], jobs=2, pool=sys.argv[2])
"""
FEW, MANY = (1, 2), (1, 2, 4)
ASKED = {FEW: 2 * 3 * 4**3, MANY: 2 * 3 * 6**3}  # two machines, three stationaries, layouts of each operand


CORNER = ["-m", "64,128", "-n", 96, "-k", 48, "--a", "row,col", "--b", "row", "--c", "2d"]  # 12 points


def start(folder, pool="process", command=(sys.executable,), replication=FEW):
    script = Path(folder) / "script.py"
    script.write_text(SCRIPT)
    words = [*command, str(script), str(Path(folder) / "s.db"), pool, str(replication)]
    return subprocess.Popen(words, start_new_session=True)


def rows_of(process, path, least=32):
    """Wait until a sweep that runs has stored so many rows at least; return how many there are."""
    rows = 0
    while rows < least:
        assert process.poll() is None
        time.sleep(0.05)
        if path.exists():
            with Store(path) as store:
                rows = len(store)
    return rows


def test_every_point_is_stored_once_with_the_makespan_that_a_search_finds(tmp_path):
    swept = sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none")
    assert (swept.asked, swept.found, swept.performed, swept.failed) == (192, 0, 192, 0)
    frame = swept.to_frame()
    assert frame.config_id.nunique() == 192
    assert frame.machine.unique().tolist() == ["h100-8"]
    assert ((frame.gap >= 0) & (frame.gap < 1)).all()
    assert set(frame.status) == {"ok"}
    best = search(SPACE, "h100-8", memory=None, top=1).top[0]
    assert frame.time_s[0] == pytest.approx(best.makespan_s)
    assert frame.memory_bytes[0] == best.memory_bytes


def test_the_gap_to_the_best_steps_is_a_column_where_a_policy_proves_one(tmp_path):
    """Exhaustive proves its steps an optimum; direct and cost greedy prove nothing."""
    space = Space(
        m=96, n=96, k=96, ranks=4, a="col", b="row", c="2d", policy=("direct", "cost-greedy", "exhaustive")
    )
    result = search(space, "pvc-12", memory=None).to_frame()
    stored = sweep(space, "pvc-12", tmp_path / "s.db", pool="none").to_frame()
    for frame in (result, stored):
        gaps = frame.groupby("policy").steps_gap
        assert gaps.count().to_dict() == {"direct": 0, "cost-greedy": 0, "exhaustive": 3}
        assert gaps.max()["exhaustive"] == 0


def test_a_second_sweep_finds_everything_and_a_wider_one_adds_what_is_new(tmp_path):
    sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none")
    again = sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none")
    assert (again.found, again.performed) == (192, 0)
    wider = sweep([SPACE, Space(m=128, n=96, k=48, a="row")], ["h100-8"], tmp_path / "s.db", pool="none")
    assert (wider.asked, wider.found) == (192 + 9 * 9 * 3, 192)
    assert len(wider.to_frame()) == wider.asked


def test_progress_tells_rate_time_left_and_new_rows(tmp_path):
    seen = []
    sweep(SPACE, "h100-8", tmp_path / "s.db", pool="none", progress=seen.append)
    assert sum(len(progress.rows) for progress in seen) == seen[-1].performed == 192
    assert seen[0].left_s > seen[-1].left_s == 0
    assert seen[-1].rate > 0


def test_a_budget_and_bounds_are_stored_as_such(tmp_path):
    """Under a budget a point is simulated or stored as too large; a bound is never above its simulation."""
    path = tmp_path / "s.db"
    tight = sweep(SPACE, "h100-8", path, memory="2x", pool="none").to_frame()
    assert set(tight.status) == {"ok", "too large"}
    limit = 2 * SPACE.on(8).points().share
    assert (tight.memory_bytes[tight.status == "ok"] <= limit).all()
    assert (tight.memory_bytes[tight.status == "too large"] > limit).all()
    sweep(SPACE, "h100-8", path, pool="none")
    frame = sweep(SPACE, "h100-8", path, executor="bound", pool="none").to_frame()
    assert set(frame.status) == {"ok"}
    named = ["a", "b", "c", "stationary"]
    bound, sim = (frame[frame.source == source].set_index(named).sort_index() for source in ("bound", "sim"))
    assert len(bound) == len(sim) == 192
    assert (bound.time_s <= sim.time_s).all()


def test_a_sweep_holds_points_to_the_device_s_memory_as_a_search_does(tmp_path):
    """h100-8 with 80 GB a device: an A of 96 GB fits in no single one, with or without a budget."""
    space = Space(m=160_000, n=1024, k=150_000, ranks=8, a=["row", "row@8"], b="row", c="row", stationary="C")
    for memory in (None, "100x"):
        path = tmp_path / f"{memory}.db"
        rows = sweep(space, "h100-8", path, executor="bound", memory=memory, pool="none").to_frame()
        assert dict(zip(rows["a"], rows["status"], strict=True)) == {"row": "ok", "row@8": "too large"}
        assert "80000000000 bytes" in rows.set_index("a").loc["row@8", "error"]


def test_a_killed_sweep_keeps_its_points_and_goes_on(tmp_path):
    """kill -9 after the first points: rows seen by a reader are there, the rest is done by a second run."""
    path = tmp_path / "s.db"
    process = start(tmp_path, replication=MANY)
    seen = 0
    while seen < 32:
        assert process.poll() is None
        time.sleep(0.05)
        if path.exists():
            with Store(path) as store:
                seen = len(store)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    with Store(path) as store:
        kept = len(store)
    assert seen <= kept < ASKED[MANY]
    assert start(tmp_path, replication=MANY).wait() == 0
    with Store(path) as store:
        frame = store.frame()
    assert len(frame) == frame.config_id.nunique() == ASKED[MANY]


def test_two_sweeps_and_a_reader_share_a_store(tmp_path):
    """Both do the same points at the same time: no error, nothing lost, nothing twice."""
    sweeps = [start(tmp_path), start(tmp_path)]
    while any(process.poll() is None for process in sweeps):
        with Store(tmp_path / "s.db") as store:
            assert len(store.frame()) <= ASKED[FEW]
        time.sleep(0.1)
    assert [process.returncode for process in sweeps] == [0, 0]
    with Store(tmp_path / "s.db") as store:
        frame = store.frame()
    assert len(frame) == frame.config_id.nunique() == ASKED[FEW]
    assert set(frame.status) == {"ok"}


@pytest.mark.mpi
def test_the_ranks_of_mpiexec_share_a_sweep(tmp_path):
    pytest.importorskip("mpi4py")
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        pytest.skip("no mpiexec in this environment")
    process = start(tmp_path, "mpi", (str(mpiexec), "-n", "3", sys.executable))
    assert process.wait(timeout=120) == 0
    with Store(tmp_path / "s.db") as store:
        assert len(store) == ASKED[FEW]


@pytest.mark.mpi
def test_ctrl_c_ends_a_sweep_of_mpiexec_and_keeps_what_is_done(tmp_path):
    """mpiexec hands it to every rank; those that only work leave it to the one that stores."""
    mpiexec = pytest.importorskip("umm_hw.mpi.job.job").find_mpiexec()
    process = start(tmp_path, "mpi", (mpiexec, "-n", "3", sys.executable), replication=MANY)
    rows = rows_of(process, tmp_path / "s.db")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) != 0
    with Store(tmp_path / "s.db") as store:
        assert rows <= len(store) < ASKED[MANY]


def test_the_command_prints_json_lines_exports_and_goes_on(tmp_path):
    path, out = tmp_path / "s.db", tmp_path / "runs.csv"
    asked = ["sweep", *CORNER, "--machine", "h100-8,pvc-12", "-o", path, "--pool", "none"]
    rows = [json.loads(line) for line in good(*asked, "--json", "--export", out).splitlines()]
    assert len(rows) == 24
    assert {(row["schema"], row["command"], row["status"]) for row in rows} == {(1, "sweep", "ok")}
    assert {(row["machine"], row["m"], row["a"]) for row in rows} == {
        (machine, m, a) for machine in ("h100-8", "pvc-12") for m in (64, 128) for a in ("row", "col")
    }
    assert len(pd.read_csv(out)) == 24
    assert "24 points: 24 were in" in umm(*asked).stderr
    assert good(*asked, "--json") == ""


def test_the_command_takes_layers_by_name(tmp_path):
    asked = ["sweep", "--preset", "mlp1,mlp2", "-m", "1K", "--a", "row", "--b", "row", "--c", "row"]
    rows = good(
        *asked, "-o", tmp_path / "s.db", "--pool", "none", "--executor", "bound", "--json"
    ).splitlines()
    sizes = {tuple(json.loads(row)[x] for x in "mnk") for row in rows}
    assert sizes == {(1024, 49152, 12288), (1024, 12288, 49152)}


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["--preset", "mlp3"], "preset 'mlp3' is unknown; choose from mlp1, mlp2"),
        (["--preset", "mlp1", "-k", "4"], "a preset already decides -n and -k"),
        (["-m", "64"], "give -m, -n and -k, or --preset mlp1,mlp2"),
        (["-m", "many"], "'many' is not a size"),
        (["--preset", "mlp1", "--prefetch", "two"], "--prefetch: 'two' is not a whole number"),
        (
            ["--preset", "mlp1", "--export", "runs.xlsx", "--executor", "bound", "--a", "row"],
            "neither .csv nor",
        ),
    ],
)
def test_a_command_that_cannot_be_ends_in_one_line_and_2(tmp_path, flags, line):
    result = umm("sweep", *flags, "-o", tmp_path / "s.db", "--b", "row", "--c", "row", "--pool", "none")
    assert result.exit_code == 2
    assert line in result.stderr
    assert result.stderr.count("\n") <= 2


def test_ctrl_c_ends_the_command_with_130_and_keeps_what_is_done(tmp_path):
    asked = ["sweep", "--preset", "mlp1", "--machine", "pvc-12", "-o", str(tmp_path / "s.db"), "--jobs", "2"]
    code = f"from umm.cli.main import main; main({asked!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    rows = rows_of(process, tmp_path / "s.db")
    os.killpg(process.pid, signal.SIGINT)
    assert "Traceback" not in process.communicate(timeout=60)[1]
    assert process.returncode == 130
    with Store(tmp_path / "s.db") as store:
        assert len(store) >= rows


@pytest.mark.parametrize(
    ("asked", "error", "line"),
    [
        ({"pool": "telepathy"}, InputError, "choose from dask, mpi, none, process"),
        ({"jobs": 0}, InputError, "jobs = 0"),
        ({"memory": "lots"}, InputError, "write it like 2x or 16GiB"),
        ({"machines": "h100-9"}, MachineError, "h100-9"),
        ({"executor": "telepathy", "pool": "none"}, InputError, "executor 'telepathy' is unknown"),
    ],
)
def test_a_sweep_that_cannot_be_says_why(tmp_path, asked, error, line):
    machines = asked.pop("machines", "h100-8")
    with pytest.raises(error, match=line):
        sweep(SPACE, machines, tmp_path / "s.db", **asked)


def test_a_sweep_goes_on_with_new_workers_when_some_are_killed(tmp_path):
    """Twice one of them; every point is stored once, and counted once; a line names who was killed how."""
    kills, lines = [], []

    def kill(progress):
        if progress.lost:
            lines.append(progress.lost)
        elif len(kills) < 2 and len(lines) == len(kills):
            child = multiprocessing.active_children()[0]
            kills.append(child.pid)
            child.kill()

    swept = sweep(SPACE, "h100-8", tmp_path / "s.db", jobs=2, progress=kill)
    assert lines == [
        f"process {pid} of the sweep was killed by SIGKILL; the sweep continues with new workers"
        for pid in kills
    ]
    assert len(kills) == 2
    assert (swept.asked, swept.found, swept.performed) == (192, 0, 192)
    assert swept.to_frame().config_id.nunique() == 192


def test_the_command_says_in_a_line_that_a_worker_was_killed_and_goes_on(tmp_path, monkeypatch):
    perform = Task.perform

    def killed_once(task):
        with suppress(FileExistsError):
            (tmp_path / "killed").touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return perform(task)

    monkeypatch.setattr(Task, "perform", killed_once)
    result = umm("sweep", *CORNER, "-o", tmp_path / "s.db", "--jobs", 2)
    assert result.exit_code == 0
    lost, done = result.stderr.splitlines()
    assert re.fullmatch(
        r"process \d+ of the sweep was killed by SIGKILL; the sweep continues with new workers", lost
    )
    assert done.startswith("12 points: 0 were in")


def test_points_that_kill_every_worker_end_the_sweep_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(Task, "perform", lambda task: os._exit(7))
    with pytest.raises(
        UmmError, match=r"killed 3 times at the same points.* ended with exit code 7"
    ) as error:
        sweep(SPACE, "h100-8", tmp_path / "s.db", jobs=2)
    assert "\n" not in str(error.value)


def test_a_sweep_asks_for_a_few_processes_a_core_at_most():
    with find_pool("process")(100_000) as pool:
        assert pool._max_workers == 4 * os.cpu_count()

"""Kinds of kills: sweeps, runs, starts and saves, each with the state required afterwards."""

import json
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import sleep, time
from urllib.request import Request, urlopen

import numpy as np

import umm
from tests.campaigns.kills.one import SWEEPER, Kind
from tests.campaigns.kills.one import umm as command
from umm.files import PARTIAL, STALE_S, whole_file
from umm.space import Space, Store, sweep
from umm_hw.mpi.job.job import find_mpiexec

UMM = Path(sys.executable).with_name("umm")
LOOP = Path(__file__).parents[2] / "helpers/array_loop.py"
SPACE = Space(m=64, n=96, k=48, partitions=("row", "col"), replication=(1, 2))
POINTS = 192
ALONE = 5  # processes of a sweep of mpiexec before one is started that cleans up
LAYOUTS = "row,col,row@2,col@2"
SWEEP = ["-m", 64, "-n", 96, "-k", 48, "--a", LAYOUTS, "--b", LAYOUTS, "--c", LAYOUTS, "--quiet"]
RUN = ["run", "--executor", "mpi", "-m", 64, "-n", 64, "-k", 64, "--ranks", 4, "--iters", 10**6]
OPENCL = ["opencl" if word == "mpi" else word for word in RUN]
STARTS, RUNS = 12, 9  # most processes while 4 ranks start, and the first ones of a run that goes on


def swept(folder: Path, *words) -> list[str]:
    return command("sweep", *SWEEP, "-o", folder / "s.db", *words)


def rows(folder: Path) -> int:
    path = folder / "s.db"
    if not path.exists():
        return 0
    with sqlite3.connect(path) as store:
        try:
            return int(store.execute("SELECT count(*) FROM all_runs").fetchone()[0])
        except sqlite3.Error:
            return 0


def amid_sweep(folder: Path, processes: dict[int, str], share: float) -> bool:
    """From two processes on, up to most points."""
    return len(processes) > 1 and rows(folder) >= int(1.3 * share * POINTS) - 60


def amid_mpi_sweep(folder: Path, processes: dict[int, str], share: float) -> bool:
    """As amid a sweep, once umm cleans up: remains of a Hydra that is killed before stay."""
    cleans = any(words == SWEEPER and os.getsid(x) == x for x, words in processes.items())
    return len(processes) > ALONE and cleans and amid_sweep(folder, processes, share)


def unfinished(folder: Path) -> str | None:
    """Stored rows are whole and stay, and a second sweep does the rest."""
    path = folder / "s.db"
    kept = rows(folder)
    with Store(path) as store:
        before = store.frame("all_runs")
    if len(before) < kept or before.config_id.nunique() != len(before):
        return f"of {kept} rows {len(before)} are there, {before.config_id.nunique()} of them different"
    frame = sweep(SPACE, "h100-8", path, pool="none").to_frame()
    if (
        len(frame) != POINTS
        or set(frame.status) != {"ok"}
        or not set(before.config_id) <= set(frame.config_id)
    ):
        return f"after going on {len(frame)} rows are there, of {POINTS}"
    return None


def starting(folder: Path, processes: dict[int, str], share: float) -> bool:
    """From the first process beside the command on, until the ranks work."""
    return len(processes) >= 2 + int((STARTS - 2) * share)


def running(folder: Path, processes: dict[int, str], share: float) -> bool:
    """When the folder in which the ranks have met is gone, and a little later."""
    return len(processes) >= RUNS and not any((folder / "tmp").iterdir())


def nothing(folder: Path) -> None:
    """A run has nothing to lose."""


def saved(folder: Path) -> list[int]:
    """The saves that had returned, as the saver printed them."""
    return [int(x) for x in (folder / "output").read_text().splitlines()[1:] if x.isdigit()]


def saving(folder: Path, processes: dict[int, str], share: float) -> bool:
    return len(saved(folder)) >= 1 + int(10 * share)


def not_whole(folder: Path) -> str | None:
    """The checkpoint is the last one whose save had returned, or the one that was killed."""
    last = max(saved(folder))
    result = {float(x) for array in umm.load(folder / "kept").values() for x in np.unique(array)}
    return None if result in ({last}, {last + 1}) else f"{result} is loaded after save {last}"


ASKED_TO_END = (signal.SIGINT, signal.SIGTERM)
ON = ["--machine", "frontera-rtx", "--preset", "mlp1"]
LAYER = ["--chain", "transformer-layer", "--model", "llama-3-8b", "--tokens", "8K", "--machine", "h100-8"]


def after(most: float) -> Callable[[Path, dict[int, str], float], bool]:
    """Return a moment between 2 and most seconds from the start."""
    return lambda folder, _, share: time() - (folder / "began").stat().st_mtime >= 2 + (most - 2) * share


def silent(folder: Path) -> str | None:
    """A command that was asked to end says so, or has ended; it leaves no partial file."""
    result = (folder / "output").read_text(errors="replace")
    partial = [x.name for x in folder.iterdir() if x.name.startswith(".umm-partial")]
    if "Traceback" in result or partial:
        return f"a traceback or partial files {partial}: {result[-300:]}"
    return None if result.strip() else "nothing is said"


def amid_files(folder: Path, processes: dict[int, str], share: float) -> bool:
    """While the first, or up to the third, of the files is written."""
    return len(list(folder.glob("saved.*"))) >= int(3 * share) and any(folder.glob(f"{PARTIAL}*"))


def half_written(folder: Path) -> str | None:
    """Files are whole, and a later save removes the remains of the killed one."""
    for path in folder.glob("saved.*"):
        text = path.read_text()
        if path.suffix == ".html":
            assert text.rstrip().endswith("</html>"), path
        else:
            json.loads(text)
    sleep(STALE_S + 0.1)
    with whole_file(folder / "later") as partial:
        partial.touch()
    left = [x.name for x in folder.iterdir() if x.name.startswith(PARTIAL)]
    return f"a later save leaves {left}" if left else None


def kept(folder: Path) -> str | None:
    """The same, and a calibration's finished rounds can be read; no machine file is there yet."""
    for path in folder.glob("*.json"):
        json.loads(path.read_text())
    return "a machine file is there" if (folder / "this.toml").exists() else silent(folder)


def answering(folder: Path, processes: dict[int, str], share: float) -> bool:
    """Once the page has been asked for a search, and up to 3 s later."""
    outcome, asked = (folder / "output").read_text(errors="replace"), folder / "asked"
    if "http://" not in outcome:
        return False
    if not asked.exists():
        address = outcome[outcome.index("http://") :].split("/?")[0].split()[0].rstrip("/")
        query = "?machine=frontera-rtx&m=8192&n=49152&k=12288&tab=leaderboard"
        for stage in (None, ""):
            body = json.dumps({"query": query, "viewer": "me", "stage": stage}).encode()
            with urlopen(Request(f"{address}/answer", body, {"Content-Type": "application/json"})) as result:
                result.read()
        asked.touch()
    return time() - asked.stat().st_mtime >= 3 * share


def first(folder: Path, processes: dict[int, str], share: float) -> bool:
    """From the moment on when a signal is answered by umm, not by Python, up to half a second later."""
    for process in processes:
        with suppress(OSError, IndexError):
            status = Path(f"/proc/{process}/status").read_text()
            caught = int(status.partition("SigCgt:")[2].split()[0], 16)
            if caught >> (signal.SIGTERM - 1) & 1:
                sleep(0.5 * share)
                return True
    return False


def multiplying(folder: Path, processes: dict[int, str], share: float) -> bool:
    """Once own arrays are multiplied, and up to a second later."""
    output = folder / "output"
    return output.read_bytes().startswith(b"began") and time() - output.stat().st_mtime >= share


def ended(*words: object, most: float = 15.0) -> Kind:
    """Return a long command that is asked to end."""
    return Kind(lambda _: command(*words), after(most), silent, ASKED_TO_END, leads=True)


def saver(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "checkpoint_saver", str(folder / "kept"), *words]


KINDS = {
    "sweep": Kind(lambda folder: swept(folder, "--jobs", 2), amid_sweep, unfinished),
    "mpi-sweep": Kind(
        lambda folder: [find_mpiexec(), "-n", "3", *swept(folder, "--pool", "mpi")],
        amid_mpi_sweep,
        unfinished,
    ),
    "run": Kind(lambda folder: command(*RUN), running, nothing),
    "start": Kind(lambda folder: command(*RUN), starting, nothing),
    "opencl": Kind(lambda folder: command(*OPENCL), running, nothing),
    "files": Kind(
        lambda folder: command(
            "simulate",
            "-m",
            2048,
            "-n",
            2048,
            "-k",
            2048,
            "--c",
            "cyclic:64x64:2x4",
            "--save-schedule",
            folder / "saved.json",
            "--save-trace",
            folder / "saved.trace.json",
            "--perfetto",
            folder / "saved.perfetto.json",
            "--html",
            folder / "saved.html",
        ),
        amid_files,
        half_written,
        leads=True,
    ),
    "save": Kind(lambda folder: saver(folder), saving, not_whole),
    "mpi-save": Kind(lambda folder: saver(folder, "processes"), saving, not_whole),
    "search": ended("search", *ON),
    "peers": ended("peers", *ON),
    "what-if": ended("what-if", *ON),
    "map": ended("what-if", *ON, "-m", "2K,4K,8K", "--map", "memory"),
    "simulate": ended(
        "simulate", *ON, "--a", "row", "--b", "col", "--c", "row", "--jitter", "3%", "--draws", 1000
    ),
    "ended-run": ended("run", *RUN[3:]),
    "compare": ended("compare", *RUN[3:]),
    "ended-sweep": Kind(
        lambda folder: swept(folder, "--jobs", 2), amid_sweep, unfinished, ASKED_TO_END, leads=True
    ),
    "collective": ended("collective", "all-to-all", "--machine", "gb300-nvl72", "-b", "1K", "-e", "16G"),
    "calibrate": Kind(
        lambda folder: command("machine", "calibrate", "--quick", "--ranks", 2, "-o", folder / "this.toml"),
        after(25.0),
        kept,
        ASKED_TO_END,
        leads=True,
    ),
    "chain-search": ended("search", *LAYER),
    "chain-peers": ended("peers", *LAYER),
    "chain-what-if": ended("what-if", *LAYER, most=25.0),
    "first": Kind(lambda _: [str(UMM), "search", *map(str, ON)], first, silent, ASKED_TO_END, leads=True),
    "arrays": Kind(
        lambda _: [find_mpiexec(), "-n", "3", sys.executable, "-m", "mpi4py", str(LOOP)],
        multiplying,
        nothing,
        (signal.SIGKILL, signal.SIGSEGV, signal.SIGSTOP),
        ranks=LOOP.name,
    ),
    "explore": Kind(lambda _: command("explore", "--no-open", "--port", 0), answering, silent, goes_on=True),
}

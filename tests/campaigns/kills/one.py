"""One kill: a command is started, one of its processes gets a signal, and all is looked at afterwards."""

import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

SIGNALS = [signal.SIGKILL] * 4 + [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGSEGV]
SWEEPER = "umm-sweeper"
NOBODY = "nobody"  # the command was done before its moment
TICK = 0.05
END_WITHIN = 15.0  # seconds a command has to end when one of its processes was killed
GONE_WITHIN = 3.0  # seconds its processes, folders and segments then have to go
IGNORED = 1.0  # seconds after which a signal that killed nobody counts as ignored
_ROLES = {
    SWEEPER: "sweeper",
    "umm_hw.mpi.job.keeper": "keeper",
    "hydra_pmi_proxy": "proxy",
    "mpiexec": "mpiexec",  # whose own words name what ranks run
    "multiprocessing": "worker",
    "spawn_main": "worker",
    "umm.cli.main": "worker",
}


@dataclass(frozen=True)
class Kind:
    """A kind of process to kill.

    Attributes:
        command: Its words, by the folder it may write to.
        moment: By the folder, the processes there are now and a random number, whether it is time to kill.
        lost: What is lost afterwards, in words, by the folder; None if nothing is.
        signals: What may be sent.
        leads: Whether it is the command itself that gets the signal.
        goes_on: Whether the command goes on without its other processes.
        ranks: A part of the command line of the ranks that alone may get the signal; of any process if empty.
    """

    command: Callable[[Path], list[str]]
    moment: Callable[[Path, dict[int, str], float], bool]
    lost: Callable[[Path], str | None]
    signals: tuple[signal.Signals, ...] = tuple(SIGNALS)
    leads: bool = False
    goes_on: bool = False
    ranks: str = ""


@dataclass(frozen=True)
class Killed:
    """The outcome of a kill.

    Attributes:
        role: The process that was killed, in a word.
        signal: The signal.
        seconds: Until the command had ended.
        said: Its last line.
        wrong: What should not be, in words.
        named: Of a rank that the signal ended, whether what was said names it; else None.
    """

    role: str
    signal: str
    seconds: float
    said: str
    wrong: tuple[str, ...]
    named: bool | None = None


def kill(kind: Kind, folder: Path, drawn: random.Random) -> Killed:
    """Start a command in an empty folder, kill one of its processes, and look."""
    mark = f"umm-kill-{os.getpid()}-{drawn.getrandbits(64):x}"
    (folder / "tmp").mkdir()
    (folder / "began").touch()
    environment = os.environ | {
        "UMM_KILLED": mark,
        "TMPDIR": str(folder / "tmp"),
        "OPENBLAS_NUM_THREADS": "1",
    }
    before, described = set(segments()), set(descriptions())
    with (folder / "output").open("w+b") as output:
        process = subprocess.Popen(
            kind.command(folder), env=environment, stdout=output, stderr=output, start_new_session=True
        )
        share = drawn.random()
        ended = until(lambda: process.poll() is not None or kind.moment(folder, marked(mark), share), 60)
        processes = marked(mark)
        if process.poll() is not None or not processes:
            code, result = process.wait(), _last(output)
            failed = (f"ended by itself with exit code {code}: {result}",) if code else ()
            return Killed(NOBODY, "", 0.0, result, failed)
        if not ended:
            process.kill()
            return Killed(NOBODY, "", 0.0, _last(output), ("it never came to the moment",))
        able = sorted(
            x for x, words in processes.items() if not kind.ranks or (kind.ranks in words and rank_of(x))
        )
        if not able:
            process.kill()
            return Killed(NOBODY, "", 0.0, _last(output), ())
        victim = process.pid if kind.leads else drawn.choice(able)
        sent, rank = drawn.choice(kind.signals), rank_of(victim)
        os.kill(victim, sent)
        began = monotonic()
        wrong = []
        stops = sent == signal.SIGSTOP  # which the others notice
        until(lambda: stops or victim not in marked(mark), IGNORED)
        needless = processes.get(victim) == SWEEPER or (kind.goes_on and victim != process.pid)
        ignored = not stops and victim in marked(mark)
        if (ignored or needless) and process.poll() is None:
            # Who would clean up may have gone: MPI forgets the names of its segments once its ranks have met.
            until(lambda: set(segments()) - before, IGNORED)
            until(lambda: not set(segments()) - before, GONE_WITHIN)
            process.send_signal(signal.SIGINT)
        if not until(lambda: process.poll() is not None, END_WITHIN):
            wrong.append(f"goes on for {END_WITHIN:.0f} s: {sorted(marked(mark).values())}")
            process.kill()
        seconds = monotonic() - began
        process.wait()

        def left() -> list[str]:
            results = [*marked(mark).values(), *(str(x) for x in (folder / "tmp").iterdir())]
            results += sorted(set(descriptions()) - described) if not any_proxy() else []
            return results + sorted(orphans(set(segments()) - before))

        if not until(lambda: not left(), GONE_WITHIN):
            wrong.append(f"leaves {left()}")
        for number in marked(mark):
            os.kill(number, signal.SIGKILL)
        lost = kind.lost(folder)
        if lost is not None:
            wrong.append(lost)
        role, result = _role(processes.get(victim, ""), victim == process.pid, rank), _last(output)
        text = (
            (folder / "output").read_text(errors="replace") if kind.ranks else result
        )  # mpiexec has the last word
        named = bool(re.search(rf"\brank {rank}\b", text)) if role == "rank" and not ignored else None
        return Killed(role, sent.name, seconds, result, tuple(wrong), named)


def until(condition: Callable[[], bool], seconds: float) -> bool:
    """Whether it becomes true in time; time in which this process is paused does not count."""
    for _ in range(int(seconds / TICK)):
        if condition():
            return True
        sleep(TICK)
    return condition()


def marked(mark: str) -> dict[int, str]:
    """Return the living processes that have a mark in their environment, with their command lines."""
    result = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"UMM_KILLED={mark}".encode() in (process / "environ").read_bytes():
                state = (process / "stat").read_text().rpartition(")")[2].split()[0]
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if state != "Z":
                    shown = (process / "comm").read_text().strip()
                    result[int(process.name)] = shown if shown == SWEEPER else words.strip()
        except OSError:
            continue
    return result


def rank_of(process: int) -> str:
    """Return the rank that a process is, or is the parent of, as mpiexec has set it; empty if it is none."""
    with suppress(OSError):
        words = (Path("/proc") / str(process) / "environ").read_bytes().split(b"\0")
        return next((x[9:].decode() for x in words if x.startswith(b"PMI_RANK=")), "")
    return ""


def segments() -> Iterator[str]:
    """Yield the names in shared memory that are MPI's."""
    yield from (str(x) for x in Path("/dev/shm").iterdir() if x.name.startswith(("mpich", "ucx")))


def descriptions() -> Iterator[str]:
    """Yield the files in which Hydra's proxies describe the host to their ranks, wherever TMPDIR points."""
    yield from map(str, Path("/tmp").glob("hydra_hwloc_xmlfile_*"))


def any_proxy() -> bool:
    """Whether a proxy of Hydra runs on this host, which may need such a file."""
    for words in Path("/proc").glob("[0-9]*/comm"):
        with suppress(OSError):
            if words.read_text().startswith("hydra_pmi_proxy"):
                return True
    return False


def orphans(names: set[str]) -> set[str]:
    """Return the segments that no process has mapped."""
    for maps in Path("/proc").glob("[0-9]*/maps") if names else ():
        try:
            text = maps.read_text(errors="replace")
        except OSError:
            continue
        names = {name for name in names if name not in text}
    return names


def umm(*words: object) -> list[str]:
    """Return a command of umm."""
    return [sys.executable, "-m", "umm.cli.main", *map(str, words)]


def _role(words: str, first: bool, rank: str) -> str:
    if first:
        return "command"
    if rank and any(x in words for x in ("umm_hw.mpi.job.worker", "array_loop")):
        return "rank"
    return next((role for part, role in _ROLES.items() if part in words), "other")


def _last(output) -> str:
    output.seek(0)
    return (output.read().decode(errors="replace").strip().splitlines() or [""])[-1]

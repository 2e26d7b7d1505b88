"""``python -m fuzz``: many cases in forked processes; one neither taken nor refused in a line fails."""

import argparse
import contextlib
import importlib
import mmap
import os
import pkgutil
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import umm
from fuzz.families import FAMILIES, chance, drawn

HANG_S, STUCK_S, MOST_BYTES, BATCH = 10.0, 120.0, 2**30, 2500
LOOK_S = 0.02  # seconds between two looks at a case; time in which this process is paused has none
STATE = struct.Struct("qdd")  # the case that runs, since when, and the processor seconds before it


def main() -> int:
    """Run the cases asked for; 1 if one found something."""
    asked = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    asked.add_argument("--cases", type=int, default=100_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--first", type=int, default=0, help="number of the first case")
    asked.add_argument("--family", choices=list(FAMILIES), help="cases of this family alone")
    asked.add_argument("--case", type=int, help="this case of the family alone, in this process")
    asked.add_argument("--most", type=int, default=40, help="end after so many findings")
    flags = asked.parse_args()
    warnings.simplefilter("ignore")
    if flags.case is not None:
        return _one(flags.family, flags.seed, flags.case)
    _import_all()
    began, counts, findings = time.monotonic(), Counter[str](), list[str]()
    slowest, largest = 0.0, 0
    number, last = flags.first, flags.first + flags.cases
    while number < last and len(findings) < flags.most:
        number, result, lines, slow, large = _batch(
            flags.family, flags.seed, number, min(last, number + BATCH)
        )
        counts += result
        findings += lines
        slowest, largest = max(slowest, slow), max(largest, large)
        for line in lines:
            print(line, flush=True)
        rate = (number - flags.first) / (time.monotonic() - began)
        print(
            f"{number - flags.first:,} cases, {rate:.0f}/s, {len(findings)} findings",
            file=sys.stderr,
            flush=True,
        )
    for family in FAMILIES:
        totals = {x: counts[f"{family} {x}"] for x in ("taken", "refused")}
        if any(totals.values()):
            taken, refused = totals.values()
            print(f"{family:12} {taken + refused:8,} cases {taken:8,} taken {refused:8,} refused")
    print(
        f"{number - flags.first:,} cases of seed {flags.seed} in {time.monotonic() - began:.0f} s: "
        f"{len(findings)} findings; "
        f"the slowest took {slowest:.1f} s, the largest process {largest / 2**20:.0f} MiB"
    )
    return 1 if findings else 0


def _import_all() -> None:
    """Import every module of umm, which else each batch would: three quarters of a batch of 500."""
    for module in pkgutil.walk_packages(umm.__path__, "umm."):
        with contextlib.suppress(ImportError):  # of torch and others that are not installed
            importlib.import_module(module.name)


def _one(family: str, seed: int, number: int) -> int:
    with tempfile.TemporaryDirectory(prefix="umm-fuzz-") as folder:
        os.chdir(folder)
        os.environ["XDG_CONFIG_HOME"] = f"{folder}/user"
        print(FAMILIES[family].case(chance(family, seed, number), Path(folder)))
        os.chdir("/")
    return 0


def _batch(
    family: str | None, seed: int, first: int, last: int
) -> tuple[int, Counter[str], list[str], float, int]:
    """Run some cases in a process of their own, and end it at a case that hangs or takes too much memory.

    Returns:
        The number of the next case, what came of those that ran, what was found, the seconds of the slowest
        case, and the bytes of the process.
    """
    state = mmap.mmap(-1, STATE.size)
    read, write = os.pipe()
    with tempfile.TemporaryDirectory(prefix="umm-fuzz-") as folder:
        child = os.fork()
        if child == 0:
            os.close(read)
            _work(family, seed, range(first, last), Path(folder), state, write)
        os.close(write)
        os.set_blocking(read, False)
        text, stopped, slowest, largest, began, looks = b"", "", 0.0, 0, 0.0, 0
        while True:
            done, _ = os.waitpid(child, os.WNOHANG)
            try:
                while piece := os.read(read, 1 << 16):
                    text += piece
            except BlockingIOError:
                pass
            if done:
                break
            number, since, before = STATE.unpack(state[:])
            largest = max(largest, _resident(child))
            began, looks = since, looks + 1 if since == began else 0
            hung = since and (_busy(child) - before > HANG_S or looks * LOOK_S > STUCK_S)
            if hung or largest > MOST_BYTES:
                stopped = "hangs" if hung else f"takes {largest / 2**30:.1f} GiB"
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(LOOK_S)
        os.close(read)
        number, *_ = STATE.unpack(state[:])
    lines = text.decode(errors="replace").splitlines()
    counts = Counter(line[2:] for line in lines if line.startswith("= "))
    slowest = max((float(line[2:]) for line in lines if line.startswith("~ ")), default=0.0)
    findings = [line[2:].replace("\\n", "\n") for line in lines if line.startswith("! ")]
    if not stopped and number < last - 1 and not any(line == "." for line in lines):
        stopped = "ends the process"
    if stopped:
        findings.append(f"{_named(family, seed, number)}: {stopped}")
        return number + 1, counts, findings, slowest, largest
    return last, counts, findings, slowest, largest


def _work(family: str | None, seed: int, numbers: range, folder: Path, state: mmap.mmap, write: int) -> None:
    """Run cases, and write the result of each: ``=`` an outcome, ``!`` a finding, ``~`` seconds."""
    os.chdir(folder)
    os.environ["XDG_CONFIG_HOME"] = f"{folder}/user"
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1), os.dup2(null, 2)
    slowest = 0.0
    for number in numbers:
        began = time.monotonic()
        state[:] = STATE.pack(number, began, sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
        name = family or drawn(seed, number)
        try:
            line = f"= {name} {FAMILIES[name].case(chance(name, seed, number), folder)}"
        except BaseException:  # a case may raise anything at all
            result = traceback.format_exc(limit=-6).replace("\n", "\\n")[-3000:]
            line = f"! {_named(family, seed, number)}\\n{result}"
        slowest = max(slowest, time.monotonic() - began)
        os.write(write, (line + "\n").encode("utf-8", "replace"))
    os.write(write, f"~ {slowest}\n.\n".encode())
    os._exit(0)


def _named(family: str | None, seed: int, number: int) -> str:
    return f"--family '{family or drawn(seed, number)}' --seed {seed} --case {number}"


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0


def _busy(process: int) -> float:
    """Return the processor seconds of a process; one that others keep from the core does not hang."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError):
        return 0.0


if __name__ == "__main__":
    sys.exit(main())

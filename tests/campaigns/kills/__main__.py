"""Kill sweeps, runs, saves and starts at random moments; nothing may be lost or left: ``make kill``.

``python -m tests.campaigns.kills [KIND=COUNT …] [--seed S] [--first I] [--only I]``. Each kill is drawn from
its kind, the seed and its number: the signal, the process that gets it, and the moment. What fails is printed
with the line that repeats it. Where the system permits, all runs with processes, ``/tmp`` and ``/dev/shm`` of
its own: other jobs of the host neither see it nor are seen.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from time import perf_counter

from tests.campaigns.kills.kinds import KINDS
from tests.campaigns.kills.one import NOBODY, kill

COUNTS = {
    "sweep": 80,
    "mpi-sweep": 40,
    "run": 80,
    "start": 80,
    "files": 30,
    "save": 30,
    "mpi-save": 20,
    "search": 40,
    "peers": 40,
    "what-if": 40,
    "map": 40,
    "simulate": 40,
    "ended-run": 40,
    "compare": 40,
    "ended-sweep": 40,
    "collective": 40,
    "calibrate": 20,
    "chain-search": 40,
    "chain-peers": 40,
    "chain-what-if": 20,
    "first": 60,
    "arrays": 60,
    "explore": 40,
}


ROOT = Path(__file__).parents[3]
APART = [
    "unshare",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
]
FOLDERS = 'mount -t tmpfs own /tmp && mount -t tmpfs own /dev/shm && "$@"; exit $?'
MARK = "UMM_KILLS_APART"


def apart(words: list[str]) -> list[str] | None:
    """Return the words of a command that sees no process or file of other jobs; None if that cannot be."""
    result = [*APART, FOLDERS, "sh"]
    able = not ROOT.is_relative_to("/tmp") and shutil.which(result[0])
    if not able or subprocess.run([*result, "true"], capture_output=True, check=False).returncode:
        return None
    return [*result, *words]


def main() -> int:
    words = apart([sys.executable, "-m", "tests.campaigns.kills", *sys.argv[1:]])
    if words is not None and MARK not in os.environ:
        return subprocess.run(words, env=os.environ | {MARK: "1"}, check=False).returncode
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("counts", nargs="*", metavar="KIND=COUNT", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first kill of each kind")
    parser.add_argument("--only", type=int, help="the number of one kill to repeat")
    asked = parser.parse_args()
    counts = {name: int(x) for name, _, x in (text.partition("=") for text in asked.counts)} or COUNTS
    for number in (signal.SIGINT, signal.SIGHUP):  # which a shell has background jobs ignore
        signal.signal(number, signal.SIG_DFL)
    began, total, failed = perf_counter(), 0, 0
    print(f"{'kind':<10} {'kills':>5} {'failed':>6} {'longest end':>12}  killed", flush=True)
    for name, count in counts.items():
        roles, longest, wrong, named = Counter(), 0.0, 0, Counter()
        numbers = range(asked.first, asked.first + count) if asked.only is None else [asked.only]
        for number in numbers:
            with tempfile.TemporaryDirectory(prefix="umm-kill-") as folder:
                result = kill(KINDS[name], Path(folder), random.Random(f"{name} {asked.seed} {number}"))
            roles[result.role] += 1
            longest = max(longest, result.seconds)
            total += result.role != NOBODY
            named[result.named] += 1
            if result.named is False:
                print(f"not named: {name}=1 --seed {asked.seed} --only {number}: {result}", flush=True)
            if result.wrong:
                wrong += 1
                print(f"FAILED {name}=1 --seed {asked.seed} --only {number}: {result}", flush=True)
        failed += wrong
        whom = ", ".join(f"{number} {role}" for role, number in roles.most_common())
        if named[True] or named[False]:
            whom += f"; {named[True]} of {named[True] + named[False]} ranks that died named"
        print(
            f"{name:<10} {roles.total() - roles[NOBODY]:>5} {wrong:>6} {longest:>10.1f} s  {whom}", flush=True
        )
    print(f"{total} kills in {perf_counter() - began:.0f} s, {failed} failed")
    if not total:
        print("nobody was killed: every command was done before its moment")
    return 1 if failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())

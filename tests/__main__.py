"""All tests on two cores, both busy to the end: ``python -m tests [OPTION OF PYTEST …]``.

Parts wait in a line for three workers, those that take longest first: ranks, and their doubles, which are
threads, leave a core now and then while they wait. One part has the tests that start many ranks, for two
jobs of eight ranks on two cores would time each other out. Tests of jobs that fail or do not start mostly
wait, and have two or three ranks: they are beside all others. What a part prints is shown when it is done.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter

PYTEST = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]
FOLDERS = (
    ("algorithms", "conformance"),
    ("cli",),
    ("space",),
    ("chains",),
    ("explorer", "machines"),
    ("golden", "hw", "schedules"),
)
"""Folders by part, the longest first: to start and to collect takes 3 s a part. All else is a part too."""
WAITING = ("tests/hw/test_mpi_failures.py", "tests/hw/test_mpi_starts.py")
"""Files whose tests wait for most of their time."""
WORKERS = 3
CACHE = ".pytest_cache/parts"


def parts() -> list[list[str]]:
    """Return the arguments of pytest for each part, of which the first is to run beside all others."""
    paths = [[f"tests/{name}" for name in folders] for folders in FOLDERS]
    others = [f"--ignore={path}" for part in paths for path in part]
    first, *rest = [["-m", "not mpi", *part] for part in paths]
    ranks = ["-m", "mpi and not two_hosts", *(x for x in with_ranks() if x not in WAITING)]
    return [[*WAITING], ranks, first, ["-m", "not mpi", *others], *rest]


def with_ranks() -> list[str]:
    """Return the files that have tests with the mark mpi; to collect all others takes 15 s."""
    files = sorted(Path("tests").rglob("test_*.py"))
    return [str(file) for file in files if "mark.mpi" in file.read_text(encoding="utf-8")]


def performed(part: list[str]) -> int:
    """Run a part and print its output; one without a test of its own is fine.

    Each notes what failed in a folder of its own, so that ``--last-failed`` finds it.
    """
    noted = f"cache_dir={CACHE}/{parts().index(part)}"
    done = subprocess.run([*PYTEST, "-o", noted, *part], capture_output=True, text=True, check=False)
    print(f"\npytest {' '.join(part)}\n{done.stdout}{done.stderr}", flush=True)
    return 0 if done.returncode == 5 else done.returncode


def main() -> int:
    began = perf_counter()
    waiting, *others = parts()
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(WORKERS) as workers:
        waited = beside.submit(performed, waiting)
        codes = [*workers.map(performed, others), waited.result()]
    print(f"all in {perf_counter() - began:.0f} s", flush=True)
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main())

"""All tests on two cores, those that start ranks beside the others: ``python -m tests [OPTION OF PYTEST …]``.

One process has all that start ranks: two jobs of eight ranks on two cores would time each other out. What it
prints is shown when the others are done.
"""

import subprocess
import sys
from tempfile import TemporaryFile
from time import perf_counter

PYTEST = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:]]


def main() -> int:
    began = perf_counter()
    with TemporaryFile() as said:
        ranks = subprocess.Popen(
            [*PYTEST, "-m", "mpi and not two_hosts", "tests"], stdout=said, stderr=subprocess.STDOUT
        )
        codes = [subprocess.run([*PYTEST, "-m", "not mpi"], check=False).returncode, ranks.wait()]
        said.seek(0)
        print(f"\n{said.read().decode()}both in {perf_counter() - began:.0f} s")
    return max(abs(code) for code in codes)


if __name__ == "__main__":
    sys.exit(main())

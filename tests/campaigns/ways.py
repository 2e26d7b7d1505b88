"""Thousands of random chains by every way that operands come and sums go: ``make test-ways``.

Each is a chain, a machine with nodes, a way and a stationary matrix, all drawn from its number. Its schedule
has to be lawful and race-free, and right to the last digit in row order and in a random one; some run on
processes. ``make test`` has the first 30, and 40 on processes.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from drawn_ways import assert_case, assert_on_processes, machines_of_nodes

from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob


def main() -> int:
    """Run the cases asked for; 1 if one failed."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--cases", type=int, default=2000, help="in one process")
    asked.add_argument("--processes", type=int, default=100, help="on four processes")
    asked.add_argument("--first", type=int, default=0, help="number of the first case of each")
    flags = asked.parse_args()
    with TemporaryDirectory(prefix="umm-ways-") as folder:
        nodes = machines_of_nodes(Path(folder))
        failed = _all("in one process", flags.first, flags.cases, lambda seed: assert_case(seed, nodes))
        if flags.processes:
            job = MpiJob(4, timeout=120)
            try:
                mpi = MpiExecutor(job=job, replica=None)
                failed += _all(
                    "on processes",
                    flags.first,
                    flags.processes,
                    lambda seed: assert_on_processes(seed, nodes, mpi),
                )
            finally:
                job.close()
    return 1 if failed else 0


def _all(where, first, count, case) -> int:
    """Run some cases and print how many there were of each way; return how many failed."""
    began, ways, actions, failed = time.monotonic(), Counter(), 0, 0
    for seed in range(first, first + count):
        try:
            way, schedule = case(seed)
        except Exception as error:
            failed += 1
            print(f"case {seed} {where} failed: {type(error).__name__}: {error}", flush=True)
        else:
            ways[way if isinstance(way, str) else "of each multiply"] += 1
            actions += len(schedule)
    result = ", ".join(f"{way} {ways[way]}" for way in sorted(ways))
    seconds = time.monotonic() - began
    print(
        f"{count:,} cases {where} ({result}), {actions:,} actions, {seconds:.0f} s: {failed} failed",
        flush=True,
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())

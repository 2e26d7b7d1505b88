"""``python -m experiments.step.pipeline``: pipelines on this host's cores, predicted and measured.

Calibrates the host first (two minutes; ``--machine FILE`` takes a file of ``umm machine calibrate``), then
runs four micro-batches through two and three stages, forward and backward. A rank is pinned to the core where
the machine has it, so three ranks on two cores take what two stages on one core take. Close other programs
first.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import umm
from umm.checks import random_inputs
from umm.machines import Machine
from umm.step.program import pipeline_chain
from umm_hw.mpi.executor import MpiExecutor

MICRO_BATCHES, TOKENS, HIDDEN = 4, 1536, 1536
"""The largest multiply that a calibration measures; of larger ones it extrapolates, 13 % off."""
DTYPE = "float32"


def calibrated(folder: str) -> Machine:
    """Return this host, measured now."""
    file = str(Path(folder) / "host.toml")
    umm_command = Path(sys.executable).with_name("umm")
    flags = ["--dtype", DTYPE, "-o", file]
    subprocess.run([umm_command, "machine", "calibrate", *flags], check=True)
    return umm.machine(file)


def started() -> Iterator[tuple[int, int]]:
    """Yield rank and process of each MPI process below this one."""
    below = [os.getpid()]
    for pid in below:
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            below += map(int, children.read_text().split())
        for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if entry.startswith(b"PMI_RANK="):
                yield int(entry[9:]), pid


def pin(places: list[int]) -> None:
    """Pin all threads of each rank to the core of its device."""
    cores = sorted(os.sched_getaffinity(0))
    for rank, pid in started():
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), {cores[places[rank]]})


def rows(machine: Machine, stages: list[int], runs: int) -> Iterator[str]:
    """Yield a line for each number of stages: seconds as predicted and as measured."""
    yield "| stages | cores | predicted | median measured | predicted / measured |\n|---|---|---|---|---|\n"
    for count in stages:
        chain = pipeline_chain(count, MICRO_BATCHES, TOKENS, HIDDEN, dtype=DTYPE)
        # Of weights that are not scaled gelu makes subnormal numbers, which multiply six times slower.
        schedule, operands = umm.schedule(chain, machine), random_inputs(chain)
        predicted = umm.run(schedule).makespan_s
        places = [int(machine.device_of(rank, count)) for rank in range(count)]
        executor = MpiExecutor(ranks=count)
        try:
            executor.run(schedule, operands)  # starts the ranks, and warms up
            pin(places)
            seconds = [x.makespan_s for x in executor.runs(schedule, operands, runs)]
        finally:
            executor.close()
        measured = median(seconds)
        yield (
            f"| {count} | {len(set(places))} | {predicted:.3f} s | {measured:.3f} s "
            f"({min(seconds):.3f} to {max(seconds):.3f}) | {predicted / measured:.3f} |\n"
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m experiments.step.pipeline", description=__doc__)
    parser.add_argument("--machine", type=Path, help="a calibrated machine file")
    parser.add_argument("--stages", type=int, nargs="+", default=[2, 3], help="2 and 3 if not given")
    parser.add_argument("--runs", type=int, default=15, help="measured runs of each")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        machine = umm.machine(str(options.machine)) if options.machine else calibrated(folder)
        for line in rows(machine, options.stages, options.runs):
            print(line, end="", flush=True)


if __name__ == "__main__":
    main()

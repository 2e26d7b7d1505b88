"""``python -m experiments muon``: published sets in order, and the fastest placement on this host.

``--measure`` times every placement of 40 sets of weights on two and four ranks first; ``--write`` puts the
figures into README.md.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import umm
from experiments.ledger import with_part
from experiments.muon.cases import GRIDS, cases, weights_of
from experiments.muon.published import table
from umm.machines import Machine
from umm.muon.placements import Costs
from umm.muon.planning import plan
from umm.step.step import rates_of
from umm_hw.mpi.job.job import find_mpiexec

HERE = Path(__file__).parent
FILE = HERE / "host.csv"
ROUNDS = 7
NEAR = 1.1
"""Times of the fastest within which a placement is as fast, for repeated runs differ by as much."""


def measure() -> None:
    """Time all placements on this host and write the file."""
    rows = []
    for ranks in GRIDS:
        program = [sys.executable, HERE / "rank.py", json.dumps(cases(ranks)), str(ROUNDS)]
        done = subprocess.run(
            [find_mpiexec(), "-n", str(ranks), *program],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parents[1])},
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
        rows += records(ranks, done.stdout.splitlines())
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["ranks", "flops", "exchange_s", "set", "placement", "seconds"])
        writer.writerows(rows)


def records(ranks: int, lines: list[str]) -> list[list[object]]:
    """Return the rows of the file for the lines that the ranks printed."""
    numbers, *sets = map(json.loads, lines)
    return [
        [ranks, f"{numbers['flops']:.4g}", f"{numbers['exchange_s']:.4g}", number, name, f"{seconds:.5g}"]
        for number, best in enumerate(sets)
        for name, seconds in best.items()
    ]


def host(flops: float, exchange_s: float) -> Machine:
    """Return a calibrated host of two cores with the multiplies and exchanges of the measured one."""
    settings = {"peak.float32": f"{flops / 1e9} Gflop/s", "transfer_overhead": f"{exchange_s * 1e6} us"}
    return umm.machine(str(HERE.parent / "cpu/data/localhost-warm-avx2.toml"), settings)


def compared() -> Iterator[str]:
    """Yield how often the placement predicted to be the fastest was."""
    with FILE.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    yield "| ranks | predicted fastest is the fastest | within 10 % of it | of |\n|---|---|---|---|\n"
    for ranks in GRIDS:
        of_ranks = [x for x in rows if int(x["ranks"]) == ranks]
        machine = host(float(of_ranks[0]["flops"]), float(of_ranks[0]["exchange_s"]))
        costs = Costs(rates_of(machine, "bf16"), dtype="float32", syrk=True)
        first = near = 0
        for number, case in enumerate(cases(ranks)):
            measured = {x["placement"]: float(x["seconds"]) for x in of_ranks if int(x["set"]) == number}
            result = plan(weights_of(case), case["grid"], costs)
            predicted = {x.placement: x.seconds for x in result.rows if x.placement in measured}
            chosen = min(predicted, key=predicted.__getitem__)
            first += measured[chosen] == min(measured.values())
            near += measured[chosen] <= NEAR * min(measured.values())
        yield f"| {ranks} | {first} | {near} | {len(cases(ranks))} |\n"


def main() -> None:
    """Print the figures, or write them."""
    parser = argparse.ArgumentParser(prog="python -m experiments muon", description=__doc__)
    parser.add_argument("--measure", action="store_true", help="time the placements on this host first")
    parser.add_argument("--write", action="store_true", help="write README.md")
    options = parser.parse_args()
    if options.measure:
        measure()
    text = "".join([*table(), "\n", *compared()])
    if options.write:
        page = HERE / "README.md"
        page.write_text(with_part(page.read_text(encoding="utf-8"), "figures", text), encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()

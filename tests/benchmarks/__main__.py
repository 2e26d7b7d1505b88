"""``make bench``: ratios against peers and floors measured in the same run, as a table and as JSON."""

import json
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from tests.benchmarks import measures, simgrid_race
from tests.benchmarks.cases import LARGE, MACHINES, SQUARES, column_layout
from tests.benchmarks.table import print_table

ROUNDS = 5
OUTPUT = Path(__file__).resolve().parents[2] / "build" / "bench.json"
GROWTH = (8, 16, 32, 64, 128, 256, 512, 1024)
CHAIN_RANKS = 208  # a million actions


def fresh(function, *arguments):
    """Call a function in a new process, so that it finds nothing warm and its peak memory is its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def measure(folder):
    """Return all measurements; those to be compared take turns, round by round."""
    results = {"rounds": ROUNDS, "points": {name: [] for name in MACHINES}, "op_lists": []}
    program = simgrid_race.build(folder)
    if program:
        results |= {"race": {name: [] for name in MACHINES}, "large": {str(case): [] for case in LARGE}}
    else:
        print("SimGrid's C++ interface is not raced: it takes g++ and libsimgrid-dev", file=sys.stderr)
    for number in range(ROUNDS):
        for name in MACHINES:
            tell(f"round {number + 1} of {ROUNDS}: {name}")
            results["points"][name].append(fresh(measures.points_round, name))
            if program:
                results["race"][name].append(fresh(measures.points_race, name, program, folder))
        results["op_lists"].append(fresh(measures.op_lists))
        for case in LARGE if program else ():
            tell(f"round {number + 1} of {ROUNDS}: {case}")
            results["large"][str(case)].append(fresh(measures.large_race, case, program, folder))
    results["growth"] = []
    for ranks in GROWTH:
        tell(f"column layout, p = {ranks}")
        results["growth"].append(fresh(measures.growth, column_layout(ranks)))
    tell("a chain of a million actions")
    results["chain"] = fresh(measures.chain_of_many, CHAIN_RANKS)
    tell(str(SQUARES))
    results["squares"] = fresh(measures.growth, SQUARES)
    return results


def tell(what):
    print(what, file=sys.stderr, flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        results = measure(folder)
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print_table(results)
    print(f"\nwritten to {OUTPUT}")


if __name__ == "__main__":
    main()

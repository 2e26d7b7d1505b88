"""``python -m experiments.universal.solvers PYTHON``: the search for the best steps against general solvers.

PYTHON is an interpreter with ortools and scipy; this project depends on neither. Writes solvers.csv: random
problems with 24 to 32 ops a rank, half of them with ops of equal size, each solver with one thread and 20 s.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import umm
from experiments.universal.cases import Case, corpus
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.policies.exhaustive import exhaustive
from umm.policies.graph import Graph, graphs
from umm.policies.ir import Limits

HERE = Path(__file__).parent
OPS = range(24, 33)
EACH = 8
SECONDS = 20
LIMITS = Limits.of(Options())


def instances() -> Iterator[tuple[Case, Graph, bool]]:
    """Yield the fullest rank's graph of problems of each kind, and whether its ops are uneven."""
    result = {True: 0, False: 0}
    seen = set()
    for case in corpus(10_000, seed=24, allowed=OPS):
        ops = op_list(case.problem, case.asked)
        rank = int(np.bincount(ops.rank).argmax())
        graph = graphs(ops, umm.machine(case.machine), Options())[rank]
        differ = max(graph.seconds) > 1.5 * min(graph.seconds)
        if result[differ] < EACH and graph.shape not in seen:
            result[differ] += 1
            seen.add(graph.shape)
            yield case, graph, differ
        if all(count == EACH for count in result.values()):
            return


def own(graph: Graph) -> dict[str, Any]:
    """Return the search's result in the solvers' time, and the gap that the policy's tries leave."""
    began = time.process_time()
    solution = exhaustive(graph, LIMITS, tries=None, seconds=SECONDS)
    took = time.process_time() - began
    by_default = exhaustive(graph, LIMITS)
    return {
        "default_gap": by_default.gap,
        "own_ms": solution.cost_s * 1e3,
        "own_bound_ms": solution.bound_s * 1e3,
        "own_s": took,
        "steps": len(solution.steps),
    }


def in_numbers(graph: Graph, steps: int) -> str:
    """Return a graph in the form that mip.py reads: milliseconds, and who needs which."""
    remote = [x for x in range(len(graph.data)) if x not in graph.own]
    return json.dumps(
        {
            "get": [graph.data[x].seconds * 1e3 for x in remote],
            "gemm": [seconds * 1e3 for seconds in graph.seconds],
            "accumulate": [update.seconds * 1e3 if update else None for update in graph.updates],
            "needs": [[remote.index(x) for x in needs] for needs in graph.needs],
            "limits": LIMITS,
            "steps": steps,
            "seconds": SECONDS,
        }
    )


def main() -> None:
    """Solve every instance in each way, one after another, and write solvers.csv."""
    rows = []
    for case, graph, differ in instances():
        row = {
            "machine": case.machine,
            **{x: getattr(case, x) for x in "mnkabc"},
            "stationary": case.asked,
            "uneven": differ,
            "ops": len(graph),
            "gets": len(graph.data) - len(graph.own),
            "accumulates": sum(map(bool, graph.updates)),
            **own(graph),
        }
        # The solvers need a number of steps beforehand; that of the known best and two more is little.
        asked = in_numbers(graph, row["steps"] + 2)
        command = [sys.argv[1], str(HERE / "mip.py")]
        solved = subprocess.run(command, input=asked, check=True, capture_output=True, text=True).stdout
        rows.append(row | json.loads(solved))
        print(rows[-1], flush=True)
        pd.DataFrame(rows).to_csv(HERE / "solvers.csv", index=False, float_format="%.6g")


if __name__ == "__main__":
    main()

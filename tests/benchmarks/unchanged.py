"""``python -m tests.benchmarks.unchanged FILE``: the makespans of 10,000 random schedules, to the last bit.

Writes the file if it is not there, else compares with it: write it before a change, compare after.
"""

import json
import random
import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

import umm
from umm.errors import UmmError
from umm_sim.executor import SimExecutor

COUNT = 10_000
MACHINES = {
    "pvc-12": (2, 3, 5, 6, 12),
    "pvc-12-planes": (4, 12),
    "h100-8": (1, 2, 4, 7, 8),
    "dgx-h100x4": (8, 12, 16, 32),
    "frontera-rtx": (4, 6, 16),
    "tpu-v5e-16": (4, 8, 16),
    "tpu-v5e-4": (4,),
    "mi355x-8": (8,),
    "h200-1": (2, 4),
    "localhost": (2, 4, 6),
}
PARTITIONS = (
    "row",
    "col",
    "2d",
    "row:balanced",
    "col:balanced",
    "cyclic:300x400:{0}x1",
    "cyclic:500x250:1x{0}",
)
COLUMNS = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")


def random_case(draw: random.Random) -> tuple[umm.Problem, str, str, dict[str, object]]:
    """Return a problem, a machine, a stationary matrix and options."""
    machine = draw.choice(list(MACHINES))
    ranks = draw.choice(MACHINES[machine])
    full = draw.random() < 0.5
    m, n, k = (draw.choice((512, 768, 1536)) if full else draw.randrange(1, 900) for _ in "mnk")
    replications = [c for c in range(1, ranks + 1) if ranks % c == 0]

    def layout() -> str:
        replicas, order = draw.choice(replications), draw.choice(("", "", "", ":interleaved"))
        return f"{draw.choice(PARTITIONS).format(ranks // replicas)}@{replicas}{order}"

    problem = umm.Problem(
        m=m, n=n, k=k, a=layout(), b=layout(), c=layout(), ranks=ranks,
        dtype="bfloat16" if "tpu" in machine else draw.choice(("float32", "float32", "float16")),
    )  # fmt: skip
    options = {
        "prefetch": draw.choice((0, 1, 2, 4)),
        "max_gemms": draw.choice((1, 2, 3)),
        "max_accumulates": draw.choice((1, 2, 4)),
        "offset": draw.choice(("index", "index", "none", "rotate")),
        "granularity": draw.choice(("tile", "tile", "slice")),
        "reuse": draw.random() < 0.8,
        "final": draw.choice(("complete", "reduce", "broadcast", "all-reduce", "reduce-scatter")),
    }
    if draw.random() < 0.05:
        options["policy"] = draw.choice(("greedy", "cost-greedy"))
    return problem, machine, draw.choice("ABC"), options


def line_of(problem: umm.Problem, machine: str, stationary: str, options: dict[str, object]) -> str:
    """Return the line of a case: actions, digest of the columns, makespan; or why there is none."""
    try:
        schedule = umm.schedule(problem, machine, stationary=stationary, **options)
    except UmmError as error:
        return f"{type(error).__name__}"
    digest = blake2b(digest_size=8)
    for name in COLUMNS:
        digest.update(np.ascontiguousarray(getattr(schedule, name)).tobytes())
    return f"{len(schedule)} {digest.hexdigest()} {SimExecutor().makespan(schedule).hex()}"


def differing(cases: list[Any], one: list[str], other: list[str]) -> int:
    """Print how many cases are the same twice, and some that are not; return how many are not."""
    unlike = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    for i in unlike[:10]:
        print(f"case {i}: {cases[i]}\n  {one[i]}\n  {other[i]}")
    print(f"{len(one) - len(unlike)} of {len(one)} schedules and makespans identical to the last bit")
    return len(unlike)


def main() -> int:
    path, draw = Path(sys.argv[1]), random.Random(41)
    cases = [random_case(draw) for _ in range(COUNT)]
    result, others = [line_of(*case) for case in cases], 0
    if path.exists():
        others = differing(cases, json.loads(path.read_text(encoding="utf-8")), result)
    else:
        path.write_text(json.dumps(result), encoding="utf-8")
        refused = sum("Error" in line for line in result)
        print(f"wrote {len(result)} cases, {refused} of them refused")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())

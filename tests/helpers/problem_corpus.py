"""Small problems of every kind, drawn with a fixed seed: aligned, misaligned, replicated, four machines."""

from random import Random

import umm
from umm.plans.multiply.oplist import op_list

MACHINES = {"pvc-12": (2, 3, 4, 6, 12), "pvc-12-planes": (2, 3, 4, 6, 12), "h100-8": (2, 4, 8)}
MACHINES["dgx-h100x4"] = (4, 9, 12)
MOST_OPS = 9


def corpus(count, scale=1, seed=7):
    """(problem, machine, stationary, schedule options), at most 9 ops a rank; the sizes times scale."""
    random = Random(seed)
    cases = []
    while len(cases) < count:
        machine = random.choice(list(MACHINES))
        ranks = random.choice(MACHINES[machine])
        sizes = {x: random.choice([24, 37, 60, 96]) * scale for x in "mnk"}
        texts = [layout(random, ranks, scale) for _ in "abc"]
        problem = umm.Problem(**sizes, **dict(zip("abc", texts, strict=True)), ranks=ranks, dtype="float32")
        stationary = random.choice("ABC")
        options = {
            "prefetch": random.choice([0, 1, 2]),
            "max_gemms": random.choice([1, 2]),
            "max_accumulates": random.choice([1, 2]),
            "granularity": random.choice(["tile", "tile", "slice"]),
            "reuse": random.random() < 0.8,
        }
        ops = op_list(problem, stationary)
        if max(ops.rank.tolist().count(r) for r in range(ranks)) <= MOST_OPS:
            cases.append((problem, machine, stationary, options))
    return cases


def layout(random, ranks, scale):
    """One layout's text: a partition, and now and then replicas."""
    replicas = (
        random.choice([c for c in range(1, ranks + 1) if ranks % c == 0]) if random.random() < 0.4 else 1
    )
    places = ranks // replicas
    rows = random.choice([d for d in range(1, places + 1) if places % d == 0])
    grid = f"{rows}x{places // rows}"
    kind = random.choice(["row", "col", "2d", f"2d:{grid}", "cyclic", "edges"])
    if kind == "cyclic":
        kind = f"cyclic:{random.choice([7, 16, 25]) * scale}x{random.choice([9, 16, 40]) * scale}:{grid}"
    if kind == "edges":
        kind = "row:balanced"
    return f"{kind}@{replicas}"

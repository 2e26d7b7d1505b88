"""``python -m tests.campaigns.routings``: mixtures of experts of random routings, forward and backward.

Each case is drawn from its number alone, so that a long campaign can be run in pieces and their counts added
up. A case passes if its schedule keeps every invariant, has no race, and gives what plain products expert by
expert give, in all replicas. Exit status 1 if one does not; its number is printed, and ``--first`` runs it
again.
"""

import argparse
import sys
import time
from collections import Counter

import numpy as np
from performed import assert_performed

import umm
from umm.program.mixture import each_by_itself, in_parts
from umm.program.routing import Routing
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

MOST_RANKS = 6


def case(number):
    """Return the chain of a case and the oddity of its routing."""
    draw = np.random.default_rng([42, number])
    ranks, experts, tokens = (int(draw.integers(1, most)) for most in (MOST_RANKS + 1, 8, 12))
    top_k = int(draw.integers(1, min(3, experts) + 1))
    counts = draw.permutation([tokens] * top_k + [0] * (experts - top_k))
    rules = ("uniform", "zipf:2.5", "balanced", "counts:" + "-".join(map(str, counts)))
    sizes = {"hidden": int(draw.integers(1, 6)), "ffn": int(draw.integers(1, 6)), "tokens": tokens}
    routed = {"routing": str(draw.choice(rules)), "routing_seed": int(draw.integers(10))}
    backward = number % 2 == 1
    outline = umm.chain(
        "moe", dtype="float64", backward=backward, experts=experts, top_k=top_k, **routed, **sizes
    )
    rows = np.diff(Routing(tokens, experts, top_k, routed["routing"], routed["routing_seed"]).edges)
    kinds = {
        "backward": backward,
        "an empty expert": bool((rows == 0).any()),
        "an expert with every token": bool((rows == tokens).any()),
        "experts that ranks do not divide": experts % ranks > 0,
        "ranks that experts do not divide": ranks % experts > 0,
    }
    texts = layouts(draw, outline, ranks)
    parts = int(draw.choice([1, 0, 2, 3]))
    outline = in_parts(outline, parts) if parts else each_by_itself(outline)
    return outline.laid_out(texts, ranks), [kind for kind, is_so in kinds.items() if is_so]


def layouts(draw, outline, ranks):
    """Return a name of the outline's layouts, or a layout for each tensor."""
    name = str(draw.choice([*outline.layouts, "cut", "any"]))
    if name in outline.layouts:
        return name
    parts = [x for x in range(1, ranks + 1) if ranks % x == 0]

    def anyhow():
        kind, replicas = draw.choice(["row", "col", "2d", "cyclic:2x3"]), draw.choice(parts)
        grid = f":{ranks // replicas}x1" if kind.startswith("cyclic") else ""
        return f"{kind}{grid}@{replicas}{draw.choice(['', ':interleaved'])}"

    return {
        x.name: f"experts/{draw.choice(parts)}" if x.experts and name == "cut" else anyhow()
        for x in outline.tensors
    }


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.routings", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--cases", type=int, default=2000, help="how many cases")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no case after these")
    parser.add_argument("--mpi", action="store_true", help="run on processes instead of NumPy")
    asked = parser.parse_args()
    began, done, wrong, seen = time.perf_counter(), 0, 0, Counter()
    job = MpiJob(MOST_RANKS, timeout=120) if asked.mpi else None
    try:
        mpi = MpiExecutor(job=job, replica=None) if job else None
        for number in range(asked.first, asked.first + asked.cases):
            if time.perf_counter() - began > asked.seconds:
                break
            chain, kinds = case(number)
            done += 1
            seen.update(kinds)
            try:
                assert_performed(chain, number, mpi)
            except AssertionError as why:
                wrong += 1
                print(f"case {number}: {why}", flush=True)
    finally:
        if job:
            job.close()
    where = "MPI" if asked.mpi else "NumPy"
    print(f"{done - wrong} of {done} routings exact on {where} and free of races, cases {asked.first} to "
          f"{asked.first + done - 1}; processor {time.process_time():.0f} s")  # fmt: skip
    for kind, count in sorted(seen.items()):
        print(f"  {count} with {kind}" if kind != "backward" else f"  {count} backward")
    if done < asked.cases:
        print(f"time is up; go on with --first {asked.first + done} --cases {asked.cases - done}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

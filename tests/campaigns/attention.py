"""``python -m tests.campaigns.attention``: random fused attention, forward and backward, in any layouts.

A case passes if its schedule keeps every invariant, has no race, and gives what attention that stores scores
gives, in all replicas. Exit status 1 if one does not; hypothesis prints the smallest that fails.
"""

import argparse
import sys
import time
from collections import Counter

from drawn_attention import attentions
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from performed import assert_performed

from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

MOST_RANKS = 6


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaigns.attention", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of the cases")
    parser.add_argument("--cases", type=int, default=1000, help="how many cases")
    parser.add_argument("--mpi", action="store_true", help="run on processes instead of NumPy")
    asked = parser.parse_args()
    seen = Counter()
    job = MpiJob(MOST_RANKS, timeout=120) if asked.mpi else None
    mpi = MpiExecutor(job=job, replica=None) if job else None

    @seed(asked.seed)
    @settings(
        max_examples=asked.cases, deadline=None, database=None, phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(attentions(), st.integers(0, 99))
    def case(chain, number):
        assert_performed(chain, number, mpi)
        first, *more = chain.statements
        kinds = {
            "backward": more, "a cache": first.cache, "rotary columns": first.rotary,
            "a window": first.window, "values of another width": first.value, "chunks": first.chunks > 1,
            "a cache of 8 bits": any(x.dtype == "float8_e4m3:128" for x in chain.tensors),
        }  # fmt: skip
        seen.update([f"way {first.way}", *(kind for kind, so in kinds.items() if so)])
        seen["cases"] += 1

    try:
        case()
    except AssertionError as wrong:
        print(f"wrong: {wrong}", flush=True)
        return 1
    finally:
        if job:
            job.close()
        where = "MPI" if asked.mpi else "NumPy"
        print(f"{seen.pop('cases', 0)} attentions exact on {where} and free of races, seed {asked.seed}; "
              f"processor {time.process_time():.0f} s")  # fmt: skip
        print("  " + ", ".join(f"{count} {kind}" for kind, count in sorted(seen.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The search against simulating every point: MLP-1 and MLP-2, m of 1K to 8K, both machines of the paper.

Run from the checkout: ``python -m tests.benchmarks.exhaustive [STORE]``. The sweep goes on where it stopped.
"""

import sys
import time
from collections.abc import Iterator

import pandas as pd

import umm
from umm.space import Progress, Space, search, sweep
from umm.space.bounds.closed_form import closed_form

MACHINES = ("pvc-12", "h100-8")
LAYERS = {"MLP-1": (49152, 12288), "MLP-2": (12288, 49152)}
BATCHES = (1024, 2048, 4096, 8192)
RULES: dict[str, tuple[bool, str | None]] = {
    "nothing fully replicated": (False, None),
    "memory ≤ 2x": (True, "2x"),
}
NAMED = ["a", "b", "c", "stationary"]
PAPER = {"grids": "square", "granularity": "tile", "final": "reduce"}


def exhaustive_top(
    frame: pd.DataFrame, ranks: int, fully: bool, limit: int | None
) -> list[tuple[object, ...]]:
    """Return the best ten rows that a rule allows, by makespan (ten figures), memory and text."""
    if limit is not None:
        frame = frame[frame.memory_bytes <= limit]
    if not fully:
        frame = frame[~frame[["a", "b", "c"]].apply(lambda x: x.str.endswith(f"@{ranks}")).any(axis=1)]
    frame = frame.assign(figures=[float(f"{x:.9e}") for x in frame.time_s])
    top = frame.sort_values(["figures", "memory_bytes", *NAMED]).head(10)
    return list(top[["figures", "memory_bytes", *NAMED]].itertuples(index=False, name=None))


def _tell(progress: Progress) -> None:
    left = f"{progress.rate:.0f} points/s, {progress.left_s:.0f} s left"
    print(f"\r{progress.found + progress.performed} of {progress.asked}, {left}  ", end="", file=sys.stderr)


def compared(store: str) -> Iterator[dict[str, object]]:
    """Yield a row for each machine, layer, batch size and rule."""
    spaces = [Space(m=m, n=n, k=k) for n, k in LAYERS.values() for m in BATCHES]
    swept = sweep(spaces, MACHINES, store, progress=_tell)
    assert swept is not None
    print(f"\nswept {swept}", file=sys.stderr)
    everything = swept.to_frame()
    assert (everything.status == "ok").all()
    assert (everything.gap >= 0).all(), "a bound is above the simulated makespan"
    for name in MACHINES:
        machine = umm.machine(name)
        for layer, (n, k) in LAYERS.items():
            for m in BATCHES:
                frame = everything.query("machine == @name and m == @m and n == @n and k == @k")
                began = time.perf_counter()
                closed_form(Space(m=m, n=n, k=k, ranks=machine.default_ranks).points(), machine)
                priced_s = time.perf_counter() - began
                for rule, (fully, memory) in RULES.items():
                    began = time.perf_counter()
                    result = search(
                        Space(m=m, n=n, k=k, fully_replicated=fully, **PAPER), machine, memory=memory
                    )
                    took = time.perf_counter() - began
                    best = sorted(
                        (
                            float(f"{x.makespan_s:.9e}"), x.memory_bytes,
                            x.problem.a, x.problem.b, x.problem.c, stationary,
                        )
                        for x in result.top
                        for stationary in (x.stationary, *(tie for tie, _ in x.ties))
                    )[:10]  # fmt: skip
                    yield {
                        "machine": name,
                        "layer": layer,
                        "m": m,
                        "rule": rule,
                        "distinct": result.distinct,
                        "simulated": result.simulated,
                        "share": result.simulated / result.distinct,
                        "price_all_s": priced_s,
                        "search_s": took,
                        "proven": result.proven,
                        "equal": best == exhaustive_top(frame, machine.default_ranks, fully, result.limit),
                    }


if __name__ == "__main__":
    table = pd.DataFrame(compared(sys.argv[1] if len(sys.argv) > 1 else "build/exhaustive.db"))
    print(table.to_string(formatters={"share": "{:.2%}".format}, float_format="{:.2f}".format))
    sys.exit(0 if table.equal.all() and table.proven.all() else 4)

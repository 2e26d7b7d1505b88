"""``python -m experiments peers``: write rows.csv and the tables of README.md."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from umm.machines import machine as find_machine
from umm.program.problem import Problem
from umm.space.peers.contender import Row
from umm.space.peers.peers import peers
from umm.space.peers.table import Peers
from umm_hw.numpy.executor import NumpyExecutor

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
START, END = "<!-- tables -->\n", "<!-- end of tables -->\n"
SIZES = {"mlp1": {"n": 49152, "k": 12288}, "mlp2": {"n": 12288, "k": 49152}}
ROWS = (1024, 2048, 4096, 8192)
SMALLER = 512


def is_right(row: Row, results: Peers) -> bool:
    """Whether a row's choices give the product of matrices a 512th as long and wide, in a random order."""
    start = results.start
    sizes = {x: getattr(start, x) // SMALLER for x in "mnk"}
    small = replace(start, **sizes, dtype="float64", c_dtype="")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, small.shape(x)).astype(np.float64) for x in "AB")
    made = row.contender.schedule(small, results.machine)
    result = NumpyExecutor("random", 1, replica=None).run(made, (a, b)).result
    return np.array_equal(result, np.broadcast_to(a @ b, result.shape))


SHOWN = 6  # rows of a table; rows.csv has all


def columns(row: Row) -> dict[str, object]:
    """Return a row's columns of the table: the algorithm, where it computes, and its plain numbers."""
    layouts = {name.lower(): layout for name, layout in row.layouts.items()}
    numbers = ("makespan_s", "exposed_s", "bytes", "memory_bytes", "own_s", "fits", "how")
    return {"algorithm": row.algorithm, **layouts, **{x: getattr(row, x) for x in numbers}}


def table(name: str, preset: str, result: dict[int, Peers]) -> str:
    """Return a table of one machine and one MLP: the first algorithms at the least and most m."""
    ends = (ROWS[0], ROWS[-1])
    order = [row.algorithm for row in result[ROWS[-1]].rows[:SHOWN]]
    heads = " | ".join(f"m = {m}, ms" for m in ends)
    lines = [f"| {preset} on `{name}` | {heads} | moved, GiB |"]
    lines.append("|---" * (len(ends) + 2) + "|")
    for algorithm in order:
        cells = []
        for m in ends:
            row = next((x for x in result[m].rows if x.algorithm == algorithm), None)
            output = "–" if row is None else f"{1e3 * row.makespan_s:.2f}"
            cells.append(f"**{output}**" if row is result[m].best else output)
        last = next(x for x in result[ROWS[-1]].rows if x.algorithm == algorithm)
        cells.append(f"{last.bytes / 2**30:.1f}")
        lines.append(f"| `{algorithm}` | {' | '.join(cells)} |")
    refused = ", ".join(f"`{x}`" for x in result[ROWS[-1]].refused)
    output = f"{result[ROWS[-1]].verdict}"
    return "\n".join(lines) + f"\n\nm = {ROWS[-1]}: {output} Cannot serve: {refused}.\n"


def main() -> None:
    """Compare, execute every row small, and write."""
    tables, rows = [], []
    for name in ("h100-8", "pvc-12"):
        machine = find_machine(name)
        for preset, sizes in SIZES.items():
            result = {}
            for m in ROWS:
                problem = Problem(m=m, **sizes, ranks=machine.default_ranks)
                result[m] = peers(problem, machine, crossover=m == ROWS[-1])
                wrong = [row.algorithm for row in result[m].rows if not is_right(row, result[m])]
                if wrong:
                    raise SystemExit(f"{name} {preset} m={m}: wrong products by {', '.join(wrong)}")
                taken = result[m].best
                rows += [
                    {"machine": name, "preset": preset, "m": m, **columns(x), "taken": x is taken}
                    for x in result[m].rows
                ]
                print(f"{name} {preset} m={m}: {len(result[m].rows)} rows right; {result[m].verdict}")
            tables.append(table(name, {"mlp1": "MLP-1", "mlp2": "MLP-2"}[preset], result))
    with (HERE / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    page = PAGE.read_text(encoding="utf-8")
    before, after = page.partition(START)[0], page.partition(END)[2]
    PAGE.write_text(before + START + "\n".join(tables) + END + after, encoding="utf-8")


main()

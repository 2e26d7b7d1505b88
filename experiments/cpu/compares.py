"""``python -m experiments.cpu.compares MACHINE``: how often ``umm compare`` finds a run inside its range.

Layouts and shapes of ``experiments.cpu`` are drawn; MACHINE is a calibration of this host of the same hour.
"""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np

from experiments.cpu.points import PARTITIONS, SHAPES, STATIONARY, keep


def compared(machine: str, shape: str, layouts: list[str], stationary: str) -> dict[str, Any]:
    """Run ``umm compare`` and return its prediction, range and measurement, in seconds."""
    m, n, k = SHAPES[shape]
    sizes = ["-m", m, "-n", n, "-k", k, "--ranks", 2, "--machine", machine]
    placed = [x for flag, text in zip(("--a", "--b", "--c"), layouts, strict=True) for x in (flag, text)]
    options = ["--stationary", stationary, "--executor", "mpi", "--iters", 20, "--json", "--quiet"]
    command = [Path(sys.executable).with_name("umm"), "compare", *sizes, *placed, *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True)
    answer = json.loads(done.stdout)
    return {
        "shape": shape,
        "layouts": " ".join([*layouts, "stationary", stationary]),
        "predicted_s": answer["predicted"]["makespan_s"],
        "range_s": answer["comparison"]["predicted_range_s"],
        "measured_s": answer["measured"]["best_s"],
        "inside": answer["comparison"]["inside_range"],
    }


def report(rows: list[dict[str, Any]]) -> str:
    """How many runs are inside, how wide the ranges are and how far off the predictions."""
    width = [(row["range_s"][1] - row["range_s"][0]) / row["predicted_s"] for row in rows]
    error = [abs(row["predicted_s"] / row["measured_s"] - 1) for row in rows]
    return (
        f"{len(rows)} runs, {sum(row['inside'] for row in rows)} inside the predicted range; "
        f"median width {np.median(width):.0%}, median error {np.median(error):.1%}"
    )


@click.command()
@click.argument("machine")
@click.option("--runs", default=20, show_default=True)
@click.option("--seed", default=7, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/compares"))
def main(machine: str, runs: int, seed: int, output: Path) -> None:
    """Compare drawn layouts, each by itself, with the simulator's answer."""
    output.mkdir(parents=True, exist_ok=True)
    random.seed(seed)
    texts = [text.format(ranks=2) for text in PARTITIONS]
    rows = []
    for _ in range(runs):
        shape, stationary = random.choice(list(SHAPES)), random.choice(STATIONARY)
        rows.append(compared(machine, shape, random.choices(texts, k=3), stationary))
    keep(output, "compares", rows, report(rows))


if __name__ == "__main__":
    main()

"""``python -m experiments.cpu.opencl``: predicted against measured by OpenCL, on layouts no calibration saw.

A process per rank, on PoCL or whatever runs OpenCL on this CPU. All layouts run in turn, half of the rounds
before the calibration and half after it. Of each layout the median of the faster half of its runs counts.
"""

import random
from pathlib import Path

import click
import numpy as np

import umm
from experiments.common.order import rank_correlation
from experiments.cpu.points import Point, again, keep, points
from umm_hw.opencl.executor import OpenClRanks
from umm_hw.performance import operands_of

SHAPES = {"flat": (768, 896, 640), "wide": (1024, 512, 768), "long": (640, 640, 1536)}


def times(point: Point, executor: OpenClRanks, repeat: int) -> list[float]:
    """Seconds of some runs after one that warms up."""
    traces = executor.runs(point.schedule, operands_of(point.schedule), repeat=repeat + 1)[1:]
    return [trace.makespan_s for trace in traces]


def undisturbed(runs: list[float]) -> float:
    """The median of the faster half, in seconds."""
    return float(np.median(sorted(runs)[: (len(runs) + 1) // 2]))


def report(rows: list[dict]) -> str:
    """Errors and the order of layouts, over all and within each shape."""
    lines = []
    for shape in (*SHAPES, "all"):
        ours, theirs = (
            np.array([row[x] for row in rows if shape in ("all", row["shape"])])
            for x in ("predicted_s", "measured_s")
        )
        error = ours / theirs - 1
        lines.append(
            f"{shape:5} {len(error):3} layouts: median error {np.median(abs(error)):.1%}, "
            f"mean {error.mean():+.1%}, worst {abs(error).max():.0%}; "
            f"rank correlation {rank_correlation(ours, theirs):.2f}"
        )
    return "\n".join(lines)


@click.command()
@click.option("--layouts", default=20, show_default=True, help="Of each shape, drawn.")
@click.option("--rounds", default=4, show_default=True, help="Half of them before the calibration.")
@click.option("--repeat", default=5, show_default=True, help="Runs of a layout in a round.")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/opencl"))
def main(layouts: int, rounds: int, repeat: int, seed: int, output: Path) -> None:
    """Calibrate this host by OpenCL and hold the simulator against layouts of three shapes on two ranks."""
    output.mkdir(parents=True, exist_ok=True)
    draws, machine, executor = random.Random(seed), umm.machine("localhost"), OpenClRanks(2)
    every = list(points(machine, 2, "float32", tuple(SHAPES), shapes=SHAPES))
    cases = [x for name in SHAPES for x in draws.sample([y for y in every if y.shape == name], layouts)]
    runs: dict[int, list[float]] = {number: [] for number in range(len(cases))}
    file = output / "localhost.toml"
    for turn in range(rounds):
        if turn == rounds // 2:
            file.write_text(executor.calibrate(["float32"], lambda what: click.echo(what, err=True)))
        for number in draws.sample(range(len(cases)), len(cases)):
            runs[number] += times(cases[number], executor, repeat)
    executor.close()
    machine = umm.machine(file)
    rows = [
        {
            "shape": point.shape,
            "layouts": point.name,
            "predicted_s": umm.run(again(point, machine), "sim").makespan_s,
            "measured_s": undisturbed(runs[number]),
            "runs_s": runs[number],
        }
        for number, point in enumerate(cases)
    ]
    keep(output, "opencl", rows, f"{machine.description}\n{report(rows)}")


if __name__ == "__main__":
    main()

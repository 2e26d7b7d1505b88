"""``python -m experiments.cpu.delays``: predicted p50 and p95 against runs with injected delays, on MPI.

Layouts drawn from those of ``experiments.cpu`` run with the draws of a noise and without, then a calibration
of this host. Each run lies between two readings of the pace of the cores, and goes as the
slower of them. Every draw of every layout counts by its least disturbed run.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic

import click
import numpy as np

import umm
from experiments.common.order import rank_correlation
from experiments.cpu.points import SHAPES, Point, again, keep, points
from umm.executor import executor as named
from umm.machines import Machine
from umm.machines.corners import corners
from umm.space.search.noise import Noise
from umm.space.search.robustness import drawn_makespans
from umm_hw.calibrate import host
from umm_hw.calibrate.host_file import topology_text
from umm_hw.cores.pace import Paced, fastest, undisturbed, usual
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.performance import operands_of


@dataclass
class Case:
    """One layout: its runs without delays, and by draw those with them."""

    point: Point
    plain: list[Paced] = field(default_factory=list)
    late: list[list[Paced]] = field(default_factory=list)


def least(runs: list[Paced], best: float, pace: float) -> float:
    """Seconds of the least disturbed runs, as they would be at the usual pace: their median."""
    return float(np.median([run.at(pace).seconds for run in undisturbed(runs, best)]))


def measure(cases: list[Case], executor: MpiExecutor, noise: Noise, plain: int, until: float) -> None:
    """Run every case some times without delays and once with each draw, in an order drawn anew.

    Those that have not run yet run after the time is up too.
    """
    factors = noise.by_run(executor.ranks or 2)
    for case in random.sample(cases, len(cases)):
        if case.late and monotonic() > until:
            continue
        schedule = case.point.schedule
        operands = operands_of(schedule)
        case.plain += executor.paced(schedule, operands, plain + 1)[1:]
        result = executor.paced(schedule, operands, len(factors), delays=factors)
        case.late = [[*old, new] for old, new in zip(case.late or [[] for _ in result], result, strict=True)]


def predicted(case: Case, machine: Machine, noise: Noise) -> tuple[list[float], np.ndarray]:
    """Makespans at the machine's corners, first as it is; and those of each draw."""
    made = [again(case.point, end) for end in (machine, *corners(machine))]
    simulator = named("sim")
    return [simulator.makespan(x) for x in made], drawn_makespans(made[0], noise, simulator)


def rows_of(cases: list[Case], machine: Machine, noise: Noise) -> list[dict]:
    """A row for each layout: predicted and measured, without delays and at p50 and p95 of the draws."""
    runs = [run for case in cases for run in case.plain]
    best = fastest(runs)
    pace = usual(runs, best)
    rows = []
    for case in cases:
        ends, drawn = predicted(case, machine, noise)
        late = [least(runs, best, pace) for runs in case.late]
        rows.append(
            {
                "shape": case.point.shape,
                "layouts": case.point.name,
                "predicted_s": ends[0],
                "range_s": [min(ends), max(ends)],
                "measured_s": least(case.plain, best, pace),
                "predicted_late_s": np.quantile(drawn, [0.5, 0.95]).tolist(),
                "measured_late_s": np.quantile(late, [0.5, 0.95]).tolist(),
            }
        )
    return rows


def report(rows: list[dict], runs: list[Paced]) -> str:
    """The figures of the issue: errors of p50 and p95, the order of p95, and ranges."""
    ours, theirs = (np.array([row[x] for row in rows]) for x in ("predicted_late_s", "measured_late_s"))
    error = ours / theirs - 1
    inside = [row["range_s"][0] <= row["measured_s"] <= row["range_s"][1] for row in rows]
    width = [(row["range_s"][1] - row["range_s"][0]) / row["predicted_s"] for row in rows]
    plain = np.array([row["predicted_s"] / row["measured_s"] - 1 for row in rows])
    shares = [run.share for run in runs]
    return "\n".join(
        [
            f"{len(rows)} layouts; a run had {np.median(shares):.0%} of its cores in the median",
            f"without delays: median error {np.median(abs(plain)):.1%}, mean {plain.mean():+.1%}; "
            f"{np.mean(inside):.0%} inside their ranges, median width {np.median(width):.0%}",
            *(
                f"{name}: median error {np.median(abs(error[:, i])):.1%}, mean {error[:, i].mean():+.1%}, "
                f"{np.mean(abs(error[:, i]) <= 0.1):.0%} within 10 %"
                for i, name in enumerate(("p50", "p95"))
            ),
            f"rank correlation of p95: {rank_correlation(ours[:, 1], theirs[:, 1]):.2f}",
        ]
    )


@click.command()
@click.option("--delay", default="20%,1:0.6", show_default=True)
@click.option("--draws", default=10, show_default=True)
@click.option("--layouts", default=100, show_default=True, help="How many are drawn.")
@click.option("--seconds", default=240.0, show_default=True, help="For runs; each layout runs once at least.")
@click.option("--passes", default=2, show_default=True, help="Of the calibration.")
@click.option("--scale", default=2, show_default=True, help="Sizes are divided by this.")
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/delays"))
def main(
    delay: str, draws: int, layouts: int, seconds: float, passes: int, scale: int, seed: int, output: Path
) -> None:
    """Compare p50 and p95 of many layouts under delays with the simulator's for the same draws."""
    output.mkdir(parents=True, exist_ok=True)
    random.seed(seed)
    noise = Noise.delays(delay, draws=draws, seed=seed)
    sizes = {name: tuple(x // scale for x in shape) for name, shape in SHAPES.items()}
    machine, executor = umm.machine("localhost"), MpiExecutor(2)
    every = list(points(machine, 2, "float32", tuple(sizes), shapes=sizes))
    cases = [Case(point) for point in random.sample(every, layouts)]
    until = monotonic() + seconds
    while monotonic() < until:
        measure(cases, executor, noise, 4, until)
        click.echo(f"{sum(len(case.plain) for case in cases)} runs without delays", err=True)
    host.PASSES = passes
    result = executor.calibration(["float32"], lambda what: click.echo(what, err=True))
    file = output / "localhost.toml"
    file.write_text(topology_text(result))
    executor.close()
    machine = umm.machine(file)
    rows = rows_of(cases, machine, noise)
    outcome = report(rows, [x for case in cases for x in case.plain])
    keep(output, "delays", rows, f"{machine.description}; {noise}\n{outcome}")


if __name__ == "__main__":
    main()

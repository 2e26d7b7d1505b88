"""The experiment: calibrate unless a file is given, predict, execute, and print whatever comes out."""

import json
from pathlib import Path

import click
import numpy as np

import umm
from experiments.cpu.agreement import Agreement, agreement
from experiments.cpu.figure import write_page
from experiments.cpu.points import SHAPES, Point, measure, points
from umm_hw.mpi.executor import MpiExecutor


@click.command()
@click.option(
    "--machine",
    "file",
    type=click.Path(path_type=Path),
    help="Calibrated topology file; measured anew if not given.",
)
@click.option("--ranks", type=int, help="Ranks; one per core if not given.")
@click.option("--rounds", type=int, default=7, show_default=True, help="Runs of every layout.")
@click.option("--dtype", default="float32", show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/cpu"), show_default=True)
def main(file: Path | None, ranks: int | None, rounds: int, dtype: str, output: Path) -> None:
    """Hold predictions of a fresh calibration against runs of many layouts on this host."""
    output.mkdir(parents=True, exist_ok=True)
    if file is None:
        file = output / "localhost.toml"
        executor = MpiExecutor(ranks)
        file.write_text(executor.calibrate([dtype], lambda what: click.echo(f"measuring {what}", err=True)))
        executor.close()
    machine = umm.machine(file)
    found = list(points(machine, ranks or machine.default_ranks, dtype))
    measure(found, ranks or machine.default_ranks, rounds, lambda what: click.echo(what, err=True))
    report(found)
    save(found, output)
    write_page(found, output / "cpu.html")
    click.echo(f"wrote {output / 'cpu.json'} and {output / 'cpu.html'}", err=True)


def report(found: list[Point]) -> None:
    """Print the agreement for each shape and over all."""
    click.echo(
        f"{'shape':<8} {'m':>5} {'n':>5} {'k':>5} {'layouts':>7}  median error  worst  tau-b (pairs)  regret"
    )
    for name, (m, n, k) in SHAPES.items():
        result = agreement([point for point in found if point.shape == name])
        click.echo(f"{name:<8} {m:>5} {n:>5} {k:>5} {result.points:>7}  {line(result)}")
    errors = np.abs([point.error for point in found])
    click.echo(f"all {len(found)} points: median makespan error {100 * np.median(errors):.1f} %")


def line(result: Agreement) -> str:
    """Return the figures of one shape."""
    tie = ", a tie" if result.tie else ""
    return (
        f"{100 * result.median_error:>10.1f} % {100 * result.worst_error:>5.0f} %  "
        f"{result.tau:>5.2f} ({100 * result.pairs:.0f} %)   {100 * result.regret:.1f} %{tie}: {result.best}"
    )


def save(found: list[Point], output: Path) -> None:
    """Write every point with its times."""
    rows = [
        {
            "shape": point.shape,
            "layouts": point.name,
            "predicted_s": point.predicted,
            "measured_s": point.measured,
        }
        for point in found
    ]
    (output / "cpu.json").write_text(json.dumps(rows, indent=1))

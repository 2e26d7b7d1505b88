"""The experiment: calibrate unless a file is given, predict, execute, and print whatever comes out."""

import json
from collections.abc import Sequence
from functools import partial
from math import isnan
from pathlib import Path

import click

import umm
from experiments.cpu.agreement import Agreement, agreement
from experiments.cpu.figure import write_page
from experiments.cpu.points import LEAST, SHAPES, Point, add, judge, measure, points, predict
from umm.host.hardware import blas_libraries
from umm.machines import Machine
from umm_hw.calibrate.host import PASSES
from umm_hw.calibrate.host_file import topology_text
from umm_hw.mpi.executor import MpiExecutor, core_count


@click.command()
@click.option(
    "--machine",
    "file",
    type=click.Path(path_type=Path),
    help="Calibrated machine file; if not given, one is measured between the runs.",
)
@click.option("--ranks", type=int, help="Ranks; one per core if not given.")
@click.option("--seconds", default=600.0, show_default=True, help="How long to execute; 0 only predicts.")
@click.option("--repeat", type=int, default=3, show_default=True, help="Runs of a layout at once.")
@click.option("--shape", "names", multiple=True, type=click.Choice(list(SHAPES)), help="All if not given.")
@click.option("--every", type=int, default=1, show_default=True, help="One in so many of the 64 layouts.")
@click.option("--dtype", default="float32", show_default=True)
@click.option(
    "--add",
    "earlier",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Runs of an earlier call, from its cpu.json; they go on from there.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/cpu"), show_default=True)
def main(
    file: Path | None,
    ranks: int | None,
    seconds: float,
    repeat: int,
    names: tuple[str, ...],
    every: int,
    dtype: str,
    earlier: tuple[Path, ...],
    output: Path,
) -> None:
    """Hold predictions of a calibration against runs of many layouts on this host.

    A fresh one takes turns with the runs: hosts change their pace by more within minutes than predictions
    are off.
    """
    output.mkdir(parents=True, exist_ok=True)
    machine = umm.machine(file or "localhost")
    ranks = ranks or (machine.default_ranks if file else core_count())
    executor = MpiExecutor(ranks)
    result = list(points(machine, ranks, dtype, names or tuple(SHAPES), every))
    for path in earlier:
        add(result, json.loads(path.read_text()))
    if file:
        measure(result, executor, seconds, repeat)
    else:
        run_some = partial(measure, result, executor, seconds / PASSES, repeat)
        file = output / "localhost.toml"
        found_out = executor.calibration(
            [dtype], lambda what: click.echo(f"measuring {what}", err=True), run_some
        )
        file.write_text(topology_text(found_out))
        machine = umm.machine(file)
    executor.close()
    judge(result)
    save(result, output)
    compared = [point for point in result if len(point.undisturbed) >= LEAST]
    predict(compared, machine)
    save(result, output)
    report(compared, machine)
    write_page(compared, output / "cpu.html")
    click.echo(f"wrote {output / 'cpu.json'} and {output / 'cpu.html'}", err=True)


def report(results: Sequence[Point], machine: Machine) -> None:
    """Print the agreement for each shape and over all, of layouts that ran undisturbed often enough."""
    runs, counted = (
        sum(len(point.runs) for point in results),
        sum(len(point.undisturbed) for point in results),
    )
    click.echo(
        f"{machine.description}; {blas_libraries()[0]['kernel']} kernels\n"
        f"{len(results)} layouts, {runs} runs, of which {counted} count: "
        "they had their cores to themselves, at their best pace"
    )
    click.echo(
        f"{'shape':<8} {'m':>5} {'n':>5} {'k':>5} {'layouts':>7} "
        f"{'error: mean':>12} {'median':>7} {'worst':>6} "
        f"{'noise':>6} {'tau-b (halves, pairs)':>21} {'in range (width)':>17}  regret"
    )
    for name, (m, n, k) in SHAPES.items():
        mine = [point for point in results if point.shape == name]
        if mine:
            result = agreement(mine)
            tie = ", a tie" if result.tie else ""
            click.echo(
                f"{name:<8} {m:>5} {n:>5} {k:>5} {result.points:>7} {line(result)}  "
                f"{100 * result.regret:.1f} %{tie}: {result.best}"
            )
    click.echo(f"{'all':<26} {len(results):>7} {line(agreement(results))}")


def line(result: Agreement) -> str:
    """Return the figures of some points."""
    return (
        f"{100 * result.mean_error:>+10.1f} % {100 * result.median_error:>5.1f} % "
        f"{100 * result.worst_error:>4.0f} % {100 * result.noise:>4.1f} % "
        f"{result.tau:>8.2f} ({result.ceiling:4.2f}, {100 * result.pairs:2.0f} %) "
        f"{100 * result.inside:>7.0f} % ({100 * result.width:.0f} %)"
    )


def save(result: Sequence[Point], output: Path) -> None:
    """Write every point with its times."""
    rows = [
        {
            "shape": point.shape,
            "layouts": point.name,
            "predicted_s": None if isnan(point.predicted) else point.predicted,
            "range_s": None if isnan(point.predicted) else point.range,
            "measured_s": [[float(f"{x:.5g}") for x in run] for run in point.runs],
        }
        for point in result
    ]
    (output / "cpu.json").write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")

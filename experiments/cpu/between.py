"""``python -m experiments.cpu.between``: the table of multiplies on shapes that are not in it.

The shapes are those of the gemms of the layouts that ``python -m experiments.cpu`` runs. They and the table's
take turns, so that both see the same host.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import click
import numpy as np

from experiments.cpu.points import SHAPES, points
from umm.arrays import Floats
from umm.host.hardware import blas_libraries
from umm.machines import machine
from umm.machines.curves import EfficiencyTable
from umm.machines.files import shipped_folder
from umm.schedules.table.details import GEMM
from umm_hw.calibrate import host_benchmarks
from umm_hw.calibrate.host import GEMM_SIZES, gemm_rates, of_all, shapes
from umm_hw.cores.pace import fastest, seconds, usual
from umm_hw.mpi.job.job import MpiJob

DTYPE = "float32"
TABLES = {"as calibrated": GEMM_SIZES[DTYPE], "powers of two to 1024": (16, 64, 128, 256, 512, 1024)}
Shape = tuple[int, int, int]


@click.command()
@click.option("--ranks", type=int, default=2, show_default=True)
@click.option("--repeats", type=int, default=16, show_default=True)
@click.option("--most", type=int, default=80, show_default=True, help="Shapes, those of most flop first.")
def main(ranks: int, repeats: int, most: int) -> None:
    """Multiply shapes of tables and shapes between, and print how far off each table is for the latter."""
    of_tables = {shape for sizes in TABLES.values() for shape in shapes(sizes)}
    share = {shape: part for shape, part in of_layouts(ranks).most_common(most) if shape not in of_tables}
    wanted = [*of_tables, *share]
    job = MpiJob(ranks)
    program = partial(host_benchmarks.gemms, dtype=DTYPE, c_dtype=DTYPE, shapes=wanted, repeats=repeats)
    by_rank = job.call(ranks, program)
    job.close()
    result = dict(zip(wanted, of_all(by_rank), strict=True))
    readings = [one for of_shape in result.values() for one in of_shape]
    best = fastest(readings)
    pace = usual(readings, best)
    took = np.array([np.median(seconds(result[shape], best, pace)) for shape in share])
    weight = np.array(list(share.values()))
    click.echo(f"{blas_libraries()[0]['kernel']} kernels, {len(share)} shapes that no table has")
    click.echo(f"{'table':<22} {'shapes':>6} {'error: mean':>12} {'scatter':>8} {'median':>7} {'worst':>6}")
    for name, sizes in TABLES.items():
        rates = gemm_rates(sizes, [result[shape] for shape in shapes(sizes)], best, pace)
        errors = predicted(EfficiencyTable.measured(sizes, sizes, sizes, rates.efficiency), list(share))
        errors = errors / rates.peak.value / took - 1
        mean = np.average(errors, weights=weight)
        scatter = np.average((errors - mean) ** 2, weights=weight) ** 0.5
        click.echo(
            f"{name:<22} {len(sizes) ** 3:>6} {100 * mean:>+10.1f} % {100 * scatter:>6.1f} % "
            f"{100 * np.median(np.abs(errors)):>5.1f} % {100 * np.abs(errors).max():>4.0f} %"
        )


def of_layouts(ranks: int) -> Counter[Shape]:
    """Return the shapes (m, n, k) of all layouts' gemms, each with its share of their flop."""
    share: Counter[Shape] = Counter()
    for point in points(machine(shipped_folder() / "localhost.toml"), ranks, DTYPE, list(SHAPES)):
        schedule = point.schedule
        gemms = schedule.kind == GEMM
        flop = schedule.flop[gemms]
        for (m, n, k), part in zip(
            schedule.details.multiplied[gemms].tolist(), flop / flop.sum(), strict=True
        ):
            share[m, n, k] += part
    return share


def predicted(table: EfficiencyTable, wanted: Sequence[Shape]) -> Floats:
    """Return the seconds of shapes at a peak of 1 flop/s."""
    m, n, k = np.array(wanted).T
    return 2.0 * m * n * k / table.at(m, n, k)


if __name__ == "__main__":
    main()

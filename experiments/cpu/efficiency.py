"""``python -m experiments.cpu.efficiency``: how much of p times one core's NumPy rate p ranks reach.

The rate of one core is measured between the runs, so that both see the same host.
"""

from functools import partial
from itertools import product

import click
import numpy as np

import umm
from experiments.cpu.one_core import numpy_rate
from experiments.cpu.peers.problems import SHAPES
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

LAYOUTS = ("row", "col")


@click.command()
@click.option("--ranks", type=int, default=2, show_default=True)
@click.option("--rounds", type=int, default=3, show_default=True)
@click.option("--dtype", default="float32", show_default=True)
@click.option("--shape", "names", multiple=True, type=click.Choice(list(SHAPES)), help="All if not given.")
def main(ranks: int, rounds: int, dtype: str, names: tuple[str, ...]) -> None:
    """Run every row and column layout with every stationary matrix; print the best and the uniform ones."""
    job = MpiJob(ranks)
    executor = MpiExecutor(job=job)
    rate = 0.0
    for name in names or SHAPES:
        m, n, k = SHAPES[name]
        times: dict[str, float] = {}
        for _ in range(rounds):
            for (a, b, c), stationary in product(product(LAYOUTS, repeat=3), "ABC"):
                problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks, dtype=dtype)
                schedule = umm.schedule(problem, "localhost", stationary=stationary)
                seconds = min(trace.makespan_s for trace in executor.runs(schedule, repeat=2))
                label = f"{a},{b},{c} stationary {stationary}"
                times[label] = min(seconds, times.get(label, np.inf))
            rate = max(rate, job.call(ranks, partial(numpy_rate, dtype=dtype))[0])
        share = {label: 2.0 * m * n * k / seconds / (ranks * rate) for label, seconds in times.items()}
        click.echo(f"{name} {m}x{n}x{k}, one core {rate / 1e9:.1f} Gflop/s")
        for wanted in ("", "row,row,row", "col,col,col"):
            best = max((label for label in share if label.startswith(wanted)), key=lambda label: share[label])
            click.echo(f"  {wanted or 'best':<12} {100 * share[best]:5.1f} %  {best}")
    job.close()


if __name__ == "__main__":
    main()

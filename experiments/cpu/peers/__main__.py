"""``python -m experiments.cpu.peers PYTHON``: two ranks on two cores, side by side with other libraries.

The Python that is given has torch, jax and dask. Every round runs all libraries one after another, so that
what disturbs the host disturbs all; the best of all rounds counts.
"""

import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import click
import numpy as np

import umm
from experiments.cpu.one_core import numpy_rate
from experiments.cpu.peers.problems import LAYOUTS, RANKS, REPLICATED, SHAPES
from umm_hw.mpi.executor import MpiExecutor
from umm_hw.mpi.job.job import MpiJob

FOLDER = Path(__file__).parent
PROGRAMS = {"DTensor": "dtensor.py", "JAX": "jax_devices.py", "dask": "dask_array.py"}
OURS = "umm"
LAYOUT = {"row": "row", "col": "col", "all": f"row@{RANKS}"}
Times = dict[tuple[str, str, str], float]  # by library, shape, layouts


def run_peer(python: Path, program: str, shape: str, repeats: int) -> Times:
    """Return the seconds of each layout by one library; none if it fails."""
    done = subprocess.run(
        [python.absolute(), program, str(repeats), shape],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        click.echo(f"{program} failed: {done.stderr.strip().splitlines()[-1:]}", err=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {(row["library"], row["shape"], row["layouts"]): row["seconds"] for row in rows}


def run_ours(executor: MpiExecutor, shape: str, repeats: int) -> Times:
    """Return the seconds of each layout, with the best stationary matrix."""
    m, n, k = SHAPES[shape]
    result: Times = {}
    for layouts in LAYOUTS + REPLICATED:
        a, b, c = (LAYOUT[name] for name in layouts.split(","))
        problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=RANKS)
        traces = [
            trace
            for stationary in "ABC"
            for trace in executor.runs(
                umm.schedule(problem, "localhost", stationary=stationary, final="broadcast"), repeat=repeats
            )
        ]
        result[OURS, shape, layouts] = min(trace.makespan_s for trace in traces)
    return result


@click.command()
@click.argument("python", type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", type=int, default=2, show_default=True)
@click.option("--repeats", type=int, default=2, show_default=True)
@click.option("--shape", "names", multiple=True, type=click.Choice(list(SHAPES)), help="All if not given.")
def main(python: Path, rounds: int, repeats: int, names: tuple[str, ...]) -> None:
    """Print each library's share of two cores' NumPy rate, for every layout and for its best one."""
    job = MpiJob(RANKS)
    executor = MpiExecutor(job=job)
    for shape in names or SHAPES:
        times: Times = {}
        rate = 0.0
        for _ in range(rounds):
            result = run_ours(executor, shape, repeats)
            rate = max(rate, job.call(RANKS, partial(numpy_rate, dtype="float32"))[0])
            for program in PROGRAMS.values():
                result |= run_peer(python, program, shape, repeats)
            for key, seconds in result.items():
                times[key] = min(seconds, times.get(key, np.inf))
        report(shape, times, rate)
    job.close()


def report(shape: str, times: Times, rate: float) -> None:
    """Print the shares of one shape, in percent."""
    m, n, k = SHAPES[shape]
    libraries = (OURS, *PROGRAMS)
    could = 2.0 * m * n * k / (RANKS * rate)
    click.echo(f"\n{shape} {m}x{n}x{k}; one core {rate / 1e9:.1f} Gflop/s; % of two cores")
    click.echo(f"{'layouts':<14}" + "".join(f"{name:>9}" for name in libraries))
    for layouts in LAYOUTS:
        shares = [could / times.get((name, shape, layouts), np.inf) for name in libraries]
        click.echo(f"{layouts:<14}" + "".join(f"{100 * share:>9.1f}" for share in shares))
    best = [
        could / min(times.get((name, shape, layouts), np.inf) for layouts in LAYOUTS) for name in libraries
    ]
    click.echo(f"{'best':<14}" + "".join(f"{100 * share:>9.1f}" for share in best))
    for layouts in REPLICATED:
        shares = [could / times.get((name, shape, layouts), np.inf) for name in (OURS, "DTensor")]
        click.echo(f"{layouts:<14}" + "".join(f"{100 * share:>9.1f}" for share in shares))


if __name__ == "__main__":
    sys.exit(main())

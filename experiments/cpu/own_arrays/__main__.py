"""``python -m experiments.cpu.own_arrays``: who is fastest to multiply arrays that ranks hold already.

Every round runs all libraries one after another, so that what disturbs the host disturbs all; the best of all
rounds counts. Libraries that are not there are left out, in words.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import click

from experiments.cpu.own_arrays.cases import cases
from umm_hw.mpi.job.job import find_mpiexec

FOLDER = Path(__file__).parent
MKL = ["libmpi.so.12", "libmkl_intel_lp64.so.3", "libmkl_sequential.so.3", "libmkl_core.so.3"]
MKL_BLACS, MKL_SCALAPACK = "libmkl_blacs_intelmpi_lp64.so.2", "libmkl_scalapack_lp64.so.2"


def ran(command, **environment):
    """The JSON that a contender prints; empty, and the reason in words, if it fails."""
    set_ = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"} | environment
    try:
        done = subprocess.run(
            list(map(str, command)),
            env=os.environ | set_,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        click.echo(f"left out: {error}", err=True)
        return {}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        click.echo(f"{command[0]} failed: {done.stderr.strip().splitlines()[-1:]}", err=True)
        return {}
    return json.loads(lines[-1])


def contenders(ranks, edge, repeat, debian, mkl, peers):
    """Return by name the functions that run each library on all cases once."""
    given = json.dumps(cases(ranks, edge)), repeat
    result = {
        "umm": lambda: ran([find_mpiexec(), "-n", ranks, sys.executable, FOLDER / "umm_rank.py", *given]),
    }
    program = FOLDER / "scalapack_rank.py"
    if debian:
        result["ScaLAPACK"] = lambda: ran(
            [find_mpiexec(), "-n", ranks, sys.executable, program, *given, debian],
            LD_LIBRARY_PATH=str(Path(debian).parent),
        )
    if mkl:
        bin_, lib = Path(mkl) / "bin", Path(mkl) / "lib"
        preload = ":".join(str(lib / name) for name in (*MKL, MKL_BLACS))
        result["MKL"] = lambda: ran(
            [
                bin_ / "mpiexec",
                "-n",
                ranks,
                "-genv",
                "LD_PRELOAD",
                preload,
                bin_ / "python",
                program,
                *given,
                lib / MKL_SCALAPACK,
            ]
        )
    if peers:
        result["DTensor"] = lambda: ran([peers, FOLDER / "dtensor_ranks.py", *given, ranks])
        result["dask"] = lambda: ran([peers, FOLDER / "dask_threads.py", *given, ranks])
    return result


@click.command()
@click.option("--ranks", multiple=True, type=int, default=(2, 4), show_default=True)
@click.option("--edge", default=2048, show_default=True, help="Rows and columns of the squares.")
@click.option("--rounds", default=3, show_default=True, help="Turns of all libraries.")
@click.option("--repeat", default=4, show_default=True, help="Multiplies of each case in a turn.")
@click.option("--debian", help="libscalapack-mpich.so.2.2 of Debian's libscalapack-mpich2.2.")
@click.option("--mkl", help="A virtual environment with mkl, mpich and numpy from PyPI.")
@click.option("--peers", help="A Python with torch and dask: build/peers/bin/python.")
@click.option(
    "--pause", default=0.0, help="Seconds between libraries, in which a shared host is left to others."
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Where to write the seconds as JSON.")
def main(ranks, edge, rounds, repeat, debian, mkl, peers, pause, output):
    """Race, and print the times of each as multiples of umm's."""
    results = {}
    for count in ranks:
        best = {}
        for turn in range(rounds):
            for name, run in contenders(count, edge, repeat, debian, mkl, peers).items():
                for case, seconds in run().items():
                    times = {name: seconds} if isinstance(seconds, float) else seconds
                    for who, taken in times.items():
                        if isinstance(taken, float):
                            key = case, who
                            best[key] = min(taken, best.get(key, taken))
                click.echo(f"{count} ranks, turn {turn + 1} of {rounds}: {name}", err=True)
                results[count] = {f"{case}, {who}": seconds for (case, who), seconds in best.items()}
                if output:
                    output.write_text(json.dumps(results, indent=1) + "\n")
                time.sleep(pause)
        show(count, edge, best)


def show(ranks, edge, best):
    """Print a row for each case: umm's seconds, its share of BLAS, and the others' multiples."""
    others = list(dict.fromkeys(who for _, who in best if who not in ("umm", "BLAS")))
    print(f"\n{ranks} ranks\n{'case':<14}{'umm':>10}{'of BLAS':>9}" + "".join(f"{x:>11}" for x in others))
    for case in cases(ranks, edge):
        name = case["name"]
        seconds = best[name, "umm"]
        multiples = [f"{best[name, x] / seconds:.2f}x" if (name, x) in best else "–" for x in others]
        share = f"{best[name, 'BLAS'] / seconds:.0%}"
        print(f"{name:<14}{1e3 * seconds:>7.1f} ms{share:>9}" + "".join(f"{x:>11}" for x in multiples))


if __name__ == "__main__":
    main()

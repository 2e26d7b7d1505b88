"""``python -m experiments.cpu.dtensor PYTHON``: DTensor over gloo, predicted and measured in one run.

Local multiplies, redistributions and DTensor's matmul take turns, in a Python that has torch. The first two
make a machine, on which the algorithm ``dtensor`` is simulated; that is held against the third.
"""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import umm
from experiments.cpu.peers.problems import RANKS
from umm_hw.calibrate.toml import efficiency, number, text

PROGRAM = Path(__file__).parent / "peers/gloo.py"
HOW = "median of this run's rounds, torch over gloo, two processes"
Key = tuple[Any, ...]


def measure(python: Path, rounds: int, port: int) -> list[dict[str, Any]]:
    """Return every measurement of every round."""
    done = subprocess.run(
        [python.absolute(), PROGRAM, str(rounds), str(port)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode:
        raise click.ClickException(f"{PROGRAM.name} failed: {done.stderr.strip().splitlines()[-1:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def medians(rows: Sequence[Mapping[str, Any]]) -> dict[Key, float]:
    """Return the median seconds of each thing that was measured, less those of the barrier about it."""
    result: dict[Key, list[float]] = {}
    for row in rows:
        key = tuple(tuple(x) if isinstance(x, list) else x for name, x in row.items() if name != "seconds")
        result.setdefault(key, []).append(row["seconds"])
    nothing = min(result.pop(("nothing",)))
    return {key: max(float(np.median(times)) - nothing, 1e-9) for key, times in result.items()}


def machine_text(times: Mapping[Key, float]) -> str:
    """Return the machine on which DTensor's multiplies and collectives take the times measured alone."""
    gemms = {key[1:]: seconds for key, seconds in times.items() if key[0] == "gemm"}
    sizes = sorted({m for m, _, _ in gemms})
    rates = {shape: 2.0 * np.prod(shape) / seconds for shape, seconds in gemms.items()}
    peak = max(rates.values())
    grid = [[[round(rates[m, n, k] / peak, 4) for k in sizes] for n in sizes] for m in sizes]
    start, bandwidth = collective(times, "all-gather")
    _, summed = collective(times, "reduce-scatter")
    return text(
        {
            "description": "torch over gloo on this host",
            "devices": {
                "count": number(RANKS, "processes"),
                "memory_bandwidth": number("10 GB/s", "not looked at", assumed=True),
                "copy_engines": number(1, "one thread of gloo"),
                "launch": number("0 s", "part of the efficiency"),
                "transfer_overhead": number("0 s", "part of collective_start"),
                "memory": number("8 GB", "not looked at", assumed=True),
                "collective_start": number(f"{start * 1e6:.4g} us", f"redistributions of no bytes; {HOW}"),
                "accumulate_efficiency": number(
                    round(min(1.0, summed / bandwidth), 4), f"reduce-scatters over all-gathers; {HOW}"
                ),
                "peak": {"float32": number(f"{peak / 1e9:.4g} Gflop/s", f"fastest multiply; {HOW}")},
                "interference": {
                    kind: number(0.0, "nothing is overlapped") for kind in ("get", "accumulate", "reduce")
                },
                "efficiency": [efficiency("float32", f"torch's matmul; {HOW}", [sizes] * 3, grid)],
            },
            "fabric": {
                "kind": "switch",
                "bandwidth": number(f"{bandwidth / 1e9:.4g} GB/s", f"all-gathers; {HOW}"),
                "latency": number("0 s", "part of collective_start"),
            },
        }
    )


def collective(times: Mapping[Key, float], what: str) -> tuple[float, float]:
    """Return start in seconds and bytes/s of each rank that redistributions of square matrices follow.

    Of a matrix a rank gets all but what it holds; the line has the least relative errors.
    """
    result: dict[int, list[float]] = {}
    for key, seconds in times.items():
        if key[0] == what:
            result.setdefault(key[1], []).append(seconds)
    nbytes = np.array([size * (RANKS - 1) / RANKS for size in result])
    seconds = np.array([np.mean(both) for both in result.values()])
    terms = np.stack([np.ones_like(nbytes), nbytes], axis=1) / seconds[:, None]
    start, slope = np.linalg.lstsq(terms, np.ones(len(nbytes)), rcond=None)[0]
    return max(float(start), 0.0), 1 / float(slope)


@click.command()
@click.argument("python", type=click.Path(exists=True, path_type=Path))
@click.option("--rounds", type=int, default=7, show_default=True)
@click.option("--port", type=int, default=29573, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/cpu"), show_default=True)
def main(python: Path, rounds: int, port: int, output: Path) -> None:
    """Print predicted and measured times of DTensor's matmul for each shape and layout."""
    output.mkdir(parents=True, exist_ok=True)
    rows = measure(python, rounds, port)
    (output / "gloo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    times = medians(rows)
    file = output / "gloo.toml"
    file.write_text(machine_text(times))
    machine = umm.machine(file)
    errors = []
    click.echo(f"{'m':>5} {'n':>5} {'k':>5} layouts      predicted  measured   error")
    for key, seconds in times.items():
        if key[0] != "problem":
            continue
        m, n, k, (a, b, c) = key[1:]
        problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=RANKS)
        predicted = umm.run(umm.schedule(problem, machine, algorithm="dtensor"), "sim").makespan_s
        errors.append(predicted / seconds - 1)
        click.echo(
            f"{m:>5} {n:>5} {k:>5} {a},{b},{c:<4} {1e3 * predicted:>10.1f} ms {1e3 * seconds:>6.1f} ms "
            f"{100 * errors[-1]:>+6.1f} %"
        )
    off = np.abs(errors)
    click.echo(
        f"{len(off)} points: error median {100 * np.median(off):.1f} %, mean {100 * np.mean(errors):+.1f} %, "
        f"worst {100 * off.max():.1f} %"
    )


if __name__ == "__main__":
    sys.exit(main())

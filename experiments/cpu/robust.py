"""``python -m experiments.cpu.robust``: whether the layout of least p95 wins under injected delays, on MPI.

Each case is searched on a calibration of this host, with and without delays. Where the two answers differ,
both run in turns with the same draws.
"""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import click
import numpy as np

import umm
from experiments.cpu.delays import Case, least, measure
from experiments.cpu.points import Point, keep
from umm.executor import executor as named
from umm.machines import Machine
from umm.space import Space, search
from umm.space.choice import Choice
from umm.space.search.noise import Noise
from umm.space.search.robustness import Robust, robust
from umm_hw.calibrate.host_file import topology_text
from umm_hw.cores.pace import fastest, usual
from umm_hw.mpi.executor import MpiExecutor

ROWS = {"a": "row", "b": "row", "c": "row"}


@dataclass(frozen=True)
class Asked:
    """A multiply, where its operands start and C ends, and the delays of its ranks."""

    m: int
    n: int
    k: int
    delay: str
    given: dict[str, str] | None = None


ASKED = [
    Asked(1024, 3072, 768, "link=100%", ROWS),
    Asked(128, 2048, 2048, "link=100%"),
    Asked(256, 1024, 1024, "link=100%", ROWS),
    Asked(256, 4096, 1024, "link=100%"),
    Asked(640, 640, 6144, "link=100%"),
    Asked(1024, 3072, 768, "20%,1:0.6"),
    Asked(1536, 1536, 1536, "gemm=20%,1:0.5"),
    Asked(1536, 1536, 1536, "gemm=30%", ROWS),
    Asked(640, 640, 6144, "1:0.6"),
    Asked(4096, 256, 256, "20%,1:0.6", ROWS),
]


@dataclass
class Answered:
    """The answer of a search, and the runs of its two choices where they differ."""

    asked: Asked
    noise: Noise
    found: Robust
    runs: list[Case] = field(default_factory=list)

    @property
    def differs(self) -> bool:
        return self.found.choice != self.found.fastest

    def p95(self) -> list[float]:
        """Measured p95 of the fastest and of the robust choice, in seconds."""
        plain = [run for case in self.runs for run in case.plain]
        best = fastest(plain)
        pace = usual(plain, best)
        drawn = [[least(runs, best, pace) for runs in case.late] for case in self.runs]
        return [float(np.quantile(x, 0.95)) for x in drawn]


def answered(asked: Asked, machine: Machine, draws: int, seed: int) -> Answered:
    """Search a case, and choose its robust layout in the draws that will run."""
    noise = Noise.delays(asked.delay, draws=draws, seed=seed)
    given = {} if asked.given is None else {"given": asked.given}
    result = search(Space(m=asked.m, n=asked.n, k=asked.k, ranks=2, **given), machine, top=10)
    answer = Answered(asked, noise, robust(result, noise, named("sim")))
    if answer.differs:
        choices = (answer.found.fastest, answer.found.choice)
        answer.runs = [Case(Point(asked.delay, x.schedule(machine))) for x in choices]
    return answer


def row(answer: Answered) -> dict[str, Any]:
    """Return a case, its two choices and their p95 as plain values."""

    def layouts(choice: Choice) -> str:
        return f"{choice.words}, {choice.way}"

    result = answer.found
    output = asdict(answer.asked) | {"fastest": layouts(result.fastest), "differs": answer.differs}
    if not answer.differs:
        return output
    return output | {
        "robust": layouts(result.choice),
        "predicted_p95_s": [result.spreads[x].p95_s for x in (result.fastest, result.choice)],
        "measured_p95_s": answer.p95(),
        "good_day_cost": result.good_day_cost,
    }


def report(rows: list[dict[str, Any]]) -> str:
    """A line for each case: by how much the robust choice's p95 is less, predicted and measured."""
    lines = [f"{'m':>6}{'n':>6}{'k':>6}  {'delay':<16}{'less p95: predicted':>20}{'measured':>10}"]
    won = 0
    for x in rows:
        line = f"{x['m']:>6}{x['n']:>6}{x['k']:>6}  {x['delay']:<16}"
        if x["differs"]:
            predicted, measured = (
                1 - best / chosen for chosen, best in (x["predicted_p95_s"], x["measured_p95_s"])
            )
            won += measured > 0
            line += f"{predicted:>20.1%}{measured:>10.1%}"
        else:
            line += f"{'the same':>20}"
        lines.append(line)
    differ = sum(x["differs"] for x in rows)
    return "\n".join(
        [*lines, f"{differ} of {len(rows)} differ; the robust choice has the lesser p95 in {won}"]
    )


@click.command()
@click.option("--draws", default=20, show_default=True)
@click.option("--seconds", default=180.0, show_default=True, help="For runs; each choice runs once at least.")
@click.option(
    "--machine", type=click.Path(path_type=Path), help="A calibration of this host; else it is made."
)
@click.option("--seed", default=0, show_default=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), default=Path("build/robust"))
def main(draws: int, seconds: float, machine: Path | None, seed: int, output: Path) -> None:
    """Compare the fastest layout with the robust one under delays, where a search says that they differ."""
    output.mkdir(parents=True, exist_ok=True)
    executor = MpiExecutor(2)
    if machine is None:
        result = executor.calibration(["float32"], lambda what: click.echo(what, err=True))
        machine = output / "localhost.toml"
        machine.write_text(topology_text(result))
    here = umm.machine(machine)
    answers = [answered(asked, here, draws, seed) for asked in ASKED]
    until = monotonic() + seconds
    while any(x.runs for x in answers) and monotonic() < until:
        for answer in answers:
            measure(answer.runs, executor, answer.noise, 4, until)
    executor.close()
    rows = [row(x) for x in answers]
    keep(output, "robust", rows, f"{here.description}; {draws} draws\n{report(rows)}")


if __name__ == "__main__":
    main()

"""Schemes of a chain on the GPUs of this host, forward and backward, beside the simulator's times.

``python -m experiments.hardware.chains -o FOLDER`` runs them by virtual ranks of the cuda executor and writes
``chains.csv``: a row for each scheme and way of moving operands, with seconds by kind of action. ``FOLDER``
has the ``machine.toml`` that predicts. ``--again FOLDER`` predicts anew what was measured, without a GPU.
"""

import argparse
import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

from numpy.typing import NDArray

import umm
from experiments.hardware.layers import write
from umm.checks import random_inputs
from umm.program.chain import Chain
from umm.program.systems import in_scheme
from umm.schedules.table.details import KINDS
from umm_hw.cuda.executor import CudaExecutor

FOLDER, FILE = Path(__file__).parent / "nvidia-h100-1", "chains.csv"
SCHEMES = (
    "megatron",
    "sequence",
    "data",
    "fsdp8",
    "tp4-dp2",
    "sp4-dp2",
    "hsdp2x4",
    "hsdp4x2",
    "2d4x2",
    "fsdp2-tp4",
)
MOVEMENTS = ("flat", "gathered")
RUNS = 6  # the first is not counted
PARTS = {"gemm": ("gemm",), "map": ("map",), "get": ("get",), "sum": ("accumulate", "reduce")}


@dataclass(frozen=True)
class ChainPoint:
    """One scheme of one chain.

    Attributes:
        chain: Its name.
        model: Whose sizes it has.
        tokens: Rows of its activations.
        backward: Whether gradients are computed too.
        scheme: Where tensors are.
        movement: How operands and sums move.
        ranks: Virtual ranks.
        predicted_s: Makespan by the simulator on the calibrated machine.
        measured_s: Best makespan of the counted runs.
        spread_s: Worst less best.
        predicted_gemm_s, predicted_map_s, predicted_get_s, predicted_sum_s: Sums over all actions of
            a kind.
        measured_gemm_s, measured_map_s, measured_get_s, measured_sum_s: Of the best run.
    """

    chain: str
    model: str
    tokens: int
    backward: bool
    scheme: str
    movement: str
    ranks: int
    predicted_s: float = 0.0
    measured_s: float = 0.0
    spread_s: float = 0.0
    predicted_gemm_s: float = 0.0
    predicted_map_s: float = 0.0
    predicted_get_s: float = 0.0
    predicted_sum_s: float = 0.0
    measured_gemm_s: float = 0.0
    measured_map_s: float = 0.0
    measured_get_s: float = 0.0
    measured_sum_s: float = 0.0

    def schedule(self, machine: umm.Machine) -> umm.Schedule:
        """Return the schedule of a point for a machine."""
        sizes = {"model": self.model, "tokens": self.tokens, "backward": self.backward, "dtype": "bfloat16"}
        outline = umm.chain(self.chain, **sizes)  # type: ignore[arg-type]
        chain = in_scheme(self.scheme, outline, self.ranks).laid_out(self.scheme, self.ranks)
        return umm.schedule(chain, machine, movement=self.movement)


def points(tokens: list[int], ranks: int) -> Iterator[ChainPoint]:
    """Yield the points to measure."""
    for rows, backward, movement, scheme in product(tokens, (True, False), MOVEMENTS, SCHEMES):
        yield ChainPoint("gated-mlp", "llama-3-8b", rows, backward, scheme, movement, ranks)


def main() -> None:
    """Measure until all is done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=Path())
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 1024])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="predict what is measured there; no GPU")
    options = parser.parse_args()
    folder = options.again or options.output
    machine = umm.machine(str(folder / "machine.toml"))
    if options.again is not None:
        write(folder / FILE, ChainPoint, [predicted(row, row.schedule(machine)) for row in read(folder)])
        return
    executor, end = CudaExecutor(), time.monotonic() + options.seconds
    operands: dict[tuple[object, ...], dict[str, NDArray[Any]]] = {}
    result: list[ChainPoint] = []
    for point in points(options.tokens, options.ranks):
        if time.monotonic() > end:
            print("time is up before", point)
            break
        result.append(measured(point, point.schedule(machine), executor, operands))
        print(result[-1], flush=True)
        write(folder / FILE, ChainPoint, result)


def read(folder: Path) -> list[ChainPoint]:
    """Return the points of a folder."""
    with (folder / FILE).open(encoding="utf-8", newline="") as lines:
        return [_row(row) for row in csv.DictReader(lines)]


def _row(row: dict[str, str]) -> ChainPoint:
    kinds = {"tokens": int, "ranks": int, "backward": lambda x: x == "True"}
    values = {x: kinds.get(x, float if x.endswith("_s") else str)(y) for x, y in row.items()}  # type: ignore[operator]
    return ChainPoint(**cast(dict[str, Any], values))


def predicted(point: ChainPoint, schedule: umm.Schedule) -> ChainPoint:
    """Return a point with the simulator's times."""
    trace = umm.run(schedule, executor="sim")
    return replace(point, predicted_s=trace.makespan_s, **parts("predicted", trace))


def measured(
    point: ChainPoint,
    schedule: umm.Schedule,
    executor: CudaExecutor,
    operands: dict[tuple[object, ...], dict[str, NDArray[Any]]],
) -> ChainPoint:
    """Return a point with the simulator's times and the GPUs'; operands are drawn once a chain."""
    chain = cast(Chain, schedule.program)
    key = (point.chain, point.model, point.tokens, *chain.operand_names)
    if key not in operands:
        operands.clear()
        operands[key] = random_inputs(chain)
    traces = executor.runs(schedule, operands[key], repeat=RUNS, result=False)[1:]
    best, worst = (pick(traces, key=lambda x: x.makespan_s) for pick in (min, max))
    point = replace(point, measured_s=best.makespan_s, spread_s=worst.makespan_s - best.makespan_s)
    return predicted(replace(point, **parts("measured", best)), schedule)


def parts(which: str, trace: umm.Trace) -> dict[str, Any]:
    """Return the seconds of all actions of each kind, summed."""
    took, kind = trace.end - trace.start, trace.schedule.kind
    codes = {name: [KINDS.index(x) for x in kinds] for name, kinds in PARTS.items()}
    return {f"{which}_{x}_s": float(sum(took[kind == code].sum() for code in y)) for x, y in codes.items()}


if __name__ == "__main__":
    main()

"""The authors' measurements of others, beside simulated times."""

from collections.abc import Iterator
from dataclasses import replace
from statistics import mean

import umm
from experiments.common.ledger import Entry, reproduced
from experiments.common.published import published
from experiments.universal.curves import Curves
from experiments.universal.layers import BATCHES, SIZES, makespan
from umm.machines import Machine
from umm.machines.curves import EfficiencyTable

WHERE = "the authors' plot scripts"


def measurements(curves: Curves) -> Iterator[Entry]:
    """Yield the entries of DTensor and COSMA on eight H100."""
    peak = curves.ranks * curves.machine.peak("float32") / 1e12
    yield _dtensor(curves, peak)
    yield _at_peak(curves.machine, peak)
    yield _cosma(curves.ranks, peak)


def rates(layer: str) -> dict[str, list[float]]:
    """Return DTensor's measured Tflop/s by layout, a number for each batch."""
    result: dict[str, list[float]] = published("universal")["dtensor_tflops"][layer.lower().replace("-", "")]
    return result


def _dtensor(curves: Curves, peak: float) -> Entry:
    texts, worst = [], 0.0
    mlp1 = [100 * x / peak for each in rates("MLP-1").values() for x in each]
    for layer in SIZES:
        errors = []
        for name in ("Row", "Column"):
            for m, rate in zip(BATCHES, rates(layer)[name.lower()[:3]], strict=True):
                seconds = curves.peer(layer, m, f"DTensor-{name}") or 0.0
                errors.append(abs(curves.percent(layer, m, seconds) / (100 * rate / peak) - 1))
        worst = max(worst, *errors)
        texts.append(f"{layer} off {100 * mean(errors):.1f} % in the mean, {100 * max(errors):.1f} % at most")
    return reproduced(
        f"measured on 8 H100: DTensor {min(mlp1):.1f} to {max(mlp1):.1f} % of peak in MLP-1, m = 1K to 8K",
        WHERE,
        "; ".join(texts) + "; float32's efficiency was fitted on MLP-1, MLP-2 judges it",
        worst < 0.08,
        "devices.efficiency.float32",
    )


def _at_peak(machine: Machine, peak: float) -> Entry:
    """How much too fast DTensor's MLP-1 is where GEMMs reach their peak."""
    share = float(machine.efficiency["float32"].values.max())
    one = EfficiencyTable.measured([1], [1], [1], [[[1.0]]])
    ideal = replace(machine, efficiency={**machine.efficiency, "float32": one})
    n, k = SIZES["MLP-1"]
    result = []
    for layout, measured in rates("MLP-1").items():
        for m, rate in zip(BATCHES, measured, strict=True):
            problem = umm.Problem(m=m, n=n, k=k, a=layout, b=layout, c=layout, ranks=machine.default_ranks)
            seconds = makespan(umm.schedule(problem, ideal, algorithm="dtensor"))
            result.append(2 * m * n * k / seconds / (rate * 1e12))
    return reproduced(
        "with a GEMM at 100 % of peak the simulator is 1.4 to 1.6 times too fast, of which 1.37 is "
        "the GEMM alone",
        WHERE,
        f"{min(result):.2f} to {max(result):.2f} times; the file's GEMMs reach {share:g} of the "
        f"peak, {1 / share:.2f} "
        "times, fitted on these points",
        1.35 < min(result) < max(result) < 1.65,
        "devices.efficiency.float32",
        "what DTensor sends is simulated too by now, with a start a collective: less is left",
    )


def _cosma(ranks: int, peak: float) -> Entry:
    n, k = SIZES["MLP-1"]
    percent = published("universal")["cosma_percent"]["mlp1"]
    ms = [2e3 * m * n * k / (x / 100 * peak * 1e12) for m, x in zip(BATCHES, percent, strict=True)]
    line = [7.0 + 7.0 * m / 1024 for m in BATCHES]
    rate = 4 * n * k / ranks / 7.0e-3 / 1e9
    return reproduced(
        "COSMA's times are 7.0 ms + 7.0 ms · m/1024; the constant is B over PCIe at 43 GB/s",
        WHERE,
        f"{', '.join(f'{x:.1f}' for x in ms)} ms; B's share in 7.0 ms is {rate:.0f} GB/s a device, "
        "as PCIe 5.0 gives",
        max(abs(x / y - 1) for x, y in zip(ms, line, strict=True)) < 0.01 and round(rate) == 43,
        "where operands start",
    )

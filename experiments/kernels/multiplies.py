"""Laws of multiplies: the numbers of ``Kernels`` that fit an engine's measured GEMMs best."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.kernels.forms import Form
from experiments.kernels.least_squares import cost, least
from umm.arrays import Bools, Floats
from umm.dtypes import element_bytes
from umm.machines.kernels import Issue, Kernels

CHUNK = 512
TYPES = {
    "bfloat16": "bfloat16", "fp8": "float8_e4m3", "fp8_block": "float8_e4m3:128", "nvfp4": "float4_e2m1",
}  # fmt: skip
BETTER = 0.97
"""Of the cost, which more numbers must reach to be kept."""


@dataclass(frozen=True)
class Device:
    """A data sheet's numbers for the device that multiplied.

    Attributes:
        units: Multiprocessors.
        peak: flop/s of the type.
        memory: Bytes/s.
    """

    units: int
    peak: float
    memory: float


@dataclass(frozen=True)
class Law:
    """Numbers of kernels by name: rates, times and shares, of which some are not fitted.

    Attributes:
        numbers: By name.
        error: Geometric mean error on shapes that were not fitted.
        bias: Of the same.
        form: Properties that are not fitted.
    """

    numbers: Mapping[str, float]
    form: Form
    error: float = 0.0
    bias: float = 0.0

    def kernels(self, device: Device, dtype: str, issues: tuple[Issue, ...] = ()) -> Kernels:
        """Return the kernels."""
        x = self.numbers
        return Kernels(
            units=device.units, tiles=tuple(self.form.tiles), splits=tuple(self.form.splits),
            rate=x["value"] * device.peak / device.units, itemsize=element_bytes(dtype.partition(":")[0]),
            feed=x["feed"], start_s=x["start"], ramp_s=x["ramp"], store=x["store"], memory=x["memory"],
            tail=x["tail"], overlap=x["overlap"], split_s=x.get("split", 0.0), reduce=x.get("reduce"),
            norm=x["norm"], boost_s=x.get("boost", np.inf), sustained=x.get("sustained", 1.0),
            cast=x.get("cast"), cast_unit=x.get("cast_unit"), cast_row_s=x.get("cast_row", 0.0),
            issues=issues, coarse=self.form.coarse, rules=tuple(self.form.rules),
        )  # fmt: skip

    def seconds(
        self, device: Device, dtype: str, rows: pd.DataFrame, issues: tuple[Issue, ...] = ()
    ) -> Floats:
        """Return the seconds of multiplies."""
        kernels = self.kernels(device, dtype, issues)
        shapes = np.stack([*(rows[x].to_numpy(np.float64) for x in "mnk"), np.ones(len(rows))], axis=1)
        parts = [kernels._priced(shapes[i : i + CHUNK], 2, True) for i in range(0, len(rows), CHUNK)]
        return np.concatenate(parts)


SHARES = ("tail", "overlap", "sustained")
MOST_VALUE = 1.05
"""Of the peak, which the rate inside a tile is not above."""


def fitted(rows: pd.DataFrame, device: Device, dtype: str, forms: Sequence[Form]) -> Law:
    """Return the law that fits the seconds of multiplies, with its error on half of the shapes.

    The form of the least cost is kept, a later one only if it is better by more than 3 %.

    Args:
        rows: ``m``, ``n``, ``k`` and ``latency`` in ms.
        device: What they ran on.
        dtype: Of A and B.
        forms: Of kernels that may be what the library has.
    """
    half = np.asarray(pd.util.hash_pandas_object(rows[["n", "k"]], index=False) % 2 == 0)
    best: tuple[float, Law] | None = None
    for form in forms:
        law, misfit = _fit(rows[half], device, dtype, form)
        if best is None or misfit < BETTER * best[0]:
            best = misfit, law
    assert best is not None
    law = best[1]
    errors = np.log(law.seconds(device, dtype, rows[~half]) / rows.latency[~half].to_numpy() * 1e3)
    more = {x: law.numbers[x] for x in law.form.more}
    final, _ = _fit(rows, device, dtype, replace(law.form, more=more))
    return replace(final, error=float(np.expm1(np.abs(errors).mean())), bias=float(np.expm1(errors.mean())))


def _fit(rows: pd.DataFrame, device: Device, dtype: str, form: Form) -> tuple[Law, float]:
    itemsize = element_bytes(dtype.partition(":")[0])
    begin = {
        "value": 0.8, "feed": 4.4e-5 * device.peak * itemsize,
        "start": 2e-6, "ramp": 5e-7, "store": 3e10, "memory": 0.85 * device.memory, "norm": 3.0,
        "tail": 0.7, "overlap": 0.3,
    }  # fmt: skip
    if len(form.splits) > 1:
        begin |= {"split": 2e-6, "reduce": 2e12}
    begin |= form.more
    measured = rows.latency.to_numpy() * 1e-3

    def law(at: Floats) -> Law:
        return Law({x: _decoded(x, v) for x, v in zip(begin, at.tolist(), strict=True)}, form)

    def misfits(at: Floats) -> Floats:
        return np.log(law(at).seconds(device, dtype, rows) / measured)

    at = least(misfits, np.array([_encoded(x, v) for x, v in begin.items()]))
    return law(at), cost(misfits(at))


def _encoded(name: str, value: float) -> float:
    if name in SHARES:
        return float(np.log(value / (1 - value)))
    return float(np.log(value - 1 if name == "norm" else value))


def _decoded(name: str, value: float) -> float:
    if name in SHARES:
        return float(1 / (1 + np.exp(-np.clip(value, -7, 7))))
    raised = float(np.exp(np.clip(value, -60, 60)))
    if name == "norm":
        return min(32.0, 1 + raised)
    return min(raised, MOST_VALUE) if name == "value" else raised


def edges(rows: pd.DataFrame, floors: Sequence[Issue]) -> tuple[Issue, ...]:
    """Return the host's time to issue multiplies, by kind of shape: the median of short ones of each.

    Args:
        rows: Multiplies whose kernels the host issues one by one.
        floors: Kinds of shapes, the last that holds counts.
    """
    m, n, k = (rows[x].to_numpy(np.float64) for x in "mnk")
    kind = np.full(len(rows), -1)
    for i, floor in enumerate(floors):
        kind[floor.holds(m, n, k)] = i
    short: Bools = m * n * k < 2**34
    seconds = [float(np.median(rows.latency[(kind == i) & short])) * 1e-3 for i in range(len(floors))]
    return tuple(floor.model_copy(update={"time": x}) for x, floor in zip(seconds, floors, strict=True))

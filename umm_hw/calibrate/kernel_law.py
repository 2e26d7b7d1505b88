"""Tiles and waves fitted to the GEMMs of a GPU: few numbers that hold for shapes nobody measured."""

from collections.abc import Mapping
from math import exp, log
from typing import Any, NamedTuple

import numpy as np

from umm.machines.drafts.fits import least
from umm.machines.kernels import Kernels

TILES = ((64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64), (256, 256))
SPLITS = (1, 2, 4, 8, 16)
FIRST = {"feed": 1e11, "ramp_s": 6e-7, "store": 2e10, "start_s": 3e-6, "memory": 3e12, "reduce": 3e12}
"""Where the search for a fit begins: about what an H100 has."""
MAX_EXPONENT = log(30.0)  # how far from there it goes, as a logarithm
SPLIT_S = 3e-7  # seconds that splitting k adds: too few to be seen apart
FAR = 0.5  # residual, as a logarithm, from which one shape counts no more than another


class KernelLaw(NamedTuple):
    """A fitted law of kernels."""

    kernels: Kernels  # the law
    peak: float  # flop/s of endless multiplies
    off: float  # mean residual, as a share of the measurement

    def numbers(self) -> dict[str, Any]:
        """Return the type's numbers as a machine file has them."""
        kernels = self.kernels
        rates = {x: f"{getattr(kernels, x) / 1e9:.4g} GB/s" for x in ("feed", "store", "memory", "reduce")}
        seconds = {"start": kernels.start_s, "ramp": kernels.ramp_s, "split": kernels.split_s}
        return (
            rates
            | {key: f"{x * 1e6:.4g} us" for key, x in seconds.items()}
            | {"overlap": round(kernels.overlap, 3)}
        )


def kernel_law(
    seconds: Mapping[tuple[int, int, int], float], itemsize: float, c_itemsize: int, units: int
) -> KernelLaw:
    """Fit the law of :class:`umm.machines.kernels.Kernels` to GEMMs of one type.

    Args:
        seconds: Of each shape (m, n, k).
        itemsize: Bytes of an element of A and B.
        c_itemsize: Bytes of one of C.
    """
    m, n, k = np.array(list(seconds), dtype=np.float64).T
    took = np.array(list(seconds.values()))
    fastest = float((2.0 * m * n * k / took).max())
    names = list(FIRST)

    def made(logs: list[float]) -> Kernels:
        numbers: dict[str, Any] = {name: FIRST[name] * exp(x) for name, x in zip(names, logs, strict=False)}
        rate, overlap = fastest * exp(abs(logs[-2]) / 4) / units, 1.0 / (1.0 + exp(logs[-1]))
        return Kernels(
            units=units, tiles=TILES, splits=SPLITS, rate=rate, itemsize=itemsize, overlap=overlap,
            split_s=SPLIT_S, **numbers,
        )  # fmt: skip

    def off(logs: list[float]) -> float:
        errors = np.abs(np.log(made(logs).seconds(m, n, k, c_itemsize=c_itemsize) / took))
        return float(np.minimum(errors, FAR).mean()) + 1e-3 * float(np.mean(np.square(logs)))

    best = made(least(off, [MAX_EXPONENT] * (len(names) + 2)))
    errors = np.abs(np.log(best.seconds(m, n, k, c_itemsize=c_itemsize) / took))
    return KernelLaw(best, best.rate * units, float(np.expm1(errors.mean())))

"""Efficiency of GEMMs and transfers by shape and size: kernels' tiles, waves and curves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from umm.arrays import Floats
from umm.machines.declaring import BeforeValidator, Field, model_validator
from umm.machines.kernels import KernelNumbers, Kernels
from umm.machines.quantities import MAX_COUNT, Multiplied, Points, Positive, ShareOfPeak, Sourced, noted


class Tiles(Sourced):
    """How a GEMM kernel cuts its work among the units of a device, such as the SMs of a GPU.

    A unit computes one tile of C at a time, over all of k or over one part of it. Tiles at an edge cost as
    much as whole ones, and units without a tile wait for the last wave.
    """

    rows: Positive  # rows of a tile of C; `cols` its columns
    cols: Positive  # see rows
    units: Positive  # tiles that are computed at once
    # What beginning and ending a tile takes, in steps along k.
    ramp: Annotated[int, Field(ge=0, le=MAX_COUNT)]
    # Parts that k may be cut into; the kernel takes the power of two that is fastest.
    most_splits: Positive = 1

    def share(self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1) -> Floats:
        """Return the rate of shapes as a share of that of endless multiplies.

        Args:
            batch: Multiplies of this shape that run together.

        One tile on each of 4 units does half of what it could where the ramp is as long as k; a fifth tile
        takes a second wave; two tiles with k in halves keep 4 units busy:

        >>> tiles = Tiles(rows=64, cols=64, units=4, ramp=256, most_splits=2, source="a data sheet")
        >>> tiles.share([128, 320, 64], [128, 64, 128], [256, 256, 768]).round(3).tolist()
        [0.5, 0.312, 0.6]
        """
        m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
        tiles = np.ceil(m / self.rows) * np.ceil(n / self.cols) * batch
        best = np.full(np.broadcast_shapes(tiles.shape, k.shape), np.inf)
        splits = 1
        while splits <= self.most_splits:
            np.minimum(best, np.ceil(tiles * splits / self.units) * (k / splits + self.ramp), out=best)
            splits *= 2
        return np.asarray(batch * m * n * k / (best * (self.rows * self.cols * self.units)))

    def most(self, k: npt.ArrayLike) -> Floats:
        """Return a bound on the share of any multiply of this k, or of one that is cut out of it."""
        k = np.asarray(k, dtype=np.float64)
        return np.asarray(k / (k + self.ramp))


def _bracket(points: Floats, x: npt.ArrayLike) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """Return the neighbours below and above log2(x) and how far x is on the way; clamped outside."""
    log_x = np.log2(np.maximum(np.asarray(x, dtype=np.float64), 1.0))
    if len(points) == 1:
        zero = np.zeros(log_x.shape, dtype=np.intp)
        return zero, zero, np.zeros(log_x.shape)
    low = np.clip(np.searchsorted(points, log_x, side="right") - 1, 0, len(points) - 2)
    weight = np.clip((log_x - points[low]) / (points[low + 1] - points[low]), 0.0, 1.0)
    return low, low + 1, weight


@dataclass(frozen=True, eq=False)
class EfficiencyTable:
    """The share of a dtype's peak that a GEMM reaches: a measured grid of shapes, or one number and tiles."""

    log_m: Floats  # log2 of the measured m, increasing; `log_n` and `log_k` the same
    log_n: Floats
    log_k: Floats
    values: Floats  # shares of peak, one per (m, n, k)
    tiles: Tiles | None = None  # what the kernel's tiles make of a shape, beside one number
    kernels: Kernels | None = None  # what a library's kernels make of a shape, beside one number

    @classmethod
    def measured(
        cls,
        m: Sequence[int],
        n: Sequence[int],
        k: Sequence[int],
        values: npt.ArrayLike,
        tiles: Tiles | None = None,
        kernels: Kernels | None = None,
    ) -> "EfficiencyTable":
        """Build a table from the shapes and the shares found there."""
        log_m, log_n, log_k = (np.log2(np.asarray(axis, dtype=np.float64)) for axis in (m, n, k))
        return cls(log_m, log_n, log_k, np.asarray(values, dtype=np.float64), tiles, kernels)

    def most(self, k: npt.ArrayLike) -> Floats:
        """Return a bound on the share of any multiply of this k, or of one that is cut out of it."""
        largest = self.values.max()
        if self.kernels is not None:
            return np.asarray(largest * self.kernels.most(k))
        return np.asarray(largest if self.tiles is None else largest * self.tiles.most(k))

    def at(self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1) -> Floats:
        """Return the efficiency of shapes: trilinear in log2, the table's edge outside it.

        Args:
            batch: Multiplies of this shape that run together, which fill a wave together.

        >>> table = EfficiencyTable.measured([64, 256], [64], [64], [[[0.2]], [[0.6]]])
        >>> table.at([16, 64, 128, 4096], 64, 999).round(3).tolist()
        [0.2, 0.2, 0.4, 0.6]
        """
        if self.kernels is not None:
            return np.asarray(self.values.item() * self.kernels.share(m, n, k, batch))
        if self.tiles is not None:
            return np.asarray(self.values.item() * self.tiles.share(m, n, k, batch))
        if self.values.size == 1:
            return np.full(np.broadcast(m, n, k).shape, self.values.item())
        m0, m1, wm = _bracket(self.log_m, m)
        n0, n1, wn = _bracket(self.log_n, n)
        k0, k1, wk = _bracket(self.log_k, k)
        v = self.values
        low, high = (
            (1 - wn) * ((1 - wk) * v[at, n0, k0] + wk * v[at, n0, k1])
            + wn * ((1 - wk) * v[at, n1, k0] + wk * v[at, n1, k1])
            for at in (m0, m1)
        )
        return np.asarray((1 - wm) * low + wm * high)


def _for_all(value: Any) -> Any:
    return [[[value]]] if isinstance(value, int | float) else value


class Efficiency(Sourced):
    """The share of a dtype's peak on a grid of GEMM shapes, value[m][n][k]; or one number for all shapes."""

    dtype: Multiplied
    m: Points = Field(default_factory=lambda: [1])
    n: Points = Field(default_factory=lambda: [1])
    k: Points = Field(default_factory=lambda: [1])
    value: Annotated[list[list[list[ShareOfPeak]]], BeforeValidator(_for_all)]
    range: Annotated[list[ShareOfPeak] | None, Field(min_length=2, max_length=2)] = None
    tiles: Tiles | None = noted("what a GEMM kernel makes of a shape: SMs at once, their tile of C", None)
    kernels: KernelNumbers | None = noted("numbers of this type's kernels that are not the device's", None)

    @model_validator(mode="after")
    def _value_fits(self) -> "Efficiency":
        shape = f"{len(self.m)} x {len(self.n)} x {len(self.k)}"
        fits = len(self.value) == len(self.m) and all(
            len(plane) == len(self.n) and all(len(row) == len(self.k) for row in plane)
            for plane in self.value
        )
        if not fits:
            raise ValueError(f"value must hold {shape} numbers, one for each m, n and k")
        shaped = len(self.m) * len(self.n) * len(self.k) > 1
        if self.range is not None:
            if self.uncertainty is not None:
                raise ValueError("uncertainty and range say the same thing; keep one")
            if shaped:
                raise ValueError("range is for one number; say how sure a table is with uncertainty")
            low, high = self.range
            if not low <= self.value[0][0][0] <= high:
                raise ValueError(f"{self.value[0][0][0]} is outside its range, {low} to {high}")
        for name in ("tiles", "kernels"):
            if shaped and getattr(self, name) is not None:
                raise ValueError(
                    f"{name} is for one number; a table by shape holds what tiles make of a shape"
                )
        if self.tiles is not None and self.kernels is not None:
            raise ValueError("tiles and kernels both say what tiles make of a shape; keep one")
        return self


@dataclass(frozen=True, eq=False)
class MessageSizes:
    """The bandwidth one transfer reaches alone, by its size."""

    log_sizes: Floats  # log2 of the measured sizes in bytes, increasing
    bandwidth: Floats  # Bytes/s at these sizes
    link: float  # Bytes/s of the link they were measured on
    # Bytes/s of what is in a cache, at these sizes or at any, if measured; else 0.
    cached: Floats | float = 0.0

    def slowdown(self, nbytes: npt.ArrayLike, cached: npt.ArrayLike = False) -> Floats:
        """Return link bandwidth over reached bandwidth: linear in log2(size), the table's edge outside.

        A size in a cache reaches as much as any smaller size does, since large ones are slower only because
        they come from memory. It reaches at least what was measured of it, of all ranks at once. Of a rank
        that gets twice as much again as the ranks in the mean a size counts as half, for it has more of the
        caches.

        Args:
            cached: What the ranks get from a cache in the mean over what its rank does, at most 1; 0 for what
                comes from memory.

        >>> sizes = MessageSizes(np.array([10.0, 20.0]), np.array([1e9, 4e9]), 4e9)
        >>> sizes.slowdown([1, 2**10, 2**15, 2**30]).tolist()
        [4.0, 4.0, 1.6, 1.0]
        >>> sizes = MessageSizes(np.array([10.0, 20.0]), np.array([4e9, 2e9]), 4e9)
        >>> sizes.slowdown(2**20, [False, True]).tolist()
        [2.0, 1.0]
        >>> sizes = MessageSizes(np.array([10.0, 20.0]), np.array([2e9, 2e9]), 4e9, cached=4e9)
        >>> sizes.slowdown(2**20, [False, True]).tolist()
        [2.0, 1.0]
        >>> sizes = MessageSizes(np.array([10.0, 20.0]), np.array([2e9, 2e9]), 8e9, np.array([8e9, 4e9]))
        >>> sizes.slowdown(2**20, [1.0, 2**-5, 2**-10]).round(2).tolist()
        [2.0, 1.33, 1.0]
        """
        log_size = np.log2(np.maximum(np.asarray(nbytes, dtype=np.float64), 1.0))
        reached = np.interp(log_size, self.log_sizes, self.bandwidth)
        share = np.asarray(cached, dtype=np.float64)
        if share.any():
            smaller = np.maximum(self.log_sizes.searchsorted(log_size, side="right") - 1, 0)
            best = np.maximum(reached, np.maximum.accumulate(self.bandwidth)[smaller])
            cached_size = log_size + np.log2(np.where(share > 0, share, 1.0))
            known = np.broadcast_to(self.cached, self.log_sizes.shape)
            best = np.maximum(best, np.interp(cached_size, self.log_sizes, known))
            reached = np.where((share > 0) & (log_size >= self.log_sizes[0]), best, reached)
        return np.asarray(self.link / reached)


@dataclass(frozen=True, eq=False)
class Passes:
    """Seconds of NumPy for each byte of an array that it goes over, by the array's size."""

    log_sizes: Floats  # log2 of the measured sizes in bytes, increasing
    per_byte: Mapping[str, Floats]  # at these sizes, by kind of pass; see :mod:`umm.program.functions.passes`

    def seconds(self, nbytes: float, kinds: Mapping[str, float]) -> float:
        """Return the seconds of passes over arrays of a size: linear in log2(size), the edge outside.

        Args:
            nbytes: Of one array.
            kinds: Bytes that are gone over, by kind of pass.

        >>> passes = Passes(np.array([10.0, 20.0]), {"add": np.array([1e-9, 2e-9])})
        >>> round(passes.seconds(2**15, {"add": 100.0}), 12)
        1.5e-07
        """
        per_byte = self.at(np.log2(max(nbytes, 1.0)))
        return sum(moved * float(per_byte[kind]) for kind, moved in kinds.items())

    def at(self, log_sizes: Floats | float) -> dict[str, Floats]:
        """Return the seconds for each byte at other sizes, by kind of pass."""
        return {
            kind: np.asarray(np.interp(log_sizes, self.log_sizes, values))
            for kind, values in self.per_byte.items()
        }


def effective_bytes(
    payload: npt.ArrayLike,
    efficiency: Floats | float,
    sizes: MessageSizes | None,
    cached: npt.ArrayLike = False,
) -> npt.NDArray[np.int64]:
    """Return the bytes to charge on the links, so that bytes over bandwidth gives the time it takes.

    Args:
        efficiency: Share of the link's bandwidth that large transfers of this kind reach.
        sizes: What messages of each size reach of it, if measured.
        cached: Whether the payload is in a cache, or a share; see ``MessageSizes.slowdown``.

    Returns:
        Whole bytes, rounded up; more than the payload where messages of its size do not reach the link's
        bandwidth.
    """
    charged = np.asarray(payload, dtype=np.float64) / efficiency
    if sizes is not None:
        charged = charged * sizes.slowdown(payload, cached)
    return np.ceil(charged).astype(np.int64)


COLLECTIVE, COPY_ENGINE = "collective", "copy_engine"
"""Names of means: by which a collective's bytes go, and a rank's gets in turn, where a machine has them."""


@dataclass(frozen=True, eq=False)
class Means:
    """A way to move bytes that an algorithm may ask for, such as ``copy_engine`` or ``kernel``."""

    interference: float  # share of its GEMM rate a rank loses while it moves bytes so
    efficiency: float = 1.0  # share of the links' bandwidth that large transfers reach
    overhead_s: float = 0.0  # seconds each transfer waits beside its links' latencies
    message_sizes: MessageSizes | None = None  # measured bandwidth by message size, if the file has it

    def effective_bytes(self, payload: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Return the bytes to charge on the links for a payload in bytes."""
        return effective_bytes(payload, self.efficiency, self.message_sizes)

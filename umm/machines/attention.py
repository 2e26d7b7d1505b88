"""The rate of fused attention: the share of a peak that its kernels reach, by head, sequence and mask."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_validator

from umm.arrays import Floats
from umm.interval import Interval
from umm.machines.quantities import Rated, Source, Table, Uncertainty, increasing
from umm.program.functions.attention import Heads

FORWARD, BACKWARD = 0.86, 0.74
"""Of its GEMMs' rate where a file says nothing: FlashAttention-2 reaches up to 73 % of an A100's peak forward
and 63 % backward, beside GEMMs of 80 to 90 %. Source: Dao (2023), FlashAttention-2, section 4.1."""


@dataclass(frozen=True, eq=False)
class AttentionRate:
    """What kernels of fused attention reach of a dtype's peak.

    A kernel reaches ``value`` on long sequences. A query that sees few keys pays for starting and ending: the
    share falls by keys / (keys + ramp). Tiles that the mask cuts are computed whole: half of one is lost for
    every query that it leaves some keys. And tiles that are fewer than the units leave some idle.

    Attributes:
        head: Sizes of a head, increasing.
        value: Shares of the peak for each; between them by the logarithm of the size.
        ramp: Keys that each query is slower by.
        tile: Queries, and keys, of a tile.
        units: Tiles that are computed at a time.
        backward: Whether it is the kernel of the gradients.
    """

    head: Floats
    value: Floats
    ramp: Floats
    tile: int
    units: int
    backward: bool

    @classmethod
    def beside_gemms(cls, gemms: float, backward: bool) -> "AttentionRate":
        """Return the rate where nothing is stated but that of GEMMs, with the ramp of an H100's kernels."""
        value = gemms * (BACKWARD if backward else FORWARD)
        ramp = 300.0 if backward else 190.0
        return cls(np.array([128.0]), np.array([value]), np.array([ramp]), 128, 1, backward)

    def share(self, heads: Heads, rows: Interval, count: int, keys: Interval) -> float:
        """Return the share of the peak that a kernel reaches.

        Args:
            heads: How queries and keys belong together.
            rows: The queries.
            count: Their heads.
            keys: The keys.

        >>> rate = AttentionRate.beside_gemms(0.8, backward=False)
        >>> round(rate.share(Heads(128, 1, 8192, 8192, True), Interval(0, 8192), 16, Interval(0, 8192)), 3)
        0.648
        """
        pairs = heads.pairs(rows, keys)
        size = np.log2(heads.head)
        value = float(np.interp(size, np.log2(self.head), self.value))
        ramp = float(np.interp(size, np.log2(self.head), self.ramp))
        seen = pairs / rows.size
        masked = pairs / (pairs + heads.masked(rows, keys) * self.tile / 2)
        if self.backward:
            tiles = count * -(-keys.size // self.tile)
        else:  # where queries are few, each tile of keys is one of its own (flash decoding)
            tiles = -(-count * rows.size // self.tile) * max(1, int(seen) // self.tile)
        return value * seen / (seen + ramp) * masked * min(1.0, tiles / self.units)


Shares = Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
Whole = Annotated[int, Field(ge=1, le=2**31)]


class AttentionTable(Table):
    """The share of a dtype's peak that kernels of fused attention reach, forward or backward."""

    dtype: Rated
    direction: Literal["forward", "backward"]
    source: Source
    head: Annotated[list[Whole], Field(min_length=1)]
    value: Shares
    ramp: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]
    tile: Whole
    units: Whole
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False

    @model_validator(mode="after")
    def _rows_fit(self) -> "AttentionTable":
        increasing(self.head)
        if not len(self.head) == len(self.value) == len(self.ramp):
            raise ValueError("head, value and ramp must be equally long")
        return self

    @property
    def rate(self) -> AttentionRate:
        """What it says."""
        head, value, ramp = (np.array(x, dtype=np.float64) for x in (self.head, self.value, self.ramp))
        return AttentionRate(head, value, ramp, self.tile, self.units, self.direction == "backward")

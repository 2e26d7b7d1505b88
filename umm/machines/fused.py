"""Kernels of fused attention, and those that multiply rows of several experts with their weights."""

from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import numpy.typing as npt

from umm.interval import Interval
from umm.machines.declaring import Field, model_validator
from umm.machines.quantities import BytesPerSecond, Rated, Sourced, Time, increasing

if TYPE_CHECKING:
    from umm.program.functions.attention import Heads

FORWARD, BACKWARD = 0.86, 0.74
"""Of its GEMMs' rate where a file says nothing: FlashAttention-2 reaches up to 73 % of an A100's peak forward
and 63 % backward, beside GEMMs of 80 to 90 %. Source: Dao (2023), FlashAttention-2, section 4.1."""
WORKED = 0.95  # of their time that units work there, with 16K tokens and 2,048 columns


Shares = Annotated[list[Annotated[float, Field(gt=0, le=1)]], Field(min_length=1)]
Whole = Annotated[int, Field(ge=1, le=2**31)]


class Attention(Sourced):
    """Kernels of fused attention: the share they reach of a dtype's peak, forward or backward.

    A kernel reaches ``value`` on long sequences. A query that sees few keys pays for starting and ending: the
    share falls by keys / (keys + ramp). Tiles that the mask cuts are computed whole: half of one is lost for
    every query that it leaves some keys. And some units are idle at the end, or where tiles are fewer.
    """

    dtype: Rated
    direction: Literal["forward", "backward"]
    head: Annotated[list[Whole], Field(min_length=1)]  # sizes of a head, increasing
    value: Shares  # shares of the peak for each; between them by the logarithm of the size
    # Keys that each query is slower by.
    ramp: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=1)]
    tile: Whole  # queries, and keys, of a tile
    units: Whole  # tiles that are computed at a time
    # Share of the rate after other kernels, where power then holds the clock down.
    sustained: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="after")
    def _rows_fit(self) -> "Attention":
        increasing(self.head)
        if not len(self.head) == len(self.value) == len(self.ramp):
            raise ValueError("head, value and ramp must be equally long")
        return self

    @classmethod
    def beside_gemms(cls, gemms: float, backward: bool, units: int = 1) -> "Attention":
        """Return the rate where nothing is stated but that of GEMMs, with the ramp of an H100's kernels."""
        value = gemms * (BACKWARD if backward else FORWARD) / (WORKED if units > 1 else 1.0)
        ramp = 300.0 if backward else 190.0
        direction = "backward" if backward else "forward"
        return cls.model_construct(
            direction=direction, head=[128], value=[value], ramp=[ramp], tile=128, units=units
        )

    def share(self, heads: "Heads", rows: Interval, count: int, keys: Interval) -> float:
        """Return the share of the peak that a kernel reaches.

        Args:
            heads: How queries and keys belong together.
            count: Their heads.

        >>> from umm.program.functions.attention import Heads
        >>> rate = Attention.beside_gemms(0.8, backward=False)
        >>> round(rate.share(Heads(128, 1, 8192, 8192, True), Interval(0, 8192), 16, Interval(0, 8192)), 3)
        0.647
        """
        pairs = heads.pairs(rows, keys)
        size = np.log2(heads.head)
        value = float(np.interp(size, np.log2(self.head), self.value))
        ramp = float(np.interp(size, np.log2(self.head), self.ramp))
        seen = pairs / rows.size
        masked = pairs / (pairs + heads.masked(rows, keys) * self.tile / 2)
        return value * seen / (seen + ramp) * masked * self._busy(heads, rows, count, keys, pairs)

    def _busy(self, heads: "Heads", rows: Interval, count: int, keys: Interval, pairs: int) -> float:
        """Return the share of the units' time that they work: to the end of the longest tile, not all do."""
        # Tiles of queries that see more keys take longer; backward of keys that more queries see. Where
        # queries are few, each tile of keys is one of its own, and so alike (flash decoding).
        if self.direction == "forward" and min(rows.size, heads.queries) < self.tile:
            tiles = -(-count * rows.size // self.tile) * max(1, pairs // rows.size // self.tile)
            return min(1.0, tiles / self.units)
        if self.direction == "backward":
            size, end = keys.size, (rows, Interval(keys.start, min(keys.start + self.tile, keys.stop)))
        else:
            size, end = rows.size, (Interval(max(rows.start, rows.stop - self.tile), rows.stop), keys)
        mean = pairs / size
        longest = max(mean, heads.pairs(*end) / min(size, self.tile))
        work = count * -(-size // self.tile) * mean / self.units
        return work / max(longest, work + longest - mean)


class Grouped(Sourced):
    """Grouped kernels of one type: tiles go to units in waves, none of them overlapped.

    Weights of many experts that are read once do not hide behind arithmetic as those of one multiply do:
    units that begin an expert wait for its weight. So time and traffic add by a norm between the sum (1) and
    the larger of both (infinity).
    """

    dtype: Rated
    rows: Whole  # of a tile; rows of an expert are padded to it
    cols: Whole  # of a tile
    units: Whole  # tiles that are computed at once
    value: Annotated[float, Field(gt=0, le=1)]  # share of the peak inside a tile
    ends: Time  # seconds that beginning and ending a tile takes
    start: Time  # seconds of the kernel beside its work
    norm: Annotated[float, Field(ge=1, le=64)]  # of arithmetic and traffic
    memory: BytesPerSecond  # Bytes/s that all units together reach

    def seconds(
        self, rows: npt.ArrayLike, n: int, k: int, peak: float, nbytes: float, memory: float
    ) -> float:
        """Return the seconds of a kernel beside its start.

        Args:
            rows: Of each expert.
            n: Columns of the product.
            k: Length of the sums.
            peak: flop/s of the device.
            nbytes: Read and written, each once.
            memory: What the device's memory has of its bandwidth.

        Four experts of 100 rows are four tiles, two waves on two units:

        >>> numbers = {"ends": "1 us", "start": "0 s", "memory": "1 PB/s", "source": "a measurement"}
        >>> rate = Grouped(dtype="float32", rows=128, cols=128, units=2, value=0.5, norm=2.0, **numbers)
        >>> round(rate.seconds([100] * 4, 128, 64, 2e12, 1.0, 1.0) * 1e6, 2)
        10.39
        """
        tiles = -(-np.asarray(rows) // self.rows) * -(-n // self.cols)
        waves = -(-int(tiles.sum()) // self.units)
        tile = 2.0 * self.rows * self.cols * k * self.units / (peak * self.value)
        arithmetic, traffic = waves * (tile + self.ends), nbytes / (self.memory * memory)
        return float((arithmetic**self.norm + traffic**self.norm) ** (1.0 / self.norm))

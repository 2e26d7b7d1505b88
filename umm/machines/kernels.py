"""What kernels of a library reach: GEMMs by tiles and waves, and fused attention."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, field_validator, model_validator

from umm.arrays import Bools, Floats, Ints
from umm.interval import Interval
from umm.machines.quantities import Rated, Source, Table, Uncertainty, increasing
from umm.units import parse_bandwidth, parse_seconds

if TYPE_CHECKING:
    from umm.program.functions.attention import Heads

NEEDED = frozenset(("units", "tiles", "feed", "start", "ramp", "store", "memory"))
"""Numbers that a file must state of every type's kernels, for the device or for the type."""

STEP = 64  # elements of k that a kernel loads at once: k is padded to it
WIDE = 4  # bytes of an element of C from which kernels are the wide ones
CHUNK = 1024  # shapes that are priced at once, so that tables of all tiles stay in a cache
MOST_KNOWN = 2**17  # shapes whose seconds are kept
WIDE_OF_CAST = 2.0  # bytes of an element of A before it is rounded to fewer


def _normed(one: Floats, other: Floats, norm: float) -> Floats:
    """Return two times as one: the larger, and more the nearer the other is.

    >>> _normed(np.array([3.0]), np.array([4.0]), 2.0).tolist()
    [5.0]
    """
    larger = np.maximum(one, other)
    if norm == np.inf:
        return larger
    return np.asarray(larger * (1.0 + (np.minimum(one, other) / larger) ** norm) ** (1.0 / norm))


@dataclass(frozen=True)
class Cast:
    """Time to round A to the type of a multiply, which an engine does in a kernel before it.

    Attributes:
        rate: Bytes/s of A, read in 2 bytes an element and written in the type's.
        unit: Bytes/s at which one unit reads a row, which it has to itself; None where rows are shared out.
        row_s: Seconds more for each row: of its scale, and of a thread block that starts for it.
    """

    rate: float
    unit: float | None = None
    row_s: float = 0.0

    def seconds(self, rows: Floats, k: Floats, itemsize: float) -> Floats:
        """Return the seconds for some rows of k elements.

        >>> Cast(rate=3e12, row_s=1e-9).seconds(np.array([1000.0]), np.array([1000.0]), 1.0).round(9).tolist()
        [2e-06]
        """
        took = rows * k * (WIDE_OF_CAST + itemsize) / self.rate
        if self.unit is not None:
            took = np.maximum(took, k * WIDE_OF_CAST / self.unit)
        return np.asarray(took + rows * self.row_s)


@dataclass(frozen=True)
class Issue:
    """The least seconds between two multiplies that an engine's own code issues, for some shapes.

    Attributes:
        seconds: Of the host.
        rows: Rows of C up to which it holds; 0 for any.
        unless_rows: It holds where the rows are no multiple of this; 0 for any.
        unless: It holds where n or k is no multiple of these; (0, 0) for any.
    """

    seconds: float
    rows: int = 0
    unless_rows: int = 0
    unless: tuple[int, int] = (0, 0)

    def holds(self, m: Floats, n: Floats, k: Floats) -> Bools:
        """Return for which shapes it holds."""
        applies = np.ones(m.shape, dtype=bool)
        if self.rows:
            applies &= m <= self.rows
        if self.unless_rows:
            applies &= m % self.unless_rows != 0
        if self.unless != (0, 0):
            applies &= (n % self.unless[0] != 0) | (k % self.unless[1] != 0)
        return applies


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """What the kernels of a library make of a GEMM of one type on one device.

    Attributes:
        units: Tiles that are computed at once.
        tiles: Rows and columns of the tiles that kernels have.
        splits: Parts that k may be cut into.
        rate: flop/s of one unit.
        itemsize: Bytes of an element of A and B.
        feed: Bytes/s of A and B that a unit reads.
        start_s: Seconds of a kernel beside its work; a kernel that is queued behind another takes them too.
        ramp_s: Seconds that beginning and ending a tile takes.
        store: Bytes/s at which a unit writes its tile of C.
        memory: Bytes/s that all units together reach of A, B and C, each moved once.
        tail: 1 where units without a tile wait for the last wave, 0 where work divides evenly.
        overlap: Share of a tile's begin and end that runs beside the next tile of the same unit.
        split_s: Seconds that splitting k adds.
        reduce: Bytes/s at which parts of a split are added up; None where that takes no time.
        expected_feed: The feed that the library reckons with when it chooses a tile; None for the true one.
        split_k: Length of k from which it may be split.
        split_area: Elements of C for each element of k up to which k is split.
        split_total: The same with C of a whole batch, and below it.
        split_rate: By how much kernels that split k run faster than the others.
        parts: Bytes/s at which a unit writes its part of a split, which stays in a cache; None for ``store``.
        caution: By how much a split must be faster to be chosen.
        batched: Share of the rate that kernels of a batch reach.
        cache: Bytes of A, B and C that move at ``cached`` bytes/s, for they are in the L2 cache.
        cached: See cache.
        wide: The kernels whose C has elements of 4 bytes; None for these.
        unlike: The kernels whose A and B are of unlike types; None for these.
        transposes: Bytes/s at which a B that is stored by rows is transposed first, where kernels need it
            by columns.
        small_s: Seconds that an older kernel takes longer, which is chosen for multiplies of at most
            ``small_volume`` multiply-adds with a k of at most ``small_k``.
        norm: How arithmetic and traffic add: between the sum of both (1) and the larger (infinity).
        boost_s: Seconds of work after which power holds the clock down, of one multiply done over and over.
        sustained: Share of the rate from then on.
        cast: Rounding of A to the type; None where A has it.
        issues: Seconds of the engine's host to issue a multiply, by shape; the last that holds counts.
    """

    units: int
    tiles: tuple[tuple[int, int], ...]
    splits: tuple[int, ...]
    rate: float
    itemsize: float
    feed: float
    start_s: float
    ramp_s: float
    store: float
    memory: float
    tail: float = 1.0
    overlap: float = 0.0
    split_s: float = 0.0
    reduce: float | None = None
    expected_feed: float | None = None
    split_k: int = 0
    split_area: float = np.inf
    split_total: float = np.inf
    split_rate: float = 1.0
    parts: float | None = None
    caution: float = 1.0
    batched: float = 1.0
    transposes: float | None = None
    small_s: float = 0.0
    small_volume: int = 0
    small_k: int = 0
    cache: int = 0
    cached: float = 0.0
    norm: float = np.inf
    boost_s: float = np.inf
    sustained: float = 1.0
    cast: Cast | None = None
    issues: tuple[Issue, ...] = ()
    wide: "Kernels | None" = None
    unlike: "Kernels | None" = None

    @cached_property
    def moves(self) -> float:
        """Bytes/s that no multiply goes above, of whatever types."""
        others = [x.moves for x in (self.wide, self.unlike) if x is not None]
        return max(self.memory, self.cached, *others)

    @cached_property
    def from_memory(self) -> "Kernels":
        """These kernels where no operand is in a cache before."""
        wide, unlike = (None if x is None else x.from_memory for x in (self.wide, self.unlike))
        return replace(self, cache=0, wide=wide, unlike=unlike)

    def scheduled(self, in_graphs: bool) -> "Kernels":
        """Return these kernels as a schedule has them: A has its type, and in graphs no host issues them."""
        return self._in_graphs if in_graphs else self._rounded

    @cached_property
    def _rounded(self) -> "Kernels":
        wide, unlike = (None if x is None else x._rounded for x in (self.wide, self.unlike))
        return replace(self, cast=None, wide=wide, unlike=unlike)

    @cached_property
    def _in_graphs(self) -> "Kernels":
        wide, unlike = (None if x is None else x._in_graphs for x in (self.wide, self.unlike))
        return replace(self, cast=None, issues=(), wide=wide, unlike=unlike)

    @cached_property
    def _known(self) -> dict[tuple[int, bool], dict[tuple[float, ...], float]]:
        """Seconds of shapes that were asked for before, by what else was asked."""
        return {}

    @cached_property
    def _choices(self) -> tuple[Floats, Floats, Floats]:
        """Rows, columns and parts of k of every kernel, one a row."""
        every = [(r, c, s) for r, c in self.tiles for s in self.splits]
        r, c, s = np.array(every, dtype=np.float64).T[:, :, None]
        return r, c, s

    def seconds(
        self,
        m: npt.ArrayLike,
        n: npt.ArrayLike,
        k: npt.ArrayLike,
        batch: npt.ArrayLike = 1,
        *,
        c_itemsize: int,
        by_columns: bool = False,
    ) -> Floats:
        """Return the seconds that GEMMs take, each with the device to itself.

        Args:
            m: Rows of C; `m`, `n`, `k` and `batch` broadcast against each other.
            n: Columns of C.
            k: Length of the sums.
            batch: Multiplies of this shape in one kernel, all of which are counted.
            c_itemsize: Bytes of an element of C.
            by_columns: Whether B is stored by columns.

        One tile on each of 4 units, then a fifth that takes a second wave:

        >>> kernels = Kernels(units=4, tiles=((64, 64),), splits=(1,), rate=2e12, itemsize=2, feed=1e12,
        ...     start_s=4e-6, ramp_s=0.0, store=1e12, memory=1e12)
        >>> (kernels.seconds([128, 320], [128, 64], 256, c_itemsize=2) * 1e6).round(2).tolist()
        [5.06, 6.11]
        """
        if self.wide is not None and c_itemsize >= WIDE:
            return self.wide.seconds(m, n, k, batch, c_itemsize=c_itemsize, by_columns=by_columns)
        arrays = [np.asarray(x) for x in (m, n, k, batch)]
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        sizes = np.empty((4, *shape))
        for i, x in enumerate(arrays):
            sizes[i] = x
        sizes = sizes.reshape(4, -1)
        alike = sizes.shape[1] > 1 and bool((sizes == sizes[:, :1]).all())  # as ranks of one kind multiply
        # A schedule has few shapes many times, a search the same ones again.
        known = self._known.setdefault((c_itemsize, by_columns), {})
        if len(known) > MOST_KNOWN:
            known.clear()
        keys = list(zip(*(sizes[:, :1] if alike else sizes).tolist(), strict=True))
        seconds = [known.get(key) for key in keys]
        if None in seconds:
            new = [key for key in dict.fromkeys(keys) if key not in known]
            for start in range(0, len(new), CHUNK):
                some = new[start : start + CHUNK]
                found = self._priced(np.array(some), c_itemsize, by_columns)
                known.update(zip(some, found.tolist(), strict=True))
            seconds = [known[key] for key in keys]
        return np.full(shape, seconds[0]) if alike else np.array(seconds).reshape(shape)

    def _priced(self, shapes: Floats, c_itemsize: int, by_columns: bool) -> Floats:
        """Return the seconds of shapes, rows of m, n, k and batch, each from its start to its last byte."""
        m, n, k, batch = shapes.T
        traffic = batch * ((m + n) * k * self.itemsize + m * n * c_itemsize)
        inside = np.minimum(traffic, self.cache) / self.cached if self.cached else 0.0
        memory = inside + np.maximum(traffic - self.cache, 0.0) / self.memory
        work = _normed(self._chosen(m, n, k, batch, c_itemsize)[0], memory, self.norm)
        took = self.start_s + work + np.maximum(work - self.boost_s, 0.0) * (1.0 / self.sustained - 1.0)
        if self.transposes and not by_columns:
            took += batch * n * k * self.itemsize / self.transposes
        if self.small_s:
            took += self.small_s * ((batch * m * n * k <= self.small_volume) & (k <= self.small_k))
        took += self.cast_seconds(m, k, batch)
        if self.issues:
            took = np.maximum(took, self._issued(m, n, k))
        return np.asarray(took)

    def cast_seconds(self, m: Floats, k: Floats, batch: Floats) -> Floats | float:
        """Return the seconds of multiplies that round A; 0 where A has the type."""
        return 0.0 if self.cast is None else self.cast.seconds(batch * m, k, self.itemsize)

    def _issued(self, m: Floats, n: Floats, k: Floats) -> Floats:
        """Return the least seconds of shapes, in which the host issues them."""
        least = np.zeros(m.shape)
        for issue in self.issues:
            least = np.where(issue.holds(m, n, k), issue.seconds, least)
        return least

    def worked(
        self,
        m: npt.ArrayLike,
        n: npt.ArrayLike,
        k: npt.ArrayLike,
        batch: npt.ArrayLike = 1,
        *,
        c_itemsize: int,
    ) -> Floats:
        """Return the share of its time that units multiply what there is, in the kernel that is chosen.

        In the rest they have no tile, one over the edge of C, or a k that is filled up.

        >>> kernels = Kernels(units=4, tiles=((64, 64),), splits=(1,), rate=2e12, itemsize=2, feed=1e12,
        ...     start_s=4e-6, ramp_s=0.0, store=1e12, memory=1e12)
        >>> kernels.worked([128, 320, 96], [128, 64, 128], 256, c_itemsize=2).tolist()
        [1.0, 0.625, 0.75]
        """
        if self.wide is not None and c_itemsize >= WIDE:
            return self.wide.worked(m, n, k, batch, c_itemsize=c_itemsize)
        sizes = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (m, n, k, batch)))
        unique, each = np.unique(np.stack([x.reshape(-1) for x in sizes]), axis=1, return_inverse=True)
        _, waves, best = self._chosen(unique[0], unique[1], unique[2], unique[3], c_itemsize)
        rows, cols, parts = (x[best, 0] for x in self._choices)
        padded = np.ceil(unique[2] / parts / STEP) * STEP * parts
        found = unique.prod(axis=0) * parts / (rows * cols * padded * self.units) / waves
        return np.asarray(found[each.reshape(-1)].reshape(sizes[0].shape))

    def _chosen(
        self, m: Floats, n: Floats, k: Floats, batch: Floats, c_itemsize: int
    ) -> tuple[Floats, Floats, Ints]:
        """Return the seconds and waves of the kernel that the library chooses, and which it is."""
        r, c, s = self._choices
        waves = np.ceil(m / r) * np.ceil(n / c) * batch * s / self.units
        waves = np.maximum(1.0, self.tail * np.ceil(waves) + (1.0 - self.tail) * waves)
        # Parts of a split are added up in float32.
        ends = r * c * np.where(s > 1, 4 / (self.parts or self.store), c_itemsize / self.store) + self.ramp_s
        rest = (waves * (1.0 - self.overlap) + self.overlap) * ends
        added = batch * m * n * 4 * s / self.reduce if self.reduce else 0.0
        rest = rest + np.where(s > 1, self.split_s + added, 0.0)
        steps = waves * np.ceil(k / s / STEP) * STEP / np.where(batch > 1, self.batched, 1.0)
        steps = steps / np.where(s > 1, self.split_rate, 1.0)
        arithmetic, loaded = r * c * 2.0 / self.rate, (r + c) * self.itemsize
        took = steps * np.maximum(arithmetic, loaded / self.feed) + rest
        expected = took
        if self.expected_feed is not None:
            expected = steps * np.maximum(arithmetic, loaded / self.expected_feed) + rest
        expected = np.where(s > 1, expected * self.caution, expected)
        shallow = (k < np.maximum(STEP * s, self.split_k)) | (m * n > self.split_area * k)
        shallow |= batch * m * n >= self.split_total * k
        expected = np.where((s > 1) & shallow, np.inf, expected)
        best = expected.argmin(axis=0)
        there = best, np.arange(len(best))
        return took[there], waves[there], best

    @lru_cache(maxsize=64)  # noqa: B019, kernels are as few as types of machines
    def paced(self, peak: float, memory: float) -> "Kernels":
        """Return the kernels of a device whose units run at a share of their rate, its memory at another."""
        rates = {x: getattr(self, x) * peak for x in ("rate", "feed", "store")}
        rates |= {
            x: found * peak for x in ("expected_feed", "reduce", "parts") if (found := getattr(self, x))
        }
        moved: dict[str, Any] = {x: getattr(self, x) * memory for x in ("memory", "cached")}
        moved |= {"transposes": self.transposes * memory} if self.transposes else {}
        if self.cast is not None:
            moved |= {"cast": replace(self.cast, rate=self.cast.rate * memory)}
        times = {x: getattr(self, x) / peak for x in ("ramp_s", "split_s")}
        others = {x: found.paced(peak, memory) for x in ("wide", "unlike") if (found := getattr(self, x))}
        return replace(self, **rates, **moved, **times, **others)

    def share(self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1) -> Floats:
        """Return the share of what endless multiplies reach that shapes with C in float32 reach."""
        took = self.seconds(m, n, k, batch, c_itemsize=4) - self.start_s
        m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
        return np.asarray(2.0 * batch * m * n * k / (took * self.rate * self.units))

    def most(self, k: npt.ArrayLike) -> Floats:
        """Return the share that no multiply of this k, nor one that is cut out of it, goes above."""
        k = np.asarray(k, dtype=np.float64)
        best = np.zeros(k.shape)
        for rows, cols in self.tiles:
            whole = max(rows * cols * 2.0 / self.rate, (rows + cols) * self.itemsize / self.feed)
            step = whole / np.where(k >= 2 * STEP, max(1.0, self.split_rate), 1.0)
            ends = (1.0 - self.overlap) * self.ramp_s / np.maximum(k, 1.0)
            np.maximum(best, rows * cols * 2.0 / (step + ends) / self.rate, out=best)
        for other in (self.wide, self.unlike):
            if other is not None:
                np.maximum(best, other.most(k) * (other.rate / self.rate), out=best)
        return best


FORWARD, BACKWARD = 0.86, 0.74
"""Of its GEMMs' rate where a file says nothing: FlashAttention-2 reaches up to 73 % of an A100's peak forward
and 63 % backward, beside GEMMs of 80 to 90 %. Source: Dao (2023), FlashAttention-2, section 4.1."""
WORKED = 0.95
"""Of their time that units work there, with 16K tokens and 2,048 columns."""


@dataclass(frozen=True, eq=False)
class AttentionRate:
    """What kernels of fused attention reach of a dtype's peak.

    A kernel reaches ``value`` on long sequences. A query that sees few keys pays for starting and ending: the
    share falls by keys / (keys + ramp). Tiles that the mask cuts are computed whole: half of one is lost for
    every query that it leaves some keys. And some units are idle at the end, or where tiles are fewer.

    Attributes:
        head: Sizes of a head, increasing.
        value: Shares of the peak for each; between them by the logarithm of the size.
        ramp: Keys that each query is slower by.
        tile: Queries, and keys, of a tile.
        units: Tiles that are computed at a time.
        backward: Whether it is the kernel of the gradients.
        sustained: What is left of the rate after other kernels, where power then holds the clock down.
    """

    head: Floats
    value: Floats
    ramp: Floats
    tile: int
    units: int
    backward: bool
    sustained: float = 1.0

    @classmethod
    def beside_gemms(cls, gemms: float, backward: bool, units: int = 1) -> "AttentionRate":
        """Return the rate where nothing is stated but that of GEMMs, with the ramp of an H100's kernels."""
        value = gemms * (BACKWARD if backward else FORWARD) / (WORKED if units > 1 else 1.0)
        ramp = 300.0 if backward else 190.0
        return cls(np.array([128.0]), np.array([value]), np.array([ramp]), 128, units, backward)

    def share(self, heads: "Heads", rows: Interval, count: int, keys: Interval) -> float:
        """Return the share of the peak that a kernel reaches.

        Args:
            heads: How queries and keys belong together.
            rows: The queries.
            count: Their heads.
            keys: The keys.

        >>> from umm.program.functions.attention import Heads
        >>> rate = AttentionRate.beside_gemms(0.8, backward=False)
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
        """Return the share of the units' time that they work: to the end of the longest tile, not all do.

        Tiles of queries that see more keys take longer; backward of keys that more queries see. Where queries
        are few, each tile of keys is one of its own, and so alike (flash decoding).
        """
        if not self.backward and min(rows.size, heads.queries) < self.tile:
            tiles = -(-count * rows.size // self.tile) * max(1, pairs // rows.size // self.tile)
            return min(1.0, tiles / self.units)
        if self.backward:
            size, end = keys.size, (rows, Interval(keys.start, min(keys.start + self.tile, keys.stop)))
        else:
            size, end = rows.size, (Interval(max(rows.start, rows.stop - self.tile), rows.stop), keys)
        mean = pairs / size
        longest = max(mean, heads.pairs(*end) / min(size, self.tile))
        work = count * -(-size // self.tile) * mean / self.units
        return work / max(longest, work + longest - mean)


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
    sustained: Annotated[float, Field(gt=0, le=1)] = 1.0
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
        backward = self.direction == "backward"
        return AttentionRate(head, value, ramp, self.tile, self.units, backward, self.sustained)


@dataclass(frozen=True)
class GroupedRate:
    """What a grouped kernel of one type reaches: its tiles go to units in waves, none of them overlapped.

    Weights of many experts that are read once do not hide behind arithmetic as those of one multiply do:
    units that begin an expert wait for its weight. So time and traffic add by a norm between the sum (1) and
    the larger of both (infinity).

    Attributes:
        rows: Of a tile; rows of an expert are padded to it.
        cols: Of a tile.
        units: Tiles that are computed at once.
        value: Share of the peak inside a tile.
        ends_s: Seconds that beginning and ending a tile takes.
        start_s: Seconds of the kernel beside its work.
        norm: Of arithmetic and traffic.
        memory: Bytes/s that all units together reach.
    """

    rows: int
    cols: int
    units: int
    value: float
    ends_s: float
    start_s: float
    norm: float
    memory: float

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

        >>> rate = GroupedRate(128, 128, 2, 0.5, 1e-6, 0.0, 2.0, 1e15)
        >>> round(rate.seconds([100] * 4, 128, 64, 2e12, 1.0, 1.0) * 1e6, 2)
        10.39
        """
        tiles = -(-np.asarray(rows) // self.rows) * -(-n // self.cols)
        waves = -(-int(tiles.sum()) // self.units)
        tile = 2.0 * self.rows * self.cols * k * self.units / (peak * self.value)
        arithmetic, traffic = waves * (tile + self.ends_s), nbytes / (self.memory * memory)
        return float((arithmetic**self.norm + traffic**self.norm) ** (1.0 / self.norm))


class GroupedTable(Table):
    """What a grouped kernel of one type reaches."""

    dtype: Rated
    source: Source
    rows: Whole
    cols: Whole
    units: Whole
    value: Annotated[float, Field(gt=0, le=1)]
    ends: str
    start: str
    norm: Annotated[float, Field(ge=1, le=64)]
    memory: str
    uncertainty: Uncertainty = None
    measured: bool | None = None
    assumed: bool = False

    @field_validator("ends", "start")
    @classmethod
    def _are_seconds(cls, value: str) -> str:
        parse_seconds(value)
        return value

    @field_validator("memory")
    @classmethod
    def _is_bandwidth(cls, value: str) -> str:
        parse_bandwidth(value)
        return value

    @property
    def rate(self) -> GroupedRate:
        """What it says."""
        ends, start = parse_seconds(self.ends), parse_seconds(self.start)
        memory = parse_bandwidth(self.memory)
        return GroupedRate(self.rows, self.cols, self.units, self.value, ends, start, self.norm, memory)

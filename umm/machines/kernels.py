"""GEMMs by the kernels of a library: tiles, waves, split k, memory, and rounding and issuing by an engine."""

from collections.abc import Sequence
from dataclasses import MISSING, dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
import numpy.typing as npt

from umm.arrays import Bools, Floats, Ints
from umm.errors import MachineError
from umm.machines.declaring import BeforeValidator, Field, model_validator
from umm.machines.quantities import (
    Bytes,
    BytesPerSecond,
    Positive,
    ShareOfPeak,
    Sourced,
    Table,
    Time,
    declared,
    stated,
    table_of,
)
from umm.machines.rules import Rule, Rules, checked, frozen, ruled, tile_of

STEP = 64  # elements of k that a kernel loads at once: k is padded to it
WIDE = 4  # bytes of an element of C from which kernels are the wide ones
CHUNK = 1024  # shapes that are priced at once, so that tables of all tiles stay in a cache
MOST_KNOWN = 2**17  # shapes whose seconds are kept
WIDE_OF_CAST = 2.0  # bytes of an element of A before it is rounded to fewer

Share = Annotated[float, Field(ge=0, le=1)]
MoreThanZero = Annotated[float, Field(gt=0)]


def _shapes(texts: Any) -> Any:
    """Return rows and columns of tiles that are written like ``128x256``."""
    return tuple(map(tile_of, texts)) if isinstance(texts, list) else texts


Shapes = Annotated[tuple[tuple[int, int], ...], BeforeValidator(_shapes), Field(min_length=1)]
Parts = Annotated[tuple[Positive, ...], BeforeValidator(frozen), Field(min_length=1)]


def _normed(one: Floats, other: Floats, norm: float) -> Floats:
    """Return two times as one: the larger, and more the nearer the other is.

    >>> _normed(np.array([3.0]), np.array([4.0]), 2.0).tolist()
    [5.0]
    """
    larger = np.maximum(one, other)
    if norm == np.inf:
        return larger
    return np.asarray(larger * (1.0 + (np.minimum(one, other) / larger) ** norm) ** (1.0 / norm))


class Issue(Table):
    """The least seconds between two multiplies that an engine's own code issues, for some shapes."""

    time: Time  # of the host
    rows: Positive | None = None  # Rows of C up to which it holds; None for any.
    unless_rows: Positive | None = None  # it holds where the rows are no multiple of this
    # It holds where n or k is no multiple of these.
    unless: Annotated[tuple[Positive, Positive] | None, BeforeValidator(frozen)] = None

    def holds(self, m: Floats, n: Floats, k: Floats) -> Bools:
        """Return for which shapes it holds."""
        applies = np.ones(m.shape, dtype=bool)
        if self.rows:
            applies &= m <= self.rows
        if self.unless_rows:
            applies &= m % self.unless_rows != 0
        if self.unless:
            applies &= (n % self.unless[0] != 0) | (k % self.unless[1] != 0)
        return applies


Issues = Annotated[tuple[Issue, ...], BeforeValidator(frozen), Field(min_length=1)]


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The time of a GEMM of one type on one device, by the kernels of a library."""

    rate: float  # flop/s of one unit
    itemsize: float  # bytes of an element of A and B
    units: int = stated(Positive, "tiles that are computed at once")
    tiles: tuple[tuple[int, int], ...] = stated(Shapes, "rows and columns of the tiles that kernels have")
    splits: tuple[int, ...] = stated(Parts, "parts that k may be cut into", (1,))
    feed: float = stated(BytesPerSecond, "rate at which a unit reads A and B")
    start_s: float = stated(
        Time, "time of a kernel beside its work, which one that is queued behind another takes too"
    )
    ramp_s: float = stated(Time, "time that beginning and ending a tile takes")
    store: float = stated(BytesPerSecond, "rate at which a unit writes its tile of C")
    memory: float = stated(
        BytesPerSecond, "rate that all units together reach of A, B and C, each moved once", of_memory=True
    )
    tail: float = stated(
        Share, "1 where units without a tile wait for the last wave, 0 where work divides evenly", 1.0
    )
    overlap: float = stated(
        Share, "share of a tile's begin and end that runs beside the next tile of the same unit", 0.0
    )
    split_s: float = stated(Time, "time that splitting k adds", 0.0)
    reduce: float | None = stated(
        BytesPerSecond, "rate at which parts of a split are added up; that takes no time if not stated", None
    )
    expected_feed: float | None = stated(
        BytesPerSecond, "the feed that the library expects when it chooses a tile, if not the true one", None
    )
    split_k: int = stated(Positive, "length of k from which it may be split", 0)
    split_area: float = stated(
        MoreThanZero, "elements of C for each element of k up to which k is split", np.inf
    )
    split_total: float = stated(MoreThanZero, "the same with C of a whole batch, and below it", np.inf)
    split_rate: float = stated(MoreThanZero, "rate of kernels that split k over that of the others", 1.0)
    parts: float | None = stated(
        BytesPerSecond, "rate at which a unit writes its part of a split to a cache, if not `store`", None
    )
    coarse: int = stated(
        Positive, "rows of C up to which the last tile is not chosen, and above which no other is", 0
    )
    rules: tuple[Rule, ...] = stated(
        Rules,
        "tiles by rows, columns and k; the first that holds counts, the fastest tile if none is stated",
        (),
    )
    alone: float = stated(
        Annotated[float, Field(ge=1)],
        "rate of a unit while few others have a tile, over that of each of all, which power holds down",
        1.0,
    )
    caution: float = stated(MoreThanZero, "factor by which a split must be faster to be chosen", 1.0)
    batched: float = stated(
        Annotated[float, Field(gt=0, le=1)], "share of the rate that kernels of a batch reach", 1.0
    )
    transposes: float | None = stated(
        BytesPerSecond,
        "rate at which a B stored by rows is transposed first, where kernels need it by columns",
        None,
        of_memory=True,
    )
    small_s: float = stated(
        Time, "time that an older kernel takes longer, which is chosen for small multiplies", 0.0
    )
    small_volume: int = stated(
        Annotated[int, Field(ge=1)], "multiply-adds up to which a multiply is small", 0
    )
    small_k: int = stated(Positive, "k up to which a multiply is small", 0)
    cache: int = stated(Bytes, "bytes of A, B and C that move at `cached`, for they are in the L2 cache", 0)
    cached: float = stated(BytesPerSecond, "rate of what is in the L2 cache", 0.0, of_memory=True)
    l2: int = stated(
        Bytes, "bytes of the L2 cache, beyond which an A that is rounded moves at `memory`, not `cast`", 0
    )
    copies: int = stated(
        Positive,
        "copies of B in turn, of a multiply done over and over: A, C and these move at `cached` if `l2` has "
        "room for all; in a schedule and in serving B is of another layer, so that none does",
        0,
    )
    norm: float = stated(
        Annotated[float, Field(ge=1, le=64)],
        "how arithmetic and traffic add: between the sum of both (1) and the larger (if not stated)",
        np.inf,
    )
    boost_s: float = stated(
        Time, "work after which power holds the clock down, of one multiply done over and over", np.inf
    )
    sustained: float = stated(Annotated[float, Field(gt=0, le=1)], "share of the rate from then on", 1.0)
    cast: float | None = stated(
        BytesPerSecond,
        "rate at which an engine rounds A to the type, read in 2 bytes an element, in a kernel before",
        None,
        of_memory=True,
    )
    cast_unit: float | None = stated(
        BytesPerSecond, "rate at which one unit reads a row for that, if it has the row to itself", None
    )
    cast_row_s: float = stated(
        Time, "time of each row more: of its scale, and of a thread block that starts for it", 0.0
    )
    issues: tuple[Issue, ...] = stated(
        Issues, "times of the engine's host to issue a multiply, by shape; the last that holds counts", ()
    )
    weights: float = 1.0  # share of that of an element of B, which kernels expand
    wide: "Kernels | None" = None  # The kernels whose C has elements of 4 bytes; None for these.
    unlike: "Kernels | None" = None  # The kernels whose A and B are of unlike types; None for these.

    @cached_property
    def moves(self) -> float:
        """Bytes/s that no multiply of a schedule goes above, of whatever types."""
        others = [x.moves for x in (self.wide, self.unlike) if x is not None]
        return max(self.memory, self.cached if self.cache else 0.0, *others)

    @cached_property
    def from_memory(self) -> "Kernels":
        """These kernels where no operand is in a cache before, unless the multiply is done over and over."""
        wide, unlike = (None if x is None else x.from_memory for x in (self.wide, self.unlike))
        return replace(self, cache=0, wide=wide, unlike=unlike)

    @cached_property
    def unrepeated(self) -> "Kernels":
        """These kernels where no multiply is done over and over, so that B is read from memory."""
        wide, unlike = (None if x is None else x.unrepeated for x in (self.wide, self.unlike))
        return replace(self, copies=0, wide=wide, unlike=unlike)

    def scheduled(self, in_graphs: bool) -> "Kernels":
        """Return these kernels as a schedule has them: A has its type, and in graphs no host issues them."""
        return self._in_graphs if in_graphs else self._rounded

    @cached_property
    def _rounded(self) -> "Kernels":
        wide, unlike = (None if x is None else x._rounded for x in (self.wide, self.unlike))
        return replace(self, cast=None, copies=0, wide=wide, unlike=unlike)

    @cached_property
    def _in_graphs(self) -> "Kernels":
        wide, unlike = (None if x is None else x._in_graphs for x in (self.wide, self.unlike))
        return replace(self, cast=None, copies=0, issues=(), wide=wide, unlike=unlike)

    @cached_property
    def _known(self) -> dict[tuple[int, bool], dict[tuple[float, ...], float]]:
        """Seconds of earlier shapes, by element size of C and order of B."""
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
                priced = self._priced(np.array(some), c_itemsize, by_columns)
                known.update(zip(some, priced.tolist(), strict=True))
            seconds = [known[key] for key in keys]
        return np.full(shape, seconds[0]) if alike else np.array(seconds).reshape(shape)

    def _priced(self, shapes: Floats, c_itemsize: int, by_columns: bool) -> Floats:
        """Return the seconds of shapes, rows of m, n, k and batch, each from its start to its last byte."""
        m, n, k, batch = shapes.T
        traffic = batch * ((m + n * self.weights) * k * self.itemsize + m * n * c_itemsize)
        inside = np.minimum(traffic, self.cache) / self.cached if self.cached else 0.0
        memory = inside + np.maximum(traffic - self.cache, 0.0) / self.memory
        if self.copies:
            # Of copies that are read in turn, a cache without room for all has none when its turn comes.
            others = batch * n * self.weights * k * self.itemsize * (self.copies - 1)
            memory = np.where(traffic + others <= self.l2, traffic / self.cached, memory)
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
        if self.cast is None:
            return 0.0
        rows = batch * m
        nbytes = rows * k * (WIDE_OF_CAST + self.itemsize)
        seconds = nbytes / self.cast
        if self.l2:
            seconds = np.where(nbytes <= self.l2, seconds, nbytes / min(self.cast, self.memory))
        if self.cast_unit is not None:
            seconds = np.maximum(seconds, k * WIDE_OF_CAST / self.cast_unit)
        return np.asarray(seconds + rows * self.cast_row_s)

    def _issued(self, m: Floats, n: Floats, k: Floats) -> Floats:
        """Return the least seconds of shapes, in which the host issues them."""
        least = np.zeros(m.shape)
        for issue in self.issues:
            least = np.where(issue.holds(m, n, k), issue.time, least)
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
        """Return the share of its time that units do useful multiplies, in the chosen kernel.

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
        share = unique.prod(axis=0) * parts / (rows * cols * padded * self.units) / waves
        return np.asarray(share[each.reshape(-1)].reshape(sizes[0].shape))

    def _chosen(
        self, m: Floats, n: Floats, k: Floats, batch: Floats, c_itemsize: int
    ) -> tuple[Floats, Floats, Ints]:
        """Return the seconds and waves of the kernel that the library chooses, and which it is."""
        r, c, s = self._choices
        busy = np.ceil(m / r) * np.ceil(n / c) * batch * s / self.units
        waves = np.maximum(1.0, self.tail * np.ceil(busy) + (1.0 - self.tail) * busy)
        # Parts of a split are added up in float32.
        ends = r * c * np.where(s > 1, 4 / (self.parts or self.store), c_itemsize / self.store) + self.ramp_s
        rest = (waves * (1.0 - self.overlap) + self.overlap) * ends
        added = batch * m * n * 4 * s / self.reduce if self.reduce else 0.0
        rest = rest + np.where(s > 1, self.split_s + added, 0.0)
        steps = waves * np.ceil(k / s / STEP) * STEP / np.where(batch > 1, self.batched, 1.0)
        steps = steps / np.where(s > 1, self.split_rate, 1.0)
        arithmetic, loaded = r * c * 2.0 / self.rate, (r + c * self.weights) * self.itemsize
        if self.alone > 1.0:
            # Tiles that do not fill the units raise the rate of each, not that of all together.
            arithmetic = arithmetic * np.maximum(busy / waves, 1.0 / self.alone)
        took = steps * np.maximum(arithmetic, loaded / self.feed) + rest
        expected = took
        if self.expected_feed is not None:
            expected = steps * np.maximum(arithmetic, loaded / self.expected_feed) + rest
        expected = np.where(s > 1, expected * self.caution, expected)
        shallow = (k < np.maximum(STEP * s, self.split_k)) | (m * n > self.split_area * k)
        shallow |= batch * m * n >= self.split_total * k
        expected = np.where((s > 1) & shallow, np.inf, expected)
        if self.coarse:
            last = (r == self.tiles[-1][0]) & (c == self.tiles[-1][1])
            expected = np.where((m > self.coarse) == last, expected, np.inf)
        if self.rules:
            mine = ruled(self.rules, self.tiles, m, n, k)
            each = np.repeat(np.arange(len(self.tiles)), len(self.splits))[:, None]
            expected = np.where(each == mine, expected, np.inf)
        best = expected.argmin(axis=0)
        at = best, np.arange(len(best))
        return took[at], waves[at], best

    @lru_cache(maxsize=64)  # noqa: B019, kernels are as few as types of machines
    def expanding(self, weights: float) -> "Kernels":
        """Return these kernels where they read a share of B's bytes, and expand them."""
        wide = None if self.wide is None else self.wide.expanding(weights)
        return replace(self, weights=weights, wide=wide)

    @lru_cache(maxsize=64)  # noqa: B019, kernels are as few as types of machines
    def paced(self, peak: float, memory: float) -> "Kernels":
        """Return the kernels of a device whose units run at a share of their rate, its memory at another."""
        rates = {x: getattr(self, x) * peak for x in ("rate", "feed", "store")}
        rates |= {x: rate * peak for x in ("expected_feed", "reduce", "parts") if (rate := getattr(self, x))}
        moved = {
            x.name: y * memory for x in declared(Kernels) if x.of_memory and (y := getattr(self, x.name))
        }
        times = {x: getattr(self, x) / peak for x in ("ramp_s", "split_s")}
        others = {x: other.paced(peak, memory) for x in ("wide", "unlike") if (other := getattr(self, x))}
        changes: dict[str, Any] = {**rates, **moved, **times, **others}
        return replace(self, **changes)

    def share(self, m: npt.ArrayLike, n: npt.ArrayLike, k: npt.ArrayLike, batch: npt.ArrayLike = 1) -> Floats:
        """Return the rate of shapes with C in float32, as a share of that of endless multiplies."""
        took = self.seconds(m, n, k, batch, c_itemsize=4) - self.start_s
        m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
        return np.asarray(2.0 * batch * m * n * k / (took * self.rate * self.units))

    def most(self, k: npt.ArrayLike) -> Floats:
        """Return the share that no multiply of this k, nor one that is cut out of it, goes above."""
        k = np.asarray(k, dtype=np.float64)
        best = np.zeros(k.shape)
        for rows, cols in self.tiles:
            each_k = max(
                rows * cols * 2.0 / self.rate, (rows + cols * self.weights) * self.itemsize / self.feed
            )
            step = each_k / np.where(k >= 2 * STEP, max(1.0, self.split_rate), 1.0)
            ends = (1.0 - self.overlap) * self.ramp_s / np.maximum(k, 1.0)
            np.maximum(best, rows * cols * 2.0 / (step + ends) / self.rate, out=best)
        for other in (self.wide, self.unlike):
            if other is not None:
                np.maximum(best, other.most(k) * (other.rate / self.rate), out=best)
        return best


class RulesOfKernels(Sourced):
    """Numbers of GEMM kernels, each optional: a type states only its differences from the device's.

    Kernels of a type may differ again where C has elements of 4 bytes (``wide``) and where A and B are of
    unlike types (``unlike``); ``value`` is then their share of the peak. All have one start.
    """

    value: ShareOfPeak | None = None
    wide: "KernelNumbers | None" = None
    unlike: "KernelNumbers | None" = None

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        for other in (self.wide, self.unlike):
            if other is not None and "start" in other.model_fields_set:
                raise ValueError("all kernels of a type have one start; state it once")
        if self.wide is not None and self.wide.unlike is not None:
            raise ValueError("unlike may hold wide, not the other way round")
        return self

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        stated_here = self.model_fields_set
        together = [("boost", "sustained"), ("small", "small_volume", "small_k")]
        together.append(("l2", "copies", "cached") if "copies" in stated_here else ("cache", "cached"))
        for names in together:
            if not stated_here.isdisjoint(names) and not stated_here.issuperset(names):
                raise ValueError(f"{', '.join(names)} belong together; state all or none")
        if stated_here & {"cast_unit", "cast_row"} and "cast" not in stated_here:
            raise ValueError("cast_unit and cast_row say more of a cast; state cast too")
        if "l2" in stated_here and not stated_here & {"cast", "copies"}:
            raise ValueError(
                "l2 says how much a cast or copies of B find in a cache; state cast or copies too"
            )
        return self


if TYPE_CHECKING:
    KernelNumbers = RulesOfKernels
else:
    KernelNumbers = table_of("KernelNumbers", RulesOfKernels, Kernels, partial=True)


def _check_choice(numbers: dict[str, Any], dtype: str) -> None:
    """Raise MachineError if a shape could have no kernel: the first would be taken for it."""
    if numbers.get("coarse") and numbers.get("rules"):
        raise MachineError(f"coarse and rules both choose the tile of {dtype}; state one of them")
    if numbers.get("coarse") and len(set(numbers["tiles"])) == 1:
        raise MachineError(f"coarse of {dtype} needs another tile for fewer rows; add one or leave it out")
    if 1 not in numbers.get("splits", (1,)):
        raise MachineError(f"splits of {dtype} lack 1, the only one for a short k; add it")


def kernels_of(
    dtype: str, peak: float, itemsize: float, value: float, tables: Sequence[KernelNumbers]
) -> Kernels:
    """Return the kernels that some tables describe, of which later ones state differences.

    MachineError if no table has a number that all kernels need.

    Args:
        dtype: Of A and B, for errors.
        peak: flop/s of the device.
        itemsize: Bytes of an element of A and B.
        value: Share of the peak that units reach, if no table states it.
        tables: The device's, the type's, and that of wide or unlike kernels.
    """
    numbers = {
        x.name: number
        for table in tables
        for x in declared(Kernels)
        if (number := getattr(table, x.key)) is not None
    }
    missing = sorted(x.key for x in declared(Kernels) if x.default is MISSING and x.name not in numbers)
    if missing:
        raise MachineError(
            f"the kernels of {dtype} lack {', '.join(missing)}; "
            "state it in devices.kernels or in devices.efficiency.kernels"
        )
    checked(numbers.get("rules", ()), numbers["tiles"])
    _check_choice(numbers, dtype)
    share = next((x.value for x in reversed(tables) if x.value is not None), value)
    others: dict[str, Any] = {
        name: kernels_of(dtype, peak, itemsize, value, [*tables, other])
        for name in ("wide", "unlike")
        if (other := getattr(tables[-1], name)) is not None
    }
    return Kernels(rate=peak * share / numbers["units"], itemsize=itemsize, **numbers, **others)

"""Whether to fuse a multiply with its collective: closed forms of each way of overlapping the two.

Either A's rows are gathered before each rank multiplies them with its columns of B. Or each rank multiplies
its part of k, and the products are summed and scattered or sent to all. A collective's time is simulated;
the rest is arithmetic on a few numbers of the machine: a fused kernel overlaps inside itself, which no
schedule shows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np

from umm.cost import batched_seconds, gemm_seconds
from umm.dtypes import canonical, element_bytes, itemsize, product_type
from umm.errors import InputError
from umm.executor import executor
from umm.machines import Machine
from umm.machines.curves import COPY_ENGINE
from umm.machines.fabric import narrowest
from umm.plans.collectives.collective import collective
from umm.plans.collectives.library import domains
from umm.plans.collectives.rings import ring_of
from umm.schedules.schedule import Schedule
from umm.units import format_seconds, percent

GATHER, SCATTER, REDUCE = "all-gather", "reduce-scatter", "all-reduce"
CLOSE = 0.05  # ways whose times differ by less than this share are called equal
HOST_STEP_S = 28e-6
"""Seconds of a host for one chunk: a multiply, a copy and a signal from Python.

Source: fused GEMM and reduce-scatter of 8 chunks take 244 to 251 us at every small m on B300, pytorch 179770;
all-gather and GEMM 277 us at 128 x 4096 on H100, kraken pull request 2.
"""
WAITING_TILES = 1.75
"""Times of one tile by which a compiler's fused kernel ends later than the library's multiply.

Its tiles wait for data in the order of arrival, are large and are not split along k, so that the first and
the last of them leave units without work. Source: fitted on kraken pull request 2, Triton on 8 H100.
"""
SCATTERED_STORES = 0.7
"""Rate of an epilogue's stores into peers of its node over that of copies, for fused kernels written by hand.

What leaves by network cards is copied. Source: fitted on Flux's reduce-scatters in Triton-distributed's
figures for 8 H800.
"""
UNSPLIT_FROM = 0.19
"""Share of a device's units that a chunk's tiles occupy from which the library does not split k.

Below it the library multiplies the chunk as any other matrix of its size. Source: the smallest chunks of
kraken pull request 2 on H100 have 26 tiles for 132 units, and the time of unsplit ones.
"""


class Way(NamedTuple):
    """One way to multiply and communicate."""

    name: str
    seconds: float  # from the start to the last rank's end
    exposed_s: float  # of it what its multiplies alone would not take
    note: str  # how it works


@dataclass(frozen=True)
class Fusing:
    """A multiply and its collective, and the ways to overlap them, fastest first."""

    what: str  # `all-gather` before the multiply, `reduce-scatter` or `all-reduce` after it
    m: int  # rows of A and C, over all ranks
    n: int  # columns of B and C, over all ranks
    k: int  # columns of A, rows of B, over all ranks
    batch: int  # multiplies of this size in one kernel, each of matrices of its own; one collective moves all
    dtype: str  # of A and B
    c_dtype: str  # of C
    ranks: int
    machine: str
    gemm_s: float  # seconds of a rank's multiply alone
    collective_s: float  # seconds of the collective alone
    algorithm: str  # the collective's algorithm
    ways: tuple[Way, ...]  # the ways, fastest first

    def way(self, name: str) -> Way:
        """Return the way of this name."""
        return next(way for way in self.ways if way.name == name)

    def record(self) -> dict[str, Any]:
        """Return it as plain values, for reports."""
        values = {name: value for name, value in vars(self).items() if name != "ways"}
        return values | {"rows": [way._asdict() for way in self.ways], "verdict": self.verdict}

    @property
    def verdict(self) -> str:
        """Whether to fuse, in a sentence."""
        best, plain = self.ways[0], self.way("unfused")
        gain = plain.seconds / best.seconds - 1.0
        if best is plain or gain < CLOSE:
            return f"Do not fuse: no way is more than {percent(CLOSE)} faster than one after the other."
        binds = "the collective" if self.collective_s > self.gemm_s else "the multiply"
        return (
            f"Fuse, {best.name}: {percent(gain)} faster than one after the other; {binds} binds, and "
            f"{format_seconds(best.exposed_s)} beyond the multiply alone stays exposed."
        )


def fusing(
    machine: Machine,
    m: int,
    n: int,
    k: int,
    what: str = GATHER,
    dtype: str = "bfloat16",
    c_dtype: str = "",
    ranks: int | None = None,
    makespan: Callable[[Schedule], float] | None = None,
    batch: int = 1,
) -> Fusing:
    """Return the seconds of each way of a multiply and its collective.

    InputError for another collective, or a size that the ranks do not share equally.

    Args:
        m: Rows of A and C, over all ranks.
        n: Columns of B and C, over all ranks.
        k: Columns of A, rows of B, over all ranks.
        what: ``all-gather`` of A before, ``reduce-scatter`` or ``all-reduce`` of C after.
        dtype: Of A and B.
        c_dtype: Of C: that of A, or bfloat16 of 8-bit factors, unless given.
        ranks: How many; all devices if None.
        makespan: Returns how long a schedule takes; the simulator if None.
        batch: Multiplies of this size, each of matrices of its own.
    """
    if what not in (GATHER, SCATTER, REDUCE):
        raise InputError(f"{what!r} is not fused with a multiply; choose {GATHER}, {SCATTER} or {REDUCE}")
    dtype = canonical(dtype)
    p = machine.default_ranks if ranks is None else ranks
    machine.check_ranks(p)
    cut, size = ("n", n) if what == GATHER else ("k", k)
    for name, extent in (("m", m * p if what == REDUCE else m), (cut, size)):
        if extent < 1 or extent % p:
            raise InputError(f"{p} ranks do not share {name} = {extent} equally; choose a multiple of {p}")
    of_c = canonical(c_dtype) or product_type(dtype)
    local = (n // p, k) if what == GATHER else (n, k // p)
    elements, moved_as = (m * k, dtype) if what == GATHER else (m * n, of_c)
    nbytes = int(batch * elements * element_bytes(moved_as))
    schedule = collective(what, nbytes=nbytes, machine=machine, ranks=p)
    collective_s = (makespan or executor("sim").makespan)(schedule)

    def gemm(rows: int, device: Machine = machine) -> float:
        return batched_seconds(device, dtype, batch, rows, *local, itemsize(of_c), warm=False)

    product, unsplit, fence = gemm(m), _unsplit(machine, dtype), machine.step_fence_s
    rows = -(-m // p)
    # The library splits k of a chunk with few tiles, as it does for any such matrix; see UNSPLIT_FROM.
    few = batch * _occupied(machine, dtype, rows, local[0]) < UNSPLIT_FROM
    # p chunks take no less than the whole multiply, whatever tables of kernels say of small sizes.
    chunk = max(gemm(rows, machine if few else unsplit), product / p)
    # A sum for all is scattered and gathered again.
    rounds = 2 if what == REDUCE else 1
    begun = rounds * (p - 1) * machine.transfer_overhead_s  # what waits to begin takes no memory bandwidth
    flows, inside, by_engines = (rounds * x for x in flowing(machine, p, nbytes / p))
    copies, copied = flows + begun, by_engines + begun
    copy, last_copied = (x / max(1, p - 1) for x in (copies, copied))
    # A rank reads its rows of p partial products, nbytes together, and writes nbytes / p.
    sums = what != GATHER
    summed = nbytes * (1.0 + 1.0 / p) / machine.work_bandwidth if sums else 0.0
    library = collective_s + product
    by_copies = machine.means.get(COPY_ENGINE)
    beside = min(by_engines, p * chunk) * (0.0 if by_copies is None else by_copies.interference)
    # A pipeline: the multiplies bind, or the copies with the one chunk that cannot overlap them (the last of
    # a gather, the first of a scatter), or the host that starts each step.
    chunks = max(p * chunk + beside, chunk + copied, p * HOST_STEP_S) + fence + summed
    # Without the host's steps; one copy stays exposed.
    sided = max(p * chunk + beside, copied) + last_copied + summed + fence
    # A 1 × 1 product occupies a whole tile: less the kernel's start, that is the time of one tile.
    tile = float(
        gemm_seconds(unsplit, dtype, 1, 1, local[1], itemsize(of_c), warm=False)
    ) - unsplit.gemm_start(dtype)
    fused = max(product + WAITING_TILES * tile, copies) + copy + fence + summed
    stores = max(copies, (inside + begun) / SCATTERED_STORES) if sums else copies
    # Rows that were multiplied leave at once, so only those of the last wave of tiles leave after it.
    last = stores * min(1.0, tile / product) if sums else copy
    by_hand = max(product, stores) + last + fence + summed
    how = "as AsyncTP" if len(domains(machine, range(p), p)) == 1 else "over all cards"
    ways = [
        Way("unfused", library, 0.0, f"{schedule.name}, then the multiply"),
        Way("ring in chunks", chunks, 0.0, f"{p} multiplies of {rows} rows, {how}"),
        Way("one-sided", sided, 0.0, "the same without the host"),
        Way("fused by a compiler", fused, 0.0, "waits for tiles, as Triton's"),
        Way("fused by hand", by_hand, 0.0, "at the library's rate, as Flux"),
    ]
    ways = [way._replace(exposed_s=max(way.seconds - product, 0.0)) for way in ways]
    return Fusing(
        what, m, n, k, batch, dtype, of_c, p, machine.name, product, collective_s, schedule.name,
        tuple(sorted(ways, key=lambda way: way.seconds)),
    )  # fmt: skip


def flowing(machine: Machine, ranks: int, shard: float) -> tuple[float, float, float]:
    """Return the seconds in which the shares of all ranks reach all others.

    By kernels, what of it links inside a node take, and by copy engines. Every rank copies from all others of
    its node at once, and over its own card from those of its place in other nodes. Its node passes their
    shares on inside; or, in one node, shares go both ways round a ring. The fullest link decides. The engines
    of a device have that many copies inside a node under way.

    Args:
        shard: Bytes of a rank's share.
    """
    if ranks == 1:
        return 0.0, 0.0, 0.0
    device = np.array([machine.device_of(rank, ranks) for rank in range(ranks)])
    width = machine.link_bandwidth

    def fullest(*pairs: tuple[int, int, float]) -> float:
        """Return the seconds of the fullest link, of ranks that send others so many shares."""
        source, target = (device[[int(pair[end]) for pair in pairs]] for end in (0, 1))
        counts, links = machine.routes(source, target)
        load = np.bincount(links, np.repeat([pair[2] for pair in pairs], counts), len(width))
        return float((load / width).max()) * shard

    nodes = domains(machine, range(ranks), ranks)
    if len({len(node) for node in nodes}) > 1:
        nodes = [list(range(ranks))]  # in nodes that hold unlike numbers of ranks places have no partners
    n, q = len(nodes), len(nodes[0])
    # A rank sends its neighbours in the node its own share and those it received from n − 1 other nodes.
    inside = [(*pair, float(n)) for node in nodes for pair in permutations(node, 2)]
    across = [(*pair, 1.0) for group in zip(*nodes, strict=True) for pair in permutations(group, 2)]
    flows, within = fullest(*inside, *across), fullest(*inside)
    if n == 1:
        order = ring_of(machine, tuple(range(ranks)), ranks).order
        near = [(order[i - 1], order[i]) for i in range(ranks)]
        # Both ways round the ring: every hop carries half of the p − 1 shares in each direction.
        half = (ranks - 1) / 2
        within = min(flows, fullest(*((x, y, half) for pair in near for x, y in (pair, pair[::-1]))))
        flows = within
    first = machine.route(*(int(x) for x in device[:2]))
    # Each copy engine drives one copy at a time, at the rate of the narrowest link of a route.
    at_once = machine.copy_engines * float(width[narrowest(first, width)])
    return flows, within, max(flows, n * (q - 1) * shard / at_once)


def _occupied(machine: Machine, dtype: str, rows: int, cols: int) -> float:
    """Return the share of a device's units that the largest tiles of rows x cols elements occupy."""
    table = _unsplit(machine, dtype).gemm_table(dtype)
    if table is None or (table.kernels is None and table.tiles is None):
        return 1.0
    if table.kernels is not None:
        (high, wide), units = table.kernels.tiles[0], table.kernels.units
    else:
        assert table.tiles is not None
        high, wide, units = table.tiles.rows, table.tiles.cols, table.tiles.units
    return -(-rows // high) * -(-cols // wide) / units


def _unsplit(machine: Machine, dtype: str) -> Machine:
    """Return a machine whose library multiplies a chunk with its largest tile and all of k."""
    # It chooses for m rows, and a chunk has m / p: so few tiles that each unit has one at most.
    table = machine.gemm_table(dtype)
    if table is None or (table.kernels is None and table.tiles is None):
        return machine
    if table.kernels is not None:
        largest = ((128, 256),) if (128, 256) in table.kernels.tiles else table.kernels.tiles[-1:]
        alone = replace(table, kernels=replace(table.kernels, tiles=largest, splits=(1,)))
    else:
        assert table.tiles is not None
        alone = replace(table, tiles=table.tiles.model_copy(update={"most_splits": 1}))
    return replace(machine, efficiency={x: alone if y is table else y for x, y in machine.efficiency.items()})

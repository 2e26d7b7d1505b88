"""From microbenchmarks to the numbers of a machine's model, each with its uncertainty."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from umm.algorithms.registry import schedule
from umm.dtypes import accumulated_in
from umm.machines import machine
from umm.machines.files import shipped_folder
from umm.problem import Problem
from umm.schedules.schedule import Schedule
from umm_hw.calibrate import host_benchmarks

Call = Callable[..., list[Any]]
Makespans = Callable[[Schedule, int], list[float]]
GEMM_SIZES = {  # each of m, n and k takes all of these; float16 goes without BLAS
    "float64": (16, 64, 192, 512, 1024, 2048),
    "float32": (16, 64, 192, 512, 1024, 2048),
    "float16": (16, 128, 512),
}
TRANSFER_SIZES = tuple(2**power for power in range(16, 27, 2))  # 64 KiB to 64 MiB
REPEATS = 7
TINY = 16  # rows, columns and length of the gemms that show what an action costs beside its work
TINY_OPS = 400


class Figure(NamedTuple):
    """A measured number and its uncertainty, as a share of it."""

    value: float
    uncertainty: float

    def times(self, factor: float) -> "Figure":
        """Return a multiple, as sure as this one."""
        return Figure(self.value * factor, self.uncertainty)


def figure(repeats: Sequence[float]) -> Figure:
    """Return the lower quartile of times, which the noise of a shared host moves little, and its uncertainty.

    That is how far the median is from it.

    >>> figure([1.0, 1.0, 1.2, 1.2, 9.0])
    Figure(value=1.0, uncertainty=0.2)
    """
    low, middle = np.quantile(repeats, [0.25, 0.5])
    return Figure(float(low), round(float((middle - low) / low), 4) if low > 0 else 0.0)


@dataclass(frozen=True)
class GemmRates:
    """Rates of local multiplies of one dtype.

    Attributes:
        peak: The highest rate, in flop/s.
        sizes: The sizes that m, n and k took.
        efficiency: Share of the peak for each m, n and k.
        uncertainty: The median uncertainty of all shapes.
    """

    peak: Figure
    sizes: tuple[int, ...]
    efficiency: list[list[list[float]]]
    uncertainty: float


@dataclass(frozen=True)
class Calibration:
    """The numbers of a machine whose devices are the cores of one host.

    Attributes:
        devices: Ranks that were measured together.
        share: The least share of a core that a rank got which only computed; 1 on a quiet host.
        gemm: Rates by dtype.
        launch: Seconds every gemm takes beside its arithmetic.
        transfer_overhead: Seconds every transfer takes beside its bytes.
        port: Bytes/s of one rank's gets alone, for the largest size.
        backplane: Bytes/s of all ranks' gets together.
        by_size: Bytes/s of one rank's gets alone, for each size.
        accumulate_efficiency: Bandwidth of an accumulate over that of a get.
        memory_bandwidth: Bytes/s of a rank's own memory while all ranks use theirs.
        interference: Share of a rank's GEMM rate lost while it gets or accumulates.
    """

    devices: int
    share: float
    gemm: Mapping[str, GemmRates]
    launch: Figure
    transfer_overhead: Figure
    port: Figure
    backplane: Figure
    by_size: Sequence[tuple[int, Figure]]
    accumulate_efficiency: Figure
    memory_bandwidth: Figure
    interference: Mapping[str, Figure]


def calibrate(
    call: Call, makespans: Makespans, ranks: int, dtypes: Sequence[str], note: Callable[[str], None]
) -> Calibration:
    """Measure and fit.

    Args:
        call: Runs a program on the first of some ranks.
        makespans: Performs a schedule so many times and returns the seconds of each run.
        ranks: Ranks to measure together: one for each core.
        dtypes: Types to multiply.
        note: Given what is measured now, in words.
    """
    note("whether others use the cores")
    of_core = min(call(ranks, host_benchmarks.share_of_core))
    rates = {}
    for dtype in dtypes:
        note(f"multiplies in {dtype}")
        rates[dtype] = gemm_rates(call, ranks, dtype)
    note("what an action costs beside its work")
    launch, overhead = action_costs(makespans, ranks, rates[dtypes[0]], dtypes[0])
    note("gets and accumulates")
    moves = partial(_bandwidths, call, ranks)
    alone = moves("get", TRANSFER_SIZES, 1)
    together = moves("get", TRANSFER_SIZES[-2:], ranks)[-1]
    accumulate = moves("accumulate", TRANSFER_SIZES[-2:], 1)[-1]
    local = moves("local", TRANSFER_SIZES[-2:], ranks)[-1]
    note("gemms beside transfers")
    losses = {kind: loss(call, ranks, kind, dtypes[0]) for kind in ("get", "accumulate")}
    port = alone[-1]
    share = Figure(min(1.0, accumulate.value / port.value), accumulate.uncertainty + port.uncertainty)
    return Calibration(
        devices=ranks,
        share=of_core,
        gemm=rates,
        launch=launch,
        transfer_overhead=overhead,
        port=port,
        backplane=together.times(ranks),
        by_size=list(zip(TRANSFER_SIZES, alone, strict=True)),
        accumulate_efficiency=share,
        memory_bandwidth=local.times(3),  # reads both sides and writes one
        interference=losses | {"reduce": losses["accumulate"]},
    )


def gemm_rates(call: Call, ranks: int, dtype: str) -> GemmRates:
    """Measure multiplies of all shapes of a grid; all ranks multiply at once."""
    sizes = GEMM_SIZES[dtype]
    shapes = list(product(sizes, sizes, sizes))
    program = partial(
        host_benchmarks.gemms, dtype=dtype, c_dtype=accumulated_in(dtype), shapes=shapes, repeats=REPEATS
    )
    found = call(ranks, program)
    times = [figure(_of_all(seconds)) for seconds in zip(*found, strict=True)]
    rate = np.array([2 * m * n * k / time.value for (m, n, k), time in zip(shapes, times, strict=True)])
    best = int(rate.argmax())
    grid = (rate / rate[best]).round(4).reshape([len(sizes)] * 3)
    spread = round(float(np.median([time.uncertainty for time in times])), 4)
    return GemmRates(Figure(float(rate[best]), times[best].uncertainty), sizes, grid.tolist(), spread)


def action_costs(makespans: Makespans, ranks: int, rates: GemmRates, dtype: str) -> tuple[Figure, Figure]:
    """Perform many tiny actions, and return what a gemm and a transfer take beside arithmetic and bytes.

    In the first schedule each rank multiplies its own tiles. In the second, without prefetch, B's tiles lie
    on all ranks, so that most gemms wait for a get.
    """
    work = 2.0 * TINY**3 / (rates.peak.value * rates.efficiency[0][0][0])
    local = _tiny_ops(ranks, dtype, f"cyclic:{TINY}x{TINY}:1x1@{ranks}")
    launch = figure([makespan / TINY_OPS for makespan in makespans(local, REPEATS)])
    remote = _tiny_ops(ranks, dtype, f"cyclic:{TINY}x{TINY}:{ranks}x1")
    gets = TINY_OPS * (ranks - 1) / ranks
    slower = figure(makespans(remote, REPEATS))
    overhead = max(0.0, slower.value - TINY_OPS * launch.value) / gets if gets else 0.0
    return Figure(max(0.0, launch.value - work), launch.uncertainty), Figure(overhead, slower.uncertainty)


def loss(call: Call, ranks: int, kind: str, dtype: str) -> Figure:
    """Return the share of its GEMM rate a rank loses per second that its transfers would take alone."""
    program = partial(
        host_benchmarks.disturbed,
        kind=kind,
        nbytes=TRANSFER_SIZES[-3],
        dtype=dtype,
        size=512,
        repeats=2 * REPEATS,
    )
    shares = [
        max(0.0, beside - quiet) / moving
        for of_rank in call(ranks, program)
        for quiet, beside, moving in of_rank
        if moving > 0
    ]
    low, middle, high = np.quantile(shares, [0.25, 0.5, 0.75]) if shares else (0.0, 0.0, 0.0)
    share = min(0.95, float(middle))
    return Figure(round(share, 3), round(float(high - low) / 2 / max(share, 0.01), 3))


def _bandwidths(call: Call, ranks: int, kind: str, sizes: Sequence[int], pairs: int) -> list[Figure]:
    """Return the bandwidth of one rank's transfers for each size, in bytes/s."""
    found = call(ranks, _moving(kind, sizes, pairs))
    times = [figure(_of_all(found[:pairs], place)) for place in range(len(sizes))]
    return [Figure(size / time.value, time.uncertainty) for size, time in zip(sizes, times, strict=True)]


def _moving(kind: str, sizes: Sequence[int], pairs: int) -> Callable[..., Any]:
    return partial(host_benchmarks.transfers, kind=kind, sizes=sizes, pairs=pairs, repeats=4 * REPEATS)


def _of_all(found: Sequence[Any], place: int | None = None) -> list[float]:
    """Return the repeats of all ranks together, of one measurement if each rank has several."""
    return [seconds for of_rank in found for seconds in (of_rank if place is None else of_rank[place])]


def _tiny_ops(ranks: int, dtype: str, b: str) -> Schedule:
    """Return a schedule of TINY_OPS gemms for each rank, one for each tile of B."""
    columns = 20
    problem = Problem(
        m=TINY * ranks,
        n=TINY * columns,
        k=TINY * TINY_OPS // columns,
        a="row",
        b=b,
        c="row",
        dtype=dtype,
        ranks=ranks,
    )
    shipped = machine(shipped_folder() / "localhost.toml")  # not the user's, which may lack the type
    return schedule(problem, shipped, stationary="C", prefetch=0, max_gemms=1, reuse=False)

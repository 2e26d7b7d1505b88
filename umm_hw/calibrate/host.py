"""From microbenchmarks to the numbers of a machine's model, each with its uncertainty."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from socket import gethostname
from time import monotonic
from typing import Any

import numpy as np

from umm import __version__
from umm.arrays import PASS_KINDS
from umm.dtypes import accumulated_in, itemsize
from umm.executor import Rounds
from umm.files import read_json, whole_file
from umm.host.hardware import cache_of_core
from umm.numbers import parse_whole
from umm.program.functions.passes import passes
from umm.schedules.schedule import Schedule
from umm.units import duration
from umm_hw.calibrate import host_benchmarks
from umm_hw.calibrate.figures import Figure, average, figure, mean
from umm_hw.calibrate.gemm_law import drawn_to_law
from umm_hw.calibrate.losses import Loss, lost_share, overhead, refill, shares_beside_gemms
from umm_hw.calibrate.small_schedules import (
    KINDS,
    SIGNALS,
    TINY,
    TINY_GEMMS,
    Watched,
    gemms_beside,
    gets_again,
    signals,
    tiny_gemms,
)
from umm_hw.cores.pace import SIDE, Pace, Paced, fastest, seconds, slowest, undisturbed, usual

Call = Callable[..., list[Any]]
Runs = Callable[[Schedule, int], list[Watched]]
GEMM_SIZES = {  # each of m, n and k takes all of these; float16 goes without BLAS
    "float64": (16, 64, 128, 256, 512, 768, 1024, 1536),
    "float32": (16, 64, 128, 256, 512, 768, 1024, 1536),
    "float16": (16, 128, 512),
}
"""Not powers of two alone: multiplies of 1024 are slower than those of 768 and of 1536, by up to 8 %."""
SIZES = tuple(2**power for power in range(14, 25, 2))  # 16 KiB to 16 MiB
LARGE = (2**18, 2**20, 2**22)  # what the bandwidth of all ranks together is taken from
SIDES = (128, 256, 512)  # of the tiles of gemms beside transfers
OWN_CORE = 0.9  # share of its core below which a rank was disturbed
PASSES = 8
REPEATS = 4  # in each pass
GEMM_REPEATS = 3  # of multiplies: the order of layouts hangs on the noise of single shapes
QUICK_S = 60.0  # seconds after which a quick calibration begins no round
QUICK_SIDE = 768
REST_S = 6.0  # seconds of a round beside multiplies, about
MOST_ROUNDS = 2**28  # bytes of kept rounds that are read
PASS_SIZES = (2**14, 2**18, 2**21, 2**23)
"""Bytes of arrays that NumPy goes over: of a core's caches, and of memory."""
PASS_REPEATS = 2
GET_REPEATS = 8  # they scatter most, and take least


@dataclass(frozen=True)
class GemmRates:
    """Rates of local multiplies of one dtype."""

    peak: Figure  # the highest rate, in flop/s
    sizes: tuple[int, ...]  # the sizes that m, n and k took
    efficiency: list[list[list[float]]]  # share of the peak for each m, n and k
    uncertainty: float  # what is left to each shape alone


@dataclass(frozen=True)
class Calibration:
    """The numbers of a machine whose devices are the cores of one host."""

    devices: int  # ranks that were measured together
    share: float  # the least share of a core that a rank got which only computed; 1 on a quiet host
    counted: float  # the median share of their cores that the repeats had from which the numbers are
    pace: float  # how fast the cores were in the median, as a share of their best
    gemm: Mapping[str, GemmRates]  # rates by dtype
    launch: Figure  # seconds every gemm takes beside its arithmetic
    overhead: Figure  # seconds of its rank's core that a transfer takes beside what it takes alone
    local_overhead: Figure  # the same of an accumulate into an own tile
    refill: Figure  # seconds in which gemms load each byte that no cache holds
    backplane: Figure  # Bytes/s of all ranks' gets together, at sizes at which one alone reaches the most
    # Bytes/s of one rank's gets, for each size: as beside gemms, with no other rank's.
    by_size: Sequence[tuple[int, Figure]]
    # Bytes/s of one rank's gets of a tile that it got just before, for each size, all ranks at once.
    again: Sequence[tuple[int, Figure]]
    # Bandwidth of an accumulate into a whole tile beside gemms over that of a get.
    accumulate_efficiency: Figure
    memory_bandwidth: Figure  # Bytes/s that local accumulates into whole tiles beside gemms read and write
    strided_accumulates: Figure  # rate of accumulates into blocks of larger tiles over that into whole ones
    cache: int  # bytes of the largest cache that a core has for itself; 0 if unknown
    # Seconds for each byte that NumPy goes over, of each of PASS_SIZES each of KINDS, by type.
    passes: Mapping[str, Sequence[Figure]]
    signal: Figure  # seconds a rank takes to see another's signal
    interference: Mapping[str, Figure]  # share of a rank's GEMM rate lost while it gets or accumulates
    spread: float  # share by which runs of one small schedule differ, see `spread_of`

    @property
    def widening(self) -> float:
        """Share added to every uncertainty, because others computed on the cores in repeats that count.

        Of two that share a core one may have had the first half of a step, or the second.
        """
        return 0.0 if self.counted >= OWN_CORE else 1 / self.counted - 1

    def widened(self, uncertainty: float) -> float:
        """Return a widened uncertainty, at most 1: the number and half of it differ by that."""
        return round(min(1.0, uncertainty + self.widening), 4)


def calibrate(
    call: Call,
    runs: Runs,
    ranks: int,
    dtypes: Sequence[str],
    note: Callable[[str], None],
    between: Callable[[], object] | None = None,
    rounds: Rounds | None = None,
) -> Calibration:
    """Measure and fit.

    Args:
        call: Runs a program on the first of some ranks.
        runs: Performs a schedule so many times and watches each run.
        ranks: Ranks to measure together: one for each core.
        note: Given what is measured now, in words.
        between: Called after each of the PASSES, for what else is to be measured on the same host.
        rounds: Where finished passes are kept and taken from, and whether to be quick; None keeps none.
    """
    quick = rounds is not None and rounds.quick
    grids = {x: tuple(y for y in GEMM_SIZES[x] if y <= (QUICK_SIDE if quick else y)) for x in dtypes}
    began = monotonic()
    kept = Kept(rounds, {"ranks": ranks, "sizes": grids, "passes": PASS_SIZES})
    of_core = kept.of_core
    if not kept.repeats:
        expected = duration(QUICK_S if quick else expected_seconds(grids))
        note(f"for about {expected}, first whether others use the cores")
        of_core = min(call(ranks, host_benchmarks.share_of_core))
    programs: dict[str, partial[Any]] = {
        f"multiplies in {dtype}": partial(
            host_benchmarks.gemms,
            dtype=dtype,
            c_dtype=accumulated_in(dtype),
            shapes=shapes(grids[dtype]),
            repeats=GEMM_REPEATS,
        )
        for dtype in dtypes
    } | {"gets": partial(host_benchmarks.gets, wanted=_gets(ranks), repeats=GET_REPEATS)}
    wide = [x for x in dtypes if x != "float16"] or ["float32"]  # which maps of half precision compute in
    programs |= {
        f"{dtype} passes over arrays": partial(
            host_benchmarks.passes, dtype=dtype, sizes=PASS_SIZES, repeats=PASS_REPEATS
        )
        for dtype in wide
    }
    small = {("tiny", TINY): tiny_gemms(ranks, dtypes[0]), ("signals", TINY): signals(ranks, dtypes[0])} | {
        (kind, side): gemms_beside(ranks, _of_tiles(dtypes[0]), side, kind)
        for kind, side in product(chain(*KINDS.values()), SIDES)
    }
    if ranks > 1:
        small |= {("again", size): gets_again(ranks, _of_tiles(dtypes[0]), size) for size in SIZES}
    first = number = len(kept.repeats)
    if first:
        note(f"the rest: {first} of {PASSES} rounds are kept in {kept.path}")
    left = ""
    while number < PASSES:  # a disturbance of a while meets a part of each measurement
        of_round: list[list[list[Paced]]] = []
        for what, program in programs.items():
            note(f"{what}, {number + 1} of {PASSES}{left}")
            of_round.append(of_all(call(ranks, program)))
        note(f"gemms beside transfers, and what an action costs beside its work, {number + 1} of {PASSES}")
        # The first run of a schedule warms up.
        kept.add(of_core, of_round, {key: runs(x, REPEATS + 1)[1:] for key, x in small.items()})
        if between:
            between()
        number += 1
        each = (monotonic() - began) / (number - first)
        left = f", about {duration((PASSES - number) * each)} left"
        if quick and monotonic() - began + each > QUICK_S:
            break
    repeats = kept.all_found()
    count = len(dtypes)
    return fitted(
        ranks,
        of_core,
        dict(zip(dtypes, repeats[:count], strict=True)),
        repeats[count],
        kept.all_smalls(),
        grids,
        dict(zip(wide, repeats[count + 1 :], strict=True)),
    )


def _measured(value: Any) -> float:
    """Return a number of a file, which may be NaN where nothing was measured; TypeError for anything else."""
    if type(value) not in (int, float):
        raise TypeError(value)
    return float(value)


class Kept:
    """The finished rounds of a calibration, in a file if one is named.

    Args:
        rounds: Where; a file there that is of the same measurement is continued.
        what: What the measurement is of.
    """

    def __init__(self, rounds: Rounds | None, what: dict[str, Any]) -> None:
        self.path = rounds.path if rounds else None
        head = {"version": __version__, "host": gethostname(), "quick": bool(rounds and rounds.quick)} | what
        self._head = json.loads(json.dumps(head))
        self.of_core, self.repeats = 1.0, list[list[list[list[Paced]]]]()
        self.smalls: list[dict[tuple[str, int], list[Watched]]] = []
        if self.path is None or not self.path.is_file():
            return
        try:
            content = read_json(self.path, "file of rounds", MOST_ROUNDS)
            if content.pop("measurement") != self._head:
                return
            self.of_core = _measured(content["of_core"])
            self.repeats = [
                [[[Paced(*map(_measured, x)) for x in y] for y in z] for z in r] for r in content["found"]
            ]
            self.smalls = [
                {
                    (key.split("/")[0], parse_whole(key.split("/")[1])): [
                        Watched(*map(_measured, x)) for x in runs
                    ]
                    for key, runs in r.items()
                }
                for r in content["smalls"]
            ]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError):
            self.of_core, self.repeats, self.smalls = 1.0, [], []  # another file's rounds are measured again

    def add(
        self,
        of_core: float,
        repeats: list[list[list[Paced]]],
        smalls: dict[tuple[str, int], list[Watched]],
    ) -> None:
        """Keep a round."""
        self.of_core = of_core
        self.repeats.append(repeats)
        self.smalls.append(smalls)
        if self.path is None:
            return
        texts = [{f"{kind}/{side}": runs for (kind, side), runs in r.items()} for r in self.smalls]
        with whole_file(self.path) as partial:
            content = {"measurement": self._head, "of_core": of_core, "found": self.repeats, "smalls": texts}
            partial.write_text(json.dumps(content), encoding="utf-8")

    def all_found(self) -> list[list[list[Paced]]]:
        """Return the repeats of each measurement, those of all rounds after one another."""
        return [
            [list(chain(*rounds)) for rounds in zip(*place, strict=True)]
            for place in zip(*self.repeats, strict=True)
        ]

    def all_smalls(self) -> dict[tuple[str, int], list[Watched]]:
        """Return the runs of each small schedule in all rounds."""
        return {key: [run for r in self.smalls for run in r[key]] for key in self.smalls[0]}


def expected_seconds(grids: Mapping[str, tuple[int, ...]]) -> float:
    """Return about how long all rounds take on this host, from the pace of its core just now."""
    rate = 2.0 * SIDE**3 / Pace().reading().seconds
    slower = {"float64": 2.0, "float32": 1.0}
    of_gemms = sum(
        2.0 * sum(sizes) ** 3 * GEMM_REPEATS * slower.get(dtype, 10.0) / rate
        for dtype, sizes in grids.items()
    )
    return PASSES * (of_gemms + REST_S)


def fitted(
    ranks: int,
    of_core: float,
    multiplied: Mapping[str, Sequence[Sequence[Paced]]],
    moved: Sequence[Sequence[Paced]],
    smalls: Mapping[tuple[str, int], Sequence[Watched]],
    grids: Mapping[str, tuple[int, ...]] | None = None,
    passed: Mapping[str, Sequence[Sequence[Paced]]] | None = None,
) -> Calibration:
    """Return the numbers that follow from all repeats.

    Args:
        ranks: Ranks that were measured together.
        of_core: The least share of a core that a rank got.
        multiplied: By type the repeats of each shape.
        moved: Those of each get.
        smalls: Runs of small schedules, by kind and the side of their tiles.
        grids: Sizes of m, n and k of multiplies, by type; GEMM_SIZES if None.
        passed: By type the repeats of passes over arrays.
    """
    grids = grids or GEMM_SIZES
    first = next(iter(multiplied))
    watched = [run for repeats_of in smalls.values() for run in repeats_of]
    readings: list[Paced | Watched] = [*watched, *(one for shape in multiplied[first] for one in shape)]
    best = fastest(readings)
    pace = usual(watched, best)  # that of schedules, whose cores have more to do than between multiplies
    rates = {dtype: gemm_rates(grids[dtype], times, best, pace) for dtype, times in multiplied.items()}
    bandwidth = {
        get: figure(get[0] / seconds(repeats, best, pace))
        for get, repeats in zip(_gets(ranks), moved, strict=True)
    }
    runs = {
        key: [run.at(pace) for run in undisturbed(repeats_of, best)] for key, repeats_of in smalls.items()
    }
    multiplies = [one for shape in multiplied[first] for one in undisturbed(shape, best)]
    counted = [one.share for one in multiplies] + [
        run.share for repeats_of in runs.values() for run in repeats_of
    ]

    def losses(kind: str) -> list[Loss]:
        shown = KINDS[kind if ranks > 1 else "local"]
        return [
            Loss(
                side * side * itemsize(_of_tiles(first)),
                *np.nanmedian([(run.cost, run.own) for run in runs[name, side]], axis=0).tolist(),
            )
            for name, side in product(shown, SIDES)
        ]

    lost = {kind: losses(kind) for kind in KINDS}
    copied = bandwidth[SIZES[-1], 1].value
    per_byte = refill([loss for of_kind in lost.values() for loss in of_kind], copied)
    start = overhead([*lost["get"], *lost["accumulate"]], per_byte.value)
    local_start = overhead(lost["local"], per_byte.value)
    alone = np.array([bandwidth[size, 1].value for size in SIZES])
    # A rank's bandwidth while all move data, over its bandwidth alone.
    together = mean([bandwidth[size, ranks].times(1 / bandwidth[size, 1].value) for size in LARGE])
    shared = min(1.0, together.value)
    beside = shares_beside_gemms(lost["get"][: len(SIDES)], SIZES, alone * shared)
    in_runs = alone * beside
    tiles = {kind: lost[kind][: len(SIDES)] for kind in ("accumulate", "local")}
    blocks = {kind: lost[kind][len(SIDES) :] for kind in tiles}
    expected = np.interp(np.log([x.nbytes for x in tiles["accumulate"]]), np.log(SIZES), in_runs * shared)
    again = [
        (size, figure([size / run.own for run in repeats]))
        for (kind, size), repeats in runs.items()
        if kind == "again"
    ]
    added = average([x.rate / rate for x, rate in zip(tiles["accumulate"], expected, strict=True)])
    strided = average(
        [y.rate / x.rate for kind in tiles for x, y in zip(tiles[kind], blocks[kind], strict=True)]
    )
    arithmetic = 2.0 * TINY**3 / (rates[first].peak.value * rates[first].efficiency[0][0][0])
    tiny, steps = (np.array([run.seconds for run in runs[kind, TINY]]) for kind in ("tiny", "signals"))
    return Calibration(
        devices=ranks,
        share=of_core,
        counted=float(np.median(counted)),
        pace=best / float(np.median([one.reading for one in readings])),
        gemm=rates,
        launch=figure(np.maximum(tiny / TINY_GEMMS - arithmetic, 0.0)),
        overhead=start,
        local_overhead=local_start,
        refill=per_byte,
        # Where a size reaches less alone, it is charged more bytes: then it reaches less together too.
        backplane=together.times(ranks * max([float(in_runs.max()), *(rate.value for _, rate in again)])),
        by_size=[
            (size, bandwidth[size, 1].times(share))
            for size, share in zip(SIZES, beside.tolist(), strict=True)
        ],
        again=again,
        accumulate_efficiency=Figure(min(1.0, added.value), added.uncertainty),
        memory_bandwidth=average([3.0 * x.rate for x in tiles["local"]]),  # reads both sides and writes one
        strided_accumulates=Figure(min(1.0, strided.value), strided.uncertainty),
        cache=cache_of_core(),
        passes={x: _pass_figures(x, repeats, best, pace) for x, repeats in (passed or {}).items()},
        signal=figure(np.maximum(steps / SIGNALS - start.value, 0.0)),
        interference={
            kind: lost_share(repeats_of, (local_start if kind == "local" else start).value, per_byte.value)
            for kind, repeats_of in lost.items()
        },
        spread=spread_of(
            [[run.seconds for run in repeats] for (kind, _), repeats in runs.items() if kind in KINDS["get"]]
        ),
    )


def _pass_figures(dtype: str, repeats: Sequence[Sequence[Paced]], best: float, pace: float) -> list[Figure]:
    """Return the seconds for each byte of each pass: arithmetic is the rest of gelu's."""
    counts = passes("gelu", (), dtype, 1)
    figures = [figure(seconds(x, best, pace)) for x in repeats]
    result = list[Figure]()
    for place, size in enumerate(PASS_SIZES):
        gelu, *others = figures[place * len(PASS_KINDS) :][: len(PASS_KINDS)]
        rest = sum(counts.get(x, 0.0) * y.value for x, y in zip(PASS_KINDS[1:], others, strict=True))
        each = max(gelu.value - rest, gelu.value / 2) / (counts["add"] - 1)  # no result is copied
        result += [Figure(each, gelu.uncertainty).times(1 / size), *(x.times(1 / size) for x in others)]
    return result


def spread_of(runs: Iterable[Sequence[float]]) -> float:
    """Return the share by which runs of one schedule differ, in the median of several schedules.

    Of each schedule half of what the middle two thirds of its runs span, over their median: a standard
    deviation where they follow a normal distribution, which a single slow run does not move.

    >>> round(spread_of([[1.0, 1.02, 0.98, 1.01, 0.99, 1.5, 1.0]]), 3)
    0.015
    """
    shares = []
    for seconds_of_runs in runs:
        low, middle, high = np.quantile(seconds_of_runs, [1 / 6, 1 / 2, 5 / 6])
        shares.append(float((high - low) / 2 / middle))
    return float(np.median(shares)) if shares else 0.0


def gemm_rates(
    sizes: tuple[int, ...], repeats: Sequence[Sequence[Paced]], best: float, pace: float
) -> GemmRates:
    """Return the rates of multiplies of all shapes of a grid.

    Args:
        sizes: Sizes of m, n and k.
        repeats: The repeats of each shape, in the order of ``shapes``.
        best: The reading of an undisturbed core.
        pace: The reading at whose pace the rates are stated.
    """
    wanted = shapes(sizes)
    times = [figure(seconds(x, best, pace)) for x in repeats]
    # The standard error of a median, from the median distance to it.
    noise = np.array(
        [1.86 * time.uncertainty / len(x) ** 0.5 for time, x in zip(times, repeats, strict=True)]
    )
    drawn, scatter = drawn_to_law(wanted, np.array([time.value for time in times]), noise)
    rate = np.array([2.0 * m * n * k for m, n, k in wanted]) / drawn
    fastest_shape = int(rate.argmax())
    grid = (rate / rate[fastest_shape]).round(4).reshape([len(sizes)] * 3)
    spread = float(np.median([time.uncertainty for time in times]))
    peak = Figure(float(rate[fastest_shape]), round(spread, 4))
    return GemmRates(peak, sizes, grid.tolist(), round(scatter, 4))


def shapes(sizes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return m, n and k of the multiplies that are measured."""
    return list(product(sizes, sizes, sizes))


def _of_tiles(first: str) -> str:
    """Return the type of the tiles of gemms beside transfers: without BLAS they take too long."""
    return "float32" if first == "float16" else first


def _gets(ranks: int) -> list[tuple[int, int]]:
    """Return the gets that are measured: bytes, and how many ranks do them at once."""
    return [(size, 1) for size in SIZES] + [(size, ranks) for size in LARGE]


def of_all(ranks: Sequence[Sequence[Sequence[Paced]]]) -> list[list[Paced]]:
    """Return the repeats of each measurement, of all ranks that took part, as of the slowest core of them."""
    return [
        [one for at_once in zip(*filter(None, place), strict=True) for one in slowest(at_once)]
        for place in zip(*ranks, strict=True)
    ]

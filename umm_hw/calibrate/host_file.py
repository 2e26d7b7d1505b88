"""A calibration as a machine file: every number with its measurement, date, versions and uncertainty."""

import os
import platform
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from tomlkit.items import InlineTable

from umm.arrays import PASS_KINDS
from umm.host import hardware
from umm.units import counted, percent
from umm_hw.calibrate.figures import Figure
from umm_hw.calibrate.host import OWN_CORE, PASS_SIZES, Calibration
from umm_hw.calibrate.small_schedules import SIGNALS, TINY_GEMMS
from umm_hw.calibrate.toml import efficiency, number, text

RANKS_PER_DEVICE = 16
STEADY = 0.9  # share of their best pace below which the cores of a host are called unsteady
LEAST_SPREAD = 0.001  # of runs of one schedule, below which it is not stated
SHARES_CORE = 0.5  # of its GEMM rate lost beside a rank's own accumulates, from which on they share its core


def topology_text(calibration: Calibration) -> str:
    """Return the text of a machine file."""
    # The model: a device for each core, a port each into one backplane, which is the host's memory.
    how = _how()
    busy = (
        f"; busy: a rank got {percent(calibration.share)} of a core" if calibration.share < OWN_CORE else ""
    )
    if calibration.pace < STEADY:
        busy += f"; unsteady: {percent(calibration.pace)} of its best pace in the median"
    if calibration.widening:
        words = f"ranges {percent(calibration.widening)} wider, because others used the cores"
        busy += f"; {words}; calibrate again on a quiet host"
        how += f"; {words}"

    def measured(figure: Figure, unit: str, scale: float, what: str, per: str = "") -> InlineTable:
        scaled = figure.value / scale
        value: str | float = f"{scaled:.4g} {unit}" if unit else round(scaled, 4)
        return number(value, f"{what}; {how}", per, calibration.widened(figure.uncertainty))

    machine = {
        "description": f"{_cpu()}: {counted(calibration.devices, 'core')}, measured on {_today()}{busy}",
        "devices": _devices(calibration, measured)
        | {
            "peak": {
                dtype: measured(rates.peak, "Gflop/s", 1e9, "fastest multiply, all cores at once", "core")
                for dtype, rates in calibration.gemm.items()
            },
            "interference": {
                kind: measured(
                    calibration.interference[figure_of],
                    "",
                    1,
                    "gemms with and without a transfer beside them",
                )
                for kind, figure_of in (
                    ("get", "get"),
                    ("accumulate", "accumulate"),
                    ("reduce", "accumulate"),
                )
            },
            "efficiency": [
                efficiency(
                    dtype,
                    f"multiplies that add to C, all cores at once, each drawn to the law of all; {how}",
                    [rates.sizes] * 3,
                    rates.efficiency,
                    calibration.widened(rates.uncertainty),
                )
                for dtype, rates in calibration.gemm.items()
            ],
            "passes": [
                _passes(calibration, dtype, figures, how) for dtype, figures in calibration.passes.items()
            ],
        },
    }
    if calibration.devices == 1:
        return text(machine | {"fabric": {"kind": "none"}})
    return text(machine | _links(calibration, measured, how))


def _devices(calibration: Calibration, measured: Callable[..., InlineTable]) -> dict[str, InlineTable]:
    """Return the numbers of one core."""
    per_byte, unsure = calibration.refill
    loads = "twice what gets of 16 MiB by one core reach: they write what gemms only read"
    more = {}
    if per_byte:
        more["refill"] = measured(Figure(1 / per_byte, unsure), "GB/s", 1e9, loads)
    if calibration.cache:
        more["cache"] = number(f"{calibration.cache} B", "the system's, shared evenly", per="core")
    if calibration.spread > LEAST_SPREAD:
        differ = "half the width of the middle two thirds of the runs of a small schedule, at one pace"
        more["spread"] = number(round(calibration.spread, 4), differ)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // calibration.devices
    shared = calibration.interference["local"].value >= SHARES_CORE
    adds = "accumulates beside gemms into own tiles of three sizes, all cores at once, 3 x their bytes"
    beside = "gemms with and without a transfer beside them: what it costs them more than its own seconds"
    interference = measured(
        calibration.interference["local"], "", 1, "gemms beside local accumulates: share lost"
    )
    return {
        "count": number(calibration.devices, "cores this process may use, one rank each"),
        "ranks_per_device": number(RANKS_PER_DEVICE, "more give no benefit", assumed=True),
        "memory": number(f"{memory / 1e9:.4g} GB", "the host's, shared evenly", per="core"),
        "memory_bandwidth": measured(calibration.memory_bandwidth, "GB/s", 1e9, adds),
        "copy_engines": number(1, "one copy thread per rank"),
        "launch": measured(
            calibration.launch, "us", 1e-6, f"{TINY_GEMMS} tiny gemms in a lane, less their arithmetic"
        ),
        "transfer_overhead": measured(calibration.overhead, "us", 1e-6, beside),
        "local_overhead": measured(calibration.local_overhead, "us", 1e-6, beside),
        "local_work": number(
            "engine" if shared else "beside",
            f"{interference['value']} of the rate lost; {interference['source']}",
        ),
        "signal": measured(
            calibration.signal, "us", 1e-6, f"a tiny tile that goes round all ranks, {SIGNALS} times"
        ),
        "accumulate_efficiency": measured(
            calibration.accumulate_efficiency,
            "",
            1,
            "accumulates beside gemms into tiles of three sizes, over gets beside gemms",
        ),
        "strided_accumulates": measured(
            calibration.strided_accumulates,
            "",
            1,
            "accumulates beside gemms into blocks of larger tiles, over tiles",
        ),
    } | more


def _passes(calibration: Calibration, dtype: str, figures: Sequence[Figure], how: str) -> dict[str, Any]:
    """Return the rates of NumPy's passes over arrays of one type, by kind and size."""
    rates = {
        kind: [f"{1 / figure.value / 1e9:.4g} GB/s" for figure in figures[place :: len(PASS_KINDS)]]
        for place, kind in enumerate(PASS_KINDS)
    }
    timed = "gelu(a) less its other passes, exp(a), where(a > 0, b, 1) and a**3 of NumPy"
    return {
        "dtype": dtype,
        "source": f"{timed}, all cores at once; {how}",
        "uncertainty": calibration.widened(max(figure.uncertainty for figure in figures)),
        "sizes": [f"{size // 1024} KiB" for size in PASS_SIZES],
    } | rates


def _links(calibration: Calibration, measured: Callable[..., InlineTable], how: str) -> dict[str, Any]:
    """Return the fabric of several cores, and the share of a link that a message reaches by its size."""
    together = "gets of 256 KiB, 1 MiB and 4 MiB, all cores at once over one core, times the fastest"
    rates, again = ([rate for _, rate in of_sizes] for of_sizes in (calibration.by_size, calibration.again))
    port = max([*rates, *again], key=lambda rate: rate.value)  # caches help some sizes, and what is got again
    fastest = "the fastest gets of all sizes, as beside gemms, or of a tile again and again"
    return {
        "fabric": {
            "kind": "switch",
            "bandwidth": measured(port, "GB/s", 1e9, fastest, "core, one direction"),
            "latency": number("0 s", "part of transfer_overhead"),
            "backplane": measured(calibration.backplane, "GB/s", 1e9, together, "host"),
        },
        "message_sizes": {
            "source": f"gets by one core, small ones as beside gemms; again and again by all; {how}",
            "uncertainty": calibration.widened(max(rate.uncertainty for rate in [*rates, *again])),
            "link": measured(port, "GB/s", 1e9, fastest),
            "sizes": [f"{size // 1024} KiB" for size, _ in calibration.by_size],
            "bandwidth": [f"{rate.value / 1e9:.4g} GB/s" for rate in rates],
            "cached_by_size": [f"{rate.value / 1e9:.4g} GB/s" for rate in again],
        },
    }


def _how() -> str:
    """Return the date and the versions that every measured number carries."""
    packages = " ".join(_package(name) for name in ("numpy", "mpi4py", "mpich"))
    libraries = hardware.blas_libraries()
    kernel = " ".join(f"{row['library']} {row['version']} {row['kernel']}" for row in libraries[:1])
    return f"{_today()}, umm {version('umm-sim')}, {packages}, {kernel}"


def _package(name: str) -> str:
    """Return a package and its version; mpi4py may be built for an MPI of the system's instead of mpich."""
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return f"no {name} package"


def _today() -> str:
    return datetime.now(UTC).date().isoformat()


def _cpu() -> str:
    return hardware.cpu_entry("model name") or platform.machine()

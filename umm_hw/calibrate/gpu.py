"""A machine file from measurements on GPUs: every number with its source."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from tomlkit.items import InlineTable

from umm import __version__
from umm.dtypes import accumulated_in, itemsize
from umm_hw.calibrate.gpu_benchmarks import Bench, GpuMeasurements, Shape, grid, measure
from umm_hw.calibrate.kernel_law import SPLITS, TILES, kernel_law
from umm_hw.calibrate.toml import efficiency, number, text
from umm_hw.devices.device import Device
from umm_hw.devices.links import BLOCKS, Landing, check_blocks, join


class Costs(NamedTuple):
    """Seconds that an action of a run takes beside its work: a gemm, and a transfer."""

    launch: float
    overhead: float


SWEEP = (4, 8, 16, 24, 32, 64, 128)  # thread blocks of an accumulate kernel


def calibrate(
    devices: Sequence[Device],
    dtypes: Sequence[str],
    note: Callable[[str], None],
    blocks: int = BLOCKS,
    sides: Sequence[int] | None = None,
    sizes: Sequence[int] | None = None,
    accumulate: str = "kernel",
    tf32: bool = False,
    executor: str = "cuda",
) -> tuple[str, GpuMeasurements]:
    """Measure GPUs, from the first to the last of them, and return the text of a machine file.

    InputError for another way to accumulate, or no blocks. ExecutorUnavailableError if kernels cannot add
    over the link.

    Args:
        devices: The GPUs of this process; they are taken to be equal and joined by a switch.
        note: Given what is measured now, in words.
        blocks: Thread blocks of an accumulate kernel.
        sides: m, n and k of the GEMMs; what suits the devices if None.
        sizes: Bytes of the transfers.
        accumulate: ``kernel`` or ``landing``, as the executor that the file is to predict.
        tf32: Whether the file's float32 is TF32.
    """
    check_blocks(blocks)
    join(devices, accumulate)
    first, last = devices[0], devices[-1]
    sides, sizes = sides or grid(first)[0], sizes or grid(first)[1]
    peer = last.allocate(max(sizes))
    landing = Landing(0, first, last, max(sizes)) if accumulate == "landing" else None
    measured = measure(Bench(first, peer, landing=landing), dtypes, note, blocks, SWEEP, sides, sizes)
    for address in (peer, *([landing.address] if landing else [])):
        last.free(address)
    return machine_text(first, len(devices), measured, executor, tf32), measured


def machine_text(
    device: Device,
    count: int,
    measured: GpuMeasurements,
    executor: str,
    tf32: bool = False,
    signal: float | None = None,
    costs: Costs | None = None,
) -> str:
    """Return a machine file.

    Args:
        count: How many there are.
        measured: What was measured; between two GPUs if there are several.
        executor: Name of the executor whose calls were measured.
        tf32: Whether float32 is multiplied by TF32.
        signal: Seconds a rank takes to see another's signal, if ranks are processes.
        costs: What actions cost in runs, where the device queues on its own cores; else what they cost alone.
    """
    options = f" --option blocks={measured.blocks}"
    options += " --option accumulate=landing" if measured.way == "landing" else ""
    options += " --option tf32=on" if tf32 else ""
    how = (
        f"measured on {device.name} with umm {__version__}: "
        f"umm machine calibrate --executor {executor}{options}"
    )
    launch = min(min(seconds.values()) for seconds in measured.gemm.values())
    gemm = {name: seconds for name, seconds in measured.gemm.items() if name != "tf32"}
    if tf32:
        gemm["float32"] = measured.gemm["tf32"]
    if device.units:
        multiplies = _by_kernels(gemm, device.units, how)
    else:
        multiplies = _by_shape({name: _rates(seconds, launch) for name, seconds in gemm.items()}, how)
    lost = measured.interference
    beside = f"accumulate by {measured.way} of {measured.blocks} blocks"
    return text(
        {
            "description": f"{count} x {device.name}, measured",
            "devices": _devices(device, count, measured, launch, how)
            | _local_work(device, measured, how)
            | _in_runs(costs, how)
            | (
                {}
                if signal is None
                else {"signal": number(_microseconds(signal), f"a chain of signals; {how}")}
            )
            | {
                "peak": multiplies.pop("peak"),
                "interference": {
                    "get": _copies_cost(device, count, measured, how),
                    "accumulate": number(round(lost["accumulate"], 4), f"GEMMs beside {beside}; {how}"),
                    "reduce": number(round(lost["accumulate"], 4), f"as accumulate; {how}"),
                },
            }
            | multiplies,
        }
        | ({"fabric": {"kind": "none"}} if count == 1 else _links(measured, how))
    )


def _devices(
    device: Device, count: int, measured: GpuMeasurements, launch: float, how: str
) -> dict[str, InlineTable]:
    """Return the numbers of one GPU."""
    largest = max(measured.copy)
    copy_rate = largest / measured.copy[largest]
    local_rate = _gigabytes(2 * largest / measured.local_copy[largest])
    add_rate = largest / measured.accumulate[measured.blocks][largest]
    added = f"accumulate by {measured.way} of {measured.blocks} blocks over copy, {largest} bytes"
    overhead = _microseconds(min(measured.copy.values()))
    return {
        "count": number(count, "devices found"),
        "ranks_per_device": number(16, "more leave each too little of a device", assumed=True),
        "memory": number(f"{device.memory} B", f"what {device.name} says it has"),
        "memory_bandwidth": number(local_rate, f"twice the rate of a copy within the device; {how}"),
        "copy_engines": number(device.copy_engines, f"what {device.name} says it has"),
        "launch": number(_microseconds(launch), f"the quickest GEMM; {how}"),
        "transfer_overhead": number(overhead, f"the quickest copy; {how}"),
        "accumulate_efficiency": number(round(min(add_rate / copy_rate, 1.0), 4), f"{added}; {how}"),
    }


def _local_work(device: Device, measured: GpuMeasurements, how: str) -> dict[str, InlineTable]:
    """Return whether GEMMs and copies within a GPU run by turns."""
    if not device.units:
        return {}
    longer = f"GEMMs beside copies take {measured.excluded:.0%} of the copies' time longer; {how}"
    return {"local_work": number("engine" if measured.excluded >= 0.5 else "beside", longer)}


def _copies_cost(device: Device, count: int, measured: GpuMeasurements, how: str) -> InlineTable:
    """Return the share of GEMMs' rate that gets take; between ranks on a single GPU gets are kernels."""
    if count == 1 and device.units:
        longer = "GEMMs beside copies within the device take this share of the copies' time longer"
        return number(min(round(measured.excluded, 4), 0.99), f"{longer}; {how}")
    return number(round(measured.interference["get"], 4), f"GEMMs beside copies; {how}")


def _in_runs(costs: Costs | None, how: str) -> dict[str, InlineTable]:
    """Return the costs of actions in runs."""
    if costs is None:
        return {}
    return {
        "launch": number(_microseconds(costs.launch), f"tiny GEMMs in a run; {how}"),
        "transfer_overhead": number(_microseconds(costs.overhead), f"gets of tiny tiles in a run; {how}"),
    }


def _links(measured: GpuMeasurements, how: str) -> dict[str, Any]:
    """Return the fabric of several GPUs, and the share of a link that a message reaches by its size."""
    overhead = min(measured.copy.values())
    alone = {size: size / (took - overhead) for size, took in measured.copy.items() if took > overhead}
    best = alone[max(alone)]  # the largest shows it best; the overhead is not counted twice
    copies = "from the last device to the first"
    return {
        "fabric": {
            "kind": "switch",
            "bandwidth": number(_gigabytes(best), f"a copy {copies}; {how}"),
            "latency": number("0 us", "part of transfer_overhead, which was measured between devices"),
        },
        "message_sizes": {
            "source": f"copies {copies}; {how}",
            "link": number(_gigabytes(best), f"the largest of these; {how}"),
            "sizes": [f"{size} B" for size in alone],
            "bandwidth": [_gigabytes(min(rate, best)) for rate in alone.values()],
        },
    }


def _rates(seconds: Mapping[Shape, float], launch: float) -> dict[Shape, float]:
    """Return flop/s of each shape, the launch aside; a GEMM no longer than a launch has none of its own."""
    # What is left of a GEMM that takes less than two launches is mostly noise, so none counts as faster than
    # the fastest of the others.
    rates = {
        (m, n, k): 2 * m * n * k / (took - launch) if took > launch else 0.0
        for (m, n, k), took in seconds.items()
    }
    best = max((rate for shape, rate in rates.items() if seconds[shape] >= 2 * launch), default=np.inf)
    return {shape: min(rate, best) for shape, rate in rates.items()}


def _by_shape(rates: Mapping[str, Mapping[Shape, float]], how: str) -> dict[str, Any]:
    """Return peaks, and the share of them that each shape reaches."""
    return {
        "peak": {
            dtype: number(f"{max(by_shape.values()) / 1e12:.6g} Tflop/s", f"the fastest GEMM; {how}")
            for dtype, by_shape in rates.items()
        },
        "efficiency": [_efficiency(dtype, by_shape, how) for dtype, by_shape in rates.items()],
    }


def _by_kernels(gemm: Mapping[str, Mapping[Shape, float]], units: int, how: str) -> dict[str, Any]:
    """Return peaks, and tiles and waves by type."""
    laws = {
        dtype: kernel_law(seconds, itemsize(dtype), itemsize(accumulated_in(dtype)), units)
        for dtype, seconds in gemm.items()
    }
    tiles = [f"{rows}x{cols}" for rows, cols in TILES]
    return {
        "peak": {
            dtype: number(f"{law.peak / 1e12:.6g} Tflop/s", f"endless GEMMs, by the law below; {how}")
            for dtype, law in laws.items()
        },
        "kernels": {
            "source": f"multiprocessors of the device, and tiles that libraries have; {how}",
            "units": units,
            "tiles": tiles,
            "splits": list(SPLITS),
        },
        "efficiency": [
            {
                "dtype": dtype,
                "value": 1.0,
                "source": f"of endless GEMMs; {how}",
                "uncertainty": min(round(law.off, 3), 1.0),
                "kernels": {"source": f"fitted to {len(gemm[dtype])} shapes, {law.off:.1%} off in the mean"}
                | law.numbers(),
            }
            for dtype, law in laws.items()
        ],
    }


def _efficiency(dtype: str, rates: Mapping[Shape, float], how: str) -> dict[str, Any]:
    """Return the table of shares of the peak."""
    axes = [sorted(set(axis)) for axis in zip(*rates, strict=True)]
    best = max(rates.values())
    shares = [[[_share(rates[m, n, k], best) for k in axes[2]] for n in axes[1]] for m in axes[0]]
    return efficiency(dtype, f"GEMMs that add to C, blocks of larger matrices; {how}", axes, shares)


def _share(rate: float, best: float) -> float:
    """Return a share of the peak; 1 where only the launch was seen, whose time is counted anyway."""
    return max(round(rate / best, 4), 1e-4) if rate else 1.0


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.6g} GB/s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.6g} us"

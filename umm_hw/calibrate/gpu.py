"""A machine file from what was measured on GPUs: every number with its source."""

from collections.abc import Callable, Mapping, Sequence

from umm import __version__
from umm_hw.calibrate.gpu_benchmarks import SIDES, SIZES, Bench, GpuMeasurements, Shape, measure
from umm_hw.gpu.accumulate_kernels import BLOCKS
from umm_hw.gpu.device import Device
from umm_hw.gpu.links import Landing, check_blocks, join

SWEEP = (4, 8, 16, 24, 32, 64, 128)  # thread blocks of an accumulate kernel


def calibrate(
    devices: Sequence[Device],
    dtypes: Sequence[str],
    note: Callable[[str], None],
    blocks: int = BLOCKS,
    sides: Sequence[int] = SIDES,
    sizes: Sequence[int] = SIZES,
    accumulate: str = "kernel",
    tf32: bool = False,
) -> tuple[str, GpuMeasurements]:
    """Measure GPUs, from the first to the last of them, and return the text of a machine file.

    Args:
        devices: The GPUs of this process; they are taken to be equal and joined by a switch.
        dtypes: Types whose multiplies are measured.
        note: Given what is measured now, in words.
        blocks: Thread blocks of an accumulate kernel.
        sides: m, n and k of the GEMMs.
        sizes: Bytes of the transfers.
        accumulate: ``kernel`` or ``landing``, as the executor that the file is to predict.
        tf32: Whether the file's float32 is TF32, likewise.

    Raises:
        InputError: for another way to accumulate, or no blocks.
        ExecutorUnavailableError: if kernels cannot add over the link.
    """
    check_blocks(blocks)
    join(devices, accumulate)
    first, last = devices[0], devices[-1]
    peer = last.allocate(max(sizes))
    landing = Landing(0, first, last, max(sizes)) if accumulate == "landing" else None
    measured = measure(Bench(first, peer, landing=landing), dtypes, note, blocks, SWEEP, sides, sizes)
    for address in (peer, *([landing.address] if landing else [])):
        last.free(address)
    return machine_text(first, len(devices), measured, "cuda", tf32), measured


def machine_text(
    device: Device, count: int, measured: GpuMeasurements, executor: str, tf32: bool = False
) -> str:
    """Return a machine file.

    Args:
        device: One of the GPUs.
        count: How many there are.
        measured: What was measured; between two GPUs if there are several.
        executor: Name of the executor whose calls were measured.
        tf32: Whether float32 is multiplied by TF32.
    """
    options = f" --option blocks={measured.blocks}"
    options += " --option accumulate=landing" if measured.way == "landing" else ""
    options += " --option tf32=on" if tf32 else ""
    how = (
        f"measured on {device.name} with umm {__version__}: "
        f"umm machine calibrate --executor {executor}{options}"
    )

    def text(value: str, what: str) -> str:
        return f'{{ value = "{value}", source = "{what}; {how}" }}'

    def share(value: float, what: str) -> str:
        return f'{{ value = {value:.4f}, source = "{what}; {how}" }}'

    largest = max(measured.copy)
    copy_rate = largest / measured.copy[largest]
    local_rate = largest / measured.local_copy[largest]
    add_rate = largest / measured.accumulate[measured.blocks][largest]
    launch = min(min(seconds.values()) for seconds in measured.gemm.values())
    gemm = {name: seconds for name, seconds in measured.gemm.items() if name != "tf32"}
    if tf32:
        gemm["float32"] = measured.gemm["tf32"]
    rates = {name: _rates(seconds, launch) for name, seconds in gemm.items()}
    lost = measured.interference
    adding = f"accumulate by {measured.way} of {measured.blocks} blocks"
    lines = [
        "schema = 1",
        f'description = "{count} x {device.name}, measured"',
        "",
        "[devices]",
        f'count = {{ value = {count}, source = "GPUs visible when this was measured" }}',
        'ranks_per_device = { value = 16, source = "more leave each too little of a GPU", assumed = true }',
        f'memory = {{ value = "{device.memory} B", source = "totalGlobalMem of {device.name}" }}',
        f"memory_bandwidth = {text(_gigabytes(2 * local_rate), 'twice the rate of a copy within the GPU')}",
        f'copy_engines = {{ value = {device.copy_engines}, source = "asyncEngineCount of {device.name}" }}',
        f"launch = {text(_microseconds(launch), 'the quickest GEMM')}",
        f"transfer_overhead = {text(_microseconds(min(measured.copy.values())), 'the quickest copy')}",
        f"accumulate_efficiency = "
        f"{share(min(add_rate / copy_rate, 1.0), f'{adding} over copy, {largest} bytes')}",
        "",
        "[devices.peak]",
        *(
            f"{dtype} = {text(f'{max(found.values()) / 1e12:.6g} Tflop/s', 'the fastest GEMM')}"
            for dtype, found in rates.items()
        ),
        "",
        "[devices.interference]",
        f"get = {share(lost['get'], 'GEMMs beside copies')}",
        f"accumulate = {share(lost['accumulate'], f'GEMMs beside {adding}')}",
        f"reduce = {share(lost['accumulate'], 'as accumulate')}",
        "",
    ]
    for dtype, found in rates.items():
        lines += _efficiency(dtype, found, how)
    return "\n".join(lines + _fabric(count, measured, text, how)) + "\n"


def _fabric(count: int, measured: GpuMeasurements, text: Callable[[str, str], str], how: str) -> list[str]:
    """Return the links: none of one GPU, a switch between several."""
    if count == 1:
        return ["[fabric]", 'kind = "none"']
    overhead = min(measured.copy.values())
    alone = {size: size / (took - overhead) for size, took in measured.copy.items() if took > overhead}
    best = alone[max(alone)]  # the largest tells it best; the overhead is not counted twice
    sizes = ", ".join(f'"{size} B"' for size in alone)
    rates = ", ".join(f'"{_gigabytes(min(rate, best))}"' for rate in alone.values())
    return [
        "[fabric]",
        'kind = "switch"',
        f"bandwidth = {text(_gigabytes(best), 'a copy from the last GPU to the first')}",
        'latency = { value = "0 us", source = "part of transfer_overhead, which was measured between GPUs" }',
        "",
        "[message_sizes]",
        f'source = "copies from the last GPU to the first; {how}"',
        f"link = {text(_gigabytes(best), 'the largest of these')}",
        f"sizes = [{sizes}]",
        f"bandwidth = [{rates}]",
    ]


def _rates(seconds: Mapping[Shape, float], launch: float) -> dict[Shape, float]:
    """Return flop/s of each shape, the launch aside; a GEMM no longer than a launch has none of its own."""
    return {
        (m, n, k): 2 * m * n * k / (took - launch) if took > launch else 0.0
        for (m, n, k), took in seconds.items()
    }


def _efficiency(dtype: str, rates: Mapping[Shape, float], how: str) -> list[str]:
    """Return the table of shares of the peak."""
    axes = [sorted(set(axis)) for axis in zip(*rates, strict=True)]
    best = max(rates.values())
    value = [[[_share(rates[m, n, k], best) for k in axes[2]] for n in axes[1]] for m in axes[0]]
    return [
        "[[devices.efficiency]]",
        f'dtype = "{dtype}"',
        f'source = "GEMMs that add to C, blocks of larger matrices; {how}"',
        *(f"{name} = {axis}" for name, axis in zip("mnk", axes, strict=True)),
        f"value = {value}",
        "",
    ]


def _share(rate: float, best: float) -> float:
    """Return a share of the peak; 1 where only the launch was seen, whose time is counted anyway."""
    return max(round(rate / best, 4), 1e-4) if rate else 1.0


def _gigabytes(rate: float) -> str:
    return f"{rate / 1e9:.6g} GB/s"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.6g} us"

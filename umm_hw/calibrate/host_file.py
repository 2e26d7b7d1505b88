"""A calibration as a topology file: every number with its measurement, date, versions and uncertainty."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from umm.host import blas
from umm_hw.calibrate.host import TINY_OPS, Calibration, Figure

RANKS_PER_DEVICE = 16
OWN_CORE = 0.9  # share of its core below which a rank was disturbed


def topology_text(found: Calibration) -> str:
    """Return the text of a topology file.

    The model: a device for each core, a port each into one backplane, which is the host's memory.
    """
    how = _how()
    busy = f"; busy: a rank got {100 * found.share:.0f} % of a core" if found.share < OWN_CORE else ""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // found.devices
    lines = [
        "schema = 1",
        f"description = {json.dumps(f'{_cpu()}: {found.devices} cores, measured on {_today()}{busy}')}",
        "",
        "[devices]",
        _number("count", found.devices, "cores this process may use, one rank each"),
        _number("ranks_per_device", RANKS_PER_DEVICE, "more are of no use", assumed=True),
        _number("memory", f"{memory / 1e9:.4g} GB", "the host's, shared evenly", per="core"),
        _measured(
            "memory_bandwidth",
            found.memory_bandwidth,
            "GB/s",
            1e9,
            f"local accumulates of 64 MiB, all cores at once, three times their bytes; {how}",
        ),
        _number("copy_engines", 1, "one copy thread per rank"),
        _measured(
            "launch",
            found.launch,
            "us",
            1e-6,
            f"{TINY_OPS} tiny gemms in a lane, less their arithmetic; {how}",
        ),
        _measured(
            "transfer_overhead",
            found.transfer_overhead,
            "us",
            1e-6,
            f"{TINY_OPS} tiny gemms that wait for their gets, less the gemms; {how}",
        ),
        _measured(
            "accumulate_efficiency",
            found.accumulate_efficiency,
            "",
            1,
            f"accumulates over gets of 64 MiB, one core; {how}",
        ),
        "",
        "[devices.peak]",
    ]
    for dtype, rates in found.gemm.items():
        lines.append(
            _measured(
                dtype, rates.peak, "Gflop/s", 1e9, f"fastest multiply, all cores at once; {how}", "core"
            )
        )
    lines += ["", "[devices.interference]"]
    for kind, share in found.interference.items():
        lines.append(
            _measured(kind, share, "", 1, f"series of gemms with and without transfers beside them; {how}")
        )
    for dtype, rates in found.gemm.items():
        lines += [
            "",
            "[[devices.efficiency]]",
            f"dtype = {json.dumps(dtype)}",
            f"source = {json.dumps(f'multiplies that add to C, all cores at once; {how}')}",
            f"uncertainty = {rates.uncertainty}",
            *(f"{axis} = {list(rates.sizes)}" for axis in "mnk"),
            "value = [",
            *(f"  {plane}," for plane in rates.efficiency),
            "]",
        ]
    lines += ["", "[fabric]"]
    if found.devices == 1:
        lines.append('kind = "none"')
        return "\n".join(lines) + "\n"
    lines += [
        'kind = "switch"',
        _measured(
            "bandwidth", found.port, "GB/s", 1e9, f"gets of 64 MiB, one core; {how}", "core, one direction"
        ),
        _number("latency", "0 s", "part of transfer_overhead"),
        _measured(
            "backplane", found.backplane, "GB/s", 1e9, f"gets of 64 MiB, all cores at once; {how}", "host"
        ),
        "",
        "[message_sizes]",
        f"source = {json.dumps(f'gets of one core; {how}')}",
        f"uncertainty = {max(speed.uncertainty for _, speed in found.by_size)}",
        _measured("link", found.port, "GB/s", 1e9, f"gets of 64 MiB, one core; {how}"),
        f"sizes = {json.dumps([f'{size // 1024} KiB' for size, _ in found.by_size])}",
        f"bandwidth = {json.dumps([f'{speed.value / 1e9:.4g} GB/s' for _, speed in found.by_size])}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _measured(name: str, found: Figure, unit: str, scale: float, source: str, per: str = "") -> str:
    scaled = found.value / scale
    value: str | float = f"{scaled:.4g} {unit}" if unit else round(scaled, 4)
    return _number(name, value, source, per, found.uncertainty)


def _number(
    name: str,
    value: str | float,
    source: str,
    per: str = "",
    uncertainty: float | None = None,
    assumed: bool = False,
) -> str:
    """Return one number's line."""
    parts = [f"value = {json.dumps(value)}", f"source = {json.dumps(source, ensure_ascii=False)}"]
    parts += [f"per = {json.dumps(per)}"] if per else []
    parts += [f"uncertainty = {uncertainty}"] if uncertainty is not None else []
    parts += ["assumed = true"] if assumed else []
    return f"{name} = {{ {', '.join(parts)} }}"


def _how() -> str:
    """Return the date and the versions that every measured number carries."""
    packages = " ".join(_package(name) for name in ("numpy", "mpi4py", "mpich"))
    libraries = blas.blas_libraries()
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
    return blas.cpu_model() or platform.machine()

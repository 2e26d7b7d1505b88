"""From a machine file's content to a Machine: check it and build it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from umm.arrays import PASS_KINDS
from umm.dtypes import FLOAT8, PRICED, element_bytes
from umm.errors import MachineError
from umm.machines import content as doc
from umm.machines.curves import COLLECTIVE, Efficiency, EfficiencyTable, Means, MessageSizes, Passes
from umm.machines.engines import CHOICES
from umm.machines.fabric import Ends, Fabric
from umm.machines.kernels import kernels_of
from umm.machines.load import load_of
from umm.machines.machine import TF32, Machine, content_sha
from umm.machines.unequal import set_apart
from umm.units import parse_bandwidth, parse_bytes


def build(
    content: Mapping[str, Any], path: Path, name: str, choices: Mapping[str, Any] | None = None
) -> Machine:
    """Return the machine a file describes; MachineError in one line: file, key and remedy.

    Args:
        choices: The engines to choose from, checked before; those of the content if None.
    """
    from pydantic import ValidationError

    try:
        file = doc.MachineFile.model_validate(content)
    except ValidationError as error:
        from umm.machines.mistakes import explained

        raise MachineError(f"{path.name}: {explained(error)}") from None
    document = {key: item for key, item in content.items() if key not in CHOICES}
    devices = file.devices
    count = devices.count.value
    names = tuple(devices.names or (f"g{i}" for i in range(count)))
    numbers = devices.numbers
    memory_bandwidth, overhead = numbers["memory_bandwidth"], numbers["transfer_overhead_s"]
    copies = memory_bandwidth * (numbers["copy_share"] or 1.0)
    try:
        fabric = file.fabric.fabric(Ends(names, overhead, memory_bandwidth))
        apart = {key: "".join(x.value.split()) for key, x in file.apart.items()}
        paces = set_apart(apart, names, memory_bandwidth, fabric) if apart else None
    except MachineError as error:
        raise MachineError(f"{path.name}: {error}") from None
    return Machine(
        name=name,
        source_path=path,
        sha=content_sha(document),
        description=file.description,
        device_count=count,
        device_names=names,
        rank=devices.rank or "",
        default_ranks=devices.default_ranks.value if devices.default_ranks else count,
        interference=_interference(devices),
        peaks={name: rate.number for dtype, rate in devices.peak.items() for name in _types(dtype)},
        efficiency={name: _efficiency(t, devices) for t in devices.efficiency for name in _types(t.dtype)},
        tf32_peak=devices.peak["tf32"].number if "tf32" in devices.peak else 0.0,
        tf32_efficiency=next(
            (_efficiency(t, devices) for t in devices.efficiency if t.dtype == "tf32"), None
        ),
        message_sizes=_message_sizes(file.message_sizes),
        fabric=fabric,
        link_names=(*fabric.names, *(f"{name} memory" for name in names)),
        link_bandwidth=np.array([*fabric.bandwidth, *[copies / 2] * count]),
        link_latency=np.array([*fabric.latency, *[overhead] * count]),
        document=document,
        choices=choices or {key: content[key] for key in CHOICES if key in content},
        engine=file.engine,
        attention={(x.dtype, x.direction == "backward"): x for x in devices.attention},
        grouped={name: x for x in devices.grouped for name in _types(x.dtype)},
        prefill=tuple(devices.prefill),
        decode=tuple(devices.decode),
        experts=tuple(devices.experts),
        exchange=tuple(devices.exchange),
        paces=paces,
        passes={x.dtype: _passes(x) for x in devices.passes},
        means={name: _means(means, _more_sms(name, file)) for name, means in devices.means.items()},
        library=file.library,
        load=load_of(file.load),
        local_on_engine=devices.local_work is not None and devices.local_work.value == "engine",
        **numbers | {"accumulate_efficiency": _accumulate_efficiency(devices, fabric, copies / 2)},
    )


def rebuilt(
    machine: Machine, content: Mapping[str, Any], name: str = "", choices: Mapping[str, Any] | None = None
) -> Machine:
    """Return a machine with other content of its file; one in TF32 stays so."""
    name = name or machine.name
    if not machine.in_tf32:
        return build(content, machine.source_path, name, choices)
    return build(content, machine.source_path, name.replace(TF32, "", 1), choices).with_tf32()


def _types(rated: str) -> tuple[str, ...]:
    """Return the types of matrices that a number of a file is of; TF32 is asked for on its own."""
    name, colon, block = rated.partition(":")
    types = {"tf32": (), "float8": tuple(FLOAT8), "float4": tuple(PRICED)}.get(name, (name,))
    return tuple(x + colon + block for x in types)


def _efficiency(table: Efficiency, devices: doc.Devices) -> EfficiencyTable:
    """Return the efficiency of GEMMs of one type; its kernels default to the device's numbers."""
    kernels = None
    if table.kernels is not None:
        name = table.dtype.partition(":")[0]
        if name not in devices.peak:
            raise MachineError(f"kernels of {table.dtype} need its peak; state devices.peak.{name}")
        tables = [x for x in (devices.kernels, table.kernels) if x is not None]
        item = element_bytes({"tf32": "float32"}.get(table.dtype) or _types(table.dtype)[0])
        peak = devices.peak[name].number
        kernels = kernels_of(table.dtype, peak, item, table.value[0][0][0], tables)
    return EfficiencyTable.measured(table.m, table.n, table.k, table.value, table.tiles, kernels)


def _accumulate_efficiency(devices: doc.Devices, fabric: Fabric, memory: float) -> float:
    """Return the share of a link that accumulates reach: no more than all their blocks together."""
    # The link is the best route from a device to the next, or its memory where there is no other.
    most, blocks = devices.numbers["accumulate_efficiency"], devices.accumulate_blocks
    count = devices.count.value
    if blocks is None:
        return float(most)
    link = memory
    if count > 1:
        device = np.arange(count)
        crossed, links = fabric.routes(device, (device + 1) % count)
        narrowest = np.minimum.reduceat(np.array(fabric.bandwidth)[links], np.cumsum(crossed) - crossed)
        link = float(narrowest.max())
    return float(min(most, blocks.count.value * blocks.rate.number / link))


def _interference(devices: doc.Devices) -> dict[str, float]:
    """Return the share of its GEMM rate a rank loses by kind: of accumulates the blocks they take."""
    # Puts and broadcasts copy as gets do and take as much; where that is nothing they are left out.
    stated, blocks = devices.interference, devices.accumulate_blocks
    get = stated.get.value
    copies = dict.fromkeys(("get", "put", "broadcast") if get else ("get",), get)
    if blocks is not None:
        taken = blocks.count.value / blocks.units.value
        return copies | {"accumulate": taken, "reduce": taken}
    assert stated.accumulate is not None
    assert stated.reduce is not None
    return copies | {"accumulate": stated.accumulate.value, "reduce": stated.reduce.value}


def _more_sms(means: str, file: doc.MachineFile) -> float:
    """Return the share of a device that the library takes beyond its share when that was measured."""
    library, blocks = file.library, file.devices.accumulate_blocks
    if means != COLLECTIVE or library is None or library.sms is None or blocks is None:
        return 0.0
    assert library.sms_rated is not None
    return (library.sms.value - library.sms_rated.value) / blocks.units.value


def _means(means: doc.Means, more: float) -> Means:
    return Means(
        min(0.99, max(0.0, means.interference.value + more)),
        means.efficiency.value if means.efficiency else 1.0,
        means.overhead.number if means.overhead else 0.0,
        _message_sizes(means.message_sizes),
    )


def _passes(rates: doc.PassRates) -> Passes:
    per_byte = {x: 1.0 / np.array([parse_bandwidth(y) for y in getattr(rates, x)]) for x in PASS_KINDS}
    return Passes(np.log2([parse_bytes(text) for text in rates.sizes]), per_byte)


def _message_sizes(sizes: doc.Sizes | None) -> MessageSizes | None:
    if sizes is None:
        return None
    at_any_size = sizes.cached.number if sizes.cached else 0.0
    again = [parse_bandwidth(text) for text in sizes.cached_by_size or ()]
    return MessageSizes(
        np.log2([parse_bytes(text) for text in sizes.sizes]),
        np.array([parse_bandwidth(text) for text in sizes.bandwidth]),
        sizes.link.number,
        np.array(again) if again else at_any_size,
    )

"""From a topology file's content to a Machine: check it and build it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError

from umm.errors import MachineError
from umm.machines import content as doc
from umm.machines.curves import EfficiencyTable, Means, MessageSizes
from umm.machines.fabric import Ends
from umm.machines.machine import Machine, content_sha
from umm.machines.mistakes import explained
from umm.units import parse_bandwidth, parse_bytes


def build(content: Mapping[str, Any], path: Path, name: str) -> Machine:
    """Return the machine a file describes.

    Raises:
        MachineError: In one line, the file, the key and what would work.
    """
    try:
        file = doc.MachineFile.model_validate(content)
    except ValidationError as error:
        raise MachineError(f"{path.name}: {explained(error)}") from None
    devices = file.devices
    count = devices.count.value
    names = tuple(devices.names or (f"g{i}" for i in range(count)))
    memory_bandwidth = devices.memory_bandwidth.number
    overhead = devices.transfer_overhead.number
    try:
        fabric = file.fabric.fabric(Ends(names, overhead, memory_bandwidth))
    except MachineError as error:
        raise MachineError(f"{path.name}: {error}") from None
    return Machine(
        name=name,
        source_path=path,
        sha=content_sha(content),
        description=file.description,
        device_count=count,
        device_names=names,
        ranks_per_device=devices.ranks_per_device.value if devices.ranks_per_device else 1,
        default_ranks=devices.default_ranks.value if devices.default_ranks else count,
        memory=int(devices.memory.number),
        memory_bandwidth=memory_bandwidth,
        copy_engines=devices.copy_engines.value,
        accumulate_efficiency=devices.accumulate_efficiency.value,
        interference={
            "get": devices.interference.get.value,
            "accumulate": devices.interference.accumulate.value,
            "reduce": devices.interference.reduce.value,
        },
        launch_s=devices.launch.number,
        transfer_overhead_s=overhead,
        peaks={dtype: rate.number for dtype, rate in devices.peak.items()},
        efficiency={t.dtype: EfficiencyTable.measured(t.m, t.n, t.k, t.value) for t in devices.efficiency},
        message_sizes=_message_sizes(file.message_sizes),
        fabric=fabric,
        link_names=(*fabric.names, *(f"{name} memory" for name in names)),
        link_bandwidth=np.array([*fabric.bandwidth, *[memory_bandwidth / 2] * count]),
        link_latency=np.array([*fabric.latency, *[overhead] * count]),
        document=content,
        means={name: _means(means) for name, means in devices.means.items()},
        signal_s=devices.signal.number if devices.signal else 0.0,
    )


def _means(means: doc.Means) -> Means:
    return Means(
        means.interference.value,
        means.efficiency.value if means.efficiency else 1.0,
        means.overhead.number if means.overhead else 0.0,
        _message_sizes(means.message_sizes),
    )


def _message_sizes(sizes: doc.Sizes | None) -> MessageSizes | None:
    if sizes is None:
        return None
    return MessageSizes(
        np.log2([parse_bytes(text) for text in sizes.sizes]),
        np.array([parse_bandwidth(text) for text in sizes.bandwidth]),
        sizes.link.number,
    )

"""From a topology file's content to a Machine: check it, say what is wrong in one line, build it."""

import difflib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
from pydantic import BaseModel, ValidationError

from umm.dtypes import DTYPES
from umm.errors import MachineError
from umm.machines import content as doc
from umm.machines.curves import EfficiencyTable, Means, MessageSizes
from umm.machines.fabrics import Fabric, FatTree, Grid, NoFabric, Pairs, Switch, Tiers
from umm.machines.graph import Graph
from umm.machines.machine import Machine, content_sha
from umm.machines.quantities import Number
from umm.units import parse_bandwidth, parse_bytes


def build(content: Mapping[str, Any], path: Path, name: str) -> Machine:
    """Return the machine a file describes.

    Raises:
        MachineError: In one line, the file, the key and what would work.
    """
    try:
        file = doc.MachineFile.model_validate(content)
    except ValidationError as error:
        raise MachineError(f"{path.name}: {_explain(error)}") from None
    devices = file.devices
    count = devices.count.value
    names = tuple(devices.names or (f"g{i}" for i in range(count)))
    memory_bandwidth = devices.memory_bandwidth.number
    overhead = devices.transfer_overhead.number
    try:
        fabric = _fabric(file.fabric, names, overhead, memory_bandwidth)
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


def _numbers(link: doc.LinkNumbers) -> tuple[float, float]:
    return link.bandwidth.number, link.latency.number


def _fabric(fabric: doc.AnyFabric, names: Sequence[str], overhead: float, memory_bandwidth: float) -> Fabric:
    match fabric:
        case doc.Single():
            _expect(len(names), 1, "a fabric of kind none")
            return NoFabric()
        case doc.PairsFabric():
            near = fabric.group or fabric
            group = fabric.group.size.value if fabric.group else 1
            return Pairs(names, _numbers(fabric), _numbers(near), group, overhead)
        case doc.SwitchFabric():
            backplane = fabric.backplane.number if fabric.backplane else None
            return Switch(names, *_numbers(fabric), overhead, backplane)
        case doc.RingFabric():
            return Grid(names, [len(names)], True, *_numbers(fabric), overhead, memory_bandwidth)
        case doc.GridFabric():
            shape = fabric.shape.value
            _expect(len(names), math.prod(shape), f"a {fabric.kind} of {'x'.join(map(str, shape))}")
            wraps = fabric.kind == "torus"
            return Grid(names, shape, wraps, *_numbers(fabric), overhead, memory_bandwidth)
        case doc.FatTreeFabric():
            levels = [(level.size.value, *_numbers(level)) for level in fabric.levels]
            _expect(len(names), math.prod(size for size, _, _ in levels), "a fat tree of these levels")
            return FatTree(names, levels, overhead)
        case doc.TiersFabric():
            size = fabric.node_size.value
            if len(names) % size:
                raise MachineError(
                    f"{len(names)} devices cannot fill nodes of {size}; use a multiple of {size}"
                )
            core = fabric.core.number if fabric.core else None
            own = fabric.nic.owner == "device"
            return Tiers(names, size, _numbers(fabric), _numbers(fabric.nic), own, core, overhead)
        case doc.LinksFabric():
            return _graph(fabric, names, overhead, memory_bandwidth)


def _expect(count: int, right: int, what: str) -> None:
    if count != right:
        raise MachineError(
            f"{what} has {right} devices, not {count}; make devices.count and the fabric agree"
        )


def _graph(fabric: doc.LinksFabric, names: Sequence[str], overhead: float, memory_bandwidth: float) -> Graph:
    vertices = {*names, *fabric.switches}
    edges = {}
    for group in fabric.links:
        if group.type not in fabric.types:
            raise MachineError(f"fabric.links uses type {group.type!r}{_hint(group.type, fabric.types)}")
        for pair in group.pairs():
            _known(pair, vertices, "fabric.links")
            if pair in edges:
                raise MachineError(f"fabric.links joins {pair[0]} and {pair[1]} twice; keep one")
            edges[pair] = _numbers(fabric.types[group.type])
    listed = {}
    for route in fabric.routes:
        _known((route.src, *route.via, route.dst), vertices, "fabric.routes")
        listed[route.src, route.dst] = route.via
    return Graph(names, edges, listed, overhead, memory_bandwidth)


def _known(used: Sequence[str], vertices: set[str], where: str) -> None:
    for vertex in used:
        if vertex not in vertices:
            raise MachineError(f"{where} names {vertex!r}{_hint(vertex, sorted(vertices))}")


def _hint(wrong: str, right: Any) -> str:
    close = difflib.get_close_matches(wrong, list(right), n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; choose from {', '.join(right)}"


def _explain(error: ValidationError) -> str:
    """Return one mistake of the file in one line: a misspelt key before what is missing because of it."""
    mistakes = error.errors(include_url=False)
    first = min(mistakes, key=lambda mistake: mistake["type"] != "extra_forbidden")
    table, parts = _walk(first["loc"])
    key = ".".join(parts)
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key {key!r}{_hint(parts[-1], _keys(table))}"
        case "literal_error" if parts[-1] == "[key]":
            return f"unknown key {'.'.join(parts[:-1])!r}{_hint(parts[-2], DTYPES)}"
        case "missing" if parts[-1] == "source":
            return f'{".".join(parts[:-1])} has no source; say where the number comes from: source = "…"'
        case "missing":
            return f"{key} is missing"
        case "model_type" if issubclass(_model(first["loc"]), Number):
            return f'{key} has no source; write it like {{ value = …, source = "…" }}'
        case "union_tag_invalid" | "union_tag_not_found":
            kinds = "none, pairs, switch, ring, mesh, torus, fat_tree, tiers, links"
            return f"fabric.kind must be one of {kinds}"
        case "value_error":
            return f"{key}: {first['ctx']['error']}"
        case _:
            said = first["msg"]
            return f"{key}: {said[0].lower()}{said[1:]}, not {first['input']!r}"


def _model(loc: tuple[int | str, ...]) -> type[BaseModel]:
    """Return the innermost model a location lies in (for a model's own error, that model)."""
    return _walk(loc, last=True)[0]


def _walk(loc: tuple[int | str, ...], last: bool = False) -> tuple[type[BaseModel], list[str]]:
    """Return the table a location's last key belongs to, and the keys as the file writes them.

    pydantic puts the tag of the chosen fabric into the location; the file has no such key.
    """
    table: type[BaseModel] = doc.MachineFile
    parts: list[str] = []
    for position, part in enumerate(loc):
        if isinstance(part, int):
            parts[-1] += f"[{part}]"
            continue
        fields = {info.alias or name: info for name, info in table.model_fields.items()}
        if parts == ["fabric"] and position == 1:
            kinds = get_args(get_args(doc.AnyFabric)[0])
            table = next(m for m in kinds if part in get_args(m.model_fields["kind"].annotation))
            continue
        parts.append(part)
        if part in fields and (last or position < len(loc) - 1):
            table = _inner(fields[part].annotation) or table
    return table, parts


def _inner(annotation: Any) -> type[BaseModel] | None:
    """Return the model inside an optional, a list or a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for inner in get_args(annotation):
        found = _inner(inner)
        if found is not None:
            return found
    return None


def _keys(table: type[BaseModel]) -> list[str]:
    return [info.alias or name for name, info in table.model_fields.items()]

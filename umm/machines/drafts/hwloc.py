"""The output of ``lstopo --of xml`` (hwloc 2 and 3): GPUs, bandwidths between them, PCIe and sockets."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from umm.errors import MachineError
from umm.machines.drafts.node import SOCKETS, Node, Wire
from umm.numbers import parse_whole, real_in, whole_in

TOOL = "lstopo --of xml"
_GPU_NAMES = ("nvml", "cuda", "rsmi", "ze", "hip")  # of OS devices, with a number behind them
_MATRICES = ("NVLinkBandwidth", "XGMIBandwidth", "XeLinkBandwidth")


class Gpu(NamedTuple):
    """A GPU, or a part of one that has links of its own."""

    aliases: frozenset[str]  # its PCI device and its OS devices, as matrices name them
    model: str  # what it calls itself
    memory: int | None  # bytes, if known
    speed: float  # Bytes/s of its PCIe link, one direction
    # The port of a host bridge on its way to the host, the port's Bytes/s, and the socket.
    port: tuple[str, float, str]


def is_hwloc(text: str) -> bool:
    """Return whether a text is a topology of hwloc."""
    return "<topology" in text[:2000]


def read(text: str) -> Node:
    """Return the node that a topology of hwloc describes.

    MachineError if it is not XML, or has no GPU: lstopo leaves devices out unless ``--whole-io`` or a plain
    lstopo with NVML, RSMI or Level Zero found them.
    """
    try:
        root = ET.fromstring(text)
        gpus = list(_gpus(root, ("", 0.0, "host"), "host"))
    except ET.ParseError as error:
        raise MachineError(f"this is not what {TOOL} writes: {error}") from None
    except RecursionError:
        raise MachineError(f"this is not what {TOOL} writes: it nests too deep") from None
    if not gpus:
        raise MachineError(f"{TOOL} shows no GPU; lstopo sees them if built with NVML, RSMI or Level Zero")
    names = tuple(f"g{i}" for i in range(len(gpus)))
    links, ports = _wires(root, gpus)
    port = ports[0] if len(ports) == len(gpus) and len(set(ports)) == 1 else None
    return Node(
        model=gpus[0].model,
        names=names,
        links={} if port else links,
        port=port,
        parents=_parents(names, gpus),
        between=SOCKETS,
        memory=gpus[0].memory,
        tool=TOOL,
    )


def _gpus(node: ET.Element, port: tuple[str, float, str], socket: str) -> Iterator[Gpu]:
    """Return the GPUs below an object, in the order of the file."""
    for child in node:
        if child.tag != "object":
            continue
        kind, name = child.get("type", ""), child.get("gp_index", child.get("os_index", "0"))
        if kind == "Package":
            yield from _gpus(child, port, f"socket{child.get('os_index', name)}")
        elif kind == "Bridge":
            speed = _speed(child)
            outer = port if port[0] else (f"pcie{name}", speed, socket) if speed else port
            yield from _gpus(child, outer, socket)
        elif kind == "PCIDev" and any(_is_gpu(x) for x in child.iter("object")):
            systems = [x for x in child.iter("object") if _is_gpu(x)]
            infos = {x.get("name"): x.get("value") for o in systems for x in o.findall("info")}
            size = whole_in(infos.get("CUDAGlobalMemorySize"), below=2**50)
            aliases = {f"OSDev:{x.get('gp_index')}" for x in systems} | {f"PCIDev:{name}"}
            yield Gpu(
                frozenset(aliases),
                infos.get("GPUModel") or "",
                1024 * size if size else None,
                _speed(child),
                port if port[0] else (f"pcie{name}", 0.0, socket),
            )
        else:
            yield from _gpus(child, port, socket)


def _speed(device: ET.Element) -> float:
    """Return the bytes/s of a device's PCIe link, 0 if they are not said."""
    return max(0.0, real_in(device.get("pci_link_speed")) or 0.0) * 1e9


def _is_gpu(item: ET.Element) -> bool:
    name = item.get("name", "").rstrip("0123456789.")
    return item.get("type") == "OSDev" and name in _GPU_NAMES


def _wires(root: ET.Element, gpus: list[Gpu]) -> tuple[dict[tuple[int, int], Wire], list[Wire]]:
    """Return the wires between two GPUs, and for each GPU that has one the wire to switches."""
    links: dict[tuple[int, int], Wire] = {}
    ports = []
    for table in root:
        title = table.get("name", "")
        if table.tag not in ("distances2", "distances2hetero") or title not in _MATRICES:
            continue
        prefix = f"{table.get('type')}:" if table.tag == "distances2" else ""
        ends = [prefix + x for part in table.findall("indexes") for x in (part.text or "").split()]
        cells = [x for part in table.findall("u64values") for x in (part.text or "").split()]
        values = [parse_whole(x, f"a bandwidth of {title}") * 1e6 for x in cells]
        if len(values) != len(ends) ** 2:
            raise MachineError(f"{TOOL}: {title} has {len(values)} values for {len(ends)} objects")
        at = {alias: i for i, gpu in enumerate(gpus) for alias in gpu.aliases}
        switches = [x for x in ends if x.startswith("PCIDev:") and x not in at]
        for row, one in enumerate(ends):
            rates = dict(zip(ends, values[row * len(ends) : (row + 1) * len(ends)], strict=True))
            if one not in at:
                continue
            up = sum(rates[x] for x in switches)
            if up:
                ports.append(Wire("port", up, f"{TOOL}: {title} to all switches"))
            for other, rate in rates.items():
                if other in at and at[one] < at[other] and rate:
                    name = f"{title.removesuffix('Bandwidth').lower()}{rate / 1e9:g}"
                    links[at[one], at[other]] = Wire(name, rate, f"{TOOL}: {title}")
    return links, ports


def _parents(names: tuple[str, ...], gpus: list[Gpu]) -> dict[str, tuple[str, Wire]]:
    """Return the way of each GPU to its socket, through the port of the host where it shares one."""
    shared = Counter(gpu.port[0] for gpu in gpus)
    parents = {}
    for name, gpu in zip(names, gpus, strict=True):
        port, speed, socket = gpu.port
        if shared[port] > 1:
            parents[name], parents[port] = (port, _pcie(gpu.speed)), (socket, _pcie(speed))
        else:
            parents[name] = (socket, _pcie(min(x for x in (gpu.speed, speed or gpu.speed))))
    return parents


def _pcie(speed: float) -> Wire:
    if not speed:
        return Wire("pcie", 31.5e9, f"{TOOL} does not say how fast; PCIe 4.0 x16 is taken")
    return Wire(f"pcie{speed / 1e9:.0f}", speed, f"{TOOL}: pci_link_speed")

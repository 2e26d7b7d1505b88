"""The output of ``nvidia-smi topo -m``: NVLinks between two GPUs, and the distance of a card to each."""

import re
from collections.abc import Sequence

from umm.errors import MachineError
from umm.machines.drafts.node import SOCKETS, Node, Wire
from umm.numbers import parse_whole

TOOL = "nvidia-smi topo -m"
MOST_NVLINKS = 18  # NVLinks of the GPU that has most of them (H100 to B200); A100 has 12, V100 has 6.

PCIE = Wire("pcie", 31.5e9, f"{TOOL} does not say which PCIe it is; 4.0 x16 is taken")
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_HEADS = re.compile(r"CPU Affinity|NUMA Affinity|GPU NUMA ID|\S+")
_NEAR = ("PIX", "PXB")  # behind one PCIe switch, or several without the host between them


def is_topo(text: str) -> bool:
    """Return whether a text has the table's first row."""
    return _header(_ESCAPES.sub("", text).splitlines()) is not None


def read(text: str, nvlink: float = 25e9) -> Node:
    """Return the node that the printed table describes; MachineError if it is not such a table.

    GPUs whose NVLinks to all others together are more than any GPU has are joined by a switch.

    Args:
        nvlink: Bytes/s of one NVLink, one direction: 25 GB/s of NVLink 2 to 4, 50 of NVLink 5.
    """
    lines = _ESCAPES.sub("", text).splitlines()
    header = _header(lines)
    if header is None:
        raise MachineError(f"this is not what {TOOL} prints: no line begins with GPU0 GPU1 …")
    columns = [x for x in header if "Affinity" not in x and x != "GPU NUMA ID"]
    gpus = [x for x in columns if re.fullmatch(r"GPU\d+", x)]
    rows: dict[str, list[str]] = {}
    for line in lines:
        cells = line.split()
        place = columns.index(cells[0]) + 1 if cells and cells[0] in columns else 0
        if place and len(cells) > len(columns) and cells[place] == "X":
            rows[cells[0]] = cells[1:]
    missing = [x for x in gpus if x not in rows]
    if missing:
        raise MachineError(f"{TOOL}: no whole row of {', '.join(missing)}; give all that it printed")
    names = tuple(f"g{i}" for i in range(len(gpus)))
    relation = [[rows[gpu][columns.index(other)] for other in gpus] for gpu in gpus]
    links = {}
    for i, row in enumerate(relation):
        for j in range(i + 1, len(gpus)):
            bonded = re.fullmatch(r"NV([0-9]{1,3})", row[j])
            if bonded:
                count = parse_whole(bonded[1])
                source = f"{TOOL}: {row[j]}, {count} NVLinks of {nvlink / 1e9:g} GB/s"
                links[i, j] = Wire(f"nv{count}", count * nvlink, source)
    port = _port(links, len(gpus))
    behind = [rows[gpu][len(columns) + 1 :] for gpu in gpus]  # the table, a row's affinity to CPUs
    numa = [x[0] if x and x[0] != "N/A" else "0" for x in behind]
    return Node(
        model="",
        names=names,
        links={} if port else links,
        port=port,
        parents=_parents(names, relation, numa),
        between=SOCKETS,
        cards=_cards(columns, gpus, rows),
        tool=TOOL,
    )


def _header(lines: Sequence[str]) -> list[str] | None:
    for line in lines:
        heads = _HEADS.findall(line)
        if heads[:1] == ["GPU0"] and (len(heads) == 1 or heads[1] != "X"):
            return [str(x) for x in heads]
    return None


def _port(links: dict[tuple[int, int], Wire], count: int) -> Wire | None:
    """Return the wire to a switch, if all GPUs say that they have all their NVLinks to each other."""
    wires = set(links.values())
    if len(wires) != 1 or len(links) != count * (count - 1) // 2:
        return None
    wire = wires.pop()
    return wire if (count - 1) * parse_whole(wire.name[2:]) > MOST_NVLINKS else None


def _parents(
    names: tuple[str, ...], relation: list[list[str]], numa: list[str]
) -> dict[str, tuple[str, Wire]]:
    """Return the way of each GPU to its NUMA node, through a PCIe switch where it shares one."""
    first = list(range(len(names)))  # of those behind one PCIe switch
    for i, row in enumerate(relation):
        for j in range(i):
            if row[j] in _NEAR:
                first = [first[j] if x == first[i] else x for x in first]
    parents = {}
    for i, name in enumerate(names):
        host = f"numa{numa[i]}"
        if first.count(first[i]) > 1:
            switch = f"pcie{first[i]}"
            parents[name], parents[switch] = (switch, PCIE), (host, PCIE)
        else:
            parents[name] = (host, PCIE)
    return parents


def _cards(columns: list[str], gpus: list[str], rows: dict[str, list[str]]) -> dict[str, list[int]]:
    """Return the GPUs behind the same PCIe switch as each card."""
    return {
        card: [i for i, gpu in enumerate(gpus) if rows[gpu][at] in _NEAR]
        for at, card in enumerate(columns)
        if card not in gpus
    }

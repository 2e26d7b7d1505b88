"""The output of nvidia-smi and lstopo on some nodes, in their form."""

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

HGX_A100_4 = """
        GPU0    GPU1    GPU2    GPU3    NIC0    NIC1    NIC2    NIC3    CPU Affinity    NUMA Affinity
GPU0     X      NV4     NV4     NV4     PXB     SYS     SYS     SYS     0       0-1
GPU1    NV4      X      NV4     NV4     SYS     PXB     SYS     SYS     0       0-1
GPU2    NV4     NV4      X      NV4     SYS     SYS     PXB     SYS     0       0-1
GPU3    NV4     NV4     NV4      X      SYS     SYS     SYS     PXB     0       0-1
NIC0    PXB     SYS     SYS     SYS      X      SYS     SYS     SYS
NIC1    SYS     PXB     SYS     SYS     SYS      X      SYS     SYS
NIC2    SYS     SYS     PXB     SYS     SYS     SYS      X      SYS
NIC3    SYS     SYS     SYS     PXB     SYS     SYS     SYS      X
"""
"""Four A100 with four NVLinks between every two, and a card beside each."""

PCIE = """
        GPU0    GPU1    GPU2    GPU3    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      PIX     SYS     SYS     0-7,16-23       0               N/A
GPU1    PIX      X      SYS     SYS     0-7,16-23       0               N/A
GPU2    SYS     SYS      X      NV4     8-15,24-31      1               N/A
GPU3    SYS     SYS     NV4      X      8-15,24-31      1               N/A
"""
"""Two GPUs behind one PCIe switch, two others bridged, each pair at a socket."""


def dgx(count: int, bonded: str) -> str:
    """Return the table of GPUs behind NVSwitch as a terminal gets it: tabs, and an underlined first row."""
    heads = [f"GPU{i}" for i in range(count)]
    nics = [f"NIC{i}" for i in range(count + 1)]
    lines = [
        "\x1b[4m\t" + "\t".join([*heads, *nics, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]) + "\x1b[0m"
    ]
    for i, head in enumerate(heads):
        gpus = [" X " if j == i else bonded for j in range(count)]
        near = ["PIX" if j == i else "SYS" for j in range(len(nics))]
        lines.append("\t".join([head, *gpus, *near, "0-55,112-167", str(2 * i // count), "\tN/A"]))
    return "\n".join(lines) + "\n" + LEGEND


def hwloc(model: str, links: list[tuple[int, int, int]], switches: int = 0, count: int = 4) -> str:
    """Return a topology as lstopo 2 writes it: half of the GPUs at either socket, two behind one PCIe port.

    Args:
        model: What each GPU calls itself.
        links: Two GPUs (or count + i for NVSwitch i) and the MB/s between them.
        switches: How many NVSwitches there are.
        count: How many GPUs, a multiple of 4.
    """
    gpus = [f"OSDev:{300 + i}" for i in range(count)]
    ends = [*gpus, *(f"PCIDev:{400 + i}" for i in range(switches))]
    rate = {(a, b): mb for one, other, mb in links for a, b in ((one, other), (other, one))}
    values = [
        str(1000000 if a == b < count else rate.get((a, b), 0))
        for a in range(len(ends))
        for b in range(len(ends))
    ]
    rows = [values[i : i + 10] for i in range(0, len(values), 10)]
    matrix = "".join(
        f'    <u64values length="{len(" ".join(r)) + 1}">{" ".join(r)} </u64values>\n' for r in rows
    )
    sockets = "".join(
        f"""    <object type="Package" os_index="{s}" cpuset="0x0000000{s + 1}" gp_index="{s + 3}">
      <info name="CPUModel" value="A CPU"/>
      <object type="NUMANode" os_index="{s}" gp_index="{s + 90}" local_memory="68556816384"/>
{"".join(_port(p, count, model) for p in range(s * count // 4, (s + 1) * count // 4))}    </object>
"""
        for s in range(2)
    )
    silicon = "".join(
        f'      <object type="PCIDev" gp_index="{400 + i}" subtype="NVSwitch" pci_busid="0000:c{i}:00.0" '
        'pci_type="0680 [10de:1ac2] [0000:0000] a1 00" pci_link_speed="1.000000"/>\n'
        for i in range(switches)
    )
    return f"""<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003" gp_index="1">
{sockets}{silicon}  </object>
  <distances2 type="NUMANode" nbobjs="2" kind="5" name="NUMALatency" indexing="os">
    <indexes length="4">0 1 </indexes>
    <u64values length="12">10 21 21 10 </u64values>
  </distances2>
  <distances2hetero nbobjs="{len(ends)}" kind="25" name="NVLinkBandwidth">
    <indexes length="{len(" ".join(ends)) + 1}">{" ".join(ends)} </indexes>
{matrix}  </distances2hetero>
  <support name="discovery.pu"/>
</topology>
"""


def _port(port: int, count: int, model: str) -> str:
    """Return a host bridge with a root port of 16 GB/s and two GPUs behind it, of 16 GB/s each."""
    first = 2 * port
    gpus = "".join(
        f"""            <object type="PCIDev" gp_index="{200 + i}" pci_busid="0000:3{i:x}:00.0" \
pci_type="0302 [10de:1db8] [10de:131d] a1 00" pci_link_speed="15.753846">
              <object type="OSDev" gp_index="{100 + i}" name="cuda{i}" subtype="CUDA" osdev_type="5">
                <info name="GPUModel" value="{model}"/>
                <info name="CUDAGlobalMemorySize" value="33554432"/>
              </object>
              <object type="OSDev" gp_index="{300 + i}" name="nvml{i}" subtype="NVML" osdev_type="1">
                <info name="GPUModel" value="{model}"/>
              </object>
            </object>
"""
        for i in (first, first + 1)
    )
    return f"""      <object type="Bridge" gp_index="{500 + port}" bridge_type="0-1" depth="0">
        <object type="Bridge" gp_index="{600 + port}" bridge_type="1-1" depth="1" bridge_pci="0000:[2c-3b]" \
pci_busid="0000:2b:00.0" pci_type="0604 [8086:2030] [8086:0000] 04 00" pci_link_speed="15.753846">
          <object type="Bridge" gp_index="{700 + port}" bridge_type="1-1" pci_link_speed="15.753846">
{gpus}          </object>
        </object>
      </object>
"""

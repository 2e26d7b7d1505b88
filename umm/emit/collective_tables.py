"""Collectives as the tables that others read: XLA's, and that of NCCL's example tuner."""

from collections.abc import Iterator
from itertools import pairwise
from math import isqrt

from umm.errors import InputError, MachineError
from umm.machines import Machine
from umm.plans.collectives.library import choose, domains, refuses
from umm.profiles.kernel import Kernel
from umm.profiles.scheduled import trace_kernels
from umm.quoting import textproto
from umm.traces.trace import Trace

SIZES = [2**x for x in range(10, 32)]
OPCODES = {
    "all-gather": "all-gather", "reduce-scatter": "reduce-scatter", "all-reduce": "all-reduce",
    "all-to-all": "all-to-all",
}  # fmt: skip
TAKE_TUNERS = ("NCCL", "RCCL")
TUNED = {"all-gather": "allgather", "reduce-scatter": "reducescatter", "all-reduce": "allreduce"}
"""Collectives as the example tuner spells them; it does not tune all-to-alls."""
WAYS = {
    "ll": ("ring", "ll"), "ll128": ("ring", "ll128"), "ring": ("ring", "simple"), "tree": ("tree", "ll"),
    "ring-ll": ("ring", "ll"), "tree-ll": ("tree", "ll"), "nvls": ("nvls", "simple"),
    "simple": ("ring", "simple"),
}  # fmt: skip
"""The algorithm and the protocol of a way, as the example tuner spells them."""
COLUMNS = "# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"
NEAR = 2  # factor of a collective's bytes, down and up, for which a line of a schedule's holds


def xla_table(machine: Machine, platform: str) -> str:
    """Return the text of the protocol buffer that XLA reads as its table of collectives.

    An entry has a collective's operand and its bytes/s: of the whole gathered or reduced buffer, or a rank's
    of an all-reduce and an all-to-all. MachineError for a machine whose file has no library.

    Args:
        platform: The key by which XLA finds it: ``sm_90``, ``sm_100_B200``, ``gfx950``.

    Source: openxla/xla, xla/service/gpu/model/hlo_op_profile.proto and collective_perf_table_gen.cc.
    """
    _expect_library(machine)
    lines = ["entries {", f"  key: {textproto.string(platform)}", "  value {"]
    for what, opcode in OPCODES.items():
        for ranks in _groups(machine):
            for nbytes in SIZES:
                choice = choose(machine, what, tuple(range(ranks)), machine.device_count, nbytes)
                elements = max(1, nbytes // 4 // (ranks if what == "reduce-scatter" else 1))
                groups = f"num_replica_groups: {machine.device_count // ranks} num_devices_per_group: {ranks}"
                lines += [
                    "    entries {",
                    "      instruction {",
                    f'        opcode: "{opcode}"',
                    f"        shape {{ element_type: F32 dimensions: {elements} }}",
                    f"        collective_device_list {{ iota_replica_group_list {{ {groups} }} }}",
                    "      }",
                    f"      network_throughput_bytes_per_sec: {round(nbytes / choice.seconds)}",
                    "    }",
                ]
    return "\n".join([*lines, "  }", "}", ""])


def nccl_tuner(machine: Machine) -> str:
    """Return the CSV of NCCL's example tuner: for ranges of sizes, the algorithm and the protocol.

    Source: NVIDIA/nccl, ext-tuner/example/README.md. MachineError for a machine whose file has no library, or
    one that takes no such tuner.
    """
    _expect_library(machine)
    assert machine.library is not None
    if machine.library.name not in TAKE_TUNERS:
        raise MachineError(
            f"{machine.name} has {machine.library.name}, which takes no tuner; "
            f"choose a machine with {' or '.join(TAKE_TUNERS)}"
        )
    lines = [COLUMNS]
    for what, spelled in TUNED.items():
        for ranks in _groups(machine):
            nodes = len(domains(machine, range(ranks), machine.device_count))
            for least, most, name in _ranges(machine, what, ranks):
                algorithm, protocol = WAYS.get(name, (name, "simple"))
                lines.append(f"{spelled},{least},{most},{algorithm},{protocol},-1,{nodes},{ranks}")
    return "\n".join([*lines, ""])


def tuner_lines(trace: Trace, machine: Machine) -> str:
    """Return lines of NCCL's example tuner for the gathers and sums of a schedule.

    InputError for a machine without such a library, or a schedule without collectives.
    """
    library = machine.library
    if library is None or library.name not in TAKE_TUNERS:
        raise InputError(f"{machine.name} has no library that takes a tuner; choose one with NCCL or RCCL")
    lines = [COLUMNS]
    sizes: dict[tuple[str, int, int], Kernel] = {}
    for rank in {0, trace.schedule.ranks - 1}:
        for one in trace_kernels(trace, rank):
            if one.kind in TUNED:
                sizes.setdefault((one.kind, one.ranks, one.nbytes), one)
    spans: dict[tuple[str, int, int], tuple[int, int]] = {}
    for kind, ranks in {key[:2] for key in sizes}:
        spans |= _spans(kind, ranks, sorted(x[2] for x in sizes if x[:2] == (kind, ranks)))
    for (kind, ranks, nbytes), one in sorted(sizes.items()):
        if refuses(machine, one.group, machine.device_count) is not None:
            lines.append(
                f"# {kind} of {nbytes} bytes over ranks {one.group[0]} to {one.group[-1]}: not NCCL's"
            )
            continue
        way = choose(machine, kind, one.group, machine.device_count, nbytes).name
        algorithm, protocol = WAYS.get(way, (way, "simple"))
        nodes = len(domains(machine, one.group, machine.device_count))
        least, most = spans[kind, ranks, nbytes]
        lines.append(f"{TUNED[kind]},{least},{most},{algorithm},{protocol},-1,{nodes},{ranks}")
    if len(lines) == 1:
        raise InputError("the schedule gathers and sums nothing that NCCL's tuner names")
    lines.append("# umm moves one-sided, in slices; the lines are of collectives of the same bytes and ranks")
    return "\n".join([*lines, ""])


def _spans(kind: str, ranks: int, sizes: list[int]) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return the sizes for which the line of each of some increasing sizes holds."""
    # Near ones part at their geometric mean: the tuner takes the first line that holds.
    ends = [isqrt(a * b) for a, b in pairwise(sizes)]
    least = [max(size // NEAR, end + 1) for size, end in zip(sizes, [-1, *ends], strict=True)]
    most = [min(size * NEAR, end) for size, end in zip(sizes, [*ends, sizes[-1] * NEAR], strict=True)]
    return {(kind, ranks, x): span for x, span in zip(sizes, zip(least, most, strict=True), strict=True)}


def _ranges(machine: Machine, what: str, ranks: int) -> Iterator[tuple[int, int, str]]:
    """Yield the ranges of sizes at which one way takes least, and that way."""
    begin, last = 0, ""
    for nbytes in SIZES:
        name = _fastest(machine, what, tuple(range(ranks)), nbytes)
        if last and name != last:
            yield begin, nbytes - 1, last
            begin = nbytes
        last = name
    yield begin, 2**33, last


def _fastest(machine: Machine, what: str, ranks: tuple[int, ...], nbytes: int) -> str:
    """Return the fastest way, which need not be the one that the library's own estimates choose."""
    assert machine.library is not None
    total = machine.device_count
    if len(domains(machine, ranks, total)) > 1:
        return choose(machine, what, ranks, total, nbytes).name
    ways = [name for name, pace in machine.library.ways(what).items() if pace.joins(len(ranks))]
    return min(ways, key=lambda way: choose(machine, what, ranks, total, nbytes, way).seconds)


def _groups(machine: Machine) -> list[int]:
    """Return the sizes of groups: halves of the machine, down to two, that its nodes fill alike."""
    sizes = [x for x in range(2, machine.device_count + 1) if machine.device_count % x == 0]
    return [x for x in sizes if refuses(machine, range(x), machine.device_count) is None]


def _expect_library(machine: Machine) -> None:
    if machine.library is None:
        raise MachineError(
            f"the file of {machine.name} has no [library], so what its collectives take is not known; "
            "fit one with 'umm machine import' of nccl-tests' logs, or choose h100-8, b200-8 or mi355x-8"
        )
    if not _groups(machine):
        raise MachineError(f"{machine.name} has no two devices that its library joins; give more --nodes")

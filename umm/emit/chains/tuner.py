"""The NCCL tuner's lines for the collectives of one schedule, where the library shall take a way."""

from umm.emit.collective_tables import TAKE_TUNERS, TUNED, WAYS
from umm.errors import InputError
from umm.machines import Machine
from umm.plans.collectives.library import choose, domains, refuses
from umm.profiles.kernel import Kernel
from umm.profiles.scheduled import trace_kernels
from umm.traces.trace import Trace

NEAR = 2  # factor of a collective's bytes, down and up, for which its line holds: buckets differ a little


def tuner_lines(trace: Trace, machine: Machine) -> str:
    """Return lines of NCCL's example tuner for the gathers and sums of a schedule.

    InputError for a machine without such a library, or a schedule without collectives.
    """
    library = machine.library
    if library is None or library.name not in TAKE_TUNERS:
        raise InputError(f"{machine.name} has no library that takes a tuner; choose one with NCCL or RCCL")
    lines = ["# collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks"]
    sizes: dict[tuple[str, int, int], Kernel] = {}
    for rank in {0, trace.schedule.ranks - 1}:
        for one in trace_kernels(trace, rank):
            if one.kind in TUNED:
                sizes.setdefault((one.kind, one.ranks, one.nbytes), one)
    for (kind, ranks, nbytes), one in sorted(sizes.items()):
        if refuses(machine, one.group, machine.device_count) is not None:
            lines.append(
                f"# {kind} of {nbytes} bytes over ranks {one.group[0]} to {one.group[-1]}: not NCCL's"
            )
            continue
        way = choose(machine, kind, one.group, machine.device_count, nbytes).name
        algorithm, protocol = WAYS.get(way, (way, "simple"))
        nodes = len(domains(machine, one.group, machine.device_count))
        spelled = TUNED[kind]
        lines.append(f"{spelled},{nbytes // NEAR},{nbytes * NEAR},{algorithm},{protocol},-1,{nodes},{ranks}")
    if len(lines) == 1:
        raise InputError("the schedule gathers and sums nothing that NCCL's tuner names")
    lines.append("# umm moves one-sided, in slices; the lines are of collectives of the same bytes and ranks")
    return "\n".join([*lines, ""])

"""The plan that a schedule performs: its actions as jobs and moves, each purpose once."""

import numpy as np

from umm.arrays import Ints
from umm.machines import Machine
from umm.plans.collectives.library import LIBRARY
from umm.plans.collectives.rings import node_of_ranks
from umm.program.plan import Jobs, Moves, Plan, Regions
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, GEMM, KINDS, MAP, REDUCE, TRANSFERS, is_one_of

INSIDE, BETWEEN = "inside a node", "between nodes"


def plan_on(schedule: Schedule, machine: Machine) -> Plan:
    """Return the jobs and moves of a schedule, those between nodes of the machine apart."""
    one = np.zeros(schedule.ranks, dtype=np.int64)
    return plan_of(schedule, node_of_ranks(machine, schedule.ranks) if machine.fabric.nodes else one)


def plan_of(schedule: Schedule, node_of: Ints) -> Plan:
    """Return the jobs and moves of a schedule, in the order in which the first action of each is written.

    Actions on the same tensors, of one kind and one level, are one entry. Copies and adds within a rank, and
    actions without operands, are left out.
    """
    kind, moves = schedule.kind, is_one_of(schedule.kind, TRANSFERS)
    details, buffers = schedule.details, schedule.buffers
    tensors = [schedule.operand_tensors(x) for x in range(schedule.details.operands)]
    far = moves & (node_of[schedule.src] != node_of[schedule.dst])
    by_library = np.array([x.startswith(LIBRARY) for x in schedule.lanes.names], np.bool_)[schedule.lane]
    some = np.where(moves, schedule.src != schedule.dst, is_one_of(kind, (GEMM, MAP))).nonzero()[0]
    adds = is_one_of(kind, (ACCUMULATE, REDUCE))
    # Functions of one name differ in parameters alone, such as the rows of an expert: they are one entry.
    names = [x.name for x in schedule.functions]
    kernel = np.array([*map(names.index, names), -1])[schedule.details.fn]
    alike = np.where(moves, adds, kind)
    keys = np.column_stack((moves, alike, kernel, far, by_library & moves, *tensors))[some]
    # `unique` sorts keys; `first.argsort()` restores the order in which entries are first written.
    _, first, entry = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    rows = [some[entry.reshape(-1) == x] for x in first.argsort().tolist()]
    several = len(np.unique(node_of)) > 1
    plan = list[Jobs | Moves]()
    for actions in rows:
        one = int(actions[0])
        operands = list[Regions]()
        for x in (x for x, tensor in enumerate(tensors) if tensor[one] >= 0):
            buffer = details.buffer[actions, x]
            spans = np.concatenate((details.rows[actions, x], details.cols[actions, x]), axis=1)
            name = schedule.tensors[buffers.tensor[buffer[0]]].name
            operands.append(Regions(name, buffers.rank[buffer], spans))
        if moves[one]:
            level = (BETWEEN if far[one] else INSIDE) if several else ""
            way = "library" if by_library[one] else KINDS[kind[one]]
            group = _groups(schedule.src[actions], schedule.dst[actions], schedule.ranks)
            plan.append(Moves(operands[1], operands[0], bool(adds[one]), group, f"{way} {level}".strip()))
        else:
            fn = int(schedule.details.fn[one])
            name = schedule.functions[fn].name if kind[one] == MAP else KINDS[GEMM]
            added = (schedule.kind[actions] == GEMM) & (schedule.details.beta[actions] != 0)
            plan.append(Jobs(operands[0], tuple(operands[1:]), name, added))
    return tuple(plan)


def _groups(src: Ints, dst: Ints, ranks: int) -> Ints:
    """Return for each move the least rank of those that are joined by moves to its ends.

    >>> _groups(np.array([0, 1, 4]), np.array([1, 2, 5]), 6).tolist()
    [0, 0, 4]
    """
    least = np.arange(ranks)
    while True:
        # Connected components by label propagation: the least label spreads until nothing changes.
        lower = np.minimum(least[src], least[dst])
        before = least.copy()
        for ends in (src, dst):
            np.minimum.at(least, ends, lower)
        if (least == before).all():
            return np.asarray(least[src])

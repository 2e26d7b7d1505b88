"""A schedule as text that a person can read, an action a line."""

from umm.schedules.table.details import BARRIER, GEMM, KINDS, LOCAL, MAP
from umm.schedules.table.table import Table
from umm.units import format_bytes, format_seconds

MOST_LINES = 200


def text(schedule: Table) -> str:
    """Return the schedule as text: who does what on which lane, for how long, and after what.

    A slice is a tensor and its rows and columns; ``s2:A[0:4,0:8]`` is a piece of A in the rank's pool slot 2.
    A gemm that starts with ``+=`` adds to what is there.
    """
    program = schedule.program
    sizes = program.title.removeprefix("C = AB, ").replace("×", "x")
    lines = [
        f"{schedule.stationary} of {sizes} on {schedule.machine}: "
        f"{schedule.ranks} ranks, {len(schedule.lanes)} lanes, {len(schedule)} actions"
    ]
    lines += [_line(schedule, i) for i in range(min(len(schedule), MOST_LINES))]
    if len(schedule) > MOST_LINES:
        lines.append(f"  … {len(schedule) - MOST_LINES} more")
    return "\n".join(lines)


def slice_text(schedule: Table, action: int, operand: int) -> str:
    """Return one operand of an action: its tensor, rows and columns, and its pool slot if it is in one."""
    slot = _slot(schedule, action, operand)
    return f"{slot}:{_piece(schedule, action, operand)}" if slot else _piece(schedule, action, operand)


def _slot(schedule: Table, action: int, operand: int) -> str:
    slot = int(schedule.buffers.slot[schedule.details.buffer[action, operand]])
    return "" if slot < 0 else f"s{slot}"


def _piece(schedule: Table, action: int, operand: int) -> str:
    details = schedule.details
    tensor = schedule.tensors[schedule.buffers.tensor[details.buffer[action, operand]]]
    (r0, r1), (c0, c1) = details.rows[action, operand].tolist(), details.cols[action, operand].tolist()
    transposed = "ᵀ" if operand and int(details.trans[action]) >> operand & 1 else ""
    return f"{tensor.name}[{r0}:{r1},{c0}:{c1}]{transposed}"


def _line(schedule: Table, i: int) -> str:
    kind, rank, lane = int(schedule.kind[i]), int(schedule.rank[i]), int(schedule.lane[i])
    src, dst, seconds = int(schedule.src[i]), int(schedule.dst[i]), float(schedule.seconds[i])
    what = []
    if kind == GEMM:
        what.append(_gemm(schedule, i))
    elif kind == MAP:
        name = schedule.functions[schedule.details.fn[i]].name
        reads = [slice_text(schedule, i, x) for x in (1, 2, 3) if schedule.details.buffer[i, x] >= 0]
        what.append(f"{slice_text(schedule, i, 0)} = {name}({', '.join(reads)})")
    elif kind not in (LOCAL, BARRIER):
        what += [_moved(schedule, i), format_bytes(int(schedule.nbytes[i]))]
    if kind in (GEMM, MAP, LOCAL) or (src >= 0 and (src == dst or seconds)):
        what.append(format_seconds(seconds))
    waits = schedule.after_of(i).tolist()
    if waits:
        what.append(" after " + (" ".join(map(str, waits)) if len(waits) <= 6 else f"{len(waits)} actions"))
    who = "all" if rank < 0 else f"r{rank}"
    name = "" if lane < 0 else schedule.lanes.names[lane]
    return f"{i:>6} {who:<5} {name:<13} {KINDS[kind]:<10} {' '.join(what)}".rstrip()


def _moved(schedule: Table, i: int) -> str:
    """Return what moves, from where to where; the same piece is named once."""
    same = _piece(schedule, i, 0) == _piece(schedule, i, 1)
    there = _slot(schedule, i, 0) if same else slice_text(schedule, i, 0)
    return f"r{int(schedule.src[i])} {slice_text(schedule, i, 1)} → r{int(schedule.dst[i])} {there}".rstrip()


def _gemm(schedule: Table, i: int) -> str:
    c, a, b = (slice_text(schedule, i, x) for x in range(3))
    details = schedule.details
    alpha, beta, batch = float(details.alpha[i]), float(details.beta[i]), int(details.batch[i])
    gains = "=" if beta == 0 else "+=" if beta == 1 else f"= {beta:g} {c} +"
    factor = "" if alpha == 1 else f"{alpha:g} "
    members = "" if batch == 1 else f" in {batch} members"
    return f"{c} {gains} {factor}{a} {b}{members}"

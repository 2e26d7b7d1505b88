"""Why a schedule takes its time: steps of the slowest rank or statements, and the waits of its trace."""

import re
from collections import Counter

import numpy as np

from umm.arrays import Ints
from umm.machines.fabric import narrowest
from umm.plans.multiply.policies import find_policy
from umm.policies.model import TableStep, action_seconds, model_cost, steps
from umm.policies.policy import StepPolicy
from umm.program.chain import Chain
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, GEMM, KINDS, MAP, REDUCE, TRANSFERS
from umm.traces.bottleneck import critical_path, path_times, waits_for
from umm.traces.trace import Trace
from umm.units import format_seconds, percent

MAX_STEPS = 12  # steps listed one by one
WAITS = 5  # transfers of the critical path listed one by one
LEAST = 0.005  # share of the critical path of a kind that is named
WIDEST = 42  # columns of a statement


def explain(schedule: Schedule, trace: Trace) -> str:
    """Return why a schedule takes the time it takes, in lines of text.

    Of one multiply first the rank whose steps take longest without latency and contention: what its time
    consists of and, step by step, whether multiplies or transfers last longer, by how much, and which
    transfer over which link is the longest. Of a chain the statements that its critical path is spent on,
    each with what it waits for. Then what the critical path consists of, and its longest transfers.

    Args:
        schedule: Of one that no policy made, such as Cannon's, there are no steps; of direct execution its
            natural ones are shown.

    >>> import umm
    >>> problem = umm.Problem(m=4096, n=4096, k=4096, a="col", b="row", c="row", ranks=2)
    >>> schedule = umm.schedule(problem, "pvc-12", stationary="B", policy="greedy", max_gemms=1)
    >>> print(explain(schedule, umm.run(schedule)))
    greedy: 3.38 ms by sim
    rank 0 has the longest steps, 3 in 3.38 ms without latency and contention
      multiplies 3.20 ms, transfers 243.8 µs, 61.44 µs of them overlapped
      step 0: multiplies last 1.60 ms longer than transfers
      step 1: multiplies last 1.54 ms longer than transfers
      step 2: transfers last 182.4 µs longer than multiplies
        longest: accumulate C(1,0) r0 → r1 on 0.0→0.1, 182.4 µs
    critical path: gemm 94 %, accumulate 6 %
      rank 0 waited 188.4 µs for accumulate C(1,0) r0 → r1 on 0.0→0.1
    """
    if schedule.program.kind == "chain":
        path = critical_path(trace)
        return "\n".join(_by_statement(trace, path) + _held_up(trace, path))
    took = f"{format_seconds(trace.makespan_s)} by {trace.source}"
    if "policy" not in schedule.options:
        return "\n".join([f"{schedule.name}: {took}", *_held_up(trace, critical_path(trace))])
    by_rank = steps(schedule)
    rank = int(np.argmax([sum(step.seconds for step in of_rank) for of_rank in by_rank]))
    of_rank = by_rank[rank]
    total = sum(step.seconds for step in of_rank)
    gemms, communication = sum(s.computation for s in of_rank), sum(s.communication for s in of_rank)
    policy = schedule.options["policy"]
    as_if = (
        "without latency and contention"
        if isinstance(find_policy(policy), StepPolicy)
        else "if none overlapped the next"
    )
    lines = [
        f"{policy}: {took}",
        f"rank {rank} has the longest steps, {len(of_rank)} in {format_seconds(total)} {as_if}",
        f"  multiplies {format_seconds(gemms)}, transfers {format_seconds(communication)}, "
        f"{format_seconds(gemms + communication - total)} of them overlapped",
    ]
    differs = [abs(step.communication - step.computation) for step in of_rank]
    listed = sorted(range(len(of_rank)), key=lambda t: -differs[t])[:MAX_STEPS]
    lines += [f"  step {t}: {_step(schedule, of_rank[t])}" for t in sorted(listed)]
    if len(of_rank) > MAX_STEPS:
        lines.append(f"  {len(of_rank) - MAX_STEPS} more steps, balanced better")
    if (replicas := model_cost(schedule) - total) > 0:
        lines.append(f"  replicas of C: {format_seconds(replicas)} more")
    return "\n".join(lines + _held_up(trace, critical_path(trace)))


def _step(schedule: Schedule, step: TableStep) -> str:
    """Return the longer side of a step, and by how much."""
    apart = format_seconds(abs(step.communication - step.computation))
    if step.communication <= step.computation:
        return f"multiplies last {apart} longer than transfers"
    took = action_seconds(schedule)
    longest = max((i for i in step.actions if schedule.kind[i] != GEMM), key=lambda i: float(took[i]))
    return (
        f"transfers last {apart} longer than multiplies\n"
        f"    longest: {_named(schedule, longest)}, {format_seconds(float(took[longest]))}"
    )


def _named(schedule: Schedule, action: int) -> str:
    """Return an action in words: the slice, the ranks, the link."""
    kind, src, dst = KINDS[schedule.kind[action]], int(schedule.src[action]), int(schedule.dst[action])
    target = schedule.operand_tensors(0)[action]
    i, j = schedule.touched_tiles(int(target))[action].tolist() if target >= 0 else (0, 0)
    tile = f"{schedule.tensors[target].name}({i},{j})" if target >= 0 else ""
    if schedule.kind[action] == MAP:
        return f"{schedule.functions[schedule.details.fn[action]].name} of {tile}"
    if schedule.kind[action] == GEMM:
        return f"the multiply into {tile}"
    if src < 0:
        return "the start of a collective"
    moved = f"{kind} {tile}"
    if src == dst:
        return f"{moved} within r{src}"
    link = narrowest(schedule.routes[src, dst], schedule.links.bandwidth)
    return f"{moved} r{src} → r{dst} on {schedule.links.names[link]}"


def _by_statement(trace: Trace, path: Ints) -> list[str]:
    """Return the statements on which a chain's critical path is spent, and the resource each waits for."""
    schedule, total = trace.schedule, trace.makespan_s
    seconds, _ = path_times(trace, path)
    spent: dict[str, Counter[str]] = {}
    for action, took, what in zip(path.tolist(), seconds.tolist(), waits_for(schedule, path), strict=True):
        spent.setdefault(_OF_LAYER.sub(r"\1", _statement(schedule, action)), Counter())[what] += took
    longest = sorted(spent, key=lambda x: -spent[x].total())[:MAX_STEPS]
    lines = [f"{format_seconds(total)} by {trace.source}, along the critical path:"]
    for statement in longest:
        took = spent[statement].total()
        what = spent[statement].most_common(1)[0][0]
        if took > 0:
            lines.append(
                f"  {percent(took / total, 1):>6} {format_seconds(took):>8}  {shortened(statement)}: {what}"
            )
    return lines


def _statement(schedule: Schedule, action: int) -> str:
    """Return the statement of an action, or the sum or the movement of a tensor."""
    target = int(schedule.operand_tensors(0)[action])
    if target < 0:
        return "starting collectives"
    name, kind = schedule.tensors[target].name, schedule.kind[action]
    if kind in TRANSFERS:
        return f"{'summing' if kind in (ACCUMULATE, REDUCE) else 'moving'} {name}"
    fn = schedule.functions[schedule.details.fn[action]].name if kind == MAP else ""
    assert isinstance(schedule.program, Chain)
    writers = [x for x in schedule.program.statements if name in x.outs]
    alike = [
        x for x in writers if (x.kind == "multiply") == (kind == GEMM) and getattr(x, "fn", fn) == fn
    ] or writers
    tensors = (int(schedule.operand_tensors(x)[action]) for x in range(1, schedule.details.operands))
    read = {schedule.tensors[x].name for x in tensors if x >= 0}
    alike.sort(key=lambda x: len(read - set(x.reads)))  # of several into one tensor, the one that reads these
    return str(alike[0]) if alike else f"{fn or 'computing'} {name}"


_OF_LAYER = re.compile(r"(?<!\w)([A-Za-z]\w*)\.\d+\b")
"""A tensor of one of several layers, such as W1.2; they have one line."""


def _held_up(trace: Trace, path: Ints) -> list[str]:
    """Return the parts of the critical path, and its longest waits for transfers and collectives."""
    schedule, total = trace.schedule, trace.makespan_s
    seconds, waiting = path_times(trace, path)
    by_kind = np.bincount(schedule.kind[path], weights=seconds, minlength=len(KINDS))
    shares = [
        f"{KINDS[kind]} {percent(by_kind[kind] / total)}"
        for kind in np.argsort(-by_kind)
        if by_kind[kind] >= LEAST * total
    ]
    if waiting > 0:
        shares.append(f"nothing {percent(waiting / total)}")
    lines = [f"critical path: {', '.join(shares)}"]
    order = np.argsort(-seconds, kind="stable")
    waits: dict[tuple[str, str], list[float]] = {}
    for place in order.tolist():
        action = int(path[place])
        if schedule.kind[action] in (GEMM, MAP) or seconds[place] <= 0:
            continue
        waiter = f"rank {schedule.rank[action]}", _named(schedule, action)
        if waiter not in waits and len(waits) == WAITS:
            break
        waits.setdefault(waiter, []).append(float(seconds[place]))
    for (rank, awaited), times in waits.items():
        often = f", {len(times)} times" if len(times) > 1 else ""
        lines.append(f"  {rank} waited {format_seconds(sum(times))} for {awaited}{often}")
    return lines


def shortened(text: str) -> str:
    """Return a text cut to its room on a terminal's line.

    >>> shortened("O = attention(Q, K, V, K.cache, V.cache) (64 sequences)")
    'O = attention(Q, K, V, K.cache, V.cache)…'
    """
    return text if len(text) <= WIDEST else text[: WIDEST - 1].rstrip() + "…"

"""The step model of a schedule: the steps of its ranks, read back from the table, and their seconds."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from umm.arrays import Floats
from umm.errors import ScheduleError, expect
from umm.plans.multiply.policies import find_policy, policy_names
from umm.policies.graph import seconds_per_byte
from umm.policies.policy import StepPolicy
from umm.schedules.schedule import Schedule
from umm.schedules.table.details import ACCUMULATE, BARRIER, GEMM, GET


class TableStep(NamedTuple):
    """A step of a schedule."""

    actions: list[int]
    # Seconds of its gets and accumulates, one after another, without latency and contention.
    communication: float
    computation: float  # seconds of its gemms

    @property
    def seconds(self) -> float:
        """The cost of the step: the larger of the two."""
        return max(self.communication, self.computation)


def steps(schedule: Schedule) -> list[list[TableStep]]:
    """Return the steps of each rank, without those that sum or broadcast replicas of C.

    ScheduleError for a schedule that no policy made.
    """
    policy = schedule.options.get("policy")
    if policy not in policy_names():
        raise ScheduleError(
            f"the schedule of {schedule.name} has no steps; only those of a policy do "
            f"({', '.join(policy_names())})"
        )
    cut = _as_lowered if isinstance(find_policy(policy), StepPolicy) else _natural
    kind = schedule.kind[: _barriers(schedule)[0]]
    rows = np.nonzero(np.isin(kind, (GET, GEMM, ACCUMULATE)))[0]
    by_rank = rows[np.argsort(schedule.rank[rows], kind="stable")]
    starts = np.searchsorted(schedule.rank[by_rank], np.arange(schedule.ranks + 1))
    took = action_seconds(schedule).tolist()
    cuts = [cut(schedule, by_rank[starts[r] : starts[r + 1]].tolist()) for r in range(schedule.ranks)]
    return [
        [
            TableStep(x, *(sum(took[i] for i in x if (kind[i] == GEMM) == runs) for runs in (False, True)))
            for x in of_rank
        ]
        for of_rank in cuts
    ]


def model_cost(schedule: Schedule) -> float:
    """Return seconds without latency and contention: those of the slowest rank's steps, then of replicas.

    A step takes the longer of its communication and its computation.
    Replicas of C come together after barriers; there a rank's transfers follow each other.

    ScheduleError for a schedule that no policy made.
    """
    expect(schedule, Schedule, "model_cost", "a Schedule; make one with umm.schedule(problem, machine)")
    longest = max((sum(step.seconds for step in of_rank) for of_rank in steps(schedule)), default=0.0)
    took = action_seconds(schedule)
    for barrier, stop in pairwise([*_barriers(schedule), len(schedule)]):
        phase = slice(barrier + 1, stop)
        longest += float(np.bincount(schedule.rank[phase], took[phase]).max(initial=0.0))
    return longest


def _barriers(schedule: Schedule) -> list[int]:
    """Return the barriers after the last gemm, by which replicas of C end; or the end."""
    last = np.nonzero(schedule.kind == GEMM)[0].max(initial=-1)
    barriers = np.nonzero(schedule.kind == BARRIER)[0]
    return barriers[barriers > last].tolist() or [len(schedule)]


def action_seconds(schedule: Schedule) -> Floats:
    """Return the seconds of each action alone: bytes over the narrowest link, or its own seconds."""
    moving = schedule.src != schedule.dst
    seconds = schedule.seconds.copy()
    src, dst = schedule.src[moving], schedule.dst[moving]
    if len(src):
        per_byte = seconds_per_byte(schedule.links, schedule.routes, src, dst)
        seconds[moving] = schedule.nbytes[moving] * per_byte
    return seconds


def _as_lowered(schedule: Schedule, actions: list[int]) -> list[list[int]]:
    """Return a rank's steps: a new one begins with an action that waits for every action of the last."""
    result: list[list[int]] = []
    for action in actions:
        if not result or set(result[-1]) <= set(schedule.after_of(action).tolist()):
            result.append([])
        result[-1].append(action)
    return result


def _natural(schedule: Schedule, actions: list[int]) -> list[list[int]]:
    """Return the steps of a rank in direct execution."""
    options, kind = schedule.options, schedule.kind
    ahead, most, sends = options["prefetch"], options["max_gemms"], options["max_accumulates"]
    gemms = [i for i in actions if kind[i] == GEMM]
    gets = [[x for x in schedule.after_of(i).tolist() if kind[x] == GET] for i in gemms]
    sent_by = {
        x: i
        for i in actions
        if kind[i] == ACCUMULATE
        for x in schedule.after_of(i).tolist()
        if kind[x] == GEMM
    }
    have: set[int] = set()
    waiting: list[int] = []
    result: list[list[int]] = []
    done = 0
    while done < len(gemms) or waiting:
        run = 0
        room = min(most, most + sends - len(waiting), len(gemms) - done)
        while run < room and have.issuperset(gets[done + run]):
            run += 1
        window = gets[done : done + (run + ahead if run else max(ahead, 1))]
        fetch = list(dict.fromkeys(x for of_op in window for x in of_op if x not in have))
        step = gemms[done : done + run]
        result.append([*fetch, *waiting[:sends], *step])
        have.update(fetch)
        waiting = waiting[sends:] + [sent_by[i] for i in step if i in sent_by]
        done += run
    return [step for step in result if step]

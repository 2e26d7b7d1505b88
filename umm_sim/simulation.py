"""One schedule played on a clock: every action starts when the last thing it waits for has finished."""

from umm.errors import ScheduleError
from umm.schedules.collector import without_collector
from umm.schedules.kinds import BARRIER
from umm.schedules.schedule import Schedule
from umm_sim.clock import Clock
from umm_sim.engines import found_engines
from umm_sim.fabric.choice import fabric_model
from umm_sim.fabric.routes import routed
from umm_sim.successors import successors_of


@without_collector()
def simulate(schedule: Schedule) -> tuple[list[float], list[float]]:
    """Return when each action starts and finishes, in seconds.

    Raises:
        ScheduleError: if some actions never finish, because what they wait for waits for them.
    """
    clock = Clock()
    after = successors_of(schedule)
    waiting, offsets, successors = after.waiting, after.offsets, after.successors
    seconds, barriers = schedule.seconds.tolist(), {*(schedule.kind == BARRIER).nonzero()[0].tolist()}
    started, finished = [0.0] * len(seconds), [-1.0] * len(seconds)
    engines = found_engines(clock, schedule, lambda action: finish(action))
    disturbs = engines.disturbs if engines else []
    computes = engines.computes if engines else []

    def begin(action: int) -> None:
        started[action] = clock._now
        if codes[action] >= 0:
            if engines and disturbs[action]:
                engines.disturb(action)
            if seconds[action]:
                at(clock._now + seconds[action], transfer, action)
            else:
                transfer(action)
        elif engines and computes[action]:
            engines.start(action)
        elif action in barriers:
            finish(action)
        else:
            at(clock._now + seconds[action], finish, action)

    def finish(action: int) -> None:
        finished[action] = clock._now
        if engines and disturbs[action]:
            engines.restore(action)
        for successor in successors[offsets[action] : offsets[action + 1]]:
            if waiting[successor] == 1:
                begin(successor)
            else:
                waiting[successor] -= 1

    transfers = routed(schedule)
    codes, at, transfer = transfers.codes, clock.at, fabric_model(clock, transfers, finish).start
    for action in after.first:
        begin(action)
    clock.run()
    if finished and min(finished) < 0:
        raise ScheduleError(f"action {finished.index(min(finished))} never finishes")
    return started, finished

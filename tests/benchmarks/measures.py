"""The measurements, each a function that runs in a process of its own: nothing is warm but the interpreter.

All seconds are processor seconds, which other work on the same cores disturbs less than the time of day.
"""

import gc
import resource
import time
from statistics import fmean

import simpy

import umm
from tests.benchmarks.cases import POINTS, random_points, undisturbed
from tests.benchmarks.simgrid_race import Replay
from tests.reference import process_simulator
from umm.plans.lower import lower as lower_chain
from umm.plans.multiply.oplist import op_list
from umm_sim.executor import SimExecutor

QUEUE = 24  # events outstanding at once: what a schedule of 8 to 12 ranks keeps in SimPy's queue
REFERENCE_POINTS = 100  # of the points, played by the reference version too, which takes its time
OUR_ROUNDS = 20  # in which ours plays them: one takes 3 ms, which a pause would make many times as long


def clocked(function, *arguments, **options):
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


def floor(events=3000):
    """Return the seconds of one SimPy Timeout with a callback, the least an action can cost in SimPy."""
    environment = simpy.Environment()
    left = events

    def again(event):
        nonlocal left
        left -= 1
        if left > 0:
            environment.timeout(1.0).callbacks.append(again)

    for i in range(QUEUE):
        environment.timeout(i / QUEUE).callbacks.append(again)
    return clocked(environment.run)[0] / events


def warm_up(machine):
    """Let the interpreter specialise its bytecode, on points and a machine that are not measured."""
    for problem, stationary in random_points(machine, 20, seed=2):
        schedule = umm.schedule(problem, machine, stationary=stationary)
        SimExecutor().makespan(schedule)
        SimExecutor().run(schedule)
    floor()


def points_round(name):
    """Return the cost of the points of one machine, once without and once with spans kept."""
    warm_up(umm.machine(name))
    simulator = SimExecutor()
    # How the replicas of C are summed is found once for each layout of C, and what a shape costs once, and
    # kept; timed by itself, as 400 points have about 90 of these layouts, and a whole space of 8,232 not many
    # more.
    first = sweep(name, simulator.makespan)[0]
    lower, simulate, floor_s, actions = sweep(name, simulator.makespan)
    _, with_spans, floor_with_spans, _ = sweep(name, simulator.run)
    machine = umm.machine(name)
    few = [umm.schedule(p, machine, stationary=s) for p, s in random_points(machine, REFERENCE_POINTS)]
    ours, _ = clocked(lambda: [simulator.run(schedule) for _ in range(OUR_ROUNDS) for schedule in few])
    reference, _ = clocked(lambda: [process_simulator.simulate(schedule) for schedule in few])
    return {
        "actions_per_point": actions / POINTS,
        "floor_s": floor_s,
        "first_lower_s_per_point": first / POINTS,
        "lower_s_per_point": lower / POINTS,
        "simulate_s_per_point": simulate / POINTS,
        "spans_s_per_point": with_spans / POINTS,
        "simulate_over_floor": simulate / actions / floor_s,
        "spans_over_floor": with_spans / actions / floor_with_spans,
        "points_per_s": POINTS / (lower + simulate),
        "points_per_s_with_spans": POINTS / (lower + with_spans),
        "reference_over_ours": reference / (ours / OUR_ROUNDS),
    }


def sweep(name, play):
    """Lower and play the points one after the other, nothing kept, with the floor measured in between.

    Returns:
        Seconds of all lowering, of all playing, of one event of the floor, and the number of actions.
    """
    machine = umm.machine(name)  # a new one, so that nothing is remembered from an earlier sweep
    lower = simulate = 0.0
    floors, actions = [], 0
    for number, (problem, stationary) in enumerate(random_points(machine, POINTS)):
        seconds, schedule = clocked(umm.schedule, problem, machine, stationary=stationary)
        lower += seconds
        simulate += clocked(play, schedule)[0]
        actions += len(schedule)
        if number % 10 == 0:
            floors.append(floor())
    return lower, simulate, fmean(floors), actions


def points_race(name, program, folder):
    """Simulate the points of one machine here and in SimGrid; processor seconds of every point."""
    warm_up(umm.machine(name))
    machine = umm.machine(name)
    points = random_points(machine, POINTS)
    schedules = [undisturbed(umm.schedule(p, machine, stationary=s)) for p, s in points]
    return race(schedules, program, folder)


def large_race(case, program, folder):
    """Simulate one large case here and in SimGrid."""
    warm_up(umm.machine(case.machine))
    return race([undisturbed(case.schedule())], program, folder)


def race(schedules, program, folder):
    replay, simulator = Replay(folder, program, schedules), SimExecutor()
    gc.collect()
    gc.freeze()  # a sweep does not keep the schedules, so collections should not look at them
    ours, mine = zip(*(clocked(simulator.makespan, s) for s in schedules), strict=True)
    platform, theirs, makespans = replay.run()
    return {
        "actions": sum(map(len, schedules)),
        "ours_s": list(ours),
        "simgrid_s": theirs,
        "simgrid_platform_s": platform,
        "worst_difference": max(abs(x / y - 1) for x, y in zip(makespans, mine, strict=True)),
    }


def op_lists():
    """Return the ops per second of the op list generator at p = 256: aligned and misaligned layouts."""
    rates = {}
    for name, a, b, c in (("aligned", "col", "col", "col"), ("misaligned", "row", "col@2", "2d@4")):
        problem = umm.Problem(m=8192, n=49152, k=12288, a=a, b=b, c=c, ranks=256)
        op_list(problem, "C")
        seconds, ops = clocked(op_list, problem, "C")
        rates[name] = {"ops": len(ops), "ops_per_s": len(ops) / seconds}
    return rates


def growth(case):
    """Return the seconds and the peak memory of one large case."""
    warm_up(umm.machine("h100-8"))
    start = time.perf_counter()
    lower, schedule = clocked(case.schedule)
    simulate, _ = clocked(SimExecutor().makespan, schedule)
    return {
        "ranks": case.ranks,
        "actions": len(schedule),
        "lower_s": lower,
        "simulate_s": simulate,
        "elapsed_s": time.perf_counter() - start,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def chain_of_many(ranks):
    """Lower and simulate a gated MLP and its gradients by one-sided gets; beside it its first multiply."""
    machine = umm.machine(f"dgx-h100x4 nodes={ranks // 8}")
    outline = umm.chain("gated-mlp", hidden=8192, ffn=28672, tokens=8192, backward=True, dtype="bfloat16")
    names = [x.name for x in outline.laid_out("sequence", ranks).tensors]
    chain = outline.with_layouts("row", dict.fromkeys(names, "row")).laid_out("row", ranks)
    lower_s, schedule = clocked(lower_chain, chain, machine, movement="flat")
    simulate_s, _ = clocked(SimExecutor().makespan, schedule)
    problem = umm.Problem(m=8192, n=28672, k=8192, a="row", b="row", c="row", ranks=ranks, dtype="bfloat16")
    one_lower_s, one = clocked(umm.schedule, problem, machine, stationary="C")
    one_simulate_s, _ = clocked(SimExecutor().makespan, one)
    return {
        "actions": len(schedule),
        "lower_s": lower_s,
        "simulate_s": simulate_s,
        "multiply_actions": len(one),
        "multiply_lower_s": one_lower_s,
        "multiply_simulate_s": one_simulate_s,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }

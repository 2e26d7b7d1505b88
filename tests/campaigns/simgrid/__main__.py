"""``python -m tests.campaigns.simgrid``: every makespan against SimGrid's; exit status 1 if one differs."""

import json
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.campaigns.simgrid.schedules import COLLECTIONS, collection
from umm_sim.executor import SimExecutor

EXACT = 1e-9  # relative difference that needs no excuse
JITTER = 1e-12  # relative change of seconds and nbytes that shows how chaotic a schedule is
SYSTEM_PYTHON = "/usr/bin/python3"


def main():
    simulator = SimExecutor()
    print(f"{'machine':<20} {'ranks':>5} {'schedules':>9} {'actions':>8} {'worst':>8}  beyond 1e-9 (spread)")
    wrong = []
    for machine, ranks, count, fewest, most, ways in COLLECTIONS:
        schedules = collection(machine, ranks, count, fewest, most, ways)
        theirs = simgrid_makespans(schedules)
        worst, beyond = 0.0, []
        for number, schedule in enumerate(schedules):
            mine = simulator.makespan(schedule)
            difference = abs(theirs[number] - mine) / mine if mine else abs(theirs[number])
            worst = max(worst, difference)
            if difference > EXACT:
                spread = jitter_spread(schedule)
                beyond.append(f"{difference:.1e} ({spread:.1e})")
                if difference > 10 * spread:
                    wrong.append(f"{machine} schedule {number}: {mine} s, SimGrid has {theirs[number]} s")
        print(
            f"{machine:<20} {ranks or 'any':>5} {count:>9} {sum(map(len, schedules)):>8} {worst:>8.1e}  "
            f"{len(beyond)}/{count} {' '.join(beyond)}",
            flush=True,
        )
    for line in wrong:
        print(line)
    print("unequal" if wrong else "all equal within 1e-9 relative, or 10 times the spread of a 1e-12 jitter")
    sys.exit(bool(wrong))


def simgrid_makespans(schedules):
    """Return the makespan of each schedule in SimGrid, played by the system's Python."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "schedules.jsonl"
        file.write_text("".join(schedule.to_json().replace("\n", "") + "\n" for schedule in schedules))
        replay = Path(__file__).with_name("replay.py")
        answers = subprocess.run(
            [SYSTEM_PYTHON, replay, file], check=True, stdout=subprocess.PIPE, text=True
        ).stdout.splitlines()
    makespans = {answer["schedule"]: answer["makespan"] for answer in map(json.loads, answers)}
    if len(makespans) < len(schedules):
        sys.exit(f"SimGrid played {len(makespans)} of {len(schedules)} schedules")
    return makespans


def jitter_spread(schedule, tries=8):
    """Return the relative spread of the makespan under random changes of 1e-12 of seconds and nbytes."""
    random_numbers = np.random.default_rng(1)

    def jittered(column):
        return column * (1 + JITTER * random_numbers.uniform(-1, 1, len(column)))

    times = [
        SimExecutor().makespan(
            replace(schedule, seconds=jittered(schedule.seconds), nbytes=jittered(schedule.nbytes))
        )
        for _ in range(tries)
    ]
    return (max(times) - min(times)) / min(times)


if __name__ == "__main__":
    main()

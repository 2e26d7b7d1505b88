"""SimGrid's C++ interface on the same schedules: builds the replay, writes the schedules, reads its times."""

import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("simgrid_replay.cpp")


class Replay:
    """The compiled replay and a file of schedules of one fabric, interference off, exclusive engines."""

    def __init__(self, folder, program, schedules):
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".txt", delete=False) as file:
            write(schedules, file)
        # SimGrid tells each setting that is changed.
        self.command = [program, file.name, "--log=xbt_cfg.threshold:warning"]

    def run(self):
        """Return the seconds to build the platform, and the seconds and the makespan of each schedule."""
        answer = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True).stdout
        platform, *lines = answer.splitlines()
        seconds, makespans = zip(*(map(float, line.split()) for line in lines), strict=True)
        return float(platform), list(seconds), list(makespans)


def build(folder):
    """Return the compiled replay; None where g++ or SimGrid's headers are missing."""
    program = Path(folder) / "simgrid_replay"
    if not shutil.which("g++") or not Path("/usr/include/simgrid/s4u.hpp").exists():
        return None
    subprocess.run(["g++", "-O2", "-std=c++17", SOURCE, "-o", program, "-lsimgrid"], check=True)
    return program


def write(schedules, file):
    """Write a fabric and its schedules as the numbers the C++ program reads."""
    first = schedules[0]
    pairs = sorted({pair for schedule in schedules for pair in schedule.used_pairs()})
    bandwidth, latency = first.links.bandwidth.tolist(), first.links.latency.tolist()
    lanes = max(len(schedule.lanes) for schedule in schedules)
    print(first.ranks, lanes, len(bandwidth), len(pairs), file=file)
    print(*bandwidth, file=file)
    for src, dst in pairs:
        route = first.routes[src, dst]
        print(src, dst, sum(latency[link] for link in route), len(route), *route, file=file)
    for schedule in schedules:
        print(len(schedule), file=file)
        for number in range(len(schedule)):
            src, dst = int(schedule.src[number]), int(schedule.dst[number])
            moves = src != dst
            amount = float(schedule.nbytes[number]) if moves else float(schedule.seconds[number])
            after = schedule.after_of(number).tolist()
            print(
                int(schedule.lane[number]), *((src, dst) if moves else (-1, -1)), amount, len(after), *after,
                file=file,
            )  # fmt: skip

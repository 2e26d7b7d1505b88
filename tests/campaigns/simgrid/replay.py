"""Plays schedules in SimGrid, from their JSON alone: an implementation of the semantics that shares nothing.

Run by the system's Python, which has SimGrid's bindings: ``python3 replay.py FILE``, where each line of FILE
is a schedule. Writes one line of JSON per schedule, its number and its makespan. SimGrid allows one
simulation per process, so every schedule is played in a fork.
"""

import json
import os
import sys

CONFIGURATION = [
    "network/model:CM02",  # max-min fair sharing of links, nothing of TCP
    "network/bandwidth-factor:1",
    "network/latency-factor:1",
    "network/weight-S:0",
    "network/TCP-gamma:0",
    "network/crosstraffic:0",
    "surf/precision:1e-12",
    "maxmin/precision:1e-12",
]
ENGINE_SPEED = 1e12  # flop/s of a SimGrid host that stands for a GEMM engine: 1 s of engine is 1e12 flop


class Replay:
    """One schedule: an actor for every lane, a host for every rank and for every GEMM engine."""

    def __init__(self, simgrid, schedule):
        self.simgrid, self.schedule, self.actions = simgrid, schedule, schedule["actions"]
        configuration = [f"--cfg={setting}" for setting in CONFIGURATION]
        self.engine = simgrid.Engine(["replay", "--log=xbt_cfg.threshold:warning", *configuration])
        self.waits_for = [len(set(action["after"])) for action in self.actions]
        self.successors = [[] for _ in self.actions]
        for action in self.actions:
            for before in set(action["after"]):
                self.successors[before].append(action["id"])
        self.asleep = {}  # the semaphore of a lane that waits for an action's dependencies
        self.build_platform()

    def build_platform(self):
        zone = self.simgrid.NetZone.create_full_zone("fabric")
        links = [
            zone.create_link(f"link {i}", link["bandwidth"]).set_latency(0.0).seal()
            for i, link in enumerate(self.schedule["links"])
        ]
        self.ranks = [zone.create_host(f"rank {i}", 1.0) for i in range(self.schedule["ranks"])]
        engines = {lane["engine"] for lane in self.schedule["lanes"]} - {None}
        self.gemm_engines = {i: zone.create_host(f"engine {i}", ENGINE_SPEED) for i in sorted(engines)}
        self.latency = {}
        for src, dst, route in self.schedule["routes"]:
            through = [self.simgrid.LinkInRoute(links[link]) for link in route]
            ends = self.ranks[src].netpoint, self.ranks[dst].netpoint
            zone.add_route(*ends, None, None, through, False)
            self.latency[src, dst] = sum(self.schedule["links"][link]["latency"] for link in route)
        zone.seal()

    def makespan(self):
        lanes = {}
        for action in self.actions:
            if action["kind"] != "barrier":
                lanes.setdefault(action["lane"], []).append(action)
            elif not action["after"]:
                self.finish(action["id"])
        for number, actions in lanes.items():
            lane = self.schedule["lanes"][number]
            host = self.ranks[lane["rank"]] if lane["engine"] is None else self.gemm_engines[lane["engine"]]
            self.simgrid.Actor.create(f"lane {number}", host, self.play, actions)
        self.engine.run()
        if any(self.waits_for):
            raise RuntimeError("some actions never started")
        return self.engine.clock

    def play(self, actions):
        """Perform a lane's actions one after the other, each when all it waits for has finished."""
        for action in actions:
            number = action["id"]
            if self.waits_for[number]:
                self.asleep[number] = self.simgrid.Semaphore(0)
                self.asleep[number].acquire()
            self.perform(action)
            self.finish(number)

    def perform(self, action):
        src, dst = action.get("src"), action.get("dst")
        if src != dst:
            self.simgrid.this_actor.sleep_for(action.get("seconds", 0.0) + self.latency[src, dst])
            self.simgrid.Comm.sendto(self.ranks[src], self.ranks[dst], action["nbytes"])
        elif action["kind"] == "local" or self.schedule["lanes"][action["lane"]]["engine"] is None:
            self.simgrid.this_actor.sleep_for(action["seconds"])
        else:
            # On the engine's host, which SimGrid shares equally among all the work that runs on it.
            self.simgrid.this_actor.execute(action["seconds"] * ENGINE_SPEED)

    def finish(self, number):
        for successor in self.successors[number]:
            self.waits_for[successor] -= 1
            if self.waits_for[successor]:
                continue
            if self.actions[successor]["kind"] == "barrier":
                self.finish(successor)
            elif successor in self.asleep:
                self.asleep.pop(successor).release()


def play_all(path):
    import simgrid

    with open(path, encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            child = os.fork()
            if child == 0:
                try:
                    answer = {"schedule": number, "makespan": Replay(simgrid, json.loads(line)).makespan()}
                    os.write(1, (json.dumps(answer) + "\n").encode())
                finally:
                    os._exit(0)  # SimGrid's own tear-down takes longer than the simulation
            os.waitpid(child, 0)


if __name__ == "__main__":
    play_all(sys.argv[1])

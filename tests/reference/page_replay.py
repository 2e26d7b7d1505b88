"""The makespan of a schedule's file by the rules of docs/reference/schedule.md, with nothing of the package.

Slow and plain: at each instant everything that may start starts, then all rates are computed anew.
"""

import json
import random

NEVER = float("inf")
TRANSFERS = {"get", "put", "accumulate", "reduce", "broadcast"}


def makespan(text):
    """Return the last finish of a schedule, in seconds, from the text of its file."""
    return _Replay(json.loads(text)).play()


def jittered(text, seed):
    """Return the makespan with all seconds and bytes off by up to 1e-12, which shows how chaotic it is."""
    data, draw = json.loads(text), random.Random(seed)
    for action in data["actions"]:
        for key in {"seconds", "nbytes"} & action.keys():
            action[key] *= 1 + 1e-12 * draw.uniform(-1, 1)
    return _Replay(data).play()


class _Replay:
    def __init__(self, data):
        self.actions = data["actions"]
        self.engine = [lane["engine"] for lane in data["lanes"]]
        self.bandwidth = [link["bandwidth"] for link in data["links"]]
        latency = [link["latency"] for link in data["links"]]
        self.routes = {(src, dst): route for src, dst, route in data["routes"]}
        self.latency = {pair: sum(latency[link] for link in route) for pair, route in self.routes.items()}
        self.kinds, self.means = data["interference"], data["means"]
        self.lanes = {}
        for number, action in enumerate(self.actions):
            lane = action["lane"] if action["lane"] >= 0 else ("barrier", number)
            self.lanes.setdefault(lane, []).append(number)
        self.turn = dict.fromkeys(self.lanes, 0)
        self.finished = [False] * len(self.actions)
        self.until = {}  # what takes or waits so long: its end
        self.left = {}  # work of engines: seconds; transfers whose latency is over: bytes

    def moves(self, i):
        """Whether its bytes cross links."""
        action = self.actions[i]
        return action["kind"] in TRANSFERS and action["src"] != action["dst"]

    def works(self, i):
        """Whether it is work of an engine."""
        action = self.actions[i]
        kind = action["kind"]
        here = kind in ("gemm", "map") or (kind in TRANSFERS and action["src"] == action["dst"])
        return here and self.engine[action["lane"]] is not None

    def loss(self, i):
        """The share of its own work that a rank loses to a transfer."""
        action = self.actions[i]
        if action.get("means", -1) >= 0:
            return self.means[action["means"]]["interference"]
        return self.kinds.get(action["kind"], 0.0)

    def start(self, now):
        """Start all that may; a lane runs one action at a time, in row order."""
        again = True
        while again:
            again = False
            for lane, rows in self.lanes.items():
                while self.turn[lane] < len(rows):
                    i = rows[self.turn[lane]]
                    if self.finished[i]:
                        self.turn[lane] += 1
                        continue
                    ready = all(self.finished[x] for x in self.actions[i]["after"])
                    if i in self.until or i in self.left or not ready:
                        break
                    self.begin(i, now)
                    again = True

    def begin(self, i, now):
        action = self.actions[i]
        if self.works(i):
            self.left[i] = action["seconds"]
        elif self.moves(i):
            wait = action.get("seconds", 0.0) + self.latency[action["src"], action["dst"]]
            if wait:
                self.until[i] = now + wait
            else:
                self.left[i] = action["nbytes"]
        else:
            self.until[i] = now + action.get("seconds", 0.0)
            if self.until[i] == now:
                del self.until[i]
                self.finished[i] = True

    def rates(self):
        """How fast all that is under way progresses."""
        engines, taken, flows, rates = {}, {}, {}, {}
        for i in [*self.left, *self.until]:
            if self.moves(i):
                taken.setdefault(self.actions[i]["rank"], [0.0]).append(self.loss(i))
        for i in self.left:
            if self.moves(i):
                flows[i] = self.routes[self.actions[i]["src"], self.actions[i]["dst"]]
            else:
                engines.setdefault(self.engine[self.actions[i]["lane"]], []).append(i)
        for sharing in engines.values():
            for i in sharing:
                rates[i] = (1 - max(taken.get(self.actions[i]["rank"], [0.0]))) / len(sharing)
        return rates | max_min(flows, self.bandwidth)

    def play(self):
        now = before = 0.0
        self.start(now)
        while self.left or self.until:
            rates = self.rates()
            ends = {i: now + left / rates[i] for i, left in self.left.items()} | self.until
            now = min(ends.values())
            done = [i for i, end in ends.items() if end <= now * (1 + 1e-14)]
            for i in self.left:
                self.left[i] -= rates[i] * (now - before)
            for i in done:
                was_waiting = self.until.pop(i, None) is not None
                if was_waiting and self.moves(i):
                    self.left[i] = self.actions[i]["nbytes"]
                else:
                    self.left.pop(i, None)
                    self.finished[i] = True
            before = now
            self.start(now)
        assert all(self.finished), "some actions never finish"
        return now


def max_min(flows, bandwidth):
    """Raise all rates together; where a link is full, its flows stay at that rate."""
    rates, free = {}, dict(enumerate(bandwidth))
    users = {}
    for i, route in flows.items():
        for link in route:
            users.setdefault(link, set()).add(i)
    while users:
        level = {link: free[link] / len(those) for link, those in users.items()}
        lowest = min(level.values())
        for link in [x for x, rate in level.items() if rate <= lowest * (1 + 1e-12)]:
            for i in list(users[link]):
                rates[i] = lowest
                for other in flows[i]:
                    users[other].discard(i)
                    free[other] -= lowest
        users = {link: those for link, those in users.items() if those}
    return rates

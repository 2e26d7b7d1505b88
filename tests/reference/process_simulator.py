"""The readable simulator: a SimPy process for every lane, everything recomputed whenever anything changes.

It is the reference the product's simulator is held against and raced against: slow, and plain enough to be
checked against the semantics by reading.
"""

import simpy

from umm.schedules.table.details import BARRIER, KINDS, LOCAL, TRANSFERS


def simulate(schedule):
    """Return when each action starts and finishes."""
    return Playback(schedule).play()


class Work:
    """Bytes or engine seconds that pass at a rate which may change."""

    def __init__(self, event, left, now):
        self.event, self.left, self.since = event, left, now
        self.rate, self.finish = 0.0, float("inf")

    def set_rate(self, rate, now):
        if rate != self.rate:
            self.left = max(self.left - self.rate * (now - self.since), 0.0)
            self.rate, self.since = rate, now
            self.finish = now + self.left / rate


class Playback:
    """One schedule being played."""

    def __init__(self, schedule):
        self.schedule = schedule
        self.env = simpy.Environment()
        self.done = [self.env.event() for _ in range(len(schedule))]
        self.start = [0.0] * len(schedule)
        self.end = [0.0] * len(schedule)
        self.under_way = {}
        self.in_flight = set()  # transfers with src != dst, wait and latency included
        self.changed = None  # the event that interrupts the wait for the next finish

    def play(self):
        lanes = {}
        for action, lane in enumerate(self.schedule.lane.tolist()):
            lanes.setdefault(("barrier", action) if lane < 0 else lane, []).append(action)
        for actions in lanes.values():
            self.env.process(self.lane(actions))
        self.env.process(self.shared_resources())
        if self.done:
            self.env.run(self.env.all_of(self.done))
        return self.start, self.end

    def lane(self, actions):
        """Run one action at a time, in row order, each as soon as all it waits for has finished."""
        for action in actions:
            yield self.env.all_of([self.done[other] for other in self.schedule.after_of(action).tolist()])
            self.start[action] = self.env.now
            yield from self.perform(action)
            self.end[action] = self.env.now
            self.done[action].succeed()

    def perform(self, action):
        s = self.schedule
        kind, src, dst = s.kind[action], int(s.src[action]), int(s.dst[action])
        if kind == BARRIER:
            return
        if src == dst and self.on_engine(action):
            yield self.progress(action, float(s.seconds[action]))
        elif kind in TRANSFERS and src != dst:
            self.in_flight.add(action)
            self.touch()
            yield self.env.timeout(float(s.seconds[action]))
            yield self.env.timeout(sum(float(s.links.latency[link]) for link in s.routes[src, dst]))
            yield self.progress(action, float(s.nbytes[action]))
            self.in_flight.discard(action)
            self.touch()
        else:
            yield self.env.timeout(float(s.seconds[action]))

    def on_engine(self, action):
        s = self.schedule
        return s.kind[action] != LOCAL and s.lanes.engine[s.lane[action]] >= 0

    def loss(self, action):
        """The share of its rank's engine rate that a transfer takes: its means', else its kind's."""
        s = self.schedule
        if s.means_of is not None and s.means_of[action] >= 0:
            return s.means[s.means_of[action]].interference
        return s.interference.get(KINDS[s.kind[action]], 0.0)

    def progress(self, action, amount):
        """Return an event that happens when an amount of work has been done at the shared rates."""
        event = self.env.event()
        self.under_way[action] = Work(event, amount, self.env.now)
        self.touch()
        return event

    def touch(self):
        if self.changed is not None and not self.changed.triggered:
            self.changed.succeed()

    def shared_resources(self):
        """Let everything under way progress at its rate until the next finish or change."""
        while True:
            yield self.env.timeout(0)  # let the instant's other starts and finishes happen
            now = self.env.now
            self.changed = self.env.event()
            for action, rate in self.rates().items():
                self.under_way[action].set_rate(rate, now)
            if not self.under_way:
                yield self.changed
                continue
            next_finish = min(work.finish for work in self.under_way.values())
            yield self.env.timeout(next_finish - now) | self.changed
            if self.env.now >= next_finish * (1 - 1e-15):
                for action, work in list(self.under_way.items()):
                    if work.finish <= next_finish * (1 + 1e-15):
                        del self.under_way[action]
                        work.event.succeed()

    def rates(self):
        s = self.schedule
        flows = [action for action in self.under_way if action in self.in_flight]
        working = [action for action in self.under_way if action not in self.in_flight]
        engine = {action: int(s.lanes.engine[s.lane[action]]) for action in working}
        rates = {}
        for action in working:
            lost = [self.loss(other) for other in self.in_flight if s.rank[other] == s.rank[action]]
            sharing = sum(1 for other in working if engine[other] == engine[action])
            rates[action] = (1 - max(lost, default=0.0)) / sharing
        routes = {action: s.routes[int(s.src[action]), int(s.dst[action])] for action in flows}
        return rates | max_min(routes, s.links.bandwidth.tolist())


def max_min(routes, bandwidth):
    """Progressive filling: raise all rates together; when a link is full, its flows stay where they are."""
    rates = {}
    while len(rates) < len(routes):
        level = {}
        for link in {link for flow, route in routes.items() if flow not in rates for link in route}:
            users = [flow for flow, route in routes.items() if link in route]
            free = bandwidth[link] - sum(rates[flow] for flow in users if flow in rates)
            level[link] = free / sum(1 for flow in users if flow not in rates)
        lowest = min(level.values())
        for flow, route in routes.items():
            if flow not in rates and any(level.get(link) == lowest for link in route):
                rates[flow] = lowest
    return rates

"""The schedule semantics in exact rational arithmetic, without SimPy: no rounding can excuse a difference."""

from fractions import Fraction

from umm.schedules.table.details import BARRIER, GEMM, KINDS, MAP, TRANSFERS


def makespan(schedule):
    """Return the last finish as a Fraction."""
    s = schedule
    count = len(s)
    after = [set(s.after_of(i).tolist()) for i in range(count)]
    lane_next, lanes = {}, {}
    for i, lane in enumerate(s.lane.tolist()):
        lanes.setdefault(lane if lane >= 0 else ("barrier", i), []).append(i)
    lane_next = dict.fromkeys(lanes, 0)
    bandwidth = [Fraction(x) for x in s.links.bandwidth.tolist()]
    latency = [Fraction(x) for x in s.links.latency.tolist()]
    route = {pair: s.routes[pair] for pair in s.used_pairs()}
    done, waiting, running = set(), {}, {}  # waiting: action -> when its latency or fixed time is over
    now = Fraction(0)

    def pair(i):
        return int(s.src[i]), int(s.dst[i])

    while len(done) < count:
        started = True
        while started:  # finishes of no-time actions let others start in the same instant
            started = False
            for lane, actions in lanes.items():
                while lane_next[lane] < len(actions):
                    i = actions[lane_next[lane]]
                    if i in waiting or i in running:
                        break
                    if i in done:
                        lane_next[lane] += 1
                        continue
                    if not after[i] <= done:
                        break
                    started = True
                    if s.kind[i] == BARRIER:
                        done.add(i)
                    elif _engine_work(s, i):
                        running[i] = Fraction(float(s.seconds[i]))
                    elif _crosses_links(s, i):
                        wait = sum((latency[link] for link in route[pair(i)]), Fraction(float(s.seconds[i])))
                        if wait:
                            waiting[i] = now + wait
                        else:
                            running[i] = Fraction(int(s.nbytes[i]))
                    elif s.seconds[i] > 0:
                        waiting[i] = now + Fraction(float(s.seconds[i]))
                    else:
                        done.add(i)
        if len(done) == count:
            break
        rates = _rates(s, running, waiting, route, bandwidth)
        times = [at - now for at in waiting.values()] + [left / rates[i] for i, left in running.items()]
        step = min(times)
        now += step
        for i in list(running):
            running[i] -= rates[i] * step
            if running[i] == 0:
                del running[i]
                done.add(i)
        for i, at in list(waiting.items()):
            if at == now:
                del waiting[i]
                if _crosses_links(s, i):
                    running[i] = Fraction(int(s.nbytes[i]))
                else:
                    done.add(i)
    return now


def _crosses_links(s, i):
    return s.kind[i] in TRANSFERS and s.src[i] != s.dst[i]


def _engine_work(s, i):
    """Multiplies, maps, and copies and adds within a rank, on a lane that has an engine."""
    here = s.kind[i] in (GEMM, MAP) or (s.kind[i] in TRANSFERS and s.src[i] == s.dst[i])
    return here and s.lanes.engine[s.lane[i]] >= 0


def _loss(s, i):
    """The share of its rank's engine rate that a transfer takes: its means', else its kind's."""
    if s.means_of is not None and s.means_of[i] >= 0:
        return Fraction(s.means[s.means_of[i]].interference)
    return Fraction(s.interference.get(KINDS[s.kind[i]], 0.0))


def _rates(s, running, waiting, route, bandwidth):
    rates = {}
    working = [i for i in running if _engine_work(s, i)]
    in_flight = [i for i in [*running, *waiting] if _crosses_links(s, i)]
    for i in working:
        lost = [_loss(s, other) for other in in_flight if s.rank[other] == s.rank[i]]
        sharing = sum(1 for j in working if s.lanes.engine[s.lane[j]] == s.lanes.engine[s.lane[i]])
        rates[i] = (1 - max(lost, default=Fraction(0))) / sharing
    flows = {i: route[int(s.src[i]), int(s.dst[i])] for i in running if _crosses_links(s, i)}
    while not flows.keys() <= rates.keys():
        level = {}
        for link in {link for i, links in flows.items() if i not in rates for link in links}:
            users = [i for i, links in flows.items() if link in links]
            free = bandwidth[link] - sum(rates[i] for i in users if i in rates)
            level[link] = free / sum(1 for i in users if i not in rates)
        lowest = min(level.values())
        for i, links in flows.items():
            if i not in rates and any(level.get(link) == lowest for link in links):
                rates[i] = lowest
    return rates

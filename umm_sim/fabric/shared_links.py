"""Fabrics in which transfers of different pairs meet on links, which they share max-min fairly."""

from collections.abc import Callable

from umm_sim.clock import Clock
from umm_sim.fabric.filling import Filling, Flow
from umm_sim.fabric.routes import Routed


class SharedLinks:
    """Max-min fair sharing on every link of every route; rates are found once per instant."""

    def __init__(self, clock: Clock, transfers: Routed, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._codes, self._nbytes, self._routes = transfers.codes, transfers.nbytes, transfers.routes
        self._filling = Filling(transfers.routes.link_bandwidth)
        self._on = self._filling.on
        self._touched: list[int] = []
        self._joining, self._arriving, self._sharing = self._join, self._arrive, self._share

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        clock = self._clock
        route = self._routes.route(self._codes[action])
        flow = Flow(action, route, self._nbytes[action], clock._now)
        clock.at(clock._now + route.latency, self._joining, flow)

    def _join(self, flow: Flow) -> None:
        alone, on = True, self._on
        for link in flow.links:
            here = on[link]
            if here:
                alone = False
            here.append(flow)
        if alone:  # until another flow joins
            flow.go_on(self._filling.bandwidth[flow.bottleneck], self._clock, self._arriving)
        else:
            self._touch(flow.links)

    def _arrive(self, flow: Flow) -> None:
        if not flow.has_ended(self._clock, self._arriving):
            return
        on = self._on
        for link in flow.links:
            here = on[link]
            here.remove(flow)
            # Those left on a link can only go faster if it is what holds one of them back.
            for other in here:
                if other.bottleneck == link:
                    self._touch((link,))
                    break
        self._finish(flow.action)

    def _touch(self, links: tuple[int, ...]) -> None:
        if not self._touched:
            self._clock.settle(self._sharing)
        self._touched += links

    def _share(self) -> None:
        """Let all flows that the instant's changes reach go on at their new rates."""
        clock, arriving = self._clock, self._arriving
        touched, self._touched = self._touched, []
        for flow in self._filling.fill(touched):
            if flow.new_rate != flow.rate:
                flow.go_on(flow.new_rate, clock, arriving)

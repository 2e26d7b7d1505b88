"""Fabrics in which transfers of different pairs meet on links, which they share max-min fairly."""

from collections.abc import Callable

from umm_sim.clock import Call, Clock
from umm_sim.fabric.filling import Filling, Flow, Link
from umm_sim.fabric.routes import Routed


class SharedLinks:
    """Max-min fair sharing on every link of every route; rates are found once per instant."""

    def __init__(self, clock: Clock, transfers: Routed, finish: Callable[[int], None]) -> None:
        self._clock = clock
        self._finish = finish
        self._number, self._nbytes, self._routes = transfers.number, transfers.nbytes, transfers.routes
        self._links = [Link(bandwidth) for bandwidth in transfers.bandwidth]
        self._filling = Filling()
        self._touched: list[Link] = []
        self._joining: Call = self._join
        self._arriving: Call = self._arrive

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes."""
        clock = self._clock
        every, route = self._links, self._routes[self._number[action]]
        links = [every[number] for number in route.links]
        flow = Flow(action, links, every[route.slowest], self._nbytes[action], clock._now)
        clock.at(clock._now + route.latency, self._joining, flow)

    def _join(self, flow: Flow) -> None:
        alone = True
        for link in flow.links:
            here = link.flows
            if here:
                alone = False
            here.append(flow)
        slowest = flow.bottleneck
        if alone and slowest is not None:  # until another flow joins
            flow.go_on(slowest.bandwidth, self._clock, self._arriving)
        else:
            self._touch(flow.links)

    def _arrive(self, flow: Flow) -> None:
        if not flow.has_ended(self._clock, self._arriving):
            return
        for link in flow.links:
            link.leave(flow)
            # Those left on a link can only go faster if it is what holds one of them back.
            for other in link.flows:
                if other.bottleneck is link:
                    self._touch([link])
                    break
        self._finish(flow.action)

    def _touch(self, links: list[Link]) -> None:
        if not self._touched:
            self._clock.settle(self._share)
        self._touched += links

    def _share(self) -> None:
        """Let all flows that the instant's changes reach go on at their new rates."""
        clock, arriving = self._clock, self._arriving
        touched, self._touched = self._touched, []
        for flow in self._filling.fill(touched):
            if flow.new_rate != flow.rate:
                flow.go_on(flow.new_rate, clock, arriving)

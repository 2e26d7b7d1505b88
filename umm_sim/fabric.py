"""The transfers of a schedule as the fabrics see them, and which fabric fits their routes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from umm.schedules.table import Schedule
from umm_sim.clock import Clock


@dataclass(frozen=True)
class Traffic:
    """Who sends how much over which links.

    Attributes:
        route: Route of each action, −1 for one that uses no link.
        nbytes: Bytes each action puts on its route.
        links: The links of each route.
        route_bandwidth: Bytes/s of each route when it is alone.
        route_latency: Seconds each route takes before bytes flow.
        link_bandwidth: Bytes/s of each link.
    """

    route: list[int]
    nbytes: list[int]
    links: list[tuple[int, ...]]
    route_bandwidth: list[float]
    route_latency: list[float]
    link_bandwidth: list[float]

    @property
    def disjoint(self) -> bool:
        """Whether no link belongs to two routes."""
        used = [link for links in self.links for link in links]
        return len(used) == len(set(used))


class FabricModel(Protocol):
    """Moves the bytes of transfers and says when each has arrived.

    All models give the same max-min fair rates; they differ in what they exploit.
    """

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes; ``finish`` is called at its end."""


def traffic(schedule: Schedule) -> Traffic:
    """Return the transfers of a schedule."""
    ranks = schedule.ranks
    moving = schedule.src != schedule.dst
    route = np.full(len(schedule), -1)
    pairs, route[moving] = np.unique(schedule.src[moving] * ranks + schedule.dst[moving], return_inverse=True)
    links = [schedule.routes[divmod(pair, ranks)] for pair in pairs.tolist()]
    bandwidth, latency = schedule.links.bandwidth.tolist(), schedule.links.latency.tolist()
    return Traffic(
        route.tolist(),
        schedule.nbytes.tolist(),
        links,
        [min(bandwidth[link] for link in route_links) for route_links in links],
        [sum(latency[link] for link in route_links) for route_links in links],
        bandwidth,
    )


def fabric_model(clock: Clock, moved: Traffic, finish: Callable[[int], None]) -> FabricModel:
    """Return the model that fits the routes: pairs that share no link, or links that are shared."""
    from umm_sim.own_links import OwnLinks
    from umm_sim.shared_links import SharedLinks

    return (OwnLinks if moved.disjoint else SharedLinks)(clock, moved, finish)

"""Which model of a fabric fits the routes of a schedule."""

from collections.abc import Callable
from typing import Protocol

from umm_sim.clock import Clock
from umm_sim.fabric.own_links import OwnLinks
from umm_sim.fabric.routes import Routed
from umm_sim.fabric.shared_links import SharedLinks


class FabricModel(Protocol):
    """Moves the bytes of transfers and says when each has arrived.

    All models give the same max-min fair rates; they differ in what they exploit.
    """

    def start(self, action: int) -> None:
        """Let a transfer begin: first its latency, then its bytes; ``finish`` is called at its end."""


def fabric_model(clock: Clock, transfers: Routed, finish: Callable[[int], None]) -> FabricModel:
    """Return the model for pairs that share no link, or the one for links that are shared."""
    return (OwnLinks if transfers.disjoint else SharedLinks)(clock, transfers, finish)

"""What all schedules for some ranks of a machine share: links, routes and lanes."""

from dataclasses import dataclass
from functools import lru_cache

from umm.machines import Machine
from umm.schedules.table.resources import Lanes, Links, Routes, machine_lanes


@dataclass(frozen=True, eq=False)
class Platform:
    """What all schedules for some ranks of a machine share.

    Attributes:
        machine: The machine.
        links: Its links.
        routes: The links between its ranks.
        lanes: A compute lane, the copy_in lanes, the accumulate lanes and some more of each rank.
        lanes_per_rank: Lanes of one rank.
        first_accumulate: Place of accumulate.0 among a rank's lanes; copy_in.0 is at 1.
        devices: Devices the ranks use.
    """

    machine: Machine
    links: Links
    routes: Routes
    lanes: Lanes
    lanes_per_rank: int
    first_accumulate: int
    devices: int


@lru_cache(maxsize=64)
def platform(machine: Machine, ranks: int, accumulate_lanes: int, more: tuple[str, ...] = ()) -> Platform:
    """Return what all schedules for these ranks of a machine share, with some more lanes by name."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    names = [
        *(f"copy_in.{i}" for i in range(machine.copy_engines)),
        *(f"accumulate.{i}" for i in range(accumulate_lanes)),
        *more,
    ]
    return Platform(
        machine,
        Links(machine.link_names, machine.link_bandwidth, machine.link_latency),
        Routes(lambda src, dst: machine.route(devices[src], devices[dst])),
        machine_lanes(ranks, devices, names, machine.local_on_engine),
        1 + len(names),
        1 + machine.copy_engines,
        len(set(devices)),
    )

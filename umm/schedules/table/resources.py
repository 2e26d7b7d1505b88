"""The resources of actions: links, routes and lanes, shared by all schedules for the same ranks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from umm.arrays import Floats, Ints, distinct
from umm.machines import Machine
from umm.machines.fabric import listed


@dataclass(frozen=True, eq=False)
class Links:
    """The links of a fabric: names, bandwidth in bytes/s (one direction) and latency in seconds."""

    names: tuple[str, ...]
    bandwidth: Floats
    latency: Floats

    def first(self, count: int) -> "Links":
        """Return the first links alone."""
        return Links(self.names[:count], self.bandwidth[:count], self.latency[:count])


MOST_KNOWN = 2**14  # pairs of ranks whose links are kept, once asked for: those of 128 ranks


class Routes:
    """The links between pairs of ranks as bytes cross them; shared by all schedules of a fabric."""

    def __init__(
        self,
        links: Callable[[int, int], tuple[int, ...]],
        of_many: Callable[[Ints, Ints], tuple[Ints, Ints]] | None = None,
    ) -> None:
        # Returns the links from a source rank to a destination rank, () if nothing joins them.
        self.links = links
        # Returns the same for many pairs: how many links each route crosses, and the links of all.
        self.of_many = of_many or (lambda src, dst: listed(map(links, src.tolist(), dst.tolist())))
        self._known: dict[tuple[int, int], tuple[int, ...]] = {}

    @classmethod
    def listed(cls, routes: Mapping[tuple[int, int], tuple[int, ...]]) -> "Routes":
        """Return the routes of a table of pairs."""
        return cls(lambda src, dst: routes.get((src, dst), ()))

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, ...]:
        route = self._known.get(pair)
        if route is None:
            route = self.links(*pair)
            # Bounded, as thousands of ranks have millions of pairs; a machine computes the others each time.
            if len(self._known) < MOST_KNOWN:
                self._known[pair] = route
        return route


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lanes: the rank each belongs to, its name, and the engine that its local work runs on (else −1)."""

    rank: Ints
    names: tuple[str, ...]
    engine: Ints

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def engines(self) -> int:
        """How many engines they run on."""
        return len(distinct(self.engine[self.engine >= 0]))

    @cached_property
    def engine_numbers(self) -> Ints:
        """The engine of each lane, counted from 0 whatever numbers a file gives; −1 if it has none."""
        numbers: Ints = np.unique(np.append(self.engine, -1), return_inverse=True)[1]
        return numbers[:-1] - 1

    @cached_property
    def own_engines(self) -> bool:
        """Whether no engine is that of two lanes."""
        return self.engines == int((self.engine >= 0).sum())


def machine_lanes(ranks: int, engines: list[int], others: Sequence[str], shared: bool = False) -> Lanes:
    """Return for each rank a compute lane and then some others, by name.

    Args:
        engines: The GEMM engine of each rank.
        shared: Whether local work on those lanes takes of the rank's engine too.
    """
    names = ["compute", *others]
    engine = np.full((ranks, len(names)), -1, dtype=np.int64)
    # Ranks of one device share its GEMM engine; other lanes use none unless local work takes of it.
    engine[:, 0] = engines
    if shared:
        engine[:, 1:] = engine[:, :1]
    return Lanes(np.repeat(np.arange(ranks), len(names)), tuple(names * ranks), engine.reshape(-1))


@dataclass(frozen=True, eq=False)
class Platform:
    """The resources that all schedules for some ranks of a machine share."""

    machine: Machine
    links: Links
    routes: Routes  # the links between its ranks
    lanes: Lanes  # a compute lane, the copy_in lanes, the accumulate lanes and some more of each rank
    lanes_per_rank: int  # lanes of one rank
    first_accumulate: int  # place of accumulate.0 among a rank's lanes; copy_in.0 is at 1
    devices: int  # devices the ranks use


@lru_cache(maxsize=64)
def platform(machine: Machine, ranks: int, accumulate_lanes: int, more: tuple[str, ...] = ()) -> Platform:
    """Return the resources of all schedules for these ranks of a machine, with some more lanes by name."""
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    device = np.array(devices, dtype=np.int64)
    names = [
        *(f"copy_in.{i}" for i in range(machine.copy_engines)),
        *(f"accumulate.{i}" for i in range(accumulate_lanes)),
        *more,
    ]
    return Platform(
        machine,
        Links(machine.link_names, machine.link_bandwidth, machine.link_latency),
        Routes(
            lambda src, dst: machine.route(devices[src], devices[dst]),
            lambda src, dst: machine.routes(device[src], device[dst]),
        ),
        machine_lanes(ranks, devices, names, machine.local_on_engine),
        1 + len(names),
        1 + machine.copy_engines,
        len(set(devices)),
    )

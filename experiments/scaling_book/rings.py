"""The four primitives and problem 10: collectives over sizes, ranks and directions, simulated."""

from dataclasses import dataclass
from functools import cache

import umm
from experiments.common.machines import shipped
from umm.executor import executor
from umm.machines import Machine
from umm.machines.build import build
from umm.plans.collectives.closed_forms import bandwidth

makespan = executor("sim").makespan


@dataclass(frozen=True)
class Point:
    """One collective.

    Attributes:
        machine: A shipped machine, or ring-D for a ring of D chips with v5e's links.
        what: Which collective.
        nbytes: V, of the whole buffer.
        way: How it is done.
        directions: Of a ring that are used.
    """

    machine: str
    what: str
    nbytes: int
    way: str = "ring"
    directions: int = 2


@cache
def chips(name: str) -> Machine:
    """Return a machine by the name of a point."""
    if not name.startswith("ring-"):
        return shipped(name)
    v5e = shipped("tpu-v5e-4")
    count, parts = int(name.removeprefix("ring-")), v5e.document["fabric"]
    devices = {**v5e.document["devices"], "count": {"value": count, "source": "a ring", "assumed": True}}
    fabric = {"kind": "ring", "bandwidth": parts["bandwidth"], "latency": parts["latency"]}
    return build({**v5e.document, "devices": devices, "fabric": fabric}, v5e.source_path, name)


def round_a_ring(machine: Machine, what: str, nbytes: int, ranks: int | None = None) -> float:
    """Return the simulated seconds of a collective round a ring; ``nbytes`` is of the whole buffer."""
    asked = {"nbytes": nbytes, "machine": machine, "algorithm": "ring", "dtype": "bfloat16", "ranks": ranks}
    return makespan(umm.collective(what, **asked))


def performed(point: Point) -> dict[str, float]:
    """Return seconds, and seconds · W/V with W the bandwidth of the links that are used of a chip."""
    machine = chips(point.machine)
    asked = umm.collective(
        point.what, nbytes=point.nbytes, machine=machine, algorithm=point.way, directions=point.directions,
        dtype="bfloat16",
    )  # fmt: skip
    seconds = makespan(asked)
    width = bandwidth(machine, machine.default_ranks) * point.directions / 2
    return {"seconds": seconds, "times_v_w": seconds * width / point.nbytes}

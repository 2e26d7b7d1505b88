"""A simulated schedule as Chakra traces, one a rank, which ASTRA-sim replays or simulates anew."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from umm.errors import InputError
from umm.files import whole_file
from umm.profiles.chakra import COLLECTIVE, COMM_TYPES, COMP, RECEIVES, SENDS, Node, written
from umm.schedules.table.details import KINDS
from umm.traces.trace import Trace

MAX_NODES = 2_000_000  # nodes of all ranks; each takes about 150 bytes


def nodes_of(trace: Trace) -> dict[int, list[Node]]:
    """Return the nodes of each rank, in the order of their starts.

    An action is a node at the rank that performs it; a transfer is a send at its source and a receive at its
    target, both as long. Waits for another rank's action that no transfer carries are a message of a byte.
    InputError for more actions than a trace may have.
    """
    schedule = trace.schedule
    if 2 * len(schedule) > MAX_NODES:
        raise InputError(f"{len(schedule):,} actions make more than {MAX_NODES:,} nodes; take fewer ranks")
    kinds = np.array(KINDS, dtype=object)[schedule.kind]
    ranks: dict[int, list[Node]] = {rank: [] for rank in range(schedule.ranks)}
    at: dict[tuple[int, int], int] = {}  # an action's node at a rank
    signals: dict[tuple[int, int], int] = {}
    flop, src, dst = schedule.flop, schedule.src, schedule.dst

    def add(
        rank: int, name: str, kind: int, start: float, seconds: float, after: list[int], **more: int
    ) -> int:
        nodes = ranks[rank]
        nodes.append(Node(len(nodes) + 1, name, kind, start, seconds, tuple(sorted({*after})), dict(more)))
        return len(nodes)

    for i in range(len(schedule)):
        start, seconds = float(trace.start[i]), float(trace.end[i] - trace.start[i])
        if kinds[i] == "barrier":
            places: list[int] = list(ranks)
        elif src[i] >= 0 and src[i] != dst[i]:
            places = [int(src[i]), int(dst[i])]
        else:
            places = [int(schedule.rank[i])]
        for place in places:
            after: list[int] = []
            if kinds[i] == "barrier":  # a sum of one byte, which ends at every rank together
                after = [at[x, place] for x in schedule.after_of(i).tolist() if (x, place) in at]
                more = {"comm_type": COMM_TYPES["all-reduce"], "comm_size": 1}
                at[i, place] = add(place, f"barrier {i}", COLLECTIVE, start, seconds, after, **more)
                continue
            for other in schedule.after_of(i).tolist():
                if (other, place) in at:
                    after.append(at[other, place])
                    continue
                if len(places) == 2 and any((other, x) in at for x in places):
                    continue  # the transfer itself carries it
                giver = next(rank for rank in ranks if (other, rank) in at)
                if (other, place) not in signals:
                    ended = float(trace.end[other])
                    tag, name = len(schedule) + len(signals), f"signal of action {other}"
                    one = {"comm_src": giver, "comm_dst": place, "comm_size": 1, "comm_tag": tag}
                    add(giver, name, SENDS, ended, 0.0, [at[other, giver]], **one)
                    signals[other, place] = add(place, name, RECEIVES, ended, 0.0, [], **one)
                after.append(signals[other, place])
            if len(places) == 2:
                kind = SENDS if place == places[0] else RECEIVES
                more = {
                    "comm_src": places[0], "comm_dst": places[1], "comm_size": int(schedule.nbytes[i]),
                    "comm_tag": i,
                }  # fmt: skip
            else:
                kind, more = COMP, {"num_ops": int(flop[i])}
            at[i, place] = add(place, f"{kinds[i]} {i}", kind, start, seconds, after, **more)
    return ranks


def write_chakra(trace: Trace, prefix: Path) -> Iterator[Path]:
    """Write ``PREFIX.RANK.et`` for each rank, the names that ASTRA-sim takes; yield each path.

    InputError if a file cannot be written.
    """
    for rank, nodes in nodes_of(trace).items():
        path = Path(f"{prefix}.{rank}.et")
        with whole_file(path) as partial:
            partial.write_bytes(written(nodes))
        yield path

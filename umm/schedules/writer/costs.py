"""From actions written one by one to the columns of a schedule, with what each costs on a machine."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from umm import cost
from umm.arrays import Bools, Ints, offsets_of
from umm.dtypes import payload_bytes
from umm.errors import ScheduleError
from umm.machines import Machine
from umm.program.tensors import Program, Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, Slice, first_tiles, owned_tiles
from umm.schedules.table.details import (
    ACCUMULATE,
    BARRIER,
    GEMM,
    GET,
    MAP,
    OPERANDS,
    PUT,
    REDUCE,
    TRANSFERS,
    Details,
    Multiplied,
)
from umm.schedules.table.resources import machine_lanes, platform
from umm.schedules.table.table import Data, Function, Means, check_moved

PLAIN = Multiplied()


@dataclass(slots=True)
class Action:
    """One action: its kind, rank and lane by name, its slices, the one written first.

    Attributes:
        seconds: Seconds it takes or waits beside what follows from its slices.
        nbytes: Bytes it is charged; None if they, and the rest of its seconds, follow from its slices.
        charge: Bytes on the links for each byte that moves; 0 for what the machine says.
    """

    kind: int
    rank: int
    lane: str
    pieces: tuple[Slice, ...]
    seconds: float = 0.0
    means: str | None = None
    multiplied: Multiplied = PLAIN
    fn: int = -1
    nbytes: int | None = None
    charge: float = 0.0
    after: list[int] = field(default_factory=list)


class Written(NamedTuple):
    """What a Builder has written.

    Attributes:
        name: Name of the algorithm.
        program: What it carries out.
        machine: What it is lowered for.
        work: Tensors beyond the program's.
        lanes: Number of lanes of each group beside ``compute``.
        options: How it was made.
        actions: The actions.
        temporaries: Rank, slot and extent of each.
        functions: What maps do.
    """

    name: str
    program: Program
    machine: Machine
    work: tuple[Tensor, ...]
    lanes: Mapping[str, int]
    options: Mapping[str, Any]
    actions: Sequence[Action]
    temporaries: Sequence[tuple[int, int, Slice]]
    functions: tuple[Function, ...]


def priced(written: Written) -> Schedule:
    """Return the schedule of some actions."""
    actions, machine, ranks = written.actions, written.machine, written.program.p
    columns = _Columns(written)
    shared = platform(machine, ranks, 1)
    standard = ["compute", *(f"{group}.{i}" for group, count in written.lanes.items() for i in range(count))]
    own = [name for name in dict.fromkeys(action.lane for action in actions) if name and name not in standard]
    place = {name: i for i, name in enumerate([*standard, *own])}
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    names = list(dict.fromkeys(action.means for action in actions if action.means))
    number = {name: i for i, name in enumerate(names)}
    tensors = (*written.program.tensors, *written.work)
    check_moved(columns.nbytes)
    return Schedule(
        program=written.program,
        stationary=written.name,
        machine=machine.name,
        ranks=ranks,
        interference=machine.interference,
        # The memory of a device is a link only between ranks that share one.
        links=shared.links if shared.devices < ranks else shared.links.first(len(machine.fabric.names)),
        routes=shared.routes,
        lanes=machine_lanes(ranks, devices, list(place)[1:], machine.local_on_engine),
        kind=columns.kind,
        rank=columns.rank,
        lane=np.array(
            [-1 if a.kind == BARRIER else a.rank * len(place) + place[a.lane] for a in actions],
            dtype=np.int64,
        ),
        after_offsets=offsets_of([len(action.after) for action in actions]),
        after=np.array([row for action in actions for row in action.after], dtype=np.int64),
        src=columns.src,
        dst=columns.dst,
        nbytes=columns.nbytes,
        seconds=columns.seconds,
        make_data=lambda: Data(_details(actions), _temporaries(written.temporaries)),
        make_pools=lambda: _pools(written),
        options=written.options,
        peak=machine.total_peak(tensors[0].dtype, shared.devices) if written.program.flop else 0.0,
        work=written.work,
        functions=written.functions,
        means=tuple(Means(name, machine.means[name].interference) for name in names),
        means_of=np.array([number.get(a.means or "", -1) for a in actions], dtype=np.int8) if names else None,
    )


class _Columns:
    """The columns of time: who acts, what moves between whom, and what it costs."""

    def __init__(self, written: Written) -> None:
        actions, machine = written.actions, written.machine
        tensors = (*written.program.tensors, *written.work)
        self._ranks = written.program.p
        self.kind = np.array([action.kind for action in actions], dtype=np.int8)
        self.rank = np.array([action.rank for action in actions], dtype=np.int64)
        self.src, self.dst = (np.full(len(actions), -1, dtype=np.int64) for _ in range(2))
        self.nbytes = np.zeros(len(actions), dtype=np.int64)
        self.seconds = np.array([action.seconds for action in actions], dtype=np.float64)
        itemsize = [tensor.itemsize for tensor in tensors]
        given = np.array([action.nbytes is not None for action in actions], dtype=bool)
        self.nbytes[given] = [action.nbytes for action in actions if action.nbytes is not None]
        transfers = np.isin(self.kind, TRANSFERS).nonzero()[0]
        self.src[transfers] = [actions[i].pieces[1].rank for i in transfers.tolist()]
        self.dst[transfers] = [actions[i].pieces[0].rank for i in transfers.tolist()]
        transfers = transfers[~given[transfers]]
        moved = [actions[i] for i in transfers.tolist()]
        elements = np.array([a.pieces[0].elements for a in moved], dtype=np.int64)
        tensor = np.array([a.pieces[0].tensor for a in moved], dtype=np.int64)
        payload = np.zeros_like(elements)
        for number in set(tensor.tolist()):
            own = tensor == number
            payload[own] = payload_bytes(elements[own], tensors[number].dtype)
        self._move(machine, transfers, payload, [a.means for a in moved], _strided(written, moved))
        charge = np.array([a.charge for a in moved])
        said = charge > 0
        self.nbytes[transfers[said]] = np.ceil(payload[said] * charge[said]).astype(np.int64)
        self._multiply(machine, actions, tensors, ~given)
        if machine.refill:
            gemms = (self.kind == GEMM).nonzero()[0]
            # What has ended before the first gemm drives nothing out of the caches that a gemm has used.
            barriers = (self.kind[: gemms.min(initial=len(actions))] == BARRIER).nonzero()[0]
            ended = barriers.max(initial=-1)
            beside = np.isin(self.kind[transfers], (GET, PUT, ACCUMULATE)) & (transfers > ended)
            rows = transfers[beside]
            touched = [_touched(actions[i], itemsize) for i in gemms.tolist()]
            self.seconds[rows] += cost.refill_seconds(
                machine,
                payload[beside],
                self.rank[rows],
                self.rank[gemms],
                touched,
                got=self.kind[rows] == GET,
            )
            new = gemms[~given[gemms]]
            self.seconds[new] += cost.load_seconds(
                machine, _first_used(written, [actions[i] for i in new.tolist()], itemsize)
            )
        maps = ((self.kind == MAP) & ~given).nonzero()[0]
        used = np.array([_touched(actions[i], itemsize) for i in maps.tolist()], dtype=np.float64)
        pace = cost.pace_of(machine, self.rank[maps], self._ranks)
        self.seconds[maps] = machine.launch_s + used / machine.work_bandwidth / pace.memory

    def _move(
        self, machine: Machine, rows: Ints, payload: Ints, means: Sequence[str | None], strided: Bools
    ) -> None:
        adds = np.isin(self.kind[rows], (ACCUMULATE, REDUCE))
        self.nbytes[rows] = np.where(
            adds, cost.accumulate_bytes(machine, payload, strided), cost.transfer_bytes(machine, payload)
        )
        signals = self.seconds[rows]
        for name in {name for name in means if name}:
            if name not in machine.means:
                known = ", ".join(machine.means) or "none"
                raise ScheduleError(f"{machine.name} has no means {name!r} to move bytes; it has {known}")
            by = np.array([x == name for x in means])
            self.nbytes[rows[by]] = machine.means[name].effective_bytes(payload[by])
            self.seconds[rows[by]] += machine.means[name].overhead_s
        here = self.src[rows] == self.dst[rows]
        pace = cost.pace_of(machine, self.rank[rows], self._ranks)
        took = np.where(
            adds,
            cost.local_accumulate_seconds(machine, payload, strided, pace),
            cost.local_copy_seconds(machine, payload, pace),
        )
        self.seconds[rows[here]] = (signals + took)[here]

    def _multiply(
        self, machine: Machine, actions: Sequence[Action], tensors: Sequence[Tensor], new: Bools
    ) -> None:
        rows = ((self.kind == GEMM) & new).nonzero()[0]
        by_types: dict[tuple[str, int], list[int]] = {}
        for i in rows.tolist():
            c, a, _ = actions[i].pieces
            by_types.setdefault((tensors[a.tensor].dtype, tensors[c.tensor].itemsize), []).append(i)
        for (dtype, c_itemsize), found in by_types.items():
            members = _details([actions[i] for i in found])
            m, n, k = members.multiplied.T
            pace = cost.pace_of(machine, self.rank[found], self._ranks)
            took = cost.gemm_seconds(machine, dtype, m, n, k, c_itemsize, members.batch, pace=pace)
            launch = machine.gemm_start(dtype)
            self.seconds[found] = launch + members.batch * (took - launch)


def _touched(action: Action, itemsize: Sequence[int]) -> int:
    """Return the bytes of all slices of an action."""
    return sum(piece.elements * itemsize[piece.tensor] for piece in action.pieces)


def _first_used(written: Written, gemms: Sequence[Action], itemsize: Sequence[int]) -> list[int]:
    """Return the bytes that each is the first to use: A in own tiles, C in slots, large temporaries."""
    temporary = first_tiles((*written.program.tensors, *written.work))[-1]
    held = [piece.elements * itemsize[piece.tensor] for _, _, piece in written.temporaries]
    large = cost.leaves_caches(written.machine, held)
    seen: set[tuple[int, ...] | Slice] = set()
    found = []
    for gemm in gemms:
        c, a, b = gemm.pieces
        new: dict[tuple[int, ...] | Slice, Slice] = {}
        if a.buffer < temporary and a.rank == gemm.rank:
            new[a] = a
        new |= {x: x for x in (a, b) if x.buffer >= temporary and large[x.buffer - temporary]}
        if c.buffer >= temporary:
            new[written.temporaries[c.buffer - temporary][:2]] = c
        found.append(sum(x.elements * itemsize[x.tensor] for key, x in new.items() if key not in seen))
        seen.update(new)
    return found


def _strided(written: Written, moved: Sequence[Action]) -> Bools:
    """Return which transfers write some of the columns of what their buffer holds."""
    if written.machine.strided_accumulates == 1.0:
        return np.zeros(len(moved), dtype=bool)
    held = owned_tiles((*written.program.tensors, *written.work)).cols
    cols = np.concatenate(
        [held, np.array([piece.cols for _, _, piece in written.temporaries]).reshape(-1, 2)]
    )
    into = np.array([a.pieces[0].buffer for a in moved], dtype=np.int64)
    size = np.array([a.pieces[0].cols.size for a in moved], dtype=np.int64)
    strided: Bools = size < np.diff(cols[into], axis=1)[:, 0]
    return strided


def _details(actions: Sequence[Action]) -> Details:
    details = Details.empty(len(actions), max([OPERANDS, *(len(action.pieces) for action in actions)]))
    count: dict[int, int] = {}
    for i, action in enumerate(actions):
        for operand, piece in enumerate(action.pieces):
            details.buffer[i, operand] = piece.buffer
            details.rows[i, operand] = piece.rows.start, piece.rows.stop
            details.cols[i, operand] = piece.cols.start, piece.cols.stop
        details.fn[i] = action.fn
        if action.kind == GEMM:
            details.op[i] = count.setdefault(action.rank, 0)
            count[action.rank] += 1
            x = action.multiplied
            details.trans[i], details.alpha[i], details.beta[i], details.batch[i] = x[:4]
            details.batch_axes[i], details.groups[i] = x.batch_axes, x.groups
    return details


def _temporaries(held: Iterable[tuple[int, int, Slice]]) -> Buffers:
    rows = [
        (rank, slot, piece.tensor, piece.rows.start, piece.rows.stop, piece.cols.start, piece.cols.stop)
        for rank, slot, piece in held
    ]
    rank, slot, tensor, *spans = np.array(rows, dtype=np.int64).reshape(-1, 7).T
    return Buffers(rank, slot, tensor, np.stack(spans[:2], axis=1), np.stack(spans[2:], axis=1))


def _pools(written: Written) -> list[Ints]:
    """Return the bytes of each rank's slots: the largest piece, in whole elements of the widest type."""
    itemsize = [tensor.itemsize for tensor in (*written.program.tensors, *written.work)]
    largest: list[dict[int, tuple[int, int]]] = [{} for _ in range(written.program.p)]
    for rank, slot, piece in written.temporaries:
        item = itemsize[piece.tensor]
        nbytes, widest = largest[rank].get(slot, (0, 1))
        largest[rank][slot] = max(nbytes, piece.elements * item), max(widest, item)
    return [
        np.array(
            [-(-nbytes // widest) * widest for _, (nbytes, widest) in sorted(slots.items())], dtype=np.int64
        )
        for slots in largest
    ]

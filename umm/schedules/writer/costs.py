"""From actions written one by one to the columns of a schedule, with their costs on a machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm import cost
from umm.arrays import Bools, Floats, Ints
from umm.dtypes import payload_bytes, product_dtype
from umm.errors import ScheduleError
from umm.machines import Machine
from umm.program.functions.passes import passes
from umm.program.tensors import Program, Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Buffers, Slice, Slices, joined, owned_tiles
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
    is_one_of,
)
from umm.schedules.table.resources import machine_lanes, platform
from umm.schedules.table.table import Data, Function, Means, check_moved

PLAIN = Multiplied()


@dataclass(slots=True)
class Action:
    """One action: its kind, rank and lane by name, its slices, the one written first."""

    kind: int
    rank: int
    lane: str
    pieces: tuple[Slice, ...]
    seconds: float = 0.0  # seconds it takes or waits beside what follows from its slices
    means: str | None = None
    multiplied: Multiplied = PLAIN
    fn: int = -1
    # Bytes it is charged; None if they, and the rest of its seconds, follow from its slices.
    nbytes: int | None = None
    charge: float = 0.0  # bytes on the links for each byte that moves; 0 for what the machine says


UNSAID = -1  # bytes of an action that follow from its slices


@dataclass(frozen=True, eq=False)
class Lines:
    """Consecutive actions as columns; see :class:`Action`."""

    kind: NDArray[np.int8]  # kind of each
    rank: Ints
    # Names of lanes as they are first used, of which `lane` has the numbers, −1 for none.
    lanes: tuple[str, ...]
    lane: Ints  # lane of each
    seconds: Floats  # seconds of each
    nbytes: Ints  # bytes it is charged, or UNSAID
    # Names of means as they are first used, of which `way` has the numbers, −1 for none.
    means: tuple[str, ...]
    way: Ints  # means of each
    charge: Floats  # bytes on the links for each byte that moves
    details: Details  # what each touches; `op` says nothing yet

    def __len__(self) -> int:
        return len(self.kind)

    def taken(self, which: Ints) -> "Lines":
        """Return some of them."""
        columns = ("kind", "rank", "lane", "seconds", "nbytes", "way", "charge")
        taken = {name: getattr(self, name)[which] for name in columns}
        return replace(self, **taken, details=self.details.taken(which))


def lines_of(actions: Sequence[Action]) -> Lines:
    """Return actions written one by one as columns."""
    lanes = {name: i for i, name in enumerate(dict.fromkeys(x.lane for x in actions if x.lane))}
    means = {name: i for i, name in enumerate(dict.fromkeys(x.means for x in actions if x.means))}
    return Lines(
        np.array([x.kind for x in actions], dtype=np.int8),
        np.array([x.rank for x in actions], dtype=np.int64),
        tuple(lanes),
        np.array([lanes.get(x.lane, -1) for x in actions], dtype=np.int64),
        np.array([x.seconds for x in actions], dtype=np.float64),
        np.array([UNSAID if x.nbytes is None else x.nbytes for x in actions], dtype=np.int64),
        tuple(means),
        np.array([means.get(x.means or "", -1) for x in actions], dtype=np.int64),
        np.array([x.charge for x in actions], dtype=np.float64),
        _details(actions),
    )


def lines_joined(parts: Sequence[Lines]) -> Lines:
    """Return lines one below the other, with the number of each rank's multiplies."""
    lanes, means = (
        {name: i for i, name in enumerate(dict.fromkeys(x for part in parts for x in getattr(part, names)))}
        for names in ("lanes", "means")
    )
    # Every part numbers its names by itself: look each number up in the joint numbering. A last entry of −1
    # keeps −1, which indexes it from the end.
    lane, way = (
        np.concatenate(
            [np.array([*map(place.get, getattr(x, names)), -1])[getattr(x, number)] for x in parts]
        )
        for place, names, number in ((lanes, "lanes", "lane"), (means, "means", "way"))
    )
    kind, rank, seconds, nbytes, charge = (
        np.concatenate([getattr(x, name) for x in parts])
        for name in ("kind", "rank", "seconds", "nbytes", "charge")
    )
    details = Details.joined([x.details for x in parts])
    # `op` counts the multiplies of a rank from 0: sort them by rank, keeping their order, and subtract the
    # place where the rank's own begin.
    gemms = (kind == GEMM).nonzero()[0]
    by_rank = gemms[rank[gemms].argsort(kind="stable")]
    ranks_of = rank[by_rank]
    details.op[:] = -1
    details.op[by_rank] = np.arange(len(ranks_of)) - ranks_of.searchsorted(ranks_of)
    return Lines(kind, rank, tuple(lanes), lane, seconds, nbytes, tuple(means), way, charge, details)


class Written(NamedTuple):
    """A Builder's actions and their context."""

    name: str  # name of the algorithm
    program: Program  # the program it carries out
    machine: Machine  # the machine it is lowered for
    work: tuple[Tensor, ...]  # tensors beyond the program's
    lanes: Mapping[str, int]  # number of lanes of each group beside `compute`
    options: Mapping[str, Any]  # how it was made
    lines: Lines  # the actions
    after_offsets: Ints  # where each action's dependencies start in `after`
    after: Ints  # numbers of the actions waited for
    temporaries: Buffers  # rank, slot and extent of each
    functions: tuple[Function, ...]  # functions of the maps


def priced(written: Written) -> Schedule:
    """Return the schedule of some actions."""
    lines, machine, ranks = written.lines, written.machine, written.program.p
    tensors = (*written.program.tensors, *written.work)
    columns = _Columns(written, joined([owned_tiles(tensors), written.temporaries]))
    shared = platform(machine, ranks, 1)
    standard = ["compute", *(f"{group}.{i}" for group, count in written.lanes.items() for i in range(count))]
    # Lanes have the same numbers at every rank, used or not: standard ones first, then those that an
    # algorithm asked for by name.
    further = [name for name in lines.lanes if name not in standard]
    place = {name: i for i, name in enumerate([*standard, *further])}
    devices = [machine.device_of(rank, ranks) for rank in range(ranks)]
    lane = lines.rank * len(place) + np.array([*(place[x] for x in lines.lanes), 0])[lines.lane]
    lane[lines.kind == BARRIER] = -1
    check_moved(float(columns.nbytes.sum(dtype=np.float64)))
    return Schedule(
        program=written.program,
        name=written.name,
        machine=machine.name,
        ranks=ranks,
        interference=machine.interference,
        # The memory of a device is a link only between ranks that share one.
        links=shared.links if shared.devices < ranks else shared.links.first(len(machine.fabric.names)),
        routes=shared.routes,
        lanes=machine_lanes(ranks, devices, list(place)[1:], machine.local_on_engine),
        kind=lines.kind,
        rank=lines.rank,
        lane=lane,
        after_offsets=written.after_offsets,
        after=written.after,
        src=columns.src,
        dst=columns.dst,
        nbytes=columns.nbytes,
        seconds=columns.seconds,
        make_data=lambda: Data(lines.details, written.temporaries),
        make_pools=lambda: _pools(written),
        options=written.options,
        peak=_peak(written.program, machine, shared.devices),
        work=written.work,
        functions=written.functions,
        means=tuple(Means(name, machine.means[name].interference) for name in lines.means),
        means_of=lines.way.astype(np.int8) if lines.means else None,
    )


def _peak(program: Program, machine: Machine, devices: int) -> float:
    """Return flop/s of devices together: that of the one type, or flop over the time of all at their own."""
    # Types run one after another on a device, so the joint peak is the harmonic mean weighted by flop: a
    # schedule that multiplies without pause reaches exactly 100 % of it.
    by_type = program.flop_of_types
    peaks = [machine.total_peak(dtype, devices) for dtype in by_type]
    if len(peaks) < 2:
        return peaks[0] if peaks else 0.0
    return sum(by_type.values()) / sum(
        flop / peak for flop, peak in zip(by_type.values(), peaks, strict=True)
    )


class _Columns:
    """The columns of time: sources, targets, bytes and costs of the actions."""

    def __init__(self, written: Written, buffers: Buffers) -> None:
        lines, machine, d = written.lines, written.machine, written.lines.details
        tensors = (*written.program.tensors, *written.work)
        self._ranks, self._held = written.program.p, buffers
        self.kind, self.rank = lines.kind, lines.rank
        self.src, self.dst = (np.full(len(lines), -1, dtype=np.int64) for _ in range(2))
        self.seconds = lines.seconds.copy()
        # An action with bytes of its own (part of a fused kernel, a wait) is charged as it says. All others
        # are priced below from their slices, a kind and a type at a time: NumPy's cost is by the call.
        given = lines.nbytes != UNSAID
        self.nbytes = np.where(given, lines.nbytes, 0)
        transfers = is_one_of(self.kind, TRANSFERS).nonzero()[0]
        self.src[transfers] = buffers.rank[d.buffer[transfers, 1]]
        self.dst[transfers] = buffers.rank[d.buffer[transfers, 0]]
        transfers = transfers[~given[transfers]]
        elements = _elements(d, transfers, 0)
        tensor = buffers.tensor[d.buffer[transfers, 0]]
        payload = np.zeros_like(elements)
        for number in np.unique(tensor).tolist():
            of_tensor = tensor == number
            payload[of_tensor] = payload_bytes(elements[of_tensor], tensors[number].dtype)
        self._move(machine, transfers, payload, lines, self._strided(machine, d, transfers))
        charge = lines.charge[transfers]
        charged = charge > 0
        self.nbytes[transfers[charged]] = np.ceil(payload[charged] * charge[charged]).astype(np.int64)
        self._multiply(machine, d, tensors, ~given)
        itemsize = np.array([tensor.itemsize for tensor in tensors], dtype=np.int64)
        if machine.refill:
            gemms = (self.kind == GEMM).nonzero()[0]
            # Transfers that end before the first gemm drive nothing out of the caches that a gemm has used.
            barriers = (self.kind[: gemms.min(initial=len(lines))] == BARRIER).nonzero()[0]
            ended = barriers.max(initial=-1)
            beside = is_one_of(self.kind[transfers], (GET, PUT, ACCUMULATE)) & (transfers > ended)
            rows = transfers[beside]
            self.seconds[rows] += cost.refill_seconds(
                machine,
                payload[beside],
                self.rank[rows],
                self.rank[gemms],
                self._touched(d, gemms, itemsize).tolist(),
                got=self.kind[rows] == GET,
            )
            new = gemms[~given[gemms]]
            self.seconds[new] += cost.load_seconds(machine, self._first_used(written, new, itemsize).tolist())
        maps = ((self.kind == MAP) & ~given).nonzero()[0]
        used = self._touched(d, maps, itemsize).astype(np.float64)
        pace = cost.pace_of(machine, self.rank[maps], self._ranks)
        self.seconds[maps] = machine.launch_s + used / machine.pass_bandwidth / pace.memory
        if machine.passes:
            self._go_over(machine, d, maps, written.functions, tensors)

    def _go_over(
        self, machine: Machine, d: Details, maps: Ints, functions: Sequence[Function],
        tensors: Sequence[Tensor],
    ) -> None:  # fmt: skip
        """Set the seconds of maps that NumPy performs: passes over arrays, not one over its operands."""
        for row in maps.tolist():
            called = functions[d.fn[row]]
            read = d.buffer[row] >= 0
            cols, rows = (int(np.ptp(x[row][read], axis=1).max()) for x in (d.cols, d.rows))
            dtypes = {tensors[self._held.tensor[x]].dtype for x in d.buffer[row][read].tolist()}
            wide = "float64" if "float64" in dtypes else "float32"
            law = machine.passes.get(wide)
            kinds = passes(called.name, tuple(called.parameters.items()), wide, cols)
            if law is not None and kinds:
                each = np.dtype(wide).itemsize * rows
                self.seconds[row] = machine.launch_s + law.seconds(
                    each * cols, {kind: each * count for kind, count in kinds.items()}
                )

    def _move(self, machine: Machine, rows: Ints, payload: Ints, lines: Lines, strided: Bools) -> None:
        adds = is_one_of(self.kind[rows], (ACCUMULATE, REDUCE))
        self.nbytes[rows] = np.where(
            adds, cost.accumulate_bytes(machine, payload, strided), cost.transfer_bytes(machine, payload)
        )
        signals, way = self.seconds[rows], lines.way[rows]
        for number in np.unique(way[way >= 0]).tolist():
            name = lines.means[number]
            if name not in machine.means:
                known = ", ".join(machine.means) or "none"
                raise ScheduleError(f"{machine.name} has no means {name!r} to move bytes; it has {known}")
            by = way == number
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

    def _multiply(self, machine: Machine, d: Details, tensors: Sequence[Tensor], new: Bools) -> None:
        rows = ((self.kind == GEMM) & new).nonzero()[0]
        if not len(rows):
            return
        # The rate of a gemm depends on the types of A and B and the bytes of C alone, so gemms are priced in
        # groups of these. There are few combinations, and each group is one call of the cost model.
        operands = np.stack([self._held.tensor[d.buffer[rows, operand]] for operand in range(3)])
        types, which = np.unique(operands, axis=1, return_inverse=True)
        kinds = [
            (product_dtype(tensors[a].dtype, tensors[b].dtype, tensors[b].stored), tensors[c].itemsize)
            for c, a, b in types.T.tolist()
        ]
        for dtype, c_itemsize in dict.fromkeys(kinds):
            alike = [i for i, kind in enumerate(kinds) if kind == (dtype, c_itemsize)]
            gemms = rows[np.isin(which, alike)]
            members = d.taken(gemms)
            m, n, k = members.multiplied.T
            pace = cost.pace_of(machine, self.rank[gemms], self._ranks)
            took = cost.multiply_seconds(machine, dtype, m, n, k, c_itemsize, members.batch, pace=pace)
            # A batch is launched once; each member then takes a multiply's time without its launch.
            launch = machine.gemm_start(dtype)
            self.seconds[gemms] = launch + members.batch * (took - launch)

    def _sizes(self, d: Details, rows: Ints, operand: int, itemsize: Ints) -> Ints:
        """Return the bytes of an operand of some actions, 0 where there is none."""
        buffer = d.buffer[rows, operand]
        return np.where(buffer >= 0, _elements(d, rows, operand) * itemsize[self._held.tensor[buffer]], 0)

    def _touched(self, d: Details, rows: Ints, itemsize: Ints) -> Ints:
        """Return the bytes of all slices of some actions."""
        none = np.zeros(len(rows), dtype=np.int64)
        return sum((self._sizes(d, rows, x, itemsize) for x in range(d.operands)), start=none)

    def _first_used(self, written: Written, gemms: Ints, itemsize: Ints) -> Ints:
        """Return the bytes that each is the first to use: A in own tiles, C in slots, large temporaries."""
        buffers, d = self._held, written.lines.details
        temporary = len(buffers) - len(written.temporaries)
        large = np.zeros(len(buffers), dtype=bool)
        large[temporary:] = cost.leaves_caches(
            written.machine, written.temporaries.elements * itemsize[written.temporaries.tensor]
        )
        # A first touch loads from memory; later ones find the caches warm. What get brought is warm already,
        # unless it is so large that it has left the caches.
        c, a, b = (d.buffer[gemms, operand] for operand in range(3))
        # What is used is known by the slice, or by the pool slot of a C.
        keys = np.zeros((len(gemms), 3, 6), dtype=np.int64)
        for factor in (1, 2):
            keys[:, factor, 0] = d.buffer[gemms, factor]
            keys[:, factor, 1:3], keys[:, factor, 3:5] = d.rows[gemms, factor], d.cols[gemms, factor]
        keys[:, 0, 0], keys[:, 0, 1], keys[:, 0, 5] = buffers.rank[c], buffers.slot[c], 1
        of_rank = (a < temporary) & (buffers.rank[a] == self.rank[gemms])
        counts = np.stack([c >= temporary, large[a] | of_rank, large[b]], axis=1)
        gemm, operand = counts.nonzero()
        # np.unique returns the first row of each key, and nonzero goes gemm by gemm: first means first in
        # time.
        _, first = np.unique(keys[gemm, operand], axis=0, return_index=True)
        nbytes = np.zeros(len(gemms), dtype=np.int64)
        sizes = np.stack([self._sizes(d, gemms, x, itemsize) for x in range(3)], axis=1)
        np.add.at(nbytes, gemm[first], sizes[gemm[first], operand[first]])
        return nbytes

    def _strided(self, machine: Machine, d: Details, rows: Ints) -> Bools:
        """Return which transfers write some of the columns of their buffer."""
        if machine.strided_accumulates == 1.0:
            return np.zeros(len(rows), dtype=bool)
        strided: Bools = (
            np.diff(d.cols[rows, 0], axis=1)[:, 0] < np.diff(self._held.cols[d.buffer[rows, 0]], axis=1)[:, 0]
        )
        return strided


def _elements(d: Details, rows: Ints, operand: int) -> Ints:
    """Return the elements of an operand of some actions."""
    tall, wide = (x[rows, operand, 1] - x[rows, operand, 0] for x in (d.rows, d.cols))
    elements: Ints = tall * wide
    return elements


def _details(actions: Sequence[Action]) -> Details:
    counts = np.array([len(action.pieces) for action in actions], dtype=np.int64)
    details = Details.empty(len(actions), max(OPERANDS, int(counts.max(initial=0))))
    row = np.repeat(np.arange(len(actions)), counts)
    operand = np.arange(len(row)) - (counts.cumsum() - counts)[row]
    pieces = Slices.of([piece for action in actions for piece in action.pieces])
    details.put(row, operand, pieces.buffer, pieces.spans[:, :2], pieces.spans[:, 2:])
    details.fn[:] = [action.fn for action in actions]
    gemms = [i for i, action in enumerate(actions) if action.kind == GEMM]
    if gemms:
        multiplied = [actions[i].multiplied for i in gemms]
        number = {x: i for i, x in enumerate(dict.fromkeys(multiplied))}  # few differ
        which = np.array([number[x] for x in multiplied])
        for name, values in zip(Multiplied._fields, zip(*number, strict=True), strict=True):
            getattr(details, name)[gemms] = np.array(values)[which]
    return details


def _pools(written: Written) -> list[Ints]:
    """Return the bytes of each rank's slots: the largest piece, in whole elements of the widest type."""
    temporaries, ranks = written.temporaries, written.program.p
    itemsize = np.array([tensor.itemsize for tensor in (*written.program.tensors, *written.work)])
    slots = int(temporaries.slot.max(initial=-1)) + 1
    largest, widest = np.zeros((ranks, slots), dtype=np.int64), np.ones((ranks, slots), dtype=np.int64)
    items = itemsize[temporaries.tensor]
    np.maximum.at(largest, (temporaries.rank, temporaries.slot), temporaries.elements * items)
    np.maximum.at(widest, (temporaries.rank, temporaries.slot), items)
    # Rounded up so that a slot of mixed types is aligned for each of them.
    nbytes = -(-largest // widest) * widest
    return [sizes[sizes > 0] for sizes in nbytes]

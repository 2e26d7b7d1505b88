"""Algorithms written as sequential code over slices, from which dependencies follow.

An algorithm loops over its steps outside and over ranks inside, as if one action came after another. Each
action then waits for every earlier one that touches the same memory, unless both read or both add, so an
algorithm cannot race, however its actions overlap.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints
from umm.errors import ScheduleError
from umm.machines import Machine
from umm.machines.curves import COLLECTIVE
from umm.program.functions import function
from umm.program.tensors import Program, Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.accesses import ADD, READ, WRITE, Order, order_of
from umm.schedules.table.accesses import BARRIER as NO_ACCESS
from umm.schedules.table.buffers import Slice, Slices
from umm.schedules.table.details import (
    ACCUMULATE,
    BARRIER,
    BROADCAST,
    GEMM,
    GET,
    KINDS,
    LOCAL,
    MAP,
    PUT,
    REDUCE,
    Details,
    Multiplied,
    is_one_of,
)
from umm.schedules.table.table import Function
from umm.schedules.writer.assembly import Room, named, part_lines
from umm.schedules.writer.costs import UNSAID, Action, Lines, Written, lines_joined, lines_of, priced

KERNEL = "kernel"
"""The lane on which a collective's kernel adds up: its sums are in memory when the next kernel starts."""
MOST_OBJECTS = 50_000  # actions after which they become columns, which take a fifth of the memory
Row = int | None  # number of an action, None where empty work was left out
FEWEST_AT_ONCE = 32  # transfers of which fewer are written one by one


class Transfers(NamedTuple):
    """Transfers as columns; see :meth:`Builder.transfers`."""

    kind: Ints
    source: Slices
    into: Slices
    hows: Sequence["How"]
    how: Ints


class How(TypedDict, total=False):
    """How a transfer is done."""

    lane: str  # which of its rank's lanes; the lanes of its group in turn if not said
    means: str  # a way to move bytes that the machine names; its kind's own if not said
    charge: float  # bytes on the links for each byte that moves; what the machine says if not said
    padded: int  # elements that it is charged for at least, if it has a charge
    after: Sequence[Row]  # actions to wait for beside those that follow from the slices


class Builder(Room):
    """Writes a schedule action by action.

    Args:
        work: Tensors beyond the program's.
        accumulate_lanes: Accumulates and reduces a rank has in flight.
        options: How it was made, as plain values.

    Source: docs/reference/schedule.md.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        machine: Machine,
        work: Iterable[Tensor] = (),
        *,
        accumulate_lanes: int = 2,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        machine.check_ranks(program.p)
        self.name, self.program, self.machine = name, program, machine
        self.options = dict(options or {})
        self.work = tuple(work)
        super().__init__((*program.tensors, *self.work), program.p)
        self.lanes = {
            "copy_in": machine.copy_engines,
            "copy_out": machine.copy_engines,
            "accumulate": accumulate_lanes,
        }
        self._turns: dict[tuple[int, str], int] = {}
        self._functions: dict[Any, int] = {}
        self._asked: dict[Any, int] = {}  # the same by what callers said
        self._known = order_of(self.firsts[-1], bool(machine.signal_s))
        self._waiting: list[Transfers] = []  # not yet written
        self._actions: list[Action] = []  # since the last part
        self._lines: list[Lines] = []  # before these
        self._given = [tensor.role == "input" for tensor in self.tensors]
        self._means = COLLECTIVE if COLLECTIVE in machine.means else None
        self._signal_s = machine.signal_s
        self._started: dict[int, int] | None = None  # by rank the wait for a collective to start
        self._start_s = 0.0  # how long that is
        self._relayed: set[int] = set()  # its transfers, and copies of what they brought
        self._streams: dict[tuple[int, ...], dict[int, list[int]]] = {}  # the last one's rows
        self._stream: dict[int, list[int]] | None = None  # of this collective, if it is in order

    # Actions --------------------------------------------------------------------------------------

    def get(self, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        """Copy a slice to another, by the rank that receives it; see :class:`How`."""
        return self._transfer(GET, source, into, **how)

    def put(self, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        """Copy a slice to another, by the rank that has it."""
        return self._transfer(PUT, source, into, **how)

    def broadcast(self, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        """Copy a slice to another replica's; a put by another name."""
        return self._transfer(BROADCAST, source, into, **how)

    def accumulate(self, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        """Add a slice to another, atomically by element, by the rank that has it."""
        return self._transfer(ACCUMULATE, source, into, **how)

    def reduce(self, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        """Add a slice to another replica's; an accumulate by another name."""
        return self._transfer(REDUCE, source, into, **how)

    def transfers(self, kind: Ints, source: Slices, into: Slices, hows: Sequence[How], how: Ints) -> None:
        """Write transfers one after another, as if each was written by itself; see :class:`How`.

        Args:
            kind: GET, PUT, BROADCAST, ACCUMULATE or REDUCE, of each.
            hows: How transfers are done, without actions to wait for.
            how: Which of these each is.
        """
        self._waiting.append(Transfers(kind, source, into, hows, how))

    def gemm(
        self,
        c: Slice,
        a: Slice,
        b: Slice,
        beta: float = 1.0,
        trans: Iterable[str] = (),
        alpha: float = 1.0,
        batch: int = 1,
        *,
        batch_axes: tuple[int, int, int] = (0, 0, 0),
        groups: tuple[int, int, int] = (1, 1, 1),
        lane: str = "compute",
        after: Sequence[Row] = (),
        seconds: float | None = None,
    ) -> Row:
        """Set c to α · op(a) · op(b) + β · c; β = 0 does not read c.

        Args:
            beta: 1 adds to c.
            trans: ``a``, ``b`` or both: what is read transposed.
            batch: Members that are multiplied each for itself.
            batch_axes: Axes along which c, a and b are cut into members.
            groups: How many consecutive members share one of c, a and b.
            after: Actions to wait for beside those that follow from the slices.
            seconds: How long it takes; None for what a multiply of its own takes.
        """
        bits = sum({"a": 2, "b": 4}[x] for x in set(trans))
        if not c.elements:
            return None
        if not a.elements or not b.elements:
            if beta == 0:
                return self.map("zero", c, lane=lane, after=after)
            return None if beta == 1 else self.map("scale", c, c, lane=lane, after=after, factor=beta)
        multiplied = Multiplied(bits, alpha, beta, batch, batch_axes, groups)
        action = Action(GEMM, c.rank, lane, (c, a, b), multiplied=multiplied)
        if seconds is not None:  # a part of a kernel that does several
            action.seconds, action.nbytes = seconds, 0
        return self._add(action, WRITE, after)

    def gemms(
        self, c: Slices, a: Slices, b: Slices, beta: Floats, trans: Iterable[str] = (), alpha: float = 1.0
    ) -> None:
        """Write gemms one after another, as if each was written by itself; see :meth:`gemm`."""
        # As columns only if the result is the same as one by one: at most one gemm a rank, none empty or
        # refused.
        at_home = all((x.rank == c.rank).all() and x.elements.all() for x in (c, a, b))
        if not at_home or len(np.unique(c.rank)) < len(c) or self._gives(c):
            for out, left, right, its_beta in zip(c.all(), a.all(), b.all(), beta.tolist(), strict=True):
                self.gemm(out, left, right, its_beta, trans, alpha)
            return
        # Ranks touch nothing of each other's, so what these wait for among themselves is nothing.
        self._write_waiting()
        self._close_lines()
        count, operands = len(c), (c, a, b)
        details = Details.empty(count)
        for operand, x in enumerate(operands):
            details.put(np.arange(count), operand, x.buffer, x.spans[:, :2], x.spans[:, 2:])
        details.trans[:] = sum({"a": 2, "b": 4}[x] for x in set(trans))
        details.alpha[:], details.beta[:] = alpha, beta
        none, zeros = np.full(count, -1), np.zeros(count)
        lines = Lines(
            np.full(count, GEMM, dtype=np.int8), c.rank, ("compute",), np.zeros(count, dtype=np.int64), zeros,
            np.full(count, UNSAID), (), none, zeros, details,
        )  # fmt: skip
        self._lines.append(self._placed(lines, np.zeros(count + 1), np.zeros(0)))

    def _gives(self, into: Slices) -> bool:
        """Whether any of some slices is of an input, which is never written."""
        written = into.tensor[into.buffer < self.firsts[-1]]
        return any(self._given[x] for x in np.unique(written).tolist())

    def map(
        self,
        fn: str,
        out: Slice,
        *reads: Slice,
        lane: str = "compute",
        after: Sequence[Row] = (),
        seconds: float | None = None,
        **parameters: Any,
    ) -> Row:
        """Set a slice to a function of others at the same rank; see :mod:`umm.program.functions`.

        ScheduleError if it reads an empty slice and is not a sum.

        Args:
            after: Actions to wait for beside those that follow from the slices.
            seconds: How long it takes; None for what a pass over its slices takes.
        """
        if not out.elements:
            return None
        if not all(piece.elements for piece in reads):
            if not function(fn).adds_over:
                raise ScheduleError(f"{fn} of an empty slice has no value")
            fn, reads, parameters = "zero", (), {}
        asked = (fn, *parameters.items())
        number = self._asked.get(asked)
        if number is None:
            full = function(fn).checked(parameters)
            number = self._functions.setdefault((fn, tuple(sorted(full.items()))), len(self._functions))
            self._asked[asked] = number
        action = Action(MAP, out.rank, lane, (out, *reads), fn=number)
        if seconds is not None:  # not what follows from the bytes of its slices
            action.seconds, action.nbytes = seconds, 0
        return self._add(action, WRITE, after)

    def computed(self, piece: Slice) -> bool:
        """Whether its rank has computed a slice and nobody has changed it since; also if it was given."""
        return self._order.computed(piece)

    def wait(self, rank: int, seconds: float, lane: str = "compute", after: Sequence[Row] = ()) -> int:
        """Let time pass on a lane: a fence, a launch."""
        return self._add(Action(LOCAL, rank, lane, (), seconds=seconds), READ, after)

    def claim(self, piece: Slice, lane: str = "claim") -> Row:
        """Wait once until a slice may be written; all that is put there later waits for that alone.

        Where much has touched what a pool slot held before, each of many pieces would wait for all of that.
        None if there is little to wait for.

        Args:
            lane: Which of the rank's lanes, on which nothing else should wait.
        """
        if len(self._order.conflicts(WRITE, (piece,))) <= FEWEST_AT_ONCE:
            return None
        action = Action(LOCAL, piece.rank, lane, ())
        row = self._order.add(piece.rank, False, WRITE, (piece,), ())
        if row < 0:
            row, action.seconds = ~row, self._signal_s
        self._actions.append(action)
        return row

    def barrier(self) -> int:
        """Wait for everything before; everything after waits for this."""
        order = self._order
        self._actions.append(Action(BARRIER, -1, "", ()))
        return order.barrier()

    @contextmanager
    def collective(self, start_s: float | None = None) -> Iterator[None]:
        """Write one collective: its transfers go by the machine's means ``collective``, if it has such.

        Each rank waits once for it to start, when its first transfer could go. Those that pass on what
        another transfer has moved do not: it has started already. One within another is a part of that one.

        Args:
            start_s: How long ranks wait; as the machine says if None.
        """
        if self._started is not None:
            if (start_s or 0.0) > self._start_s:
                self._write_waiting()
                self._start_s = start_s or 0.0
            yield
            return
        self._write_waiting()
        # The start is charged once a rank: the first transfer that no relay has brought starts the
        # collective.
        self._started = {}
        self._start_s = self.machine.collective_start_s if start_s is None else start_s
        try:
            yield
            self._write_waiting()
        finally:
            self._started = self._stream = None
            self._relayed.clear()

    def in_order(self, ranks: Sequence[int], touched: Mapping[int, Iterable[tuple[int, Slice]]]) -> None:
        """Start a collective on all its ranks, after the one that the same ranks did before.

        A rank starts once it may access all that the collective reads and writes there, and the one before
        has ended on it. Each transfer waits until both its ends have started, so ranks keep step.

        Args:
            ranks: Who takes part; the same ranks are one communicator, whose collectives run one by one.
            touched: For each rank what it reads and writes, and how.
        """
        assert self._started is not None
        self._write_waiting()
        before = self._streams.get(tuple(ranks), {})
        self._stream = self._streams[tuple(ranks)] = {rank: [] for rank in ranks}
        for rank in ranks:
            waits = set(before.get(rank, ()))
            for how, piece in touched[rank]:
                waits |= self._order.conflicts(how, (piece,))
            self._started[rank] = self._begin(rank, waits)

    def together(self, ranks: Sequence[int], summed: Iterable[Slice]) -> None:
        """Start a sum on some ranks once all of them may add: it is as late as the latest, like a ring.

        Partners share a rank's lanes, so what goes to a late one would hold up what goes to the others. Ranks
        out of step then all send to the same one, and one slow rank would cost more than if all were slow.

        Args:
            summed: What is added, and where it is added.
        """
        assert self._started is not None
        if len(ranks) < 2 or not self._start_s:
            return
        conflicts = self._order.conflicts
        waits = set[int]().union(*(conflicts(ADD, (piece,)) for piece in summed if piece.elements))
        for rank in ranks:
            self._started[rank] = self._begin(rank, waits)

    def _begin(self, rank: int, waits: set[int]) -> int:
        """Write that a collective starts on a rank once some actions have ended."""
        self._actions.append(Action(LOCAL, rank, "start", (), seconds=self._start_s))
        return self._order.follow(rank, waits)

    def append(
        self,
        part: Schedule,
        names: Mapping[str, str],
        slots: Hashable,
        transposed: Collection[str] = (),
        alpha: float = 1.0,
        anew: Collection[int] = (),
    ) -> None:
        """Add a lowered multiply as a part: its own actions after each other as they are, and after others.

        Its actions keep what they wait for among themselves; for what they wait for of parts before follows
        from the slices, tile by tile, so parts overlap. ScheduleError if a tensor here has another layout or
        type than the part's.

        Args:
            part: Lowered for this machine and as many ranks.
            names: The tensor here that each tensor of the part is.
            slots: Parts with equal keys share pool slots.
            transposed: Tensors of the part that are stored transposed here: read as views, nothing moves.
            anew: Its gemms that write what they add to in it.
        """
        self._write_waiting()
        tensors = [self.number(names.get(tensor.name, tensor.name)) for tensor in part.tensors]
        for theirs, number in zip(part.tensors, tensors, strict=True):
            ours = self.tensors[number]
            stored = ours.layout.transposed if theirs.name in transposed else ours.layout
            same = theirs.layout == stored and theirs.layout.cuts == stored.cuts  # tiles numbered alike
            if not same or theirs.dtype != ours.dtype:
                raise ScheduleError(
                    f"{theirs.name} of the part is {theirs.dtype} in layout {theirs.layout}, "
                    f"but {ours.name} is {ours.dtype} in {stored}"
                )
        functions = [
            self._functions.setdefault((name, tuple(sorted(parameters.items()))), len(self._functions))
            for name, parameters in part.functions
        ]
        turned = [number for number, tensor in enumerate(part.tensors) if tensor.name in transposed]
        lines = part_lines(
            part, tensors, self.firsts, functions, partial(self.part_temporaries, slots), turned, alpha, anew
        )
        self._close_lines()
        self._lines.append(self._placed(lines, part.after_offsets, part.after))

    def _placed(self, lines: Lines, offsets: NDArray[Any], after: NDArray[Any]) -> Lines:
        """Return a part's lines once they have their places, with waits for signals among them."""
        # offsets: where what each of them waits for in the part starts in `after`.
        kind, d = lines.kind, lines.details
        # The C loop returns the rows of all actions and which waits cross ranks. For a transfer the signal's
        # time is added to its own; what computes gets a wait of its own before it, so that it occupies its
        # lane.
        ways = _ways(kind)
        ways[kind == BARRIER] = NO_ACCESS
        apart = np.array([*(name == KERNEL for name in lines.lanes), False])[lines.lane]
        computes = is_one_of(kind, (GEMM, MAP)) & ~apart
        rows, late = np.zeros((2, len(lines)), dtype=np.int64)
        spans = np.concatenate([d.rows, d.cols], axis=2)
        given = (lines.rank, ways, computes, d.buffer, spans, offsets, after)
        columns = [np.ascontiguousarray(x, dtype=np.int64) for x in (*given, rows, late)]
        self._order.append(*columns)
        if not late.any():
            return lines
        signal = self.machine.signal_s
        lines = replace(lines, seconds=lines.seconds + np.where(late.astype(bool) & ~computes, signal, 0.0))
        waiting = (computes & late.astype(bool)).nonzero()[0]
        empty = Details.empty(len(waiting), d.operands)
        local = replace(
            lines.taken(waiting),
            kind=np.full(len(waiting), LOCAL, dtype=np.int8),
            seconds=np.full(len(waiting), signal),
            nbytes=np.full(len(waiting), UNSAID),
            way=np.full(len(waiting), -1),
            details=empty,
        )
        both = lines_joined([lines, local])
        return both.taken(np.concatenate([rows, rows[waiting] - 1]).argsort())

    def schedule(self) -> Schedule:
        """Return the schedule of all actions so far."""
        self._write_waiting()
        functions = tuple(Function(name, dict(parameters)) for name, parameters in self._functions)
        self._close_lines()
        self._lines = [lines_joined(self._lines)]
        rows, waits = self._order.size()
        offsets, after = np.zeros(rows + 1, dtype=np.int64), np.zeros(waits, dtype=np.int64)
        self._order.fill(offsets, after)
        return priced(
            Written(
                self.name, self.program, self.machine, self.work, self.lanes, self.options,
                self._lines[0], offsets, after, self.temporaries, functions,
            )
        )  # fmt: skip

    def _close_lines(self) -> None:
        """Turn the actions written one by one into columns."""
        if self._actions or not self._lines:
            self._lines.append(lines_of(self._actions))
            self._actions = []

    # ----------------------------------------------------------------------------------------------

    def _hold(self, places: Sequence[int]) -> None:
        super()._hold(places)
        self._known.hold(places)

    @property
    def _order(self) -> Order:
        """The accesses of all actions written so far."""
        if self._waiting:
            self._write_waiting()
        return self._known

    def _write_waiting(self) -> None:
        """Write the transfers of several calls at once, which takes little more than those of one."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        kind, source, into, hows, how = waiting[0] if len(waiting) == 1 else _one_after_another(waiting)
        full = (source.elements > 0) | (into.elements > 0)
        if not full.all():
            kind, source, into, how = kind[full], source.taken(full), into.taken(full), how[full]
        # One by one where they are few, or need features that only that has.
        if len(kind) >= FEWEST_AT_ONCE and self._are_alike(source, into):
            self._transfer_at_once(kind, source, into, hows, how)
        else:
            each = zip(kind.tolist(), source.all(), into.all(), how.tolist(), strict=True)
            for one, piece, target, number in each:
                self._transfer(one, piece, target, **hows[number])

    def _are_alike(self, source: Slices, into: Slices) -> bool:
        """Whether transfers can be written at once: in no order, rows and columns as they are."""
        if self._stream is not None or (source.spans != into.spans).any():
            return False
        other = source.tensor != into.tensor
        pairs = {*zip(source.tensor[other].tolist(), into.tensor[other].tolist(), strict=True)}
        if any(self.tensors[x].dtype != self.tensors[y].dtype for x, y in pairs):
            return False
        return not self._gives(into)

    def _transfer_at_once(
        self, kind: Ints, source: Slices, into: Slices, hows: Sequence[How], how: Ints
    ) -> None:
        """Write transfers as columns; the result equals calls of :meth:`_transfer`."""
        self._close_lines()
        moves, first = source.rank != into.rank, self._order.size()[0]
        rank = np.where(kind == GET, into.rank, source.rank)
        ways = _ways(kind)
        rows, late = np.zeros((2, len(kind)), dtype=np.int64)
        begun = self._started if self._start_s else None
        given = (ways, rank, moves, into.buffer, into.spans, source.buffer, source.spans, rows, late)
        columns = [np.ascontiguousarray(x, dtype=np.int64) for x in given]
        self._order.transfers(*columns, begun, self._relayed)
        # Starts that the C loop put between the transfers take rows too; `at` and `start` place both in one
        # block.
        starts = [(row - first, starter) for starter, row in (begun or {}).items() if row >= first]
        start, started = np.array(starts, dtype=np.int64).reshape(-1, 2).T
        at, total = rows - first, len(rows) + len(start)

        def column(others: Any, values: Any, dtype: Any = np.int64) -> NDArray[Any]:
            result = np.full(total, others, dtype=dtype)
            result[at] = values
            return result

        ranks = column(-1, rank)
        ranks[start] = started
        lanes, lane = self._lanes_of(kind, rank, hows, how)
        usual = self._means if self._started is not None else None
        named_means = [x.get("means") for x in hows]
        names = list(dict.fromkeys(x for x in (usual, *named_means) if x is not None))
        number: dict[str | None, int] = {None: -1} | {name: i for i, name in enumerate(names)}
        way = np.array([number[x] for x in named_means])[how]
        way = np.where((way < 0) & moves, number[usual], way)
        details = Details.empty(total)
        for operand, slices in enumerate((into, source)):
            details.put(at, operand, slices.buffer, slices.spans[:, :2], slices.spans[:, 2:])
        of_lane, lane = named([*lanes, "start"], column(len(lanes), lane))
        means, way = named(names, column(-1, way))
        charge, padded = (np.array([x.get(key, 0) for x in hows])[how] for key in ("charge", "padded"))
        self._lines.append(
            Lines(
                column(LOCAL, kind, np.int8), ranks, of_lane, lane,
                column(self._start_s, late * self._signal_s, np.float64), np.full(total, UNSAID), means, way,
                column(0.0, charge * np.maximum(1.0, padded / into.elements), np.float64), details,
            )
        )  # fmt: skip

    def _lanes_of(self, kind: Ints, rank: Ints, hows: Sequence[How], how: Ints) -> tuple[list[str], Ints]:
        """Return names of lanes, and which of them each transfer is on; those of its group in turn."""
        names = {name: i for i, name in enumerate(dict.fromkeys(x["lane"] for x in hows if "lane" in x))}
        lane = np.array([names.get(x.get("lane", ""), -1) for x in hows])[how]
        for number in np.unique(kind[lane < 0]).tolist():
            group = _group_of(number)
            free = ((lane < 0) & (kind == number)).nonzero()[0]
            # Round robin by rank, continued from earlier calls: number each rank's transfers in order, add
            # its turn.
            order = free[rank[free].argsort(kind="stable")]
            acting, first, count = np.unique(rank[order], return_index=True, return_counts=True)
            before = [self._turns.get((x, group), 0) for x in acting.tolist()]
            turn = np.arange(len(order)) + np.repeat(np.array(before) - first, count)
            places = [names.setdefault(f"{group}.{x}", len(names)) for x in range(self.lanes[group])]
            lane[order] = np.array(places)[turn % self.lanes[group]]
            for x, was, more in zip(acting.tolist(), before, count.tolist(), strict=True):
                self._turns[x, group] = was + more
        return list(names), lane

    def _transfer(self, kind: int, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        # Schedules of clusters are millions of these, so what is usual is checked first.
        if self._waiting:
            self._write_waiting()
        _, giver, tensor, (top, bottom), (left, right) = source
        _, taker, target, rows, cols = into
        alike = source.rows == rows and source.cols == cols
        if (top >= bottom or left >= right) and (alike or not into.elements):
            return None
        if not alike and source.shape != into.shape:
            raise ScheduleError(f"cannot move {source.shape} elements to {into.shape}")
        if not alike and tensor == target:
            raise ScheduleError(
                f"cannot move rows {tuple(source.rows)} and columns {tuple(source.cols)} of "
                f"{self.tensors[into.tensor].name} to {tuple(into.rows)} and {tuple(into.cols)} of it; "
                "a tensor's elements keep their places"
            )
        if tensor != target and self.tensors[tensor].dtype != self.tensors[target].dtype:
            raise ScheduleError(
                f"cannot move {self.tensors[tensor].dtype} to {self.tensors[target].dtype}; "
                "map cast changes the type"
            )
        rank = taker if kind == GET else giver
        lane = how.get("lane")
        if lane is None:
            group = _group_of(kind)
            turn = self._turns.get((rank, group), 0)
            self._turns[rank, group] = turn + 1
            lane = f"{group}.{turn % self.lanes[group]}"
        means = how.get("means")
        if means is None and self._started is not None and taker != giver:
            means = self._means
        charge = how.get("charge", 0.0) if how else 0.0
        if charge:
            charge *= max(1.0, how.get("padded", 0) / into.elements)
        action = Action(kind, rank, lane, (into, source), 0.0, means, charge=charge)
        added = ADD if kind in (ACCUMULATE, REDUCE) else WRITE
        if self._started is None or not self._start_s:
            return self._add(action, added, how.get("after", ()))
        return self._add_started(action, added, how.get("after", ()), self._started)

    def _add_started(self, action: Action, how: int, after: Sequence[Row], started: dict[int, int]) -> int:
        """Add a collective's transfer, after its rank has started it unless it relays."""
        into, source = action.pieces
        if self._given[into.tensor]:
            self._check(action)
        # A transfer that waits for another of the collective passes on what that one brought. It is under way
        # then and pays no second start.
        waits = self._order.conflicts(how, action.pieces)
        if after:
            waits = waits | {row for row in after if row is not None}
        relays, moves = not self._relayed.isdisjoint(waits), into.rank != source.rank
        ends, stream = {into.rank, source.rank}, self._stream
        if stream is None or not moves or not ends <= stream.keys():  # the last: of another group of ranks
            stream = None
        if moves and not relays:
            if action.rank not in started:
                started[action.rank] = self._begin(action.rank, waits)
            waits.add(started[action.rank])
            if stream is not None:
                waits |= {started[x] for x in ends}
        row = self._after(action, how, waits)
        if moves or relays:
            self._relayed.add(row)
        if stream is not None:
            for rank in ends:
                stream[rank].append(row)
        return row

    def _add(self, action: Action, how: int, after: Sequence[Row]) -> int:
        """Add an action that waits for conflicting actions, and for some more."""
        self._check(action)
        return self._after(action, how, after)

    def _after(self, action: Action, how: int, after: Iterable[Row]) -> int:
        """Add an action that was checked; one that waits for another rank waits for its signal too."""
        kind = action.kind
        computes = kind in (GEMM, MAP) and action.lane != KERNEL
        row = self._order.add(action.rank, computes, how, action.pieces, after)
        if row < 0:
            row = ~row
            if computes:
                signal = self._signal_s
                self._actions.append(Action(LOCAL, action.rank, action.lane, (), seconds=signal))
            else:
                action.seconds += self._signal_s
        actions = self._actions
        actions.append(action)
        if len(actions) >= MOST_OBJECTS:
            self._close_lines()
        return row

    def _check(self, action: Action) -> None:
        """Refuse to write to an input, and to compute on data at another rank."""
        if not action.pieces:
            return
        into = action.pieces[0]
        if into.buffer < self.firsts[-1] and self._given[into.tensor]:
            raise ScheduleError(f"{self.tensors[into.tensor].name} is an input, so it is never written")
        if action.kind in (GEMM, MAP):
            for piece in action.pieces:
                if piece.rank != action.rank:
                    raise ScheduleError(
                        f"a {KINDS[action.kind]} of rank {action.rank} cannot read "
                        f"{self.tensors[piece.tensor].name} of rank {piece.rank}; get it first"
                    )


def _one_after_another(waiting: Sequence[Transfers]) -> Transfers:
    """Join several calls of :meth:`Builder.transfers` into one."""
    numbers: dict[tuple[tuple[str, Any], ...], int] = {}
    hows: list[How] = []
    numbers_of: list[Ints] = []
    for *_, hows_of_call, how in waiting:
        known = []
        for one in hows_of_call:
            number = numbers.setdefault(tuple(sorted(one.items())), len(hows))
            if number == len(hows):
                hows.append(one)
            known.append(number)
        numbers_of.append(np.array(known, dtype=np.int64)[how])
    kinds, sources, intos, *_ = zip(*waiting, strict=True)
    return Transfers(
        np.concatenate(kinds), Slices.joined(sources), Slices.joined(intos), hows, np.concatenate(numbers_of)
    )


def _ways(kind: NDArray[Any]) -> Ints:
    """Return the access of each action to its output: only accumulates and reduces add."""
    return np.where(is_one_of(kind, (ACCUMULATE, REDUCE)), ADD, WRITE)


def _group_of(kind: int) -> str:
    """Return the group of lanes of a kind of transfer."""
    return "copy_in" if kind == GET else "copy_out" if kind in (PUT, BROADCAST) else "accumulate"

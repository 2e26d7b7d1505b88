"""Algorithms written as sequential code over slices: what waits for what follows from the slices.

An algorithm loops over its steps outside and over ranks inside, as if one action came after another. Each
action then waits for every earlier one that touches the same memory, unless both read or both add, so an
algorithm cannot race, however its actions overlap.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypedDict, Unpack

from umm.errors import ScheduleError
from umm.machines import Machine
from umm.program.functions import function
from umm.program.tensors import Program, Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.table.accesses import ADD, READ, WRITE, Accesses, Rectangle
from umm.schedules.table.buffers import Slice
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
    Multiplied,
)
from umm.schedules.table.table import Function
from umm.schedules.writer.assembly import Room, appended
from umm.schedules.writer.costs import Action, Written, priced

_Touch = tuple[Hashable, int, int, Rectangle]  # place, how, buffer, what of it
COLLECTIVE = "collective"
"""The means by which a collective's bytes go, where a machine has one of this name."""
Row = int | None
"""Number of an action, None where empty work was left out."""


class How(TypedDict, total=False):
    """How a transfer is done.

    Attributes:
        lane: Which of its rank's lanes; the lanes of its group in turn if not said.
        means: A way to move bytes that the machine names; its kind's own if not said.
        charge: Bytes on the links for each byte that moves; what the machine says if not said.
        after: Actions to wait for beside those that follow from the slices.
    """

    lane: str
    means: str
    charge: float
    after: Sequence[Row]


class Builder(Room):
    """Writes a schedule action by action.

    Args:
        name: Name of the algorithm.
        program: The Problem or Chain it carries out.
        machine: What it is lowered for.
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
        self._accesses = Accesses()
        self._actions: list[Action] = []
        self._open: set[int] = set()  # actions that no other waits for yet
        self._given = [tensor.role == "input" for tensor in self.tensors]
        self._barrier: int | None = None
        self._started: dict[int, int] | None = None  # by rank the wait for a collective to start
        self._start_s = 0.0  # how long that is
        self._relayed: set[int] = set()  # its transfers, and copies of what they brought

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
            c: What is written.
            a: First factor; b the second.
            b: See a.
            beta: 1 adds to c.
            trans: ``a``, ``b`` or both: what is read transposed.
            alpha: Factor of the product.
            batch: Members that are multiplied each for itself.
            batch_axes: Axes along which c, a and b are cut into members.
            groups: How many consecutive members share one of c, a and b.
            lane: Which of the rank's lanes.
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

        Args:
            fn: Name of the function.
            out: What is written.
            reads: What is read.
            lane: Which of the rank's lanes.
            after: Actions to wait for beside those that follow from the slices.
            seconds: How long it takes; None for what a pass over its slices takes.
            parameters: Of the function.

        Raises:
            ScheduleError: if it reads an empty slice and is not a sum.
        """
        if not out.elements:
            return None
        if not all(piece.elements for piece in reads):
            if not function(fn).adds_over:
                raise ScheduleError(f"{fn} of an empty slice has no value")
            fn, reads, parameters = "zero", (), {}
        full = function(fn).checked(parameters)
        number = self._functions.setdefault((fn, tuple(sorted(full.items()))), len(self._functions))
        action = Action(MAP, out.rank, lane, (out, *reads), fn=number)
        if seconds is not None:  # not what follows from the bytes of its slices
            action.seconds, action.nbytes = seconds, 0
        return self._add(action, WRITE, after)

    def computed(self, piece: Slice) -> bool:
        """Whether its rank has computed a slice and nobody has changed it since; also if it was given."""
        last = self._accesses.changes(self.place(piece), piece.buffer, (*piece.rows, *piece.cols))
        return all(self._actions[x].kind in (GEMM, MAP) for x in last)

    def wait(self, rank: int, seconds: float, lane: str = "compute", after: Sequence[Row] = ()) -> int:
        """Let time pass on a lane: a fence, a launch."""
        return self._add(Action(LOCAL, rank, lane, (), seconds=seconds), READ, after)

    def barrier(self) -> int:
        """Wait for everything before; everything after waits for this."""
        self._barrier = self._append(Action(BARRIER, -1, "", ()), self._open)
        self._accesses = Accesses()
        return self._barrier

    @contextmanager
    def collective(self, start_s: float | None = None) -> Iterator[None]:
        """Write one collective: its transfers go by the machine's means ``collective``, if it has such.

        Each rank waits once for it to start, when its first transfer could go. Those that pass on what
        another transfer has moved do not: it has started already. One within another is a part of that one.

        Args:
            start_s: How long ranks wait; as the machine says if None.
        """
        if self._started is not None:
            self._start_s = max(self._start_s, start_s or 0.0)
            yield
            return
        self._started = {}
        self._start_s = self.machine.collective_start_s if start_s is None else start_s
        try:
            yield
        finally:
            self._started = None
            self._relayed.clear()

    def append(
        self,
        part: Schedule,
        names: Mapping[str, str],
        slots: Hashable,
        transposed: Collection[str] = (),
        alpha: float = 1.0,
    ) -> None:
        """Add a lowered multiply as a part: its own actions after each other as they are, and after others.

        Its actions keep what they wait for among themselves; for what they wait for of parts before follows
        from the slices, tile by tile, so parts overlap.

        Args:
            part: Lowered for this machine and as many ranks.
            names: The tensor here that each tensor of the part is.
            slots: Parts with equal keys share pool slots.
            transposed: Tensors of the part that are stored transposed here: read as views, nothing moves.
            alpha: Factor of its products.

        Raises:
            ScheduleError: if a tensor here has another layout or type than the part's.
        """
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
        start = len(self._actions)
        rows: list[int] = []
        turned = [number for number, tensor in enumerate(part.tensors) if tensor.name in transposed]
        actions = appended(
            part, tensors, self.firsts, functions, partial(self.part_temporary, slots), turned, alpha
        )
        for i, action in enumerate(actions):
            own = {rows[row] for row in part.after_of(i).tolist()}
            if action.kind == BARRIER:
                rows.append(self._append(action, self._after_barrier(own)))
                continue
            how = ADD if action.kind in (ACCUMULATE, REDUCE) else WRITE
            touches = self._touches(action, how)
            before = {row for row in self._conflicts(touches) if row < start}
            rows.append(self._add_after(action, touches, own | before))

    def schedule(self) -> Schedule:
        """Return the schedule of all actions so far."""
        functions = tuple(Function(name, dict(parameters)) for name, parameters in self._functions)
        return priced(
            Written(
                self.name, self.program, self.machine, self.work, self.lanes, self.options,
                tuple(self._actions), tuple(self.temporaries), functions,
            )
        )  # fmt: skip

    # ----------------------------------------------------------------------------------------------

    def _transfer(self, kind: int, source: Slice, into: Slice, **how: Unpack[How]) -> Row:
        alike = source.rows == into.rows and source.cols == into.cols
        shape = source.shape
        if 0 in shape and (alike or not into.elements):
            return None
        if not alike and shape != into.shape:
            raise ScheduleError(f"cannot move {shape} elements to {into.shape}")
        if not alike and source.tensor == into.tensor:
            raise ScheduleError(
                f"cannot move rows {tuple(source.rows)} and columns {tuple(source.cols)} of "
                f"{self.tensors[into.tensor].name} to {tuple(into.rows)} and {tuple(into.cols)} of it; "
                "a tensor's elements keep their places"
            )
        if (
            source.tensor != into.tensor
            and self.tensors[source.tensor].dtype != self.tensors[into.tensor].dtype
        ):
            raise ScheduleError(
                f"cannot move {self.tensors[source.tensor].dtype} to {self.tensors[into.tensor].dtype}; "
                "map cast changes the type"
            )
        rank = into.rank if kind == GET else source.rank
        lane = how.get("lane")
        if lane is None:
            group = "copy_in" if kind == GET else "copy_out" if kind in (PUT, BROADCAST) else "accumulate"
            turn = self._turns.get((rank, group), 0)
            self._turns[rank, group] = turn + 1
            lane = f"{group}.{turn % self.lanes[group]}"
        means = how.get("means")
        if means is None and self._started is not None and into.rank != source.rank:
            means = COLLECTIVE if COLLECTIVE in self.machine.means else None
        action = Action(kind, rank, lane, (into, source), means=means, charge=how.get("charge", 0.0))
        added = ADD if kind in (ACCUMULATE, REDUCE) else WRITE
        if self._started is None or not self._start_s:
            return self._add(action, added, how.get("after", ()))
        return self._add_started(action, added, how.get("after", ()), self._started)

    def _add_started(self, action: Action, how: int, after: Sequence[Row], started: dict[int, int]) -> int:
        """Add a collective's transfer, after its rank has started it unless it relays."""
        into, source = action.pieces
        self._check(action)
        touches = self._touches(action, how)
        waits = {row for row in after if row is not None} | self._conflicts(touches)
        relays, moves = not self._relayed.isdisjoint(waits), into.rank != source.rank
        if moves and not relays:
            if action.rank not in started:
                start = Action(LOCAL, action.rank, "start", (), seconds=self._start_s)
                started[action.rank] = self._append(start, self._after_barrier(waits))
            waits.add(started[action.rank])
        row = self._add_after(action, touches, waits)
        if moves or relays:
            self._relayed.add(row)
        return row

    def _add(self, action: Action, how: int, after: Sequence[Row]) -> int:
        """Add an action that waits for what its slices conflict with, and for some more."""
        self._check(action)
        touches = self._touches(action, how)
        waits = {row for row in after if row is not None}
        return self._add_after(action, touches, waits | self._conflicts(touches))

    def _check(self, action: Action) -> None:
        """Refuse to write to an input, and to compute with what lies at another rank."""
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

    def _touches(self, action: Action, how: int) -> list[_Touch]:
        """Return how each slice of an action is accessed, what is written last."""
        first, places = self.firsts[-1], self._places
        touches: list[_Touch] = []
        for buffer, _, _, rows, cols in action.pieces:
            place: Hashable = buffer if buffer < first else places[buffer - first]
            touches.append((place, READ, buffer, rows + cols))
        if touches:
            written = touches.pop(0)
            touches.append((written[0], how, *written[2:]))
        return touches

    def _conflicts(self, touches: list[_Touch]) -> set[int]:
        found: set[int] = set()
        conflicts = self._accesses.conflicts
        for touch in touches:
            found.update(conflicts(*touch))
        return found

    def _add_after(self, action: Action, touches: list[_Touch], waits: set[int]) -> int:
        """Add an action after others; one that waits for another rank waits for its signal too."""
        waits = self._after_barrier(waits)
        if self.machine.signal_s:
            others = {row for row in waits if self._actions[row].rank not in (action.rank, -1)}
            if others and action.kind in (GEMM, MAP):
                seen = Action(LOCAL, action.rank, action.lane, (), seconds=self.machine.signal_s)
                waits = (waits - others) | {self._append(seen, others)}
            elif others:
                action.seconds += self.machine.signal_s
        number = self._append(action, waits)
        for touch in touches:
            self._accesses.note(*touch, number)
        return number

    def _append(self, action: Action, waits: Iterable[int]) -> int:
        action.after = after = sorted(waits)
        self._open.difference_update(after)
        self._open.add(len(self._actions))
        self._actions.append(action)
        return len(self._actions) - 1

    def _after_barrier(self, waits: set[int]) -> set[int]:
        """Return what an action waits for: the last barrier too, unless something after that is among it."""
        if self._barrier is None or max(waits, default=-1) >= self._barrier:
            return waits
        return waits | {self._barrier}

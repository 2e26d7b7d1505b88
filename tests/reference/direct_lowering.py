"""Direct execution lowered to actions a second time: loops, lists and dicts, straight from the definition.

Slow and simple on purpose. `umm.schedule` has to give the same actions, lane for lane and byte for byte;
where the two differ, one of them is wrong. Layouts and ops come from the two modules beside this one, so
all that is shared with the package is the machine's numbers and routes.
"""

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from reference.plain_layout import Range, Tile, length
from reference.plain_ops import Op, layouts_of, ops_of

from umm import Machine, Problem

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


Where = str | dict[str, Any]
"""What a slice lies in: a rank's own tile of the matrix of this name, or a temporary as files describe it."""


class Fetched(NamedTuple):
    """A range that an op has in a pool slot."""

    op: int
    tile: Tile
    rows: Range
    cols: Range
    slot: int
    get: int  # action id


@dataclass
class State:
    """The state of a rank so far."""

    gemms: list[int] = field(default_factory=list)  # action id of gemm j
    gets: Counter[str] = field(default_factory=Counter)  # by matrix
    sends: int = 0  # actions in the accumulate lanes
    moved: int = 0  # bytes got
    got: dict[Any, int] = field(default_factory=dict)  # what was got → how much had been by then
    again: list[tuple[int, int]] = field(default_factory=list)  # gets from a cache: action id, bytes
    read: set[Any] = field(default_factory=set)  # slices that gemms have read, each with where they were
    fetched: dict[str, Fetched] = field(default_factory=dict)  # what the last op to need a get of A or B has
    turn: Counter[str] = field(default_factory=Counter)  # slots handed out, by matrix
    readers: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # slot → who reads it
    added: dict[Tile, list[int]] = field(default_factory=lambda: defaultdict(list))  # C tile → gemms in place


class Lowering:
    """All actions of a direct schedule, and the lanes, pools and routes they name.

    `actions` waits for what the definition says; `also` holds what an action may wait for beyond that, so
    that dependencies alone give the right product (docs/decisions/0002).
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine,
        stationary: str,
        *,
        prefetch: int = 2,
        max_gemms: int = 2,
        max_accumulates: int = 2,
        offset: str = "index",
        granularity: str = "tile",
        reuse: bool = True,
        final: str = "reduce",
    ) -> None:
        self.problem, self.machine, self.stationary = problem, machine, stationary
        self.layouts = layouts_of(problem)
        self.ahead = prefetch + max_gemms
        self.c_slots = max_gemms + max_accumulates
        self.copy_lanes, self.send_lanes = machine.copy_engines, max_accumulates
        self.memory_bandwidth = machine.memory_bandwidth * (1 - machine.copy_share)
        self.reuse = reuse
        self.ops = [ops_of(problem, stationary, offset, rank) for rank in range(problem.p)]
        self.whole = [
            {x: granularity == "tile" or self.fetched(r, x, False) > self.fetched(r, x, True) for x in "AB"}
            for r in range(problem.p)
        ]
        self.slices = [  # whether a rank gets any
            any(self.fetched(r, x, False) and not complete[x] for x in "AB")
            for r, complete in enumerate(self.whole)
        ]
        self.shared = self.tiles_with_remote_updates()
        self.slots = [self.slot_counts(rank) for rank in range(problem.p)]
        self.state = [State() for _ in range(problem.p)]
        self.actions: list[dict[str, Any]] = []
        self.temporaries: list[dict[str, Any]] = []
        self.also: dict[int, set[int]] = {}

        for j in range(max(len(ops) for ops in self.ops)):
            for rank in range(problem.p):
                if j < len(self.ops[rank]):
                    self.lower_op(rank, j)
        self.charge_again()
        if self.layouts["C"].replicas > 1:
            self.lower_reduce()
            if final == "broadcast":
                self.lower_broadcast()

    # Helpers

    def span(self, op: Op, matrix: str, full: bool) -> tuple[Range, Range]:
        """The tile or the slice of A or B that an op would fetch."""
        return self.layouts[matrix].bounds(op.tiles[matrix]) if full else op.slice(matrix)

    def fetched(self, rank: int, matrix: str, full: bool) -> int:
        """Elements that a rank would fetch of A or B by whole tiles, or by slices."""
        result, before = 0, None
        for op in self.ops[rank]:
            span = op.tiles[matrix], self.span(op, matrix, full)
            if self.home(matrix, op.tiles[matrix], rank) != rank and not (self.reuse and span == before):
                result += length(span[1][0]) * length(span[1][1])
            before = span
        return result

    def emit(self, kind: str, rank: int, lane: int, after: set[int], **details: Any) -> int:
        action = {"id": len(self.actions), "rank": rank, "kind": kind, "lane": lane, "after": sorted(after)}
        self.actions.append(action | details)
        return len(self.actions) - 1

    def lane(self, rank: int, name: str, number: int = 0) -> int:
        """Lanes of a rank: compute, then copy_in.0 …, then accumulate.0 …"""
        first = rank * (1 + self.copy_lanes + self.send_lanes)
        if name == "compute":
            return first
        if name == "copy_in":
            return first + 1 + number % self.copy_lanes
        return first + 1 + self.copy_lanes + number % self.send_lanes

    def home(self, matrix: str, tile: Tile, rank: int) -> int:
        """The owner of a tile in the replica that a rank belongs to."""
        layout = self.layouts[matrix]
        return layout.owner(tile, layout.replica(rank))

    def itemsize(self, matrix: str) -> int:
        return ITEMSIZE[self.problem.c_dtype if matrix == "C" else self.problem.dtype]

    def charged(self, payload: int, efficiency: float = 1.0, cached: float = 0.0) -> int:
        """Bytes on the links; more than the payload for accumulates and, if measured, by the message's size.

        What is in a cache goes as fast as the best of what smaller messages reach, or as was measured of it,
        for a message as much smaller as the rank gets more so than the machine's ranks in the mean.
        """
        charge = payload / efficiency
        sizes = self.machine.message_sizes
        if sizes is not None:
            slowdown = float(sizes.slowdown(payload))
            smaller = [2**x for x in sizes.log_sizes.tolist() if 2**x <= payload] if cached else []
            measured = []
            if smaller and np.any(sizes.cached):
                rates = sizes.cached + 0 * sizes.log_sizes
                size = math.log2(payload) + math.log2(cached)
                measured = [sizes.link / float(np.interp(size, sizes.log_sizes, rates))]
            charge *= min([slowdown, *(float(sizes.slowdown(x)) for x in smaller), *measured])
        return math.ceil(charge)

    def charge_again(self) -> None:
        """Charge the gets from a cache, now that all ranks' are known."""
        of_rank = [sum(nbytes for _, nbytes in state.again) for state in self.state]
        for state, seconds in zip(self.state, of_rank, strict=True):
            for action, nbytes in state.again:
                mean = sum(of_rank) / max(len(of_rank), self.machine.device_count)
                share = min(1.0, mean / seconds)
                self.actions[action]["nbytes"] = self.charged(nbytes, cached=share)

    def cached(self, rank: int, payload: int, what: Any) -> bool:
        """Whether a rank that gets something now has got it before, and little since."""
        state = self.state[rank]
        state.moved += payload
        before = state.got.get(what)
        state.got[what] = state.moved
        return before is not None and state.moved - before <= self.machine.cache

    def payload(self, matrix: str, rows: Range, cols: Range) -> int:
        return length(rows) * length(cols) * self.itemsize(matrix)

    def tiles_with_remote_updates(self) -> set[tuple[Tile, int]]:
        """Every C tile that a rank other than its owner adds to, with its owner."""
        updates = set()
        for rank, ops in enumerate(self.ops):
            for op in ops:
                owner = self.home("C", op.tiles["C"], rank)
                if owner != rank:
                    updates.add((op.tiles["C"], owner))
        return updates

    # One op

    def lower_op(self, rank: int, j: int) -> None:
        op, state = self.ops[rank][j], self.state[rank]
        where: dict[str, Where] = {x: x for x in "ABC"}
        slots: dict[str, int] = {}
        after = set()
        loads = self.loads(rank, j)
        for matrix in "AB":
            if self.home(matrix, op.tiles[matrix], rank) != rank:
                fetched = self.lower_get(rank, j, matrix)
                slots[matrix] = fetched.slot
                where[matrix] = self.temporary(rank, fetched.slot, matrix, fetched.rows, fetched.cols)
                after.add(fetched.get)
                loads += self.loads_large(rank, op, matrix, fetched)
        target = op.tiles["C"]
        sends = self.sends(op, rank)
        if sends:
            slots["C"] = self.next_slot(rank, "C")
            where["C"] = self.temporary(rank, slots["C"], "C", op.m, op.n)
            self.temporaries.append(where["C"])
            after |= set(state.readers[slots["C"]][-1:])
        if sends and self.machine.refill and not state.readers[slots["C"]]:  # nothing used the slot before
            loads += self.payload("C", op.m, op.n) / self.machine.refill
        gemm = self.emit(
            "gemm",
            rank,
            self.lane(rank, "compute"),
            after,
            op=j,
            seconds=self.added_to(rank, j, sends) + loads,
            writes=[where["C"], [*op.m], [*op.n]],
            reads=[[where["A"], [*op.m], [*op.k]], [where["B"], [*op.k], [*op.n]]],
            **({} if sends else {"beta": 1.0}),  # a slot is overwritten, a tile added to
        )
        state.gemms.append(gemm)
        for matrix in "AB":
            if matrix in slots:
                state.readers[slots[matrix]].append(gemm)
        if sends:
            owner = self.home("C", target, rank)
            span = op.m, op.n
            sent = self.lower_transfer(
                "accumulate", rank, {gemm}, j, rank, owner, "C", span, source=where["C"]
            )
            state.readers[slots["C"]].append(sent)
        else:
            self.also[gemm] = set(state.added[target][-1:])  # two gemms at once may not add to one tile
            state.added[target].append(gemm)

    def temporary(self, rank: int, slot: int, matrix: str, rows: Range, cols: Range) -> dict[str, Any]:
        """The whole of a range, packed, in a pool slot."""
        return {"rank": rank, "slot": slot, "tensor": matrix, "rows": [*rows], "cols": [*cols]}

    def lower_get(self, rank: int, j: int, matrix: str) -> Fetched:
        """Fetch a tile or slice unless the op before has it."""
        op, state = self.ops[rank][j], self.state[rank]
        tile = op.tiles[matrix]
        rows, cols = self.span(op, matrix, self.whole[rank][matrix])
        fetched = state.fetched.get(matrix)
        if self.reuse and fetched is not None and fetched[:4] == (j - 1, tile, rows, cols):
            slot, get = fetched.slot, fetched.get
        else:
            slot = self.next_slot(rank, matrix)
            after = set(state.readers[slot][-1:])
            if j >= self.ahead:
                after.add(state.gemms[j - self.ahead])
            owner = self.home(matrix, tile, rank)
            into = self.temporary(rank, slot, matrix, rows, cols)
            get = self.lower_transfer("get", rank, after, j, owner, rank, matrix, (rows, cols), into=into)
            self.temporaries.append(into)
            self.also[get] = set(state.readers[slot])  # every gemm that reads it, not only the last
            state.readers[slot] = []
        state.fetched[matrix] = Fetched(j, tile, rows, cols, slot, get)
        return state.fetched[matrix]

    def next_slot(self, rank: int, matrix: str) -> int:
        """Slots of a matrix are taken in turn; in the pool those of A come first, then B's, then C's."""
        counts = self.slots[rank]
        first = sum(counts[x] for x in "ABC" if x < matrix)
        turn = self.state[rank].turn[matrix]
        self.state[rank].turn[matrix] += 1
        return first + turn % counts[matrix]

    def slot_counts(self, rank: int) -> dict[str, int]:
        """d + g slots for A and for B, g + s for C; none for a matrix that the rank needs no slot of."""
        counts = dict.fromkeys("ABC", 0)
        for op in self.ops[rank]:
            for matrix in "AB":
                if self.home(matrix, op.tiles[matrix], rank) != rank:
                    counts[matrix] = self.ahead
            if self.sends(op, rank):
                counts["C"] = self.c_slots
        return counts

    def sends(self, op: Op, rank: int) -> bool:
        """Whether the result goes through a slot and an accumulate, not straight into the tile."""
        owner = self.home("C", op.tiles["C"], rank)
        return owner != rank or (op.tiles["C"], owner) in self.shared

    def lower_transfer(
        self,
        kind: str,
        rank: int,
        after: set[int],
        op: int,
        src: int,
        dst: int,
        matrix: str,
        span: tuple[Range, Range],
        into: Where = "",
        source: Where = "",
    ) -> int:
        """A get in the reader's copy lanes, anything else in the accumulate lanes of the sender."""
        state, payload = self.state[rank], self.payload(matrix, *span)
        if kind == "get":
            apart = state.gets[matrix] + (matrix == "B")
            number = apart if self.slices[rank] else sum(state.gets.values())
            lane = self.lane(rank, "copy_in", number)
            state.gets[matrix] += 1
        else:
            lane = self.lane(rank, "accumulate", state.sends)
            state.sends += 1
        efficiency = self.machine.accumulate_efficiency if kind in ("accumulate", "reduce") else 1.0
        details: dict[str, Any] = {"op": op, "src": src, "dst": dst}
        if kind == "accumulate":
            (first, end), tile = span[1], self.layouts[matrix].bounds(self.ops[rank][op].tiles[matrix])
            if end - first < length(tile[1]):
                efficiency *= self.machine.strided_accumulates
        again = kind == "get" and self.cached(rank, payload, (matrix, *span))
        details["nbytes"] = self.charged(payload, efficiency)
        if src == dst:  # only a rank's accumulate into its own tile
            full = self.machine.accumulate_efficiency
            details["seconds"] = 3 * payload / self.memory_bandwidth / (efficiency / full)
        if self.machine.refill and (
            kind == "accumulate" or (kind == "get" and 16 * payload > self.machine.cache)
        ):
            refill = min(payload, self.worked_on(rank)) / self.machine.refill
            details["seconds"] = details.get("seconds", 0.0) + refill
        rows, cols = ([*x] for x in span)
        details |= {"writes": [into or matrix, rows, cols], "reads": [[source or matrix, rows, cols]]}
        action = self.emit(kind, rank, lane, after, **details)
        if again:
            state.again.append((action, payload))
        return action

    def worked_on(self, rank: int) -> float:
        """The bytes of a rank's gemms, in the mean."""
        spans = [(op.m, op.n, op.k) for op in self.ops[rank]]
        sizes = [[length(span) for span in of_op] for of_op in spans]
        item, c_item = self.itemsize("A"), self.itemsize("C")
        return sum((m * k + k * n) * item + m * n * c_item for m, n, k in sizes) / len(sizes)

    def loads(self, rank: int, number: int) -> float:
        """The seconds for an A in its own memory that no op of the rank before this one has read."""
        op, before = self.ops[rank][number], self.ops[rank][:number]
        local = self.home("A", op.tiles["A"], rank) == rank
        if not self.machine.refill or not local or any((x.m, x.k) == (op.m, op.k) for x in before):
            return 0.0
        return self.payload("A", op.m, op.k) / self.machine.refill

    def loads_large(self, rank: int, op: Op, matrix: str, fetched: Fetched) -> float:
        """The seconds for a slice of over a quarter of the cache that no op has read since it was got."""
        slice_, read = (fetched.get, matrix, op.slice(matrix)), self.state[rank].read
        full = self.payload(matrix, fetched.rows, fetched.cols)
        if not self.machine.refill or 4 * full <= (self.machine.cache or math.inf) or slice_ in read:
            return 0.0
        read.add(slice_)
        return self.payload(matrix, *op.slice(matrix)) / self.machine.refill

    def added_to(self, rank: int, number: int, sends: bool) -> float:
        """The seconds of an op's gemm, less two thirds of C's if the rank added to it two ops ago or more."""
        op, before = self.ops[rank][number], self.ops[rank][:number]
        seconds = self.gemm_seconds(length(op.m), length(op.n), length(op.k))
        matches = [(x.m, x.n) == (op.m, op.n) and not self.sends(x, rank) for x in before]
        if not self.machine.refill or sends or not any(matches) or matches[-1]:
            return seconds
        most = float(self.machine.most_efficiency(self.problem.dtype, length(op.k)))
        best = self.gemm_seconds(length(op.m), length(op.n), length(op.k), most)
        return max(seconds - self.payload("C", op.m, op.n) * 2 / 3 / self.machine.refill, min(seconds, best))

    def gemm_seconds(self, m: int, n: int, k: int, efficiency: float | None = None) -> float:
        machine, dtype = self.machine, self.problem.dtype
        efficiency = efficiency or float(machine.gemm_efficiency(dtype, m, n, k))
        arithmetic = 2 * m * n * k / (machine.peaks[dtype] * efficiency)
        moved = (m * k + k * n) * self.itemsize("A") + 2 * m * n * self.itemsize("C")
        return machine.launch_s + max(arithmetic, moved / self.memory_bandwidth)

    # Replicated C

    def lower_barrier(self) -> int:
        last = {action["lane"]: action["id"] for action in self.actions}
        return self.emit("barrier", -1, -1, set(last.values()))

    def lower_reduce(self) -> None:
        """Every other replica adds its tiles to the origin's."""
        layout = self.layouts["C"]
        sends = [(tile, r, 0) for tile in self.c_tiles() for r in range(1, layout.replicas)]
        self.lower_sends("reduce", sends)

    def lower_broadcast(self) -> None:
        """The origin's owners put their tiles to the other replicas."""
        layout = self.layouts["C"]
        sends = [(tile, 0, r) for tile in self.c_tiles() for r in range(1, layout.replicas)]
        self.lower_sends("broadcast", sends)

    def c_tiles(self) -> list[Tile]:
        """The tiles of C that are not empty, row-major."""
        return [x for x in self.layouts["C"].tiles() if all(map(length, self.layouts["C"].bounds(x)))]

    def lower_sends(self, kind: str, sends: list[tuple[Tile, int, int]]) -> None:
        """A barrier, then whole C tiles from replica to replica: first every rank's first, and so on."""
        layout, barrier = self.layouts["C"], self.lower_barrier()
        listed: list[list[tuple[Tile, int]]] = [[] for _ in range(self.problem.p)]
        for tile, src, dst in sends:
            listed[layout.owner(tile, src)].append((tile, layout.owner(tile, dst)))
        for number in range(max(map(len, listed))):
            for rank in range(self.problem.p):
                if number < len(listed[rank]):
                    tile, dst = listed[rank][number]
                    bounds = layout.bounds(tile)
                    self.lower_transfer(kind, rank, {barrier}, number, rank, dst, "C", bounds)

    # What surrounds the actions

    def pools(self) -> list[list[int]]:
        """Slot sizes of each rank: the largest range that a slot of this matrix ever holds."""
        pools = []
        for rank in range(self.problem.p):
            size = dict.fromkeys("ABC", 0)
            for buffer in self.temporaries:
                if buffer["rank"] == rank:
                    matrix = buffer["tensor"]
                    size[matrix] = max(size[matrix], self.payload(matrix, buffer["rows"], buffer["cols"]))
            counts = self.slots[rank]
            pools.append([size[x] for x in "ABC" for _ in range(counts[x])])
        return pools

    def memory(self) -> list[int]:
        """Bytes of each rank: its tiles of A, B and C and its pool."""
        totals = [sum(pool) for pool in self.pools()]
        for matrix, layout in self.layouts.items():
            for tile in layout.tiles():
                for replica in range(layout.replicas):
                    totals[layout.owner(tile, replica)] += self.payload(matrix, *layout.bounds(tile))
        return totals

    def document(self) -> dict[str, Any]:
        """The whole schedule as JSON carries it, with temporaries in the place of their numbers."""
        problem, machine = self.problem, self.machine
        return {
            "schema": 2,
            "name": self.stationary,
            "machine": machine.name,
            "ranks": problem.p,
            "problem": {key: getattr(problem, key) for key in ("m", "n", "k", "dtype", "a", "b", "c")},
            "tensors": [
                {"name": x, "shape": [*shape], "dtype": dtype, "layout": text, "role": role}
                for x, shape, dtype, text, role in (
                    ("A", (problem.m, problem.k), problem.dtype, problem.a, "input"),
                    ("B", (problem.k, problem.n), problem.dtype, problem.b, "input"),
                    ("C", (problem.m, problem.n), problem.c_dtype, problem.c, "output"),
                )
            ],
            "interference": dict(machine.interference),
            "functions": [],
            "means": [],
            "buffers": self.temporaries,
            "pools": [{"rank": rank, "slots": slots} for rank, slots in enumerate(self.pools())],
            "links": [
                {"name": x.name, "bandwidth": x.bandwidth, "latency": x.latency} for x in machine.links
            ],
            "routes": self.routes(),
            "lanes": self.lanes(),
            "actions": self.actions,
        }

    def device(self, rank: int) -> int:
        """A rank's own device while they last, else neighbours share."""
        return rank // math.ceil(self.problem.p / self.machine.device_count)

    def routes(self) -> list[list[Any]]:
        """The links between every two ranks that exchange something, by rank."""
        pairs = sorted({(x["src"], x["dst"]) for x in self.actions if "src" in x and x["src"] != x["dst"]})
        return [[a, b, [*self.machine.route(self.device(a), self.device(b))]] for a, b in pairs]

    def lanes(self) -> list[dict[str, Any]]:
        """Every rank's lanes; the compute lane has its device's engine, and so have all for local work."""
        names = ["compute", *(f"copy_in.{i}" for i in range(self.copy_lanes))]
        names += [f"accumulate.{i}" for i in range(self.send_lanes)]
        return [
            {
                "rank": rank,
                "name": name,
                "engine": self.device(rank) if name == "compute" or self.machine.local_on_engine else None,
            }
            for rank in range(self.problem.p)
            for name in names
        ]

"""The schedule: a table of actions, each on a lane, each after others; the contract of every executor.

The exact semantics are in docs/reference/schedule.md. Two groups of columns: what an executor of time
needs is there at once, what an executor of data needs is made when it is first asked for.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints
from umm.problem import MATRICES, Problem
from umm.schedules.kinds import GEMM, KINDS, LOCAL, TRANSFERS
from umm.schedules.resources import Lanes, Links, Routes
from umm.units import format_bytes, format_seconds


@dataclass(frozen=True, eq=False)
class Details:
    """What each action touches; −1 where a column has no meaning for the kind.

    Attributes:
        op: The rank's own number of the op an action belongs to.
        matrix: 0, 1, 2 for A, B, C: what a transfer moves.
        tile: Row and column of the tile a transfer moves, shape (actions, 2).
        rows: Global rows a transfer moves, half-open, shape (actions, 2); cols likewise.
        slot: Pool slot a get fills or an accumulate empties; −1 for the rank's own tile.
        m: Global range of m of a gemm, shape (actions, 2); n and k likewise.
        a_tile: Tile of A a gemm reads, shape (actions, 2); b_tile and c_tile likewise.
        a_slot: Pool slot that holds A's tile, −1 for the rank's own; b_slot and c_slot likewise.
    """

    op: Ints
    matrix: Ints
    tile: Ints
    rows: Ints
    cols: Ints
    slot: Ints
    m: Ints
    n: Ints
    k: Ints
    a_tile: Ints
    b_tile: Ints
    c_tile: Ints
    a_slot: Ints
    b_slot: Ints
    c_slot: Ints

    PAIRS = ("tile", "rows", "cols", "m", "n", "k", "a_tile", "b_tile", "c_tile")

    @classmethod
    def empty(cls, actions: int) -> "Details":
        """Return columns of −1 to be filled in."""
        return cls(
            **{
                f.name: np.full((actions, 2) if f.name in cls.PAIRS else actions, -1, dtype=np.int64)
                for f in fields(cls)
            }
        )

    def cut(self, start: int, stop: int) -> "Details":
        """Return views of some consecutive rows."""
        return Details(**{f.name: getattr(self, f.name)[start:stop] for f in fields(self)})


@dataclass(frozen=True, eq=False)
class Schedule:
    """Every get, gemm, accumulate and reduce of a problem, and what each waits for.

    Attributes:
        problem: What is multiplied.
        stationary: The matrix that stays in place, or the name of the algorithm that made the schedule.
        machine: Name of the machine it was lowered for.
        ranks: Number of ranks, p.
        interference: Share of its GEMM rate a rank loses while it gets, accumulates or reduces.
        links: The links of the fabric.
        routes: For a pair of ranks (source, destination) the links its bytes cross.
        lanes: What runs one action at a time, in row order.
        kind: Kind of each action, an index into KINDS.
        rank: Rank of each action, −1 for a barrier.
        lane: Lane of each action, −1 for a barrier.
        after_offsets: Where each action's dependencies start in ``after``, and the end.
        after: Numbers of the actions that must have finished; always smaller than the action's own.
        src: Rank the bytes of a transfer leave, else −1.
        dst: Rank they arrive at, else −1.
        nbytes: Bytes a transfer puts on its route, else 0.
        seconds: Duration of a gemm, of local work and of a transfer with src = dst, else 0.
        options: How it was made: policy, prefetch, max_gemms, … as plain values.
        peak: flop/s of the devices used together, 0 if unknown.
    """

    problem: Problem
    stationary: str
    machine: str
    ranks: int
    interference: Mapping[str, float]
    links: Links
    routes: Routes
    lanes: Lanes
    kind: NDArray[np.int8]
    rank: Ints
    lane: Ints
    after_offsets: Ints
    after: Ints
    src: Ints
    dst: Ints
    nbytes: Ints
    seconds: Floats
    make_details: Callable[[], tuple[Details, list[Ints]]] = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)
    peak: float = 0.0

    def __len__(self) -> int:
        return len(self.kind)

    @cached_property
    def _data(self) -> tuple[Details, list[Ints]]:
        return self.make_details()

    @property
    def details(self) -> Details:
        """What each action touches, for executors that move data."""
        return self._data[0]

    @property
    def pools(self) -> list[Ints]:
        """For each rank the bytes of its pool slots."""
        return self._data[1]

    @cached_property
    def payload(self) -> Ints:
        """Useful bytes each transfer moves: rows × columns × element size; 0 for other kinds."""
        d = self.details
        itemsize = np.array([self.problem.itemsize(x) for x in MATRICES])
        area = np.diff(d.rows)[:, 0] * np.diff(d.cols)[:, 0]
        return np.where(d.matrix >= 0, area * itemsize[d.matrix], 0)

    @cached_property
    def flop(self) -> Ints:
        """Floating-point operations of each gemm; 0 for other kinds."""
        d = self.details
        return np.where(
            self.kind == GEMM, 2 * np.prod([np.diff(x)[:, 0] for x in (d.m, d.n, d.k)], axis=0), 0
        )

    @cached_property
    def pool_bytes(self) -> Ints:
        """Bytes of each rank's pool."""
        return np.array([slots.sum() for slots in self.pools], dtype=np.int64)

    @cached_property
    def memory_bytes(self) -> Ints:
        """Bytes each rank allocates: its tiles of A, B and C, and its pool."""
        held = sum(
            layout.elements_of_rank * self.problem.itemsize(x)
            for x, layout in zip(MATRICES, self.problem.layouts, strict=True)
        )
        return self.pool_bytes + held

    @cached_property
    def model_cost_s(self) -> float:
        """What the schedule takes by the step model; see ``umm.model_cost``."""
        from umm.algorithms.universal.model import model_cost

        return model_cost(self)

    def after_of(self, action: int) -> Ints:
        """Return the actions an action waits for."""
        return self.after[self.after_offsets[action] : self.after_offsets[action + 1]]

    def used_pairs(self) -> list[tuple[int, int]]:
        """Return the (source, destination) pairs of ranks that bytes travel between, sorted."""
        moving = self.src != self.dst
        pairs = np.unique(self.src[moving] * self.ranks + self.dst[moving])
        return [(int(x) // self.ranks, int(x) % self.ranks) for x in pairs]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield each action as a readable dict, in the order and with the keys of the JSON form."""
        d = self.details
        columns = {f.name: getattr(d, f.name).tolist() for f in fields(d)}
        kinds, ranks, lanes = self.kind.tolist(), self.rank.tolist(), self.lane.tolist()
        src, dst, nbytes, seconds = (x.tolist() for x in (self.src, self.dst, self.nbytes, self.seconds))
        offsets, after = self.after_offsets.tolist(), self.after.tolist()

        def slot(name: str, i: int) -> int | None:
            return None if columns[name][i] < 0 else columns[name][i]

        for i, kind in enumerate(kinds):
            row: dict[str, Any] = {"id": i, "rank": ranks[i], "kind": KINDS[kind], "lane": lanes[i]}
            row["after"] = after[offsets[i] : offsets[i + 1]]
            if kind == GEMM:
                row["op"] = columns["op"][i]
                row |= {x: columns[x][i] for x in ("m", "n", "k", "a_tile", "b_tile", "c_tile")}
                row |= {x: slot(x, i) for x in ("a_slot", "b_slot", "c_slot")}
                row["seconds"] = seconds[i]
            elif kind in TRANSFERS:
                row |= {"op": columns["op"][i], "src": src[i], "dst": dst[i]}
                row["matrix"] = MATRICES[columns["matrix"][i]]
                row |= {x: columns[x][i] for x in ("tile", "rows", "cols")}
                row |= {"slot": slot("slot", i), "nbytes": nbytes[i]}
                if src[i] == dst[i]:
                    row["seconds"] = seconds[i]
            elif kind == LOCAL:
                row["seconds"] = seconds[i]
            yield row

    def to_json(self) -> str:
        """Return the schedule as JSON of schema 1; see :func:`umm.schedules.codec.to_json`."""
        from umm.schedules.codec import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> "Schedule":
        """Return the schedule a JSON text holds; see :func:`umm.schedules.codec.from_json`."""
        from umm.schedules.codec import from_json

        return from_json(text)

    def __str__(self) -> str:
        lines = [
            f"{self.stationary} of {self.problem.m}x{self.problem.n}x{self.problem.k} on {self.machine}: "
            f"{self.ranks} ranks, {len(self.lanes)} lanes, {len(self)} actions"
        ]
        for row in self.rows():
            if row["id"] == 200:
                lines.append(f"  … {len(self) - 200} more")
                break
            lines.append(self._line(row))
        return "\n".join(lines)

    def _line(self, row: dict[str, Any]) -> str:
        def tile(t: list[int]) -> str:
            return f"({t[0]},{t[1]})"

        lane = "" if row["lane"] < 0 else self.lanes.names[row["lane"]]
        who = "all" if row["rank"] < 0 else f"r{row['rank']}"
        what = ""
        if row["kind"] == "gemm":
            what = f"C{tile(row['c_tile'])} A{tile(row['a_tile'])} B{tile(row['b_tile'])} "
            what += " ".join(f"{x}={row[x][0]}:{row[x][1]}" for x in "mnk")
        elif "src" in row:
            what = f"{row['matrix']}{tile(row['tile'])} r{row['src']} → r{row['dst']} "
            what += format_bytes(row["nbytes"])
        if "seconds" in row:
            what += f" {format_seconds(row['seconds'])}"
        after = " ".join(map(str, row["after"])) if len(row["after"]) <= 6 else f"{len(row['after'])} actions"
        return f"{row['id']:>6} {who:<5} {lane:<13} {row['kind']:<10} {what}" + (
            f"  after {after}" if after else ""
        )

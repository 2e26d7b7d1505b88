"""Two-level one-sided execution: tiles of another node cross once for a node, through one card.

Ops, their order, prefetch and limits are those of direct execution. But if several ranks of a node need a
tile of A or B from another node, one of them gets it, the node's stager of that tile. The others get it from
there; and what several ranks of a node add to a tile of C in another node they add up at its stager, which
accumulates the sum there. The stager has the owner's place in its node: eight tiles, eight cards.
"""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from umm.host.collector import without_collector
from umm.interval import Interval
from umm.layouts.edges import Tile
from umm.machines import Machine
from umm.plans.collectives.hierarchical import CARD
from umm.plans.collectives.replicas import SUMMED, summed
from umm.plans.collectives.rings import nodes_of
from umm.plans.collectives.way import OWN
from umm.plans.multiply.operands import updates
from umm.plans.multiply.oplist import OpList, op_list
from umm.plans.multiply.options import COMPLETING, Options
from umm.plans.multiply.replicas import ended
from umm.program.problem import Problem
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder, How

OUT = "card.out"
"""The lane of sums that leave a node, which wait for gemms, and so must not hold up gets between nodes."""
Key = tuple[str, int, Tile]  # matrix, replica, tile


def two_level(problem: Problem, machine: Machine, stationary: str, options: Options) -> Schedule:
    """Return the schedule of two-level one-sided execution; on one node nothing is staged."""
    options = ended(problem.layout("C"), problem.c_dtype, machine, options)
    ops = op_list(problem, stationary, offset=options.offset)
    build = Builder(
        ops.stationary, problem, machine, accumulate_lanes=options.max_accumulates, options=options.to_dict()
    )
    with without_collector():
        _Writer(build, ops, options).write()
        _complete(build, options)
        return build.schedule()


class _Writer:
    """Writes the ops of all ranks in turns: op 0 of every rank, then op 1."""

    def __init__(self, build: Builder, ops: OpList, options: Options) -> None:
        self._build, self._ops, self._options = build, ops, options
        p = build.ranks
        nodes = nodes_of(build.machine, range(p), p) if build.machine.fabric.near > 1 else [[*range(p)]]
        self._nodes = nodes
        self._node = {rank: i for i, node in enumerate(nodes) for rank in node}
        self._place = {rank: j for node in nodes for j, rank in enumerate(node)}
        self._staged: dict[tuple[Key, int], Slice] = {}
        # Reuse is that of direct execution: only the op that follows finds the tile, as pool slots are
        # recycled.
        self._there: dict[tuple[int, str], tuple[Key, Slice]] = {}  # what a rank got last of A, and of B
        self._turns: dict[tuple[int, str], int] = defaultdict(int)
        self._readers: dict[tuple[Key, int], set[int]] = defaultdict(set)  # by tile and node
        self._adds: dict[tuple[Key, int], list[tuple[int, Interval, Interval]]] = defaultdict(list)

    def write(self) -> None:
        """Write all actions before replicas are completed."""
        build, rows = self._build, list(self._in_turns())
        for rank, keys, spans, slotted in rows:
            for x in "AB":
                self._readers[keys[x], self._node[rank]].add(rank)
            if slotted:
                self._adds[keys["C"], self._node[rank]].append((rank, spans["m"], spans["n"]))
        # The node's sum leaves once its last part is added; nothing else marks the end of a node's work on a
        # tile.
        left = {key: len(adds) for key, adds in self._adds.items()}
        for rank, keys, spans, slotted in rows:
            a = self._operand(keys["A"], rank).cut(spans["m"], spans["k"])
            b = self._operand(keys["B"], rank).cut(spans["k"], spans["n"])
            c = self._tile(keys["C"])
            if not slotted:
                build.gemm(c.cut(spans["m"], spans["n"]), a, b)
                continue
            turn = self._turn(rank, "C") % (self._options.max_gemms + self._options.max_accumulates)
            # As many slots as gemms and accumulates may be in flight; reusing one makes the gemm wait for its
            # accumulate.
            product = build.temporary(rank, "C", spans["m"], spans["n"], ("C", turn))
            build.gemm(product, a, b, beta=0)
            group = keys["C"], self._node[rank]
            into = self._sum(*group)
            target = into or c
            # An add within the rank's memory needs no link, so it keeps accumulate lanes free.
            how: How = {"lane": OWN} if target.rank == rank else {}
            build.accumulate(product, target.cut(spans["m"], spans["n"]), **how)
            left[group] -= 1
            if into is not None and not left[group]:
                build.accumulate(into, c.cut(into.rows, into.cols), lane=OUT)

    def _in_turns(self) -> Iterator[tuple[int, dict[str, Key], dict[str, Interval], bool]]:
        """Yield rank, tiles, ranges and whether C goes through a slot, of all ops in turns."""
        ops = self._ops
        # Written op by op across ranks, so that a stager's get is written when the first rank of a node needs
        # it.
        number = np.arange(len(ops)) - np.searchsorted(ops.rank, np.arange(self._build.ranks))[ops.rank]
        slotted = updates(ops.problem.layouts[2], ops.rank, ops.tiles[2])[1]
        for i in np.lexsort((ops.rank, number)).tolist():
            op = ops[i]
            keys = dict[str, Key]()
            for x, tile, layout in zip(
                "ABC", (op.a_tile, op.b_tile, op.c_tile), ops.problem.layouts, strict=True
            ):
                keys[x] = x, layout.replica(op.rank), tile
            yield op.rank, keys, {"m": op.m, "n": op.n, "k": op.k}, bool(slotted[i])

    def _tile(self, key: Key) -> Slice:
        matrix, replica, tile = key
        return self._build.tile(matrix, *tile, replica)

    def _turn(self, rank: int, what: str) -> int:
        self._turns[rank, what] += 1
        return self._turns[rank, what] - 1

    def _operand(self, key: Key, rank: int) -> Slice:
        """Return a tile of A or B where a rank can multiply it; get it if it is not there."""
        source, matrix = self._tile(key), key[0]
        if source.rank == rank:
            return source
        if self._options.reuse and (rank, matrix) in self._there:
            last, copy = self._there[rank, matrix]
            if last == key:
                return copy
        node = self._node[rank]
        # Staging pays only if several ranks of the node read the tile; otherwise it adds a hop.
        if self._node[source.rank] != node and len(self._readers[key, node]) > 1:
            source = self._at_stager(key, node, source.rank, source.rows, source.cols, source)
            if source.rank == rank:
                return source
        slot = matrix, self._turn(rank, matrix) % (self._options.prefetch + self._options.max_gemms)
        into = self._build.temporary(rank, matrix, source.rows, source.cols, slot)
        how: How = {"lane": CARD} if self._node[source.rank] != node else {}
        self._build.get(source, into, **how)
        self._there[rank, matrix] = key, into
        return into

    def _at_stager(
        self, key: Key, node: int, owner: int, rows: Interval, cols: Interval, source: Slice | None = None
    ) -> Slice:
        """Return room at the stager of a tile in a node; the first time it gets the tile, or zeros."""
        if (key, node) not in self._staged:
            ranks, what = self._nodes[node], "sums" if source is None else "staged"
            stager = ranks[self._place[owner] % len(ranks)]
            into = self._staged[key, node] = self._build.temporary(stager, key[0], rows, cols, (what, key))
            if source is None:
                # Zeroed first, so that the parts of all ranks can be added in any order.
                self._build.map("zero", into)
            else:
                self._build.get(source, into, lane=CARD)
        return self._staged[key, node]

    def _sum(self, key: Key, node: int) -> Slice | None:
        """Return the sum of a node's parts of a tile of C in another; None if one rank alone has parts."""
        target, adds = self._tile(key), self._adds[key, node]
        if self._node[target.rank] == node or len(adds) < 2 or len({rank for rank, *_ in adds}) < 2:
            return None
        # The hull of the parts: ranks may add to different rows, and one message carries all of them.
        rows = Interval(min(m.start for _, m, _ in adds), max(m.stop for _, m, _ in adds))
        cols = Interval(min(n.start for *_, n in adds), max(n.stop for *_, n in adds))
        return self._at_stager(key, node, target.rank, rows, cols)


def _complete(build: Builder, options: Options) -> None:
    """Bring the replicas of C together, after all ops."""
    layout = build.layout("C")
    if layout.replicas == 1:
        return
    # Replicas may be summed only when every node's sum has arrived.
    build.barrier()
    if options.final in (*COMPLETING, "reduce-scatter"):
        what = "all-reduce" if options.final in COMPLETING else options.final
        dtype = build.tensors[build.number("C")].dtype
        collective = summed(what, layout, dtype, build.machine, options.max_accumulates)
        build.append(collective.schedule, {SUMMED: "C"}, slots="sum")
        return
    rows, cols = layout.grid_shape()
    for replica in range(1, layout.replicas):
        for i in range(rows):
            for j in range(cols):
                build.reduce(build.tile("C", i, j, replica), build.tile("C", i, j))

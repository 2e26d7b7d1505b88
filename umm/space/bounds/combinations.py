"""Closed-form bounds of one layout of the stationary matrix with all layouts of the other two.

A rank's work is a box: the parts of m, n and k it works on. So is everything derived from it: the tiles it
touches, the pieces they are cut into, the bytes that travel. Each is a product of two or three tables over
one dimension (the module ``overlaps``). So all layouts of X and Y, the two matrices that move, cost a few
broadcasts together.
"""

from functools import cached_property, reduce

import numpy as np

from umm.arrays import Bools, Floats, Ints, distinct
from umm.cost import least_factors
from umm.dtypes import weight_bytes
from umm.layouts.edges import ceil_edges
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.machines.machine import GemmLimits
from umm.plans.multiply.options import Options
from umm.plans.multiply.policies import find_policy
from umm.program.problem import Problem
from umm.space.bounds.operand_layouts import (
    DIMENSIONS,
    GOT_AGAIN,
    LARGEST,
    LONGEST,
    OVERLAP,
    SEGMENTS,
    SHORTEST,
    SMALLEST,
    WHOLE,
    WHOLES,
    OperandLayouts,
    Overlaps,
    Parts,
    overlaps,
)
from umm.space.bounds.transfers import LinkTimes, Transfers, busiest_lane, least_slowdown, link_times


class Combinations:
    """One layout of the stationary matrix with all layouts of the other two, X and Y, for any options.

    Arrays have the axes (other rank, rank, layouts of X, layouts of Y) or without the other rank: layouts are
    last since there are more of them than of ranks looked at, and NumPy loops over the last ones. Ranks are
    those looked at, the other rank is any that one of them gets from or accumulates to. What one of X and Y
    meets depends on the other only by how that is cut along the dimension they share: arrays for pairs of
    ranks have an entry for each such kind in place of its layouts, and :meth:`_spread` gives every layout
    that of its kind.
    """

    def __init__(
        self,
        problem: Problem,
        machine: Machine,
        stationary: str,
        layout: Layout,
        x: OperandLayouts,
        y: OperandLayouts,
        only: tuple[int, ...] | None = None,
    ) -> None:
        self.problem, self.machine = problem, machine
        self.stationary, self.layout = stationary, layout
        self.x, self.y = x, y
        self.links: LinkTimes = link_times(machine, problem.p, only)
        self.ranks = self.links.ranks
        self.own = OperandLayouts(stationary, [layout], problem.itemsize(stationary))
        self.moving = next(d for d in "mnk" if d not in DIMENSIONS[stationary])
        self.by = {d: parts[0] for d, parts in self.own.parts.items()}
        self.at = {d: place[0][self.ranks] for d, place in self.own.place.items()}
        size = {"m": problem.m, "n": problem.n, "k": problem.k}[self.moving]
        # The replicas of the stationary matrix share the third dimension.
        self.by[self.moving] = Parts(ceil_edges(size, layout.replicas), layout.replicas)
        self.at[self.moving] = self.own.replica[0][self.ranks]
        self.worked: dict[str, tuple[int, ...]] = {}
        for d, place in self.at.items():
            # Tables have columns only for the places that ranks looked at have: on many ranks these are few.
            places = distinct(place)
            self.worked[d], self.at[d] = tuple(places.tolist()), places.searchsorted(place)
        self._overlaps: dict[tuple[str, str], Overlaps] = {}
        self._places: dict[tuple[str, str, int], Ints] = {}
        self._areas: dict[tuple[str, int], Floats] = {}
        self._apart: dict[str, Bools] = {}
        self.count = {d: self._along(d, SEGMENTS) for d in "mnk"}
        self.length = {d: self._along(d, OVERLAP)[:, :1, :1] for d in "mnk"}
        self.shortest = {d: self._along(d, SHORTEST) for d in "mnk"}
        self.ops: Floats = self.count["m"] * self.count["n"] * self.count["k"]
        self.works: Bools = (self.length["m"] * self.length["n"] * self.length["k"]) > 0

    # Tables over one dimension ----------------------------------------------------------------------

    def _overlap(self, layouts: OperandLayouts, d: str) -> Overlaps:
        """Return how the parts of X or Y along a dimension meet the work of ranks."""
        key = (layouts.matrix, d)
        if key not in self._overlaps:
            other = self.y if layouts is self.x else self.x
            cutting = other.parts[d] if d == self.moving else (self.by[d],)
            self._overlaps[key] = overlaps(
                layouts.parts[d], cutting, self.by[d], self.worked[d], self.problem.p
            )
        return self._overlaps[key]

    def _along(self, d: str, measure: int, layouts: OperandLayouts | None = None) -> Floats:
        """Return a measure of all places together along a dimension, shape (p, X or 1, Y or 1)."""
        # What pieces say (their number, lengths, the shortest) is the same of X and Y where both have it.
        layouts = layouts or (self.x if d in DIMENSIONS[self.x.matrix] else self.y)
        met = self._overlap(layouts, d)
        table = met.table[measure].min(axis=2) if measure == SHORTEST else met.table[measure].sum(axis=2)
        kind, other = met.kind[:, None], met.other
        kind, other = (kind, other) if layouts is self.x else (kind.T, other[:, None])
        along: Floats = table[kind, other, self.at[d][:, None, None]]
        return along

    def _of(self, layouts: OperandLayouts, d: str, measure: int) -> Floats:
        """Return a measure of X or Y along a dimension for pairs of ranks."""
        table = self._overlap(layouts, d).table[measure]
        if measure in (OVERLAP, WHOLE, WHOLES, LARGEST, SMALLEST):  # whatever the other's parts
            table = table[:, :1]
        elif measure == SHORTEST and not self.links.every:  # the shortest of all does where few ranks do
            table = table.min(axis=1, keepdims=True)
        # A flat take with kept indices costs less than to broadcast four index arrays each time.
        measured: Floats = table.reshape(-1).take(self._where(layouts, d, table.shape))
        return measured

    def _where(self, layouts: OperandLayouts, d: str, shape: tuple[int, ...]) -> Ints:
        """Return for pairs of ranks where each finds its entry in a flat table of such a shape."""
        key = (layouts.matrix, d, shape[1])
        if key not in self._places:
            kind, other = self._overlap(layouts, d).kind, np.arange(shape[1])
            place = layouts.place[d].T
            if layouts is self.x:
                first = (kind[:, None] * shape[1] + other) * shape[2] + place[:, :, None]
            else:
                first = (kind * shape[1] + other[:, None]) * shape[2] + place[:, None]
            self._places[key] = first[:, None] * shape[3] + self.at[d][:, None, None]
        return self._places[key]

    def _spread(self, layouts: OperandLayouts, array: Floats) -> Floats:
        """Return an array over kinds of cuts of the matrix that X or Y meets over that one's layouts."""
        axis = -1 if layouts is self.x else -2
        if array.shape[axis] == 1:
            return array
        return array.take(self._overlap(layouts, self.moving).other, axis=axis)

    def _area(self, layouts: OperandLayouts, measure: int) -> Floats:
        """Return a measure along both dimensions, multiplied."""
        key = (layouts.matrix, measure)
        if key not in self._areas:
            rows, cols = DIMENSIONS[layouts.matrix]
            self._areas[key] = self._of(layouts, rows, measure) * self._of(layouts, cols, measure)
        return self._areas[key]

    def _pairs(self, layouts: OperandLayouts) -> Bools:
        """Return whether a rank works on a tile of another rank of its replica."""
        if layouts.matrix not in self._apart:
            reachable = layouts.reachable[self.ranks].swapaxes(0, 1)
            reachable = reachable[..., None] if layouts is self.x else reachable[:, :, None]
            self._apart[layouts.matrix] = reachable & self.works
        return self._apart[layouts.matrix]

    # Time -------------------------------------------------------------------------------------------

    def seconds(self, options: Options) -> Floats:
        """Return a lower bound of the time until the last op is done, before replicas are reduced."""
        machine, links = self.machine, self.links
        if not options.one_sided:
            return self._least_seconds
        compute = self._compute
        engine = compute
        if len(set(links.device.tolist())) < len(links.device):
            together = np.asarray(links.device[:, None] == links.device, dtype=np.float64)
            engine = np.tensordot(together, compute, 1)
        # Other policies choose their own order of steps, so only the load of the engines is sure.
        if not find_policy(options.policy).closed_form:
            return np.asarray(engine.max(axis=0))
        # Flow shop of gets, gemms and accumulates: each stage's load, plus
        # the least time before it and after it.
        volume: Floats = self.shortest["m"] * self.shortest["n"] * self.shortest["k"]
        shortest = self._limits.start_s + volume * (2.0 / (self._limits.rate * self._pace("peak")))
        one = np.where(self.works, shortest * self._least_factors, 0.0)
        gets = [self._gets(f, options) for f in (self.x, self.y) if f.matrix != "C"]
        head = gets[0].at_least if len(gets) == 1 else np.maximum(gets[0].at_least, gets[1].at_least)
        get_lane = busiest_lane(gets, machine.copy_engines)
        accumulates = self._accumulates
        tail = accumulates[0].at_least if accumulates else np.zeros(1)
        bounds = [engine, compute + head + tail, get_lane + one + tail]
        if accumulates:
            accumulate_lane = busiest_lane(accumulates, options.max_accumulates)
            bounds.append(head + one + accumulate_lane)
        if len(set(links.device.tolist())) == len(links.device):
            # While a rank's transfer runs its gemm slows down, by ``loss``: what it lacks then comes on top.
            loss = machine.interference["get"]
            bounds.append(compute + loss * get_lane + (1 - loss) * head + tail)
            if accumulates:
                loss = machine.interference["accumulate"]
                bounds.append(compute + loss * accumulate_lane + head + (1 - loss) * tail)
        slowest: Floats = reduce(np.maximum, bounds).max(axis=0)
        on_links = [x.on_links for x in (*gets, *accumulates)]
        # Links serve all ranks, so their load adds up over ranks; the bounds above are each rank's by itself.
        busiest: Floats = np.asarray(sum(on_links[1:], start=on_links[0]).max(axis=0, initial=0.0))
        return np.asarray(np.maximum(slowest, busiest))

    @cached_property
    def _least_seconds(self) -> Floats:
        """Return the seconds of the multiply on all devices at their best: for gemms of any shape."""
        problem, machine = self.problem, self.machine
        rate = machine.peak(problem.dtype) * float(
            machine.most_efficiency(problem.dtype, np.array(float(problem.k)))
        )
        devices = len(set(self.links.device.tolist()))
        faster = least_factors(machine, problem.dtype, (1, 1, 1), (problem.m, problem.n, problem.k))
        return np.full((len(self.x), len(self.y)), problem.flop / (rate * devices) * float(faster))

    @cached_property
    def _compute(self) -> Floats:
        """Return the seconds of all gemms of each rank, alone on its device."""
        problem, limits = self.problem, self._limits
        m, n, k = (self.length[d] for d in "mnk")
        arithmetic = m * n * k * (2.0 / (limits.rate * self._pace("peak")))
        # A gemm rereads its operands, so cutting n reads A again for each piece, and cutting m reads B again.
        operands = m * k * self.count["n"] * problem.itemsize("A")
        operands = operands + k * n * self.count["m"] * weight_bytes(problem.dtype)
        traffic = operands + m * n * self.count["k"] * (limits.passes * problem.itemsize("C"))
        roofline: Floats = np.maximum(
            arithmetic, traffic / (limits.bandwidth * self._pace("memory_bandwidth"))
        )
        return (roofline + self.ops * limits.start_s) * self._least_factors

    @cached_property
    def _least_factors(self) -> Floats | float:
        """Return the least factors by measured tables of each rank's gemms."""
        if self.machine.tables is None:
            return 1.0
        # A rank without work has no shortest one.
        shortest, longest = ([x[d] for d in "mnk"] for x in (self.shortest, self.length))
        shortest = [np.minimum(x, y) for x, y in zip(shortest, longest, strict=True)]
        return least_factors(self.machine, self.problem.dtype, shortest, longest)

    @cached_property
    def _limits(self) -> GemmLimits:
        return self.machine.gemm_limits(self.problem.dtype, self.problem.k)

    def _pace(self, number: str) -> Floats | float:
        """Return a number of each rank's device."""
        pace = self.machine.pace(number, self.ranks, self.problem.p)
        return pace if isinstance(pace, float) else pace[:, None, None]

    def _gets(self, layouts: OperandLayouts, options: Options) -> Transfers:
        """Return the gets of an operand: each tile or slice once, or as often as the order makes sure."""
        rows, cols = DIMENSIONS[layouts.matrix]
        third = next(d for d in "mnk" if d not in (rows, cols))
        slices = options.granularity == "slice"
        smallest = self._area(layouts, SHORTEST if slices else SMALLEST)
        if not options.reuse:
            size, number = (
                self._area(layouts, OVERLAP if slices else GOT_AGAIN),
                self._area(layouts, SEGMENTS),
            )
            return self._transfers(layouts, size, number, smallest, times=self.count[third])
        # A rank gets whole tiles in place of slices where these would be more.
        size, number = self._area(layouts, OVERLAP if slices else WHOLE), self._area(layouts, WHOLES)
        across, grid = self.layout.process_grid, self.layout.grid_shape()
        one_tile = grid[0] <= across[0] and grid[1] <= across[1]
        if self.stationary == "C" and layouts.matrix == "B" and one_tile:
            # Loops run m, k, n: rows of A come back to the same B, unless there is a single tile of it.
            wide = self.count["n"] > 1
            again = wide | (self._along("k", WHOLES, layouts) > 1)
            if not slices:
                n_size, n_number = self._of(layouts, "n", WHOLE), self._of(layouts, "n", WHOLES)
                # Over kinds of cuts of the matrix that this one meets, in place of its layouts.
                axis, other = -1 if layouts is self.x else -2, self._overlap(layouts, self.moving).other
                first = np.unique(other, return_index=True)[1]
                widely = wide if wide.shape[axis] == 1 else wide.take(first, axis=axis)
                size = np.where(widely, self._of(layouts, "k", GOT_AGAIN) * n_size, size)
                number = np.where(widely, self._of(layouts, "k", SEGMENTS) * n_number, number)
            times = np.where(again, self.count["m"], 1.0)
            return self._transfers(layouts, size, number, smallest, times=times)
        return self._transfers(layouts, size, number, smallest)

    @cached_property
    def _accumulates(self) -> list[Transfers]:
        """The accumulates, one for every op whose tile of C another rank owns; none if C stays in place."""
        layouts = next((x for x in (self.x, self.y) if x.matrix == "C"), None)
        if layouts is None:
            return []
        size, number, smallest = (self._area(layouts, x) for x in (OVERLAP, SEGMENTS, SHORTEST))
        efficiency = self.machine.accumulate_efficiency
        return [self._transfers(layouts, size, number, smallest, efficiency, self.count["k"])]

    def _transfers(
        self,
        layouts: OperandLayouts,
        size: Floats,
        number: Floats,
        smallest: Floats,
        efficiency: float = 1.0,
        times: Floats | None = None,
    ) -> Transfers:
        """Return transfers of some elements in a number of messages, over and over."""
        # size: elements between pairs of ranks, over kinds of the other matrix. number: messages they are in.
        # smallest: the smallest of these, in elements. efficiency: bandwidth of these transfers over that of
        # a get. times: how often a rank makes them all, over layouts; once if None.
        slowdown = np.array(
            [least_slowdown(self.machine.message_sizes, largest) for largest in layouts.largest_tile]
        )
        charge = layouts.itemsize / efficiency * slowdown
        charge = charge[:, None] if layouts is self.x else charge
        links, outward = self.links, layouts.matrix == "C"  # bytes leave the rank for the other one
        inverse = (links.out_inverse if outward else links.inverse)[..., None, None]
        latency = (links.out_latency if outward else links.latency)[..., None, None]
        pairs = self._pairs(layouts) & (number > 0)
        nbytes = np.where(pairs, size * charge, 0.0)
        number = np.where(pairs, number, 0.0)
        seconds = (nbytes * inverse + number * latency).sum(axis=0)
        # The smallest piece is infinite for pairs that share nothing:
        # masking before multiplying avoids inf * 0.
        shortest = np.where(pairs, np.where(pairs, smallest, 0.0) * charge * inverse + latency, np.inf)
        shortest = shortest.min(axis=0)
        # If some op finds its tile at home, a rank may begin with it: then
        # nothing has to be waited for at first.
        home = self._area(layouts, WHOLES)[self.ranks, np.arange(len(self.ranks))]
        at_home = (home > 0) | ~self.works
        at_least = np.where(at_home | np.isinf(shortest), 0.0, shortest)
        count, seconds = self._spread(layouts, number.sum(axis=0)), self._spread(layouts, seconds)
        on_links = self._spread(layouts, links.by_rank(nbytes, outward))
        if times is not None:
            count, seconds = count * times, seconds * times
        on_links = links.busy(on_links, outward, times)
        return Transfers(
            count, seconds, self._spread(layouts, shortest), self._spread(layouts, at_least), on_links
        )

    # Memory -----------------------------------------------------------------------------------------

    def memory(self, options: Options) -> Floats:
        """Return a lower bound of the bytes of the fullest rank: tiles held, and the pool."""
        resident = self._held
        if not (options.one_sided and find_policy(options.policy).closed_form):
            return np.asarray(resident.max(axis=0), dtype=np.float64)
        total = resident[self.ranks].astype(np.float64)
        for layouts in (self.x, self.y):
            updates = layouts.matrix == "C"
            # The pool has a slot for each transfer and gemm in flight, each as large as the largest piece.
            slots = options.max_gemms + (options.max_accumulates if updates else options.prefetch)
            pieces = updates or options.granularity == "slice"
            largest = np.where(self._pairs(layouts), self._area(layouts, LONGEST if pieces else LARGEST), 0.0)
            total = total + slots * layouts.itemsize * self._spread(layouts, largest.max(axis=0))
        return np.asarray(np.maximum(total.max(axis=0), resident.max(axis=0)))

    @cached_property
    def _held(self) -> Ints:
        """Bytes of the tiles that each rank holds, of all ranks."""
        kept, x, y = (layouts.held.T for layouts in (self.own, self.x, self.y))
        return np.asarray(kept[:, :, None] + x[:, :, None] + y[:, None])

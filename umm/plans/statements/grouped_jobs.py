"""Jobs of a grouped multiply: which ranks can multiply which parts, and about how long that takes.

All of it follows from the layouts, types, routing and machine. Layers repeat a multiply under other names,
and a search asks for the same layouts again, so choices are kept by these alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import NamedTuple

import numpy as np

from umm.dtypes import product_dtype
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.plans.movement.blocks import in_common, size_of
from umm.plans.movement.prices import Flow, Messages, added_up, busy_links
from umm.plans.movement.sums import Summed, Sums
from umm.program import Grouped
from umm.program.problem import MATRICES
from umm.program.routing import Routing
from umm.program.statements.grouped import Part
from umm.program.tensors import Tensor

Region = tuple[Interval, Interval]
Regions = tuple[Region, Region, Region]  # rows and columns of the product and both factors


class Job(NamedTuple):
    """Parts that a rank multiplies for one replica of the product, in one kernel."""

    rank: int
    replica: int  # of the product
    parts: tuple[Part, ...]  # an expert each
    regions: tuple[Regions, ...]  # of each part

    @property
    def products(self) -> list[Region]:
        """Rows and columns of the product that each part makes or adds to."""
        return [x[0] for x in self.regions]


class Chosen(NamedTuple):
    """The fastest way to do a grouped multiply."""

    seconds: float  # estimate
    operand: int  # whose owners multiply
    spread: bool = False  # whether each sum is made once


@dataclass(frozen=True)
class Jobs:
    """A grouped multiply in layouts on a machine, by operand: 0 is the product, 1 and 2 its factors."""

    statement: Grouped  # its tensors are called A, B and C
    tensors: tuple[Tensor, Tensor, Tensor]
    machine: Machine
    ranks: int

    @classmethod
    def of(cls, statement: Grouped, tensors: Sequence[Tensor], machine: Machine, ranks: int) -> "Jobs":
        """Return those of a statement, without the names of its tensors: product, left and right factor."""
        a, b, c = MATRICES
        out, left, right = (
            Tensor(name, x.layout, x.dtype, stored=x.stored)
            for name, x in zip((c, a, b), tensors, strict=True)
        )
        statement = replace(statement, out=c, a=a, b=b, beside="", copies=False)
        return cls(statement, (out, left, right), machine, ranks)

    @property
    def known(self) -> Routing:
        """The routing."""
        return self.statement.routed

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The layout of each operand."""
        return tuple(x.layout for x in self.tensors)

    @cached_property
    def heights(self) -> tuple[int, ...]:
        """Rows of an expert in each operand; 0 of a routed one."""
        shapes = {x.name: x.shape for x in self.tensors}
        return tuple(self.statement.height(shapes, x.name) for x in self.tensors)

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Those of m, n and k that are the same for all experts."""
        sizes: dict[str, int] = {}
        for tensor, letters, height in zip(self.tensors, self.statement.letters, self.heights, strict=True):
            sizes[letters[1]] = tensor.shape[1]
            if height:
                sizes[letters[0]] = height
        return sizes

    @cached_property
    def dtype(self) -> str:
        """Type of the product of the factors' types."""
        _, a, b = self.tensors
        return product_dtype(a.dtype, b.dtype, b.stored)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the slowest link."""
        return float(self.machine.link_bandwidth.min(initial=self.machine.work_bandwidth))

    def able(self, operand: int) -> bool:
        """Whether the owners of an operand can do it: each replica of the product has one of the operand."""
        return self.layouts[operand].replicas % self.layouts[0].replicas == 0

    def spreads(self, operand: int) -> bool:
        """Whether an operand's owners can make each sum once, which all replicas of the product then get."""
        return not self.statement.add and self.layouts[operand].replicas == 1 < self.layouts[0].replicas

    @property
    def over_groups(self) -> bool:
        """Whether each product is a sum over data groups, every one of which has the same weights."""
        return "a" in self.statement.trans and self.known.data > 1

    def full(self, letter: str, expert: int) -> Interval:
        """Return all of m, n or k for an expert."""
        if letter in self.sizes:
            return Interval(0, self.sizes[letter])
        return self.known.rows_of(expert)

    def is_whole(self, part: Part) -> bool:
        """Whether a part's sums are complete."""
        return part.k == self.full("k", part.expert) and not self.over_groups

    def region(self, operand: int, part: Part) -> Region:
        """Return the rows and columns of an operand that a part is of."""
        letters = self.statement.letters[operand]
        cols: Interval = getattr(part, letters[1])
        return self.statement.rows(part, letters[0], self.heights[operand]), cols

    def jobs(self, operand: int) -> Sequence[Job]:
        """Return the jobs if the owners of an operand do them."""
        return _jobs(self, operand)

    def by_expert(self, rows: Interval, height: int) -> Iterator[tuple[int, Interval]]:
        """Yield the slots of some rows, and which rows: within the expert of weights, else of all."""
        if not height:
            for expert in self.known.slots_of(rows):
                yield expert, rows.intersect(self.known.rows_of(expert))
            return
        for expert in range(rows.start // height, -(-rows.stop // height)):
            its = rows.intersect(Interval(expert * height, (expert + 1) * height))
            within = Interval(its.start - expert * height, its.stop - expert * height)
            for slot in range(expert, self.known.slots, self.known.places):  # of every data group
                yield slot, within

    def wanted(self, region: Region) -> list[int]:
        """Return the ranks that get all of a region of the product; none where it is of several tiles."""
        layout = self.layouts[0]
        tiles = layout.overlapping_tiles(*region)
        return [layout.owner(tiles[0], x) for x in range(layout.replicas)] if len(tiles) == 1 else []

    def at_once(self, made: Mapping[Region, Sequence[int]]) -> dict[Region, tuple[list[int], list[Region]]]:
        """Return the regions that are summed at once, by which ranks, and which regions of products they are.

        Over data groups those of experts beside each other are one, so that there are fewer, longer messages.
        """
        result: dict[Region, tuple[list[int], list[Region]]] = {}
        for region in sorted(made):
            (rows, cols), ranks = region, [*made[region]]
            # Regions come sorted, so only the latest one can be continued.
            last = next(reversed(result), None) if self.over_groups else None
            if (
                last is not None
                and result[last][0] == ranks
                and (last[0].stop, last[1]) == (rows.start, cols)
            ):
                _, regions = result.pop(last)
                result[Interval(last[0].start, rows.stop), cols] = ranks, [*regions, region]
            else:
                result[region] = ranks, [region]
        return result

    def chosen(self) -> Chosen:
        """Return the fastest way by estimate."""
        return _chosen(self)

    def fastest(self, operands: Sequence[int], moved: Sequence[int] = (0, 1, 2)) -> Chosen:
        """Return which of some operands' owners take least, and how long."""
        return min((Chosen(_estimate(self, x, tuple(moved)), x) for x in operands), key=lambda x: x.seconds)

    def estimate(self, jobs: Sequence[Job], operands: Sequence[int]) -> float:
        """Return about how long some jobs take: the rank with most to multiply and to move, of operands."""
        machine = self.machine
        flop, moved = np.zeros(self.ranks), np.zeros(self.ranks)
        for job in jobs:
            flop[job.rank] += sum(2.0 * x.m.size * x.n.size * x.k.size for x in job.parts)
            for operand in operands:
                moved[job.rank] += self.tensors[1].itemsize * self._missing(operand, job)
        # No overlap is assumed; the estimate only has to rank the choices.
        return float((flop / machine.peak(self.dtype) + moved / self.bandwidth).max())

    def _missing(self, operand: int, job: Job) -> int:
        """Return the elements of an operand that a job reads or writes and its rank does not own."""
        layout = self.layouts[operand]
        spans = np.array([(*rows, *cols) for rows, cols in (x[operand] for x in job.regions)])
        needed = int(size_of(spans).sum())
        if not operand and layout.replica(job.rank) != job.replica:
            return needed
        tiles = [(*rows, *cols) for rows, cols in map(layout.tile_bounds, layout.tiles_of(job.rank))]
        return needed - int(in_common(spans, np.reshape(tiles, (-1, 4))).sum())

    def spreading(self) -> float:
        """Return about how long all replicas of the product take to get it."""
        return float(self.tensors[0].nbytes_of_rank.max() / self.bandwidth)

    def seconds_moving(self, jobs: Sequence[Job]) -> float:
        """Estimate the seconds of jobs whose ranks get missing operands and add products elsewhere."""
        between = np.zeros((self.ranks, self.ranks))
        for job in jobs:
            for regions, number in product(job.regions, range(3)):
                layout, region = self.layouts[number], regions[number]
                replica = layout.replica(job.rank) if number else job.replica
                for tile in layout.overlapping_tiles(*region):
                    rows, cols = (
                        x.intersect(y).size for x, y in zip(layout.tile_bounds(tile), region, strict=True)
                    )
                    ends = layout.owner(tile, replica), job.rank
                    # Operands flow from owner to worker, products (number 0) back.
                    between[ends if number else ends[::-1]] += rows * cols * self.tensors[number].itemsize
        flow = Flow.of([Messages.of(between)], self.machine, self.ranks, 1.0)
        return self.estimate(jobs, operands=()) + max(busy_links([flow], self.machine))

    def seconds_summing(self, jobs: Sequence[Job]) -> float:
        """Return about how long products of owned rows, and all-reduces of each over replicas, take."""
        made: dict[Region, set[int]] = {}
        for job in jobs:
            for region in job.products:
                made.setdefault(region, {*self.wanted(region)}).add(job.rank)
        return self.seconds_at_copies(jobs, self.at_once({x: sorted(adders) for x, adders in made.items()}))

    def seconds_at_copies(
        self, jobs: Sequence[Job], at_once: Mapping[Region, tuple[list[int], list[Region]]]
    ) -> float:
        """Return about how long products at copies and their all-reduces take."""
        flows = list[Flow]()
        for (rows, cols), (ranks, _) in at_once.items():
            rects, count = np.tile((*rows, *cols), (len(ranks), 1)), len(ranks)
            sums = Sums((Summed(ranks, rects, count, np.arange(count)),), in_place=True)
            flows += added_up(sums, self.ranks, self.tensors[0].itemsize, self.machine)[::2]
        return self.estimate(jobs, operands=(1, 2)) + max(busy_links(flows, self.machine))


@lru_cache(maxsize=4)  # each has up to some ten thousand parts
def _jobs(jobs: Jobs, operand: int) -> list[Job]:
    """Return the jobs if the owners of an operand do them."""
    result = list[Job]()
    letters, height = jobs.statement.letters[operand], jobs.heights[operand]
    layout, out = jobs.layouts[operand], jobs.layouts[0]
    for rank, tile, replica in layout.filled():
        if operand and replica >= out.replicas:
            continue  # others have all that is needed
        rows, cols = layout.tile_bounds(tile)
        parts = list[Part]()
        for expert, span in jobs.by_expert(rows, height):
            given = {letters[0]: span, letters[1]: cols}
            part = Part(expert, *(given.get(x) or jobs.full(x, expert) for x in "mnk"))
            if part.m.size and part.n.size and part.k.size:
                parts.append(part)
        if parts:
            regions = ((jobs.region(0, x), jobs.region(1, x), jobs.region(2, x)) for x in parts)
            result.append(Job(rank, replica, tuple(parts), tuple(regions)))
    return result


@lru_cache(maxsize=1024)
def _estimate(jobs: Jobs, operand: int, moved: tuple[int, ...]) -> float:
    """Return about how long it takes if the owners of an operand do it."""
    return jobs.estimate(jobs.jobs(operand), moved)


@lru_cache(maxsize=1024)
def _chosen(jobs: Jobs) -> Chosen:
    """Return the fastest way by estimate."""
    # Output-stationary has no sums, input-stationary no gathers of that input.
    best = jobs.fastest([x for x in range(3) if jobs.able(x)])
    spread = [x for x in (1, 2) if jobs.spreads(x)]
    if not spread:
        return best
    shared = jobs.fastest(spread)
    # Rows of all groups go to each, or sums of each group's rows to all: only bytes differ, no flop.
    if jobs.over_groups:
        seconds = jobs.seconds_moving(jobs.jobs(best.operand))
        once_s = jobs.seconds_summing(jobs.jobs(shared.operand))
    else:
        seconds, once_s = best.seconds, shared.seconds + jobs.spreading()
    if once_s < seconds:
        return Chosen(once_s, shared.operand, True)
    return Chosen(seconds, best.operand)

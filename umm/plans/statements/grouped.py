"""Grouped multiplies over ranks: one multiply for each expert of a mixture, and sums over its copies.

A *grouped multiply* is done by the owners of the product, of its left or of its right operand, whichever is
estimated to take least; others get what they lack, and parts of sums are added where they belong. Where every
replica of the product wants sums of what one replica of an operand has, each sum is made once and then
gathered by all. Gradients of weights that are whole on every rank are such sums.

Source: Gale et al. (2022), MegaBlocks, on rows without padding.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from umm import cost
from umm.arrays import Floats, Ints
from umm.interval import Interval
from umm.plans.collectives.rings import nodes_of
from umm.plans.movement.blocks import Needed, held
from umm.plans.movement.gathers import by_level
from umm.plans.movement.sums import Summed, add_up, add_up_at, add_up_in_place, sums_to
from umm.plans.statements.experts import LEAST_PART, UNPACKING
from umm.plans.statements.grouped_jobs import Job, Jobs, Region
from umm.plans.statements.lowering import Context, Partial, write
from umm.plans.statements.pieces import clear, gather_together, gathered, pieces_in
from umm.program import Combine, Grouped, Statement, SumCopies
from umm.program.tensors import Tensor
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder

ACROSS = "across"  # lane of products that are added to sums in other nodes
MOVED = 1, 2  # operands that move to products which stay at their makers


@write.register
def _(statement: Grouped, build: Builder, context: Context) -> str:
    """Write a grouped multiply; return how sums over copies and data groups move if by one all-reduce."""
    if context.before is not None and not _together(build, context.before, statement):
        statement = replace(statement, beside="")
    multiplying = _Multiplying(build, statement)
    if statement.out in context.combined and multiplying.keep(context.partial):
        return ""
    return multiplying.write(statement.out in context.written)


def combined_alone(tensors: Iterable[Tensor], statements: Sequence[Statement]) -> set[str]:
    """Return products of experts, cut by columns, that nothing reads but sums of each token's rows."""
    cut = {x.name for x in tensors if x.role == "work" and x.layout.grid_shape()[1] > 1}
    for statement in statements:
        product = product_of(statement)
        others = {statement.a, statement.b} if isinstance(statement, Grouped) and product else None
        cut -= {*statement.outs, *statement.reads} - {product} if others is None else others
    return cut & {x.out for x in statements if isinstance(x, Grouped)}


def product_of(statement: Statement) -> str:
    """Return the product of experts that a statement adds to or whose rows of each token it sums, if any."""
    if isinstance(statement, Grouped) and "a" not in statement.trans:
        return statement.out
    return statement.x if isinstance(statement, Combine) and not statement.gates else ""


def _together(build: Builder, before: Statement, statement: Grouped) -> bool:
    """Whether one kernel can do two grouped multiplies: all that they read and write lies alike."""
    if not isinstance(before, Grouped) or before.out != statement.beside:
        return False
    names = zip((before.out, before.a, before.b), (statement.out, statement.a, statement.b), strict=True)
    return all(build.layout(x) == build.layout(y) for x, y in names)


@write.register
def _(statement: SumCopies, build: Builder, context: Context) -> None:
    """Write sums over the copies of experts."""
    sum_copies(build, statement)


def sum_copies(build: Builder, statement: SumCopies | Grouped) -> None:
    """Write that every copy of an expert becomes the sum of all copies; the others stay as they are."""
    # Two get each other's before any is changed; more are all-reduced, where each rank has one of them.
    # Two phases: with an add right after each get, a rank could read a copy that is a sum already.
    known, name, got = statement.routed, statement.out, list[tuple[Slice, Slice]]()
    layout, experts = build.layout(name), known.expert_of_place
    height = layout.shape[0] // known.places
    many = _many_copies(build, statement)
    for pieces in many.values():
        _all_reduce(build, pieces)
    for rank, tile, replica in layout.filled():
        owned = build.tile(name, *tile, replica)
        for slot in range(owned.rows.start // height, -(-owned.rows.stop // height)):
            target = owned.cut(owned.rows.intersect(Interval(slot * height, (slot + 1) * height)), owned.cols)
            for other in np.flatnonzero(experts == experts[slot]).tolist():
                if other == slot or (int(experts[slot]), target.cols, replica) in many:
                    continue
                first = target.rows.start + (other - slot) * height
                rows = Interval(first, first + target.rows.size)
                room = build.temporary(rank, name, rows, target.cols)
                for source in pieces_in(build, name, layout.replica(rank), rows, target.cols):
                    build.get(source, room.cut(source.rows, source.cols))
                got.append((target, room))
    for target, room in got:
        build.map("add_copy", target, target, room)


def _many_copies(
    build: Builder, statement: SumCopies | Grouped
) -> dict[tuple[int, Interval, int], list[Slice]]:
    """Return the copies of each expert that has more than two, each whole at a rank of its own."""
    # By expert, columns and replica.
    known, layout = statement.routed, build.layout(statement.out)
    height, experts = layout.shape[0] // known.places, known.expert_of_place
    result: dict[tuple[int, Interval, int], list[Slice]] = {}
    for place, replica, piece in _copies_of(build, statement.out, height):
        result.setdefault((int(experts[place]), piece.cols, replica), []).append(piece)
    copies = np.bincount(experts)
    return {
        key: pieces
        for key, pieces in result.items()
        if 2 < len(pieces) == copies[key[0]] == len({x.rank for x in pieces})
    }


def _copies_of(build: Builder, name: str, height: int) -> Iterator[tuple[int, int, Slice]]:
    """Yield the copies of experts that ranks have whole: the place of each, its replica, and where it is."""
    for _, tile, replica in build.layout(name).filled():
        owned = build.tile(name, *tile, replica)
        for place in range(-(-owned.rows.start // height), owned.rows.stop // height):
            yield place, replica, owned.cut(Interval(place * height, (place + 1) * height), owned.cols)


def _all_reduce(build: Builder, pieces: Sequence[Slice]) -> None:
    """Write that pieces of one shape, each at a rank of its own, all become their sum."""
    name, rows, cols = build.tensors[pieces[0].tensor].name, pieces[0].rows, pieces[0].cols
    # Copies of an expert may be at different rows, while a collective takes equal slices: sum in equal rooms.
    room = {x.rank: build.temporary(x.rank, name, rows, cols) for x in pieces}
    for piece in pieces:
        build.map("zero", room[piece.rank])
        build.map("add_copy", room[piece.rank], room[piece.rank], piece)
    add_up_at(build, room, room)
    for piece in pieces:
        build.map("zero", piece)
        build.map("add_copy", piece, piece, room[piece.rank])


class _Multiplying:
    """A grouped multiply on the ranks of a builder."""

    def __init__(self, build: Builder, statement: Grouped) -> None:
        self.build, self.statement, self.known = build, statement, statement.routed
        self.names = statement.out, statement.a, statement.b
        tensors = [build.tensors[build.number(x)] for x in self.names]
        self.choice = Jobs.of(statement, tensors, build.machine, build.ranks)
        self.within: dict[Region, Region] = {}  # what each product that is summed is added up with

    def write(self, again: bool) -> str:
        """Write it; return how sums over copies and data groups move if by one all-reduce."""
        if self.statement.copies:
            words = self._write_at_copies(again)
            if not words:
                self._write(again)
                sum_copies(self.build, self.statement)
            return words
        self._write(again)
        return ""

    def _write(self, again: bool) -> None:
        """Write it, copies by themselves."""
        statement = self.statement
        best = self.choice.chosen()
        jobs = self.choice.jobs(best.operand)
        if best.spread:
            self._spread(jobs, again)
            return
        # One incomplete sum makes all of them accumulates, since a tile may get both kinds of parts.
        added = any(not self.choice.is_whole(part) for job in jobs for part in job.parts)
        cleared = again and not statement.add
        # Experts without rows have no gemm, so their gradients keep old values unless these are cleared.
        if cleared and (added or "a" in statement.trans):
            clear(self.build, statement.out)
        plus = added or statement.add
        delivered: list[tuple[Slice, Slice]] = []
        summed = self._summed(jobs) if added else {}
        for job in jobs:
            self._multiply(job, 1.0 if plus else 0.0, delivered, summed)
        for group, products in summed.values():
            first = next(iter(products.values()))
            owned = {x: self.build.own(statement.out, x).cut(first.rows, first.cols) for x in group.ranks}
            add_up(self.build, group, products, owned, adds=statement.add)
        # After all gemms, so that deliveries do not hold up the next kernel's operands.
        for piece, target in delivered:
            (self.build.accumulate if plus else self.build.put)(piece, target)

    def keep(self, partial: Partial) -> bool:
        """Write products that stay at their makers for sums of each token's rows; return whether they do.

        A rank adds up its rows of a token first, as engines do, where that moves less than parts of rows.
        """
        build, name, statement = self.build, self.statement.out, self.statement
        stays = [x for x in range(3) if self.choice.able(x)]
        if statement.add:
            if name not in partial:
                return False
        else:
            partial.pop(name, None)
            stays = [x for x in stays if x]
            if not stays:
                return False
            at_makers = self.choice.fastest(stays, MOVED)
            jobs = self.choice.jobs(at_makers.operand)
            hulls = (Interval(x.parts[0].m.start, x.parts[-1].m.stop) for x in jobs)
            tokens = max((len(self.known.tokens_of(x)) for x in hulls), default=0)
            # A token's sum moves in all columns; of whole rows, in those that a rank has.
            across = build.layout(name).grid_shape()[1]
            more = tokens * self.choice.sizes["n"] * (across - 1) // across * self.choice.tensors[0].itemsize
            if at_makers.seconds + more / self.choice.bandwidth >= self.choice.chosen().seconds:
                return False
        rooms = {(replica, *room[1:2], *room[3:]): room for replica, room in partial.get(name, ())}
        for job in self.choice.jobs(self.choice.fastest(stays, MOVED).operand):
            runs, fresh = self._runs(job.products), set[object]()
            for region, a, b, seconds in self._operands(job):
                key = job.replica, job.rank, *runs[region]
                if key not in rooms:
                    fresh.add(key)
                    slot = "partial", name, len(rooms)
                    rooms[key] = build.temporary(job.rank, name, *runs[region], slot=slot)
                beta = float(key not in fresh)
                build.gemm(rooms[key].cut(*region), a, b, beta=beta, trans=statement.trans, seconds=seconds)
        partial[name] = [(key[0], room) for key, room in rooms.items()]
        return True

    def _runs(self, regions: Iterable[Region]) -> dict[Region, Region]:
        """Return for each region the rows of all that follow one another in the same columns."""
        result, run = dict[Region, Region](), list[Region]()
        for region in (*regions, (Interval(0, 0), Interval(0, 0))):
            if run and (run[-1][0].stop, run[-1][1]) != (region[0].start, region[1]):
                rows = Interval(run[0][0].start, run[-1][0].stop)
                result |= {x: (rows, x[1]) for x in run}
                run = []
            run.append(region)
        return result

    def _summed(self, jobs: Sequence[Job]) -> dict[Region, tuple[Summed, dict[int, Slice]]]:
        """Return by region who adds up its products by level, and room for them; none where all is near."""
        build, layout = self.build, self.build.layout(self.statement.out)
        result: dict[Region, tuple[Summed, dict[int, Slice]]] = {}
        owned = held(layout)
        if owned is None or layout.replicas > 1:
            return {}
        made: dict[Region, list[int]] = {}
        for job in jobs:
            for region in job.products:
                made.setdefault(region, []).append(job.rank)
        at_once = self.choice.at_once(made)
        for region, (ranks, _) in at_once.items():
            # A rank with two products of one region would need a sum of its own first; the plain way does
            # that.
            if len({*ranks}) < len(ranks):
                return {}
            missing = self._without_rows(owned, region, ranks)
            # Present the makers of a region as a multiply's products, so that `sums_to` finds the collective.
            rects, works = np.zeros((build.ranks, 4), dtype=np.int64), np.zeros(build.ranks, dtype=np.bool_)
            rects[[*ranks, *missing]], works[[*ranks, *missing]] = (*region[0], *region[1]), True
            sums = sums_to(Needed.of(layout, rects, works))
            if sums is None or sums.in_place or len(sums.groups) != 1:
                return {}
            (group,) = sums.groups
            if by_level(build.machine, group.ranks, build.ranks) is None and not self.choice.over_groups:
                return {}
            room = {x: build.temporary(x, self.statement.out, *region) for x in (*ranks, *missing)}
            for rank in missing:
                build.map("zero", room[rank])
            result[region] = group, room
        self.within = {x: region for region, (_, regions) in at_once.items() for x in regions}
        return result

    def _without_rows(self, rects: Ints, region: Region, ranks: Sequence[int]) -> list[int]:
        """Return the owners of a sum over data groups that have no row for it, which add zero."""
        if not self.choice.over_groups:
            return []
        low, high = (np.array([x[side] for x in region]) for side in (0, 1))
        owners = (np.maximum(rects[:, ::2], low) < np.minimum(rects[:, 1::2], high)).all(axis=1)
        return sorted({*np.flatnonzero(owners).tolist()} - {*ranks})

    def _spread(self, jobs: Sequence[Job], cleared: bool) -> None:
        """Write products by few ranks, the sum of each region among these, and its copies for all others."""
        build, name = self.build, self.statement.out
        if cleared:
            clear(build, name)
        made: dict[Region, list[int]] = {}
        for job in jobs:
            for region in job.products:
                ranks = made.setdefault(region, [])
                ranks += [job.rank] * (job.rank not in ranks)
        together, _ = self._products(jobs, self.choice.at_once(made), lambda region: region)
        complete: dict[int, list[Slice]] = {}
        nodes = nodes_of(build.machine, range(build.ranks), build.ranks)
        sums = np.zeros(len(nodes), dtype=np.int64)
        for region, products in together.items():
            # If few of those that want a sum make part of it, one node shares it out and copies go on from
            # there; else all that make or want it keep a share, and an all-gather follows.
            wanted = self.choice.wanted(region) if len(nodes) > 1 else [*products]
            if len({*wanted} & {*products}) * 2 < len({*wanted} | {*products}):
                parts = self._at_a_node(products, nodes, sums)
            else:
                parts = self._among_all(region, products, wanted)
            for rank, piece in parts.items():
                complete.setdefault(rank, []).append(piece)
        self._replicate(complete)

    def _products(
        self,
        jobs: Sequence[Job],
        at_once: Mapping[Region, tuple[list[int], list[Region]]],
        place: Callable[[Region], Region],
    ) -> tuple[dict[Region, dict[int, Slice]], set[tuple[int, Region]]]:
        """Write products into room for sums; return that by region and rank, and who has written where."""
        # place: where the product of some rows and columns goes.
        build, name, begun = self.build, self.statement.out, set[tuple[int, Region]]()
        within = {x: region for region, (_, regions) in at_once.items() for x in regions}
        rooms = {
            region: {x: build.temporary(x, name, *region) for x in ranks}
            for region, (ranks, _) in at_once.items()
        }
        for job in jobs:
            for made, a, b, seconds in self._operands(job):
                region = place(made)
                again = (job.rank, region) in begun  # of other tiles of its operand
                begun.add((job.rank, region))
                piece = rooms[within[region]][job.rank].cut(*region)
                build.gemm(piece, a, b, beta=float(again), trans=self.statement.trans, seconds=seconds)
        return rooms, begun

    def _among_all(
        self, region: Region, products: Mapping[int, Slice], wanted: Iterable[int]
    ) -> dict[int, Slice]:
        """Write the sum of some ranks' products; return its shares, one at each that makes or gets it."""
        build, name, made = self.build, self.statement.out, {**products}
        for rank in {*wanted} - {*products}:  # no row for it
            made[rank] = build.temporary(rank, name, *region)
            build.map("zero", made[rank])
        shares = {x: made[x].part(i, len(made)) for i, x in enumerate(sorted(made))}
        if len(made) > 1:
            shares = {x: build.temporary(x, name, share.rows, share.cols) for x, share in shares.items()}
            add_up_at(build, made, shares, apart=True)
        return shares

    def _at_a_node(
        self, products: Mapping[int, Slice], nodes: Sequence[Sequence[int]], sums: Ints
    ) -> dict[int, Slice]:
        """Write the sum of some ranks' products, and return the shares of it: one at each rank of a node."""
        # It is the node with most of the products, and those of others come by all cards of their nodes. Of
        # several such nodes it is one with the fewest elements of sums, which are counted.
        build, name = self.build, self.statement.out
        result: list[dict[int, Slice]] = []
        elements = next(iter(products.values())).elements
        order = sorted(
            range(len(nodes)), key=lambda i: (-sum(rank in products for rank in nodes[i]), sums[i])
        )
        sums[order[0]] += elements
        for node in (nodes[i] for i in order):
            owned = [products[rank] for rank in node if rank in products]
            shares: dict[int, Slice] = {}
            for place, rank in enumerate(node if owned else ()):
                part = owned[0].part(place, len(node))
                if not part.elements:
                    continue
                shares[rank] = build.temporary(rank, name, part.rows, part.cols)
                # A rank begins with its own product, others with different ones, so that no rank is read by
                # all at once.
                first = next((i for i, x in enumerate(owned) if x.rank == rank), place % len(owned))
                for turn, made in enumerate((*owned[first:], *owned[:first])):
                    piece = made.cut(part.rows, part.cols)
                    (build.accumulate if turn else build.get)(piece, shares[rank], lane=f"near.{place}")
            result += [shares] * bool(owned)
        total, *others = result
        for shares in others:
            for share, target in product(shares.values(), total.values()):
                piece = share.cut(target.rows, target.cols)
                if piece.elements:
                    build.accumulate(piece, target.cut(piece.rows, piece.cols), lane=ACROSS)
        return total

    def _write_at_copies(self, again: bool) -> str:
        """Write products where copies are, and one all-reduce of each expert's; nothing if that takes more.

        The sum over data groups and that over copies are one: by level each card carries a share of it.
        """
        build = self.build
        operands = [x for x in (1, 2) if self.choice.spreads(x)]
        jobs = self.choice.jobs(self.choice.fastest(operands).operand) if operands else []
        copies = self._copies()
        regions = {self._of_first_copy(x) for job in jobs for x in job.products}
        at_once = self.choice.at_once({x: sorted(copies[x]) for x in regions if x in copies})
        makers = {(job.rank, self._of_first_copy(x)) for job in jobs for x in job.products}
        if not jobs or any(x not in copies or rank not in copies[x] for rank, x in makers):
            return ""
        # Compared by estimates, since writing and simulating both would be slow in a search.
        if (
            self.choice.seconds_at_copies(jobs, at_once)
            >= self.choice.chosen().seconds + self.choice.spreading()
        ):
            return ""
        sums, begun = self._products(jobs, at_once, self._of_first_copy)
        levels = False
        for region, by_rank in sums.items():
            for rank, room in by_rank.items():
                for one in at_once[region][1]:
                    if (rank, one) not in begun:  # no row for this copy
                        build.map("zero", room.cut(*one))
            if len(by_rank) > 1:
                add_up_in_place(build, by_rank)
            levels |= by_level(build.machine, sorted(by_rank), build.ranks) is not None
            for one in at_once[region][1]:
                for rank, targets in copies[one].items():
                    for target in targets:
                        if again:
                            build.map("zero", target)
                        build.map("add_copy", target, target, by_rank[rank].cut(*one), lane=UNPACKING)
        unused = [x for region, by_rank in copies.items() if region not in regions for x in by_rank.values()]
        for target in (x for by_rank in unused if again for x in by_rank):
            build.map("zero", target)
        return "summed over copies and data groups at once" + " by level" * levels

    def _copies(self) -> dict[Region, dict[int, list[Slice]]]:
        """Return by rows and columns of each expert's first copy where each rank has copies of it."""
        result: dict[Region, dict[int, list[Slice]]] = {}
        for _, _, piece in _copies_of(self.build, self.statement.out, self.choice.heights[0]):
            region = self._of_first_copy((piece.rows, piece.cols))
            result.setdefault(region, {}).setdefault(piece.rank, []).append(piece)
        return result

    def _of_first_copy(self, region: Region) -> Region:
        """Return the same rows and columns of the first copy of an expert."""
        height, (rows, cols), experts = self.choice.heights[0], region, self.known.expert_of_place
        place = rows.start // height
        # The first copy is the canonical name of an expert's weights; sums of all copies meet under it.
        shift = (int(np.flatnonzero(experts == experts[place])[0]) - place) * height
        return Interval(rows.start + shift, rows.stop + shift), cols

    def _replicate(self, pieces: Mapping[int, Sequence[Slice]]) -> None:
        """Write that every replica of the product gets the pieces of it that ranks have."""
        build, name = self.build, self.statement.out
        layout = build.layout(name)
        rects, targets = held(layout), dict[Region, dict[int, Slice]]()
        for rank, tile, replica in layout.filled():
            target = build.tile(name, *tile, replica)
            if rects is not None:
                targets.setdefault((target.rows, target.cols), {})[rank] = target
                continue
            for piece in (x for owned in pieces.values() for x in owned):
                build.get(piece.cut(target.rows, target.cols), target.cut(piece.rows, piece.cols))
        with build.collective():
            for region, into in targets.items():
                cut = {x: [piece.cut(*region) for piece in owned] for x, owned in pieces.items()}
                gather_together(build, sorted(into), cut, into, sums=True)

    def _operands(self, job: Job) -> Iterator[tuple[Region, Slice, Slice, float]]:
        """Yield the product of each part of a job, its factors at the job's rank, and its seconds."""
        for part, regions, seconds in zip(job.parts, job.regions, self._seconds(job), strict=True):
            # Rows of each data group have room and a lane of their own. On one lane all replicas would get
            # those of the same group at a time, over its one card, and the cards of others would be idle.
            group, place = divmod(part.expert, self.known.places)
            across = f"{ACROSS}.{group}" if self.choice.over_groups else ""
            a, b = (
                gathered(
                    self.build, self.names[x], job.rank, *regions[x], ("grouped", x, group, place % 2), across
                )
                for x in (1, 2)
            )
            yield regions[0], a, b, float(seconds)

    def _multiply(
        self,
        job: Job,
        beta: float,
        delivered: list[tuple[Slice, Slice]],
        summed: Mapping[Region, tuple[Summed, Mapping[int, Slice]]],
    ) -> None:
        """Write the gemms of a job; note products to be delivered afterwards."""
        build, statement = self.build, self.statement
        # The products of a job that belong in one tile of its own rank, and that tile's part.
        targets = {x: self._targets(job, x) for x in {*job.products}}
        direct = {x: y[0] for x, y in targets.items() if len(y) == 1 and y[0].rank == job.rank}
        together = self._together([x for x in job.products if x not in direct], targets)
        rooms, made = dict[Region, Slice](), set[Region]()
        for (rows, cols), a, b, seconds in self._operands(job):
            if (rows, cols) in self.within:
                piece = summed[self.within[rows, cols]][1][job.rank].cut(rows, cols)
                build.gemm(piece, a, b, beta=0.0, trans=statement.trans, seconds=seconds)
                continue
            if (rows, cols) in direct:
                target = direct[rows, cols]
                build.gemm(target, a, b, beta=beta, trans=statement.trans, seconds=seconds)
                continue
            both = together[rows, cols]
            if both not in rooms:
                room = rooms[both] = build.temporary(job.rank, statement.out, *both)
                delivered += [(room.cut(x.rows, x.cols), x) for x in self._targets(job, both)]
            more = float((rows, cols) in made)  # of another data group
            made.add((rows, cols))
            build.gemm(rooms[both].cut(rows, cols), a, b, beta=more, trans=statement.trans, seconds=seconds)

    def _targets(self, job: Job, region: Region) -> list[Slice]:
        """Return where the products of a job for some rows and columns belong."""
        return [*pieces_in(self.build, self.statement.out, job.replica, *region)]

    def _together(
        self, moved: Iterable[Region], targets: Mapping[Region, Sequence[Slice]]
    ) -> dict[Region, Region]:
        """Return for each product of a job that moves the rows and columns that move with it."""
        # Few bytes for experts beside each other move together: one kernel has multiplied all of them.
        item = self.build.tensors[self.build.number(self.statement.out)].itemsize
        result: dict[Region, list[Region]] = {}
        last, before = (Interval(0, 0), Interval(0, 0)), set[int]()
        for region in moved:
            (rows, cols), owners = region, {x.rank for x in targets[region]}
            both = Interval(last[0].start, rows.stop), cols
            follows = (last[0].stop, last[1], before) == (rows.start, cols, owners)
            if follows and both[0].size * cols.size * item < LEAST_PART:
                result[both] = [*result.pop(last), region]
                last = both
            else:
                result[region] = [region]
                last, before = region, owners
        return {region: joined for joined, regions in result.items() for region in regions}

    def _seconds(self, job: Job) -> Sequence[float]:
        """Return the seconds of each part of a job's kernel, by its routed rows."""
        first = job.parts[0]
        if "a" in self.statement.trans:
            rows = np.array([x.k.size for x in job.parts])
            # In a weight gradient the routed rows are the contracted dimension, so the roles of m and k swap.
            n, k = first.n.size, max(x.m.size for x in job.parts)
        else:
            rows = np.array([x.m.size for x in job.parts])
            n, k = first.n.size, first.k.size
        if not self.statement.beside:
            return [float(x) for x in self._of_kernel(job, rows, n, k)]
        # What the kernel takes longer for both: of sums over both twice as long, else twice as wide.
        twice = (n, 2 * k) if self.statement.add else (2 * n, k)
        both, one = (self._of_kernel(job, rows, *x) for x in (twice, (n, k)))
        return [float(x) for x in np.maximum(both - one, 0.0)]

    def _of_kernel(self, job: Job, rows: Ints, n: int, k: int) -> Floats:
        """Return the seconds of each part of a kernel with so many rows of each expert."""
        build = self.build
        c = build.tensors[build.number(self.statement.out)]
        pace = cost.pace_of(build.machine, np.array(job.rank), build.ranks)
        return cost.grouped_seconds(build.machine, self.choice.dtype, rows, n, k, c.itemsize, pace)

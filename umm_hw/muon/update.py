"""``umm.muon.update``: orthogonalise momenta that ranks hold already, each matrix where a plan places it.

Matrices go in buckets. Each bucket is exchanged twice, packed: into the layouts in which it is orthogonalised
and back; of matrices whose longer side stays split, X·Xᵀ is summed in between, slice by slice. Those in place
follow, a weight at a time, by multiplies of distributed matrices.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError, UmmError, expect
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.muon.placements import DUPLICATED, GRAM, IN_PLACE, TWO_AXIS
from umm.muon.planning import MuonPlan
from umm.muon.weights import Matrix
from umm.units import counted
from umm_hw.arrays.local import by, local_shape
from umm_hw.arrays.matrix import WrappedMatrix
from umm_hw.arrays.operand import Operand
from umm_hw.bfloat16 import dtype_name
from umm_hw.muon import in_place
from umm_hw.muon.newton_schulz import Steps
from umm_hw.muon.parcels import Mail, Parcels
from umm_hw.muon.relayout import Relayout, Transfers
from umm_hw.muon.sums import Sums

Array = NDArray[Any]
Momenta = Mapping[str, WrappedMatrix | Sequence[WrappedMatrix]]
BUCKET = 2**28  # bytes of matrices, all ranks' parts together, that are exchanged at once
MAX_PREPARED = 16  # combinations of a plan and layouts whose exchanges are kept


class Entry(NamedTuple):
    """One matrix of an update."""

    name: str  # of the plan's weight
    number: int  # which of its equal matrices
    placement: str  # of the plan
    owner: int  # the rank that has it alone; -1 where several have parts
    target: Layout  # layout in which it is orthogonalised


class Bucket:
    """Matrices that are orthogonalised together.

    Args:
        entries: The matrices.
        operands: How each is laid out before and after.
        known: Transfers between layouts that were looked at before.
    """

    def __init__(
        self,
        entries: Sequence[Entry],
        operands: Sequence[Operand],
        steps: Steps,
        tp: int,
        known: dict[Any, Transfers],
    ) -> None:
        self.entries, self.steps = entries, steps
        dtype, ranks = operands[0].dtype, operands[0].layout.ranks
        self._targets = [
            Operand(
                x.target, Interval(0, x.target.shape[0]), Interval(0, x.target.shape[1]), False, dtype,
                "C" * ranks,
            )
            for x in entries
        ]  # fmt: skip

        def transfers(x: Operand, y: Operand) -> Transfers:
            key = x.key, y.key
            if key not in known:
                known[key] = Transfers(x, y)
            return known[key]

        alike = [
            x.placement == DUPLICATED and len(operand.layout.places) == 1
            for x, operand in zip(entries, operands, strict=True)
        ]
        self._gathers = []
        for shared in (True, False):
            some = [i for i, each in enumerate(alike) if each == shared]
            if some:
                moves = [transfers(operands[i], self._targets[i]) for i in some]
                self._gathers.append((some, Relayout(moves, dtype, shared)))
        moves = [transfers(y, x) for x, y in zip(operands, self._targets, strict=True)]
        self._scatter = Relayout(moves, dtype, False)
        self._sums = []
        for placement, size in ((GRAM, ranks), (TWO_AXIS, tp)):
            some = [i for i, x in enumerate(entries) if x.placement == placement]
            if some:
                groups = [range(first, first + size) for first in range(0, ranks, size)]
                count = sum(min(entries[i].target.shape) ** 2 for i in some)
                self._sums.append((some, Sums(groups, count, steps.compute_dtype)))

    @property
    def parcels(self) -> list[Parcels]:
        """Every exchange of the bucket."""
        sums = chain.from_iterable((x.parts, x.totals) for _, x in self._sums)
        return [*(x.parcels for _, x in self._gathers), self._scatter.parcels, *sums]

    def perform(self, mail: Mail, before: Sequence[Array], after: Sequence[Array]) -> None:
        """Orthogonalise this rank's share of the matrices; collective.

        Args:
            before: This rank's part of each matrix.
            after: The same of the results.
        """
        rank = mail.rank
        parts = [
            np.zeros(local_shape(x.layout, rank), x.dtype) for x in self._targets
        ]  # zeros: a rank without rows of a matrix has no part to fill
        for some, relayout in self._gathers:
            relayout.perform(mail, [before[i] for i in some], [parts[i] for i in some])
        for i, entry in enumerate(self.entries):
            if entry.placement not in (GRAM, TWO_AXIS) and entry.owner in (-1, rank):
                parts[i] = self.steps.orthogonalized(parts[i])
        for some, sums in self._sums:
            results = self._split(
                mail, [self.entries[i].target.shape for i in some], [parts[i] for i in some], sums
            )
            for i, result in zip(some, results, strict=True):
                parts[i] = result
        self._scatter.perform(mail, parts, after)

    def _split(
        self, mail: Mail, shapes: Sequence[tuple[int, int]], parts: Sequence[Array], sums: Sums
    ) -> list[Array]:
        """Return parts whose longer side is split after all steps; each step sums X·Xᵀ over the group."""
        steps = self.steps
        tall = [rows > cols for rows, cols in shapes]
        dtype = steps.compute_dtype
        xs = [
            np.ascontiguousarray(part.T if turned else part, dtype=dtype)
            for part, turned in zip(parts, tall, strict=True)
        ]
        squares = sums.perform(mail, np.concatenate([(x @ x.T).reshape(-1) for x in xs]))
        grams = _matrices(squares, [len(x) for x in xs])
        # The trace of the first sum is the square of the norm, so that norms take no exchange.
        traces = [float(np.trace(gram)) for gram in grams]
        xs = [steps.normed(x, trace) for x, trace in zip(xs, traces, strict=True)]
        grams = [steps.normed_gram(gram, trace) for gram, trace in zip(grams, traces, strict=True)]
        for number in range(len(steps.coefficients)):
            if number:
                vector = sums.perform(mail, np.concatenate([(x @ x.T).reshape(-1) for x in xs]))
                grams = [steps.rounded(x) for x in _matrices(vector, [len(x) for x in xs])]
            xs = [steps.step(number, x, gram) for x, gram in zip(xs, grams, strict=True)]
        return [
            np.ascontiguousarray(x.T if turned else x, dtype=part.dtype)
            for x, part, turned in zip(xs, parts, tall, strict=True)
        ]


def _matrices(vector: Array, edges: Sequence[int]) -> list[Array]:
    ends = np.cumsum([edge * edge for edge in edges])
    return [vector[end - n * n : end].reshape(n, n) for n, end in zip(edges, ends.tolist(), strict=True)]


def target_of(placement: str, shape: tuple[int, int], ranks: int, tp: int, owner: int) -> Layout:
    """Return the layout in which a matrix is orthogonalised.

    >>> str(target_of("owners", (4, 6), 3, 1, owner=1))
    'edges:0-0-4-4x0-6:3x1'
    """
    rows, cols = shape
    split = "row" if rows > cols else "col"
    if placement == DUPLICATED:
        text = f"row@{ranks}"
    elif placement == GRAM:
        text = split
    elif placement == TWO_AXIS:
        text = f"{split}@{ranks // tp}"
    else:
        edges = "-".join(["0"] * (owner + 1) + [str(rows)] * (ranks - owner))
        text = f"edges:{edges}x0-{cols}:{ranks}x1"
    return Layout.parse(text, shape, ranks)


class Update:
    """An update prepared for matrices with some layouts: the same on every rank.

    Args:
        plan: Where each matrix goes.
        operands: Layouts of each weight's matrices.
        memory: Bytes of matrices that are exchanged at once.
    """

    def __init__(self, plan: MuonPlan, operands: Mapping[str, Operand], memory: int) -> None:
        first = next(iter(operands.values()))
        ranks, tp = first.layout.ranks, plan.grid.tp
        self.steps = Steps(plan.coefficients, first.dtype)
        rounds: list[tuple[float, Entry]] = []
        for weight in plan.weights:
            if plan.best[weight.name] == IN_PLACE:
                continue
            counts = [0] * ranks
            homes, shape = plan.homes.get(weight.name), operands[weight.name].layout.shape
            share = max(1, weight.count // ranks)
            for number in range(weight.count):
                owner = homes[number] if homes else -1
                target = target_of(plan.best[weight.name], shape, ranks, tp, owner)
                # A bucket has the same share of each owner's matrices, so that none waits for another's.
                turn = counts[owner] / share if homes else number / weight.count
                counts[owner] += 1
                rounds.append((turn, Entry(weight.name, number, plan.best[weight.name], owner, target)))
        rounds.sort(key=lambda x: x[0])
        groups: list[list[Entry]] = [[]]
        nbytes = 0
        for _, entry in rounds:
            size = entry.target.shape[0] * entry.target.shape[1] * first.dtype.itemsize
            if groups[-1] and nbytes + size > memory:
                groups.append([])
                nbytes = 0
            groups[-1].append(entry)
            nbytes += size
        known: dict[Any, Transfers] = {}
        self.buckets = [
            Bucket(group, [operands[x.name] for x in group], self.steps, tp, known)
            for group in groups
            if group
        ]

    @property
    def parcels(self) -> list[Parcels]:
        """Every exchange of the update."""
        return [parcels for bucket in self.buckets for parcels in bucket.parcels]


def update(plan: MuonPlan, momentum: Momenta, *, memory: int = BUCKET) -> dict[str, Any]:
    """Return momenta orthogonalised by Newton-Schulz steps, in their own layouts; collective.

    Where a matrix is orthogonalised as a whole (duplicated, owners, layers), the result equals that of one
    process bit for bit. Elsewhere X·Xᵀ is summed in another order. InputError on every rank, before anything
    moves, where the matrices of one do not fit the plan. UmmError if a rank ends its program meanwhile.

    Args:
        plan: Where each matrix goes, by :func:`umm.muon.plan`; its grid has as many ranks as there are.
        momentum: For each weight of the plan its matrices: a batch, a list, or one matrix. They stay as they
            are.
        memory: Bytes of matrices, of all ranks together, that are exchanged at once.

    Returns:
        For each name new matrices in the form in which they were given.
    """
    expect(plan, MuonPlan, "update", "a plan of umm.muon.plan first")
    expect(momentum, Mapping, "update", "matrices by the plan's names")
    given = {name: [x] if isinstance(x, WrappedMatrix) else list(x) for name, x in momentum.items()}
    matrices = [x for group in given.values() for x in group]
    if not matrices:
        raise InputError("update takes at least one momentum")
    for matrix in matrices[:1]:
        expect(matrix, WrappedMatrix, "update", "matrices of umm.DistributedMatrix.wrap")
    exchange: Any = matrices[0].exchange
    error: UmmError | None = None
    try:
        _check(plan, given)
    except UmmError as refused:
        error = refused
    signature, prepared = b"", None
    if error is None:
        operands = {name: group[0].operand() for name, group in given.items()}
        key = (plan.key, tuple((name, x.key) for name, x in operands.items()), memory)
        signature = repr(key).encode()
        known: dict[Any, Update] = exchange.__dict__.setdefault("updates", {})
        if key not in known:
            if len(known) >= MAX_PREPARED:
                known.pop(next(iter(known)))
            known[key] = Update(plan, operands, memory)
        prepared = known[key]
    placements = ", ".join(sorted(set(plan.best.values())))
    words = f"orthogonalises momenta of {counted(len(given), 'weight')} by {placements}"
    mail = Mail(exchange, prepared.parcels if prepared else [], signature, words, error)
    assert prepared is not None
    results = {
        name: [WrappedMatrix.empty(x, x.layout, x.shape) for x in group]
        for name, group in given.items()
        if plan.best[name] != IN_PLACE
    }
    for bucket in prepared.buckets:
        before = [_member(given[x.name], x.number) for x in bucket.entries]
        after = [_member(results[x.name], x.number) for x in bucket.entries]
        bucket.perform(mail, before, after)
    mail.close()
    for name in sorted(set(given) - set(results)):
        results[name] = [in_place.orthogonalized(prepared.steps, x) for x in given[name]]
    return {
        name: results[name][0] if isinstance(x, WrappedMatrix) else results[name]
        for name, x in momentum.items()
    }


def _member(group: Sequence[WrappedMatrix], number: int) -> Array:
    """Return this rank's part of one of a weight's matrices."""
    if group[0].batch is None:
        return group[number].local
    part: Array = group[0].local[number]
    return part


def _check(plan: MuonPlan, given: Mapping[str, Sequence[WrappedMatrix]]) -> None:
    """Refuse momenta that are not those of a plan; InputError in one line."""
    names = {x.name for x in plan.weights}
    if names != set(given):
        missing, more = sorted(names - set(given)), sorted(set(given) - names)
        problem = f"lack {missing[0]}" if missing else f"have {more[0]}, which the plan lacks"
        raise InputError(f"the momenta {problem}; give those of {', '.join(sorted(names)[:4])}")
    first = next(iter(given.values()))[0]
    ranks = first.group.size
    if plan.grid.ep > 1:
        raise InputError(
            f"the plan's experts are in {plan.grid.ep} groups; give those of one group, on its communicator, "
            "with a plan for its grid without ep"
        )
    if plan.grid.ranks != ranks:
        raise InputError(f"the plan is for {plan.grid.ranks} ranks, but the communicator has {ranks}")
    if first.dtype.kind in "ciub":
        raise InputError(f"momenta of {dtype_name(first.dtype)} have no Newton-Schulz steps; give floats")
    for weight in plan.weights:
        _check_weight(weight, given[weight.name], first)


def _check_weight(weight: Matrix, group: Sequence[WrappedMatrix], first: WrappedMatrix) -> None:
    for matrix in group:
        expect(matrix, WrappedMatrix, "update", f"matrices of umm.DistributedMatrix.wrap as {weight.name}")
        if matrix.shape != (weight.rows, weight.cols) or matrix.layout.shape != matrix.shape:
            raise InputError(
                f"{weight.name} is {by(matrix.shape)} of {by(matrix.layout.shape)}; "
                f"the plan has complete matrices of {weight.rows}x{weight.cols}"
            )
        if matrix.dtype != first.dtype or matrix.exchange is not first.exchange:
            raise InputError(
                f"{weight.name} is {dtype_name(matrix.dtype)}, another momentum {dtype_name(first.dtype)}; "
                "give all one type on one communicator"
            )
        if matrix.operand().key != group[0].operand().key:
            raise InputError(f"the matrices of {weight.name} have different layouts; give all one")
    count = sum(1 if x.batch is None else x.batch for x in group)
    if count != weight.count or (len(group) > 1 and any(x.batch is not None for x in group)):
        raise InputError(
            f"{weight.name} comes as {count} matrices; the plan has {weight.count}: give one batch or a list"
        )

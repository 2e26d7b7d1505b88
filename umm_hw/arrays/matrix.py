"""Distributed matrices in the memory of the program that made them: ``umm.DistributedMatrix.wrap``."""

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from umm.errors import InputError, LayoutError, UmmError
from umm.interval import Interval
from umm.layouts.edges import Tile
from umm.layouts.layout import Layout
from umm_hw.arrays.axes import Runs, axis_of, copy
from umm_hw.arrays.exchange import exchange_of
from umm_hw.arrays.group import Group, group_of
from umm_hw.arrays.local import Array, Fact, Part, by, checked, fact_of, layout_of, local_shape
from umm_hw.arrays.move import move
from umm_hw.arrays.operand import Operand
from umm_hw.bfloat16 import dtype_name
from umm_hw.matrix import DistributedMatrix

_ONE_SIDED = (
    "a wrapped matrix has no one-sided access to other ranks' tiles; use local, gather() or redistributed(), "
    "or umm_hw.DistributedMatrix(transport, layout, dtype)"
)


class WrappedMatrix(DistributedMatrix):
    """A distributed matrix whose parts are the caller's arrays; its methods are collective.

    The local matrix of a rank is dense: the rows of its place of the process grid by the columns, both in
    ascending order, as ScaLAPACK keeps them. ``A[10:20, :]`` is a window of it, without a copy, which can be
    multiplied and redistributed like a complete matrix. Other ranks cannot reach a caller's array, so the
    one-sided methods (tiles, replicas) raise InputError.

    Attributes:
        layout: Layout of the complete matrix, also for a window.
        local: This rank's local matrix, the caller's memory; for a batch, one matrix after another.
        rows: Rows of the complete matrix that this window covers.
        cols: Columns that it covers.
        batch: Number of matrices in a batch; None for a single matrix.
    """

    def __init__(
        self,
        group: Group,
        layout: Layout,
        local: Array,
        window: tuple[Interval, Interval],
        orders: str,
        writable: Sequence[bool],
    ) -> None:
        self.group, self.layout, self.local = group, layout, local
        self.rows, self.cols = window
        self.orders, self.writable = orders, tuple(writable)
        self.dtype: np.dtype[Any] = local.dtype
        self.batch = len(local) if local.ndim == 3 else None
        self.exchange = exchange_of(group)
        self._operands: dict[str, Operand] = {}

    copied = False  # whether the local matrix is a copy of the caller's

    @classmethod
    def empty(
        cls,
        like: "WrappedMatrix",
        layout: str | Layout,
        shape: tuple[int, int],
        dtype: Any = None,
        order: str = "C",
    ) -> "WrappedMatrix":
        """Return a new matrix on the ranks of another, its elements not set; all ranks ask for the same."""
        target = layout_of(layout, shape, like.group.size, None)
        rows, cols = local_shape(target, like.group.rank)
        leading = () if like.batch is None else (like.batch,)
        size = (*leading, rows, cols)
        kind: Any = like.dtype if dtype is None else dtype
        if order == "F":
            local = np.empty((*leading, cols, rows), kind).swapaxes(-1, -2)
        else:
            local = np.empty(size, kind)
        window = Interval(0, shape[0]), Interval(0, shape[1])
        count = like.group.size
        return cls(like.group, target, local, window, order * count, [True] * count)

    @property
    def transport(self) -> NoReturn:
        """Refused: other ranks cannot reach the caller's memory; InputError always."""
        raise InputError(_ONE_SIDED)

    def block(self, tile: Tile, replica: int | None = None) -> NoReturn:
        """Refused, like ``transport``."""
        raise InputError(_ONE_SIDED)

    @property
    def rank(self) -> int:
        """This rank's number in the group."""
        return self.group.rank

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of this window."""
        return self.rows.size, self.cols.size

    def __getitem__(self, window: tuple[slice, slice]) -> "WrappedMatrix":
        """Return a window of rows and columns, without a copy; its indices count from this one's first.

        Raises:
            InputError: for anything but two slices without steps.
        """
        if not (isinstance(window, tuple) and len(window) == 2 and all(isinstance(x, slice) for x in window)):
            raise InputError("a distributed matrix is cut by two slices, as in A[0:10, :]")
        spans = []
        for span, cut in zip((self.rows, self.cols), window, strict=True):
            start, stop, step = cut.indices(span.size)
            if step != 1:
                raise InputError(f"a window of a distributed matrix has no step, not {step}")
            spans.append(Interval(span.start + start, span.start + max(start, stop)))
        made = WrappedMatrix(
            self.group, self.layout, self.local, (spans[0], spans[1]), self.orders, self.writable
        )
        made.copied = self.copied
        return made

    def over(self, local: Array) -> "WrappedMatrix":
        """Return a matrix like this one with other local matrices, stored alike on every rank."""
        made = WrappedMatrix(
            self.group, self.layout, local, (self.rows, self.cols), self.orders, self.writable
        )
        made._operands = self._operands
        return made

    def member(self, number: int) -> "WrappedMatrix":
        """Return one matrix of a batch, without a copy."""
        return WrappedMatrix(
            self.group, self.layout, self.local[number], (self.rows, self.cols), self.orders, self.writable
        )

    def operand(self, trans: str = "N") -> Operand:
        """Return the matrix as a product's operand: unchanged (N), transposed (T) or also conjugated (C)."""
        if trans in self._operands:
            return self._operands[trans]
        flip = {"C": "F", "F": "C"}
        orders = self.orders if trans == "N" else "".join(flip[x] for x in self.orders)
        conj = trans == "C" and self.dtype.kind == "c"
        made = Operand(self.layout, self.rows, self.cols, trans != "N", self.dtype, orders, conj)
        self._operands[trans] = made
        return made

    @property
    def held(self) -> Array:
        """This rank's part of the window, as a view of its local matrix."""
        row, col = (int(x[self.group.rank]) for x in self.layout.place_of_rank[1:])
        rows = axis_of(self.layout, 0, self.rows).held(row)
        cols = axis_of(self.layout, 1, self.cols).held(col)
        part: Array = self.local[..., rows.slice, cols.slice]
        return part

    def gather(self, replica: int | None = None) -> Array:
        """Return a copy of the complete window on every rank, from replica 0; for small matrices.

        Raises:
            InputError: for another replica.
        """
        if replica:
            raise InputError(f"a wrapped matrix is gathered from replica 0, not {replica}")
        leading = () if self.batch is None else (self.batch,)
        result = np.zeros((*leading, *self.shape), self.dtype)
        words = f"gathers {by(self.shape)} of {self.layout}, {dtype_name(self.dtype)}"
        signature = repr(("gather", self.operand().key)).encode()
        parts = self.exchange.gather(signature, words, np.ascontiguousarray(self.held))
        rows, cols = axis_of(self.layout, 0, self.rows), axis_of(self.layout, 1, self.cols)
        for (i, j), rank in np.ndenumerate(self.layout.places[0]):
            down, across = (_places(x, p) for x, p in ((rows, i), (cols, j)))
            for member in range(self.batch or 1):
                part, into = (x if self.batch is None else x[member] for x in (parts[rank], result))
                copy(into, part, down, across)
        return result

    def redistributed(
        self, layout: str | Layout | None = None, out: "WrappedMatrix | None" = None
    ) -> "WrappedMatrix":
        """Return the same matrix in another layout, in new memory or in that of ``out``; collective.

        Args:
            layout: A layout, or its text.
            out: Where it goes instead: a matrix of the same shape and type.

        Raises:
            InputError: on every rank, where the two do not fit.
        """
        error: UmmError | None = None
        try:
            if (layout is None) == (out is None):
                raise InputError("give a target: a layout, or out=, a matrix of the same shape")
            out = out or WrappedMatrix.empty(self, layout or "", self.shape)
            self._check_target(out)
        except UmmError as refused:
            error, out = refused, self
        pairs = [(self.local, out.local)]
        if self.batch is not None and not error:
            pairs = list(zip(self.local, out.local, strict=True))
        move(self.exchange, self.operand(), out.operand(), pairs, error)
        return out

    def _check_target(self, out: "WrappedMatrix") -> None:
        if self.shape != out.shape or self.batch != out.batch:
            raise LayoutError(
                f"a {by(self.shape)} matrix cannot be redistributed into one of {by(out.shape)}"
            )
        if self.dtype != out.dtype:
            names = dtype_name(self.dtype), dtype_name(out.dtype)
            raise InputError(f"{names[0]} cannot be redistributed into {names[1]}: the types differ")
        if self.exchange is not out.exchange:
            raise InputError("the two matrices are on different communicators; wrap both with the same one")
        out.check_writable()
        if np.may_share_memory(self.local, out.local):
            raise InputError(
                "a matrix cannot be redistributed into its own memory; give out= memory of its own"
            )

    def check_writable(self) -> None:
        """Refuse a matrix that cannot be written on some rank, or is a copy of the caller's.

        Raises:
            InputError: naming the rank.
        """
        for rank, writable in enumerate(self.writable):
            if not writable:
                raise InputError(f"rank {rank}'s local matrix is read-only; give memory that can be written")
        if self.copied:
            raise InputError(
                "the local matrix is a copy, and the caller's memory would not see what is written; wrap it "
                "without copy=True"
            )

    def __str__(self) -> str:
        """Type, layout and this rank's part."""
        return f"{dtype_name(self.dtype)}, {self.layout.describe(self.group.rank)}"


def wrap(comm: Any, arguments: tuple[Any, ...]) -> WrappedMatrix:
    """Return the matrix of each rank's arguments to ``DistributedMatrix.wrap``; collective."""
    return wrapped(comm, [Part(*arguments)])[0]


def wrapped(comm: Any, parts: Sequence[Part], refusal: UmmError | None = None) -> list[WrappedMatrix]:
    """Return matrices of local matrices; collective, in one gather.

    LayoutError on every rank, if a part of one rank does not fit, or ranks give different things.

    Args:
        comm: The communicator, or a group.
        parts: This rank's part of each matrix.
        refusal: This rank's error, if it has no parts; all ranks raise it.
    """
    group = group_of(comm)
    facts, views, layouts = [], [], []
    for part in () if refusal else parts:
        fact, view, layout = fact_of(part, group)
        facts.append(fact)
        views.append(view)
        layouts.append(layout)
    shapes = " and ".join(by(fact.shape) for fact in facts if fact.shape)
    given = str(refusal) if refusal else facts
    of_ranks: list[list[Fact] | str] = exchange_of(group).gather(
        b"wrap", f"wraps {shapes or 'nothing'}", given
    )
    if refusal:
        raise refusal
    counts = {len(x): rank for rank, x in enumerate(of_ranks) if not isinstance(x, str)}
    if len(counts) > 1:
        words = " and ".join(f"{count} on rank {rank}" for count, rank in sorted(counts.items()))
        raise LayoutError(f"ranks wrap different numbers of matrices at once: {words}; nothing was moved")
    made = []
    for number, (part, view, layout) in enumerate(zip(parts, views, layouts, strict=True)):
        facts_of_ranks = [x if isinstance(x, str) else x[number] for x in of_ranks]
        known = checked(facts_of_ranks, group.rank)
        assert layout is not None
        rows, cols = layout.shape
        window = Interval(0, rows), Interval(0, cols)
        orders, writable = "".join(x.order for x in known), [x.writable for x in known]
        matrix = WrappedMatrix(group, layout, view, window, orders, writable)
        matrix.copied = part.copy and not np.may_share_memory(view, part.local)
        made.append(matrix)
    return made


def _places(axis: Any, place: int) -> Runs:
    ours = axis.place == place
    first = axis.held(place).start
    return Runs(axis.local[ours] - first, axis.start[ours], axis.sizes[ours])

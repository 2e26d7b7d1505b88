"""A rank's part of a matrix: its local memory as a checked array, and the facts that others must know."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from umm.errors import InputError, LayoutError, UmmError, expect
from umm.files import shown
from umm.interval import Interval
from umm.layouts.edges import square_grid
from umm.layouts.frameworks.scalapack import parts as scalapack_parts
from umm.layouts.layout import Layout
from umm_hw.arrays.axes import axis_of
from umm_hw.arrays.group import Group
from umm_hw.bfloat16 import dtype_name

Array = NDArray[Any]
KINDS = "float64, float32, float16, bfloat16, complex128, complex64, or a whole number of 8 to 64 bits"


class Part(NamedTuple):
    """Arguments of :meth:`DistributedMatrix.wrap` for one matrix."""

    layout: str | Layout | Sequence[int]
    shape: Sequence[int]
    local: Any
    order: str | None = None
    ld: int | None = None
    grid: tuple[int, int] | None = None
    copy: bool = False


class Fact(NamedTuple):
    """A rank's part, described for the other ranks."""

    error: str
    layout: str
    key: object
    shape: tuple[int, ...]
    type: str
    order: str
    writable: bool


def fact_of(part: Part, group: Group) -> tuple[Fact, Array, Layout | None]:
    """Return a part's description for other ranks, or its error; its array; its layout if known."""
    error, layout, view = "", None, np.zeros((0, 0))
    sizes: tuple[int, ...] = ()
    try:
        sizes = _shape(part.shape)
        layout = layout_of(part.layout, (sizes[-2], sizes[-1]), group.size, part.grid)
        view = _viewed(part, layout, sizes, group.rank)
    except UmmError as refused:
        error = str(refused)
    text, key = ("", None) if layout is None else (str(layout), layout.key)
    kind, writable = dtype_name(view.dtype), bool(view.flags.writeable)
    return Fact(error, text, key, sizes, kind, _order(view) or "C", writable), view, layout


def local_shape(layout: Layout, rank: int) -> tuple[int, int]:
    """Return the rows and columns of a rank's local matrix.

    >>> [local_shape(Layout.parse("cyclic:2x2:2x1", (5, 3), ranks=2), rank) for rank in (0, 1)]
    [(3, 3), (2, 3)]
    """
    _, row, col = (int(x[rank]) for x in layout.place_of_rank)
    rows = axis_of(layout, 0, Interval(0, layout.shape[0])).held(row)
    cols = axis_of(layout, 1, Interval(0, layout.shape[1])).held(col)
    return rows.size, cols.size


def _shape(shape: Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = tuple(int(x) for x in shape)
    except (TypeError, ValueError):
        sizes = ()
    if len(sizes) not in (2, 3) or min(sizes) < 0:
        raise InputError(f"a matrix has a shape of rows and columns, as in (m, k), not {shown(str(shape))}")
    return sizes


def layout_of(layout: Any, shape: tuple[int, int], ranks: int, grid: tuple[int, int] | None) -> Layout:
    """Return a layout, given one, its text, or the nine numbers of a descriptor on a process grid."""
    if isinstance(layout, Layout):
        result = layout
    elif isinstance(layout, str):
        result = Layout.parse(layout, shape, ranks)
    else:
        result = Layout.of_parts(scalapack_parts(layout, grid or square_grid(ranks)), shape)
    if result.shape != shape:
        raise LayoutError(f"the layout is of a {by(result.shape)} matrix, not of {by(shape)}")
    if result.ranks != ranks:
        raise LayoutError(
            f"the layout {result} is for {result.ranks} ranks, but the communicator has {ranks}"
        )
    return result


def _viewed(part: Part, layout: Layout, sizes: tuple[int, ...], rank: int) -> Array:
    """Return the local matrix as an array whose strides BLAS can use."""
    local = part.local
    expect(local, np.ndarray, "wrap", "the local matrix as a NumPy array")
    if local.dtype.kind not in "fciuV" or not local.dtype.isnative or dtype_name(local.dtype) in ("", "void"):
        raise InputError(f"elements of type {local.dtype} cannot be multiplied; choose {KINDS}")
    rows, cols = local_shape(layout, rank)
    if local.ndim == 1 and len(sizes) == 2:
        local = _unfolded(local, rows, cols, part.order or "F", part.ld)
    elif part.order is not None or part.ld is not None:
        raise InputError(
            "order and ld belong to a flat buffer; an array of two dimensions has its own strides"
        )
    elif local.ndim == 2 and _is_descriptor(part.layout):
        local = local[
            :rows, :cols
        ]  # a local array of a descriptor has LLD_ rows, or more columns than it needs
    wanted = (*sizes[:-2], rows, cols)
    if local.shape != wanted:
        raise LayoutError(
            f"rank {rank} holds {by(wanted)} of {by(sizes)} in {layout}, but its local array is "
            f"{by(local.shape)}; if it is larger, cut it: local[:{rows}, :{cols}]"
        )
    if _order(local) is None:
        if not part.copy:
            raise InputError(
                f"the local matrix of rank {rank} is strided both ways ({local.strides} bytes): BLAS needs "
                "adjacent rows or columns; give numpy.ascontiguousarray(local), or copy=True for an operand "
                "that is only read"
            )
        local = np.ascontiguousarray(local)
    return _plain(local)


def _is_descriptor(layout: Any) -> bool:
    return not isinstance(layout, Layout) and (not isinstance(layout, str) or layout.startswith("scalapack:"))


def _unfolded(flat: Array, rows: int, cols: int, order: str, ld: int | None) -> Array:
    """Return a flat buffer as a matrix."""
    if order not in ("C", "F"):
        raise InputError(f"order {order!r} is neither F, columns adjacent, nor C, rows adjacent")
    lines, length = (cols, rows) if order == "F" else (rows, cols)
    step = max(1, length) if ld is None else ld
    need = step * (lines - 1) + length if lines and length else 0
    if step < length or flat.size < need:
        raise LayoutError(
            f"{flat.size} elements with a leading dimension of {step} does not hold {rows}x{cols} "
            f"in order {order}: it takes {need}, and a leading dimension of at least {max(1, length)}"
        )
    if flat.size > 1 and flat.strides[0] != flat.itemsize:
        raise InputError("the elements of a flat buffer must be adjacent")
    item = flat.itemsize
    strides = (item, step * item) if order == "F" else (step * item, item)
    return as_strided(flat, (rows, cols), strides)


def _order(local: Array) -> str | None:
    """Return C where rows are adjacent, F where columns are, None where neither are."""
    rows, cols = local.shape[-2:]
    item, (down, across) = local.itemsize, local.strides[-2:]
    if not local.flags.aligned:
        return None
    if (cols <= 1 or across == item) and (rows <= 1 or (down >= cols * item and down % item == 0)):
        return "C"
    if (rows <= 1 or down == item) and (cols <= 1 or (across >= rows * item and across % item == 0)):
        return "F"
    return None


def _plain(local: Array) -> Array:
    """Return the same matrix with usual strides also along dimensions of one index."""
    rows, cols = local.shape[-2:]
    item = local.itemsize
    down, across = local.strides[-2:]
    if _order(local) == "C":
        down, across = (down if rows > 1 else max(1, cols) * item), item
    else:
        down, across = item, (across if cols > 1 else max(1, rows) * item)
    return as_strided(local, local.shape, (*local.strides[:-2], down, across))


def checked(facts_of_ranks: Sequence[Fact | str], rank: int) -> list[Fact]:
    """Raise on every rank where the part of one is refused, or ranks give different things."""
    ours = facts_of_ranks[rank]
    if isinstance(ours, Fact) and ours.error:
        raise LayoutError(ours.error)
    facts = list[Fact]()
    for other, fact in enumerate(facts_of_ranks):
        error = fact if isinstance(fact, str) else fact.error
        if error:
            raise LayoutError(f"rank {other} cannot wrap its matrix: {error}")
        assert isinstance(fact, Fact)
        facts.append(fact)
    first = facts[0]
    for other, fact in enumerate(facts):
        for what, same, here, theirs in (
            ("shape", first.shape == fact.shape, by(first.shape), by(fact.shape)),
            ("layout", first.key == fact.key, first.layout, fact.layout),
            ("type", first.type == fact.type, first.type, fact.type),
        ):
            if not same:
                raise LayoutError(
                    f"ranks wrap different matrices: the {what} is {here} on rank 0 and {theirs} on rank "
                    f"{other}; nothing was moved"
                )
    return facts


def by(sizes: Sequence[int]) -> str:
    """Return sizes in words, such as 4x3."""
    return "x".join(map(str, sizes))

"""Short convolutions of a chain over ranks: each owner gets the few tokens before its own, or after them."""

from umm.interval import Interval
from umm.plans.statements.lowering import Context, write
from umm.plans.statements.pieces import add_at_owners, clear, gathered, tiles_of
from umm.program.statements.convolution import Convolution, ConvolutionGrad, Convolved
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


@write.register
def _(statement: Convolution, build: Builder, context: Context) -> None:
    """Write a convolution."""
    one, parameters = statement, statement.parameters({x.name: x for x in build.tensors})
    for tile in tiles_of(build, one.out):
        if one.before:
            cols = Interval(*(x * (one.taps - 1) for x in tile.cols))
            before = gathered(build, one.before, tile.rank, tile.rows, cols, ("conv", one.before, tile.cols))
            x = _around(build, one, one.x, tile, 0)
            build.map(one.fn, tile, x, _weights(build, one, tile), before, taps=one.taps)
        else:
            x = _around(build, one, one.x, tile, one.taps - 1)
            build.map(one.fn, tile, x, _weights(build, one, tile), **parameters)


@write.register
def _(statement: ConvolutionGrad, build: Builder, context: Context) -> None:
    """Write its gradients: by x where it lies, by weights added up over the rows."""
    one, parameters = statement, statement.parameters({x.name: x for x in build.tensors})
    if one.dw in context.written:
        clear(build, one.dw)
    layout = build.layout(one.out)
    for tile in tiles_of(build, one.out):
        later = _around(build, one, one.do, tile, 1 - one.taps)
        build.map("conv_dx", tile, later, _weights(build, one, tile), **parameters)
        cols = Interval(*(x * one.taps for x in tile.cols))
        slot = ("conv", one.dw, tile.rows, tile.cols)
        part = build.temporary(tile.rank, one.dw, Interval(0, 1), cols, slot=slot)
        x, do = _around(build, one, one.x, tile, one.taps - 1), later.cut(tile.rows, tile.cols)
        build.map("conv_dw", part, x, do, seconds=0.0, **parameters)  # the same kernel
        add_at_owners(build, layout, layout.replica(tile.rank), one.dw, part)


def _weights(build: Builder, one: Convolved, tile: Slice) -> Slice:
    """Return the weights of a tile's columns in its rank's memory."""
    cols = Interval(*(x * one.taps for x in tile.cols))
    return gathered(build, one.w, tile.rank, Interval(0, 1), cols, ("conv", one.w, tile.cols))


def _around(build: Builder, one: Convolved, name: str, tile: Slice, before: int) -> Slice:
    """Return the rows of a tile with so many before them, or after them, inside their sequences."""
    # build: where the gets go, if any are needed. name: the tensor. tile: the rows and columns, and the rank
    # that needs them. before: how many rows before; negative for after.
    tokens = build.layout(one.x).shape[0] // one.sequences
    start, stop = tile.rows
    first, last = start // tokens * tokens, -(-stop // tokens) * tokens
    rows = Interval(max(first, start - max(before, 0)), min(last, stop - min(before, 0)))
    return gathered(build, name, tile.rank, rows, tile.cols, ("conv", name, tile.rows, tile.cols))

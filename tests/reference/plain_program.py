"""The result of a schedule of any program: its actions one after another on whole arrays, in float64.

Written from the reference page alone. Every buffer is an array of its own, NaN until it is written, or zero
if it is an owned tile that nothing is given for.
"""

import numpy as np

from umm.interval import Interval
from umm.program.functions import function
from umm.schedules.table.details import ACCUMULATE, GEMM, MAP, REDUCE

EPSILON = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}


def bounded(schedule, operands, roundings=32):
    """Return the outputs, how far rounding may take each element from them, and the largest number met.

    The sizes of all numbers are computed twice, and the second time every write is let grow by some roundings
    of its type. As what is done to them must grow with them, what they have grown by at the end bounds what
    roundings on the way can amount to.
    """
    exact = Played(schedule, operands).results()
    sizes, grown = (Played(schedule, operands, absolute=True, grow=grow) for grow in (0.0, roundings))
    error = {name: x - sizes.results()[name] for name, x in grown.results().items()}
    return exact, error, grown.largest


class Played:
    """The buffers of a schedule after its last action.

    Args:
        schedule: What is computed.
        operands: By name; with a third dimension a slice for each replica.
        absolute: Whether to take the size of every number instead, so that sums bound what they sum.
        grow: What every write is made larger by, in roundings of its type.
    """

    def __init__(self, schedule, operands, absolute=False, grow=0.0):
        self.schedule, self.absolute, self.grow = schedule, absolute, grow
        self.largest = 0.0
        self.arrays = []
        for tensor in schedule.tensors:
            complete = np.zeros(tensor.shape)
            if tensor.is_input:
                complete = np.asarray(operands[tensor.name], dtype=np.float64)
            replicas = np.broadcast_to(complete, (tensor.layout.replicas, *tensor.shape))
            for replica, i, j in np.ndindex(tensor.layout.replicas, *tensor.layout.grid_shape()):
                rows, cols = tensor.layout.tile_bounds((i, j))
                self.arrays.append(self.sized(replicas[replica, rows.slice, cols.slice].copy()))
        buffers = schedule.buffers
        shapes = np.stack([np.diff(x)[:, 0] for x in (buffers.rows, buffers.cols)], axis=1)
        self.arrays += [np.full(shape, np.nan) for shape in shapes[len(self.arrays) :]]
        for row, kind in enumerate(schedule.kind.tolist()):
            self.perform(row, kind)

    def sized(self, x):
        return np.abs(x) if self.absolute else x

    def view(self, row, operand):
        """The slice of an operand, without copying."""
        d, buffers = self.schedule.details, self.schedule.buffers
        number = d.buffer[row, operand]
        spans = []
        for span, full in ((d.rows, buffers.rows), (d.cols, buffers.cols)):
            start, stop = span[row, operand] - full[number, 0]
            spans.append(slice(start, stop))
        return self.arrays[number][tuple(spans)]

    def perform(self, row, kind):
        d = self.schedule.details
        operands = [self.view(row, x) for x in range(d.operands) if d.buffer[row, x] >= 0]
        if not operands:
            return
        target, reads = operands[0], operands[1:]
        if kind == GEMM:
            result = self.product(row, target, *reads)
        elif kind == MAP:
            result = self.mapped(row, reads)
        else:
            result = target + reads[0] if kind in (ACCUMULATE, REDUCE) else reads[0]
        dtype = self.schedule.tensors[self.schedule.buffers.tensor[d.buffer[row, 0]]].dtype
        target[...] = result * (1 + self.grow * EPSILON[dtype])
        self.largest = max(self.largest, np.abs(target).max())

    def product(self, row, c, a, b):
        d = self.schedule.details
        alpha, beta = (float(self.sized(x[row])) for x in (d.alpha, d.beta))
        result = beta * c if beta else np.zeros_like(c)
        for member in range(d.batch[row]):
            parts = []
            for x, axis, group in zip((result, a, b), d.batch_axes[row], d.groups[row], strict=True):
                parts.append(np.split(x, d.batch[row] // group, axis)[member // group])
            into, left, right = parts
            left, right = left.T if d.trans[row] & 2 else left, right.T if d.trans[row] & 4 else right
            into += alpha * (left @ right)
        return result

    def mapped(self, row, reads):
        """A function by its own form; sizes of numbers by the sizes of its factors."""
        d, made = self.schedule.details, self.schedule.functions[self.schedule.details.fn[row]]
        known = function(made.name)
        spans = {}
        pieces = []
        for x, letters in enumerate(known.operands):
            spans |= {letters[0]: tuple(d.rows[row, x]), letters[1]: tuple(d.cols[row, x])}
            pieces.append((Interval(*d.rows[row, x].tolist()), Interval(*d.cols[row, x].tolist())))
        tensors = self.schedule.buffers.tensor[d.buffer[row, : len(known.operands)]]
        shape = known.whole([self.schedule.tensors[x].shape for x in tensors])
        parameters = {
            name: abs(value) if self.absolute and not known.parameters[name].whole else value
            for name, value in made.parameters.items()
        }
        rows, cols = spans.get("r", (0, 1)), spans.get("c", (0, 1))
        return known(*reads, rows=rows, cols=cols, shape=shape, spans=pieces, **parameters)

    def results(self):
        """Each output by name, its replicas stacked."""
        result, first = {}, 0
        for tensor in self.schedule.tensors:
            layout, full = tensor.layout, np.zeros((tensor.layout.replicas, *tensor.shape))
            for replica, i, j in np.ndindex(layout.replicas, *layout.grid_shape()):
                rows, cols = layout.tile_bounds((i, j))
                full[replica, rows.slice, cols.slice] = self.arrays[first]
                first += 1
            if tensor.is_output:
                result[tensor.name] = full
        return result

"""Random programs written with the Builder: any actions on any slices that are legal one after another."""

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import strategies as st
from readable import MACHINE

from umm.chains import Chain
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.schedules.builder import Builder
from umm.tensors import Tensor

SIGNALLING = replace(MACHINE, signal_s=1e-6)
RANKS = 3
SIZE = 6
# X and W are given, Y and Z are zero before the run. Pieces are few, so that they meet often.
TENSORS = tuple(
    Tensor(name, Layout.parse(layout, (SIZE, SIZE), RANKS), "float64", role)
    for name, layout, role in (
        ("X", "row", "input"),
        ("W", "row@3", "input"),
        ("Y", "cyclic:2x3:3x1", "work"),
        ("Z", "col@3", "work"),
    )
)
KINDS = ("get", "put", "broadcast", "accumulate", "reduce", "gemm", "map", "map in place", "temporary")


class Program:
    """A Builder, and what its temporaries hold in row order."""

    def __init__(self, seed, signal=False, barriers=True, careless=False):
        self.random = Random(seed)
        self.careless = careless  # whether it reads of temporaries what may not be there
        self.build = Builder("random", Chain("random", TENSORS, (), RANKS), SIGNALLING if signal else MACHINE)
        self.kinds = KINDS * 3 + (("barrier", "wait") if barriers else ())
        self.slots = {}  # (rank, key): the temporary that a slot holds, and which of its elements are there
        self.tiles = [
            self.build.tile(tensor.name, i, j, replica)
            for tensor in TENSORS
            for replica in range(tensor.layout.replicas)
            for i, j in np.ndindex(*tensor.layout.grid_shape())
        ]

    def step(self):
        """Write one action, or try to."""
        kind = self.random.choice(self.kinds)
        if kind == "barrier":
            return self.build.barrier()
        if kind == "wait":
            return self.build.wait(self.random.randrange(RANKS), 1e-6)
        if kind == "temporary":
            return self.temporary()
        if kind in ("accumulate", "reduce", "map in place"):
            into = self.readable(written=True)
        else:
            into = self.writable()
        if kind == "map in place":
            self.build.map("scale", into, into, factor=0.5)
        elif kind == "map":
            source = self.readable(into.rank)
            into, source = into.cut(source.rows, source.cols), source.cut(into.rows, into.cols)
            self.apart([into, source], lambda x, y: self.build.map("scale", x, y, factor=2.0))
        elif kind == "gemm":
            self.gemm(into)
        else:
            self.apart([into, self.readable()], lambda x, y: getattr(self.build, kind)(y, x))
        return None

    def temporary(self):
        """Fill a slot anew, with all of a temporary or a part, and from whatever fits."""
        rank, key = self.random.randrange(RANKS), self.random.randrange(2)
        rows, cols = self.span(Interval(0, SIZE)), self.span(Interval(0, SIZE))
        piece = self.build.temporary(rank, self.random.choice("XYZ"), rows, cols, slot=key)
        self.slots[rank, key] = piece, np.zeros((SIZE, SIZE), dtype=bool)
        self.apart([self.part(piece), self.readable()], lambda x, y: self.build.get(y, x))

    def gemm(self, into):
        a, b = self.readable(into.rank), self.readable(into.rank)
        m, n = min(into.rows.size, a.rows.size), min(into.cols.size, b.cols.size)
        k = min(a.cols.size, b.rows.size)
        c, a, b = shrunk(into, m, n), shrunk(a, m, k), shrunk(b, k, n)
        if any(self.met(c, x) for x in (a, b)) or not self.there(a) or not self.there(b):
            return
        self.build.gemm(c, a, b, beta=1.0 if self.there(c) and self.random.random() < 0.6 else 0.0)
        self.mark(c)

    def apart(self, pieces, write):
        """Shrink two pieces to one shape; write if they lie apart and what is read is there."""
        shape = [min(sizes) for sizes in zip(*(piece.shape for piece in pieces), strict=True)]
        into, source = (shrunk(piece, *shape) for piece in pieces)
        if into.tensor == source.tensor:
            into, source = into.cut(source.rows, source.cols), source.cut(into.rows, into.cols)
        if into.elements and not self.met(into, source) and self.there(source):
            write(into, source)
            self.mark(into)

    def span(self, whole):
        start, stop = sorted(self.random.sample(range(whole.start, whole.stop + 1), 2))
        return whole if self.random.random() < 0.5 else Interval(start, stop)

    def part(self, piece):
        return piece._replace(rows=self.span(piece.rows), cols=self.span(piece.cols))

    def writable(self):
        """Part of a tile that is not an input's, or of a temporary."""
        return self.part(self.choice([x for x in self.tiles if x.tensor > 1], lambda piece: True))

    def readable(self, rank=None, written=False):
        """Part of a tile or of a temporary that holds something."""
        tiles = [x for x in self.tiles if (rank in (None, x.rank)) and (x.tensor > 1 or not written)]
        for _ in range(4):
            piece = self.part(self.choice(tiles, lambda piece: rank in (None, piece.rank)))
            if self.there(piece):
                return piece
        return self.part(self.random.choice(tiles))

    def choice(self, tiles, fits):
        held = [piece for piece, _ in self.slots.values() if fits(piece)]
        return self.random.choice(held if held and self.random.random() < 0.6 else tiles)

    def held(self, piece):
        """What is there of a temporary, None for a tile."""
        return next((there for x, there in self.slots.values() if x.buffer == piece.buffer), None)

    def there(self, piece):
        held = self.held(piece)
        return self.careless or held is None or bool(held[piece.rows.slice, piece.cols.slice].all())

    def mark(self, piece):
        held = self.held(piece)
        if held is not None:
            held[piece.rows.slice, piece.cols.slice] = True

    def met(self, x, y):
        return x.buffer == y.buffer and x.cut(y.rows, y.cols).elements > 0


def shrunk(piece, rows, cols):
    """The upper left corner of a slice."""
    (top, _), (left, _) = piece.rows, piece.cols
    return piece._replace(rows=Interval(top, top + rows), cols=Interval(left, left + cols))


@st.composite
def builder_programs(draw, most=40, **options):
    """The schedule of a random program."""
    program = Program(draw(st.integers(0, 2**32)), **options)
    for _ in range(draw(st.integers(1, most))):
        program.step()
    return program.build.schedule()

"""Random programs written with the Builder: whatever a schedule can say, on small tensors.

Several tensors of several types, one of them transposed or cut into members here and there; temporaries that
are filled in pieces and share pool slots; every kind of action, every function, means, waits and barriers.
What a program reads is always there, so every program runs; what it computes means nothing.
"""

from dataclasses import replace
from random import Random

import numpy as np
from function_reads import PLAIN
from hypothesis import strategies as st
from readable import MACHINE

from umm.errors import ProblemError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines.curves import Means
from umm.program import Chain, Map, Multiply
from umm.program.functions import FUNCTIONS
from umm.program.problem import Problem
from umm.program.tensors import Tensor
from umm.schedules.writer.builder import Builder

ROUND = replace(
    MACHINE,
    ranks_per_device=2,
    interference={"get": 0.125, "accumulate": 0.5, "reduce": 0.25},
    means={"copy_engine": Means(0.0), "kernel": Means(0.25, efficiency=0.5, overhead_s=32e-9)},
)
SIGNALLING = replace(ROUND, signal_s=16e-9)
KINDS = (
    *("get", "put", "broadcast", "accumulate", "reduce") * 2,
    *("gemm", "map") * 5,
    *("wait", "barrier"),
)


def program(
    seed, actions, signals=False, functions=tuple(PLAIN), half="float16", fences=True, comparable=False
):
    """The schedule of a random program.

    Args:
        seed: What it depends on; one more action leaves those before as they are.
        actions: How many actions are tried; some bring what they read with further ones, some fail.
        signals: Whether seeing another rank's signal takes time.
        functions: Names that its maps choose from.
        half: Type of the tensor that is neither float32 nor float64.
        fences: Whether actions wait for more than follows from their slices: barriers, waits, ``after``.
        comparable: Whether work tensors are given and results too, and gemms are of one type, as GPUs want.
    """
    machine = SIGNALLING if signals else ROUND
    writer = Writer(Random(seed), machine, functions, half, fences, comparable)
    for _ in range(actions):
        writer.step()
    return writer.build.schedule()


def programs(most=24, signals=(False, True), **options):
    """Schedules of random programs, as a strategy."""
    drawn = st.integers(0, 2**32), st.integers(1, most), st.sampled_from(signals)
    return st.builds(lambda *given: program(*given, **options), *drawn)


class Writer:
    """A Builder, and the content of its temporaries."""

    def __init__(self, random, machine, functions, half, fences, comparable):
        self.random, self.functions = random, functions
        self.fences, self.comparable = fences, comparable
        self.ranks = ranks = random.randint(1, 6)
        self.m, self.n, self.k = (random.choice((2, 4, 6, 7)) for _ in "mnk")
        if random.random() < 0.5:
            texts = {x: self.layout() for x in "abc"}
            carried_out = Problem(m=self.m, n=self.n, k=self.k, ranks=ranks, **texts)
        else:
            carried_out = self.chain()
        role = "both" if comparable else "work"
        work = [
            self.tensor("P", self.n, self.k, role, random.choice(("float32", "float64"))),
            self.tensor("Q", self.m, self.n, role, "float64"),
            self.tensor("half", self.m, self.n, role, half),
            self.tensor("column", self.m, 1, role),
            self.tensor("line", 1, self.n, role),
        ]
        self.build = Builder("random", carried_out, machine, work, options={"seed": 1})
        self.held = {}  # rank and slot: the temporary that is in it, and which of its elements are there
        self.tensors = {tensor.name: tensor for tensor in self.build.tensors}
        self.rows = []

    # What it works on -----------------------------------------------------------------------------

    def chain(self):
        tensors = (
            self.tensor("X", self.m, self.k, "input"),
            self.tensor("W", self.n, self.k, "input"),
            self.tensor("H", self.m, self.n),
            self.tensor("Y", self.m, self.n, "output"),
            self.tensor("Z", self.m, self.n, "both"),
        )
        statements = (
            Multiply("H", "X", "W", trans=("b",), alpha=0.5),
            Map("Y", "gelu", ("H",)),
            Map("Z", "scale", ("Z",), {"factor": 2.0}),
        )
        return Chain("block", tensors, statements, self.ranks)

    def tensor(self, name, rows, cols, role="work", dtype="float32"):
        return Tensor(name, Layout.parse(self.layout(), (rows, cols), self.ranks), dtype, role)

    def layout(self):
        replicas = self.random.choice([c for c in range(1, self.ranks + 1) if self.ranks % c == 0])
        places = self.ranks // replicas
        rows = self.random.choice([d for d in range(1, places + 1) if places % d == 0])
        grid, tile = f"{rows}x{places // rows}", f"{self.random.randint(1, 4)}x{self.random.randint(1, 4)}"
        kind = self.random.choice(("row", "col", f"2d:{grid}", "row:balanced", f"cyclic:{tile}:{grid}"))
        return f"{kind}@{replicas}" + self.random.choice(("", ":interleaved"))

    # Actions --------------------------------------------------------------------------------------

    def step(self):
        """Write one action and its prerequisites, or try to."""
        kind = self.random.choice(KINDS if self.fences else KINDS[:-2])
        rank, self.used = self.random.randrange(self.ranks), set()
        if kind == "barrier":
            self.rows.append(self.build.barrier())
        elif kind == "wait":
            self.rows.append(self.build.wait(rank, 64e-9, after=self.earlier()))
        elif kind == "gemm":
            self.gemm(rank)
        elif kind == "map":
            self.map(rank)
        else:
            self.transfer(kind, rank)

    def transfer(self, kind, rank):
        """Copy or add any piece, to where the same piece lies or to another tensor of its type."""
        x = self.random.choice(list(self.tensors.values()))
        source = self.piece(
            self.random.randrange(self.ranks), x, self.span(x.shape[0]), self.span(x.shape[1])
        )
        alike = [y for y in self.tensors.values() if y.dtype == x.dtype]
        y = self.random.choice([x, x, *alike])
        rows, cols = source.rows, source.cols
        if y is not x:
            rows, cols = (
                self.span(extent, min(extent, size))
                for extent, size in zip(y.shape, source.shape, strict=True)
            )
            source = shrunk(source, rows.size, cols.size)
        into = (self.piece if kind in ("accumulate", "reduce") else self.room)(rank, y, rows, cols)
        if self.may_write(into) and into.buffer != source.buffer:
            self.rows.append(getattr(self.build, kind)(source, into, **self.how()))
            self.mark(into)

    def gemm(self, rank):
        """Multiply pieces, member by member, stored either way."""
        tensors = [x for x in self.tensors.values() if x.dtype != self.tensors["half"].dtype]
        a = self.random.choice(tensors)
        b = self.random.choice([x for x in tensors if x.dtype == a.dtype])
        of_c = [x for x in tensors if x.role != "input"]
        c = self.random.choice([x for x in of_c if x.dtype == a.dtype] if self.comparable else of_c)
        trans = [x for x in "ab" if self.random.random() < 0.4]
        letters = "mn", "km" if "a" in trans else "mk", "nk" if "b" in trans else "kn"
        batch = self.random.choice((1, 1, 2, 4))
        groups = tuple(self.random.choice([g for g in (1, 2, 4) if batch % g == 0]) for _ in "cab")
        axes = tuple(self.random.randrange(2) for _ in "cab") if batch > 1 else (0, 0, 0)
        members = [[1, 1] for _ in "cab"]
        for shape, axis, group in zip(members, axes, groups, strict=True):
            shape[axis] = batch // group
        each = list(zip((c, a, b), letters, members, strict=True))
        most = dict.fromkeys("mnk", 4)
        for x, of_x, counts in each:
            for letter, size, count in zip(of_x, x.shape, counts, strict=True):
                most[letter] = min(most[letter], size // count)
        if not all(most.values()):
            return
        size = {letter: self.random.randint(1, limit) for letter, limit in most.items()}
        (c_rows, c_cols), *read = (
            [self.span(y, size[z] * count) for y, z, count in zip(x.shape, of_x, counts, strict=True)]
            for x, of_x, counts in each
        )
        reads = [self.piece(rank, x, *ranges) for x, ranges in zip((a, b), read, strict=True)]
        beta = self.random.choice((0.0, 1.0, 1.0, -0.5))
        into = (self.piece if beta else self.room)(rank, c, c_rows, c_cols)
        if self.may_write(into) and not any(meet(into, x) for x in reads):
            alpha = self.random.choice((1.0, 1.0, 0.25))
            how = {"batch_axes": axes, "groups": groups, "after": self.earlier()}
            self.rows.append(self.build.gemm(into, *reads, beta, trans, alpha, batch, **how))
            self.mark(into)

    def map(self, rank):
        """Apply a function to pieces of tensors whose shapes it takes, in place here and there."""
        fn = FUNCTIONS[self.random.choice(self.functions)]
        full = {"r": self.m, "c": self.n, "1": 1}
        parameters = {
            name: max(x.least, 0) + (x.multiple if x.whole else 0.25)
            if self.random.random() < 0.6
            else x.default
            for name, x in fn.parameters.items()
        }
        parameters = {name: value for name, value in parameters.items() if value is not None}
        try:
            fn.checked(parameters, (self.m, self.n))
        except ProblemError:  # a parameter that must be given, or heads that do not divide the columns
            return
        unit = fn.unit(parameters)
        cols = Interval(0, self.n) if not unit else self.span(self.n)
        if unit > 1:
            cols = Interval(cols.start // unit * unit, min(-(-cols.stop // unit) * unit, self.n))
        ranges = fn.ranges(self.span(self.m), cols)
        tensors = [
            self.random.choice(
                [x for x in self.tensors.values() if x.shape == tuple(full[y] for y in letters)]
            )
            for letters in fn.operands
        ]
        reads = [self.piece(rank, x, *ranged) for x, ranged in zip(tensors[1:], ranges[1:], strict=True)]
        if reads and fn.operands[0] == fn.operands[1] and self.random.random() < 0.3:
            into = reads[0]
        else:
            into = self.room(rank, tensors[0], *ranges[0])
        if self.may_write(into) and not any(meet(into, x) and into != x for x in reads):
            row = self.build.map(fn.name, into, *reads, after=self.earlier(), **parameters)
            self.rows.append(row)
            self.mark(into)

    # Pieces ---------------------------------------------------------------------------------------

    def span(self, full, size=None):
        """A range of some size of a whole; of any if it is not said."""
        size = self.random.randint(1, full) if size is None else size
        start = self.random.randint(0, full - size)
        return Interval(start, start + size)

    def piece(self, rank, tensor, rows, cols):
        """A piece of a tensor at a rank, all of it there: its own tile's, or a temporary's."""
        choices = [
            (key, temporary)
            for key, (temporary, filled) in self.held.items()
            if temporary.tensor == self.number(tensor) and covers(temporary, rank, rows, cols)
            if filled[rows.slice, cols.slice].all()
        ]
        tile = self.own(rank, tensor, rows, cols)
        if tile is not None and (not choices or self.random.random() < 0.5):
            return tile
        if choices:
            key, temporary = self.random.choice(choices)
            self.used.add(key)
            return temporary.cut(rows, cols)
        into = self.temporary(rank, tensor, rows, cols)
        self.fill(into, tensor)
        return into

    def room(self, rank, tensor, rows, cols):
        """Where a piece of a tensor may be written at a rank."""
        tile = self.own(rank, tensor, rows, cols)
        if tile is not None and tensor.role != "input" and self.random.random() < 0.6:
            return tile
        return self.temporary(rank, tensor, rows, cols)

    def own(self, rank, tensor, rows, cols):
        replica = tensor.layout.replica(rank)
        for i, j in tensor.layout.tiles_of(rank):
            tile = self.build.tile(tensor.name, i, j, replica)
            if covers(tile, rank, rows, cols):
                return tile.cut(rows, cols)
        return None

    def temporary(self, rank, tensor, rows, cols):
        """A part of a new temporary, in a slot that this action does not use yet."""
        key = self.random.choice([slot for slot in range(8) if (rank, slot) not in self.used][:4])
        more = [
            Interval(self.random.randint(0, x.start), self.random.randint(x.stop, size))
            if self.random.random() < 0.3
            else x
            for x, size in zip((rows, cols), tensor.shape, strict=True)
        ]
        buffer = self.build.temporary(rank, tensor.name, *more, slot=key)
        self.used.add((rank, key))
        self.held[rank, key] = buffer, np.zeros(tensor.shape, dtype=bool)
        return buffer.cut(rows, cols)

    def fill(self, into, tensor):
        """Move the piece's content there, in pieces: each from a tile of any replica, or as zeros."""
        if self.random.random() < 0.1:
            self.build.map("zero", into)
        else:
            for i, j in np.ndindex(*tensor.layout.grid_shape()):
                replica = self.random.randrange(tensor.layout.replicas)
                source = self.build.tile(tensor.name, i, j, replica).cut(into.rows, into.cols)
                move = self.random.choice((self.build.get, self.build.put))
                parts = self.random.choice((1, 1, 2))
                for number in range(parts):
                    part = source.part(number, parts)
                    move(part, into.cut(part.rows, part.cols), **self.how())
        self.mark(into)

    def may_write(self, piece):
        permanent = piece.buffer not in [temporary.buffer for temporary, _ in self.held.values()]
        return not permanent or self.build.tensors[piece.tensor].role != "input"

    def mark(self, piece):
        """Note that a piece is there; an owned tile always is."""
        for temporary, filled in self.held.values():
            if temporary.buffer == piece.buffer:
                filled[piece.rows.slice, piece.cols.slice] = True

    def number(self, tensor):
        return self.build.tensors.index(tensor)

    def how(self):
        """A lane, a means and an action to wait for, or the usual ones."""
        result = {"after": self.earlier()}
        if self.random.random() < 0.2:
            result["lane"] = self.random.choice(("compute", "side"))
        if self.random.random() < 0.3:
            result["means"] = self.random.choice(("copy_engine", "kernel"))
        return result

    def earlier(self):
        more = self.fences and self.rows and self.random.random() < 0.2
        return [self.random.choice(self.rows)] if more else []


def covers(piece, rank, rows, cols):
    return piece.rank == rank and piece.rows.intersect(rows) == rows and piece.cols.intersect(cols) == cols


def meet(x, y):
    return x.buffer == y.buffer and x.cut(y.rows, y.cols).elements > 0


def shrunk(piece, rows, cols):
    """The upper left corner of a slice."""
    (top, _), (left, _) = piece.rows, piece.cols
    return piece._replace(rows=Interval(top, top + rows), cols=Interval(left, left + cols))

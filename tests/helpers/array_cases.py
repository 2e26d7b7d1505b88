"""Random multiplies of matrices that ranks hold already, each compared with NumPy; run by mpiexec.

``mpiexec -n 4 python array_cases.py COUNT SEED`` prints how many were right, or the first that was not.
"""

import sys

import numpy as np

import umm
from umm_hw.bfloat16 import numpy_bfloat16

DTYPES = ["float64", "float32", "float16", "bfloat16", "complex128", "complex64", "int64", "int32"]
EPSILON = {
    "float64": 1e-12,
    "complex128": 1e-12,
    "float32": 1e-4,
    "complex64": 1e-4,
    "float16": 2e-2,
    "bfloat16": 5e-2,
}


def indices(layout, rank):
    """The rows and the columns that a rank holds, from the tiles it owns."""
    rows, cols = set(), set()
    for tile in layout.tiles_of(rank):
        down, across = layout.tile_bounds(tile)
        if down.size and across.size:
            rows.update(range(*down))
            cols.update(range(*across))
    if rows and cols:
        return sorted(rows), sorted(cols)
    # Of a rank without an element one side may still be long: take what its place would hold.
    grid = layout.process_grid
    _, row, col = (int(x[rank]) for x in layout.place_of_rank)
    sides = []
    for edges, place, count in zip((layout.row_edges, layout.col_edges), (row, col), grid, strict=True):
        spans = [range(edges[i], edges[i + 1]) for i in range(place, len(edges) - 1, count)]
        sides.append([i for span in spans for i in span])
    return sides[0], sides[1]


def dtype_of(name):
    return numpy_bfloat16() if name == "bfloat16" else np.dtype(name)


def random_layout(rng, shape, ranks):
    """A text of a layout: blocks, cyclic, irregular, replicated, of frameworks."""
    divisors = [x for x in range(1, ranks + 1) if ranks % x == 0]
    copies = int(rng.choice(divisors)) if rng.random() < 0.3 else 1
    places = ranks // copies
    rows = int(rng.choice([x for x in divisors if places % x == 0]))
    grid = f"{rows}x{places // rows}"
    tile = "x".join(str(int(rng.choice([1, 2, 3, 5, 8, 32]))) for _ in range(2))
    kind = rng.choice(["row", "col", "2d", "cyclic", "edges", "balanced", "scalapack"])
    if kind == "scalapack":
        grid = f"{rows}x{ranks // rows}" if ranks % rows == 0 else f"1x{ranks}"
        source = rng.integers(0, int(grid.split("x")[0])), rng.integers(0, int(grid.split("x")[1]))
        desc = [1, 0, *shape, *tile.split("x"), *source, shape[0]]
        return f"scalapack:desc={','.join(map(str, desc))};grid={grid};order={rng.choice(['R', 'C'])}"
    if kind == "edges":
        cuts = [np.sort(rng.integers(0, n + 1, int(rng.integers(0, 6)))).tolist() for n in shape]
        text = "x".join("-".join(map(str, (0, *c, n))) for c, n in zip(cuts, shape, strict=True))
        text = f"edges:{text}:{grid}"
    else:
        text = {"2d": f"2d:{grid}", "cyclic": f"cyclic:{tile}:{grid}", "balanced": "row:balanced"}.get(
            kind, kind
        )
    return text + (f"@{copies}{rng.choice(['', ':interleaved'])}" if copies > 1 else "")


def random_matrix(rng, shape, dtype):
    if dtype.kind in "iu":
        return rng.integers(-9, 10, shape).astype(dtype)
    full = rng.standard_normal(shape)
    return (full + 1j * rng.standard_normal(shape) if dtype.kind == "c" else full).astype(dtype)


class Held:
    """A matrix in memory of the ranks: a flat buffer with gaps that nobody may write to."""

    def __init__(self, comm, rng, text, complete):
        self.whole = complete
        self.layout = umm.Layout.parse(text, complete.shape, comm.size)
        self.rows, self.cols = indices(self.layout, comm.rank)
        random = np.random.default_rng(int(rng.integers(2**31)) + comm.rank)  # ranks store as each likes
        self.order = str(random.choice(["C", "F"]))
        length = len(self.rows) if self.order == "F" else len(self.cols)
        self.ld = max(1, length) + int(random.integers(0, 4))
        lines = len(self.cols) if self.order == "F" else len(self.rows)
        self.flat = np.full(self.ld * lines + 3, 7, complete.dtype)
        self.view(self.flat)[...] = self.of(complete)
        self.before = self.flat.copy()
        self.matrix = umm.DistributedMatrix.wrap(
            comm, text, complete.shape, self.flat, order=self.order, ld=self.ld
        )

    def of(self, full):
        return full[np.ix_(self.rows, self.cols)]

    def view(self, flat):
        lines, length = (len(self.rows), len(self.cols))
        if self.order == "F":
            lines, length = length, lines
        part = flat[: self.ld * lines].reshape(lines, self.ld)[:, :length]
        return part.T if self.order == "F" else part

    def untouched(self):
        return self.flat.tobytes() == self.before.tobytes()


def window(rng, size):
    """A place for so many indices in a matrix that may be larger."""
    before, after = (int(rng.integers(0, 7)) if rng.random() < 0.3 else 0 for _ in range(2))
    return slice(before, before + size), before + size + after


def run(comm, rng):
    """Multiply one random case; return None, or the fault on this rank."""
    name = str(rng.choice(DTYPES, p=[0.4, 0.2, 0.08, 0.06, 0.1, 0.04, 0.08, 0.04]))
    dtype = dtype_of(name)
    out = np.dtype("float32") if name in ("float16", "bfloat16") and rng.random() < 0.6 else dtype
    m, n, k = (
        int(rng.choice([0, 1, 2, 7, 31, 64, 113], p=[0.03, 0.1, 0.1, 0.2, 0.2, 0.2, 0.17])) for _ in "mnk"
    )
    ops = [str(rng.choice(["N", "T", "C"], p=[0.5, 0.35, 0.15])) for _ in "ab"]
    shapes = [(m, k) if ops[0] == "N" else (k, m), (k, n) if ops[1] == "N" else (n, k), (m, n)]
    operands, windows = [], []
    for shape, kind in zip(shapes, (dtype, dtype, out), strict=True):
        cuts = [window(rng, size) for size in shape]
        # A descriptor has no empty matrices, and other forms no edges below 0.
        full = tuple(max(1, size) for _, size in cuts)
        windows.append(tuple(cut for cut, _ in cuts))
        operands.append(Held(comm, rng, random_layout(rng, full, comm.size), random_matrix(rng, full, kind)))
    factors = [0, 1, 2, -1] if dtype.kind in "iu" else [0, 1, 2.0, -0.5]
    alpha, beta = (rng.choice(factors).item() for _ in range(2))
    if dtype.kind == "c" and rng.random() < 0.5:
        alpha = 0.5 - 2j
    a, b, c = (x.matrix[cut] for x, cut in zip(operands, windows, strict=True))
    memory = None if rng.random() < 0.7 else 1 << 22
    umm.multiply(a, b, out=c, alpha=alpha, beta=beta, trans_a=ops[0], trans_b=ops[1], memory=memory)
    wide = np.complex128 if dtype.kind == "c" else np.int64 if dtype.kind in "iu" else np.float64
    left, right = (
        turned(x.whole[cut].astype(wide), op) for x, cut, op in zip(operands, windows, ops, strict=False)
    )
    want = operands[2].whole.astype(wide)
    want[windows[2]] = alpha * (left @ right) + (beta * want[windows[2]] if beta else 0)
    near = np.zeros(operands[2].whole.shape, bool)
    near[windows[2]] = True
    got, wanted, inside = operands[2].view(operands[2].flat), operands[2].of(want), operands[2].of(near)
    scale = EPSILON.get(name, 0) * (1 + abs(alpha)) * max(1, k) ** 0.5 * 4
    wrong = None
    if not (operands[0].untouched() and operands[1].untouched()):
        wrong = "A or B was written to"
    elif not (np.abs(got.astype(wide) - wanted)[inside] <= scale).all():
        wrong = f"C is off by {np.abs(got.astype(wide) - wanted).max()}"
    else:
        kept = operands[2].before.copy()
        operands[2].view(kept)[inside] = got[inside]
        if kept.tobytes() != operands[2].flat.tobytes():
            wrong = "C was written to outside its window"
    layouts = ", ".join(str(x.layout) for x in operands)
    case = f"{name} {m}x{n}x{k} {ops} {alpha} {beta} {layouts} {windows}"
    return None if wrong is None else f"rank {comm.rank}: {wrong}: {case}"


def turned(x, op):
    return x if op == "N" else x.T if op == "T" else x.conj().T


def main():
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        wrong = comm.allgather(run(comm, np.random.default_rng([seed, number])))
        if any(wrong):
            if comm.rank == 0:
                print(f"case {number} of seed {seed}:", *filter(None, wrong), sep="\n")
            sys.exit(1)
    if comm.rank == 0:
        print(f"{count} of {count} right on {comm.size} ranks")


if __name__ == "__main__":
    main()

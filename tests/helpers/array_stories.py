"""Stories of matrices that ranks hold already, one after another on four ranks; run by mpiexec.

Rank 0 prints a JSON object: for each story what came out, or the error that every rank has raised.
"""

import itertools
import json
import sys
import tracemalloc

import numpy as np
from array_cases import Held, run
from mpi4py import MPI

import umm

comm = MPI.COMM_WORLD
rng = np.random.default_rng(7)
N = 96
F, G = rng.standard_normal((2, N, N))


def held(text, full):
    return Held(comm, np.random.default_rng(1), text, full)


def local(text, full):
    """This rank's part as a plain array of rows."""
    return np.ascontiguousarray(held(text, full).of(full))


def wrapped(text, full, **how):
    return umm.DistributedMatrix.wrap(comm, text, full.shape, local(text, full), **how)


def everywhere(ok):
    return bool(comm.allreduce(int(ok)) == comm.size)


def in_a_layout():
    """The product in new memory, in a layout that is asked for."""
    c = umm.multiply(wrapped("row", F), wrapped("cyclic:8x8:2x2", G), "2d", alpha=2)
    return str(c.layout), everywhere(np.allclose(c.gather(), 2 * F @ G))


def redistributed():
    a = wrapped("row", F)
    b = umm.redistribute(a, "cyclic:5x7:2x2")
    c = umm.redistribute(b[10:40, 3:90], "col@2")
    return everywhere((b.gather() == F).all() and (c.gather() == F[10:40, 3:90]).all())


def batched():
    full = rng.standard_normal((3, 24, 24))
    parts = np.stack([local("2d", x) for x in full])
    a = umm.DistributedMatrix.wrap(comm, "2d", full.shape, parts)
    c = umm.multiply(a, a, "row")
    return c.batch, everywhere(np.allclose(c.gather(), full @ full))


def in_flight():
    a, b = wrapped("row", F), wrapped("col", G)
    cs = [wrapped("2d", np.zeros((N, N))) for _ in range(3)]
    plan = umm.plan(a, b, cs[0])
    first = plan.start(a, b, cs[0])
    plan.start(a, b, cs[1], alpha=3)
    plan.multiply(a, b, cs[2])
    plan.wait()
    right = [np.allclose(c.gather(), f * F @ G) for c, f in zip(cs, (1, 3, 1), strict=True)]
    return everywhere(all(right) and first.done and first.wait() is cs[0])


def planned():
    """Peak of NumPy's memory and of shared memory, in bytes, beside the plan's."""
    n = 1024
    a, b, c = (wrapped(text, np.ones((n, n))) for text in ("row", "cyclic:32x32:2x2", "col"))
    plan = umm.plan(a, b, c, machine="h100-8", memory="6MiB")
    plan.multiply(a, b, c)
    shared = plan.product.published_bytes(comm.rank)
    again = umm.plan(a, b, c, machine="h100-8", memory="6MiB", way="stationary C")
    tracemalloc.start()
    again.multiply(a, b, c)
    taken = tracemalloc.get_traced_memory()[1] + again.product.published_bytes(comm.rank)
    tracemalloc.stop()
    assert plan.predicted_s > 0
    assert plan.measured_s > 0
    assert shared <= plan.memory_bytes <= plan.most_memory_bytes <= 6 << 20
    return comm.allgather((taken, again.memory_bytes)), again.steps > 1


def on_half():
    """Two halves of the ranks multiply apart, each on a communicator of its own."""
    half = comm.Split(comm.rank // 2)
    factor = 1 + comm.rank // 2
    part = np.ascontiguousarray(F[48 * half.rank : 48 * (half.rank + 1)])
    a = umm.DistributedMatrix.wrap(half, "row", F.shape, part)
    c = umm.multiply(a, a, "row", alpha=factor)
    return everywhere(np.allclose(c.local, factor * (F @ F)[48 * half.rank : 48 * (half.rank + 1)]))


def pblas_cases():
    """The cases of PDBLAS3TST.dat, on grids of 2x2, 1x4 and 4x1 of its own."""
    done = 0
    rows = zip(
        "NNNNTTTT", "NNTTNNTT", (22, 30, 8, 20, 3, 5, 11, 8), (23, 29, 7, 21, 3, 14, 11, 8),
        (24, 28, 9, 22, 3, 9, 11, 8), (4, 5, 6, 3, 2, 1, 4, 5), (5, 1, 7, 7, 1, 12, 1, 11), strict=True,
    )  # fmt: skip
    for grid, (transa, transb, m, n, k, nb, at) in itertools.product([(2, 2), (1, 4), (4, 1)], [*rows]):
        matrices = [rng.standard_normal((size, size)) for size in (31, 32, 35)]
        parts = [held(f"cyclic:{nb}x{nb}:{grid[0]}x{grid[1]}", full) for full in matrices]
        given = []
        for complete, part in zip(matrices, parts, strict=True):
            gap = np.full((len(part.rows) + 10, len(part.cols)), -1.0, order="F")  # the tester's gap of LLD_
            gap[: len(part.rows)] = part.of(complete)
            given.append((gap, at, at, (1, 0, *complete.shape, nb, nb, 0, 0, len(gap))))
        umm.scalapack.pgemm(transa, transb, m, n, k, 2.0, *given[0], *given[1], 3.0, *given[2], grid=grid)
        a, b = (full[at - 1 :, at - 1 :] for full in matrices[:2])
        left = a[:m, :k] if transa == "N" else a[:k, :m].T
        right = b[:k, :n] if transb == "N" else b[:n, :k].T
        want = matrices[2].copy()
        sub = want[at - 1 : at - 1 + m, at - 1 : at - 1 + n]
        sub[...] = 3 * sub + 2 * left @ right
        inside, below = np.split(given[2][0], [len(parts[2].rows)])
        done += everywhere(np.allclose(inside, parts[2].of(want)) and (below == -1).all())
    return done


def random_cases():
    """The faults of 12 random cases on all ranks: none."""
    wrong = [comm.allgather(run(comm, np.random.default_rng([38, number]))) for number in range(12)]
    return [fault for faults in wrong for fault in faults if fault]


def reads_a_tile():
    """Other ranks cannot reach the caller's memory one-sided."""
    wrapped("row", F).get_tile((0, 0))


def layouts_differ():
    umm.DistributedMatrix.wrap(comm, "row" if comm.rank else "row:colmajor", (8, 6), np.zeros((2, 6)))
    wrapped("row" if comm.rank != 2 else "cyclic:1x96:4x1", F)


def calls_differ():
    a = wrapped("row", F)
    umm.multiply(a, a, "row" if comm.rank != 1 else "2d")


def factors_differ():
    a = wrapped("row", F)
    umm.multiply(a, a, "row", alpha=1.0 + (comm.rank == 3))


def one_is_read_only():
    part = np.zeros((N // 4, N))
    part.flags.writeable = comm.rank != 2
    c = umm.DistributedMatrix.wrap(comm, "row", (N, N), part)
    umm.multiply(wrapped("row", F), wrapped("row", G), out=c)


def one_is_strided():
    part = np.zeros((N // 4, 2 * N))[:, ::2].T[:, ::-1].T if comm.rank == 1 else np.zeros((N // 4, N))
    umm.DistributedMatrix.wrap(comm, "row", (N, N), part)


def one_is_short():
    umm.DistributedMatrix.wrap(comm, "row", (N, N), np.zeros((N // 4 - (comm.rank == 3), N)))


def sizes_do_not_fit():
    umm.multiply(wrapped("row", F), wrapped("row", F[:50]), "row")


def too_little_memory():
    umm.multiply(wrapped("row", F), wrapped("row", F), "col", memory=100)


def writes_to_itself():
    a = wrapped("row", F)
    umm.multiply(a, wrapped("row", G), out=a)


def a_layout_as_out():
    a = wrapped("row", F)
    umm.multiply(a, a, out="row")


def submatrix_leaves():
    desc = (1, 0, 8, 8, 2, 2, 0, 0, 4)
    x = np.zeros((4, 4), order="F")
    umm.scalapack.pgemm(
        "N", "N", 8, 8, 8, 1, x, 2, 1, desc, x, 1, 1, desc, 0, x.copy(), 1, 1, desc, comm=comm
    )


def copied():
    """A strided operand, kept as a copy because that was asked for."""
    wide = np.repeat(local("row", F), 2, axis=1)[:, ::2]
    a = umm.DistributedMatrix.wrap(comm, "row", F.shape, wide, copy=True)
    return a.copied, everywhere(np.allclose(umm.multiply(a, a, "row").gather(), F @ F))


STORIES = [
    in_a_layout, redistributed, batched, in_flight, planned, on_half, pblas_cases, random_cases, copied,
    layouts_differ, calls_differ, factors_differ, one_is_read_only, one_is_strided, one_is_short,
    sizes_do_not_fit, too_little_memory, writes_to_itself, a_layout_as_out, submatrix_leaves,
    reads_a_tile,
]  # fmt: skip


def main():
    result = {}
    for story in STORIES:
        try:
            came = story()
        except umm.errors.UmmError as error:
            came = f"{type(error).__name__}: {error}"
        result[story.__name__] = comm.gather(came)
    if comm.rank == 0:
        json.dump(result, sys.stdout)


if __name__ == "__main__":
    main()

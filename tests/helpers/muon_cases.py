"""Random updates of momenta that ranks hold already, each compared with the plain update of one process.

``mpiexec -n 4 python muon_cases.py COUNT SEED`` prints how many were right, or the first that was not.
"""

import sys
from dataclasses import replace

import numpy as np
from array_cases import dtype_of, indices, random_layout

import umm
from umm.layouts.layout import Layout
from umm.muon import Grid, Matrix
from umm.muon.placements import possible
from umm_hw.muon.newton_schulz import orthogonalized
from umm_hw.muon.update import update

WHOLE = ("duplicated", "owners", "layers")
"""Placements that orthogonalise a matrix as one process does, so bit for bit."""
TOLERANCE = {"float64": 1e-11, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.5}
"""Coefficients multiply a difference by three a step, so five steps by some hundred."""


def random_plan(rng, ranks):
    """A plan whose weights have any placement, and any owners."""
    tp = int(rng.choice([x for x in range(1, ranks + 1) if ranks % x == 0]))
    grid = Grid(tp, ranks // tp)
    weights = [
        Matrix(f"w{i}", *(int(x) for x in rng.integers(1, 14, 2)), layers=int(rng.integers(1, 4)))
        for i in range(int(rng.integers(1, 4)))
    ]
    plan = umm.muon.plan(weights, grid, "localhost", only="layers")
    best = {x.name: str(rng.choice([*possible(grid), "layers"])) for x in weights}
    homes = {
        x.name: tuple(int(rank) for rank in rng.integers(0, ranks, x.count))
        for x in weights
        if best[x.name] in ("owners", "layers")
    }
    return replace(plan, best=best, homes=homes)


def case(comm, rng):
    """Whether a random update is right on this rank, and its name."""
    ranks, rank = comm.size, comm.rank
    plan, dtype = random_plan(rng, ranks), str(rng.choice(["float64", "float32", "float16", "bfloat16"]))
    listed, memory = bool(rng.random() < 0.3), int(rng.choice([1, 400, 2**28]))
    momenta, complete, layouts = {}, {}, {}
    for weight in plan.weights:
        shape = weight.rows, weight.cols
        text = random_layout(rng, shape, ranks)
        layouts[weight.name] = text
        full = rng.standard_normal((weight.count, *shape)).astype(dtype_of(dtype))
        complete[weight.name] = full
        rows, cols = indices(Layout.parse(text, shape, ranks), rank)
        local = np.ascontiguousarray(full[:, rows][:, :, cols])
        if listed:
            momenta[weight.name] = [umm.DistributedMatrix.wrap(comm, text, shape, x) for x in local]
        else:
            momenta[weight.name] = umm.DistributedMatrix.wrap(comm, text, (weight.count, *shape), local)
    words = f"{plan.best} of {[(x.rows, x.cols, x.count) for x in plan.weights]} in {layouts}, {dtype}"
    results = update(plan, momenta, memory=memory)
    for name, full in complete.items():
        result = results[name]
        matrices = result if listed else [result.member(i) for i in range(len(full))]
        for matrix, momentum in zip(matrices, full, strict=True):
            expected, here = orthogonalized(momentum, plan.coefficients), matrix.gather()
            if plan.best[name] in WHOLE:
                right = np.array_equal(here, expected)
            else:
                a, b = here.astype(np.float64), expected.astype(np.float64)
                right = np.allclose(a, b, atol=TOLERANCE[dtype])
            if not right:
                return False, f"{name} by {plan.best[name]}: {words}"
    return True, words


def main():
    from mpi4py import MPI

    comm, count, seed = MPI.COMM_WORLD, int(sys.argv[1]), int(sys.argv[2])
    for number in range(count):
        right, words = case(comm, np.random.default_rng([seed, number]))
        if not all(comm.allgather(right)):
            if comm.rank == 0:
                print(f"case {number} is wrong: {words}")
            return
    if comm.rank == 0:
        print(f"{count} of {count} right on {comm.size} ranks")


if __name__ == "__main__":
    main()

"""Words that the algorithms move, counted in their schedules, and whether their products are exact."""

from collections.abc import Iterator
from math import isclose, isqrt

import numpy as np

import umm
from experiments.common.ledger import Entry, reproduced
from experiments.common.machines import shipped
from experiments.summa25.layer import MACHINE, backward, forward, layouts
from umm.algorithms.scheduling import algorithms as registered
from umm.algorithms.summa import Panels, plane
from umm.algorithms.writing import Counted, counted
from umm.layouts.layout import Layout
from umm.program import Chain, Multiply
from umm.program.tensors import Tensor
from umm.schedules.writer.builder import Builder
from umm_hw.numpy.executor import NumpyExecutor

N, RANKS = 192, 16


def moved(name: str, ranks: int, n: int = N, **options: object) -> Counted:
    """Return the words that ranks move for n×n×n matrices in an algorithm's own layouts."""
    algorithm = registered()[name]
    problem = umm.Problem(m=n, n=n, k=n, ranks=ranks)
    a, b, c = algorithm.native(problem, **algorithm.chosen(options))
    asked = umm.Problem(m=n, n=n, k=n, a=a, b=b, c=c)
    return counted(umm.schedule(asked, shipped(MACHINE), algorithm=name, **options))


def algorithms() -> Iterator[Entry]:
    """Yield the entries of sections 2 and 3."""
    square, root = N * N, isqrt(RANKS)
    result = moved("cannon", RANKS)
    yield reproduced(
        "Cannon: a skew and q shifts, about 2n²/√p words a rank",
        "section 2.1",
        f"p = {RANKS}: {result.words / square:g} n² words in {result.messages} messages",
        result.words == 2 * square / root and result.messages == 2 * root,
    )
    result = moved("summa", RANKS, broadcast="tree")
    exact = sum(_summa(what) for what in ("AB", "ABᵀ", "AᵀB"))
    yield reproduced(
        "SUMMA: broadcasts along rows and columns, for AB, ABᵀ and AᵀB",
        "section 2.2",
        f"p = {RANKS}: {result.words / square:g} n² words a rank, 2n²/√p · (1 − 1/√p); {exact} of 3 "
        "products are exact",
        isclose(result.words, 2 * square / root * (1 - 1 / root)) and exact == 3,
        "broadcast = tree",
    )
    flat, deep, cube = (moved("2.5d", p, layers=d).words / square for p, d in ((16, 1), (32, 2), (8, 2)))
    yield reproduced(
        "2.5-D: W = n²/√(dp) words, S = √p/d^1.5 steps; d = 1 is Cannon, d = p^(1/3) is 3-D",
        "section 2.3",
        f"2n²/√(dp) + (d − 1)n²/p, the sum over layers counted: p = 16, d = 1 {flat:g} n² as "
        "Cannon; p = 32, d = 2 "
        f"{deep:g} n²; p = 8, d = 2 {cube:g} n², `3d` {moved('3d', 8).words / square:g} n²",
        flat == 2 / 4 and deep == 2 / 8 + 1 / 32 and cube == 2 / 4 + 1 / 8,
        "layers",
    )
    yield _layouts()
    result, other = (moved(name, 64, layers=4).words / square for name in ("summa2.5", "2.5d"))
    bound = 2 / (4 * 64) ** 0.5
    yield reproduced(
        "SUMMA2.5 has 2.5-D's W = n²/√(dp)",
        "section 3.1",
        f"p = 64, d = 4: {result:.3f} n² words; 2n²/√(dp) is {bound:.3f} n², `2.5d` moves "
        f"{other:.3f} n² with the "
        "sum over layers; every layer of SUMMA2.5 broadcasts all of B",
        result <= other,
        "layers",
        "n²/q · (1 + 1/d)(1 − 1/q) is counted; only where A has many more rows than B does d pay",
    )


def _layouts() -> Entry:
    """Forward and backward on [2, 2, 2] in float64, whole numbers."""
    m, n, k, q, d = 24, 16, 20, 2, 2
    random = np.random.default_rng(6)
    a, b, dc = (random.integers(-9, 9, shape).astype(np.float64) for shape in ((m, k), (k, n), (m, n)))
    result = NumpyExecutor().run(forward(m, n, k, q, d), (a.astype(np.float32), b.astype(np.float32))).result
    results = NumpyExecutor(replica=None).run(
        backward(m, n, k, q, d, "float64"), {"A": a, "B": b, "dC": dc}
    ).results  # fmt: skip
    fine = np.array_equal(result, a @ b) and np.array_equal(results["dA"][0], dc @ b.T)
    fine &= all(np.array_equal(x, a.T @ dc) for x in results["dB"])
    shown = ", ".join(f"{x} {y}" for x, y in zip("ABC", layouts(m, n, k, q, d), strict=True))
    return reproduced(
        "SUMMA2.5 [q,q,d]: A and C on dq×q, B on q×q with c = d; B's gradient is all-reduced over depth",
        "section 3.1",
        f"[2,2,2]: {shown}; C, dA, and dB in both replicas are exact",
        bool(fine),
        "layers",
    )


def _summa(what: str) -> bool:
    """Whether a product by SUMMA on a 2×3 grid is exact."""
    m, n, k = 10, 9, 12
    shapes = {"AB": ((m, k), (k, n)), "ABᵀ": ((m, k), (n, k)), "AᵀB": ((k, m), (k, n))}[what]
    roles = {"A": (shapes[0], "input"), "B": (shapes[1], "input"), "C": ((m, n), "output")}
    tensors = tuple(
        Tensor(name, Layout.block(shape, (2, 3)), "float64", role) for name, (shape, role) in roles.items()
    )
    trans = {"AB": (), "ABᵀ": ("b",), "AᵀB": ("a",)}[what]
    build = Builder(
        "summa", Chain("one", tensors, (Multiply("C", "A", "B", trans=trans),), 6), shipped("h100-8")
    )
    writer = plane(build, "A", Panels())
    {"AB": writer.multiply, "ABᵀ": writer.multiply_bt, "AᵀB": writer.multiply_at}[what]("C", "A", "B")
    random = np.random.default_rng(7)
    given = {x: random.integers(-9, 9, roles[x][0]).astype(np.float64) for x in "AB"}
    a, b = (given[x].T if x.lower() in trans else given[x] for x in "AB")
    return bool(np.array_equal(NumpyExecutor().run(build.schedule(), given).results["C"], a @ b))

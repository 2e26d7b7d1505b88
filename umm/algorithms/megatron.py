"""Megatron's tensor parallel layers: a weight cut by columns, or by rows with an all-reduce after.

A holds activations, B is a weight. Every rank has all of A and some columns of B, and multiplies its columns
of C, which no other needs; or it has some columns of A and rows of B, as the first layer left them, and the
products are summed on all ranks. In an MLP the one follows the other, so that there is one sum. Over a mesh
of data × tensor ranks every data rank has all of B, cut so, and rows of A and of C of its own.
"""

from typing import Any

from umm.algorithms.algorithm import Algorithm, Mesh, Names, Native, read_mesh
from umm.algorithms.writing import sum_replicas
from umm.layouts.edges import square_grid
from umm.layouts.layout import Layout
from umm.plans.option import Option
from umm.program.problem import MATRICES, Problem
from umm.schedules.writer.builder import Builder

COLUMN, ROW = "column", "row"
PART = Option(
    "part", "auto", "How B is cut: by columns, or by rows; auto is columns where n ≥ k.",
    ("auto", COLUMN, ROW), words="part {}".format,
)  # fmt: skip
COLLECTIVE = Option(
    "collective",
    "ring",
    "How ranks of a node gather and sum; between nodes they do by level.",
    ("ring", "direct"),
    words="collectives by {}".format,
)


def by_rows(problem: Problem, part: str) -> bool:
    """Whether B is cut by rows."""
    # As in an MLP: the first layer widens (n > k) and is cut by columns, the second narrows.
    return part == ROW or (part == "auto" and problem.n < problem.k)


def laid_out(problem: Problem, *texts: str) -> Native:
    """Return the layouts of A, B and C by their texts."""
    return Native(
        *(Layout.parse(x, problem.shape(name), problem.p) for x, name in zip(texts, MATRICES, strict=True))
    )


def native(problem: Problem, part: str, **options: Any) -> Native:
    """A, or C, on every rank."""
    return over_mesh(problem, 1, problem.p, part)


def over_mesh(problem: Problem, data: int, tensor: int, part: str) -> Native:
    """Return the layouts over a mesh: the rows of A and C over data ranks, B over tensor ranks."""
    # The tensor ranks of a data rank are consecutive.

    def on_all(partition: str, copies: int, order: str = "") -> str:
        return f"{partition}@{copies}{order if copies < problem.p else ''}" if copies > 1 else partition

    # Interleaving puts consecutive ranks in different replicas: the tensor ranks of a data rank share rows.
    rows = on_all("row", tensor, ":interleaved")
    both = "row" if tensor == 1 else "col" if data == 1 else f"2d:{data}x{tensor}"
    if by_rows(problem, part):
        return laid_out(problem, both, on_all("row", data), rows)
    return laid_out(problem, rows, on_all("col", data), both)


def write(build: Builder, names: Names, collective: str, **options: Any) -> None:
    """Multiply the local tiles; sum over the ranks that have multiplied for the same part of C."""
    a, b, c = (build.placed(name) for name in names)
    for rank in range(build.ranks):
        build.gemm(c(rank), a(rank), b(rank), beta=0)
    # With B cut by rows the replicas of C hold partial products over k: their sum is the all-reduce.
    if build.layout(names.b).grid_shape()[0] > 1:
        sum_replicas(build, collective, names.c)


ALGORITHM = Algorithm(
    "megatron",
    "Tensor parallel layers: A on all ranks and B by columns, or A by columns, B by rows and an all-reduce.",
    "Shoeybi et al. (2019), section 3",
    native,
    write,
    options=(PART, COLLECTIVE),
)


def data_tensor_mesh(ranks: int, grid: str, **options: Any) -> Mesh | None:
    """As many data ranks as tensor ranks or fewer, or the mesh that is asked for."""
    data, tensor = read_mesh(grid, 2) if grid else square_grid(ranks)
    return (data, tensor) if data * tensor == ranks else None


def on_data_tensor_mesh(problem: Problem, grid: str, part: str, **options: Any) -> Native:
    """Rows of A and C over data ranks, B over tensor ranks."""
    data, tensor = data_tensor_mesh(problem.p, grid) or (1, problem.p)
    return over_mesh(problem, data, tensor, part)


DATA_TENSOR = Algorithm(
    "data-tensor",
    "Data × tensor ranks: the rows of A over data ranks, each of which has all of B, cut as by megatron.",
    "Shoeybi et al. (2019), section 3; Narayanan et al. (2021)",
    on_data_tensor_mesh,
    write,
    options=(
        Option(
            "grid", "", "Data and tensor ranks, such as 2x4; the most square if not given.",
            words=lambda grid: grid and f"grid {grid}",
        ),
        PART,
        COLLECTIVE,
    ),
    mesh=data_tensor_mesh,
)  # fmt: skip

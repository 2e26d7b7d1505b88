"""Data and tensor parallel layers at once: data ranks share out the rows of A, tensor ranks cut B.

Over a mesh of data × tensor ranks every data rank has all of B, cut as Megatron's layers are, and rows of
A and of C of its own.
"""

from typing import Any

from umm.algorithms.algorithm import Algorithm, Mesh, Native, Option, read_mesh
from umm.algorithms.megatron import COLLECTIVE, PART, over_mesh, write
from umm.layouts.edges import square_grid
from umm.program.problem import Problem


def mesh(ranks: int, grid: str, **options: Any) -> Mesh | None:
    """As many data ranks as tensor ranks or fewer, or the mesh that is asked for."""
    data, tensor = read_mesh(grid, 2) if grid else square_grid(ranks)
    return (data, tensor) if data * tensor == ranks else None


def native(problem: Problem, grid: str, part: str, **options: Any) -> Native:
    """Rows of A and C over data ranks, B over tensor ranks."""
    data, tensor = mesh(problem.p, grid) or (1, problem.p)
    return over_mesh(problem, data, tensor, part)


ALGORITHM = Algorithm(
    "data-tensor",
    "Data × tensor ranks: the rows of A over data ranks, each of which has all of B, cut as by megatron.",
    "Shoeybi et al. (2019), section 3; Narayanan et al. (2021)",
    native,
    write,
    options=(
        Option(
            "grid", "", "Data and tensor ranks, such as 2x4; the most square if not given.",
            words=lambda grid: grid and f"grid {grid}",
        ),
        PART,
        COLLECTIVE,
    ),
    mesh=mesh,
)  # fmt: skip

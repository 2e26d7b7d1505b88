"""Where a matrix is orthogonalised: seconds of each placement, of its compute and of its collectives.

duplicated: every rank gathers the matrix and does all steps. owners: one rank gathers it, does all, and
sends each rank its part. gram: ranks keep parts of the longer side; each step sums X·Xᵀ over them. two-axis:
rows are gathered, columns stay split, and X·Xᵀ is summed over the tensor parallel ranks.

Sources: Jordan (2024), Muon; Liu et al. (2025), Muon is scalable for LLM training; Megatron-LM pull requests
6664, 6676 and 6683.
"""

from collections.abc import Callable
from dataclasses import dataclass

from umm.muon.weights import STEPS, Grid, Matrix
from umm.step.rates import BF16, FP32, Rates

BUCKET = 2**28
"""Bytes that one collective of a bucket moves: as a layer of a large model has."""
DUPLICATED, OWNERS, GRAM, TWO_AXIS = "duplicated", "owners", "gram", "two-axis"


@dataclass(frozen=True)
class Price:
    """Seconds and bytes of equal matrices in one placement.

    Attributes:
        moved: Seconds of collectives.
        shared: Seconds of compute on every rank.
        owned: Seconds of compute of one matrix at its owner; 0 where all ranks compute.
        memory: Bytes beside the weights while it runs.
    """

    moved: float
    shared: float
    owned: float
    memory: float


def steps(rates: Rates, m: int, n: int, ranks: int = 1) -> float:
    """Return the seconds of all steps on a matrix m x n, whose longer side is split over some ranks."""
    part = -(-n // ranks)
    products = rates.gemm(m, m, part, dtype="bfloat16") + rates.gemm(m, m, m, dtype="bfloat16")
    return STEPS * (products + rates.gemm(m, part, m, dtype="bfloat16") + rates.passes(3.0 * m * part * BF16))


def bucketed(rates: Rates, what: str, ranks: tuple[int, ...], nbytes: float) -> float:
    """Return the seconds of a collective of so many bytes in all, bucket by bucket."""
    buckets = max(1, round(nbytes / BUCKET))
    return buckets * rates.collective(what, ranks, nbytes / buckets)


def duplicated(matrix: Matrix, count: int, grid: Grid, rates: Rates) -> Price:
    """Price matrices that every rank gathers."""
    m, n = matrix.sides
    nbytes = m * n * BF16
    return Price(
        bucketed(rates, "all-gather", grid.all_ranks, count * nbytes),
        count * steps(rates, m, n),
        0.0,
        3.0 * nbytes,
    )


def owners(matrix: Matrix, count: int, grid: Grid, rates: Rates) -> Price:
    """Price matrices that each have one rank, which gets their parts and sends back the result's."""
    m, n = matrix.sides
    nbytes = count * m * n * BF16 / grid.ranks
    moved = 2 * bucketed(rates, "all-to-all", grid.all_ranks, nbytes)
    return Price(moved, 0.0, steps(rates, m, n), 3.0 * m * n * BF16 + 2.0 * nbytes)


def gram(matrix: Matrix, count: int, grid: Grid, rates: Rates) -> Price:
    """Price matrices whose longer side stays split over all ranks."""
    m, n = matrix.sides
    part = m * n * BF16 / grid.ranks
    # Rows are split: where they are the shorter side, parts are exchanged first, and after.
    turned = (
        2 * bucketed(rates, "all-to-all", grid.all_ranks, count * part) if matrix.rows < matrix.cols else 0.0
    )
    summed = STEPS * bucketed(rates, "all-reduce", grid.all_ranks, count * m * m * FP32)
    return Price(
        turned + summed, count * steps(rates, m, n, grid.ranks), 0.0, 2.0 * m * m * FP32 + 3.0 * part
    )


def two_axis(matrix: Matrix, count: int, grid: Grid, rates: Rates) -> Price:
    """Price matrices whose rows are gathered, while columns stay split over tensor parallel ranks."""
    m, n = matrix.sides
    part = m * n * BF16 / grid.tp
    gathered = bucketed(rates, "all-gather", grid.rows, count * part)
    summed = STEPS * bucketed(rates, "all-reduce", grid.columns, count * m * m * FP32)
    return Price(gathered + summed, count * steps(rates, m, n, grid.tp), 0.0, 2.0 * m * m * FP32 + 3.0 * part)


PLACEMENTS: dict[str, Callable[[Matrix, int, Grid, Rates], Price]] = {
    DUPLICATED: duplicated, OWNERS: owners, GRAM: gram, TWO_AXIS: two_axis,
}  # fmt: skip
"""Every placement by the name it is printed with."""


def possible(matrix: Matrix, grid: Grid) -> list[str]:
    """Return the placements that a grid has: without tensor parallel ranks there is no second axis."""
    names = [DUPLICATED, OWNERS, GRAM]
    return [*names, TWO_AXIS] if grid.tp > 1 and grid.fsdp > 1 else names


def local(matrix: Matrix, grid: Grid) -> tuple[int, Grid]:
    """Return how many of some matrices a group of ranks shares, and its grid: experts have smaller ones."""
    if matrix.each == 1 or grid.ep == 1:
        return matrix.count, grid
    ranks = grid.ranks // grid.ep
    return -(-matrix.count // grid.ep), Grid(1, ranks, 1)

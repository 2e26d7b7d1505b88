"""Where a matrix is orthogonalised: seconds of each placement, of its compute and of its collectives.

duplicated: every rank gathers the matrix and does all steps. owners: one rank gathers it, does all, and
sends each rank its part. gram: ranks keep parts of the longer side; each step sums X·Xᵀ over them. two-axis:
rows are gathered, columns stay split, and X·Xᵀ is summed over the tensor parallel ranks. in-place: nothing is
gathered; each step's products are one-sided multiplies of X as the trainer has it (universal algorithm).

Sources: Jordan (2024), Muon; Liu et al. (2025), Muon is scalable for LLM training; Megatron-LM pull requests
6664, 6676 and 6683. Of other optimizers' products: Gupta, Koren and Singer (2018), Shampoo, algorithm 1;
Vyas et al. (2024), SOAP, algorithm 3.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from umm.dtypes import itemsize
from umm.executor import run
from umm.layouts.layout import Layout
from umm.machines import Machine
from umm.muon.program import JORDAN, newton_schulz
from umm.muon.weights import Grid, Matrix
from umm.plans.lower import lower
from umm.schedules.table.details import GEMM
from umm.step.rates import FP32, Rates

BUCKET = 2**28  # bytes that one collective of a bucket moves: as a layer of a large model has
DUPLICATED, OWNERS, GRAM, TWO_AXIS, IN_PLACE = "duplicated", "owners", "gram", "two-axis", "in-place"
MAX_IN_PLACE = 32  # ranks up to which steps in place are simulated: their actions grow as the square of ranks


RESTART = 2
"""Steps after which those on X·Xᵀ begin anew. Source: xtuner pull request 2049, gram_restart_iterations."""


class Product(NamedTuple):
    """A product m x k by k x n."""

    m: int
    n: int
    k: int
    symmetric: bool = False  # whether the result is symmetric, so that one triangle is enough


def muon(m: int, n: int, ranks: int, steps: int) -> list[Product]:
    """Return the products of Newton-Schulz steps on m x n, m the shorter side, n split over some ranks."""
    part = -(-n // ranks)
    return [Product(m, m, part, True), Product(m, m, m, True), Product(m, part, m)] * steps


def muon_gram(m: int, n: int, ranks: int, steps: int) -> list[Product]:
    """Return the products of Newton-Schulz steps on R = X·Xᵀ, which X takes part in twice.

    Each step multiplies R², Q·Z, R·Z and Z·R·Z with Z = bR + cR², all symmetric; the first of a part has
    no Q yet, the last needs no R. After two steps X ← Q·X and R are taken anew, for precision.

    Source: Dao-AILab/gram-newton-schulz (2026); google-deepmind/optax pull request 1717.
    """
    parts = [x for x in (min(steps, RESTART), steps - RESTART) if x > 0]
    small = sum(4 * part - 3 if part > 1 else 1 for part in parts)
    long = [Product(m, m, n, True), Product(m, n, m)] * len(parts)
    return [*long, *[Product(m, m, m, True)] * small]


def shampoo(m: int, n: int, ranks: int, steps: int) -> list[Product]:
    """Return those of L + G·Gᵀ, R + Gᵀ·G and L^(-1/4)·G·R^(-1/4); roots are taken apart."""
    return [Product(m, m, n, True), Product(n, n, m, True), Product(m, n, m), Product(m, n, n)]


def soap(m: int, n: int, ranks: int, steps: int) -> list[Product]:
    """Return those of L and R, of Qᵀ·G·Q, and of the way back; bases are refreshed apart."""
    return [*shampoo(m, n, ranks, steps), Product(m, n, m), Product(m, n, n)]


PRODUCTS: dict[str, Callable[[int, int, int, int], list[Product]]] = {
    "muon": muon, "muon-gram": muon_gram, "shampoo": shampoo, "soap": soap,
}  # fmt: skip
"""Products by optimizer: of the shorter side, the longer one, the ranks that split it, and steps."""


@dataclass(frozen=True)
class Costs:
    """Prices of Newton-Schulz steps on a machine."""

    rates: Rates  # seconds of kernels and collectives
    dtype: str = "bfloat16"  # type that is multiplied and moved; half precision is summed in float32
    steps: int = len(JORDAN)  # number of steps
    syrk: bool = False  # whether the library computes one triangle of X·Xᵀ and A², half of their arithmetic
    batch: int = 1  # equal matrices that one kernel multiplies at most
    # Whether weights live with their owners: gradients are reduced to them, and the next forward pass
    # broadcasts weights, in place of FSDP's collectives. Source: torchtitan pull request 3502.
    resident: bool = False
    optimizer: str = "muon"  # a name of PRODUCTS: whose products a matrix takes
    weights: int = 1  # weights that share a round of a host's collectives

    @property
    def itemsize(self) -> int:
        """Bytes of an element that moves."""
        return itemsize(self.dtype)

    @property
    def sum_itemsize(self) -> int:
        """Bytes of an element of X·Xᵀ that is summed over ranks."""
        return max(FP32, self.itemsize)

    def product(self, m: int, n: int, k: int, count: int, symmetric: bool = False) -> float:
        """Return the seconds of a multiply m x k by k x n, as one of so many equal ones.

        A batched kernel has the tiles of all its matrices, as many as one multiply of all their rows has.
        """
        n = -(-n // 2) if symmetric and self.syrk else n
        together = max(1, min(count, self.batch))
        return self.rates.gemm(m * together, n, k, dtype=self.dtype) / together

    def compute(self, m: int, n: int, count: int, ranks: int = 1) -> float:
        """Return the seconds of the products of one of some matrices m x n, n split over ranks."""
        part = -(-n // ranks)
        products = PRODUCTS[self.optimizer](m, n, ranks, self.steps)
        seconds = sum(self.product(*x[:3], count, x.symmetric) for x in products)
        # A norm reads X, a division reads and writes it; Muon's second and third product add to A and X.
        elements = 3.0 * m * part * self.optimizer.startswith("muon")
        if self.optimizer == "muon":
            elements += self.steps * (m * m + m * part)
        return seconds + self.rates.passes(elements * self.itemsize, kernels=0)

    def collective(self, what: str, ranks: tuple[int, ...], nbytes: float) -> float:
        """Return the seconds of a collective of so many bytes in all, bucket by bucket.

        Of a machine without a library, such as a host, it is what the bytes take and the start of its rounds:
        :func:`umm.muon.update` sums in two, and all weights share them.
        """
        buckets = max(1, round(nbytes / BUCKET))
        start = 0.0
        if self.rates.machine.library is None and len(ranks) > 1:
            rounds = 2 if what == "all-reduce" else 1
            start = rounds * self.rates.machine.transfer_overhead_s / self.weights
        return buckets * (start + self.rates.collective(what, ranks, nbytes / buckets))


@dataclass(frozen=True)
class Price:
    """Seconds and bytes of equal matrices in one placement."""

    before: float  # seconds of the collective that gathers momenta
    after: float  # seconds of collectives during the steps and after them
    shared: float  # seconds of compute on every rank
    owned: float  # seconds of compute of one matrix at its owner; 0 where all ranks compute
    memory: float  # bytes beside the weights while it runs
    collectives: int  # number of collectives, bucket by bucket

    @property
    def moved(self) -> float:
        """Seconds of all collectives."""
        return self.before + self.after

    @property
    def parts(self) -> int:
        """Buckets in which its matrices move."""
        return max(1, self.collectives // 2)


def duplicated(matrix: Matrix, count: int, grid: Grid, costs: Costs) -> Price:
    """Price matrices that every rank gathers."""
    m, n = matrix.sides
    nbytes = m * n * costs.itemsize
    return Price(
        costs.collective("all-gather", grid.all_ranks, count * nbytes),
        0.0,
        count * costs.compute(m, n, count),
        0.0,
        3.0 * nbytes * min(count, costs.batch) + min(count * nbytes, BUCKET),
        _buckets(count * nbytes),
    )


def owners(matrix: Matrix, count: int, grid: Grid, costs: Costs) -> Price:
    """Price matrices that each have one rank, which gets their parts and sends back the result's."""
    m, n = matrix.sides
    nbytes = count * m * n * costs.itemsize / grid.ranks
    moved = costs.collective("all-to-all", grid.all_ranks, nbytes)
    share = max(1, count // grid.ranks)
    moved = 0.0 if costs.resident else moved
    return Price(
        moved,
        moved,
        0.0,
        costs.compute(m, n, share),
        3.0 * m * n * costs.itemsize * min(share, costs.batch) + 2.0 * min(nbytes, BUCKET),
        0 if costs.resident else 2 * _buckets(nbytes),
    )


def gram(matrix: Matrix, count: int, grid: Grid, costs: Costs) -> Price:
    """Price matrices whose longer side stays split over all ranks."""
    m, n = matrix.sides
    part = m * n * costs.itemsize / grid.ranks
    # Rows are split: where they are the shorter side, parts are exchanged first, and after.
    turned = (
        costs.collective("all-to-all", grid.all_ranks, count * part) if matrix.rows < matrix.cols else 0.0
    )
    nbytes = count * m * m * costs.sum_itemsize
    summed = costs.steps * costs.collective("all-reduce", grid.all_ranks, nbytes)
    return Price(
        turned,
        turned + summed,
        count * costs.compute(m, n, count, grid.ranks),
        0.0,
        2.0 * m * m * costs.sum_itemsize + 3.0 * part,
        costs.steps * _buckets(nbytes) + 2 * bool(turned) * _buckets(count * part),
    )


def two_axis(matrix: Matrix, count: int, grid: Grid, costs: Costs) -> Price:
    """Price matrices whose rows are gathered, while columns stay split over tensor parallel ranks."""
    m, n = matrix.sides
    part = m * n * costs.itemsize / grid.tp
    nbytes = count * m * m * costs.sum_itemsize
    return Price(
        costs.collective("all-gather", grid.rows, count * part),
        costs.steps * costs.collective("all-reduce", grid.columns, nbytes),
        count * costs.compute(m, n, count, grid.tp),
        0.0,
        2.0 * m * m * costs.sum_itemsize + 3.0 * part,
        costs.steps * _buckets(nbytes) + _buckets(count * part),
    )


def in_place(matrix: Matrix, count: int, grid: Grid, costs: Costs) -> Price:
    """Price matrices whose products are one-sided multiplies in the trainer's layout, one by one."""
    m, n = matrix.sides
    compute, seconds = _step(
        costs.rates.machine, matrix.rows, matrix.cols, grid, "syrk" if costs.syrk else "gemm", costs.dtype
    )
    times = count * costs.steps
    # The simulator slows ranks that share a device; a price is of a rank that has it alone.
    crowd = -(-grid.ranks // costs.rates.machine.device_count)
    # X, the next X and a panel; A, B and their sum, rows of each.
    memory = (3.0 * m * n + 3.0 * m * m) * costs.itemsize / grid.ranks
    return Price(0.0, times * (seconds - compute), times * compute / crowd, 0.0, memory, 0)


@lru_cache(1024)
def _step(machine: Machine, rows: int, cols: int, grid: Grid, kernel: str, dtype: str) -> tuple[float, float]:
    """Return the seconds of the busiest rank's multiplies, and of all, of one step in place by simulation."""
    layout = Layout.parse(f"2d:{grid.fsdp}x{grid.tp}", (rows, cols), grid.ranks)
    layout = layout.transposed if rows > cols else layout
    chain = newton_schulz(
        *layout.shape, layout, grid.ranks, kernel=kernel, coefficients=JORDAN[:1], dtype=dtype
    )
    schedule = lower(chain, machine)
    trace = run(schedule)
    gemms = schedule.kind == GEMM
    compute = np.bincount(schedule.rank[gemms], (trace.end - trace.start)[gemms]).max()
    return min(float(compute), trace.makespan_s), trace.makespan_s


def _buckets(nbytes: float) -> int:
    return max(1, round(nbytes / BUCKET))


PLACEMENTS: dict[str, Callable[[Matrix, int, Grid, Costs], Price]] = {
    DUPLICATED: duplicated, OWNERS: owners, GRAM: gram, TWO_AXIS: two_axis,
    IN_PLACE: in_place,
}  # fmt: skip
"""Every placement by the name it is printed with."""


def possible(grid: Grid, optimizer: str = "muon") -> list[str]:
    """Return the placements that a grid has."""
    # Without tensor parallel ranks there is no second axis; Kronecker factors take a whole matrix.
    if optimizer != "muon":
        return [DUPLICATED, OWNERS]
    two_axes, few = grid.tp > 1 and grid.fsdp > 1, 1 < grid.ranks <= MAX_IN_PLACE
    return [DUPLICATED, OWNERS, GRAM, *[TWO_AXIS] * two_axes, *[IN_PLACE] * few]


def local(matrix: Matrix, grid: Grid) -> tuple[int, Grid]:
    """Return how many of some matrices a group of ranks shares, and its grid: experts have smaller ones."""
    if matrix.each == 1 or grid.ep == 1:
        return matrix.count, grid
    ranks = grid.ranks // grid.ep
    return -(-matrix.count // grid.ep), Grid(1, ranks, 1)

"""The products by which an optimizer turns a gradient of m x n into an update, m the shorter side.

Source: Jordan (2024), Muon; Gupta, Koren and Singer (2018), Shampoo, algorithm 1; Vyas et al. (2024), SOAP,
algorithm 3.
"""

from collections.abc import Callable
from typing import NamedTuple

RESTART = 2
"""Steps after which those on X·Xᵀ begin anew. Source: xtuner pull request 2049, gram_restart_iterations."""


class Product(NamedTuple):
    """A product m x k by k x n."""

    m: int
    n: int
    k: int
    symmetric: bool = False  # whether the result is symmetric, so that one triangle is enough


def muon(m: int, n: int, ranks: int, steps: int) -> list[Product]:
    """Return the products of Newton-Schulz steps, the longer side split over some ranks."""
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

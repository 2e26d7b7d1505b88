"""Slips of the text: the printed form, and its consequence."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from experiments.common.ledger import Entry, given, refuted
from experiments.common.published import published
from experiments.summa25.counts import N, moved
from experiments.summa25.layer import OTHER_TOKENS, TOKENS

CUBES = (2, 3, 4)  # ranks a side where d = p^(1/3)
GRID = (2, 2)  # q, d


def entries() -> Iterator[Entry]:
    """Yield the entries of the slips."""
    yield _exponent()
    yield _algorithm3()
    yield _speedup()
    yield given(
        "the sequence length is never given",
        "section 4",
        f"{TOKENS} tokens are taken; only ratios are compared, with {OTHER_TOKENS[0]} and "
        f"{OTHER_TOKENS[1]} too",
        hangs_on="tokens",
    )


def _exponent() -> Entry:
    """Words that `3d` moves, counted, beside n²/√(dp) and the printed number."""
    counts = [moved("3d", d**3).words / N**2 for d in CUBES]
    bounds, printed = [(d * d**3) ** -0.5 for d in CUBES], [(d**3) ** -1.5 for d in CUBES]
    near = all(1 <= x / y <= 3 for x, y in zip(counts, bounds, strict=True))
    return refuted(
        "at d = p^(1/3) the bandwidth cost is n²/p^(3/2)",
        "section 3.1",
        f"p = {', '.join(str(d**3) for d in CUBES)}: n²/√(dp) is {_list(bounds)} n², which is n²/p^(2/3), "
        f"and `3d` moves {_list(counts)} n², counted; as printed it would be {_list(printed)} n²",
        near and min(x / y for x, y in zip(counts, printed, strict=True)) > 3,
        "the exponent",
    )


def _algorithm3() -> Entry:
    """Where algorithm 3 puts A's tiles, and how many tiles of C are right by every reading of v."""
    q, d = GRID
    printed, meant = ([(i % x, i // x) for i in range(q * d)] for x in (q * q * d, q))
    grid = set(product(range(q), range(d)))
    placed = [len(grid.intersection(places)) for places in (printed, meant)]
    exact = {v: right_tiles(v, "t") for v in "ijkt"}
    tiles = q * q * d
    return refuted(
        "tile i of A goes to layer i // p, row i % p; C += A_itk · B_vtk",
        "algorithm 3",
        f"[{q},{q},{d}]: with p {placed[0]} of {q * d} rows of tiles have a place, with q, the rows of "
        f"ranks, {placed[1]}; there is no v: with i, j, k or t for it at most {max(exact.values())} of "
        f"{tiles} tiles of C are right, with B_tjk {right_tiles('t', 'j')}",
        placed[0] < q * d == placed[1] and max(exact.values()) < tiles == right_tiles("t", "j"),
        "misprints",
    )


def right_tiles(row: str, col: str) -> int:
    """Return how many tiles of C algorithm 3 gets right with the tile of B that two of i, j, k and t name."""
    q, d = GRID
    random, right = np.random.default_rng(11), 0
    a, b = (random.integers(-9, 9, (rows, q, 4, 4)) for rows in (q * d, q))
    for i, j, k in product(range(q), range(q), range(d)):
        tile, wanted = np.zeros((2, 4, 4), dtype=int)
        for t in range(q):
            at = {"i": i, "j": j, "k": k, "t": t}
            tile += a[q * k + i, t] @ b[at[row], at[col]]
            wanted += a[q * k + i, t] @ b[t, j]
        right += np.array_equal(tile, wanted)
    return right


def _speedup() -> Entry:
    result, weak = (published("summa25")[x] for x in ("abstract", "weak"))
    deep, flat = (weak["shape"].index(x) for x in ([4, 4, 4], [8, 8, 1]))
    seconds = [weak["forward_s"][x] + weak["backward_s"][x] for x in (flat, deep)]
    work = [weak["batch"][x] * weak["hidden"][x] ** 2 for x in (flat, deep)]
    raw = seconds[0] / seconds[1]
    each = raw * work[1] / work[0]
    return refuted(
        f"[4,4,4] is {result['speedup']} times as efficient as [8,8,1]",
        "abstract; table 2",
        f"its table has {raw:.2f}x forward and backward together, {each:.2f}x per unit of work",
        min(abs(raw - result["speedup"]), abs(each - result["speedup"])) > 0.05,
        "neither follows from the table",
    )


def _list(values: list[float]) -> str:
    return ", ".join(f"{x:.3g}" for x in values)

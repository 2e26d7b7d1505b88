"""A multiply in torch on any layouts: ranks send each other the ranges of A, B and C that they need.

DTensor has no mesh on which all three lie so, or only one whose ranks fall along an axis, and torch sorts
those of a group; plain torch.distributed can have all that umm can.
"""

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np

from umm.arrays import Ints
from umm.emit.described import HEAD, SIZES, TAIL, Described, listed
from umm.errors import InputError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.plans.multiply.oplist import op_list

MAX_RANGES = 4096  # ranges and multiplies that a program lists; of more the file would be a heap

BODY = '''<sizes>
# What each rank holds, as (rows, columns, rows, columns): from and up to, tile by tile. The layouts lie on no
# one mesh of DTensor's with rising ranks, so the ranges that ranks need of each other are sent one by one.
<a_tiles>
<b_tiles>
<c_tiles>
# What each rank multiplies, as (m, n, k, m, n, k): from and up to. <stationary> stays in place.
<work>


def cut(tiles: dict, part: tuple) -> torch.Tensor:
    """Return a part of one of the tiles that hold it."""
    for (top, left, bottom, right), tile in tiles.items():
        if top <= part[0] and left <= part[1] and part[2] <= bottom and part[3] <= right:
            return tile[part[0] - top : part[2] - top, part[1] - left : part[3] - left]
    raise KeyError(part)


def holder(held: list, part: tuple, rank: int) -> int:
    """Return who gives a rank a part: itself if it has it, else the next rank after it that does."""
    for giver in (*range(rank, RANKS), *range(rank)):
        if any(t <= part[0] and l <= part[1] and part[2] <= b and part[3] <= r for t, l, b, r in held[giver]):
            return giver
    raise KeyError(part)


def exchanged(rank: int, sent: list, device: torch.device) -> list:
    """Send (giver, taker, part, tensor or None, type) and return what came, in this order."""
    ops, came = [], []
    for giver, taker, part, tensor, dtype in sent:
        if giver == taker == rank:
            came.append((part, tensor))
        elif giver == rank:
            ops.append(dist.P2POp(dist.isend, tensor.contiguous(), taker))
        elif taker == rank:
            room = torch.empty(part[2] - part[0], part[3] - part[1], dtype=dtype, device=device)
            ops.append(dist.P2POp(dist.irecv, room, giver))
            came.append((part, room))
    for request in dist.batch_isend_irecv(ops) if ops else []:
        request.wait()
    return came


def brought(rank: int, tiles: dict, held: list, needed: list, device: torch.device) -> dict:
    """Return the parts of a matrix that this rank needs, from those who hold them."""
    sent = []
    for taker in range(RANKS):
        for part in needed[taker]:
            giver = holder(held, part, taker)
            sent.append((giver, taker, part, cut(tiles, part) if giver == rank else None, DTYPE))
    return dict(exchanged(rank, sent, device))


def multiply(rank: int, a: dict, b: dict, device: torch.device) -> dict:
    """Return this rank's tiles of C = AB, from its tiles of A and B."""
    need_a = [list(dict.fromkeys((m, k, m2, k2) for m, n, k, m2, n2, k2 in work)) for work in WORK]
    need_b = [list(dict.fromkeys((k, n, k2, n2) for m, n, k, m2, n2, k2 in work)) for work in WORK]
    a, b = brought(rank, a, A_TILES, need_a, device), brought(rank, b, B_TILES, need_b, device)
    sums: dict = {}
    for m, n, k, m2, n2, k2 in WORK[rank]:
        product = (a[m, k, m2, k2] @ b[k, n, k2, n2]).to(C_DTYPE)
        part = (m, n, m2, n2)
        sums[part] = sums[part] + product if part in sums else product
    sent = []
    for giver in range(RANKS):
        for part in dict.fromkeys((m, n, m2, n2) for m, n, k, m2, n2, k2 in WORK[giver]):
            for taker in range(RANKS):
                if holder(C_TILES, part, taker) == taker:
                    sent.append((giver, taker, part, sums.get(part) if giver == rank else None, C_DTYPE))
    c = {t: torch.zeros(t[2] - t[0], t[3] - t[1], dtype=C_DTYPE, device=device) for t in C_TILES[rank]}
    for part, tensor in exchanged(rank, sent, device):
        cut(c, part).add_(tensor)
    return c


def main(rank: int, store: str | None) -> None:
    device = joined(rank, store)
    whole = operands()
    a, b = (
        {(t, l, d, r): x[t:d, l:r].to(device) for t, l, d, r in held[rank]}
        for x, held in zip(whole, (A_TILES, B_TILES))
    )
    c = multiply(rank, a, b, device)
    if "--check" in sys.argv:
        gathered = [None] * RANKS
        dist.all_gather_object(gathered, {part: tile.cpu() for part, tile in c.items()})
        for held in gathered:  # of several replicas every one is looked at, the last is kept
            for (top, left, bottom, right), tile in held.items():
                true = whole[0][top:bottom].double() @ whole[1][:, left:right].double()
                assert (tile.double() - true).abs().max() <= torch.finfo(DTYPE).eps * K
        product = torch.empty(M, N, dtype=C_DTYPE)
        for held in gathered:
            for (top, left, bottom, right), tile in held.items():
                product[top:bottom, left:right] = tile
        said = checked(product, *whole)
        if rank == 0:
            print(said)
    dist.destroy_process_group()
'''


def program(asked: Described) -> str:
    """Return the program; InputError for so many tiles that nobody would want to see them listed."""
    problem = asked.problem
    listed_tiles = [[tiles_of(layout, rank) for rank in range(problem.p)] for layout in problem.outside]
    ops = op_list(problem, asked.stationary)
    most = max(len(ops), *(sum(map(len, tiles)) for tiles in listed_tiles))
    if most > MAX_RANGES:
        raise InputError(
            f"a torch program would list {most:,} ranges, for DTensor has no one mesh with these "
            "layouts and rising ranks; take larger tiles, or --emit umm"
        )
    a, b, c = problem.outside
    rows, cols, inner = (a.row_edges, c.row_edges), (b.col_edges, c.col_edges), (a.col_edges, b.row_edges)
    work: list[list[tuple[int, ...]]] = [[] for _ in range(problem.p)]
    # Cut where the matrices lie outside, which may be elsewhere than where they are multiplied.
    for op in ops:
        for m, n, k in product(_parts(op.m, rows), _parts(op.n, cols), _parts(op.k, inner)):
            work[op.rank].append((m.start, n.start, k.start, m.stop, n.stop, k.stop))
    tiles_in_words = {
        f"{name}_tiles": listed(tiles, f"{name.upper()}_TILES")
        for name, tiles in zip("abc", listed_tiles, strict=True)
    }
    return asked.filled(
        HEAD + BODY + TAIL, sizes=asked.filled(SIZES), work=listed(work, "WORK"), **tiles_in_words
    )


def _parts(span: Interval, edges: Sequence[Ints]) -> list[Interval]:
    """Return a range cut at edges."""
    cuts = np.unique(np.concatenate([[span.start, span.stop], *edges]))
    inside = cuts[(span.start <= cuts) & (cuts <= span.stop)].tolist()
    return [Interval(start, stop) for start, stop in pairwise(inside)]


def tiles_of(layout: Layout, rank: int) -> list[tuple[int, int, int, int]]:
    """Return the tiles of a rank that are not empty, as first row and column, and those after the last."""
    bounds = [layout.tile_bounds(tile) for tile in layout.tiles_of(rank)]
    return [(r.start, c.start, r.stop, c.stop) for r, c in bounds if r.size and c.size]

"""Op lists: every multiply-add exactly once, in the order the paper's algorithms walk."""

import numpy as np
import pytest
from hypothesis import given
from strategies import offsets, problems, stationaries

from umm import Interval, Problem, op_list
from umm.errors import InfeasibleError, ProblemError
from umm.layouts.edges import ceil_edges
from umm.plans.multiply import oplist
from umm.plans.multiply.oplist import Op


def published(problem, stationary):
    """Algorithms 1 and 2 (and stationary A by analogy) as printed, slips corrected, without offset."""
    layouts = dict(zip("ABC", problem.layouts, strict=True))
    a, b, c = problem.layouts
    fixed = layouts[stationary]
    size = {"A": problem.n, "B": problem.m, "C": problem.k}[stationary]
    cuts = ceil_edges(size, fixed.replicas)
    ops = []
    for rank in range(problem.ranks):
        share = Interval(int(cuts[fixed.replica(rank)]), int(cuts[fixed.replica(rank) + 1]))
        for tile in fixed.tiles_of(rank):
            rows, cols = fixed.tile_bounds(tile)
            if stationary == "C":
                triples = [
                    (x, y, tile)
                    for x in a.overlapping_tiles(rows, share)
                    for y in b.overlapping_tiles(a.tile_bounds(x)[1].intersect(share), cols)
                ]
            elif stationary == "B":
                triples = [
                    (x, tile, z)
                    for x in a.overlapping_tiles(share, rows)
                    for z in c.overlapping_tiles(a.tile_bounds(x)[0].intersect(share), cols)
                ]
            else:
                triples = [
                    (tile, y, z)
                    for y in b.overlapping_tiles(cols, share)
                    for z in c.overlapping_tiles(rows, b.tile_bounds(y)[1].intersect(share))
                ]
            for x, y, z in triples:
                m = a.tile_bounds(x)[0].intersect(c.tile_bounds(z)[0])
                k = a.tile_bounds(x)[1].intersect(b.tile_bounds(y)[0])
                n = b.tile_bounds(y)[1].intersect(c.tile_bounds(z)[1])
                m, n, k = (
                    r.intersect(share) if name == {"A": "n", "B": "m", "C": "k"}[stationary] else r
                    for name, r in zip("mnk", (m, n, k), strict=True)
                )
                ops.append(Op(rank, x, y, z, m, n, k))
    return ops


@given(problems(), stationaries, offsets)
def test_every_multiply_add_is_done_exactly_once(problem, stationary, offset):
    """Over all ranks, the ops tile the m x n x k iteration space without gap or overlap."""
    done = np.zeros((problem.m, problem.n, problem.k), dtype=int)
    for op in op_list(problem, stationary, offset=offset):
        done[op.m.slice, op.n.slice, op.k.slice] += 1
    assert np.all(done == 1)


@given(problems(), stationaries)
def test_the_op_list_is_the_one_the_paper_prints(problem, stationary):
    """Merged boundaries give the ops of algorithms 1 and 2, tile by tile and in the same order."""
    assert list(op_list(problem, stationary, offset="none")) == published(problem, stationary)


@given(problems(), stationaries, offsets)
def test_one_rank_alone_gets_the_same_ops_as_among_all(problem, stationary, offset):
    """The lazy per-rank list is a slice of the whole."""
    full = list(op_list(problem, stationary, offset=offset))
    alone = [op for r in range(problem.ranks) for op in op_list(problem, stationary, offset=offset, rank=r)]
    assert alone == full


@given(problems(), stationaries)
def test_the_offset_only_rotates_each_stationary_tile_s_own_list(problem, stationary):
    """Offset (i + j) mod length: the published rotation, list by list."""

    def lists(offset):
        result = {}
        for op in op_list(problem, stationary, offset=offset):
            tile = getattr(op, f"{stationary.lower()}_tile")
            result.setdefault((op.rank, tile), []).append(op)
        return result

    plain, turned = lists("none"), lists("index")
    for (rank, tile), ops in plain.items():
        shift = sum(tile) % len(ops)
        assert turned[rank, tile] == ops[shift:] + ops[:shift]


def test_rotation_spreads_misaligned_lists_that_the_index_offset_does_not():
    """A's columns are cut at 1 and 2, B's rows at 3, 6, …: the rotation starts 4 ranks at 4 tiles of B."""
    problem = Problem(m=8, n=8, k=24, a="edges:0-8x0-1-2-24:1x4", b="cyclic:3x8:4x1", c="row", ranks=4)

    def starts(offset):
        return [op_list(problem, "C", offset=offset, rank=r)[0].b_tile for r in range(4)]

    assert starts("none") == [(0, 0), (0, 0), (0, 0), (0, 0)]
    assert starts("index") == [(0, 0), (0, 0), (0, 0), (1, 0)]
    assert starts("rotate") == [(0, 0), (1, 0), (2, 0), (3, 0)]


def test_auto_keeps_the_largest_matrix_in_place():
    """MLP-1 keeps B (48K x 12K), MLP-2 with a large batch A, a square problem C."""
    sizes = {"B": (1024, 49152, 12288), "A": (8192, 512, 1024), "C": (64, 64, 64)}
    for expected, (m, n, k) in sizes.items():
        assert op_list(Problem(m=m, n=n, k=k, ranks=4)).stationary == expected


def test_an_unknown_stationary_matrix_or_offset_is_refused():
    problem = Problem(m=2, n=2, k=2, ranks=2)
    with pytest.raises(ProblemError, match="stationary matrix 'D' is unknown; choose from A, B, C, auto"):
        op_list(problem, "D")
    with pytest.raises(
        ProblemError, match="iteration offset 'skew' is unknown; choose from none, index, rotate, last"
    ):
        op_list(problem, "A", offset="skew")


def test_ops_that_this_host_has_no_memory_for_are_refused_before_they_are_listed(monkeypatch):
    """2 million ops on tiles of one element with 1 GB free."""
    problem = Problem(m=128, n=128, k=128, a="cyclic:1x1:8x1", b="cyclic:1x1:8x1", ranks=8)
    monkeypatch.setattr(oplist, "free_memory", lambda: 10**9)
    with pytest.raises(InfeasibleError, match=r"2097152 local multiplies.* 953.7 MiB is free.*larger tiles"):
        op_list(problem, "C")


def test_many_local_multiplies_are_noted_before_their_schedule_is_made(monkeypatch, caplog):
    """Each of 4 ranks multiplies with the tile of every rank: 16."""
    oplist._note.cache_clear()
    monkeypatch.setattr(oplist, "MANY_OPS", 15)
    problem = Problem(m=64, n=64, k=64, ranks=4)
    for _ in range(2):
        op_list(problem)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("note: these layouts take 16 local multiplies, whose actions need some 31.2 KiB")

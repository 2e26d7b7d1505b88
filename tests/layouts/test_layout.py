"""Layouts: their text against a second reading of it, whole replicas, equality, and their use."""

import os
import pickle
import re
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference.plain_layout import plain_layout
from strategies import SIZES, edge_texts, grids, layout_texts, problems, stationaries

import umm
from umm import Interval, Layout, Problem
from umm.errors import LayoutError
from umm.layouts.places import ORDERS, arranged, on_mesh


@st.composite
def shaped_texts(draw):
    shape, ranks = (draw(SIZES), draw(SIZES)), draw(st.integers(1, 16))
    return draw(layout_texts(shape, ranks)), shape, ranks


layouts = shaped_texts().map(lambda drawn: Layout.parse(*drawn))


@given(shaped_texts(), st.data())
def test_a_text_form_means_the_same_edges_owners_and_replicas(drawn, data):
    text, shape, ranks = drawn
    ours, plain = Layout.parse(text, shape, ranks), plain_layout(text, shape, ranks)
    tiles = plain.tiles()
    assert ours.grid_shape() == (len(plain.row_edges) - 1, len(plain.col_edges) - 1)
    assert [tuple(map(tuple, ours.tile_bounds(t))) for t in tiles] == [plain.bounds(t) for t in tiles]
    assert ours.replicas == plain.replicas
    for replica in range(plain.replicas):
        assert [ours.owner(t, replica) for t in tiles] == [plain.owner(t, replica) for t in tiles]
    for rank in range(ranks):
        replica = plain.replica(rank)
        assert ours.replica(rank) == replica
        assert ours.tiles_of(rank) == [t for t in tiles if plain.owner(t, replica) == rank]
    rows, cols = (sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n)))) for n in shape)
    assert ours.overlapping_tiles(Interval(*rows), Interval(*cols)) == plain.overlapping(rows, cols)


@pytest.mark.parametrize(
    ("text", "shape", "ranks", "rows", "cols", "owners"),
    [
        ("row", (10, 6), 4, [0, 3, 6, 9, 10], [0, 6], [[0, 1, 2, 3]]),
        ("row:balanced", (10, 6), 4, [0, 3, 6, 8, 10], [0, 6], [[0, 1, 2, 3]]),
        ("row", (5, 6), 4, [0, 2, 4, 5, 5], [0, 6], [[0, 1, 2, 3]]),
        ("col@2", (6, 5), 4, [0, 6], [0, 3, 5], [[0, 1], [2, 3]]),
        ("col@3:interleaved", (6, 5), 6, [0, 6], [0, 3, 5], [[0, 3], [1, 4], [2, 5]]),
        ("2d", (4, 7), 6, [0, 2, 4], [0, 3, 6, 7], [[0, 1, 2, 3, 4, 5]]),
        ("2d@2", (4, 7), 14, [0, 4], [0, 1, 2, 3, 4, 5, 6, 7], [[*range(7)], [*range(7, 14)]]),
        ("2d:3x2:balanced", (4, 7), 6, [0, 2, 3, 4], [0, 4, 7], [[0, 1, 2, 3, 4, 5]]),
        ("2d:2x2@2:interleaved", (4, 4), 8, [0, 2, 4], [0, 2, 4], [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ("cyclic:4x3:2x1@2", (9, 7), 4, [0, 4, 8, 9], [0, 3, 6, 7], [[0] * 3 + [1] * 3 + [0] * 3,
                                                                     [2] * 3 + [3] * 3 + [2] * 3]),
        ("edges:0-3-3-8x0-5-9:1x2", (8, 9), 2, [0, 3, 3, 8], [0, 5, 9], [[0, 1, 0, 1, 0, 1]]),
        ("2d:colmajor", (4, 6), 6, [0, 2, 4], [0, 2, 4, 6], [[0, 2, 4, 1, 3, 5]]),
        ("2d:2x2:colmajor@2:interleaved", (4, 4), 8, [0, 2, 4], [0, 2, 4], [[0, 4, 2, 6], [1, 5, 3, 7]]),
        ("2d@2x2x2:-rc", (4, 4), 8, [0, 2, 4], [0, 2, 4], [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("2d@2x2x2:r-c", (4, 4), 8, [0, 2, 4], [0, 2, 4], [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("2d@2x2x2:cr-", (4, 4), 8, [0, 2, 4], [0, 2, 4], [[0, 4, 2, 6], [1, 5, 3, 7]]),
        ("row@2x2x2:r-r", (4, 4), 8, [0, 1, 2, 3, 4], [0, 4], [[0, 1, 4, 5], [2, 3, 6, 7]]),
        ("cyclic:2x4@2x2:cr", (4, 8), 4, [0, 2, 4], [0, 4, 8], [[0, 2, 1, 3]]),
        ("col@2:3-0-1-2", (4, 4), 4, [0, 4], [0, 2, 4], [[3, 0], [1, 2]]),
    ],
)  # fmt: skip
def test_text_forms_worked_by_hand(text, shape, ranks, rows, cols, owners):
    """Uneven sizes by ceil unless balanced; places row-major unless the text says where they lie."""
    ours, plain = Layout.parse(text, shape, ranks), plain_layout(text, shape, ranks)
    assert (ours.row_edges.tolist(), ours.col_edges.tolist()) == (rows, cols)
    assert (plain.row_edges, plain.col_edges) == (rows, cols)
    assert ours.replica_owners.tolist() == owners
    assert [[plain.owner(t, r) for t in plain.tiles()] for r in range(plain.replicas)] == owners


@given(layouts)
def test_the_text_of_a_layout_means_that_layout(layout):
    again = Layout.parse(str(layout), layout.shape, layout.ranks)
    assert (again, hash(again), str(again)) == (layout, hash(layout), str(layout))
    assert again.cuts == layout.cuts
    assert np.array_equal(again.places, layout.places)


@pytest.mark.parametrize(
    "text",
    [
        "2d:2x3@2",
        "2d:3x2:balanced@2:interleaved",
        "cyclic:2x1:1x6:colmajor@2",
        "2d:2x3@2:11-0-1-2-3-4-5-6-7-8-9-10",
    ],
)
def test_a_layout_made_of_edges_and_places_writes_them(text):
    made = Layout.parse(text, (7, 9), 12)
    edges = made.row_edges, made.col_edges
    same = Layout((7, 9), *edges, made.process_grid, replicas=2, places=made.places)
    assert str(same).startswith("edges:0-")
    assert str(same).partition("@")[2] == text.partition("@")[2]
    assert Layout.parse(str(same), (7, 9), 12) == same == made


@given(layouts)
def test_every_replica_is_whole_and_every_rank_has_one_place(layout):
    assert sorted(layout.places.reshape(-1).tolist()) == list(range(layout.ranks))
    replica, row, col = layout.place_of_rank
    assert np.array_equal(layout.places[replica, row, col], np.arange(layout.ranks))
    for number in range(layout.replicas):
        assert set(layout.owners[number].reshape(-1)) <= set(np.flatnonzero(layout.replica_of_rank == number))
        elements = layout.elements_of_rank[layout.replica_of_rank == number].sum()
        assert elements == layout.shape[0] * layout.shape[1]


@given(layouts)
def test_the_tiles_of_a_rank_fill_its_memory_one_after_another(layout):
    owner, replica, i, j = layout.tiles_by_owner
    for rank in range(layout.ranks):
        tiles = list(zip(i[owner == rank].tolist(), j[owner == rank].tolist(), strict=True))
        assert tiles == layout.tiles_of(rank)
        assert set(replica[owner == rank]) <= {layout.replica(rank)}
        filled = 0
        for tile in tiles:
            assert layout.tile_starts[layout.replica(rank), *tile] == filled
            filled += layout.tile_shape(tile)[0] * layout.tile_shape(tile)[1]
        assert filled == layout.elements_of_rank[rank]


# Orders and meshes --------------------------------------------------------------------------------


@given(grids(12), st.sampled_from([1, 2, 3]), st.booleans())
def test_the_named_orders_are_meshes(grid, replicas, colmajor):
    """Blocked counts replicas slowest, interleaved fastest; column-major swaps rows and columns."""
    (rows, cols), inner = grid, "cr" if colmajor else "rc"
    of_grid = (cols, rows) if colmajor else (rows, cols)
    blocked, interleaved = (arranged((rows, cols), replicas, order, colmajor) for order in ORDERS)
    assert np.array_equal(blocked, on_mesh((replicas, *of_grid), "-" + inner))
    assert np.array_equal(interleaved, on_mesh((*of_grid, replicas), inner + "-"))


def test_the_axes_of_one_use_count_together():
    """On 2 x 3 x 2 with rows on the outer axes, rank 7 = (1, 0, 1) has row 1 · 2 + 1 and replica 0."""
    places = on_mesh((2, 3, 2), "r-r")
    assert places.shape == (3, 4, 1)
    assert np.argwhere(places == 7).tolist() == [[0, 3, 0]]


def test_the_examples_of_the_reference_page_are_right():
    """Its table shows, for eight ranks, those of each replica, the rows of the process grid split by /."""
    page = (Path(__file__).parents[2] / "docs/reference/layouts.md").read_text()
    rows = re.findall(r"^\| `(2d\S*)` \|.*\| `([0-9 /]+)`, `([0-9 /]+)` \|$", page, flags=re.MULTILINE)
    assert len(rows) == 7
    for text, *replicas in rows:
        shown = [[[*map(int, row.split())] for row in replica.split("/")] for replica in replicas]
        assert Layout.parse(text, (4, 4), 8).places.tolist() == shown


# Equality -----------------------------------------------------------------------------------------


def test_a_layout_from_another_process_is_found_among_equal_ones():
    make = "import pickle, sys, umm; x = umm.Layout.parse('row@2', (8, 6), 4); hash(x)"
    code = f"{make}; sys.stdout.buffer.write(pickle.dumps(x))"
    seeded = {**os.environ, "PYTHONHASHSEED": "1"}
    told = subprocess.run([sys.executable, "-c", code], env=seeded, capture_output=True, check=True)
    assert pickle.loads(told.stdout) in {Layout.parse("row@2", (8, 6), 4)}


def test_layouts_that_differ_only_in_empty_tiles_are_equal():
    """10 rows in two tiles of 5 on 4 ranks, with and without two empty tiles after them."""
    short = Layout.parse("cyclic:5x8:4x1", (10, 8), 4)
    long = Layout.parse("edges:0-5-10-10-10x0-8:4x1", (10, 8), 4)
    assert (short.grid_shape(), long.grid_shape()) == ((2, 1), (4, 1))
    assert short == long
    assert hash(short) == hash(long)
    assert short.cuts != long.cuts
    assert short != Layout.parse("edges:0-5-5-10-10x0-8:4x1", (10, 8), 4)  # rows 5 … 9 at rank 2


@given(grids(6), st.integers(1, 9), st.integers(1, 9), st.data())
def test_empty_tiles_anywhere_change_nothing_while_the_others_keep_their_owners(grid, rows, cols, data):
    """As many empty tile rows at once as the process grid has rows."""
    text = "x".join(data.draw(edge_texts(size)) for size in (rows, cols)) + f":{grid[0]}x{grid[1]}"
    layout = Layout.parse(f"edges:{text}", (rows, cols), 6)
    edges = layout.row_edges.tolist()
    at = data.draw(st.integers(0, len(edges) - 1))
    wider = Layout((rows, cols), edges[:at] + [edges[at]] * grid[0] + edges[at:], layout.col_edges, grid)
    assert wider == layout
    assert hash(wider) == hash(layout)


def test_ranks_without_elements_still_tell_replicas_apart():
    """One row on two replicas of two ranks: ranks 2 and 3 hold nothing, but get from different replicas."""
    one, other = (Layout.parse(f"row@2:{ranks}", (1, 4), 4) for ranks in ("0-2-1-3", "0-3-1-2"))
    assert one.elements_of_rank.tolist() == other.elements_of_rank.tolist() == [4, 4, 0, 0]
    assert one != other


@pytest.mark.parametrize("stationary", ["A", "B", "C"])
def test_equal_layouts_with_other_tile_numbers_are_not_mixed_up(stationary):
    """Whichever is scheduled first, each product is right and each row names a tile of its own layout."""
    shape, machine = (6, 6), umm.machine("pvc-12")
    texts = "edges:0-3-6x0-6:2x1@2", "edges:0-3-3-3-6x0-6-6:2x1@2"
    assert Layout.parse(texts[0], shape, 4) == Layout.parse(texts[1], shape, 4)
    a = np.arange(36.0).reshape(shape)
    for text in (*texts, *texts):
        problem = Problem(m=6, n=6, k=6, a=text, b=text, c=text, ranks=4, dtype="float64")
        schedule = umm.schedule(problem, machine, stationary=stationary, final="broadcast")
        assert np.array_equal(umm.run(schedule, executor="numpy", operands=(a, a)).result, a @ a)


# Use ----------------------------------------------------------------------------------------------


@given(problems(max_ranks=8), stationaries, st.sampled_from(["direct", "greedy"]))
def test_a_product_over_any_layouts_is_exact(problem, stationary, policy):
    """Whole numbers, so that every sum is exact in any order."""
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(np.float64) for x in "AB")
    schedule = umm.schedule(problem, umm.machine("pvc-12"), stationary=stationary, policy=policy)
    assert np.array_equal(umm.run(schedule, executor="numpy", operands=(a, b)).result, a @ b)


@pytest.mark.parametrize("c", ["2d@2x2x2:rc-", "2d@2x2x2:c-r", "2d:2x2:colmajor@2", "2d@2:7-6-5-4-3-2-1-0"])
def test_a_3d_multiply_over_a_mesh_is_exact(c):
    """m, n and k are cut along axes 0, 1 and 2 of 2 x 2 x 2; C as well, or in another way."""
    problem = Problem(m=7, n=9, k=8, a="2d@2x2x2:r-c", b="2d@2x2x2:-cr", c=c, ranks=8, dtype="float64")
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-8, 9, problem.shape(x)).astype(np.float64) for x in "AB")
    for stationary in "ABC":
        schedule = umm.schedule(problem, umm.machine("h100-8"), stationary=stationary)
        assert np.array_equal(umm.run(schedule, executor="numpy", operands=(a, b)).result, a @ b)


# What is refused ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("balanced", "'balanced' is not a layout; write row, col, 2d"),
        ("2d@", "'2d@' is not a layout"),
        ("cyclic:2x2", "cyclic:2x2 lacks its process grid"),
        ("row@3", "8 ranks cannot hold 3 equal replicas; choose from 1, 2, 4, 8"),
        ("2d:3x2", "has 6 places, but a replica has 8 ranks; choose from 1x8, 2x4, 4x2, 8x1"),
        ("2d@2:sideways", "replicas cannot be ordered 'sideways'; choose blocked or interleaved"),
        ("2d@2x4", "2d@2x4: say what each axis of the mesh 2x4 is for"),
        ("2d@2x4:rcc", "a mesh of 2x4 needs a letter for each axis, not 'rcc': r cuts rows"),
        ("2d@2x2:rc", "2d@2x2:rc: a mesh of 4 ranks cannot be laid over 8"),
        ("row@2x4:rc", "the axes of the mesh make a process grid of 2x4, but the layout has one of 8x1"),
        ("2d:4x2@2x4:rc", "the axes of the mesh make a process grid of 2x4, but the layout has one of 4x2"),
        ("2d:colmajor@2x4:rc", "says already where the places lie; leave out colmajor"),
        ("row@1:0-1-2-3-4-5-6-6", "ranks 0-1-2-3-4-5-6-6 cannot have the places of 1 x 8 x 1; list each of"),
        ("row@1:0-1", "ranks 0-1 cannot have the places of 1 x 8 x 1"),
        ("cyclic:2x2:2x4:balanced", "balanced belongs to row, col and 2d"),
        ("edges:0-4x0-2-4:1x8", "row edges 0-4 do not rise from 0 to 6"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_a_layout_is_refused_in_one_line(text, why):
    with pytest.raises(LayoutError) as error:
        Layout.parse(text, (6, 4), 8)
    assert why in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_rule_or_order_is_refused():
    with pytest.raises(LayoutError, match="rule 'floor' is unknown; choose from ceil, balanced"):
        Layout.block((4, 4), (2, 1), rule="floor")
    with pytest.raises(LayoutError, match="replicas cannot be ordered 'snake'"):
        Layout.block_cyclic((4, 4), (2, 2), (2, 1), order="snake")
    with pytest.raises(LayoutError, match="cannot hold -1 equal replicas"):
        Layout.block((4, 4), (2, 1), replicas=-1)


@pytest.mark.parametrize(
    ("shape", "tiles"), [((2**40, 1), "1x1"), ((2**20, 2**20), "16x16"), ((2**25, 4), "2x1")]
)
def test_more_tiles_than_can_be_kept_are_refused(shape, tiles):
    with pytest.raises(LayoutError, match="more"):
        Layout.parse(f"cyclic:{tiles}:1x2", shape, ranks=2)


def test_rows_and_columns_of_a_million_tiles_are_not_kept():
    """They were 32 MB until the layout went; the result of a call is the caller's."""
    layout = Layout.block_cyclic((4096, 4096), tile_shape=(4, 4), process_grid=(2, 2))
    tracemalloc.start()
    try:
        rows, cols = layout.tile_spans
        assert rows[-1].tolist() == cols[-1].tolist() == [4092, 4096]
        assert len(rows) == len(cols) == 2**20
        del rows, cols
        kept, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak > 2**20 * 32
    assert kept < 2**20

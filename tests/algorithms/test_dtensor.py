"""DTensor's matmul: its choice, its product in every placement, and its refusals."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import umm
from umm.algorithms.dtensor.algorithm import device_mesh
from umm.algorithms.dtensor.choice import SHARD_0, SHARD_1, Mesh, chosen_way
from umm.errors import ProblemError
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, PUT

MACHINE = umm.machine("dgx-h100x4")
ORDERS = ({"order": "rows"}, {"order": "random", "seed": 1}, {"order": "random", "seed": 2})


def assert_exact(problem, **options):
    """Whole numbers, so bit for bit, in every replica of C and in random legal orders."""
    schedule = umm.schedule(problem, MACHINE, algorithm="dtensor", **options)
    check(schedule)
    assert not races(schedule)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, problem.shape(x)).astype(float) for x in "AB")
    for order in ORDERS:
        results = umm.run(schedule, executor="numpy", operands=(a, b), replica=None, **order).results["C"]
        assert all(np.array_equal(replica, a @ b) for replica in results), order
    return schedule


def chosen(problem, placement):
    """DTensor's way on 8 GPUs of one host, A and B both in one placement."""
    shapes = problem.shape("A"), problem.shape("B")
    return chosen_way(shapes, 4, (placement,), (placement,), Mesh.of(umm.machine("h100-8"), (8,)))


@pytest.mark.parametrize(("a", "b", "c"), list(itertools.product(("row", "col", "row@4"), repeat=3)))
def test_every_pair_of_placements_gives_the_product_in_every_placement(a, b, c):
    assert_exact(umm.Problem(m=9, n=10, k=11, a=a, b=b, c=c, ranks=4, dtype="float64"))


@pytest.mark.parametrize("mesh", [(2, 2), (2, 3), (3, 2), (2, 2, 2)])
@pytest.mark.parametrize(("m", "n", "k"), [(9, 10, 11), (3, 16, 5), (8, 8, 8)])
def test_every_placement_on_several_axes_gives_the_product_in_every_placement(mesh, m, n, k):
    """Placements at random: nested cuts of one dimension, sizes that do not divide, empty tiles."""
    rng = np.random.default_rng([*mesh, m])
    for _ in range(8):
        layouts = {}
        for name, shape in (("a", (m, k)), ("b", (k, n)), ("c", (m, n))):
            placements = rng.choice(["Shard(0)", "Shard(1)", "Replicate"], len(mesh))
            layouts[name] = umm.Layout.from_dtensor(mesh, placements.tolist(), shape)
        problem = umm.Problem(m=m, n=n, k=k, dtype="float64", **layouts)
        assert_exact(problem, mesh="x".join(map(str, mesh)), placements="as-given")


def test_a_step_after_one_that_only_cuts_does_not_write_where_it_reads():
    """B is exchanged, cut and exchanged again; the second of these took the first one's pool slot."""
    tiles = "edges:0-1x0-2:1x4@1x2x2x2:rc-c"
    small = umm.Problem(m=1, n=2, k=1, a="row", b=tiles, c="row", ranks=8, dtype="float64", c_dtype="float64")
    assert_exact(small, mesh="2x2x2", placements="nearest")


def test_a_mesh_on_which_all_layouts_have_names_is_found():
    """2d and row have names on 2 x 4; on 8 in a row 2d has none and is brought to rows."""
    problem = umm.Problem(m=8, n=8, k=8, a="2d", b="2d", c="row@2", ranks=8)
    assert device_mesh(problem, "").ranks.shape == (2, 4)
    assert_exact(replace(problem, dtype="float64"), placements="as-given")
    assert device_mesh(replace(problem, a="row", b="col", c="row@8"), "").ranks.shape == (8,)
    assert device_mesh(replace(problem, a="cyclic:1x1:2x4"), "").ranks.shape == (8,)
    with pytest.raises(
        ProblemError, match="dtensor cannot multiply this: 8 ranks do not fit any p with mesh=2x3"
    ):
        umm.schedule(problem, MACHINE, algorithm="dtensor", mesh="2x3")


@pytest.mark.parametrize("ranks", [1, 2, 3, 6, 9, 16])
def test_sizes_that_do_not_divide_and_fewer_rows_than_ranks(ranks):
    for m, n, k in ((13, 17, 19), (3, 16, 5), (1, 2, 40)):
        assert_exact(umm.Problem(m=m, n=n, k=k, a="row", b="row", c="row", ranks=ranks, dtype="float64"))
        assert_exact(umm.Problem(m=m, n=n, k=k, a="col", b="col", c="col", ranks=ranks, dtype="float64"))


def test_layouts_it_has_no_name_for_are_brought_to_the_nearest_or_refused():
    problem = umm.Problem(m=8, n=9, k=10, a="2d", b="row", c="cyclic:2x2:2x2", ranks=4, dtype="float64")
    assert_exact(problem)
    assert_exact(
        umm.Problem(m=8, n=9, k=10, a="cyclic:2x3:1x1@4", b="2d@2", c="col@2", ranks=4, dtype="float64")
    )
    with pytest.raises(ProblemError, match=r"A 8x10 in 2d and B 10x9 in row on 4 ranks are not Replicate"):
        umm.schedule(problem, MACHINE, algorithm="dtensor", placements="as-given")


def test_row_blocks_with_empty_tiles_beside_them_are_used_where_they_are():
    """Rank 0 has rows 0 to 4 and a tile of no rows: Shard(0), though it has two tiles."""
    problem = umm.Problem(
        m=8, n=8, k=8, a="edges:0-4-4-4-8x0-8:2x1", b="row", c="row", ranks=2, dtype="float64"
    )
    assert not assert_exact(problem).work


@pytest.mark.parametrize(("m", "gathers"), [(1024, True), (2048, True), (4096, True), (8192, False)])
def test_its_choice_explains_the_published_drop_at_8k(m, gathers):
    """Column layouts of MLP-1 on 8 GPUs: A is gathered while mk < kn/8; then B is re-cut, and C summed."""
    problem = umm.Problem(m=m, n=49152, k=12288, a="col", b="col", c="col", ranks=8)
    schedule = umm.schedule(problem, "h100-8", algorithm="dtensor")
    assert np.any(schedule.kind == ACCUMULATE) != gathers
    assert np.any(schedule.kind == PUT) == gathers
    way = chosen(problem, SHARD_1)
    assert (way.a == ("Replicate",)) == gathers


def test_row_layouts_are_always_re_cut_and_summed():
    for m in (1024, 8192):
        problem = umm.Problem(m=m, n=49152, k=12288, a="row", b="row", c="row", ranks=8)
        assert chosen(problem, SHARD_0).c == ("Partial",)


def test_a_mesh_over_several_hosts_is_slower_to_it():
    """Only along the axis that leaves the host: 2 x 8 ranks fill two hosts of 8."""
    assert Mesh.of(MACHINE, (8,)).bandwidth[0] > 4 * Mesh.of(MACHINE, (16,)).bandwidth[0]
    outer, inner = Mesh.of(MACHINE, (2, 8)).bandwidth
    assert inner > 4 * outer
    for host in ("h100-8", "pvc-12"):
        assert Mesh.of(umm.machine(host), (8,)) == Mesh.of(MACHINE, (8,))


def test_a_layout_that_leaves_a_rank_without_even_an_empty_tile_is_brought_to_a_placement():
    """C 1x1 in one tile of 1x1 on 2 ranks equals row blocks, but rank 1 has no tile to name."""
    problem = umm.Problem(m=1, n=1, k=1, c="cyclic:1x1:1x2", ranks=2, dtype="float64")
    schedule = umm.schedule(problem, MACHINE, algorithm="dtensor")
    assert umm.run(schedule, "numpy", operands=([[3.0]], [[5.0]])).result == [[15.0]]


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
@pytest.mark.parametrize("layout", ["row", "col"])
def test_processes_give_the_product(layout):
    problem = umm.Problem(m=13, n=17, k=19, a=layout, b=layout, c=layout, ranks=4, dtype="float64")
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, problem.shape(x)).astype(float) for x in "AB")
    schedule = umm.schedule(problem, MACHINE, algorithm="dtensor")
    assert np.array_equal(umm.run(schedule, executor="mpi", operands=(a, b)).result, a @ b)

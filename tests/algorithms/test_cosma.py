"""COSMA: the steps it chooses, the memory it keeps to, and the bytes it moves; its products are elsewhere."""

from math import prod

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, laws
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import umm
from umm.algorithms.cosma.algorithm import ALGORITHM, Grid
from umm.algorithms.cosma.splits import nearest_cube, parts_of, ranks_of, read_strategy, strategy
from umm.algorithms.writing import counted
from umm.errors import ProblemError, ScheduleError
from umm.schedules.table.details import GEMM, GET

POWERS = st.sampled_from([16, 32, 64, 128])
RANKS = st.sampled_from([1, 2, 3, 4, 6, 8, 9, 12, 16])


def on_its_layouts(m, n, k, ranks, **options):
    native = ALGORITHM.native(umm.Problem(m=m, n=n, k=k, ranks=ranks), **ALGORITHM.chosen(options))
    problem = umm.Problem(m=m, n=n, k=k, a=native.a, b=native.b, c=native.c)
    return umm.schedule(problem, MACHINE, algorithm="cosma", **options)


@pytest.mark.parametrize(
    ("sizes", "ranks", "memory", "steps"),
    [
        ((4096, 4096, 4096), 8, 0, "pm2 pn2 pk2"),
        ((4096, 4096, 4096), 16, 0, "pm2 pn2 pk4"),
        ((4096, 4096, 64), 16, 0, "pm2 pn4 pm2"),  # 2-D: k is short
        ((64, 64, 65536), 16, 0, "pk16"),  # a sum over all
        ((8192, 49152, 12288), 8, 0, "pn4 pk2"),  # MLP-1
        ((8192, 12288, 49152), 8, 0, "pk8"),  # MLP-2
        ((8192, 12288, 49152), 8, 1.5, "pk4 sn2 sk2 sm2 sn2 pk2"),
    ],
)
def test_the_largest_dimension_is_split_first_and_in_time_where_memory_is_short(sizes, ranks, memory, steps):
    assert " ".join(map(str, strategy(sizes, ranks, memory))) == steps


@given(st.tuples(*[st.integers(1, 10**5)] * 3), st.integers(1, 200))
def test_a_grid_uses_all_ranks_and_none_is_nearer_to_cubes(sizes, ranks):
    grid = nearest_cube(sizes, ranks)
    assert prod(grid) == ranks
    edge = (prod(sizes) / ranks) ** (1 / 3)
    off = sum(abs(x / d - edge) for x, d in zip(sizes, grid, strict=True))
    alone = [(ranks, 1, 1), (1, ranks, 1), (1, 1, ranks)]
    assert all(off <= sum(abs(x / d - edge) for x, d in zip(sizes, y, strict=True)) for y in alone)


@given(st.tuples(POWERS, POWERS, POWERS), RANKS, st.sampled_from([0, 1.2, 1.5, 2, 3]))
def test_steps_make_use_of_all_ranks(sizes, ranks, memory):
    steps = strategy(sizes, ranks, memory)
    assume(steps is not None)
    assert ranks_of(steps) == ranks
    assert steps == () or read_strategy(",".join(map(str, steps))) == steps
    assert memory or prod(parts_of(steps, "s").values()) == 1


@settings(laws, max_examples=examples(30))
@given(st.tuples(POWERS, POWERS, POWERS), st.sampled_from([2, 4, 8, 16]), st.sampled_from([1.25, 1.5, 2, 3]))
def test_a_rank_holds_no_more_than_its_memory(sizes, ranks, memory):
    """Tiles and pool; of sizes that are cut evenly."""
    steps = strategy(sizes, ranks, memory)
    assume(steps is not None)
    cuts = [x * y for x, y in zip(parts_of(steps, "p").values(), parts_of(steps, "s").values(), strict=True)]
    assume(all(size % (cut * ranks) == 0 for size, cut in zip(sizes, cuts, strict=True)))
    assume(prod(cuts) <= 256)
    schedule = on_its_layouts(*sizes, ranks, memory=memory)
    assert schedule.memory_bytes.max() <= memory * schedule.problem.unreplicated_share


@settings(laws, max_examples=examples(30))
@given(st.tuples(*[st.integers(1, 40)] * 3), RANKS, st.sampled_from(["", "sm2", "sk3", "sn2,sk2"]))
def test_every_element_is_owned_once(sizes, ranks, more):
    """Over all ranks, whatever the parts in time; and a place's pieces of a block follow each other."""
    steps = strategy(sizes, ranks) + (read_strategy(more) if more else ())
    m, n, k = sizes
    grid = Grid(steps)
    for matrix, shape in {"A": (m, k), "B": (k, n), "C": (m, n)}.items():
        assert grid.layout(matrix, shape).elements_of_rank.sum() == prod(shape)
    assert sorted(grid.ranks.reshape(-1).tolist()) == list(range(ranks))


def test_a_matrix_that_a_step_leaves_whole_is_gathered_again_for_each_part_in_time_before_it():
    """16x16x16 on 2x2x1, 4 ranks: each lacks half of its blocks of A and B, 64 elements of each.

    Before both parallel steps, sn2 does not change B's bytes, for each half is got once; A is got twice.
    After both, nothing is got twice.
    """
    for steps, words in (("pm2,pn2", 128), ("sn2,pm2,pn2", 192), ("pm2,pn2,sn2", 128), ("sk2,pm2,pn2", 128)):
        moved = counted(on_its_layouts(16, 16, 16, 4, steps=steps))
        assert moved.words_received.tolist() == [words] * 4, steps


def test_overlapped_steps_have_room_for_two_and_get_while_they_multiply():
    """MLP-1 in four parts of k, all of A and B gathered anew: the first gets of a part need not wait."""
    options = {"steps": "sk4,pm2,pn4"}
    size = {"m": 8192, "n": 49152, "k": 12288, "ranks": 8}
    native = ALGORITHM.native(umm.Problem(**size), **ALGORITHM.chosen(options))
    problem = umm.Problem(**size, **dict(zip("abc", native, strict=True)))
    serial, overlapped = (
        umm.schedule(problem, "h100-8", algorithm="cosma", overlap=overlap, **options)
        for overlap in (False, True)
    )
    assert (serial.kind == GEMM).sum() == 8 * 4
    assert (serial.kind == GET).sum() == (overlapped.kind == GET).sum()
    assert overlapped.pool_bytes.max() == 2 * serial.pool_bytes.max()
    assert umm.run(overlapped).makespan_s < 0.985 * umm.run(serial).makespan_s


def test_overlapped_ranks_multiply_what_they_have_while_the_rest_comes():
    """pm2,pn4: A comes in 4 pieces of k, B in 2, so 4 gemms a rank, its own first."""
    options = {"steps": "pm2,pn4"}
    size = {"m": 16384, "n": 16384, "k": 16384, "dtype": "bfloat16", "ranks": 8}
    native = ALGORITHM.native(umm.Problem(**size), **ALGORITHM.chosen(options))
    problem = umm.Problem(**size, **dict(zip("abc", native, strict=True)))
    serial, overlapped = (
        umm.run(umm.schedule(problem, "h100-8", algorithm="cosma", overlap=overlap, **options))
        for overlap in (False, True)
    )
    assert (overlapped.schedule.kind == GEMM).sum() == 8 * 4
    assert serial.schedule.pool_bytes.tolist() == overlapped.schedule.pool_bytes.tolist()
    assert overlapped.makespan_s < 0.85 * serial.makespan_s


def test_blocks_lie_with_parts_in_time_first():
    """sk2,pk2 on 2 ranks: of both halves of k each rank has one half, so that both give for each part."""
    grid = Grid(read_strategy("sk2,pk2"))
    assert grid.layout("A", (4, 8)).owners.tolist() == [[[0, 1, 0, 1]]]
    assert [part for _, part in grid.moments()] == [{"m": 0, "n": 0, "k": 0}, {"m": 0, "n": 0, "k": 1}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": "pm2,pn2"}, "8 ranks do not fit any p with steps=pm2,pn2; choose 4"),
        ({"memory": 1.0}, "choose memory=1.25"),
        ({"memory": 2.0, "steps": "pm8"}, "leave out memory or steps"),
        ({"steps": "pm8,sk2048"}, "more than 1024 parts in time"),
    ],
)
def test_what_it_cannot_serve_is_refused_with_what_would_work(options, message):
    with pytest.raises(ProblemError, match=f"cosma cannot multiply this: .*{message}"):
        umm.schedule(umm.Problem(m=64, n=64, k=64, ranks=8), "h100-8", algorithm="cosma", **options)


@pytest.mark.parametrize("steps", ["2pm", "pm", "xm2", "pm0", "pm2;pn4"])
def test_steps_that_mean_nothing_are_refused(steps):
    with pytest.raises(ScheduleError, match="write them like pm2,sn2,pk3"):
        umm.schedule(umm.Problem(m=64, n=64, k=64, ranks=8), "h100-8", algorithm="cosma", steps=steps)


def test_its_words_are_those_of_the_grid_for_sizes_that_are_not_square():
    """64x256x128 on 8 ranks, 1x4x2: a rank gathers A along 4 ranks, and sums C along 2."""
    moved = counted(on_its_layouts(64, 256, 128, 8))
    a, c = 64 * 128 / 2 * (1 - 1 / 4), 64 * 256 / 4 * (1 - 1 / 2)
    assert np.all(moved.words_received == a + c)


@pytest.mark.parametrize("memory", [6.0, 8.0])
def test_a_limit_above_all_that_are_advised_is_refused_with_none(memory):
    """One element on 64 ranks ends in no step by any limit: the advice is no limit, which is 0."""
    problem = umm.Problem(m=1, n=1, k=1, ranks=64)
    with pytest.raises(ProblemError, match="choose memory=0, which is no limit"):
        umm.schedule(problem, umm.machine("h100-8", nodes=8), algorithm="cosma", memory=memory)

"""Parts joined to a chain: each as it was lowered, after the tiles that it reads."""

from pathlib import Path

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from strategies import problems, schedule_options, stationaries

import umm
from umm.layouts.layout import Layout
from umm.program import Chain, Map, Multiply
from umm.program.tensors import Tensor
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import ACCUMULATE, GEMM, MAP
from umm.schedules.writer.builder import Builder

MACHINE = umm.machine("h100-8")
CPUS = Path(__file__).parents[2] / "experiments/cpu/data/localhost-warm-avx2.toml"
SIGNALS = umm.machine(str(CPUS))
"""Ranks that wait for another one wait 14 µs for its signal."""
LAYOUTS = {"X": "row", "W1": "col", "W2": "row", "H": "col", "Y": "row"}
SHAPES = {"X": (8, 12), "W1": (12, 20), "W2": (20, 12), "H": (8, 20), "Y": (8, 12)}
ROLES = {"H": "work", "Y": "output"}


def mlp(ranks=4):
    """Y = relu(X·W1)·W2: two multiplies in direct execution, and the map of each tile between."""
    tensors = tuple(
        Tensor(name, Layout.parse(text, SHAPES[name], ranks), "float64", ROLES.get(name, "input"))
        for name, text in LAYOUTS.items()
    )
    layout = {tensor.name: tensor.layout for tensor in tensors}
    statements = (Multiply("H", "X", "W1"), Map("H", "relu", ("H",)), Multiply("Y", "H", "W2"))
    build = Builder("mlp", Chain("mlp", tensors, statements, ranks), MACHINE)
    for c, a, b in (("H", "X", "W1"), ("Y", "H", "W2")):
        (m, k), n = SHAPES[a], SHAPES[b][1]
        problem = umm.Problem(m=m, n=n, k=k, a=layout[a], b=layout[b], c=layout[c], dtype="float64")
        build.append(umm.schedule(problem, MACHINE), {"A": a, "B": b, "C": c}, slots="pool")
        if c == "H":
            for rank in range(ranks):
                build.map("relu", build.own("H", rank), build.own("H", rank))
    return build.schedule()


def test_a_part_waits_for_the_tiles_it_reads_and_for_no_others():
    """Each rank's relu waits for its own gemms; its first gemm of the second part for its own relu."""
    schedule = mlp()
    check(schedule)
    maps = np.nonzero(schedule.kind == MAP)[0]
    assert schedule.rank[maps].tolist() == [0, 1, 2, 3]
    for row in maps:
        assert set(schedule.kind[schedule.after_of(row)]) == {GEMM}
        assert set(schedule.rank[schedule.after_of(row)]) == {schedule.rank[row]}
    second = [i for i in np.nonzero(schedule.kind == GEMM)[0] if i > maps[-1]]
    for row in second:
        assert {int(i) for i in schedule.after_of(row)} & set(maps.tolist()) == {maps[schedule.rank[row]]}


def test_parts_keep_what_their_actions_cost():
    """The gemms of the first part take as long as alone."""
    problem = umm.Problem(m=8, n=20, k=12, a="row", b="col", c="col", dtype="float64", ranks=4)
    alone = umm.schedule(problem, MACHINE)
    joined = mlp()
    assert np.array_equal(joined.seconds[: len(alone)], alone.seconds)
    assert np.array_equal(joined.nbytes[: len(alone)], alone.nbytes)


def test_parts_share_pool_slots_by_their_key():
    """Each slot is as large as the larger of a 2x12 block of X and a 2x12 block of Y, float64."""
    schedule = mlp()
    first, second = SHAPES["X"][0] // 4 * SHAPES["X"][1] * 8, SHAPES["Y"][0] // 4 * SHAPES["Y"][1] * 8
    assert all(slots.max() == max(first, second) for slots in schedule.pools)


@settings(max_examples=examples(60))
@given(problem=problems(max_ranks=9, dtype="float32"), stationary=stationaries, options=schedule_options)
def test_a_part_alone_is_what_it_was(problem, stationary, options):
    """A part's signals are in its rows: joined parts charge none for waits inside a part."""
    part = umm.schedule(problem, SIGNALS, stationary=stationary, **options)
    build = Builder(
        part.name, problem, SIGNALS, accumulate_lanes=options["max_accumulates"], options=part.options
    )
    build.append(part, {x: x for x in "ABC"}, slots="pool")
    full = build.schedule()
    check(full)
    for column in ("kind", "rank", "seconds", "nbytes"):
        assert np.array_equal(getattr(full, column), getattr(part, column)), column
    for row in range(len(part)):
        assert set(full.after_of(row)) >= set(part.after_of(row))
    assert umm.run(full).makespan_s == umm.run(part).makespan_s


@pytest.mark.parametrize("given_", ["c=2d@3", "c=row@3", "a=row@3,c=2d@3"])
def test_operands_that_are_given_where_they_are_multiplied_cost_nothing(given_):
    """One rank a replica: however the layout is written, nothing moves, and signals are charged once."""
    size = {"m": 17, "n": 1, "k": 17, "a": "2d@3", "b": "col@1", "c": "col@3", "ranks": 3}
    options = {"stationary": "B", "granularity": "slice", "final": "all-reduce"}
    alone = umm.run(umm.schedule(umm.Problem(**size), SIGNALS, **options)).makespan_s
    joined = umm.run(umm.schedule(umm.Problem(**size, given=given_), SIGNALS, **options)).makespan_s
    assert joined == alone
    assert alone == pytest.approx(54.92e-6, rel=1e-3)


def test_products_that_add_to_one_tensor_are_added_up_before_they_move():
    """Y = A·B + D·E with every k split by four: each rank sends three tiles of sums, not of each product."""
    layouts = {"A": "col", "B": "row", "D": "col", "E": "row", "Y": "row"}
    shapes = {"A": (8, 16), "B": (16, 12), "D": (8, 16), "E": (16, 12), "Y": (8, 12)}
    tensors = tuple(
        Tensor(name, Layout.parse(text, shapes[name], 4), "float64", "output" if name == "Y" else "input")
        for name, text in layouts.items()
    )
    statements = (Multiply("Y", "A", "B"), Multiply("Y", "D", "E", beta=1.0))
    schedule = umm.schedule(Chain("both", tensors, statements, 4), MACHINE, stationary="B")
    assert ((schedule.kind == ACCUMULATE) & (schedule.src != schedule.dst)).sum() == 4 * 3
    assert (schedule.kind == GEMM).sum() == 2 * 4 * 4

"""Operands that lie elsewhere: the cost of moving them in a schedule, in its time and in a search."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command import record
from command import umm as command
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import finals, layout_texts, problems, stationaries

import umm
from umm.algorithms.writing import counted
from umm.errors import ProblemError
from umm.executor import executor
from umm.layouts.layout import Layout
from umm.machines.settings import numbers, with_settings
from umm.plans.redistribution.fastest import OF_MULTIPLIES, move, moves_of
from umm.plans.redistribution.ways import lowered, program, ways_of
from umm.schedules.schedule import Schedule
from umm.space import Space, search
from umm.space.bounds.moves import lacking, least_moving

H100 = umm.machine("h100-8")
CALIBRATED = str(Path(__file__).parents[2] / "experiments/cpu/data/localhost-all-avx2.toml")
SMALL = {"m": 512, "n": 3072, "k": 768}
simulated = executor("sim").makespan


@st.composite
def given_problems(draw):
    """A problem on at most 8 ranks, with places elsewhere for some of its operands."""
    problem = draw(problems(max_ranks=8, dtype="float32"))
    names = draw(st.sets(st.sampled_from("abc"), min_size=1))
    where = {x: draw(layout_texts(problem.shape(x.upper()), problem.p)) for x in sorted(names)}
    return replace(problem, given=where)


@settings(max_examples=examples(60))
@given(given_problems(), stationaries, finals, st.sampled_from(["h100-8", "pvc-12"]))
def test_bringing_adds_its_time_its_memory_and_nothing_to_the_product(problem, stationary, final, name):
    """The makespan is that of the multiply and of each matrix moved; given matrices are held beside."""
    machine = umm.machine(name)
    full = umm.schedule(problem, machine, stationary=stationary, final=final)
    part = umm.schedule(replace(problem, given=""), machine, stationary=stationary, final=final)
    taken = moves_of(problem, machine, final)
    seconds = simulated(part) + sum(x.seconds for x in taken.values())
    assert simulated(full) == pytest.approx(seconds, rel=1e-9)
    extra = sum(problem.tensors["ABC".index(x)].nbytes_of_rank for x in taken)
    assert (full.memory_bytes == part.memory_bytes + extra).all()
    again = Schedule.from_json(full.to_json())
    assert again.problem == problem
    rng = np.random.default_rng(0)
    a, b = (rng.random(problem.shape(x), dtype=np.float32) for x in "AB")
    product = umm.run(again, executor="numpy", operands=(a, b)).result
    np.testing.assert_allclose(product, a.astype(float) @ b.astype(float), rtol=1e-5)


@given(st.data())
def test_a_rank_lacks_what_it_gets(data):
    ranks = data.draw(st.integers(1, 8))
    shape = data.draw(st.tuples(st.integers(1, 40), st.integers(1, 40)))
    x, y = (Layout.parse(data.draw(layout_texts(shape, ranks)), shape, ranks) for _ in range(2))
    lacks = lacking(x, y)
    if x == y:
        assert not lacks.any()
        return
    moved = counted(lowered(program(x, y, "float32"), H100, "gets"))
    assert moved.words_received.tolist() == lacks.tolist()


@pytest.mark.parametrize("name", ["h100-8", CALIBRATED])
def test_a_search_with_given_operands_finds_what_simulating_everything_finds(name):
    """Points whose A and B are moved from rows, and C to columns; the second machine knows CPU caches."""
    machine = umm.machine(name)
    some = {"partitions": ("row", "col"), "replication": (1, 2), "stationary": "B"}
    some |= {"granularity": "tile", "final": "reduce"}
    space = Space(**SMALL, **some, given="a=row,b=row,c=col")
    result = search(space, machine, memory=None, top=10)
    points = space.on(machine.default_ranks).points()
    everything = []
    for point in points.allowed.tolist():
        schedule = points.schedule(point, machine)
        time = float(f"{simulated(schedule):.9e}")
        everything.append((time, int(schedule.memory_bytes.max()), points.text(point)[:4]))
    shown = [
        (float(f"{x.makespan_s:.9e}"), x.memory_bytes, (x.problem.a, x.problem.b, x.problem.c, x.stationary))
        for x in result.top
    ]
    assert result.proven
    assert shown == sorted(everything)[:10]


@pytest.mark.parametrize("where", ["a=col", "b=2d", "c=row@2"])
@pytest.mark.parametrize("name", ["h100-8", "pvc-12"])
def test_no_floor_is_above_what_bringing_takes(name, where):
    machine = umm.machine(name)
    points = Space(**SMALL, given=where, replication=(1, 4)).on(machine.default_ranks).points()
    seconds, memory = least_moving(points, machine)
    (x, outside), axis = next(iter(points.given.items())), 2 + "abc".index(where[0])
    floors = np.moveaxis(seconds, axis, 0).reshape(len(points.choices[axis - 2]), -1)[:, 0]
    for layout, floor in zip(points.choices[axis - 2], floors.tolist(), strict=True):
        ends = (layout, outside) if x == "C" else (outside, layout)
        took = move(*ends, machine, "float32").seconds
        assert 0 <= floor <= took
        assert (floor > 0) == (took > 0) == (layout != outside)
    assert memory.max() == outside.elements_of_rank.min() * 4


@pytest.mark.parametrize("name", ["frontera-rtx", "pvc-12", "dgx-h100x4"])
def test_only_numbers_that_copies_depend_on_change_what_bringing_takes(name):
    """Where only another number is another every way takes as long, and is not looked for again."""
    machine = umm.machine(name)
    x, y = (Layout.parse(text, (16, 12), ranks=machine.default_ranks) for text in ("row", "col@2"))
    chain = program(x, y, "float32")

    def took(target):
        return [simulated(lowered(chain, target, way)) for way in ways_of(chain, target)]

    result, all_ways = move(x, y, machine, "float32"), took(machine)
    assert result.seconds == min(all_ways)
    others = [
        x.key for x in numbers(machine.document) if x.path[0] == "devices" and x.path[1] in OF_MULTIPLIES
    ]
    assert took(with_settings(machine, dict.fromkeys(others, "x0.5"))) == all_ways
    for key in others:
        assert move(x, y, with_settings(machine, {key: "x0.5"}), "float32") is result
    slower = with_settings(machine, {"transfer_overhead": "x2"})
    assert move(x, y, slower, "float32").seconds > result.seconds


def test_replicating_a_from_rows_moves_seven_shares_to_every_rank():
    """8 ranks get 7/8 of 8192x4096 float32 each: 112 MiB times 8."""
    asked = ["-m", 8192, "-n", 1024, "-k", 4096, "--a", "row@8", "--b", "col", "--c", "col"]
    replicated = record("simulate", *asked)["predicted"]
    from_row = record("simulate", *asked, "--given", "a=row")["predicted"]
    assert from_row["get_bytes"] - replicated["get_bytes"] == 7 * 8192 * 4096 * 4
    assert from_row["makespan_s"] > replicated["makespan_s"]


def test_where_operands_are_given_is_read_and_written_in_one_form():
    problem = umm.Problem(m=8, n=8, k=8, ranks=4, given={"c": "col", "a": "2d"})
    assert problem.given == "a=2d,c=col"
    assert replace(problem, given=" c=col a=2d ") == problem
    assert [str(x.layout) for x in problem.tensors] == ["2d", "row", "col"]
    assert problem.to_dict()["given"] == "a=2d,c=col"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("row", "write it like a=row,c=col@2"),
        ("a=row,a=col", "write it like"),
        ("x=row", "'x' is not a matrix; choose from a, b, c"),
        (3, "given is int"),
    ],
)
def test_what_does_not_say_where_operands_are_is_refused_in_a_line(given, says):
    with pytest.raises(ProblemError, match=says):
        umm.Problem(m=8, n=8, k=8, ranks=4, given=given)


def test_a_layout_that_is_none_is_refused_by_every_command():
    asked = ["-m", 64, "-n", 64, "-k", 64, "--given", "a=rows"]
    for name in ("simulate", "search", "run", "compare"):
        result = command(name, *asked)
        assert result.exit_code == 2
        assert "'rows' is not a layout" in result.stderr

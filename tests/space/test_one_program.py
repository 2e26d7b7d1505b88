"""A multiply is a program of one statement: asked either way, a search gives one answer."""

import random

import pytest

import umm
from umm.program import Multiply, Outline, Shape

NAMES = ("X", "W", "Y")


def as_chain(m, n, k, dtype, given):
    """The same multiply as a chain whose tensors have other names."""
    shapes = ((m, k, "input"), (k, n, "input"), (m, n, "output"))
    tensors = (Shape(x, rows, cols, dtype, role) for x, (rows, cols, role) in zip(NAMES, shapes, strict=True))
    elsewhere = {NAMES["abc".index(x)]: text for x, text in given.items()}
    return Outline("product", tuple(tensors), (Multiply("Y", "X", "W"),), given=elsewhere)


@pytest.mark.parametrize("number", range(20))
def test_a_multiply_and_its_chain_have_one_answer(number):
    """Sizes, machines, budgets, operands that start elsewhere; c_dtype is that of a chain's output."""
    rng = random.Random(number)
    machine, ranks = rng.choice([("h100-8", 4), ("h100-8", 8), ("pvc-12", 6), ("tpu-v5e-4", 4)])
    dtype = "bfloat16" if machine == "tpu-v5e-4" else "float32"
    m, n, k = (rng.choice([256, 1000, 4096]) for _ in range(3))
    given = {x: rng.choice(["row", "col"]) for x in "ab" if rng.random() < 0.3}
    more = {"ranks": ranks, "stationary": rng.choice([None, "A", ("B", "C")])}
    asked = {"machine": machine, "memory": rng.choice(["3x", "device", None]), "top": 4}
    chain = umm.Space(chain=as_chain(m, n, k, dtype, given), **more)
    result = [
        umm.search(x, **asked) for x in (umm.Space(m, n, k, dtype, c_dtype=dtype, given=given, **more), chain)
    ]
    one, other = ([x.to_dict() for x in f.top] for f in result)
    assert one == other
    assert result[0].proven
    assert [x.to_dict() for x in result[0].frontier] == [x.to_dict() for x in result[1].frontier]


def test_layouts_of_a_chains_tensors_are_those_of_the_matrices():
    """By the names that the chain has, or for all at once."""
    chain = as_chain(64, 48, 32, "float32", {})
    named = umm.Space(chain=chain, ranks=4, layouts={"X": "row", "Y": "col,2d"}).points()
    x, _, y = (list(map(str, each)) for each in named.choices)
    assert (x, y) == (["row"], ["col", "2d"])
    alike = umm.Space(chain=chain, ranks=4, layouts=("row", "col")).points()
    assert all(list(map(str, x)) == ["row", "col"] for x in alike.choices)


def test_several_statements_have_a_front_and_numbers_that_matter():
    """Less memory takes longer; half of the peak costs much, half of a latency little."""
    block = umm.chain("mlp", hidden=1024, ffn=4096, tokens=2048)
    space = umm.Space(chain=block, ranks=2)
    result = umm.search(space, "h100-8", top=1)
    memory, seconds = zip(*((x.memory_bytes, x.makespan_s) for x in result.frontier), strict=True)
    assert list(memory) == sorted(memory)
    assert list(seconds) == sorted(seconds, reverse=True)
    assert len(memory) > 1
    answer = umm.sensitivity(space, "h100-8", reach=1.5)
    moved = {x.what: abs(x.half_s / answer.choice.makespan_s - 1) for x in answer.moves}
    assert moved["peak.float32"] > 0.3 > moved["fabric.latency"]

"""Chains on several nodes: bounds that hold however operands move, and layouts over nodes in the search."""

import random

import pytest

import umm
from umm.space.pricing.assignments import pricer_of

MACHINE = umm.machine("dgx-h100x4")


@pytest.mark.parametrize("movement", ["auto", "chunks", "flat"])
def test_no_assignment_on_nodes_beats_its_bound(movement):
    """16 ranks in two nodes, layouts over nodes among the choices, sizes at which collectives take long."""
    chain = umm.chain("gated-mlp", hidden=512, ffn=1024, tokens=1024, backward=True, dtype="bfloat16")
    space = umm.Space(chain=chain, ranks=16, movement=movement, layouts=LAYOUTS)
    pricer, draw = pricer_of(space, MACHINE), random.Random(movement)
    for number in draw.sample(range(pricer.points.count), 3):
        place = pricer.points.at(number)
        bound = pricer.bound(place)
        assert 0 < bound <= pricer.simulated(place, bound)[1].makespan_s
    assert pricer.respected


LAYOUTS = {
    "X": ("row", "row@2x8:r-"), "Y": ("row", "row@p"), "W1": ("col", "col@2x8:-c", "row"),
    "W3": ("col", "col@2x8:-c"), "W2": ("row", "row@2x8:-r"), "H1": ("col", "2d@2x8:rc", "row"),
}  # fmt: skip


def test_a_search_on_nodes_chooses_among_the_layouts_of_schemes():
    chain = umm.chain("mlp", hidden=512, ffn=1024, tokens=1024)
    space = umm.Space(chain=chain, ranks=16).over(MACHINE)
    choices = dict(zip((x[0] for x in space.points().groups), space.points().choices, strict=True))
    assert {"row@2x8:r-"} <= set(choices["X"])
    assert {"col@2x8:-c", "row@2x8:-r"} <= set(choices["W1"])
    assert space.over(umm.machine("h100-8")) == space


def test_the_answer_names_how_each_statement_moves_what_it_needs():
    chain = umm.chain("mlp", hidden=512, ffn=1024, tokens=1024).laid_out("sp8-dp2", ranks=16)
    made = umm.schedule(chain, MACHINE)
    assert made.options["moved_by"] == "H: X gathered within its node; Y: Y reduce-scattered within its node"
    sharded = umm.schedule(
        umm.chain("mlp", hidden=512, ffn=1024, tokens=1024).laid_out("fsdp16", 16), MACHINE
    )
    assert sharded.options["moved_by"] == "H: W1 gathered by level; Y: W2 gathered by level"

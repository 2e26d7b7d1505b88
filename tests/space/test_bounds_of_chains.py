"""Bounds of programs of several statements: never above a makespan, in any layouts that a space has."""

import random

import pytest
from drawn_spaces import drawn_point
from examples import examples

import umm
from umm.layouts.layout import Layout
from umm.plans.multiply.options import Options
from umm.program import Multiply
from umm.program.tensors import Tensor
from umm.space import Space, search
from umm.space.bounds.statement_work import statement_work
from umm.space.pricing.multiplies import pricer_of


@pytest.mark.parametrize("seed", range(examples(100)))
def test_no_point_that_a_search_might_leave_out_beats_its_bound(seed):
    """Any kind of statement, layout, movement and machine; ``make test-laws`` draws more."""
    drawn = drawn_point(random.Random(seed))
    if drawn is not None:
        drawn.pricer.simulated(drawn.place, drawn.pricer.bound(drawn.place))
        assert drawn.pricer.respected, drawn.words


@pytest.mark.parametrize("seed", range(examples(60)))
def test_no_decode_step_with_weights_of_few_bits_beats_its_bound(seed):
    """One layer, wide, on one rank or several: multiplies side by side save a different share each."""
    drawn = drawn_point(random.Random(seed), decode=True)
    if drawn is not None:
        drawn.pricer.simulated(drawn.place, drawn.pricer.bound(drawn.place))
        assert drawn.pricer.respected, drawn.words


def test_equal_multiplies_beside_others_of_unlike_width_have_bounds_of_their_own():
    """V adds 6.01 µs to Q's kernel; K, of V's shape, adds 0.05 to the kernel of both."""
    sizes = {"hidden": 8192, "ffn": 28672, "heads": 64, "kv_heads": 8, "batch": 8, "context": 64}
    chain = umm.chain("transformer-layer", dtype="bf16", weights="int4", decode=True, **sizes)
    space, machine = Space(chain=chain, ranks=1, layouts=("row",)), umm.machine("h100-8")
    spans = {}
    for statement, table in zip(
        chain.statements, pricer_of(space.searched, machine).tables.statements, strict=True
    ):
        (work,) = table.works.values()
        spans.setdefault(statement.out, float(work.span[0]))
    assert [spans[x] for x in "VK"] == pytest.approx([6.012e-6, 0.0458e-6], rel=2e-3)
    result = search(space, machine)
    assert result.proven
    assert result.top[0].makespan_s == pytest.approx(192.4e-6, rel=1e-3)


def test_a_search_of_a_mixture_leaves_partial_products_of_experts_where_they_are_made():
    """mixtral-8x7b, 256 tokens on 8 H100: weights by two ranks an expert; however Z is cut, 167.0 µs."""
    machine = umm.machine("h100-8")
    space = Space(chain=umm.chain("moe", model="mixtral-8x7b", tokens=256, dtype="bf16"))
    result = search(space, machine)
    assert result.proven
    tied = [x.layouts for x in result.top[:3]]
    assert sorted(x["Z"] for x in tied) == ["experts/2", "experts/4", "experts/8"]
    assert {x["W2"] for x in tied} == {"experts/2"}
    assert result.top[0].makespan_s == pytest.approx(167.0e-6, rel=1e-3)


def test_gates_that_are_there_early_start_the_exchange_that_brings_rows_back():
    """By rows and in 2d Z is sent to other ranks, and the sums' exchange starts meanwhile."""
    machine = umm.machine("b200-8")
    sizes = {"tokens": 256, "hidden": 256, "ffn": 2048, "experts": 8, "top_k": 1}
    chain = umm.chain("moe", routing="balanced", dtype="bf16", **sizes)
    pricer = pricer_of(Space(chain=chain, ranks=4, layouts=("row", "2d")).searched, machine)
    rows = {x.name: "row" for x in chain.tensors}
    place = pricer.points.place(rows | {"Z": "2d"})
    _, choice = pricer.simulated(place, pricer.bound(place))
    assert choice.makespan_s == pytest.approx(98.0e-6, rel=1e-3)
    assert pricer.respected


def test_bytes_that_reach_a_rank_by_several_links_take_all_of_them():
    """A by rows is needed by every rank: 7/8 of 4 MiB over seven links of 48 GB/s, and as much out of it."""
    texts = {"A": "row", "B": "col", "C": "col"}
    tensors = {
        name: Tensor(name, Layout.parse(text, (1024, 1024), 8), "float32", "input")
        for name, text in texts.items()
    }
    machine, options = umm.machine("mi300x-8"), Options().to_dict()
    work = statement_work(Multiply("C", "A", "B"), tensors, machine, options, "C")
    assert list(work.moves) == ["A"]
    assert work.moves["A"].max(axis=1)[[1, 5]] == pytest.approx(4 * 2**20 / 8 / 48e9)
    assert (work.comes["A"] > 4 * 2**20 / 8 / 48e9).all()


def test_the_suite_refuses_a_bound_above_a_makespan():
    machine = umm.machine("h100-8")
    chain = umm.chain("mlp", tokens=64, hidden=64, ffn=64, dtype="bf16")
    pricer = pricer_of(Space(chain=chain, ranks=2, layouts=("row",)).searched, machine)
    with pytest.raises(AssertionError, match="lies above the makespan"):
        pricer.simulated(pricer.points.at(0), 1.0)

"""The statement sum: exact in every layout and by every way, and no slower than the collective that it is."""

from dataclasses import replace

import pytest
from conformance.executor_suite import MACHINE, laws
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import NODES_OF_TWO, assert_performed
from strategies import layout_texts

import umm
from umm.layouts.layout import Layout
from umm.plans.collectives.collective import able, ways
from umm.plans.lower import lower
from umm.plans.statements import sums
from umm.program import Chain, Sum
from umm.program.tensors import Tensor

RESULTS = {"all-reduce": "row@{}", "reduce-scatter": "row", "reduce": "alone"}

ONCE = (Sum("Y", "X"),)


def of_sum(x, y, shape=(8, 12), ranks=4, dtype="float64", statements=ONCE, names=("Y",)):
    """A chain of sums; ``alone`` is all at the last rank."""
    result = {"X": ("input", x)} | dict.fromkeys(names, ("output", y))
    edges = f"edges:0-{shape[0]}x{'0-' * ranks}{shape[1]}:1x{ranks}"
    tensors = tuple(
        Tensor(name, Layout.parse(edges if text == "alone" else text, shape, ranks), dtype, role)
        for name, (role, text) in result.items()
    )
    return Chain("sums", tensors, statements, ranks)


@settings(laws, max_examples=examples(40))
@given(st.data())
def test_a_sum_is_exact_in_any_layouts_and_leaves_its_operand(data):
    """Two sums of X, one of them again into the first one's result."""
    ranks, shape = data.draw(st.integers(1, 6)), (data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
    common = st.sampled_from(("row@{0}", "row", "col", "alone", "2d", "{1}")).map(
        lambda x: x.format(ranks, f"row@{ranks}x1:-r")
    )
    x = data.draw(common.filter(lambda x: x != "alone") | layout_texts(shape, ranks))
    y = data.draw(common | layout_texts(shape, ranks))
    statements = (Sum("Y", "X"), Sum("Z", "X"), Sum("Y", "X"))
    chain = of_sum(x, y, shape, ranks, statements=statements, names=("Y", "Z"))
    assert_performed(chain, data.draw(st.integers(0, 99)))


@pytest.mark.parametrize("machine", [MACHINE, NODES_OF_TWO], ids=["node", "nodes"])
@pytest.mark.parametrize("zeroed", [False, True])
@pytest.mark.parametrize("what", RESULTS)
@pytest.mark.parametrize("way", ways())
def test_a_sum_is_exact_by_every_way(monkeypatch, machine, way, what, zeroed):
    """All ranks, and two groups of two at once."""
    monkeypatch.setattr(sums, "_fastest", lambda *_: (way, zeroed))
    layouts = [("row@4", RESULTS[what].format(4))]
    layouts += [("row@2x2:-r", "row@2x2:-r")] if what == "all-reduce" else []
    for x, y in layouts:
        chain = of_sum(x, y, statements=(Sum("Y", "X"), Sum("Z", "X")), names=("Y", "Z"))
        groups = sums.collectives_of(*(tensor.layout for tensor in chain.tensors[:2]))
        if way in able(what, machine, groups.ranks, 4):
            assert_performed(chain, 1, machine=machine)


@pytest.mark.parametrize(
    "name",
    ["h100-8", "dgx-h100x4", "a100-2x4", "b200-8", "mi300x-8", "aurora-12", "pvc-12", "tpu-v5e-4"],
)
@pytest.mark.parametrize("what", ["all-reduce", "reduce-scatter"])
def test_a_sum_costs_what_its_collective_costs_alone(name, what):
    """Few bytes and many; between ranks that pass sums on, theirs are zeroed first, or got from X."""
    machine = umm.machine(name)
    p = machine.default_ranks
    for nbytes in (2**14, 2**27):
        chain = of_sum(f"row@{p}", RESULTS[what].format(p), (256, nbytes // 1024), p, "float32")
        took = umm.run(lower(chain, machine)).makespan_s
        alone = umm.run(umm.collective(what, nbytes=nbytes, machine=machine)).makespan_s
        assert alone * 0.999 <= took <= alone * (1.001 if what == "all-reduce" else 1.13)
        if what == "all-reduce":
            in_place = Chain("sum", (replace(chain.tensors[0], role="both"),), (Sum("X", "X"),), p)
            assert umm.run(lower(in_place, machine)).makespan_s == pytest.approx(alone, rel=1e-3)


def test_a_sum_by_the_library_is_by_nothing_else():
    """16 KiB on eight H100: one-shot takes least, NCCL where it is asked for."""
    chain = of_sum("row@8", "row@8", (64, 64), 8, "float32")
    assert lower(chain, "h100-8").options["moved_by"] == "Y all-reduced by one-shot"
    assert lower(chain, "h100-8", movement="library").options["moved_by"] == "Y all-reduced by NCCL"

"""umm.schedule of a chain: the same as its lowering, with a stationary matrix for each multiply."""

import pytest

import umm
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.plans.lower import lower
from umm.program import Chain, Copy
from umm.program.tensors import Tensor

MLP = umm.chain("mlp", tokens=8, hidden=4, ffn=6, backward=True)


def test_a_chain_is_scheduled_as_it_is_lowered():
    chain = MLP.laid_out("sequence", ranks=2)
    schedule = umm.schedule(chain, "h100-8", stationary="B", prefetch=1)
    assert schedule.to_json() == lower(chain, "h100-8", stationary="B", prefetch=1).to_json()
    assert schedule.options["stationary"] == "B"
    assert schedule.options["prefetch"] == 1


def test_an_outline_gets_the_ranks_of_the_machine_and_its_first_layouts():
    schedule = umm.schedule(MLP, "h100-8")
    assert schedule.program == MLP.laid_out("megatron", ranks=8)


def test_each_multiply_may_keep_another_matrix_in_place():
    chain = MLP.laid_out("sequence", ranks=2)
    schedule = umm.schedule(chain, "h100-8", stationary={"H": "B", "Y": "A"})
    assert schedule.options["stationary"] == "H=B,Y=A"
    assert umm.Schedule.from_json(schedule.to_json()).options == schedule.options


@pytest.mark.parametrize(
    ("machine", "ranks", "ends"),
    [
        ("dgx-h100x4", 32, ("row", "row@32")),
        ("tpu-v5e-16", 16, ("row", "col")),
        ("pvc-12", 12, ("col@2", "2d")),
    ],
)
def test_a_copy_takes_the_way_that_is_fastest_by_itself(machine, ranks, ends):
    """To 5 % of the fastest of all simulated ways; replicas between nodes an eighth of the time by get."""
    x, y = (Layout.parse(text, (4096, 4096), ranks) for text in ends)
    tensors = Tensor("X", x, "bfloat16", "input"), Tensor("Y", y, "bfloat16", "output")
    chain = Chain("copy", tensors, (Copy("Y", "X"),), ranks)
    result = umm.run(umm.schedule(chain, machine)).makespan_s
    best = umm.run(umm.redistribute(x, y, machine=machine, dtype="bfloat16")).makespan_s
    gets = umm.run(umm.redistribute(x, y, machine=machine, dtype="bfloat16", way="gets")).makespan_s
    assert best * (1 - 1e-9) <= result <= min(1.05 * best, gets * (1 + 1e-9))
    assert machine != "dgx-h100x4" or result < gets / 8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"algorithm": "cannon"}, "leave algorithm out"),
        ({"prefech": 1}, "prefech"),
        ({"stationary": "D"}, "'D' of H is unknown"),
        ({"stationary": {"G": "A"}}, "no multiply of chain mlp writes 'G'"),
    ],
)
def test_what_a_chain_cannot_be_scheduled_by_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        umm.schedule(MLP, "h100-8", **options)

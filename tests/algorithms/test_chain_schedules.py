"""umm.schedule of a chain: the same as its lowering, with a stationary matrix for each multiply."""

import pytest

import umm
from umm.algorithms.chains.lower import lower
from umm.errors import InputError

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

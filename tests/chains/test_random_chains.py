"""Random chains: no races, right in any legal order and on processes, simulated as replayed, in files."""

from tempfile import TemporaryDirectory

import numpy as np
import pytest
from conformance.executor_suite import MACHINE, MOST_ACTIONS, laws
from drawn_chains import drawn_chains
from examples import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from performed import assert_right
from reference import exact_replay
from strategies import offsets

import umm
from umm.checks import random_inputs
from umm.errors import InputError
from umm.plans.lower import lower
from umm.program import load_chain, save_chain
from umm.schedules.races import races
from umm.schedules.rules.invariants import check
from umm_hw.mpi.executor import MpiExecutor

options = st.fixed_dictionaries(
    {
        "stationary": st.sampled_from(["A", "B", "C", "auto"]),
        "prefetch": st.integers(0, 2),
        "max_gemms": st.integers(1, 2),
        "offset": offsets,
        "granularity": st.sampled_from(["tile", "slice"]),
        "reuse": st.booleans(),
    }
)


def lowered(chain, chosen):
    schedule = lower(chain, MACHINE, **chosen)
    assume(len(schedule) <= MOST_ACTIONS)
    check(schedule)
    return schedule


@settings(laws, max_examples=examples(60))
@given(drawn_chains(), options, st.integers(0, 99))
def test_a_random_chain_is_right_in_any_legal_order_and_has_no_races(drawn, chosen, seed):
    _, chain = drawn
    schedule = lowered(chain, chosen)
    assert races(schedule) == []
    operands = random_inputs(chain, seed)
    for order in (
        {"order": "rows"},
        {"order": "random", "seed": seed},
        {"order": "random", "seed": seed + 1},
    ):
        trace = umm.run(schedule, executor="numpy", operands=operands, replica=None, **order)
        assert_right(chain, operands, trace.results)


@pytest.fixture(scope="module")
def mpi(lent):
    return MpiExecutor(job=lent(6), replica=None)


@pytest.mark.mpi
@settings(laws, max_examples=examples(15))
@given(drawn=drawn_chains(), chosen=options, seed=st.integers(0, 99))
def test_a_random_chain_is_right_on_processes(mpi, drawn, chosen, seed):
    _, chain = drawn
    operands = random_inputs(chain, seed)
    assert_right(chain, operands, mpi.run(lowered(chain, chosen), operands).results)


@settings(laws, max_examples=examples(25))
@given(drawn_chains(), options)
def test_a_random_chain_is_simulated_as_it_is_replayed(drawn, chosen):
    schedule = lowered(drawn[1], chosen)
    assume(len(schedule) <= 300)  # exact fractions are slow
    result = umm.run(schedule).makespan_s
    assert result == pytest.approx(float(exact_replay.makespan(schedule)), rel=1e-9)


@settings(laws, max_examples=examples(60))
@given(drawn_chains())
def test_a_random_chain_comes_back_from_its_file(drawn):
    outline, chain = drawn
    with TemporaryDirectory() as folder:
        save_chain(outline, f"{folder}/chain.toml")
        again = load_chain(f"{folder}/chain.toml")
    assert again == outline
    assert again.laid_out(ranks=chain.ranks) == chain


# Dropout ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp", "gated-mlp"])
def test_dropout_drops_the_same_everywhere(name):
    """Forward and backward, by every layout on 1 to 6 ranks: one result, with the mask of the reference."""
    outline = umm.chain(name, hidden=6, ffn=10, tokens=8, backward=True, dtype="float64", dropout=0.3)
    operands = random_inputs(outline.laid_out(ranks=1))
    for layouts in outline.layouts:
        for ranks in (1, 2, 3, 6):
            chain = outline.laid_out(layouts, ranks)
            trace = umm.run(lower(chain, MACHINE), executor="numpy", operands=operands, replica=None)
            assert_right(chain, operands, trace.results)


def test_dropout_drops_about_its_rate_and_scales_what_it_keeps():
    outline = umm.chain("mlp", hidden=64, ffn=96, tokens=80, dtype="float64", dropout=0.25)
    chain = outline.laid_out(ranks=1)
    result = chain.reference(random_inputs(chain))["G"]
    plain = umm.chain("mlp", hidden=64, ffn=96, tokens=80, dtype="float64").laid_out(ranks=1)
    without = plain.reference(random_inputs(plain))["G"]
    kept = result != 0
    assert 0.22 < 1 - kept.mean() < 0.28
    np.testing.assert_allclose(result[kept], without[kept] / 0.75, rtol=1e-12)


@pytest.mark.mpi
@pytest.mark.parametrize("layouts", ["megatron", "sequence", "data"])
def test_backward_with_dropout_is_right_on_processes(mpi, layouts):
    """Six processes give the gradients of the float64 reference, in every replica."""
    outline = umm.chain("mlp", hidden=6, ffn=10, tokens=8, backward=True, dtype="float64", dropout=0.3)
    chain = outline.laid_out(layouts, 6)
    operands = random_inputs(chain)
    assert_right(chain, operands, mpi.run(lower(chain, MACHINE), operands).results)


def test_dropout_where_there_is_none_is_refused():
    with pytest.raises(InputError, match="chain attention has no MLP"):
        umm.chain("attention", hidden=8, heads=2, tokens=4, dropout=0.1)
    with pytest.raises(InputError, match=r"rate of dropout = 1\.0 is not possible"):
        umm.chain("mlp", hidden=8, ffn=2, tokens=4, dropout=1.0)


def test_a_multiply_gets_the_slices_that_it_needs():
    """Y's two rows at each rank read 2 × 2 elements of three tiles of H, each 8 × 2: 48 bytes, not 192."""
    layouts = {"X": "row@4", "W1": "col", "H": "col", "G": "col", "W2": "row@4", "Y": "row"}
    chain = umm.chain("mlp", hidden=8, ffn=8, tokens=8).laid_out(layouts, ranks=4)
    schedule = umm.schedule(chain, "h100-8", stationary={"Y": "C"})
    assert umm.run(schedule).get_bytes == 4 * 3 * (2 * 2) * 4
    assert schedule.options["granularity"] == "slice"


def test_a_rank_that_gets_nothing_adds_to_others_before_itself():
    """Y = H·W2, H by columns: rank r multiplies rows r + 1, r + 2, r + 3 for others, then its own."""
    layouts = {"X": "row@4", "W1": "col", "H": "col", "G": "col", "W2": "row", "Y": "row"}
    chain = umm.chain("mlp", hidden=8, ffn=32, tokens=8).laid_out(layouts, ranks=4)
    schedule = umm.schedule(chain, "h100-8", stationary={"Y": "A"})
    frame = umm.run(schedule).to_frame()
    adds = frame[(frame["kind"] == "accumulate") & (frame["rank"] == 1)]
    assert adds["peer"].tolist() == [2, 3, 0, 1]

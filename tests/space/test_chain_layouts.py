"""The search over a chain's layouts: bounds below every joined schedule, and the best of all of them."""

import random
from itertools import product

import numpy as np
import pytest

import umm
from umm.algorithms.chains.lower import lower
from umm.errors import InfeasibleError, InputError
from umm.executor import executor
from umm.space import ChainSpace, search_chain
from umm.space.search.chain_layouts import priced


def outline(name="mlp", backward=True, **sizes):
    return umm.chain(
        name, backward=backward, dtype="float16", **({"tokens": 96, "hidden": 128, "ffn": 256} | sizes)
    )


@pytest.mark.parametrize(
    ("machine", "ranks", "layouts", "options"),
    [
        ("h100-8", 4, ("col@2", "row@p"), {"prefetch": 0, "max_accumulates": 4}),
        ("pvc-12", 4, ("2d", "row@p"), {}),
        ("localhost", 2, ("row", "col@2"), {"granularity": "slice"}),
    ],
)
def test_no_joined_schedule_beats_its_bound(machine, ranks, layouts, options):
    """Random assignments; the schedules of localhost are of ranks that may share a device."""
    machine = umm.machine(machine)
    dtype = "float16" if "float16" in machine.peaks else "float32"
    chain = umm.chain("mlp", tokens=500, hidden=1024, ffn=2048, backward=True, dtype=dtype)
    space = ChainSpace(chain, ranks, layouts)
    bounds, held = priced(space, machine, options)
    rng, simulate = random.Random(0), executor("sim").makespan
    shape = [len(x) for x in space.choices]
    for number in rng.sample(range(len(bounds)), 6):
        schedule = lower(space.laid_out(np.unravel_index(number, shape)), machine, **options)
        assert simulate(schedule) >= bounds[number]
        assert schedule.memory_bytes.max() >= held[number]


def test_the_best_is_the_best_of_all_assignments_simulated():
    space = ChainSpace(
        outline(backward=False, tokens=2048, hidden=2048, ffn=4096), 4, ("row", "col", "row@4")
    )
    machine, simulate = umm.machine("h100-8"), executor("sim").makespan
    found = search_chain(space, machine, memory=None, top=3)
    times = sorted(
        simulate(lower(space.laid_out(place), machine))
        for place in product(*(range(len(x)) for x in space.choices))
    )
    assert found.proven
    assert found.simulated < found.priced == len(times)
    assert [x.makespan_s for x in found.top] == pytest.approx(times[:3], rel=1e-9)


def test_a_smaller_budget_is_kept_and_never_faster():
    space = ChainSpace(outline(tokens=1024, hidden=1024, ffn=2048), 4, ("col", "row@4"))
    times = []
    for memory in ("3x", "4x", None):
        found = umm.search(space, "h100-8", memory=memory, top=1)
        assert found.top[0].memory_bytes <= found.limit
        times.append(found.top[0].makespan_s)
    assert times == sorted(times, reverse=True)
    with pytest.raises(InfeasibleError, match="no layouts of chain mlp fit"):
        umm.search(space, "h100-8", memory="0.5x")


def test_a_search_that_stops_early_states_its_gap():
    space = ChainSpace(outline(), 4, ("row", "col"))
    found = search_chain(space, "h100-8", memory=None, top=1, most=2)
    assert (found.simulated, found.proven) == (2, False)
    assert 0 < found.gap < 1


def test_a_space_of_a_chain_is_asked_for_by_name():
    space = umm.Space(chain=outline(), ranks=4)
    assert isinstance(space, ChainSpace)
    assert ("H", "G", "dG", "dH") in space.groups


def test_a_chain_of_too_many_tensors_is_refused():
    layer = umm.chain("transformer-layer", tokens=8, hidden=16, ffn=8, heads=4)
    with pytest.raises(InputError, match="give fewer layouts, or a chain with fewer tensors"):
        search_chain(ChainSpace(layer, 4), "h100-8")

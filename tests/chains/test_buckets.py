"""Copies and sums that one collective does: fewer starts, the same results."""

import random

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.plans.bucket import bucket
from umm.plans.partition import Bucket
from umm.program.systems import choices_left, in_scheme
from umm.schedules.races import races
from umm.traces.traffic import bytes_by_kind

HOW = {"stationary": "auto", "movement": "auto"}


def laid_out(layer, scheme, ranks):
    """A chain in a scheme, and how it moves."""
    changed = in_scheme(scheme, layer, ranks)
    chain = changed.laid_out(changed.layouts_of(scheme, ranks), ranks)
    return chain, choices_left(chain, HOW, scheme)


def buckets_of(monkeypatch, chain, machine, how):
    """The schedule, and the tensors of each bucket in it."""
    result = []

    def noted(*args):
        statements = args[1]
        for step in bucket(*args):
            if isinstance(step, Bucket):
                result.append([statements[x].out for x in step.numbers])
            yield step

    monkeypatch.setattr("umm.plans.plan.bucket", noted)
    return umm.schedule(chain, machine, **how), result


def test_fsdp_over_nodes_gathers_a_layers_small_weights_at_once(monkeypatch):
    """Eight nodes: attention's weights start longer than they move; experts' W1 and W3 are read by
    one kernel, their W2 by the next."""
    layer = umm.chain("moe-layer", hidden=4096, ffn=4096, heads=32, kv_heads=8, experts=8, top_k=2,
                      tokens=4096, sequences=64, backward=True, dtype="bfloat16")  # fmt: skip
    machine = umm.machine("h100-8", nodes=8)
    chain, how = laid_out(layer, "ep8-fsdp8", 64)
    made, buckets = buckets_of(monkeypatch, chain, machine, how)
    assert buckets[0] == [f"W{x}.whole" for x in "qkvo"]
    assert ["dWq", "dWk", "dWv"] in buckets
    # Each tensor's bytes move as before, and each weight once.
    monkeypatch.setattr("umm.plans.plan.bucket", lambda steps, *_: steps)
    alone = umm.schedule(chain, machine, **how)
    assert bytes_by_kind(made) == bytes_by_kind(alone)
    assert umm.run(made).makespan_s < 0.96 * umm.run(alone).makespan_s


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 10**6))
def test_buckets_compute_the_layer_without_races(seed):
    """Layers of random sizes on nodes of h100-8, whole numbers, in any order that dependencies let."""
    draw = random.Random(seed)
    nodes, sizes = draw.choice((2, 3)), {"hidden": draw.choice((16, 40)), "ffn": draw.choice((16, 24))}
    ranks = 8 * nodes
    common = sizes | {"tokens": ranks * draw.choice((2, 3)), "backward": draw.random() < 0.7}
    name, scheme, more = draw.choice(
        (
            ("transformer-layer", f"fsdp{ranks}", {"heads": 4, "kv_heads": 2, "sequences": ranks}),
            ("gated-mlp", f"fsdp{nodes}-tp8", {}),
            ("gated-mlp", f"hsdp8x{nodes}", {}),
            ("moe", f"ep8-fsdp{nodes}", {"experts": 8, "top_k": 2}),
        )
    )
    chain, how = laid_out(umm.chain(name, dtype="float64", **common, **more), scheme, ranks)
    made = umm.schedule(chain, umm.machine("h100-8", nodes=nodes), **how)
    assert races(made) == []
    rng = np.random.default_rng(seed)
    operands = {x.name: rng.integers(-2, 3, x.shape) / 8 for x in chain.tensors if x.is_input}
    trace = umm.run(made, executor="numpy", operands=operands, replica=None, order="random", seed=1)
    expected = chain.reference(operands)
    for output in chain.outputs:
        for replica in trace.results[output]:
            assert np.allclose(replica, expected[output], rtol=1e-9, atol=1e-9), output


@pytest.mark.parametrize("movement", ["gathered", "chunks"])
def test_only_the_machines_library_joins(monkeypatch, movement):
    """Other ways overlap transfers tile by tile, and pay no start of a library."""
    layer = umm.chain("transformer-layer", hidden=64, ffn=64, heads=8, tokens=64, sequences=16)
    chain, how = laid_out(layer, "fsdp16", 16)
    _, buckets = buckets_of(monkeypatch, chain, umm.machine("h100-8", nodes=2), how | {"movement": movement})
    assert buckets == []

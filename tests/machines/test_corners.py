"""Machines at the ends of their numbers' ranges."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

import umm
from umm.executor import executor
from umm.machines import machine_names
from umm.machines.build import build
from umm.machines.corners import RATES, TIMES, corners
from umm.machines.decode import Decode
from umm.machines.exchange import Exchange
from umm.machines.experts import Experts
from umm.machines.prefill import Prefill
from umm.machines.quantities import BytesPerSecond, Time
from umm.machines.settings import with_settings
from umm.space.peers.contender import Stack
from umm.space.search.uncertainty import assumed_starts
from umm.space.vary import STARTS


def test_numbers_move_together_gemms_and_transfers_each_fast_or_slow():
    """h100-8: GEMMs in float32 reach 66 to 75 % of the peak, links 371 to 377 GB/s: four corners."""
    result = corners(umm.machine("h100-8"))
    ends = {(float(x.efficiency["float32"].values.max()), float(x.link_bandwidth[0])) for x in result}
    assert ends == {(share, rate) for share in (0.66, 0.75) for rate in (371e9, 377e9)}


def test_a_machine_whose_links_have_no_range_has_two_corners():
    """pvc-12 without the ranges of assumed numbers: only the share that GEMMs reach is left."""
    document = {**umm.machine("pvc-12").document}
    launch = {"value": "5 us", "source": "assumed"}
    bandwidth = {"value": "1638.4 GB/s", "source": "data sheet"}
    bare = {"launch": launch, "transfer_overhead": launch, "memory_bandwidth": bandwidth}
    latency = {"value": "1 us", "source": "assumed"}
    group = {**document["fabric"]["group"], "latency": latency}
    document["devices"] = {**document["devices"], **bare}
    document["fabric"] = {**document["fabric"], "latency": latency, "group": group}
    result = corners(build(document, Path("pvc-12.toml"), "pvc-12"))
    assert sorted(float(x.efficiency["float32"].values.max()) for x in result) == [0.93, 0.97]
    assert len({x.sha for x in result}) == len(result) == 2


def test_what_is_set_has_no_range_any_more():
    set_ = with_settings(umm.machine("h100-8"), {"fabric.bandwidth": "400GB/s"})
    assert {float(x.link_bandwidth[0]) for x in corners(set_)} == {400e9}
    assert len(corners(set_)) == 4  # what collectives take from GEMMs still has one


def test_a_machine_that_is_not_its_files_has_no_corners():
    """Its document no longer describes it."""
    machine = umm.machine("h100-8")
    assert corners(replace(machine, launch_s=1e-3)) == ()


def test_an_uncertainty_is_a_factor_either_way_and_no_share_passes_one():
    """Sure to a quarter: 4 µs is 3.2 to 5 µs; an efficiency of 0.9 is 0.72 to 1."""
    machine = umm.machine("tpu-v5e-4")
    content = {**machine.document, "devices": dict(machine.document["devices"])}
    content["devices"]["launch"] = {"value": "4 us", "source": "measured", "uncertainty": 0.25}
    content["devices"]["efficiency"] = [
        {"dtype": "bfloat16", "value": 0.9, "source": "measured", "uncertainty": 0.25}
    ]
    result = corners(build(content, machine.source_path, "x"))
    assert sorted({x.launch_s for x in result}) == pytest.approx([3.2e-6, 5e-6])
    assert sorted({float(x.efficiency["bfloat16"].values.max()) for x in result}) == pytest.approx(
        [0.72, 1.0]
    )


@pytest.mark.parametrize("text", ["4 µs", "+4 us", " 4us ", "4. us", "4000 ns"])
def test_a_time_as_files_may_write_it_is_as_uncertain_as_it_says(text):
    """A micro sign or a plus before it ended every simulation in a traceback."""
    machine = umm.machine("tpu-v5e-4")
    launch = {"value": text, "source": "measured", "uncertainty": 0.25}
    content = {**machine.document, "devices": {**machine.document["devices"], "launch": launch}}
    result = corners(build(content, machine.source_path, "x"))
    assert sorted({x.launch_s for x in result}) == pytest.approx([3.2e-6, 5e-6])


def test_a_share_that_is_written_as_a_whole_number_has_its_range():
    """Shares of 0 and of 1 were taken for counts, which no range moves."""
    machine = umm.machine("tpu-v5e-4")
    devices = dict(machine.document["devices"])
    devices["pass_share"] = {"value": 1, "source": "guess", "range": [0.5, 1]}
    devices["interference"] = {
        x: {"value": 0, "source": "guess", "range": [0, 0.3]} for x in ("get", "accumulate", "reduce")
    }
    devices["efficiency"] = [{"dtype": "bfloat16", "value": 1, "source": "x", "uncertainty": 0.25}]
    result = corners(build({**machine.document, "devices": devices}, machine.source_path, "x"))
    assert {x.pass_share for x in result} == {0.5, 1.0}
    assert {x.interference["get"] for x in result} == {0.0, 0.3}
    assert {float(x.efficiency["bfloat16"].values.max()) for x in result} == {0.8, 1.0}


def test_no_end_of_a_share_is_on_the_other_side_of_it():
    """Sure to a tenth, 1.05 of the peak was 1 at most; a loss of 0.97 was 0.95 at most."""
    machine = umm.machine("tpu-v5e-4")
    devices = dict(machine.document["devices"])
    devices["efficiency"] = [{"dtype": "bfloat16", "value": 1.05, "source": "x", "uncertainty": 0.1}]
    loss = {"value": 0.97, "source": "x", "uncertainty": 0.1}
    devices["interference"] = {"get": loss, "accumulate": loss, "reduce": loss}
    result = corners(build({**machine.document, "devices": devices}, machine.source_path, "x"))
    assert max(float(x.efficiency["bfloat16"].values.max()) for x in result) == 1.05
    assert max(x.interference["get"] for x in result) == 0.97


def test_slow_messages_are_slow_from_a_cache_too():
    """Sure to a quarter, rates by size are four fifths at the slow end; at the fast one they stay."""
    machine = umm.machine("tpu-v5e-4")
    link = {"value": "10 GB/s", "source": "measured"}
    sizes = {
        "sizes": ["1 KB", "1 MB"],
        "bandwidth": ["2 GB/s", "5 GB/s"],
        "cached_by_size": ["4 GB/s", "10 GB/s"],
    }
    sizes |= {"link": link, "source": "measured", "uncertainty": 0.25}
    result = corners(build({**machine.document, "message_sizes": sizes}, machine.source_path, "x"))
    rates = [np.array([x.message_sizes.bandwidth, x.message_sizes.cached]) / 1e9 for x in result]
    assert sorted(x.round(9).tolist() for x in rates) == [[[1.6, 4], [3.2, 8]]] * 2 + [[[2, 5], [4, 10]]] * 2


def test_less_of_a_time_and_of_a_loss_is_faster_and_counts_stay():
    """With both fast the launch and the interference are at their least; copy engines stay."""
    machine = umm.machine("tpu-v5e-4")
    devices = dict(machine.document["devices"])
    devices["launch"] = {"value": "4 us", "source": "measured", "range": ["3 us", "6 us"]}
    devices["copy_engines"] = {"value": 2, "source": "guess", "range": [1, 3]}
    loss = {"value": 0.2, "source": "measured", "range": [0.1, 0.4]}
    devices["interference"] = {"get": loss, "accumulate": loss, "reduce": loss}
    devices["efficiency"] = [{"dtype": "bfloat16", "value": 0.9, "source": "x", "range": [0.8, 0.95]}]
    content = {**machine.document, "devices": devices}
    fast = corners(build(content, machine.source_path, "x"))[0]
    assert (fast.launch_s, fast.interference["get"], fast.copy_engines) == (3e-6, 0.1, 2)
    assert float(fast.efficiency["bfloat16"].values.max()) == 0.95


@pytest.mark.parametrize("name", [x for x in machine_names() if x != "localhost"])
def test_no_shipped_machine_rests_on_an_assumed_start_without_a_range(name):
    """Nobody measured how long it takes to start, so a decoded token's time has a range."""
    lacking = [x.key for x in umm.machine(name).facts if _is_start(x) and x.range is None]
    assert lacking == []


def _is_start(fact):
    return fact.assumed and fact.key.split(".")[-1] in STARTS


def test_kernels_are_as_uncertain_as_their_table_says():
    """By half: 1.5 times the memory rate after two thirds of the start, or the other way round."""
    document = {**umm.machine("h100-8").document}
    kernels = {**document["devices"]["kernels"], "uncertainty": 0.5, "start": "3 us", "memory": "3 TB/s"}
    document["devices"] = {**document["devices"], "kernels": kernels}
    result = [x.kernels("bfloat16") for x in corners(build(document, Path("h100-8.toml"), "h100-8"))]
    assert {round(x.start_s * 1e6, 6) for x in result} == {2.0, 4.5}
    assert {round(x.memory / 1e12, 6) for x in result} == {2.0, 4.5}


@pytest.mark.parametrize("table", [Prefill, Decode, Experts, Exchange])
def test_every_rate_and_time_of_a_serving_kernel_is_as_uncertain_as_its_table(table):
    hints = get_type_hints(table, include_extras=True)
    assert {x for x, hint in hints.items() if _holds(hint, BytesPerSecond)} <= {*RATES}
    assert {x for x, hint in hints.items() if _holds(hint, Time)} <= {*TIMES}


def _holds(hint, quantity):
    """Whether values of a type are numbers of a quantity, or lists of them."""
    metadata = getattr(hint, "__metadata__", ())
    return quantity.__metadata__[0] in metadata or any(_holds(x, quantity) for x in get_args(hint))


def test_an_assumed_start_without_a_range_is_taken_at_half_and_at_twice_what_it_is():
    """One hop of 1 us between 2 of 4 TPUs in a file that says no range: 0.5 or 2 us instead."""
    document = {**umm.machine("tpu-v5e-4").document}
    document["fabric"] = {
        **document["fabric"],
        "latency": {"value": "1 us", "source": "order of one hop", "assumed": True},
    }
    machine = build(document, Path("mine.toml"), "mine")
    problem = umm.Problem(m=8, n=8, k=8, dtype="bfloat16", a="row", b="row", c="row", ranks=2)
    result = assumed_starts(machine, partial(umm.schedule, problem), executor("sim").makespan)
    now = umm.run(umm.schedule(problem, machine)).makespan_s
    assert result.keys == ("fabric.latency",)
    assert [x - now for x in result.range_s] == pytest.approx([-0.5e-6, 1e-6])


def test_of_many_layers_an_assumed_start_counts_as_often_as_there_are_layers():
    """The range of 12 layers is that of one, as many times as long as 12 are."""
    document = {**umm.machine("tpu-v5e-4").document}
    hop = {"value": "1 us", "source": "order of one hop", "assumed": True}
    document["fabric"] = {**document["fabric"], "latency": hop}
    machine = build(document, Path("mine.toml"), "mine")
    chain = umm.chain("mlp", hidden=1024, ffn=2048, tokens=64, backward=True, dtype="bfloat16")
    result = umm.peers(chain, machine, ranks=2, crossover=False, stack=Stack(12))
    low, high = result.starts.range_s
    schedule = result.best.contender.schedule(chain, machine)
    alone = assumed_starts(
        machine, lambda target: result.best.contender.schedule(chain, target), executor("sim").makespan
    )
    times = result.best.makespan_s / umm.run(schedule).makespan_s
    assert (low, high) == pytest.approx([times * x for x in alone.range_s])
    assert low < result.best.makespan_s < high


def test_the_assumed_start_of_a_search_is_that_of_its_best_point():
    """Of two points the first, whose bytes take 3 ns less."""
    document = {**umm.machine("tpu-v5e-4").document}
    hop = {"value": "1 us", "source": "order of one hop", "assumed": True}
    document["fabric"] = {**document["fabric"], "latency": hop}
    machine = build(document, Path("mine.toml"), "mine")
    space = umm.Space(m=8, n=64, k=8, dtype="bfloat16", ranks=2, replication=[1], stationary="C")
    result = umm.search(space, machine, top=2)
    first, second = (assumed_starts(machine, x.schedule, executor("sim").makespan) for x in result.top)
    assert result.starts == first != second


@pytest.mark.parametrize("name", [x for x in machine_names() if umm.machine(x).choices.get("engines")])
def test_a_machine_has_corners_with_the_kernels_of_each_engine(name):
    plain = umm.machine(name)
    for engine in plain.choices["engines"]:
        assert corners(umm.machine(name, kernels=engine)), engine


@pytest.mark.parametrize("engine", ["vllm", "trtllm", "sglang"])
@pytest.mark.parametrize("m", [1, 64, 16384])
def test_kernels_fitted_with_an_efficiency_are_as_uncertain_as_that(engine, m):
    """A multiply bound by memory had no range: its bytes/s are in the table beside the efficiency."""
    machine = umm.machine("b200-8", kernels=engine)
    problem = umm.Problem(m=m, n=8192, k=8192, dtype="bfloat16", ranks=1)
    now, *ends = (executor("sim").makespan(umm.schedule(problem, x)) for x in (machine, *corners(machine)))
    assert 0.86 < min(ends) / now < 0.96
    assert 1.04 < max(ends) / now < 1.14


@pytest.mark.parametrize("spread", [{"range": [0.4, 0.8]}, {"uncertainty": 0.25}, {}])
def test_kernels_of_a_type_move_by_what_they_say_of_themselves(spread):
    """Their own uncertainty was read and did nothing: the range of each answer was too narrow."""
    m = umm.machine("h100-8")
    wide = {"source": "test", "value": 0.5, "ramp": "2 us", "uncertainty": 1.0}
    kernels = {"source": "test", "ramp": "3 us", "uncertainty": 0.5, "wide": wide}
    before = next(x for x in m.document["devices"]["efficiency"] if x["dtype"] == "bfloat16")
    kernels = dict(before["kernels"]) | kernels
    table = {"dtype": "bfloat16", "value": 0.6, "source": "test", "kernels": kernels, **spread}
    others = [x for x in m.document["devices"]["efficiency"] if x["dtype"] != "bfloat16"]
    document = {**m.document, "devices": {**m.document["devices"], "efficiency": [*others, table]}}
    ends = [x.kernels("bfloat16") for x in corners(build(document, m.source_path, "x"))]
    assert {round(x.ramp_s * 1e6, 9) for x in ends} == {2.0, 4.5}
    assert {round(x.wide.ramp_s * 1e6, 9) for x in ends} == {1.0, 4.0}

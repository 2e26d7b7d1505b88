"""Traces: their frame, their breakdown, their limits, their results."""

import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from command import record
from examples import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_traces import gelu_of_a_product, slower, two_ranks
from strategies import problems, stationaries

import umm
from umm.layouts.layout import Layout
from umm.program import Chain, Multiply
from umm.program.tensors import Tensor
from umm.schedules.table.details import BROADCAST, GEMM, KINDS, REDUCE
from umm.traces.bottleneck import below_peak, bottleneck, critical_path, path_times, waits_for, work_of
from umm.traces.perfetto import touched_words
from umm.traces.trace import Trace
from umm.traces.traffic import Spans, bytes_by_kind, link_bytes, link_frame, link_utilisation


def simulated(problem, stationary):
    """The predicted trace of a random problem on the switch with 8 devices."""
    return umm.run(umm.schedule(problem, "h100-8", stationary=stationary))


def test_span_i_is_of_action_i():
    """Two traces of one schedule are compared by a zip."""
    schedule = umm.schedule(umm.Problem(m=64, n=48, k=40, ranks=2), "h100-8")
    trace = umm.run(schedule)
    assert len(trace.spans) == len(schedule)
    assert [(x.start, x.end) for x in trace.spans] == [*zip(trace.start, trace.end, strict=True)]
    assert max(x.end for x in trace.spans) == trace.makespan_s


def test_a_frame_has_a_row_per_action():
    frame = two_ranks().to_frame()
    columns = "rank, lane, kind, op, peer, start_s, end_s, nbytes, flop, a_tile, b_tile, c_tile"
    assert ", ".join(frame.columns) == columns
    assert frame["rank"].tolist() == [0, 1, 1, 0, 0, 1, -1, 1]
    assert frame["kind"].tolist() == ["gemm", "get", "gemm", "get", "gemm", "gemm", "barrier", "reduce"]
    get = frame.iloc[1]
    assert (get["lane"], get["peer"], get["nbytes"], get["flop"]) == ("copy_in.0", 0, 16, 0)
    assert (get["a_tile"], get["b_tile"], get["c_tile"]) == ("0,0", "", "")
    gemm = frame.iloc[4]
    assert (gemm["lane"], gemm["peer"], gemm["nbytes"], gemm["flop"]) == ("compute", -1, 0, 2 * 2 * 6 * 1)
    assert (gemm["a_tile"], gemm["b_tile"], gemm["c_tile"]) == ("1,0", "0,0", "0,0")
    assert frame.iloc[6][["lane", "op", "peer", "a_tile"]].tolist() == ["", -1, -1, ""]


def test_the_frame_of_a_chain_has_a_column_of_tiles_for_each_of_its_tensors():
    frame = gelu_of_a_product().to_frame()
    assert frame.columns[-4:].tolist() == ["X_tile", "W_tile", "H_tile", "Y_tile"]
    assert frame["kind"].tolist() == ["gemm", "get", "gemm", "map", "get", "gemm", "gemm", "map"]
    assert frame["W_tile"].tolist() == ["0,0", "0,1", "0,1", "", "0,0", "0,0", "0,1", ""]
    assert frame["Y_tile"].tolist() == ["", "", "", "0,0", "", "", "", "1,0"]


def test_an_action_names_what_it_writes_first():
    """A get fills a temporary of the tile it reads, so there is one name for both."""
    schedule = gelu_of_a_product().schedule
    words = touched_words(schedule, np.array([7, 2, 1]))
    assert words == ["Y(1,0) H(1,0)", "H(0,0) X(0,0) W(0,1)", "W(0,1)"]


def test_maps_are_computing():
    """r0 computes 0-2 and 4-9 and waits for a get meanwhile; r1 waits 0-5, then computes."""
    parts = gelu_of_a_product().breakdown()
    assert (parts.compute.tolist(), parts.exposed_communication.tolist()) == ([7, 5], [2, 5])


def test_the_peak_counts_the_multiplies_of_a_chain():
    """2 · 4 · 6 · 8 = 384 flop in 10 s."""
    trace = gelu_of_a_product()
    assert trace.fraction_of_peak == 384 / (10 * trace.schedule.peak)


def test_payload_is_reported_where_more_is_charged():
    """The reduce moves 4 x 6 float32; the machine charges 120 bytes for them."""
    trace = two_ranks()
    assert trace.to_frame()["nbytes"].iloc[7] == 96
    assert trace.schedule.nbytes[7] == 120


def test_the_time_of_each_rank_goes_somewhere():
    """r0: gemms 0-3 and 5-7, a get alone 3-5, nothing 7-10. r1: a get 0-2, gemms 2-6, a reduce 7-10."""
    parts = two_ranks().breakdown()
    assert parts.compute.tolist() == [5, 4]
    assert parts.exposed_communication.tolist() == [2, 2]
    assert parts.reduce.tolist() == [0, 3]
    assert parts.idle.tolist() == [3, 1]
    assert parts.mean == {"compute": 4.5, "reduce": 1.5, "exposed_communication": 2.0, "idle": 2.0}


def test_overlap_is_the_mean_over_ranks_of_hidden_transfer_time():
    """r0 hides 2 s of a 4 s get behind its gemm, r1 hides nothing: (50 % + 0 %) / 2."""
    assert two_ranks().breakdown().overlapped == 0.25


def test_weights_of_few_bits_move_fewer_bytes_and_the_others_of_a_chain_do_not():
    """X·W by int4, then by bfloat16: three times 64 x 64 elements of two bytes, and W of half a byte."""
    few, plain = (
        Tensor(name, Layout.parse("row", (64, 64), 1), "bfloat16", "input", stored=stored)
        for name, stored in (("W", "int4"), ("V", ""))
    )
    others = [Tensor(x, few.layout, "bfloat16", role) for x, role in (("X", "input"), ("Y", "output"))]
    middle = Tensor("H", few.layout, "bfloat16", "work")
    statements = (Multiply("H", "X", "W"), Multiply("Y", "H", "V"))
    chain = Chain("few", (few, plain, middle, *others), statements, 1)
    work = work_of(umm.schedule(chain, "h100-8"), np.arange(2))
    assert work.nbytes[1] == 3 * 2 * 64 * 64
    assert 4 * 64 * 64 < work.nbytes[0] < 5 * 64 * 64


def test_nothing_is_at_a_peak_that_is_unknown():
    problem = umm.Problem(m=64, n=64, k=64, ranks=1)
    work = work_of(replace(umm.schedule(problem, "h100-8"), peak=0.0), np.array([0]))
    assert (work.peak, work.rate) == (0.0, 0.0)


def test_ranks_that_transfer_nothing_have_no_share_of_the_overlap():
    parts = replace(two_ranks().breakdown(), in_flight=np.array([4.0, 0.0]), hidden=np.array([3.0, 0.0]))
    assert parts.overlapped == 0.75


def test_a_multiply_repeats_no_work():
    problem = umm.Problem(m=2048, n=2048, k=2048, a="row", b="col", c="row", dtype="bfloat16", ranks=4)
    assert below_peak(umm.run(umm.schedule(problem, "h100-8")))["repeated work"] == 0


def test_the_critical_path_leads_back_from_the_last_finish():
    """get 1-5, gemm 5-7, (barrier,) reduce 7-10; for the first second nothing of it runs."""
    trace = two_ranks()
    path = critical_path(trace)
    assert path.tolist() == [3, 4, 7]
    seconds, waiting = path_times(trace, path)
    assert (seconds.tolist(), waiting) == ([4, 2, 3], 1)


def test_a_critical_path_of_other_columns_is_refused():
    schedule = umm.schedule(umm.Problem(m=8, n=8, k=8, a="row", b="col", ranks=2), "h100-8")
    trace = umm.run(schedule)
    for changed in (
        replace(schedule, after=schedule.after + len(schedule)),
        replace(schedule, after_offsets=schedule.after_offsets[:-1]),
        replace(schedule, after_offsets=schedule.after_offsets + 9),
    ):
        with pytest.raises(ValueError, match="do not belong together"):
            critical_path(replace(trace, schedule=changed))


def test_the_verdict_names_what_most_of_the_critical_path_is():
    """The get takes 4 of 10 s, on the port of device 1."""
    trace = two_ranks()
    assert trace.bound_by == "get on g1 up"
    assert (
        trace.verdict
        == "Bound by get on a link to a switch (g1 up), 40 % of the critical path; 25 % overlapped."
    )


def test_the_verdict_says_when_nothing_is_communicated():
    trace = umm.run(umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=1), "h100-8"))
    assert trace.verdict == "Bound by launches, 100 % of the critical path; nothing is communicated."


def test_the_verdict_names_compute_and_transfers_where_one_slows_the_other():
    """Half the time of multiplies alone, or of links alone, saves less than half of both."""
    asked = "simulate -m 4K -n 28K -k 8K --a row --b row --c 2d --stationary B --dtype bf16 --machine a100-8"
    faster = "peak.bfloat16=x2", "fabric.bandwidth=x2"
    now, compute, links, both = (
        record(*asked.split(), *(y for x in among for y in ("--set", x)))["predicted"]
        for among in ((), faster[:1], faster[1:], faster)
    )
    assert re.match(
        r"Bound by compute and transfers together: ranks compute \d+ % of the time, \d+ % lost as transfers "
        r"slow it, and move data \d+ %; accumulate on links to switches .*, \d+ % of the critical path; ",
        now["verdict"],
    )
    assert both["makespan_s"] < min(x["makespan_s"] for x in (compute, links)) < now["makespan_s"]


def test_the_verdict_says_nothing_about_times_without_meaning():
    verdict = slower(two_ranks(), 1, "meaningless").verdict
    assert verdict == "Order and bytes are real, times are not: one process in place of all ranks."


def test_fraction_of_peak_is_of_the_devices_used():
    """2mnk = 96 flop in 10 s on two devices."""
    trace = two_ranks()
    assert trace.fraction_of_peak == 96 / (10 * trace.schedule.peak)
    one = umm.schedule(umm.Problem(m=4, n=6, k=2, ranks=1), "h100-8")
    assert trace.schedule.peak == 2 * one.peak


def test_an_unknown_peak_gives_no_fraction():
    text = umm.schedule(umm.Problem(m=4, n=6, k=2, ranks=1), "h100-8").to_json()
    without = umm.Schedule.from_json(re.sub(r'"peak": [0-9.e+]+', '"peak": 0.0', text))
    assert np.isnan(umm.run(without).fraction_of_peak)


def test_bytes_are_counted_by_kind():
    """Two gets of tiles of A with 4 float32 elements each; one reduce of all 4 x 6 of C."""
    trace = two_ranks()
    assert bytes_by_kind(trace.schedule) == {
        "get": 32, "put": 0, "accumulate": 0, "reduce": 96, "broadcast": 0
    }  # fmt: skip
    assert (trace.get_bytes, trace.put_bytes, trace.accumulate_bytes, trace.reduce_bytes) == (32, 0, 0, 96)


def test_links_carry_what_crosses_them():
    """r1 → r0 takes the get's 16 and the reduce's 120 bytes through g1's port and g0's, busy 1-5 and 7-10."""
    trace = two_ranks()
    frame = link_frame(trace).set_index("link")
    assert frame.loc[["g1 up", "g0 down", "g0 up", "g2 up"], "nbytes"].tolist() == [136, 136, 16, 0]
    assert frame.loc[["g1 up", "g0 down", "g0 up", "g2 up"], "busy_s"].tolist() == [7, 7, 2, 0]
    assert frame.loc["g1 up", "utilisation"] == pytest.approx(136 / (374e9 * 10))
    assert set(frame.index[:2]) == {"g1 up", "g0 down"}


def test_a_large_transfer_waits_for_a_link_from_every_rank_and_a_small_one_for_its_latency():
    for size, first in ((4096, "link "), (16, "latency")):
        problem = umm.Problem(m=size, n=size, k=size, a="row", b="row", c="row", ranks=2)
        schedule = umm.schedule(problem, "h100-8", stationary="C")
        moving = ((schedule.src >= 0) & (schedule.src != schedule.dst)).nonzero()[0]
        assert set(schedule.src[moving]) == {0, 1}
        assert all(x.startswith(first) for x in waits_for(schedule, moving))


def union(spans):
    """Length of the union of spans, by walking them in order."""
    total, reached = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def test_waves_lose_what_the_chosen_kernel_says():
    """1024 tiles on 256 units of an MI355X are four whole waves; 1000 x 1100 has tiles over its edge."""

    def lost(m, n, dtype, machine):
        problem = umm.Problem(m=m, n=n, k=8192, dtype=dtype, ranks=1)
        return below_peak(umm.run(umm.schedule(problem, machine)))

    full = lost(8192, 8192, "float8_e4m3", "mi355x-8")
    assert full["tile and wave quantization"] < 1e-9
    assert full["kernels' rate"] > 0.5
    assert lost(1000, 1100, "bfloat16", "h100-8")["tile and wave quantization"] > 0.1


def test_a_thin_gemm_waits_for_its_factors_once_and_for_c_twice():
    """Where no law of kernels is stated, C is read and written: 4 (k + kn) + 8n bytes at 3.35 TB/s."""
    problem = umm.Problem(m=1, n=8192, k=4096, dtype="float32", ranks=1)
    work = work_of(umm.schedule(problem, "h100-8"), np.array([0]))
    assert work.memory == pytest.approx([(4 * (4096 + 4096 * 8192) + 8 * 8192) / 3.35e12])
    assert work.by_memory.all()


@settings(max_examples=examples(40))
@given(problems(max_ranks=8), stationaries)
def test_the_breakdown_is_exact(problem, stationary):
    """The parts add up to the makespan for every rank, and are unions of spans one may take by hand."""
    trace = simulated(problem, stationary)
    schedule, parts = trace.schedule, trace.breakdown()
    added = parts.compute + parts.reduce + parts.exposed_communication + parts.idle
    assert added == pytest.approx(np.full(schedule.ranks, trace.makespan_s), rel=1e-12)
    spans = list(zip(trace.start.tolist(), trace.end.tolist(), strict=True))
    for rank in range(schedule.ranks):
        mine = np.flatnonzero(schedule.rank == rank).tolist()
        gemms = [spans[i] for i in mine if schedule.kind[i] == GEMM]
        reduces = [spans[i] for i in mine if schedule.kind[i] in (REDUCE, BROADCAST)]
        moves = [spans[i] for i in mine if schedule.src[i] != schedule.dst[i]]
        close = {"rel": 1e-9, "abs": 1e-9 * trace.makespan_s}
        assert parts.compute[rank] == pytest.approx(union(gemms), **close)
        assert parts.compute[rank] + parts.reduce[rank] == pytest.approx(union(gemms + reduces), **close)
        assert trace.makespan_s - parts.idle[rank] == pytest.approx(union(gemms + reduces + moves), **close)
        assert parts.in_flight[rank] == pytest.approx(union(moves), **close)


@settings(max_examples=examples(40))
@given(problems(max_ranks=8), stationaries)
def test_peak_and_what_is_lost_of_it_are_the_whole(problem, stationary):
    """The fraction of peak and the shares that keep ranks below it add up to 1; no share is negative."""
    trace = simulated(problem, stationary)
    lost = below_peak(trace)
    assert trace.fraction_of_peak + sum(lost.values()) == pytest.approx(1, rel=1e-9)
    assert list(lost.values()) == sorted(lost.values(), reverse=True)
    assert min(lost.values()) >= -1e-9


@settings(max_examples=examples(60))
@given(problems(max_ranks=8), stationaries, st.integers(0, 2**32 - 1))
@example(umm.Problem(m=1, n=1, k=1, a="row", b="row", c="row@2", ranks=2, dtype="float64"), "A", 14)
def test_each_on_a_critical_path_was_held_up_by_what_finished_last(problem, stationary, seed):
    """Of drawn times, many of them equal: the action's dependencies, and the one before it on its lane."""
    schedule = umm.schedule(problem, "h100-8", stationary=stationary)
    end = np.random.default_rng(seed).integers(1, 9, len(schedule)).astype(np.float64)
    path = critical_path(Spans(schedule, "drawn", end - 1, end)).tolist()
    before = [None, *path[:-1]]
    for held_up_by, action in zip(before, path, strict=True):
        waits = set(schedule.after_of(action).tolist())
        earlier = np.flatnonzero(schedule.lane[:action] == schedule.lane[action])
        waits |= set(earlier[-1:].tolist())
        if any(KINDS[schedule.kind[x]] == "barrier" for x in waits):
            return  # which is left out of a path
        assert (held_up_by is None) == (not waits)
        assert not waits or (held_up_by in waits and end[held_up_by] == max(end[x] for x in waits))
    last = end.argmax()  # a path may lead back from a barrier, which is left out too
    assert end[path[-1]] == end[last] or KINDS[schedule.kind[last]] == "barrier"


@settings(max_examples=examples(40))
@given(problems(max_ranks=8), stationaries)
def test_a_simulated_critical_path_has_no_gap(problem, stationary):
    trace = simulated(problem, stationary)
    seconds, waiting = path_times(trace, critical_path(trace))
    assert waiting == 0
    assert seconds.sum() == pytest.approx(trace.makespan_s, rel=1e-12)


@settings(max_examples=examples(40))
@given(problems(max_ranks=8), stationaries)
def test_no_link_carries_more_than_its_bandwidth(problem, stationary):
    trace = simulated(problem, stationary)
    hops = [len(trace.schedule.routes[pair]) for pair in trace.schedule.used_pairs()]
    assert link_utilisation(trace).max() <= 1 + 1e-9
    moving = trace.schedule.src != trace.schedule.dst
    assert not hops or link_bytes(trace.schedule).sum() == 2 * trace.schedule.nbytes[moving].sum()


def test_the_result_is_the_first_of_the_results():
    """Two outputs by name, such as a layer's and its gradient's; a simulation has none."""
    trace, y, dw = two_ranks(), np.zeros((4, 6)), np.ones((6, 6))
    both = Trace(trace.schedule, "mpi", trace.start, trace.end, {"Y": y, "dW": dw})
    assert both.result is both.results["Y"] is y
    assert (trace.result, dict(trace.results)) == (None, {})


def test_traces_and_figures_are_imported_without_pandas_and_plotly():
    code = (
        "import sys, umm.traces.trace, umm.traces.files, umm.comparison, umm.figures;"
        "print([x for x in ('pandas', 'plotly', 'perfetto') if x in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


@pytest.mark.parametrize(("decode", "kind"), [(True, "memory bandwidth"), (False, "arithmetic")])
def test_decode_by_an_engines_kernels_waits_for_the_cache_and_a_long_prompt_for_arithmetic(decode, kind):
    sizes = {"hidden": 4096, "heads": 32, "kv_heads": 8, "dtype": "bfloat16"}
    if decode:
        outline = umm.chain("attention", decode=True, batch=64, context=65536, **sizes)
    else:
        outline = umm.chain("attention", tokens=65536, **sizes)
    schedule = umm.schedule(outline.laid_out("megatron", ranks=8), umm.machine("h200-8", kernels="vllm"))
    assert bottleneck(umm.run(schedule)).kind == kind

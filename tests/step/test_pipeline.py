"""Pipelines: closed forms of equal stages, every pass once and in order, memory; executed as a program."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.executor import run
from umm.schedules.races import races
from umm.step.pipeline import BACKWARD, FORWARD, SCHEDULES, WEIGHT, Chunk, Pass, kept_at_peaks, timeline
from umm.step.program import pipeline_chain


@pytest.mark.parametrize(("stages", "micro_batches"), [(1, 3), (2, 2), (3, 4), (4, 8), (8, 5)])
def test_1f1b_of_equal_stages_has_a_bubble_of_p_minus_1_passes(stages, micro_batches):
    """Each stage works m(f + b) = 3m and waits (p - 1)(f + b); it keeps p - s micro-batches at most."""
    line = timeline([Chunk(1.0, 2.0, kept=1.0)] * stages, stages, micro_batches, "1f1b")
    assert line.seconds == 3.0 * (micro_batches + stages - 1)
    assert line.peak == [min(stages - s, micro_batches) for s in range(stages)]


@pytest.mark.parametrize("virtual", [2, 3, 5])
def test_interleaved_stages_divide_the_bubble_by_their_chunks(virtual):
    """Four stages, eight micro-batches, 3 s of work each: a bubble of 9 s / v, for more memory."""
    line = timeline([Chunk(1 / virtual, 2 / virtual, kept=1 / virtual)] * 4 * virtual, 4, 8, "interleaved")
    assert line.seconds == pytest.approx(24 + 9 / virtual)
    assert line.peak[0] > 4.0


def test_a_zero_bubble_schedule_waits_as_little_as_its_paper_says():
    """ZB-H1 waits (p - 1)(f + b - w): 3 s of four equal stages, with no more kept than 1F1B keeps."""
    line = timeline([Chunk(1.0, 1.0, 1.0, kept=1.0)] * 4, 4, 8, "zero-bubble")
    assert line.seconds == 27.0
    assert line.peak == [4.0] * 4


@pytest.mark.parametrize(("schedule", "chunks"), [("zero-bubble", 4), ("zero-bubble", 8), ("dualpipe-v", 8)])
def test_gradients_of_weights_that_wait_keep_what_they_need(schedule, chunks):
    """Of 64 micro-batches four stages keep four, and with chunks up and down half of one more."""
    part = 4 / chunks
    line = timeline([Chunk(part, part, part, kept=part)] * chunks, 4, 64, schedule)
    assert line.peak == [4.5 if schedule == "dualpipe-v" else 4.0] * 4
    assert line.seconds == 3 * 64 + 3 * part


@pytest.mark.parametrize("schedule", ["zero-bubble", "dualpipe-v"])
def test_faster_sends_make_no_pipeline_slower(schedule):
    """Of 300 pipelines of unequal stages, none whose sends take half as long."""
    draws = np.random.default_rng(3)
    for _ in range(300):
        stages, micro_batches = (int(x) for x in draws.integers(2, 10, 2))
        chunks = [Chunk(*draws.uniform(0.5, 1.5, 3), send=0.3) for _ in range(stages)]
        chunks = [x for x in chunks for _ in range(2 if schedule == "dualpipe-v" else 1)]
        fast = [replace(x, send=0.15) for x in chunks]
        before, after = (timeline(x, stages, micro_batches, schedule).seconds for x in (chunks, fast))
        assert after <= before * (1 + 1e-12)


@settings(max_examples=examples(100))
@given(st.sampled_from(SCHEDULES), st.integers(1, 5), st.integers(1, 3), st.integers(1, 40), st.data())
def test_the_bytes_that_a_stage_keeps_at_most_follow_from_its_order_alone(
    schedule, stages, virtual, micro_batches, data
):
    """Chunks that keep different bytes, some of them without weights' gradients."""
    virtual = {"1f1b": 1, "dualpipe-v": 2}.get(schedule, virtual)
    micro_batches = micro_batches * stages if schedule == "interleaved" else micro_batches
    numbers = st.lists(st.integers(0, 9), min_size=stages * virtual, max_size=stages * virtual)
    apart = schedule in ("zero-bubble", "dualpipe-v")
    chunks = [
        Chunk(1.0, 1.0, float(apart and weight > 2), float(kept))
        for kept, weight in zip(data.draw(numbers), data.draw(numbers), strict=True)
    ]
    line = timeline(chunks, stages, micro_batches, schedule)
    for stage, peak in enumerate(line.peak):
        some = [chunks[x] for x in sorted({one.chunk for one, *_ in line.passes[stage]})]
        weights = tuple(x.weight > 0 for x in some)
        kept = kept_at_peaks(stage, stages, micro_batches, weights, schedule) @ [x.kept for x in some]
        assert kept.max() == peak


def test_a_chunk_without_weights_has_no_pass_for_them():
    """The embedding alone on the first stage, whose second chunk has a layer."""
    chunks = [Chunk(1.0, 1.0), *[Chunk(1.0, 1.0, 1.0)] * 3]
    kinds = [one.kind for one, *_ in timeline(chunks, 2, 4, "zero-bubble").passes[0]]
    assert [kinds.count(x) for x in (FORWARD, BACKWARD, WEIGHT)] == [8, 8, 4]


def test_unequal_stages_run_at_the_pace_of_the_slowest():
    """Its 8 passes of 6 s follow each other; before them 1 s forward, after them 2 s backward."""
    line = timeline([Chunk(1.0, 2.0), Chunk(2.0, 4.0)], 2, 8, "1f1b")
    assert line.seconds == 8 * 6.0 + 3.0


def test_a_send_delays_the_next_stage_alone():
    """Two stages and one micro-batch: 3 s each, and a send of 1 s each way."""
    assert timeline([Chunk(1.0, 2.0, send=1.0)] * 2, 2, 1, "1f1b").seconds == 8.0


@given(
    st.sampled_from(SCHEDULES), st.integers(1, 5), st.integers(1, 3), st.integers(1, 4),
    st.lists(st.floats(0.1, 3.0), min_size=30, max_size=30),
)  # fmt: skip
def test_every_pass_runs_once_after_those_it_needs(schedule, stages, virtual, groups, seconds):
    """And no timeline is shorter than its busiest stage, or than one micro-batch from end to end."""
    count = stages * {"interleaved": virtual, "zero-bubble": virtual, "dualpipe-v": 2}.get(schedule, 1)
    micro_batches = groups * stages
    apart = schedule in ("zero-bubble", "dualpipe-v")
    chunks = [Chunk(x, 2 * x, x if apart else 0.0, send=0.05) for x in seconds[:count]]
    line = timeline(chunks, stages, micro_batches, schedule)
    ends = {one: end for stage in line.passes for one, _, end in stage}
    kinds = (FORWARD, BACKWARD, WEIGHT) if apart else (FORWARD, BACKWARD)
    assert set(ends) >= {Pass(k, c, i) for k in kinds for c in range(count) for i in range(micro_batches)}
    for stage in line.passes:
        assert all(before[2] <= after[1] + 1e-9 for before, after in pairwise(stage))
        for one, begin, _ in stage:
            if one.kind == FORWARD and one.chunk:
                assert begin >= ends[one._replace(chunk=one.chunk - 1)]
            if one.kind == BACKWARD:
                assert begin >= ends[one._replace(kind=FORWARD)]
    busy = max(sum(end - begin for _, begin, end in stage) for stage in line.passes)
    alone = sum(x.forward + x.backward for x in chunks)
    assert line.seconds >= max(busy, alone) - 1e-9


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_pipeline_of_three_stages_computes_the_same_as_one_rank(schedule):
    """Six micro-batches forward and backward, gradients added up, in NumPy; nothing races."""
    _exact(pipeline_chain(3, 6, 5, 7, schedule=schedule, virtual=2 if schedule == "interleaved" else 1,
                          dtype="float64"), "numpy")  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_the_gradients_of_a_pipeline_are_slopes_of_its_results(schedule):
    """Sums of dY·Y over two micro-batches, with each weight and X moved a little either way."""
    chain = pipeline_chain(2, 2, 3, 4, schedule=schedule, dtype="float64")
    draws, shapes = np.random.default_rng(5), {x.name: x.layout.shape for x in chain.tensors}
    operands = {name: draws.standard_normal(shapes[name]) for name in chain.operand_names}

    def scalar(**moved):
        results = chain.reference(operands | moved)
        return sum((results[f"Y.{i}"] * operands[f"dY.{i}"]).sum() for i in range(2))

    gradients = chain.reference(operands)
    for name in ("W.0", "W.1", "X.0", "X.1"):
        way = draws.standard_normal(shapes[name])
        up, down = (scalar(**{name: operands[name] + x * way}) for x in (1e-6, -1e-6))
        assert (gradients[f"d{name}"] * way).sum() == pytest.approx((up - down) / 2e-6, rel=1e-6)


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
def test_a_pipeline_of_three_stages_and_four_micro_batches_runs_on_mpi():
    _exact(pipeline_chain(3, 4, 16, 32, dtype="float64"), "mpi")


def _exact(chain, executor):
    schedule = umm.schedule(chain, "h100-8")
    assert not races(schedule)
    shapes = {x.name: x.layout.shape for x in chain.tensors}
    draws = np.random.default_rng(3)
    operands = {name: draws.standard_normal(shapes[name]) for name in chain.operand_names}
    results, reference = run(schedule, executor, operands).results, chain.reference(operands)
    for name in chain.outputs:
        np.testing.assert_allclose(results[name], reference[name], rtol=1e-12, atol=1e-12)

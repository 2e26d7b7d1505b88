"""The page's training step: its text, its memory over time, and its refusals."""

import pytest

import umm
from umm.errors import UmmError
from umm.explorer.state import State, read
from umm.explorer.tabs.step import sizes_of, step_of, step_words
from umm.figures.steps import memory_figure

NODE = umm.machine("h100-8")
ASKED = "model=llama-3-8b batch=32 length=2K tp=2 pp=2 vp=2"


def test_the_text_of_a_step_names_its_sizes():
    """Numbers as umm step takes them, flags with dashes too; it stays in the address."""
    assert sizes_of("--model=llama-3-8b batch=64 length=8K micro-batch=2") == {
        "model": "llama-3-8b", "batch": 64, "length": 8192, "micro_batch": 2,
    }  # fmt: skip
    state, mistakes = read(State(step=ASKED).query)
    assert (state.step, mistakes) == (ASKED, [])


def test_each_stages_curve_reaches_the_memory_that_is_stated():
    step = step_of(ASKED, NODE, 8)
    assert step.parallel.words() == "tp2 pp2 vp2 dp2, 16 micro-batches of 1"
    curves = {x["name"]: max(x["y"]) for x in memory_figure(step, 80e9).to_dict()["data"]}
    assert list(curves) == ["stage 0", "stage 1", "device"]
    for stage, parts in enumerate(step.by_stage):
        assert curves[f"stage {stage}"] == pytest.approx(sum(parts.values()) / 2**30)


def test_a_step_that_needs_more_than_a_device_has_says_so():
    """As umm step does; Llama 3 8B without shards needs 88.8 GiB."""
    text = step_words(step_of("model=llama-3-8b batch=64 length=8K", NODE, 4), NODE)
    assert "88.8 GiB a device at most, more than the device's 74.5 GiB. Time: layers 9" in text
    assert "more than" not in step_words(step_of(ASKED, NODE, 8), NODE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("batch=1 length=2K", "a step needs its model"),
        ("model=llama-3-8b batch=64 length=8K zeroo=3", "'zeroo' is no size of a step; did you mean 'zero'"),
        ("model=llama-3-8b batch=64 length=8K tp", "'tp' names no size; write it like tp=2"),
        ("model=llama-3-8b batch=64 length=8K tp=two", "tp = 'two' is not possible"),
        ("model=llama-3-8b batch=64 length=8K tp=3", "8 ranks cannot be split into TP 3"),
        ("model=llama-3-8b batch=64 length=8K mtp=99999999999", "--mtp 99999999999 must be from 0 to 8"),
        ("model=/etc/passwd batch=64 length=8K", "model '/etc/passwd' is unknown"),
        ("model=llama-3-8b batch=8M length=1K", "micro-batches take too long here; use umm step"),
    ],
)
def test_what_is_no_step_is_answered_in_a_line(text, message):
    with pytest.raises(UmmError, match=message):
        step_of(text, NODE, 8)

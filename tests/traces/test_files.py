"""Trace files: saved ones come back, others are refused in one line."""

import json
import re

import pytest
from made_traces import gelu_of_a_product, slower, two_ranks

import umm
from umm.errors import InputError
from umm.schedules.files import save
from umm.traces.files import load_trace, save_trace


@pytest.mark.parametrize("name", ["trace.json", "trace.npz"])
def test_a_saved_trace_comes_back(name, tmp_path):
    trace = umm.run(umm.schedule(umm.Problem(m=40, n=30, k=20, a="col", c="2d@2", ranks=8), "h100-8"))
    save_trace(trace, tmp_path / name)
    back = load_trace(tmp_path / name)
    assert (back.source, back.times) == ("sim", "predicted")
    assert back.to_frame().equals(trace.to_frame())
    assert back.verdict == trace.verdict
    assert umm.compare(trace, back).makespan_error == 0
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_trace_file_that_does_not_say_what_its_times_are_was_measured(tmp_path):
    path = tmp_path / "t.json"
    save_trace(slower(two_ranks(), 1, "predicted"), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    del data["times"]
    path.write_text(json.dumps(data), encoding="utf-8")
    assert load_trace(path).times == "measured"


def test_the_trace_of_a_chain_comes_back(tmp_path):
    trace = gelu_of_a_product()
    for name in ("t.json", "t.npz"):
        save_trace(trace, tmp_path / name)
        back = load_trace(tmp_path / name)
        assert back.to_frame().equals(trace.to_frame())
        assert umm.compare(trace, back).order_kept


def broken(tmp_path, change):
    """Save a trace as JSON with something changed in it; return the one line that loading answers."""
    path = tmp_path / "t.json"
    save_trace(two_ranks(), path)
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(InputError) as caught:
        load_trace(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_bad_trace_file_is_answered_with_one_line(tmp_path):
    cases = {
        "lacks 'end'": lambda data: data.pop("end"),
        "lacks 'schedule'": lambda data: data.pop("schedule"),
        "not a trace of schema 1: trace_schema is 7": lambda data: data.update(trace_schema=7),
        "7 starts and 8 ends do not belong to a schedule of 8 actions": lambda data: data["start"].pop(),
        "action 0 cannot run from 5.0 s to 3.0 s": lambda data: data["start"].__setitem__(0, 5.0),
        "start of action 0 = nan is not possible": lambda data: data["start"].__setitem__(0, float("nan")),
        "times cannot be 'guessed'; choose from predicted, measured, meaningless": lambda data: data.update(
            times="guessed"
        ),
        "must be lists of seconds": lambda data: data.update(start="soon"),
        "start of action 0 = '0.0' is not possible": lambda data: data["start"].__setitem__(0, "0.0"),
        "source of the trace is not a text but None": lambda data: data.update(source=None),
        "times of the trace is not a text but 1": lambda data: data.update(times=1),
        "trace_schema is True": lambda data: data.update(trace_schema=True),
        "not a schedule of schema 2": lambda data: data["schedule"].pop("schema"),
    }
    for part, change in cases.items():
        assert part in broken(tmp_path, change)


@pytest.mark.parametrize("name", ["t.json", "t.npz"])
@pytest.mark.parametrize("content", [b"", b'{"trace_schema": 1, "start": [0.0', b"\xff\xfe\x00PK", b"[1, 2]"])
def test_a_file_that_is_not_a_trace_is_refused(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=re.escape(str(tmp_path / name))):
        load_trace(tmp_path / name)


def test_a_schedule_file_is_not_a_trace_file(tmp_path):
    """It is named as one: people drop it on the page, or give it to umm compare."""
    for name in ("s.json", "s.npz"):
        save(two_ranks().schedule, tmp_path / name)
        with pytest.raises(InputError, match="a schedule, not a trace; write one with umm run --schedule"):
            load_trace(tmp_path / name)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match=r"cannot read .*nowhere.json: No such file"):
        load_trace(tmp_path / "nowhere.json")
    with pytest.raises(InputError, match=r"cannot write .*No such file"):
        save_trace(two_ranks(), tmp_path / "no" / "folder.json")

"""Schedules as files: written ones are read back column by column, and broken ones are refused."""

import json
import pickle

import numpy as np
import pytest
from conformance.executor_suite import laws, scheduled
from examples import examples
from hypothesis import given, settings
from programs import programs
from readable import made
from same_schedules import assert_same
from strategies import problems, schedule_options, stationaries

import umm
from umm.errors import InputError, ScheduleError
from umm.schedules.file import codec
from umm.schedules.files import load, save
from umm.schedules.schedule import Schedule


@laws
@given(problems(dtype="float32"), stationaries, schedule_options)
def test_json_keeps_every_column(problem, stationary, options):
    schedule = scheduled(problem, stationary, options)
    assert_same(schedule, Schedule.from_json(schedule.to_json()))


@settings(laws, max_examples=examples(25))
@given(problems(dtype="float32"), stationaries, schedule_options)
def test_npz_keeps_every_column(tmp_path_factory, problem, stationary, options):
    schedule = scheduled(problem, stationary, options)
    path = tmp_path_factory.mktemp("schedules") / "saved.npz"
    save(schedule, path)
    assert_same(schedule, load(path))


@settings(laws, max_examples=examples(60))
@given(programs())
def test_json_keeps_any_program(schedule):
    """Details and text alike: several tensors, temporaries filled in pieces, maps, batches, means, chains."""
    text = schedule.to_json()
    again = Schedule.from_json(text)
    assert_same(schedule, again)
    assert again.to_json() == text


@settings(laws, max_examples=examples(40))
@given(programs())
def test_npz_keeps_any_program(tmp_path_factory, schedule):
    path = tmp_path_factory.mktemp("schedules") / "saved.npz"
    save(schedule, path)
    again = load(path)
    assert_same(schedule, again)
    assert again.to_json() == schedule.to_json()


@settings(laws, max_examples=examples(10))
@given(programs())
def test_a_schedule_of_any_program_pickles(schedule):
    """As a process of a pool returns it."""
    again = pickle.loads(pickle.dumps(schedule))
    assert_same(schedule, again)
    assert type(again) is Schedule


def test_a_trace_and_a_comparison_pickle():
    schedule = umm.schedule(umm.Problem(m=8, n=6, k=4, c="2d@2", ranks=4), "pvc-12", stationary="A")
    predicted, measured = umm.run(schedule), umm.run(schedule, "numpy")
    for one in (predicted, measured):
        again = pickle.loads(pickle.dumps(one))
        assert again.makespan_s == one.makespan_s
        assert again.to_frame().equals(one.to_frame())
    assert np.array_equal(again.result, measured.result)
    compared = umm.compare(predicted, measured)
    assert pickle.loads(pickle.dumps(compared)).to_frame().equals(compared.to_frame())


def test_one_action_is_one_line_of_json():
    schedule = made("gets-2")
    lines = schedule.to_json().splitlines()
    assert len(lines) == 2 + len(schedule)
    assert json.loads(lines[3].rstrip(",")) == {
        "id": 2,
        "rank": 0,
        "kind": "get",
        "lane": 1,
        "after": [],
        "op": 1,
        "src": 1,
        "dst": 0,
        "nbytes": 128,
        "writes": [0, [0, 8], [4, 8]],
        "reads": [["A", [0, 8], [4, 8]]],
    }
    assert json.loads(lines[0] + "]}")["buffers"][0] == {
        "rank": 0, "slot": 0, "tensor": "A", "rows": [0, 8], "cols": [4, 8],
    }  # fmt: skip


def test_a_json_file_is_written_and_read_by_name(tmp_path):
    schedule = made("replicated-c-4")
    save(schedule, tmp_path / "x.json")
    assert_same(schedule, load(tmp_path / "x.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_schedule_too_long_for_json_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "JSON_LIMIT", 5)
    with pytest.raises(ScheduleError, match=r"6 actions are too many for JSON \(at most 5\); save as \.npz"):
        made("gets-2").to_json()


# col×col→col over 2 ranks: 0 and 1 are gemms, 2 is rank 0's get, 3 the gemm that reads what it brings.
BROKEN = {
    "a forward dependency": (
        lambda d: d["actions"][0]["after"].append(3),
        r"action 0 \(gemm\) waits for \[3\]; after holds ids, each smaller than the action's own",
    ),
    "an id out of order": (
        lambda d: d["actions"][1].update(id=7),
        r"action 1 \(gemm\) has id 7; ids must be row numbers",
    ),
    "an unknown kind": (lambda d: d["actions"][2].update(kind="fetch"), "action 2 has kind 'fetch'; choose"),
    "a missing key": (lambda d: d["actions"][2].pop("nbytes"), r"action 2 \(get\) lacks 'nbytes'"),
    "no actions": (lambda d: d.pop("actions"), "the schedule lacks 'actions'"),
    "another rank's lane": (lambda d: d["actions"][2].update(lane=7), "lane that belongs to another rank"),
    "no such lane": (lambda d: d["actions"][2].update(lane=99), "has a lane that does not exist"),
    "no such rank": (lambda d: d["actions"][2].update(rank=5), "has a rank that does not exist"),
    "a gemm without an engine": (lambda d: d["actions"][0].update(lane=1), "on a lane without an engine"),
    "bytes from nowhere": (
        lambda d: d["actions"][2].update(src=9),
        r"action 2 \(get\): reads\[0\] lies at rank 9, which does not exist",
    ),
    "no bytes": (lambda d: d["actions"][2].update(nbytes=0), "moves no bytes; leave it out"),
    "negative time": (lambda d: d["actions"][0].update(seconds=-1.0), "has a duration that is not a time"),
    "no such slot": (lambda d: d["buffers"][0].update(slot=64), "buffer 0 is in a pool slot that does not"),
    "no such buffer": (
        lambda d: d["actions"][2]["writes"].__setitem__(0, 64),
        r"action 2 \(get\): buffer of writes = 64 is not possible; it must be a whole number ≥ 0 and < 2",
    ),
    "another k": (lambda d: d["problem"].update(k=6), "the first tensors must be the program's own: A, B, C"),
    "another m": (lambda d: d["problem"].update(m=0), "m = 0 is not possible; it must be a whole number ≥ 1"),
    "a tile too far": (
        lambda d: d["actions"][2]["reads"][0].__setitem__(2, [8, 12]),
        r"action 2 \(get\): reads\[0\]: rank 1 does not hold A\[0:8,8:12\]; A is 8x8 in layout col",
    ),
    "no route": (lambda d: d["routes"].clear(), "from rank 0 to rank 1, but no route joins them"),
    "a route of no links": (
        lambda d: d["routes"][0].__setitem__(2, []),
        "the route from rank 0 to rank 1 names no link",
    ),
    "a link without bandwidth": (lambda d: d["links"][0].update(bandwidth=0), "needs a bandwidth > 0"),
    "three replicas": (lambda d: d["problem"].update(c="col@3"), "cannot hold 3 equal replicas"),
    "another schema": (
        lambda d: d.update(schema=1),
        "not a schedule of schema 2: schema is 1; make it anew with --save-schedule",
    ),
    "a word for a number": (
        lambda d: d["actions"][0].update(seconds="soon"),
        r"action 0 \(gemm\): seconds = 'soon' is not possible; it must be a finite number",
    ),
    "a number too large": (
        lambda d: d["actions"][0].update(op=2**70),
        rf"action 0 \(gemm\): op = {2**70} is not possible; it must be a whole number ≥ 0",
    ),
    "a negative slot": (lambda d: d["pools"][0].update(slots=[-1]), "a slot of rank 0 = -1 is not possible"),
    "a pool past 64 bits": (
        lambda d: d["pools"][0].update(slots=[2**62, 2**62]),
        f"the pool of rank 0 takes {2**63} bytes; 64 bits count to 2\\^63 - 1",
    ),
    "actions that are no list": (lambda d: d.update(actions=3), "actions of the schedule are not a list"),
    "an empty text for no dependency": (
        lambda d: d["actions"][3].update(after=""),
        r"action 3 \(gemm\): after is '', not a list of ids",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_schedule_is_refused_in_one_line(what):
    change, message = BROKEN[what]
    data = json.loads(made("gets-2").to_json())
    change(data)
    with pytest.raises(InputError, match=message) as caught:
        Schedule.from_json(json.dumps(data))
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", "null", "3"])
def test_what_is_no_schedule_is_refused(text):
    with pytest.raises(ScheduleError, match="not a schedule"):
        Schedule.from_json(text)


def test_a_truncated_file_is_refused(tmp_path):
    text = made("gets-2").to_json()
    for length in (1, len(text) // 2, len(text) - 3):
        (tmp_path / "cut.json").write_text(text[:length], encoding="utf-8")
        with pytest.raises(ScheduleError, match="the JSON ends or breaks at line"):
            load(tmp_path / "cut.json")
    save(made("gets-2"), tmp_path / "whole.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:1000])
    with pytest.raises(ScheduleError, match=r"cut\.npz"):
        load(tmp_path / "cut.npz")
    with pytest.raises(ScheduleError, match=r"cannot read .*missing\.json"):
        load(tmp_path / "missing.json")

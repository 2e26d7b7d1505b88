"""Schedules as files: what is written is read back column by column, and what is broken is refused."""

import json
from dataclasses import fields

import numpy as np
import pytest
from conformance.executor_suite import laws, scheduled
from hypothesis import given, settings
from readable import made
from strategies import problems, schedule_options, stationaries

from umm.errors import InputError, ScheduleError
from umm.schedules import codec
from umm.schedules.details import Details
from umm.schedules.schedule import Schedule

COLUMNS = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")


def assert_same(one, other):
    """Equal in every column and in everything that decides the time."""
    for name in COLUMNS:
        x, y = getattr(one, name), getattr(other, name)
        assert x.dtype == y.dtype, name
        assert np.array_equal(x, y), name
    for field in fields(Details):
        assert np.array_equal(getattr(one.details, field.name), getattr(other.details, field.name)), (
            field.name
        )
    assert [p.tolist() for p in one.pools] == [p.tolist() for p in other.pools]
    assert (one.problem, one.stationary, one.machine, one.ranks) == (
        other.problem,
        other.stationary,
        other.machine,
        other.ranks,
    )
    assert one.problem.layouts == other.problem.layouts
    assert (dict(one.options), one.peak) == (dict(other.options), other.peak)
    assert dict(one.interference) == dict(other.interference)
    assert one.links.names == other.links.names
    assert np.array_equal(one.links.bandwidth, other.links.bandwidth)
    assert np.array_equal(one.links.latency, other.links.latency)
    assert [one.routes[pair] for pair in one.used_pairs()] == [other.routes[p] for p in one.used_pairs()]
    assert one.lanes.names == other.lanes.names
    assert np.array_equal(one.lanes.rank, other.lanes.rank)
    assert np.array_equal(one.lanes.engine, other.lanes.engine)
    assert str(one) == str(other)


@laws
@given(problems(dtype="float32"), stationaries, schedule_options)
def test_json_keeps_every_column(problem, stationary, options):
    schedule = scheduled(problem, stationary, options)
    assert_same(schedule, Schedule.from_json(schedule.to_json()))


@settings(laws, max_examples=25)
@given(problems(dtype="float32"), stationaries, schedule_options)
def test_npz_keeps_every_column(tmp_path_factory, problem, stationary, options):
    schedule = scheduled(problem, stationary, options)
    path = tmp_path_factory.mktemp("schedules") / "saved.npz"
    codec.save(schedule, path)
    assert_same(schedule, codec.load(path))


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
        "matrix": "A",
        "tile": [0, 1],
        "rows": [0, 8],
        "cols": [4, 8],
        "slot": 0,
        "nbytes": 128,
    }


def test_a_json_file_is_written_and_read_by_name(tmp_path):
    schedule = made("replicated-c-4")
    codec.save(schedule, tmp_path / "x.json")
    assert_same(schedule, codec.load(tmp_path / "x.json"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_schedule_too_long_for_json_is_refused(monkeypatch):
    monkeypatch.setattr(codec, "JSON_LIMIT", 5)
    with pytest.raises(ScheduleError, match=r"6 actions are too many for JSON \(at most 5\); save as \.npz"):
        made("gets-2").to_json()


# col×col→col over 2 ranks: 0 and 1 are gemms, 2 is rank 0's get, 3 the gemm that reads what it brings.
BROKEN = {
    "a forward dependency": (
        lambda d: d["actions"][0]["after"].append(3),
        "action 0 .* does not come before",
    ),
    "an id out of order": (
        lambda d: d["actions"][1].update(id=7),
        "action 1 has id 7; ids must be row numbers",
    ),
    "an unknown kind": (lambda d: d["actions"][2].update(kind="fetch"), "action 2 has kind 'fetch'; choose"),
    "a missing key": (lambda d: d["actions"][2].pop("nbytes"), "the schedule lacks 'nbytes'"),
    "no actions": (lambda d: d.pop("actions"), "the schedule lacks 'actions'"),
    "another rank's lane": (lambda d: d["actions"][2].update(lane=7), "lane that belongs to another rank"),
    "no such lane": (lambda d: d["actions"][2].update(lane=99), "has a lane that does not exist"),
    "no such rank": (lambda d: d["actions"][2].update(rank=5), "has a rank that does not exist"),
    "a gemm without an engine": (lambda d: d["actions"][0].update(lane=1), "on a lane without an engine"),
    "bytes from nowhere": (lambda d: d["actions"][2].update(src=9), "from or to a rank that does not exist"),
    "no bytes": (lambda d: d["actions"][2].update(nbytes=0), "moves no bytes; leave it out"),
    "negative time": (lambda d: d["actions"][0].update(seconds=-1.0), "has a duration that is not a time"),
    "no such slot": (lambda d: d["actions"][2].update(slot=64), "uses a pool slot that does not exist"),
    "another k": (lambda d: d["problem"].update(k=6), "leaves its tile of A .* of the 8x8x6 problem"),
    "another m": (lambda d: d["problem"].update(m=0), "m = 0 is not a matrix dimension"),
    "a tile too far": (lambda d: d["actions"][2].update(tile=[0, 2]), "leaves its tile of A"),
    "no route": (lambda d: d["routes"].clear(), "from rank 0 to rank 1, but no route joins them"),
    "a route of no links": (lambda d: d["routes"][0].__setitem__(2, []), "a route names links"),
    "a link without bandwidth": (lambda d: d["links"][0].update(bandwidth=0), "needs a bandwidth > 0"),
    "three replicas": (lambda d: d["problem"].update(c="col@3"), "cannot hold 3 equal replicas"),
    "another schema": (lambda d: d.update(schema=2), "not a schedule of schema 2: schema is 2"),
    "a word for a number": (lambda d: d["actions"][0].update(seconds="soon"), "a value of the wrong form"),
    "a number too large": (lambda d: d["actions"][0].update(op=2**70), "a value of the wrong form"),
    "a negative slot": (lambda d: d["pools"][0].update(slots=[-1]), "pool of rank 0 must be a list of slot"),
    "actions that are no list": (lambda d: d.update(actions=3), "a value of the wrong form"),
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
            codec.load(tmp_path / "cut.json")
    codec.save(made("gets-2"), tmp_path / "whole.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "whole.npz").read_bytes()[:1000])
    with pytest.raises(ScheduleError, match=r"cut\.npz"):
        codec.load(tmp_path / "cut.npz")
    with pytest.raises(ScheduleError, match=r"cannot read .*missing\.json"):
        codec.load(tmp_path / "missing.json")

"""umm.schedule against a second lowering that shares no code with it, and both against JSON's description."""

import json
from dataclasses import replace
from math import isclose

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_text import GOOD, SWITCH, write
from reference.direct_lowering import Lowering
from reference.plain_ops import ops_of
from strategies import direct_options, grids, offsets, problems, stationaries

import umm
from umm import Problem
from umm.schedules.table.details import GEMM

MEASURED = (
    GOOD.replace("value = 0.8", "value = 0.7").replace(
        "count = {", 'ranks_per_device = { value = 3, source = "test" }\ncount = {'
    )
    + '[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\nm = [1, 16]\nn = [4]\nk = [2, 32]\n'
    + "value = [[[0.01, 0.02]], [[0.03, 0.9]]]\n"
    + SWITCH
    + '[message_sizes]\nsource = "test"\nlink = { value = "10 GB/s", source = "test" }\n'
    + 'sizes = ["100 B", "1 kB"]\nbandwidth = ["3 GB/s", "10 GB/s"]\n'
)
ONE = (
    GOOD.replace(
        "count = { value = 4", 'ranks_per_device = { value = 16, source = "test" }\ncount = { value = 1'
    ).replace(
        'float32 = { value = "10 Tflop/s", source = "test" }',
        "".join(
            f'{x} = {{ value = "10 Tflop/s", source = "test" }}\n' for x in ("float32", "float64", "bfloat16")
        ),
    )
    + '[fabric]\nkind = "none"\n'
)
CACHED = MEASURED.replace(
    "count = {",
    'strided_accumulates = { value = 0.4, source = "test" }\n'
    'refill = { value = "40 GB/s", source = "test" }\n'
    'cache = { value = "600 B", source = "test" }\ncount = {',
    1,
).replace(
    'sizes = ["100 B", "1 kB"]\nbandwidth = ["3 GB/s", "10 GB/s"]',
    'sizes = ["16 B", "64 B", "256 B", "512 B"]\nbandwidth = ["3 GB/s", "8 GB/s", "4 GB/s", "10 GB/s"]\n'
    'cached = { value = "9 GB/s", source = "test" }',
)
CACHED_BY_SIZE = CACHED.replace(
    'cached = { value = "9 GB/s", source = "test" }',
    'cached_by_size = ["4 GB/s", "10 GB/s", "7 GB/s", "5 GB/s"]',
)


@pytest.fixture(scope="module")
def machines(tmp_path_factory):
    """Own device per rank; twelve on one; three to one with every measured table; caches; those by size."""
    folder = tmp_path_factory.mktemp("machines")
    texts = {"one.toml": ONE, "m.toml": MEASURED, "c.toml": CACHED, "s.toml": CACHED_BY_SIZE}
    written = [umm.machine(write(folder, text, name)) for name, text in texts.items()]
    return [umm.machine("pvc-12"), *written]


def typed_problems():
    """Problems on up to 12 ranks, in types whose C is as wide as A and B, wider, or narrower than usual."""
    types = st.sampled_from(
        [("float32", "float32"), ("float32", "float64"), ("bfloat16", "float32"), ("bfloat16", "bfloat16")]
    )
    return st.builds(
        lambda problem, pair: replace(problem, dtype=pair[0], c_dtype=pair[1]), problems(max_ranks=12), types
    )


def pick(machines, problem, which):
    """One of the machines that states a peak for the problem's type."""
    able = [m for m in machines if problem.dtype in m.peaks]
    return able[which % len(able)]


# Actions ------------------------------------------------------------------------------------------


@settings(max_examples=examples(120))
@given(typed_problems(), stationaries, direct_options, st.integers(0, 4))
def test_every_action_is_the_one_the_definition_gives(machines, problem, stationary, options, which):
    machine = pick(machines, problem, which)
    schedule = umm.schedule(problem, machine, stationary=stationary, **options)
    wanted = Lowering(problem, machine, stationary, **options)
    rows = spelled_out(json.loads(schedule.to_json()))
    assert len(rows) == len(wanted.actions)
    before = []  # everything that finishes before an action starts, by dependencies alone, as bits
    for row, action in zip(rows, wanted.actions, strict=True):
        assert without_times(row) == without_times(action)
        assert isclose(row.get("seconds", 0.0), action.get("seconds", 0.0), rel_tol=1e-12)
        implied = 0
        for other in row["after"]:
            implied |= before[other] | 1 << other
        before.append(implied)
        missing = [other for other in action["after"] if not implied >> other & 1]
        assert not missing, (row, action)
        if row["kind"] != "barrier":
            assert set(row["after"]) <= set(action["after"]) | wanted.also.get(row["id"], set()), (
                row,
                action,
            )
    assert [slots.tolist() for slots in schedule.pools] == wanted.pools()
    assert schedule.memory_bytes.tolist() == wanted.memory()


def spelled_out(document):
    """The actions of a JSON form with temporaries in the place of their numbers, which say nothing."""
    buffers = document["buffers"]

    def slice_(piece):
        return piece if isinstance(piece[0], str) else [buffers[piece[0]], *piece[1:]]

    return [
        row
        if "writes" not in row
        else row | {"writes": slice_(row["writes"]), "reads": [slice_(x) for x in row["reads"]]}
        for row in document["actions"]
    ]


def without_times(action):
    return {key: value for key, value in action.items() if key not in ("after", "seconds")}


@st.composite
def misaligned_texts(draw, shape, ranks):
    """Many tiles per rank whose edges meet those of no other matrix."""
    grid = "x".join(map(str, draw(grids(ranks))))
    if draw(st.booleans()):
        return f"cyclic:{draw(st.integers(1, 5))}x{draw(st.integers(1, 5))}:{grid}"
    inner = [draw(st.lists(st.integers(0, size), min_size=2, max_size=5)) for size in shape]
    edges = ["-".join(map(str, [0, *sorted(x), size])) for x, size in zip(inner, shape, strict=True)]
    return f"edges:{edges[0]}x{edges[1]}:{grid}"


@settings(max_examples=examples(150))
@given(st.data(), st.sampled_from([1, 2, 4]), st.tuples(*[st.integers(5, 14)] * 3), offsets)
def test_misaligned_tiles_are_multiplied_in_the_defined_order(data, ranks, sizes, offset):
    m, n, k = sizes
    a, b, c = (data.draw(misaligned_texts(shape, ranks)) for shape in ((m, k), (k, n), (m, n)))
    problem = Problem(m=m, n=n, k=k, a=a, b=b, c=c, ranks=ranks)
    for stationary in "ABC":
        result = [[] for _ in range(ranks)]
        schedule = umm.schedule(problem, "h200-1", stationary=stationary, offset=offset)
        d = schedule.details
        for i in np.flatnonzero(schedule.kind == GEMM):
            ranges = d.rows[i, 0], d.cols[i, 0], d.cols[i, 1]
            result[schedule.rank[i]].append(tuple(tuple(x.tolist()) for x in ranges))
        ops = [ops_of(problem, stationary, offset, rank) for rank in range(ranks)]
        assert result == [[(op.m, op.n, op.k) for op in listed] for listed in ops]


def test_a_replicas_share_is_cut_at_ceil_edges_and_counted_once():
    """k = 10 over three replicas: 4, 4, 2; A's tiles are cut at 5, so the second replica has two ops."""
    problem = Problem(m=2, n=2, k=10, a="edges:0-2x0-5-10:1x3", b="row", c="row@3", ranks=3)
    schedule = umm.schedule(problem, "h200-1", stationary="C", offset="none")
    a, b = (schedule.touched_tiles(x) for x in (0, 1))
    parts = [
        (int(schedule.rank[i]), schedule.details.cols[i, 1].tolist(), int(a[i, 1]), int(b[i, 0]))
        for i in np.flatnonzero(schedule.kind == GEMM)
    ]
    assert sorted(parts) == [(0, [0, 4], 0, 0), (1, [4, 5], 0, 1), (1, [5, 8], 1, 1), (2, [8, 10], 1, 2)]


# JSON ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(40))
@given(typed_problems(), stationaries, direct_options, st.integers(0, 4))
def test_json_says_what_the_definition_says(machines, problem, stationary, options, which):
    """Beside the described keys there are only the options, and C's type where it is not the usual one."""
    machine = pick(machines, problem, which)
    result = json.loads(umm.schedule(problem, machine, stationary=stationary, **options).to_json())
    wanted = Lowering(problem, machine, stationary, **options).document()
    assert {**options}.items() <= result.pop("options").items()
    assert result["problem"].pop("c_dtype", problem.c_dtype) == problem.c_dtype
    actions, expected = spelled_out(result), wanted.pop("actions")
    result.pop("actions")
    buffers, wanted_buffers = (sorted(map(json.dumps, x.pop("buffers"))) for x in (result, wanted))
    assert buffers == wanted_buffers
    assert result == wanted
    assert [without_times(x) for x in actions] == [without_times(x) for x in expected]
    assert [list(x) for x in actions] == [list(x) for x in expected]  # the same keys in the same order


TRANSFER = "id rank kind lane after op src dst nbytes writes reads"
KEYS = {
    "gemm": "id rank kind lane after op seconds writes reads",
    "gemm that adds": "id rank kind lane after op seconds writes reads beta",
    "get": TRANSFER,
    "accumulate": TRANSFER,
    "accumulate to itself": "id rank kind lane after op src dst nbytes seconds writes reads",
    "reduce": TRANSFER,
    "broadcast": TRANSFER,
    "barrier": "id rank kind lane after",
}
HEADER = (
    "schema name machine ranks problem tensors options interference functions means buffers pools links "
    "routes lanes actions"
)


def test_json_has_exactly_the_described_keys():
    """The options are the one thing more; a reader may skip them."""
    problem = Problem(m=8, n=7, k=5, a="col", b="2d", c="2d@2", ranks=4)
    result = json.loads(umm.schedule(problem, "pvc-12", stationary="A", final="broadcast").to_json())
    in_place = json.loads(umm.schedule(problem, "pvc-12", stationary="C", final="reduce").to_json())
    assert keys(result) == HEADER
    assert keys(result["problem"]) == "m n k dtype a b c"
    assert {keys(x) for x in result["tensors"]} == {"name shape dtype layout role"}
    assert keys(result["interference"]) == "get accumulate reduce"
    assert {keys(x) for x in result["buffers"]} == {"rank slot tensor rows cols"}
    assert {keys(x) for x in result["pools"]} == {"rank slots"}
    assert {keys(x) for x in result["links"]} == {"name bandwidth latency"}
    assert {keys(x) for x in result["lanes"]} == {"rank name engine"}
    assert all(len(route) == 3 and isinstance(route[2], list) for route in result["routes"])
    kinds = set()
    for action in result["actions"] + in_place["actions"]:
        kind = action["kind"] + (" to itself" if action.get("src", -1) == action.get("dst", -2) else "")
        kind += " that adds" if kind == "gemm" and isinstance(action["writes"][0], str) else ""
        assert keys(action) == KEYS[kind]
        kinds.add(kind)
    assert kinds == set(KEYS)


def keys(table):
    return " ".join(table)

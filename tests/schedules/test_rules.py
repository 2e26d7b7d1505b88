"""Each rule of a schedule, by a schedule in which one number breaks it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from readable import MACHINE

from umm.errors import ScheduleError
from umm.interval import Interval
from umm.layouts.layout import Layout
from umm.machines.curves import Means
from umm.program import Chain
from umm.program.tensors import Tensor
from umm.schedules.file.arrays import from_arrays, to_arrays
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder

GET, GEMM, GELU, CAST, BARRIER, PUT, ACCUMULATE, ROW_SUM, SOFTMAX = range(9)
"""Actions of the schedule below, in its order."""
FAR = 2**62


def tensor(name, rows, cols, layout, role, dtype="float64"):
    return Tensor(name, Layout.parse(layout, (rows, cols), 2), dtype, role)


def written() -> Schedule:
    """Return a schedule of nine actions on two ranks, each with half of the rows of every tensor."""
    x, y = tensor("X", 4, 4, "row", "input"), tensor("Y", 4, 4, "row", "output")
    z, h = tensor("Z", 4, 4, "row", "work"), tensor("H", 4, 4, "row", "work", "float32")
    sums = tensor("sums", 4, 1, "row", "work")
    machine = replace(MACHINE, means={"kernel": Means(0.0)})
    build = Builder("rules", Chain("rules", (x,), (), 2), machine, (y, z, h, sums))
    columns = Interval(0, 4)
    fetched = build.temporary(0, "X", Interval(2, 4), columns)
    sent = build.temporary(1, "Z", Interval(0, 2), columns)
    tiles = {name: build.own(name, 0) for name in "XYZH"}
    build.get(build.own("X", 1), fetched, means="kernel")
    build.gemm(tiles["Y"], tiles["X"].cut(Interval(0, 2), Interval(0, 2)), fetched, beta=0.0)
    build.map("gelu", tiles["Z"], tiles["Y"])
    build.map("cast", tiles["H"], tiles["Z"])
    build.barrier()
    build.put(tiles["Z"], sent)
    build.accumulate(tiles["Z"], sent)
    build.map("row_sum", build.own("sums", 0), tiles["Z"])
    build.map("softmax", tiles["Y"], tiles["Z"])
    return build.schedule()


def broken(changes):
    """Return the arrays of the schedule with some elements changed."""
    arrays = {name: np.array(column) for name, column in to_arrays(written()).items()}
    for name, place, value in changes:
        arrays[name][place] = value
    return arrays


# Buffers: a tile of every tensor at each rank, X, Y, Z, H and sums; then temporaries: 10 at rank 0, 11 at 1.
BROKEN = {
    # What waits for what, and where.
    "after": ([("after", 0, 7)], "waits for an action that does not come before it"),
    "kind": ([("kind", GET, 9)], "has kind 9"),
    "rank": ([("rank", GEMM, 2)], "has a rank that does not exist"),
    "barrier rank": ([("rank", BARRIER, 0)], "must have rank -1"),
    "barrier lane": ([("lane", BARRIER, 0)], "must have lane -1 if it is a barrier"),
    "lane": ([("lane", GEMM, 99)], "has a lane that does not exist"),
    "lane of another": ([("lane", GEMM, 7)], "is on a lane that belongs to another rank"),
    "no engine": ([("lane", GEMM, 1)], "is on a lane without an engine"),
    "no time": ([("seconds", GEMM, -1.0)], "has a duration that is not a time"),
    "NaN": ([("seconds", GEMM, np.nan)], "has a duration that is not a time"),
    "ages": ([("seconds", GEMM, 2e12)], "has a duration that is not a time"),
    "barrier time": ([("seconds", BARRIER, 1.0)], "cannot take time"),
    "op": ([("detail_op", GEMM, -2)], "has an op that is not a number of one"),
    "op of a barrier": ([("detail_op", BARRIER, 0)], "has an op that is not a number of one"),
    # Transfers.
    "src": ([("src", GET, 2)], "moves bytes from or to a rank that does not exist"),
    "src of a gemm": ([("src", GEMM, 0)], "has a source or destination, but moves no bytes"),
    "nbytes": ([("nbytes", GET, -1)], "cannot move fewer than 0 bytes"),
    "nbytes of a gemm": ([("nbytes", GEMM, 8)], "has bytes, but is not a transfer"),
    "all nbytes": ([("nbytes", [GET, PUT], FAR)], "moves more bytes than 64 bits count"),
    "get": ([("src", GET, 0), ("dst", GET, 1)], "belongs to the rank where its bytes arrive"),
    "put": ([("src", PUT, 1), ("dst", PUT, 0)], "belongs to the rank whose bytes travel"),
    "no bytes": ([("nbytes", GET, 0)], "moves no bytes; leave it out"),
    "slices of a barrier": ([("detail_buffer", (BARRIER, 0), 2)], "touches no data, so it has no slices"),
    # Buffers.
    "buffer rank": ([("buffer_rank", 0, 2)], "is held by a rank that does not exist"),
    "buffer tensor": ([("buffer_tensor", 0, 5)], "is a piece of no tensor"),
    "empty buffer": ([("buffer_rows", 0, [2, 2])], "is empty, or its range falls"),
    "leaving buffer": ([("buffer_rows", 0, [2, 5])], "leaves its tensor"),
    "slot": ([("buffer_slot", 0, 3)], "is in a pool slot that does not exist"),
    "large buffer": ([("buffer_rows", 0, [0, 4])], "does not fit its pool slot"),
    # Slices.
    "buffer": ([("detail_buffer", (GET, 0), 12)], "names a buffer that is not there"),
    "unused range": ([("detail_rows", (GET, 3), [0, 1])], "has a range for an operand that it does not have"),
    "no target": (
        [(f"detail_{x}", (GET, 0), y) for x, y in (("buffer", -1), ("rows", 0), ("cols", 0))],
        "writes nothing",
    ),
    "no source": (
        [(f"detail_{x}", (GET, 1), y) for x, y in (("buffer", -1), ("rows", 0), ("cols", 0))],
        "must read one slice",
    ),
    "one factor": (
        [(f"detail_{x}", (GEMM, 2), y) for x, y in (("buffer", -1), ("rows", 0), ("cols", 0))],
        "must read two slices",
    ),
    "a factor left out": (
        [(f"detail_{x}", (GEMM, 1), y) for x, y in (("buffer", -1), ("rows", 0), ("cols", 0))],
        "leaves out an operand between others",
    ),
    "empty slice": ([("detail_rows", (GET, 0), [3, 3])], "has an empty slice as operand 0"),
    "leaving slice": ([("detail_rows", (GET, 0), [1, 3])], "has a slice that leaves its buffer as operand 0"),
    "another's memory": (
        [("detail_buffer", (GELU, 1), 3), ("detail_rows", (GELU, slice(2)), [2, 4])],
        "in the memory of another rank|leaves its buffer",
    ),
    "input": ([("detail_buffer", (GELU, 0), 0)], "writes to an input"),
    "shape": ([("detail_rows", (PUT, 1), [0, 1])], "moves a slice to one of another shape"),
    "other columns": (
        [("detail_cols", (PUT, 0), [0, 2]), ("detail_cols", (PUT, 1), [2, 4])],
        "moves rows or columns of a tensor to others of it",
    ),
    "type": ([("detail_buffer", (PUT, 1), 6)], "changes the type; only a map can"),
    # Multiplies.
    "alpha of a get": ([("detail_alpha", GET, 2.0)], "is not a gemm, so it has no trans, alpha"),
    "batch axes of a map": ([("detail_batch_axes", (GELU, 0), 1)], "is not a gemm, so it has no trans"),
    "trans": ([("detail_trans", GEMM, 1)], "has a trans that is not 0, 2, 4 or 6"),
    "alpha": ([("detail_alpha", GEMM, np.inf)], "has an alpha or beta that is not a number"),
    "beta": ([("detail_beta", GEMM, np.nan)], "has an alpha or beta that is not a number"),
    "batch": ([("detail_batch", GEMM, 0)], "has no members"),
    "groups": ([("detail_groups", (GEMM, 0), 2)], "has groups that do not divide its batch"),
    "batch axis": ([("detail_batch_axes", (GEMM, 0), 2)], "has a batch axis that is not 0 or 1"),
    "members": ([("detail_batch", GEMM, 3)], "has a slice that its members do not share equally"),
    "transposed": ([("detail_trans", GEMM, 4)], "multiplies slices whose shapes do not fit together"),
    "two types": (
        [("detail_buffer", (GEMM, 1), 6), ("detail_rows", (GEMM, 1), [0, 2])],
        "multiplies two types; convert one by a map cast",
    ),
    # Maps.
    "fn of a get": ([("detail_fn", GET, 0)], "is not a map, so it has no function"),
    "fn": ([("detail_fn", GELU, 4)], "has a function that is not there"),
    "operands of a map": (
        [(f"detail_{x}", (GELU, 2), y) for x, y in (("buffer", 2), ("rows", [0, 2]), ("cols", [0, 4]))],
        "is not gelu: .*, which has 2 operands",
    ),
    "ranges of a map": ([("detail_cols", (GELU, 1), [0, 3])], "is not gelu: .*; its ranges differ"),
    "tensors of a map": (
        [("detail_buffer", (GELU, 0), 8), ("detail_cols", (GELU, slice(2)), [0, 1])],
        "is not gelu: .*; its tensors differ",
    ),
    "one line": ([("detail_buffer", (ROW_SUM, 0), 2)], "; operand 0 must have one line there"),
    "split rows": ([("detail_cols", (SOFTMAX, slice(2)), [0, 3])], "splits rows, which softmax cannot"),
    "own output": ([("detail_buffer", (GEMM, 1), 2)], "reads what it writes"),
    # Temporaries.
    "unwritten": ([("kind", PUT, 3)], "reads of a temporary what no row before it has put there"),
    # Ways to move bytes.
    "means": ([("means_of", GET, 1)], "has a means that is not there"),
    "means of a gemm": ([("means_of", GEMM, 0)], "moves no bytes, so it has no means"),
}  # fmt: skip


def test_the_schedule_keeps_every_rule():
    assert len(from_arrays(broken([]), Schedule)) == 9


@pytest.mark.parametrize("rule", BROKEN)
def test_a_schedule_that_breaks_a_rule_is_refused_by_it(rule):
    changes, message = BROKEN[rule]
    with pytest.raises(ScheduleError, match=message):
        from_arrays(broken(changes), Schedule)


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ([[60], [64]], "buffer 0 does not fit its pool slot"),
        ([[68], [64]], "buffer 0 lies in a slot that is not a whole number of its elements"),
        ([[2**63 - 8], [64]], "rank 0 would hold"),
    ],
)
def test_pool_slots_hold_their_buffers(pools, message):
    arrays = broken([])
    header = json.loads(str(arrays["header"]))
    assert [x["slots"] for x in header["pools"]] == [[64], [64]]
    arrays["header"] = np.array(
        json.dumps(header | {"pools": [{"rank": x, "slots": slots} for x, slots in enumerate(pools)]})
    )
    with pytest.raises(ScheduleError, match=message):
        from_arrays(arrays, Schedule)

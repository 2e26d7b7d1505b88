"""The rules of operands: buffers that exist, slices inside them, shapes that fit together."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from umm.arrays import Bools
from umm.dtypes import is_float8
from umm.errors import InputError, ScheduleError
from umm.interval import Interval
from umm.program.functions import Function, function
from umm.program.tensors import LARGEST
from umm.schedules.table.details import GEMM, MAP, TRANSFERS, operand_ranks
from umm.schedules.table.table import Table

Refuse = Callable[[Bools, str], None]  # raises an error about the first action of those that break a rule


def check_buffers(schedule: Table) -> None:
    """Refuse temporaries that leave their tensor or do not fit their pool slot."""
    temporaries = schedule.temporaries

    def refuse(bad: Bools, why: str) -> None:
        if bad.any():
            raise ScheduleError(f"buffer {int(np.argmax(bad))} {why}")

    refuse(
        (temporaries.rank < 0) | (temporaries.rank >= schedule.ranks), "is held by a rank that does not exist"
    )
    refuse(
        (temporaries.tensor < 0) | (temporaries.tensor >= len(schedule.tensors)), "is a piece of no tensor"
    )
    if not len(temporaries):
        return
    shape = np.array([tensor.shape for tensor in schedule.tensors])[temporaries.tensor]
    for axis, span in enumerate((temporaries.rows, temporaries.cols)):
        refuse((span[:, 0] < 0) | (span[:, 0] >= span[:, 1]), "is empty, or its range falls")
        refuse(span[:, 1] > shape[:, axis], "leaves its tensor")
    slots = np.array([len(pool) for pool in schedule.pools])
    refuse(
        (temporaries.slot < 0) | (temporaries.slot >= slots[temporaries.rank]),
        "is in a pool slot that does not exist",
    )
    # Pools have different numbers of slots by rank: all slots in one flat array, a rank's from `first` on.
    first = np.concatenate(([0], slots.cumsum()))[:-1]
    size = np.concatenate(schedule.pools)[first[temporaries.rank] + temporaries.slot]
    item = schedule.itemsizes[temporaries.tensor]
    refuse(temporaries.elements * item > size, "does not fit its pool slot")
    refuse(size % item != 0, "lies in a slot that is not a whole number of its elements, so not aligned")


def check_memory(schedule: Table) -> None:
    """Refuse tensors and pools of which a rank would hold more bytes than 64 bits count."""
    nbytes = [tensor.nbytes_of_rank.astype(np.float64) for tensor in schedule.tensors]
    total = sum(nbytes, np.array([float(slots.sum()) for slots in schedule.pools]))
    if (total >= 2.0**63).any():
        rank = int(np.argmax(total))
        raise ScheduleError(f"rank {rank} would hold {total[rank]:.3g} bytes; 64 bits count to 2^63 - 1")


def check_pieces(schedule: Table, refuse: Refuse) -> None:
    """Refuse slices that leave their buffers, lie at another rank, or do not fit together."""
    d, buffers, kind = schedule.details, schedule.buffers, schedule.kind
    used = d.buffer >= 0
    refuse(np.any((d.buffer < -1) | (d.buffer >= len(buffers)), axis=1), "names a buffer that is not there")
    transfer, gemm, maps = np.isin(kind, TRANSFERS), kind == GEMM, kind == MAP
    unused = ~used[:, :, None] & ((d.rows != 0) | (d.cols != 0))
    refuse(np.any(unused, axis=(1, 2)), "has a range for an operand that it does not have")
    refuse(~used[:, 0] & (transfer | gemm | maps), "writes nothing")
    refuse(np.any(~used[:, 1:-1] & used[:, 2:], axis=1), "leaves out an operand between others")
    # None is left out between others, so their number says which they are.
    refuse(transfer & (used.sum(axis=1) != 2), "must read one slice")
    refuse(gemm & (used.sum(axis=1) != 3), "must read two slices")
    if not schedule.tensors:
        return
    # Checked operand by operand, over all actions at once. What has no such operand looks up buffer 0 and is
    # masked by `here`.
    place = operand_ranks(kind, schedule.rank, schedule.src, schedule.dst)
    for x in range(d.operands):
        here = used[:, x]
        if not here.any():
            continue
        buffer = np.where(here, d.buffer[:, x], 0)
        for span, extent in ((d.rows[:, x], buffers.rows[buffer]), (d.cols[:, x], buffers.cols[buffer])):
            refuse(here & (span[:, 0] >= span[:, 1]), f"has an empty slice as operand {x}; leave it out")
            refuse(
                here & ((span[:, 0] < extent[:, 0]) | (span[:, 1] > extent[:, 1])),
                f"has a slice that leaves its buffer as operand {x}",
            )
        refuse(here & (buffers.rank[buffer] != place[:, x]), f"has operand {x} in the memory of another rank")
    # Only owned tiles are protected: a temporary may be a piece of an input, as what a get brings is.
    given: Bools = np.array([tensor.role == "input" for tensor in schedule.tensors])
    in_tiles = used[:, 0] & (d.buffer[:, 0] < schedule.first_temporary)
    refuse(in_tiles & given[schedule.operand_tensors(0)], "writes to an input")
    _check_transfers(schedule, transfer, refuse)
    _check_gemms(schedule, gemm, refuse)
    _check_maps(schedule, maps, refuse)
    _check_overlap(schedule, refuse)


def _check_transfers(schedule: Table, transfer: Bools, refuse: Refuse) -> None:
    d, shape = schedule.details, schedule.details.shape
    refuse(transfer & (shape[:, 0] != shape[:, 1]).any(axis=1), "moves a slice to one of another shape")
    target, source = schedule.operand_tensors(0), schedule.operand_tensors(1)
    # Elements keep their global indices within a tensor; between two tensors rows may shift, as where parts
    # of one are laid side by side in another.
    differs = (d.rows[:, 0] != d.rows[:, 1]).any(axis=1) | (d.cols[:, 0] != d.cols[:, 1]).any(axis=1)
    refuse(transfer & (target == source) & differs, "moves rows or columns of a tensor to others of it")
    dtypes = np.array([tensor.dtype for tensor in schedule.tensors])
    refuse(transfer & (dtypes[target] != dtypes[source]), "changes the type; only a map can")


def _check_gemms(schedule: Table, gemm: Bools, refuse: Refuse) -> None:
    d = schedule.details
    plain = (d.trans == 0) & (d.alpha == 1) & (d.beta == 0) & (d.batch == 1)
    plain &= (d.batch_axes == 0).all(axis=1) & (d.groups == 1).all(axis=1)
    refuse(~gemm & ~plain, "is not a gemm, so it has no trans, alpha, beta, batch or groups")
    refuse(gemm & ((d.trans < 0) | (d.trans & ~6 != 0)), "has a trans that is not 0, 2, 4 or 6")
    refuse(~np.isfinite(d.alpha) | ~np.isfinite(d.beta), "has an alpha or beta that is not a number")
    refuse(d.batch < 1, "has no members")
    batch = np.maximum(d.batch, 1)[:, None]
    refuse(
        np.any((d.groups < 1) | (batch % np.maximum(d.groups, 1) != 0), axis=1),
        "has groups that do not divide its batch",
    )
    refuse(np.any((d.batch_axes < 0) | (d.batch_axes > 1), axis=1), "has a batch axis that is not 0 or 1")
    # Members of a batch cut each operand along its batch axis; where a group shares an operand there are as
    # many fewer pieces of it. Shapes are then those of one member, which must fit as of a plain gemm.
    members = batch // np.maximum(d.groups, 1)
    shape = d.shape[:, :3].copy()
    action, operand = np.indices(members.shape)
    along = shape[action, operand, d.batch_axes]
    refuse(gemm & (along % members != 0).any(axis=1), "has a slice that its members do not share equally")
    shape[action, operand, d.batch_axes] = along // members
    a = np.where((d.trans & 2 != 0)[:, None], shape[:, 1, ::-1], shape[:, 1])
    b = np.where((d.trans & 4 != 0)[:, None], shape[:, 2, ::-1], shape[:, 2])
    fits = (a[:, 0] == shape[:, 0, 0]) & (b[:, 1] == shape[:, 0, 1]) & (a[:, 1] == b[:, 0])
    refuse(gemm & ~fits, "multiplies slices whose shapes do not fit together")
    # Counted in floats, which do not wrap where the exact count would not fit into 64 bits.
    flop = 2.0 * shape[:, 0, 0] * shape[:, 0, 1] * a[:, 1] * d.batch
    refuse(gemm & (flop >= LARGEST), "takes more flop than can be counted: 2^60 or more")
    dtypes = np.array([tensor.dtype for tensor in schedule.tensors])
    left, right = (dtypes[schedule.operand_tensors(x)] for x in (1, 2))
    small = np.array([is_float8(tensor.dtype) for tensor in schedule.tensors])
    scaled = small[schedule.operand_tensors(1)] & small[schedule.operand_tensors(2)]
    refuse(gemm & (left != right) & ~scaled, "multiplies two types; convert one by a map cast")


def _check_maps(schedule: Table, maps: Bools, refuse: Refuse) -> None:
    d = schedule.details
    refuse(~maps & (d.fn != -1), "is not a map, so it has no function")
    refuse(maps & ((d.fn < 0) | (d.fn >= len(schedule.functions))), "has a function that is not there")
    for number, made in enumerate(schedule.functions):
        try:
            known = function(made.name)
            known.checked(made.parameters)
        except InputError as error:
            raise ScheduleError(f"function {number}: {error}") from None
        rows = maps & (d.fn == number)
        _check_function(schedule, rows, known, made.parameters, refuse)
        _check_whole(schedule, rows, known, made.parameters, refuse)


def _check_function(
    schedule: Table, rows: Bools, known: Function, parameters: Mapping[str, Any], refuse: Refuse
) -> None:
    """Refuse maps whose slices do not fit a function's signature."""
    d = schedule.details
    letters = known.operands
    named = f"is not {known.name}: {known.signature}"
    refuse(
        rows & ((d.buffer >= 0).sum(axis=1) != len(letters)), f"{named}, which has {len(letters)} operands"
    )
    shapes = np.array([tensor.shape for tensor in schedule.tensors])
    for axis, spans in enumerate((d.rows, d.cols)):
        # Each letter of a signature stands for one range: it must be the same wherever the letter occurs.
        # Reversed, so that the first operand with the letter is the one compared with.
        first = {shape[axis]: x for x, shape in reversed(list(enumerate(letters)))}
        for x, letter in enumerate(letters):
            tensor = schedule.operand_tensors(x)
            if letter[axis] != "1":
                same = spans[:, x] == spans[:, first[letter[axis]]]
                refuse(rows & ~same.all(axis=1), f"{named}; its ranges differ")
                other = schedule.operand_tensors(first[letter[axis]])
                refuse(rows & (shapes[tensor, axis] != shapes[other, axis]), f"{named}; its tensors differ")
            else:
                refuse(rows & (shapes[tensor, axis] != 1), f"{named}; operand {x} must have one line there")
    columns = [x for x, shape in enumerate(letters) if shape[1] == "c"]
    if columns:
        span, width = d.cols[:, columns[0]], shapes[schedule.operand_tensors(columns[0]), 1]
        unit = known.unit(parameters)
        if unit == 0:
            refuse(
                rows & ((span[:, 0] != 0) | (span[:, 1] != width)), f"splits rows, which {known.name} cannot"
            )
        else:
            cut = (span % unit != 0) & (span != width[:, None])
            refuse(rows & cut.any(axis=1), f"cuts columns, which {known.name} does at {unit} only")
    if not known.is_plain:
        _check_slices(schedule, rows, known, parameters, refuse)


def _check_slices(
    schedule: Table, rows: Bools, known: Function, parameters: Mapping[str, Any], refuse: Refuse
) -> None:
    """Refuse maps whose slices do not belong together, of a function with more letters than r and c."""
    d, count = schedule.details, len(known.operands)
    for i in rows.nonzero()[0].tolist():
        spans = [
            (Interval(*of_rows), Interval(*of_cols))
            for of_rows, of_cols in zip(d.rows[i, :count].tolist(), d.cols[i, :count].tolist(), strict=True)
        ]
        why = known.misfit(spans, parameters)
        refuse((np.arange(len(schedule)) == i) & (why is not None), f"is not {known.name}: it {why}")


def _check_whole(
    schedule: Table, rows: Bools, known: Function, parameters: Mapping[str, Any], refuse: Refuse
) -> None:
    """Refuse maps on tensors that a function with these parameters cannot work on, such as odd heads."""
    tensors = np.stack([schedule.operand_tensors(x) for x in range(len(known.operands))], axis=1)
    for of_some in np.unique(tensors[rows], axis=0):
        sizes = known.whole([schedule.tensors[tensor].shape for tensor in of_some.tolist()])
        try:
            known.checked(parameters, sizes)
        except InputError as error:
            refuse(rows & (tensors == of_some).all(axis=1), f"has a function that does not fit: {error}")


def _check_overlap(schedule: Table, refuse: Refuse) -> None:
    """Refuse actions that read their own output, except a map that reads exactly the slice it writes."""
    d, buffers = schedule.details, schedule.buffers
    target = d.buffer[:, 0]
    for x in range(1, d.operands):
        both = (target >= 0) & (d.buffer[:, x] >= 0)
        source = d.buffer[:, x]
        meets = both & (target == source)
        for span in (d.rows, d.cols):
            meets &= (span[:, 0, 0] < span[:, x, 1]) & (span[:, x, 0] < span[:, 0, 1])
        same = (d.rows[:, 0] == d.rows[:, x]).all(axis=1) & (d.cols[:, 0] == d.cols[:, x]).all(axis=1)
        refuse(meets & ~((schedule.kind == MAP) & same), "reads what it writes")
        # Two buffers of one slot are the same memory under two names, so reading one destroys the other.
        slot = both & (target != source) & (buffers.slot[target] >= 0)
        for place in (buffers.slot, buffers.rank):
            slot &= place[target] == place[source]
        refuse(slot, "reads one buffer of a pool slot and writes to another")

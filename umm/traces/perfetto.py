"""The actions of a trace as a pandas frame, and as a file for Perfetto."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from umm.arrays import Ints, group_of_row
from umm.errors import UmmError
from umm.files import whole_file
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import tile_at
from umm.schedules.table.details import KINDS
from umm.traces.traffic import Spans

if TYPE_CHECKING:
    import pandas as pd


def action_frame(spans: Spans) -> "pd.DataFrame":
    """Return a row per action, in the order of the schedule.

    Columns are rank, lane (by name), kind, op, peer (the other rank of a transfer), start_s, end_s, nbytes
    (payload), flop, and for each tensor of the program its tile as text such as ``0,3``: a_tile, b_tile,
    c_tile of a multiply, X_tile, W1_tile and so on of a chain. Where a column has no meaning it is −1 or
    empty; a barrier has rank −1.
    """
    import pandas as pd

    schedule = spans.schedule
    lane_names = np.array([*schedule.lanes.names, ""], dtype=object)
    frame = pd.DataFrame(
        {
            "rank": schedule.rank,
            "lane": lane_names[schedule.lane],
            "kind": np.array(KINDS, dtype=object)[schedule.kind],
            "op": schedule.details.op,
            "peer": np.where(schedule.src == schedule.rank, schedule.dst, schedule.src),
            "start_s": spans.start,
            "end_s": spans.end,
            "nbytes": schedule.payload,
            "flop": schedule.flop,
        }
    )
    for number, column in enumerate(tile_columns(schedule)):
        # Tile indices as `row,column`, and nothing for −1.
        tiles = schedule.touched_tiles(number)
        width = int(tiles.max(initial=0)) + 1
        distinct, which = np.unique(tiles[:, 0] * width + tiles[:, 1], return_inverse=True)
        texts = ["" if tile < 0 else f"{tile // width},{tile % width}" for tile in distinct.tolist()]
        frame[column] = np.array(texts, dtype=object)[which]
    return frame


def tile_columns(schedule: Schedule) -> list[str]:
    """Return the columns of the frame that hold tiles, one for each tensor of the program."""
    names = [tensor.name for tensor in schedule.program.tensors]
    if schedule.program.kind == "problem":
        names = [name.lower() for name in names]
    return [f"{name}_tile" for name in names]


def touched_words(schedule: Schedule, actions: Ints) -> list[str]:
    """Return the tiles that each of some actions touches, the written one first: ``C(0,1) A(0,0) B(0,1)``."""
    words = []
    for operand in range(schedule.details.operands):
        of_operand = np.full(len(actions), "", dtype=object)
        tensors = schedule.operand_tensors(operand)[actions]
        for number in np.unique(tensors[tensors >= 0]).tolist():
            tensor, mine = schedule.tensors[number], np.flatnonzero(tensors == number)
            corners = (x[actions[mine], operand, 0] for x in (schedule.details.rows, schedule.details.cols))
            tiles, which = np.unique(tile_at(tensor.layout, *corners), return_inverse=True)
            width = tensor.layout.grid_shape()[1]
            names = [f"{tensor.name}({tile // width},{tile % width})" for tile in tiles.tolist()]
            of_operand[mine] = np.array(names, dtype=object)[which]
        words.append(of_operand.tolist())
    return [
        " ".join(word for word in dict.fromkeys(of_action) if word) for of_action in zip(*words, strict=True)
    ]


_SEQUENCE = 1
_BARRIERS = 1  # the id of the track barriers are on; those of ranks and lanes follow


def write_perfetto(spans: Spans, path: str | Path) -> None:
    """Write a trace as a Perfetto protobuf file, to open in ui.perfetto.dev.

    Times are whole nanoseconds, as the format has them. An arrow leads from every action to those on other
    lanes that wait for it. UmmError if the extra ``perfetto`` is not installed. InputError if the file cannot
    be written.
    """
    try:
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder
    except ModuleNotFoundError:
        raise UmmError(
            'writing a Perfetto trace needs the perfetto package; pip install "umm-sim[perfetto]"'
        ) from None
    with whole_file(path) as partial, partial.open("wb") as file:
        builder = StreamingTraceProtoBuilder(file)
        _write_tracks(builder, spans)
        _write_slices(builder, spans)


def _write_tracks(builder: Any, spans: Spans) -> None:
    schedule = spans.schedule
    packet = builder.create_packet()
    packet.track_descriptor.uuid = _BARRIERS
    packet.track_descriptor.name = "barriers"
    builder.write_packet(packet)
    for rank in range(schedule.ranks):
        packet = builder.create_packet()
        track = packet.track_descriptor
        track.uuid = _BARRIERS + 1 + rank
        # Process 0 is the idle process in Perfetto's eyes.
        track.process.pid = rank + 1
        track.process.process_name = f"rank {rank}"
        builder.write_packet(packet)
    for lane in np.unique(schedule.lane[schedule.lane >= 0]).tolist():
        packet = builder.create_packet()
        rank = int(schedule.lanes.rank[lane])
        track = packet.track_descriptor
        track.uuid = _lane_track(schedule.ranks, lane)
        track.parent_uuid = _BARRIERS + 1 + rank
        track.thread.pid = rank + 1
        track.thread.tid = schedule.ranks + 1 + lane
        track.thread.thread_name = schedule.lanes.names[lane]
        builder.write_packet(packet)


def _lane_track(ranks: int, lane: int) -> int:
    return _BARRIERS + 1 + ranks + lane


def _write_slices(builder: Any, spans: Spans) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent

    schedule = spans.schedule
    start = np.rint(spans.start * 1e9).astype(np.int64).tolist()
    end = np.rint(spans.end * 1e9).astype(np.int64).tolist()
    # The ids of the arrows that leave each action and of those that arrive.
    then = group_of_row(schedule.after_offsets)
    other = np.flatnonzero(schedule.lane[schedule.after] != schedule.lane[then])
    arrows_out, arrows_in = dict[int, list[int]](), dict[int, list[int]]()
    for arrow, wait in enumerate(other.tolist(), start=1):
        arrows_out.setdefault(int(schedule.after[wait]), []).append(arrow)
        arrows_in.setdefault(int(then[wait]), []).append(arrow)
    columns = ("kind", "op", "peer", "nbytes", "flop", *tile_columns(schedule))
    frame = action_frame(spans)
    touched = touched_words(schedule, np.arange(len(schedule)))
    rows = zip(*(frame[column].tolist() for column in columns), strict=True)
    lanes = schedule.lane.tolist()

    def packet(action: int, when: int, what: int) -> Any:
        made = builder.create_packet()
        made.timestamp = when
        made.trusted_packet_sequence_id = _SEQUENCE
        made.track_event.type = what
        lane = lanes[action]
        made.track_event.track_uuid = _BARRIERS if lane < 0 else _lane_track(schedule.ranks, lane)
        return made

    for action, row in enumerate(rows):
        values = dict(zip(columns, row, strict=True))
        begin = TrackEvent.TYPE_INSTANT if lanes[action] < 0 else TrackEvent.TYPE_SLICE_BEGIN
        opening = packet(action, start[action], begin)
        opening.track_event.name = f"{values['kind']} {touched[action]}".strip()
        opening.track_event.categories.append(values["kind"])
        for name in columns[1:]:
            if values[name] in ("", -1) or (name in ("nbytes", "flop") and not values[name]):
                continue
            note = opening.track_event.debug_annotations.add()
            note.name = name
            if isinstance(values[name], str):
                note.string_value = values[name]
            else:
                note.int_value = values[name]
        opening.track_event.flow_ids.extend(arrows_out.get(action, ()))
        opening.track_event.terminating_flow_ids.extend(arrows_in.get(action, ()))
        builder.write_packet(opening)
        if lanes[action] >= 0:
            builder.write_packet(packet(action, end[action], TrackEvent.TYPE_SLICE_END))

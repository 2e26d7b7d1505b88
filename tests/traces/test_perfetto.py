"""Perfetto files: tracks, slices and arrows."""

import builtins
import re

import pytest
from made_traces import gelu_of_a_product, two_ranks

from umm.errors import UmmError


def read_perfetto(path):
    """The packets of a Perfetto file."""
    pb2 = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    made = pb2.Trace()
    made.ParseFromString(path.read_bytes())
    return made.packet, pb2.TrackEvent


def test_perfetto_has_a_process_per_rank_and_a_thread_per_lane_used(tmp_path):
    two_ranks().to_perfetto(tmp_path / "t.pftrace")
    packets, event = read_perfetto(tmp_path / "t.pftrace")
    tracks = [p.track_descriptor for p in packets if p.HasField("track_descriptor")]
    assert [t.process.process_name for t in tracks if t.HasField("process")] == ["rank 0", "rank 1"]
    threads = [(t.thread.pid, t.thread.thread_name) for t in tracks if t.HasField("thread")]
    assert threads == [
        (1, "compute"),
        (1, "copy_in.0"),
        (2, "compute"),
        (2, "copy_in.0"),
        (2, "accumulate.0"),
    ]
    numbers = [t.thread.tid for t in tracks if t.HasField("thread")]
    assert len({*numbers, 1, 2}) == len(threads) + 2  # no thread has the number of another, or of a process
    begins = [p for p in packets if p.track_event.type == event.TYPE_SLICE_BEGIN]
    ends = [p for p in packets if p.track_event.type == event.TYPE_SLICE_END]
    assert len(begins) == len(ends) == 7
    get = begins[1]
    assert (get.track_event.name, get.timestamp, ends[1].timestamp) == ("get A(0,0)", 0, 2_000_000_000)
    notes = {n.name: getattr(n, n.WhichOneof("value")) for n in get.track_event.debug_annotations}
    assert notes == {"op": 0, "peer": 0, "nbytes": 16, "a_tile": "0,0"}
    peers = [[n.int_value for n in x.track_event.debug_annotations if n.name == "peer"] for x in begins]
    frame = two_ranks().to_frame()
    assert peers == [[x] if x >= 0 else [] for x in frame.peer[frame.kind != "barrier"]]


def test_perfetto_names_the_tiles_of_a_chain(tmp_path):
    gelu_of_a_product().to_perfetto(tmp_path / "t.pftrace")
    packets, event = read_perfetto(tmp_path / "t.pftrace")
    names = [p.track_event.name for p in packets if p.track_event.type == event.TYPE_SLICE_BEGIN]
    assert names[:4] == [
        "gemm H(0,0) X(0,0) W(0,0)",
        "get W(0,1)",
        "gemm H(0,0) X(0,0) W(0,1)",
        "map Y(0,0) H(0,0)",
    ]


def test_perfetto_draws_an_arrow_for_every_wait_between_lanes(tmp_path):
    """1 → 2, 3 → 4, 4 → 6, 5 → 6, 6 → 7; 0 → 4 and 2 → 5 are in order on their lanes anyway."""
    two_ranks().to_perfetto(tmp_path / "t.pftrace")
    packets, event = read_perfetto(tmp_path / "t.pftrace")
    shown = [
        p.track_event
        for p in packets
        if p.track_event.type in (event.TYPE_SLICE_BEGIN, event.TYPE_INSTANT) and p.HasField("track_event")
    ]
    starts = {arrow: i for i, e in enumerate(shown) for arrow in e.flow_ids}
    ends = {arrow: i for i, e in enumerate(shown) for arrow in e.terminating_flow_ids}
    assert sorted((starts[arrow], ends[arrow]) for arrow in starts) == [
        (1, 2),
        (3, 4),
        (4, 6),
        (5, 6),
        (6, 7),
    ]


def test_without_the_extra_perfetto_names_the_line_that_installs_it(tmp_path, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name.startswith("perfetto"):
            raise ModuleNotFoundError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UmmError, match=re.escape('pip install "umm-sim[perfetto]"')):
        two_ranks().to_perfetto(tmp_path / "t.pftrace")
    assert not list(tmp_path.iterdir())

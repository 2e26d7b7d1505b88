"""When two schedules are one."""

from dataclasses import fields

import numpy as np

from umm.schedules.table.buffers import Buffers
from umm.schedules.table.details import Details

COLUMNS = ("kind", "rank", "lane", "after_offsets", "after", "src", "dst", "nbytes", "seconds")


def assert_same(one, other):
    """Equal in every column and in everything that decides the time."""
    for name in COLUMNS:
        x, y = getattr(one, name), getattr(other, name)
        assert x.dtype == y.dtype, name
        assert np.array_equal(x, y), name
    for part, kind in (("details", Details), ("temporaries", Buffers)):
        for field in fields(kind):
            x, y = (getattr(getattr(schedule, part), field.name) for schedule in (one, other))
            assert x.dtype == y.dtype, field.name
            assert np.array_equal(x, y), field.name
    assert [p.tolist() for p in one.pools] == [p.tolist() for p in other.pools]
    for name in ("program", "tensors", "name", "machine", "ranks", "functions", "means"):
        assert getattr(one, name) == getattr(other, name), name
    assert [str(x.layout) for x in one.tensors] == [str(x.layout) for x in other.tensors]
    assert (one.means_of is None) == (other.means_of is None)
    if one.means_of is not None:
        assert np.array_equal(one.means_of, other.means_of)
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

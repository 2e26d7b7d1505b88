"""The store: what goes in comes out, in any form, by several writers, across versions."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pandas as pd
import pytest

from umm.errors import InputError
from umm.space.store import database
from umm.space.store.database import COLUMNS, Store

RUN = {
    "config_id": "1", "umm_version": "0", "created_at": "2026-01-01T00:00:00+00:00", "source": "sim",
    "machine": "h100-8", "machine_sha": "abc", "ranks": 8, "m": 64, "n": 48, "k": 32, "dtype": "float32",
    "a": "row", "b": "col@2", "c": "2d:2x4", "stationary": "C", "policy": "direct", "prefetch": 2,
    "max_gemms": 2, "max_accumulates": 2, "offset": "index", "granularity": "tile", "reuse": True,
    "final": "reduce", "time_s": 0.25, "fraction_of_peak": 0.5, "memory_bytes": 2**33, "pool_bytes": 7,
    "get_bytes": 1, "accumulate_bytes": 2, "reduce_bytes": 3, "gap": 0.125, "bound_by": "compute",
    "status": "ok", "error": None, "steps_gap": 0.0625,
}  # fmt: skip
FAILED = RUN | {
    "config_id": "2",
    "time_s": None,
    "steps_gap": None,
    "status": "error",
    "error": "why",
    "m": 128,
}


def test_a_run_comes_back_as_it_was_stored(tmp_path):
    with Store(tmp_path / "s.db") as store:
        store.write([RUN])
        frame = store.frame()
    assert list(frame.columns) == list(COLUMNS)
    assert frame.iloc[0].to_dict() == RUN


def test_a_run_is_stored_once_and_a_failed_one_is_replaced(tmp_path):
    with Store(tmp_path / "s.db") as store:
        store.write([RUN, FAILED])
        store.write([RUN | {"time_s": 9.0}, FAILED | {"status": "ok", "time_s": 1.0}])
        assert len(store) == 2
        assert store.frame().time_s.tolist() == [0.25, 1.0]
        assert store.done(["1", "2", "3"]) == {"1", "2"}


def test_frames_are_filtered_by_column_and_ordered_by_time(tmp_path):
    with Store(tmp_path / "s.db") as store:
        store.write([FAILED, RUN, RUN | {"config_id": "3", "time_s": 0.125}])
        assert store.frame().config_id.tolist() == ["3", "1", "2"]
        assert store.frame(m=128, status="error").config_id.tolist() == ["2"]
        with pytest.raises(InputError, match="no column 'makespan'"):
            store.frame(makespan=1)


@pytest.mark.parametrize("name", ["runs.csv", "runs.parquet"])
def test_csv_and_parquet_go_out_and_come_back_in(tmp_path, name):
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    with Store(tmp_path / "s.db") as store, Store(tmp_path / "other.db") as other:
        store.write([RUN, FAILED])
        store.export(tmp_path / name)
        read = pd.read_csv if name.endswith("csv") else pd.read_parquet
        other.add(read(tmp_path / name))
        pd.testing.assert_frame_equal(other.frame(), store.frame(), check_dtype=False)


def test_two_writers_and_a_reader_lose_nothing_and_store_nothing_twice(tmp_path):
    """Two threads with connections of their own write the same 400 runs; a third reads all the time."""
    path = tmp_path / "s.db"

    def write(which):
        with Store(path) as store:
            for i in range(0, 400, 4):
                store.write([RUN | {"config_id": str(j)} for j in range(i, i + 4)])

    def read(which):
        with Store(path) as store:
            counts = [len(store) for _ in range(200)]
        assert counts == sorted(counts)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(write, 0), pool.submit(write, 1), pool.submit(read, 0)]:
            future.result()
    with Store(path) as store:
        assert sorted(store.frame().config_id, key=int) == [str(i) for i in range(400)]


def test_an_older_file_is_migrated_and_a_newer_one_refused(tmp_path, monkeypatch):
    """A later version adds a column; its files keep their runs, and this version leaves them alone."""
    path = tmp_path / "s.db"
    with Store(path) as store:
        store.write([RUN])
        assert store.version == 2
    added = ("ALTER TABLE runs ADD COLUMN energy_j REAL DEFAULT 5",)
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", (*database.MIGRATIONS, added))
        with Store(path) as store:
            assert store.version == 3
            assert store.frame().energy_j.tolist() == [5]
    with pytest.raises(InputError, match=r"has schema 3, but this umm knows only 2; update umm"):
        Store(path)


def test_a_file_of_the_first_version_gets_the_column_it_lacks(tmp_path, monkeypatch):
    path = tmp_path / "s.db"
    with monkeypatch.context() as patch:
        patch.setattr(database, "MIGRATIONS", database.MIGRATIONS[:1])
        Store(path).close()
    with Store(path) as store:
        store.write([RUN])
        assert list(store.frame().columns) == list(COLUMNS)


def test_a_file_that_is_no_store_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("this is text, and long enough to be no database header at all" * 20)
    with pytest.raises(InputError, match="cannot be used as a store"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE addresses (name TEXT)")
    other.close()
    with pytest.raises(InputError, match="database of something else"):
        Store(tmp_path / "other.db")
    with pytest.raises(InputError, match="cannot be used as a store"):
        Store(tmp_path / "no folder" / "s.db")


def test_what_cannot_be_a_run_is_refused(tmp_path):
    with Store(tmp_path / "s.db") as store:
        with pytest.raises(InputError, match="cannot be stored"):
            store.write([{"config_id": "1"}])
        with pytest.raises(InputError, match="no column 'speed'"):
            store.write([RUN | {"speed": 1}])
        with pytest.raises(InputError, match=r"neither \.csv nor \.parquet"):
            store.export(tmp_path / "runs.xlsx")
        assert len(store) == 0

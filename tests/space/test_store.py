"""The store: rows come out as they went in, in any form, by several writers, across versions."""

import json
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pandas as pd
import pytest
from command import umm as command

from umm.errors import InputError, UmmError
from umm.space import Space, sweep
from umm.space.store import database, model, runs, schema
from umm.space.store import schema as columns
from umm.space.store.database import Store
from umm.space.store.schema import FACTS, LATER, Fact, config_id

RUN = {
    "config_id": "1", "umm_version": "0", "created_at": "2026-01-01T00:00:00+00:00", "source": "sim",
    "machine": "h100-8", "machine_sha": "abc", "ranks": 8, "m": 64, "n": 48, "k": 32, "dtype": "float32",
    "a": "row", "b": "col@2", "c": "2d:2x4", "algorithm": "universal", "stationary": "C",
    "c_dtype": "float64", "given": "a=row", "model": "0123456789ab",
    "policy": "direct", "prefetch": 2, "max_gemms": 2, "max_accumulates": 2, "offset": "index",
    "granularity": "tile", "reuse": True, "final": "reduce", "movement": "auto",
    "time_s": 0.25, "fraction_of_peak": 0.5,
    "memory_bytes": 2**33, "pool_bytes": 7, "get_bytes": 1, "put_bytes": 4,
    "accumulate_bytes": 2, "reduce_bytes": 3, "gap": 0.125,
    "steps_gap": 0.0625, "bound_by": "compute", "status": "ok", "error": None,
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
    assert list(frame.columns) == list(RUN)
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
        store.write([row | {"config_id": config_id(row)} for row in (RUN, FAILED)])
        store.export(tmp_path / name)
        read = pd.read_csv if name.endswith("csv") else pd.read_parquet
        other.add(read(tmp_path / name))
        pd.testing.assert_frame_equal(other.frame(), store.frame(), check_dtype=False)


def test_no_cell_of_a_csv_file_is_a_formula(tmp_path):
    """A machine may be called =HYPERLINK(…); a spreadsheet shows it, and it comes back as it was."""
    names = ["=HYPERLINK(1)", "+1", "-1", "@x", "'=1", "'quoted'"]
    rows = [RUN | {"config_id": str(i), "machine": name} for i, name in enumerate(names)]
    with Store(tmp_path / "s.db") as store, Store(tmp_path / "other.db") as other:
        store.write(rows)
        store.export(tmp_path / "runs.csv")
        written = pd.read_csv(tmp_path / "runs.csv")
        assert sorted(written.machine) == sorted([*("'" + x for x in names[:5]), "'quoted'"])
        other.add(written)
        assert sorted(other.frame().machine) == sorted(names)


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


# What umm of schema 2 made, to the letter.
OLD = """
CREATE TABLE runs ("config_id" TEXT PRIMARY KEY, "umm_version" TEXT NOT NULL, "created_at" TEXT NOT NULL,
  "source" TEXT NOT NULL, "machine" TEXT NOT NULL, "machine_sha" TEXT NOT NULL, "ranks" INTEGER NOT NULL,
  "m" INTEGER NOT NULL, "n" INTEGER NOT NULL, "k" INTEGER NOT NULL, "dtype" TEXT NOT NULL, "a" TEXT NOT NULL,
  "b" TEXT NOT NULL, "c" TEXT NOT NULL, "stationary" TEXT NOT NULL, "policy" TEXT NOT NULL,
  "prefetch" INTEGER NOT NULL, "max_gemms" INTEGER NOT NULL, "max_accumulates" INTEGER NOT NULL,
  "offset" TEXT NOT NULL, "granularity" TEXT NOT NULL, "reuse" INTEGER NOT NULL, "final" TEXT NOT NULL,
  "time_s" REAL, "fraction_of_peak" REAL, "memory_bytes" INTEGER, "pool_bytes" INTEGER,
  "get_bytes" INTEGER, "accumulate_bytes" INTEGER, "reduce_bytes" INTEGER, "gap" REAL, "bound_by" TEXT,
  "status" TEXT NOT NULL, "error" TEXT) WITHOUT ROWID;
CREATE INDEX runs_problem ON runs (machine, m, n, k);
ALTER TABLE runs ADD COLUMN steps_gap REAL;
PRAGMA user_version = 2;
"""


def old_file(path, rows):
    """A store of schema 2 with some rows."""
    with sqlite3.connect(path) as old:
        old.executescript(OLD)
        for row in rows:
            kept = {
                name: value
                for name, value in row.items()
                if name not in ("algorithm", "movement", "put_bytes", *LATER)
            }
            names = ", ".join(f'"{name}"' for name in kept)
            marks = ", ".join("?" for _ in kept)
            old.execute(f"INSERT INTO runs ({names}) VALUES ({marks})", tuple(kept.values()))
    old.close()


def test_a_file_of_schema_2_keeps_its_runs_and_a_sweep_runs_them_again(tmp_path):
    """Half of 16 points as schema 2 kept them, without a model: they stay, but answer nothing."""
    space = Space(m=64, n=96, k=48, ranks=4, partitions=("row", "col"), replication=1, stationary="B,C")
    swept = sweep(space, "h100-8", tmp_path / "new.db", pool="none").to_frame()
    rows = swept.astype(object).where(swept.notna(), None).to_dict("records")
    old_file(tmp_path / "s.db", [row | {"config_id": f"old {i}"} for i, row in enumerate(rows[::2])])
    with Store(tmp_path / "s.db") as store:
        kept = store.frame()
    swept = swept.assign(put_bytes=None, model=None)  # it did not keep these
    key = ["config_id"]  # made of what it kept
    pd.testing.assert_frame_equal(
        kept.drop(columns=key), swept[::2].reset_index(drop=True).drop(columns=key), check_dtype=False
    )
    again = sweep(space, "h100-8", tmp_path / "s.db", pool="none")
    assert (again.asked, again.found, again.performed) == (16, 0, 16)
    with Store(tmp_path / "s.db") as store:
        assert (len(store), store.of_other_models) == (24, 8)
        assert store.frame().model.isna().tolist() == [False] * 16 + [True] * 8


def test_a_sweep_runs_again_what_another_model_has_priced(tmp_path, monkeypatch):
    """The other's rows stay, behind this model's; each model finds its own again."""
    space = Space(m=64, n=96, k=48, ranks=4, partitions=("row", "col"), replication=1, stationary="B,C")
    for digest, result in (("other", 0), ("this", 0), ("other", 16), ("this", 16)):
        for module in (runs, database):
            monkeypatch.setattr(module, "model_digest", lambda digest=digest: digest)
        assert sweep(space, "h100-8", tmp_path / "s.db", pool="none").found == result
    with Store(tmp_path / "s.db") as store:
        frame = store.frame()
        assert frame.model.tolist() == ["this"] * 16 + ["other"] * 16
        assert store.of_other_models == 16
        assert len(store.frame(model="this")) == 16
        assert frame.time_s.tolist()[:16] == frame.time_s.tolist()[16:] == sorted(frame.time_s[:16])


def test_a_line_of_the_model_changes_its_digest_and_one_of_what_shows_results_does_not(tmp_path, monkeypatch):
    """Sources of both packages, wherever they are installed; line ends of Windows are no change."""

    def digest():
        model.model_digest.cache_clear()
        return model.model_digest()

    for path in (
        "umm/__init__.py",
        "umm/cost.py",
        "umm/cli/main.py",
        "umm_sim/__init__.py",
        "umm_sim/x.toml",
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"one\n")
    monkeypatch.setattr(
        model, "find_spec", lambda name: SimpleNamespace(origin=str(tmp_path / name / "__init__.py"))
    )
    before = digest()
    (tmp_path / "umm/cli/main.py").write_bytes(b"two\n")
    (tmp_path / "umm/cost.py").write_bytes(b"one\r\n")
    assert digest() == before
    changed = {before}
    for path in ("umm/cost.py", "umm_sim/x.toml", "umm/new.py"):
        (tmp_path / path).write_bytes(b"two\n")
        changed.add(digest())
    assert len(changed) == 4
    model.model_digest.cache_clear()


def test_what_prices_imports_nothing_that_its_digest_leaves_out():
    """The packages that show results come after in the layers, so no run hangs on them."""
    code = "import sys, umm.space, umm_sim.executor; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    imported = {name.split(".")[1] for name in done.stdout.split() if name.startswith("umm.")}
    assert imported & set(model.SHOWING) == set()


def test_a_newer_file_is_refused(tmp_path):
    for change, line in (
        ("PRAGMA user_version = 4", "has schema 4, but this umm knows only 3; update umm"),
        (
            "ALTER TABLE all_runs ADD COLUMN joules",
            "has a column 'joules' that this umm does not know; update",
        ),
    ):
        path = tmp_path / f"{len(line)}.db"
        Store(path).close()
        with sqlite3.connect(path) as file:
            file.execute(change)
        file.close()
        with pytest.raises(InputError, match=line):
            Store(path)


def test_a_column_is_one_entry_and_older_files_get_it(tmp_path, monkeypatch):
    """Runs from before it have no value there; the layout of the file has the same version."""
    space = Space(m=64, n=96, k=48, a="row", b="row", c="row,col", stationary="C")
    sweep(space, "h100-8", tmp_path / "s.db", pool="none")
    monkeypatch.setitem(FACTS, "actions", Fact("INTEGER", lambda run: len(run.schedule)))
    wider = Space(m=64, n=96, k=48, a="row,col", b="row", c="row,col", stationary="C")
    frame = sweep(wider, "h100-8", tmp_path / "s.db", pool="none").to_frame()
    assert len(frame) == 4
    assert frame.actions.isna().tolist() == (frame["a"] == "row").tolist()
    assert (frame.actions.dropna() >= 8).all()


def test_frozen_scripts_and_derived_columns_agree(tmp_path):
    """A new file has every column of today, those that came later behind the others."""
    with Store(tmp_path / "s.db") as store:
        names = store.frame("all_runs").columns.tolist()
        later = [*columns.LATER, "movement", "put_bytes"]
        assert names == [name for name in columns.all_columns() if name not in later] + later
        assert store.frame().columns.tolist() == columns.columns() == list(RUN)
    frozen = " ".join(schema.MIGRATIONS[-1])
    assert all(
        f"{name} {kind}" in frozen.replace('"', "")
        for name, kind in columns.added().items()
        if name not in later
    )


CHAIN = {
    "config_id": "5", "umm_version": "0", "created_at": "2026-01-01T00:00:00+00:00", "source": "sim",
    "machine": "h100-8", "machine_sha": "abc", "ranks": 8, "chain": "mlp", "dtype": "bfloat16",
    "layouts": {"X": "row", "W1": "col@2", "Y": "2d"}, "time_s": 0.0625, "status": "ok",
}  # fmt: skip


def test_a_chain_is_one_row_with_its_layouts_as_json_and_no_multiply(tmp_path):
    with Store(tmp_path / "s.db") as store:
        store.write([RUN, CHAIN])
        frame = store.frame("all_runs")
        assert store.frame().config_id.tolist() == ["1"]
        assert store.done(["1", "5"]) == {"1", "5"}
        assert store.frame("all_runs", chain="mlp").time_s.tolist() == [0.0625]
        store.export(tmp_path / "all.csv", "all_runs")
        with Store(tmp_path / "other.db") as other:
            other.add(pd.read_csv(tmp_path / "all.csv"))
            assert other.frame("all_runs").layouts.tolist() == frame.layouts.tolist()
        with pytest.raises(InputError, match="table 'chains' is unknown; choose from runs, all_runs"):
            store.frame("chains")
    assert [json.loads(text) for text in frame.layouts] == [
        CHAIN["layouts"],
        {"A": "row", "B": "col@2", "C": "2d:2x4"},
    ]
    assert frame.m.isna().tolist() == frame.reuse.isna().tolist() == [True, False]


def test_an_algorithm_without_options_is_a_run_of_a_single_multiply(tmp_path):
    cannon = {name: value for name, value in RUN.items() if name not in columns.options()}
    with Store(tmp_path / "s.db") as store:
        store.write([RUN, cannon | {"config_id": "2", "algorithm": "cannon", "time_s": 9.0}])
        frame = store.frame()
    assert frame.algorithm.tolist() == ["universal", "cannon"]
    assert frame.reuse.isna().tolist() == [False, True]
    assert frame["b"].tolist() == ["col@2"] * 2


def test_a_key_is_what_was_asked_and_nothing_else():
    assert config_id(RUN) == config_id(RUN | {"time_s": 1.0, "config_id": "x", "created_at": "later"})
    changed = {"m": 65, "b": "col", "prefetch": 1, "reuse": False, "algorithm": "cannon", "source": "mpi"}
    assert len({config_id(RUN | {name: value}) for name, value in changed.items()}) == len(changed)


def test_a_file_that_is_not_a_store_is_refused(tmp_path):
    (tmp_path / "text.db").write_text("this is text, and long enough to be no database header at all" * 20)
    with pytest.raises(InputError, match="cannot be used as a store"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE addresses (name TEXT)")
    other.close()
    with pytest.raises(InputError, match="database of another program"):
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


# What goes wrong after a store was opened --------------------------------------------------------------


def full(store):
    store._connection.execute("PRAGMA max_page_count = 1")


def locked(store):
    store._connection.execute("PRAGMA busy_timeout = 0")
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def without_its_table(store):
    store._connection.execute("DROP VIEW runs")
    store._connection.execute("DROP TABLE all_runs")


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (full, "database or disk is full"),
        (locked, "database is locked"),
        (without_its_table, "no such table"),
    ],
)
def test_a_store_that_cannot_be_written_any_more_is_one_line(tmp_path, harm, message):
    with Store(tmp_path / "s.db") as store:
        lock = harm(store)
        rows = [RUN | {"config_id": str(i), "error": "x" * 5000} for i in range(200)]
        with pytest.raises(UmmError, match=f"cannot be used as a store any more: .*{message}") as error:
            store.write(rows)
        assert "\n" not in str(error.value)
        if lock is not None:
            lock.close()


def test_a_store_that_cannot_be_read_any_more_is_one_line(tmp_path):
    with Store(tmp_path / "t.db") as gone:
        without_its_table(gone)
        for read in (gone.frame, lambda: len(gone), lambda: gone.done(["1"])):
            with pytest.raises(UmmError, match="cannot be used as a store any more") as error:
                read()
            assert "\n" not in str(error.value)


def test_a_store_whose_pages_are_damaged_is_one_line(tmp_path):
    """They are overwritten behind its back."""
    with Store(tmp_path / "s.db") as store:
        store.write(RUN | {"config_id": str(i), "error": "x" * 3000} for i in range(50))
    content = bytearray((tmp_path / "s.db").read_bytes())
    content[8192:] = b"\xff" * (len(content) - 8192)
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(UmmError, match=r"s\.db cannot be used") as error, Store(tmp_path / "s.db") as damaged:
        damaged.frame()
    assert "\n" not in str(error.value)


def one_cell_elsewhere(content):
    """The page of a table says that its fourth row lies where no page is."""
    page = next(i for i in range(4096, len(content), 4096) if content[i] == 10 and content[i + 4] > 3)
    content[page + 8 + 2 * 3 : page + 8 + 2 * 4] = b"\xc0\x84"


def one_row_of_another_machine(content):
    """A row's machine is another than its index has."""
    place = content.rindex(b"h100-8abc")
    content[place : place + 6] = b"h100-9"


@pytest.mark.parametrize(
    ("harm", "result"),
    [(one_cell_elsewhere, "Offset 49284 out of range"), (one_row_of_another_machine, "missing from index")],
)
def test_a_store_that_would_show_wrong_rows_is_refused_in_one_line(tmp_path, harm, result):
    """SQLite itself goes on: it lists rows in one order that it has not in another."""
    path = tmp_path / "s.db"
    with Store(path) as store:
        store.write(RUN | {"config_id": str(i)} for i in range(50))
    content = bytearray(path.read_bytes())
    harm(content)
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"s\.db cannot be used .* damaged: .*{result}.*; take") as error:
        Store(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("statement", "result"),
    [
        ("UPDATE all_runs SET time_s = 'soon'", "column 'time_s' of the store holds what is not a number"),
        ("UPDATE all_runs SET reuse = 'no'", "column 'reuse' of the store holds what is not a number"),
        ("ALTER TABLE all_runs RENAME COLUMN config_id TO odd", "lacks column 'config_id'"),
        ("DROP TABLE all_runs", "lacks column 'config_id'"),
        (
            "UPDATE all_runs SET machine = x'ff00'; ALTER TABLE all_runs DROP COLUMN reuse",
            "has a run with bytes",
        ),
    ],
)
def test_a_store_that_something_else_wrote_to_is_one_line(tmp_path, statement, result):
    """It is opened again afterwards: nothing of the one that was refused holds it."""
    with Store(tmp_path / "s.db") as store:
        store.write([RUN])
        store._connection.executescript(f"DROP VIEW runs; {statement}")
    for _ in range(2):
        with pytest.raises(InputError, match=result), Store(tmp_path / "s.db") as store:
            store.frame("all_runs")


def test_an_export_is_written_whole_and_its_folder_is_looked_for_first(tmp_path, monkeypatch):
    with Store(tmp_path / "s.db") as store:
        store.write([RUN])
        store.export(tmp_path / "runs.csv")
        before = (tmp_path / "runs.csv").read_text()

        def broken(frame, path, **_):
            path.write_text("half")
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(pd.DataFrame, "to_csv", broken)
        with pytest.raises(InputError, match="No space left on device"):
            store.export(tmp_path / "runs.csv")
        assert (tmp_path / "runs.csv").read_text() == before
        with pytest.raises(InputError, match="there is no folder"):
            store.export(tmp_path / "none" / "runs.csv")


def test_a_sweep_names_the_runs_that_another_model_has_priced(tmp_path, monkeypatch):
    """Two points by one model, then by another: the first two are kept, and the second sweep says so."""
    asked = [
        "-m",
        "64",
        "-n",
        "48",
        "-k",
        "40",
        "--ranks",
        "2",
        "--a",
        "row,col",
        "--b",
        "row",
        "--c",
        "row",
        "--stationary",
        "C",
        "--pool",
        "none",
    ]
    for digest, says in (("other", False), ("this", True)):
        for module in (runs, database):
            monkeypatch.setattr(module, "model_digest", lambda digest=digest: digest)
        done = command("sweep", *asked, "-o", tmp_path / "s.db")
        assert done.exit_code == 0
        assert "2 performed" in done.stderr
        assert ("also keeps 2 runs that another version of the model has priced" in done.stderr) == says

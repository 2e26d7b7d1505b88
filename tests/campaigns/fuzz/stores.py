"""Stores: SQLite files with bytes, cells, columns and tables changed."""

import sqlite3
from functools import cache
from pathlib import Path
from random import Random

from fuzz.files import bytes_changed
from fuzz.judged import REFUSED, TAKEN, tried
from fuzz.strings import odd_text
from umm.space import Space, Store, sweep

ODD = (None, -1, 0, 2**62, 1.5, float("inf"), -0.0, b"\xff\x00", "text", "", "=1+1", "{", '{"A": 1}')
READ = ("time_s", "memory_bytes", "m", "machine", "status")


@cache
def _whole(folder: Path) -> bytes:
    sweep(
        Space(m=8, n=8, k=8, ranks=2, a="row", b="col", c="row,col"),
        "h100-8",
        folder / "whole.db",
        pool="none",
    )
    return (folder / "whole.db").read_bytes()


def store(random: Random, folder: Path) -> str:
    """A store is refused in one line when it is opened or read, or shows the cells that SQLite has."""
    path = folder / "s.db"
    for name in ("s.db", "s.db-wal", "s.db-shm", "runs.csv"):
        (folder / name).unlink(missing_ok=True)
    full = _whole(folder)
    path.write_bytes(bytes_changed(random, full) if random.random() < 0.5 else full)
    if random.random() < 0.7:
        _, refusal = tried(lambda: _changed_by_sql(random, path))
    result, refusal = tried(lambda: _looked_at(path))
    if refusal is not None:
        return REFUSED
    frame, cells = result
    assert sorted(map(repr, frame.config_id)) == sorted(map(repr, (row[0] for row in cells)))
    by_id = {row[0]: row[1:] for row in cells}
    for row in frame[["config_id", *READ]].itertuples(index=False):
        for name, ours, theirs in zip(READ, row[1:], by_id[row[0]], strict=True):
            assert ours == theirs or theirs is None or isinstance(theirs, bytes | str), (name, ours, theirs)
    return TAKEN


def _looked_at(path: Path):
    with Store(path) as opened:
        frame = opened.frame("all_runs")
        len(opened), opened.done(["1"]), opened.frame()
        opened.export(path.with_name("runs.csv"), "all_runs")
        names = ", ".join(("config_id", *READ))
        return frame, opened._connection.execute(f"SELECT {names} FROM all_runs").fetchall()


def _changed_by_sql(random: Random, path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        names = [row[1] for row in connection.execute("PRAGMA table_info(all_runs)")]
        for _ in range(random.randrange(1, 4)):
            name, value = random.choice(names or ["m"]), random.choice((*ODD, odd_text(random)))
            if (
                isinstance(value, str)
                and not value.isascii()
                and any("\ud800" <= x <= "\udfff" for x in value)
            ):
                continue
            statement = random.choice(
                (f'UPDATE all_runs SET "{name}" = ?',) * 6
                + (f'ALTER TABLE all_runs DROP COLUMN "{name}"', "DROP TABLE all_runs", "DROP VIEW runs",
                   "PRAGMA user_version = 99", "PRAGMA user_version = 1",
                   "ALTER TABLE all_runs ADD COLUMN odd TEXT",
                   f'ALTER TABLE all_runs RENAME COLUMN "{name}" TO renamed', "CREATE TABLE runs2 (x)")
            )  # fmt: skip
            connection.execute(statement, (value,) if "?" in statement else ())
        connection.commit()
    except (sqlite3.Error, UnicodeError):
        pass  # it is as far as it came
    finally:
        connection.close()


def resumed(random: Random, folder: Path) -> str:
    """A sweep goes on in a store that was changed, or refuses it; the rows it adds are right."""
    path = folder / "r.db"
    for name in ("r.db", "r.db-wal", "r.db-shm"):
        (folder / name).unlink(missing_ok=True)
    path.write_bytes(_whole(folder))
    tried(lambda: _changed_by_sql(random, path))
    space = Space(m=8, n=8, k=8, ranks=2, a="row", b="col", c="row,col", prefetch=random.choice((1, 2)))
    result, refusal = tried(lambda: sweep(space, "h100-8", path, pool="none"))
    if refusal is not None:
        return REFUSED
    assert result.performed + result.found == result.asked
    return TAKEN

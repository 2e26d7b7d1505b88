"""The schema of a store's file: its columns, and scripts from version to version."""

import json
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL
from umm.errors import InputError
from umm.plans.multiply.options import known
from umm.program.problem import MATRICES
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind

Row = Mapping[str, Any]
TYPES = {str: "TEXT", int: "INTEGER", bool: "INTEGER"}
OF_TYPE: dict[str, Callable[[Any], Any]] = {"TEXT": str, "INTEGER": int, "REAL": float}
KEY = ("config_id", "umm_version", "created_at")
ASKED = (
    "source", "machine", "machine_sha", "ranks", "chain", "m", "n", "k", "dtype", "layouts", "algorithm",
    "stationary",
)  # fmt: skip
"""What makes a run the one it is, beside its options: m, n and k of a multiply, or the chain."""
LATER = {"c_dtype": "TEXT", "given": "TEXT", "model": "TEXT"}
"""Further columns of a question, by type; null for the default, and in runs older than the column.

The model is the one that priced the run: a run of another one is another run.
"""
# Keys are hashes of this text, so equal questions must give it byte for byte.
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
WHOLE = ("ranks", "m", "n", "k")
ENDED = ("status", "error")


@dataclass(frozen=True)
class Performed:
    """A schedule that an executor has performed."""

    schedule: Schedule
    trace: Trace  # when each action ran
    bound_s: float  # what was known of its makespan before

    @cached_property
    def moved(self) -> dict[str, int]:
        """Payload bytes that travel between ranks, by kind."""
        return bytes_by_kind(self.schedule)


@dataclass(frozen=True)
class Fact:
    """A column for a result."""

    type: str  # SQLite's name of its type
    of: Callable[[Performed], Any]  # returns its value


FACTS: dict[str, Fact] = {
    "time_s": Fact("REAL", lambda run: run.trace.makespan_s),
    "fraction_of_peak": Fact("REAL", lambda run: run.trace.fraction_of_peak),
    "memory_bytes": Fact("INTEGER", lambda run: int(run.schedule.memory_bytes.max())),
    "pool_bytes": Fact("INTEGER", lambda run: run.trace.pool_bytes),
    "get_bytes": Fact("INTEGER", lambda run: run.moved["get"]),
    "put_bytes": Fact("INTEGER", lambda run: run.moved["put"]),
    "accumulate_bytes": Fact("INTEGER", lambda run: run.moved["accumulate"]),
    "reduce_bytes": Fact("INTEGER", lambda run: run.moved["reduce"]),
    "gap": Fact("REAL", lambda run: 1.0 - run.bound_s / run.trace.makespan_s),
    "steps_gap": Fact("REAL", lambda run: run.schedule.options.get("gap")),
    "bound_by": Fact("TEXT", lambda run: run.trace.bound_by),
}
"""What came out, by the column's name; docs/guides/sweeps-and-notebooks.md says what each means."""


@lru_cache(maxsize=1)
def options() -> dict[str, str]:
    """Return the columns of a schedule's choices with their types; null for an algorithm without them."""
    return {option.name: TYPES[type(option.default)] for option in known()}


def added() -> dict[str, str]:
    """Return the columns that may come to a file later, with their types."""
    return LATER | options() | {name: fact.type for name, fact in FACTS.items()}


def all_columns() -> list[str]:
    """Return the columns of table ``all_runs``."""
    return [*KEY, *ASKED, *added(), *ENDED]


def columns() -> list[str]:
    """Return the columns of view ``runs``, single multiplies: a, b and c, and no chain."""
    names = []
    for name in all_columns():
        names += [x.lower() for x in MATRICES] if name == "layouts" else [name]
    return [name for name in names if name != "chain"]


def kinds() -> dict[str, str]:
    """Return the types of the columns of ``all_runs``, in their order; empty of one that takes any."""
    return dict.fromkeys(all_columns(), "") | dict.fromkeys(WHOLE, "INTEGER") | added()


def stored(row: Row, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return a row as ``all_runs`` keeps it: its layouts, or a, b and c, as JSON; numbers of plain types."""
    kept = {name: row.get(name) for name in kinds}
    kept["layouts"], kept["algorithm"] = _layouts(row), kept["algorithm"] or UNIVERSAL
    for name, kind in kinds.items():
        if kind and kept[name] is not None:
            kept[name] = OF_TYPE[kind](kept[name])
    return kept


def config_id(row: Row) -> str:
    """Return the key of a run: a hash of all that was asked, given as plain values."""
    named = {name: row.get(name) for name in (*ASKED, *LATER, *options())}
    named |= {"layouts": _layouts(row), "algorithm": named["algorithm"] or UNIVERSAL}
    # None is left out, so that a new column without a value changes no key. True counts as 1, which is what
    # SQLite gives back.
    plain = {name: int(x) if isinstance(x, bool) else x for name, x in named.items() if x is not None}
    return blake2b(_COMPACT.encode(plain).encode(), digest_size=16).hexdigest()


def _layouts(row: Row) -> str | None:
    """Return the layouts of a row as JSON, None if it does not have them all."""
    layouts = row.get("layouts") or tuple([row.get(x.lower()) for x in MATRICES])
    if isinstance(layouts, str):
        return layouts
    if isinstance(layouts, tuple):
        return None if None in layouts else _of_multiply(*layouts)
    return None if None in layouts.values() else _COMPACT.encode(layouts)


@lru_cache(maxsize=2**13)
def _of_multiply(*layouts: str) -> str:
    """Return the layouts of A, B and C as JSON."""
    return _COMPACT.encode(dict(zip(MATRICES, layouts, strict=True)))


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE runs (
    config_id TEXT PRIMARY KEY, umm_version TEXT NOT NULL, created_at TEXT NOT NULL, source TEXT NOT NULL,
    machine TEXT NOT NULL, machine_sha TEXT NOT NULL, ranks INTEGER NOT NULL,
    m INTEGER NOT NULL, n INTEGER NOT NULL, k INTEGER NOT NULL, dtype TEXT NOT NULL,
    a TEXT NOT NULL, b TEXT NOT NULL, c TEXT NOT NULL, stationary TEXT NOT NULL,
    policy TEXT NOT NULL, prefetch INTEGER NOT NULL, max_gemms INTEGER NOT NULL,
    max_accumulates INTEGER NOT NULL, "offset" TEXT NOT NULL, granularity TEXT NOT NULL,
    reuse INTEGER NOT NULL, final TEXT NOT NULL,
    time_s REAL, fraction_of_peak REAL, memory_bytes INTEGER, pool_bytes INTEGER,
    get_bytes INTEGER, accumulate_bytes INTEGER, reduce_bytes INTEGER, gap REAL, bound_by TEXT,
    status TEXT NOT NULL, error TEXT
) WITHOUT ROWID""",
        "CREATE INDEX runs_problem ON runs (machine, m, n, k)",
    ),
    ("ALTER TABLE runs ADD COLUMN steps_gap REAL",),
    (
        """CREATE TABLE all_runs (
    config_id TEXT PRIMARY KEY, umm_version TEXT NOT NULL, created_at TEXT NOT NULL, source TEXT NOT NULL,
    machine TEXT NOT NULL, machine_sha TEXT NOT NULL, ranks INTEGER NOT NULL,
    chain TEXT, m INTEGER, n INTEGER, k INTEGER, dtype TEXT NOT NULL, layouts TEXT NOT NULL,
    algorithm TEXT NOT NULL, stationary TEXT,
    policy TEXT, prefetch INTEGER, max_gemms INTEGER, max_accumulates INTEGER, "offset" TEXT,
    granularity TEXT, reuse INTEGER, final TEXT,
    time_s REAL, fraction_of_peak REAL, memory_bytes INTEGER, pool_bytes INTEGER,
    get_bytes INTEGER, accumulate_bytes INTEGER, reduce_bytes INTEGER, gap REAL, steps_gap REAL,
    bound_by TEXT, status TEXT NOT NULL, error TEXT,
    CHECK (chain IS NOT NULL OR (m IS NOT NULL AND n IS NOT NULL AND k IS NOT NULL))
) WITHOUT ROWID""",
        """INSERT INTO all_runs SELECT
    config_id, umm_version, created_at, source, machine, machine_sha, ranks,
    NULL, m, n, k, dtype, json_object('A', a, 'B', b, 'C', c), 'universal', stationary,
    policy, prefetch, max_gemms, max_accumulates, "offset", granularity, reuse, final,
    time_s, fraction_of_peak, memory_bytes, pool_bytes, get_bytes, accumulate_bytes, reduce_bytes,
    gap, steps_gap, bound_by, status, error
FROM runs""",
        "DROP TABLE runs",
        "CREATE INDEX all_runs_problem ON all_runs (machine, m, n, k)",
    ),
)
"""What turns a file of version i (its place here; an empty file has 0) into one of version i + 1; never
changed, for files of every version exist. A column of its own needs none: see :func:`follow`."""


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring a file to this version's schema and columns; concurrent openers take turns.

    InputError if the file is one of something else, or of a newer umm.
    """
    # The usual case needs no write lock, for which it would wait while a sweep writes, or fail on a read-only
    # file.
    if _version(connection) == len(MIGRATIONS) and not _missing(connection, path) and _shown(connection):
        return
    connection.execute("BEGIN IMMEDIATE")
    with connection:
        # Read again under the lock: another opener may have migrated the file meanwhile.
        before = _version(connection)
        if before > len(MIGRATIONS):
            raise InputError(
                f"{path} has schema {before}, but this umm knows only {len(MIGRATIONS)}; "
                "update umm, or write into another file"
            )
        # Version 0 is a new file or one of another program, and a new file has no tables.
        if before == 0 and connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            raise InputError(f"{path} is a database of another program; choose another file")
        for script in MIGRATIONS[before:]:
            for statement in script:
                connection.execute(statement)
        follow(connection, path, rehash=before < len(MIGRATIONS))
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def follow(connection: sqlite3.Connection, path: str, rehash: bool) -> None:
    """Add the columns that a file lacks, and show those of single multiplies as ``runs``."""
    # Runs from before there was an option were as its default says; they get keys that say so.
    defaults = {option.name: option.default for option in known()}
    for name in _missing(connection, path):
        connection.execute(f'ALTER TABLE all_runs ADD COLUMN "{name}" {added()[name]}')
        if name in defaults:
            rehash = True
            # Only the universal algorithm has a policy; runs of others have no value of its options.
            set_default = f'UPDATE all_runs SET "{name}" = ? WHERE policy IS NOT NULL'
            connection.execute(set_default, (defaults[name],))
    if rehash:
        names = [KEY[0], *ASKED, *LATER, *options()]
        rows = connection.execute(f"SELECT {', '.join(map(quoted, names))} FROM all_runs").fetchall()
        try:
            keys = [(config_id(dict(zip(names[1:], row[1:], strict=True))), row[0]) for row in rows]
        except TypeError:
            raise InputError(f"{path} has a run with bytes where a text or a number belongs") from None
        # Two runs that now ask the same become one.
        connection.executemany("UPDATE OR REPLACE all_runs SET config_id = ? WHERE config_id = ?", keys)
    connection.execute("DROP VIEW IF EXISTS runs")
    connection.execute(_view())


def quoted(name: str) -> str:
    """Return a column's name as SQL takes it, whatever words SQL has."""
    return f'"{name}"'


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _missing(connection: sqlite3.Connection, path: str) -> list[str]:
    """Return the columns a file lacks; InputError if it has others, of a newer umm."""
    present = [row[1] for row in connection.execute("PRAGMA table_info(all_runs)")]
    for name in (*KEY, *ASKED, *ENDED):
        if name not in present:
            raise InputError(f"{path} lacks column {name!r}, so it is not a store; write into another file")
    for name in present:
        if name not in all_columns():
            raise InputError(
                f"{path} has a column {name!r} that this umm does not know; "
                "update umm, or write into another file"
            )
    return [name for name in all_columns() if name not in present]


def _view() -> str:
    shown = {x.lower(): f"json_extract(layouts, '$.{x}') AS {x.lower()}" for x in MATRICES}
    chosen = ", ".join(shown.get(name, quoted(name)) for name in columns())
    return f"CREATE VIEW runs AS SELECT {chosen} FROM all_runs WHERE chain IS NULL"


def _shown(connection: sqlite3.Connection) -> bool:
    cursor = connection.execute("SELECT sql FROM sqlite_master WHERE type = 'view' AND name = 'runs'")
    # SQLite keeps the text of a view as it was written, so a new column shows as a difference.
    return bool(cursor.fetchone() == (_view(),))

"""The store: one SQLite file of runs that several sweeps may fill while others read it."""

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from umm.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = {
    "config_id": "TEXT PRIMARY KEY",
    "umm_version": "TEXT NOT NULL",
    "created_at": "TEXT NOT NULL",
    "source": "TEXT NOT NULL",
    "machine": "TEXT NOT NULL",
    "machine_sha": "TEXT NOT NULL",
    "ranks": "INTEGER NOT NULL",
    "m": "INTEGER NOT NULL",
    "n": "INTEGER NOT NULL",
    "k": "INTEGER NOT NULL",
    "dtype": "TEXT NOT NULL",
    "a": "TEXT NOT NULL",
    "b": "TEXT NOT NULL",
    "c": "TEXT NOT NULL",
    "stationary": "TEXT NOT NULL",
    "policy": "TEXT NOT NULL",
    "prefetch": "INTEGER NOT NULL",
    "max_gemms": "INTEGER NOT NULL",
    "max_accumulates": "INTEGER NOT NULL",
    "offset": "TEXT NOT NULL",
    "granularity": "TEXT NOT NULL",
    "reuse": "INTEGER NOT NULL",
    "final": "TEXT NOT NULL",
    "time_s": "REAL",
    "fraction_of_peak": "REAL",
    "memory_bytes": "INTEGER",
    "pool_bytes": "INTEGER",
    "get_bytes": "INTEGER",
    "accumulate_bytes": "INTEGER",
    "reduce_bytes": "INTEGER",
    "gap": "REAL",
    "bound_by": "TEXT",
    "status": "TEXT NOT NULL",
    "error": "TEXT",
    "steps_gap": "REAL",
}
"""Names and SQLite types of the columns of table ``runs``; docs/guides/sweeps.md says what they mean."""

_FIRST = ", ".join(f'"{name}" {kind}' for name, kind in COLUMNS.items() if name != "steps_gap")
MIGRATIONS: tuple[Sequence[str], ...] = (
    (f"CREATE TABLE runs ({_FIRST}) WITHOUT ROWID", "CREATE INDEX runs_problem ON runs (machine, m, n, k)"),
    ("ALTER TABLE runs ADD COLUMN steps_gap REAL",),
)
"""What turns a file of version i (its place here; an empty file has 0) into one of version i + 1."""

Row = Mapping[str, Any]


class Store:
    """Runs by ``config_id``, in a file that survives being killed.

    Each call of :meth:`write` is one transaction. Writers wait for each other, readers for nobody.

    >>> with Store(":memory:") as store:
    ...     len(store), store.frame().columns[:3].tolist()
    (0, ['config_id', 'umm_version', 'created_at'])
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store, or make one.

        Raises:
            InputError: if the file is no store, or one of a newer version.
        """
        self.path = str(path)
        try:
            self._connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
            self._migrate()
        except sqlite3.Error as error:
            raise InputError(f"{self.path} cannot be used as a store: {error}") from None

    def _migrate(self) -> None:
        """Bring the file to this version's schema; concurrent openers take turns."""
        run = self._connection.execute
        self._enter_wal()
        run("PRAGMA synchronous = NORMAL")  # a commit survives the process; only power loss may undo it
        if self.version == len(MIGRATIONS):
            return
        run("BEGIN IMMEDIATE")
        with self._connection:
            if self.version > len(MIGRATIONS):
                raise InputError(
                    f"{self.path} has schema {self.version}, but this umm knows only {len(MIGRATIONS)}; "
                    "update umm, or write into another file"
                )
            if self.version == 0 and run("SELECT 1 FROM sqlite_master").fetchone():
                raise InputError(f"{self.path} is a database of something else; choose another file")
            for script in MIGRATIONS[self.version :]:
                for statement in script:
                    run(statement)
            run(f"PRAGMA user_version = {len(MIGRATIONS)}")

    def _enter_wal(self) -> None:
        """Switch to write-ahead logging; for this alone SQLite does not wait for others by itself."""
        for attempt in range(600):
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == 599:
                    raise
                time.sleep(0.1)

    @property
    def version(self) -> int:
        """Schema version of the file."""
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def write(self, rows: Iterable[Row]) -> None:
        """Add runs in one transaction; one that is there already stays, unless it had failed.

        Raises:
            InputError: for a row with a column that does not exist, or without one that must be there.
        """
        names = ", ".join(f'"{name}"' for name in COLUMNS)
        values = ", ".join("?" for _ in COLUMNS)
        fresh = ", ".join(f'"{name}" = excluded."{name}"' for name in COLUMNS)
        statement = (
            f"INSERT INTO runs ({names}) VALUES ({values}) "
            f"ON CONFLICT (config_id) DO UPDATE SET {fresh} WHERE runs.status <> 'ok'"
        )
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            with self._connection:
                self._connection.executemany(statement, (_values(row) for row in rows))
        except sqlite3.IntegrityError as error:
            raise InputError(f"a run cannot be stored: {error}") from None

    def done(self, config_ids: Sequence[str]) -> set[str]:
        """Return those of some runs that are there and did not fail."""
        found: set[str] = set()
        for start in range(0, len(config_ids), 500):
            some = config_ids[start : start + 500]
            marks = ", ".join("?" for _ in some)
            query = f"SELECT config_id FROM runs WHERE status = 'ok' AND config_id IN ({marks})"
            found.update(row[0] for row in self._connection.execute(query, some))
        return found

    def __len__(self) -> int:
        return int(self._connection.execute("SELECT count(*) FROM runs").fetchone()[0])

    def frame(self, **equal: Any) -> "pd.DataFrame":
        """Return runs as a pandas DataFrame, fastest first.

        Args:
            equal: Values that columns must have, such as ``machine="h100-8", m=8192``.

        Raises:
            InputError: for a column that does not exist.
        """
        import pandas as pd

        _known(equal)
        where = " AND ".join(f'"{name}" = ?' for name in equal) or "1"
        query = f"SELECT * FROM runs WHERE {where} ORDER BY time_s IS NULL, time_s, memory_bytes, config_id"
        frame = pd.read_sql_query(query, self._connection, params=tuple(equal.values()))
        return frame.astype({"reuse": bool, "steps_gap": float})

    def add(self, frame: "pd.DataFrame") -> None:
        """Add the runs of a frame that has the store's columns, such as one read back from a file."""
        import pandas as pd

        rows = frame.astype(object).where(pd.notna(frame), None).to_dict("records")
        self.write({str(name): value for name, value in row.items()} for row in rows)

    def export(self, path: str | Path) -> None:
        """Write all runs to a file: CSV, or Parquet where its name ends in .parquet.

        Raises:
            InputError: if the name ends in something else, or Parquet needs a package that is missing.
        """
        path = checked_export(path)
        if path.suffix == ".csv":
            self.frame().to_csv(path, index=False)
        else:
            self.frame().to_parquet(path, index=False)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def checked_export(path: str | Path) -> Path:
    """Return the path of an export, if one can be written there.

    Raises:
        InputError: if the name ends in something else, or Parquet needs a package that is missing.
    """
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path} is neither .csv nor .parquet; choose one of these endings")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow, which is not installed; pip install 'umm-sim[parquet]'")
    return path


def _values(row: Row) -> list[Any]:
    _known(row)
    return [getattr(row.get(name), "item", lambda name=name: row.get(name))() for name in COLUMNS]


def _known(names: Iterable[str]) -> None:
    for name in names:
        if name not in COLUMNS:
            raise InputError(f"a run has no column {name!r}; its columns are {', '.join(COLUMNS)}")

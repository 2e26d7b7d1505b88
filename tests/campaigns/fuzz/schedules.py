"""Schedules and traces: their JSON and their arrays with something changed, checked against their text."""

import json
from functools import cache
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from made_traces import gelu_of_a_product, two_ranks
from mutated import DEEP, other_array, said
from programs import program
from readable import made

import umm
from fuzz.files import bytes_changed, mutant
from fuzz.judged import REFUSED, TAKEN, tried
from fuzz.strings import changed_text
from umm.executor import executor
from umm.schedules.file.arrays import to_arrays
from umm.schedules.file.codec import to_json
from umm.schedules.files import load, save
from umm.schedules.schedule import Schedule
from umm.traces.files import load_trace, save_trace


def written(random: Random, path: Path, text: str) -> str:
    """Write a JSON text with something changed, a value or characters; return it."""
    if random.random() < 0.8:
        text = json.dumps(mutant(random, text)).replace('"deep"', DEEP)
    else:
        text = changed_text(random, text)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return text


@cache
def _schedules() -> list[Schedule]:
    return [made("gets-2"), made("remote-c-2"), program(8, 6), program(1, 6, signals=True), program(3, 12)]


def schedule(random: Random, folder: Path) -> str:
    """A schedule file is refused, or its schedule says the same; as JSON and as arrays."""
    full = random.choice(_schedules())
    if random.random() < 0.6:
        path = folder / "s.json"
        text = _json(full)
        text = written(random, path, text)
        result, refusal = tried(lambda: load(path))
        if refusal is not None:
            return REFUSED
        assert said(json.loads(to_json(result))) == said(json.loads(text))
        seconds, _ = tried(lambda: executor("sim").makespan(result))
        assert seconds is None or 0 <= seconds < float("inf")
        return TAKEN
    arrays = dict(to_arrays(full))
    for key in random.sample(list(arrays), random.choice((1, 1, 2))):
        arrays[key] = other_array(arrays[key], random)
    return _archive(random, folder, arrays, lambda path: load(path), "header")


@cache
def _json(schedule: Schedule) -> str:
    return to_json(schedule)


def _archive(random: Random, folder: Path, arrays: dict[str, Any], read_path: Any, *beside: str) -> str:
    """Write arrays, sometimes with bytes changed; those that are read equal the written ones."""
    stream = BytesIO()
    (np.savez if random.random() < 0.5 else np.savez_compressed)(stream, **arrays)
    content = stream.getvalue()
    harmed = random.random() < 0.3
    path = folder / "x.npz"
    path.write_bytes(bytes_changed(random, content) if harmed else content)
    result, refusal = tried(lambda: read_path(path))
    if refusal is not None:
        return REFUSED
    again = to_arrays(result if isinstance(result, Schedule) else result.schedule)
    for key in again:
        if key not in beside and not harmed:
            assert np.array_equal(again[key], arrays[key]), key
    return TAKEN


@cache
def _traces() -> list[Any]:
    return [two_ranks(), gelu_of_a_product()]


def trace(random: Random, folder: Path) -> str:
    """A trace file is refused, or has the times and the schedule that it says."""
    full = random.choice(_traces())
    if random.random() < 0.6:
        path = folder / "t.json"
        save_trace(full, path)
        text = path.read_text()
        text = written(random, path, text)
        result, refusal = tried(lambda: load_trace(path))
        if refusal is not None:
            return REFUSED
        data = json.loads(text)
        assert said(json.loads(to_json(result.schedule))) == said(data["schedule"])
        times = [list(map(float, data[x])) for x in ("start", "end")]
        assert [result.start.tolist(), result.end.tolist()] == times
        assert result.source == data["source"]
        assert result.times == data.get("times", "measured")
        result.breakdown(), result.verdict, umm.compare(result, result)
        return TAKEN
    arrays = dict(to_arrays(full.schedule)) | {"start": full.start, "end": full.end}
    arrays |= {"trace_schema": np.array(1), "source": np.array("sim"), "times": np.array("predicted")}
    for key in random.sample(list(arrays), random.choice((1, 1, 2))):
        arrays[key] = other_array(arrays[key], random)
    return _archive(random, folder, arrays, load_trace, "header")


def saved_again(random: Random, folder: Path) -> str:
    """A schedule that is written over another is there whole, or not at all."""
    full = random.choice(_schedules())
    path = folder / random.choice(
        ("a.json", "a.npz", "none/a.json", "..", "a" * 300, "link.json", "a\udc80.json")
    )
    link = folder / "link.json"
    if not link.is_symlink():
        link.symlink_to(link.name)
    before = {x.name for x in folder.iterdir()}
    _, refusal = tried(lambda: save(full, path))
    after = {x.name for x in folder.iterdir()}
    assert after - before <= ({path.name} if refusal is None else set()), after - before
    return REFUSED if refusal else TAKEN

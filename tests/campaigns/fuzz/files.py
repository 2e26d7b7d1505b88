"""Files of every form that umm reads: whole ones with something changed, checked against their text."""

import json
import re
import tomllib
from fractions import Fraction
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import node_texts
import numpy as np
from mutated import DEEP, changed, paths

import umm
from fuzz.judged import REFUSED, TAKEN, tried
from fuzz.strings import changed_text, odd_text
from fuzz.texts import NUMBER, SCALES, TIMES
from umm.checkpoints import load as load_checkpoint
from umm.checkpoints import save as save_checkpoint
from umm.executor import executor
from umm.files import read_toml
from umm.machines import Machine, machine
from umm.machines.build import build
from umm.machines.drafts.imports import imported, read
from umm.machines.files import _read, named_file
from umm.program.files import load_chain, save_chain, toml
from umm.program.presets import chain
from umm.quoting.terminal import in_lines
from umm.schedules.file.arrays import from_arrays
from umm.schedules.files import load
from umm.schedules.schedule import Schedule
from umm.traces.files import load_trace

CHOSEN = ("engines", "libraries", "library")
"""Tables of a machine file of which building a machine chooses one."""
MACHINES = (
    "h100-8",
    "pvc-12",
    "pvc-12-planes",
    "dgx-h100x4",
    "tpu-v5e-16",
    "frontera-rtx",
    "localhost",
    "h200-1",
)


def toml_of(value: Any) -> str:
    """Return nested values as inline TOML; values that TOML lacks as text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {toml_of(x)}" for key, x in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml_of, value)) + "]"
    if isinstance(value, float):
        return repr(value)
    return "9" * 500 if isinstance(value, int) and abs(value) > 10**300 else json.dumps(value)


def toml_file(content: dict[str, Any]) -> str:
    """Return a TOML file of some keys."""
    return "".join(f"{json.dumps(str(key))} = {toml_of(value)}\n" for key, value in content.items()).replace(
        "null", '""'
    )


@cache
def _document(name: str) -> str:
    return json.dumps(dict(machine(name).document))


@cache
def _places(text: str) -> list[Any]:
    return list(paths(json.loads(text)))


def mutant(random: Random, text: str) -> Any:
    """Return the content of a JSON text with something changed; a few are as they were."""
    return json.loads(text) if random.random() < 0.03 else changed(text, _places(text), random)


def bytes_changed(random: Random, content: bytes) -> bytes:
    """Return bytes with some changed, cut or doubled."""
    result = bytearray(content)
    for _ in range(random.randrange(1, 5)):
        at = random.randrange(len(result) + 1)
        result[at : at + random.randrange(9)] = random.randbytes(random.randrange(9))
    return bytes(result[: random.randrange(len(result) + 1)] if random.random() < 0.2 else result)


def topology(random: Random, folder: Path) -> str:
    """A machine has the numbers that its file says, and a multiply on it takes some finite time."""
    path = folder / "machine.toml"
    full = _document(random.choice(MACHINES))
    if random.random() < 0.7:
        text = toml_file(mutant(random, full)).replace('"deep"', DEEP)
    else:
        text = changed_text(random, named_file(random.choice(MACHINES)).read_text("utf-8"), most=6)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    _read.clear()
    result, refusal = tried(lambda: machine(path))
    if refusal is not None:
        return REFUSED
    content = tomllib.loads(text)
    expected = in_lines({key: value for key, value in content.items() if key not in CHOSEN})
    assert {key: value for key, value in result.document.items() if key not in CHOSEN} == expected
    _as_it_says(result, content["devices"])
    _usable(result)
    return TAKEN


def _as_it_says(result: Machine, devices: dict[str, Any]) -> None:
    assert result.device_count == devices["count"]["value"]
    assert abs(result.memory - _exact(devices["memory"]["value"])) <= 1 + result.memory // 10**9
    assert _near(result.memory_bandwidth, devices["memory_bandwidth"]["value"])
    assert _near(result.launch_s, devices["launch"]["value"])
    for dtype, rate in devices["peak"].items():
        if dtype != "tf32":
            assert _near(result.peaks[{"float8": "float8_e4m3"}.get(dtype, dtype)], rate["value"]), dtype
    assert result.copy_engines == devices["copy_engines"]["value"]


def _exact(text: str) -> Fraction:
    match = re.fullmatch(NUMBER + r"\s*(\S*)", text.strip())
    assert match, text
    for suffix in ("flop/s", "B/s", "B"):
        if match[2].endswith(suffix):
            return Fraction(match[1]) * SCALES[match[2].removesuffix(suffix)]
    return Fraction(match[1]) * TIMES[match[2]]


def _near(value: float, text: str) -> bool:
    return abs(Fraction(value) - _exact(text)) <= Fraction(value) / 10**9


def _usable(result: Machine) -> None:
    """A multiply takes a finite time, if all of its ranks are joined; many devices take long."""
    ranks = min(result.default_ranks, 4)
    if result.device_count > 64 or not ranks:
        return
    problem = umm.Problem(
        m=16, n=12, k=8, dtype=next(iter(result.peaks)), a="col", b="row", c="row", ranks=ranks
    )
    schedule, refusal = tried(lambda: umm.schedule(problem, result))
    if refusal is None:
        seconds, _ = tried(lambda: executor("sim").makespan(schedule))
        assert seconds is None or 0 < seconds < float("inf"), seconds


@cache
def _chains(folder: Path) -> list[str]:
    outlines = [
        chain("mlp", hidden=8, ffn=12, tokens=4, backward=True),
        chain("attention", hidden=8, tokens=4, heads=2),
    ]
    result = []
    for outline in outlines:
        save_chain(outline, folder / "whole.toml")
        result.append((folder / "whole.toml").read_text())
    return result


def chain_file(random: Random, folder: Path) -> str:
    """A chain that is taken is written as a file that says the same."""
    path, text = folder / "c.toml", random.choice(_chains(folder))
    if random.random() < 0.7:
        text = toml_file(mutant(random, json.dumps(tomllib.loads(text)))).replace('"deep"', DEEP)
    else:
        text = changed_text(random, text, most=5)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    result, refusal = tried(lambda: load_chain(path))
    if refusal is not None:
        return REFUSED
    again = folder / "again.toml"
    save_chain(result, again)
    assert load_chain(again) == result, toml(result)
    ranks = random.choice((1, 2, 4))
    tried(lambda: result.laid_out(None, ranks))
    return TAKEN


@cache
def _checkpoint(folder: Path) -> tuple[dict[str, Any], str]:
    tensors = chain("mlp", hidden=4, ffn=6, tokens=2).laid_out("sequence", ranks=2).tensors
    arrays = {
        x.name: np.arange(x.shape[0] * x.shape[1], dtype=np.float32).reshape(x.shape) for x in tensors[:3]
    }
    save_checkpoint(folder, arrays, tensors)
    return arrays, (folder / "checkpoint.json").read_text()


def checkpoint(random: Random, folder: Path) -> str:
    """A checkpoint whose manifest or part was changed is refused, or has the matrices that were saved."""
    arrays, full = _checkpoint(folder / "saved")
    place = folder / "saved" / "checkpoint.json"
    if random.random() < 0.8:
        place.write_text(json.dumps(mutant(random, full)).replace('"deep"', DEEP))
    else:
        place.write_bytes(bytes_changed(random, full.encode()))
    part = next((folder / "saved").glob("*.part"))
    content = part.read_bytes()
    if random.random() < 0.2:
        part.write_bytes(bytes_changed(random, content))
    try:
        result, refusal = tried(
            lambda: {name: np.array(x) for name, x in load_checkpoint(folder / "saved").items()}
        )
    finally:
        part.write_bytes(content)
    if refusal is not None:
        return REFUSED
    for name, array in result.items():
        same = [x for x in arrays.values() if x.shape == array.shape or x.size == array.size]
        assert (
            any(sorted(array.reshape(-1)) == sorted(x.reshape(-1)) for x in same) or array.dtype != np.float32
        ), name
    return TAKEN


def described(random: Random, _folder: Path) -> str:
    """Output of tools about a node is refused, or makes a machine that can be used."""
    texts = [x for name, x in vars(node_texts).items() if isinstance(x, str) and name.isupper()]
    text = changed_text(random, random.choice(texts), most=6)
    node, refusal = tried(lambda: read(text, 25e9))
    if refusal is not None:
        return REFUSED
    other, card = machine("h100-8"), dict(machine("dgx-h100x4").document["fabric"]["nic"])
    content, refusal = tried(lambda: imported(node, other, card, nodes=random.choice((1, 2))))
    if refusal is not None:
        return REFUSED
    result, refusal = tried(lambda: build(content, Path("x.toml"), "x"))
    if refusal is not None:
        return REFUSED
    assert result.device_count % len(node.names) == 0
    _usable(result)
    return TAKEN


def odd_file(random: Random, folder: Path) -> str:
    """Bytes of no form at all are refused by every reader."""
    content = random.choice(
        (
            b"",
            b"PK\x03\x04",
            b"SQLite format 3\0",
            b"{",
            b"[" * 50_000,
            b'{"a":' * 50_000,
            random.randbytes(60),
        )
    )
    content += odd_text(random).encode("utf-8", "surrogatepass")
    for name, read_path in (
        ("s.json", load), ("s.npz", load), ("t.json", load_trace), ("t.npz", load_trace), ("m.toml",
        machine), ("c.toml", load_chain),
    ):  # fmt: skip
        (folder / name).write_bytes(content)
        assert tried(lambda read_path=read_path, name=name: read_path(folder / name))[1], name
    assert tried(lambda: from_arrays({}, Schedule))[1]
    return REFUSED


ATOMS = ("a", "b1", '"="', '","', "'{'", '"#"', '"."', '""', " a ", '"""', "=", "[", "{", ",", "#", "\n")


def keys(random: Random, folder: Path) -> str:
    """Dotted keys of many parts, in whatever quotes, are refused before the parser takes seconds."""
    atoms, count = random.choices(ATOMS, k=random.randint(1, 4)), int(10 ** random.uniform(0, 4.6))
    key = ".".join(atoms[i % len(atoms)] for i in range(count))
    text = random.choice(("{} = 1", "[{}]", "[[{}]]", "x = {{{} = 1}}", 'x = [ """a"""", {{{} = 1}} ]'))
    path = folder / "keys.toml"
    path.write_text("a = 1\n" + text.format(key) + "\n", encoding="utf-8")
    reader = random.choice((machine, load_chain, read_toml))
    _read.clear()
    return TAKEN if tried(lambda: reader(path))[1] is None else REFUSED

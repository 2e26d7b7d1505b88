"""Files of other tools: logs of benchmarks, models' config.json, files of numbers; and odd files."""

import json
import os
from functools import cache
from pathlib import Path
from random import Random

from mutated import DEEP

from fuzz.files import bytes_changed, mutant
from fuzz.judged import REFUSED, TAKEN, shown, tried
from fuzz.strings import ODD, changed_text
from umm.checkpoints import load as load_checkpoint
from umm.cli.flags.chain import _routing
from umm.files import read_toml
from umm.machines import machine
from umm.machines.build import build
from umm.machines.drafts.fits import fitted
from umm.machines.drafts.logs import is_log, read_log
from umm.machines.drafts.scaffold import marked
from umm.program.files import load_chain
from umm.program.models import PUBLIC, find_model
from umm.program.models.count import count
from umm.program.routing import Routing
from umm.schedules.files import load
from umm.space import Store
from umm.space.search.noise import Noise
from umm.traces.files import load_trace

LOGS = Path(__file__).parents[2] / "machines" / "logs"
XLA = """entries { key: "sm_90" value { entries { instruction { opcode: "all-reduce" shape {
element_type: F32 dimensions: 1048576 } collective_device_list { iota_replica_group_list {
num_replica_groups: 1 num_devices_per_group: 8 } } } network_throughput_bytes_per_sec: 123456789 } } }"""
TABLES = (
    XLA,
    "device,op,ranks_a_group,total_bytes,us,bytes_per_s\nH100,all_reduce,8,1048576,30.5,1\n",
    "m,n,k,dtype,us\n4096,4096,4096,bf16,200.5\n64,64,64,fp32,3.0\n",
    "[0]:transA,m,n,k,a_type,hipblaslt-Gflops,us\n T,8192,8192,8192,f16_r,600000,1800\n",
)


@cache
def _logs() -> list[str]:
    return [*TABLES, *(x.read_text("utf-8", "replace") for x in sorted(LOGS.iterdir()) if x.suffix != ".md")]


def _odd_cell(random: Random, text: str) -> str:
    """A text with one of its words exchanged for an odd one."""
    words = text.split(" ")
    words[random.randrange(len(words))] = random.choice((*ODD, "²", "9" * 5000, "1" + "0" * 300, "-5"))
    return " ".join(words)


def log(random: Random, _folder: Path) -> str:
    """A log is refused, or its rows fit a machine that can be built."""
    text = random.choice(_logs())
    for _ in range(random.randrange(1, 4)):
        text = changed_text(random, text, most=3) if random.random() < 0.4 else _odd_cell(random, text)
    if not is_log(text):
        return REFUSED
    name = random.choice(("all_reduce.log", "alltoall.txt", "x"))
    result, refusal = tried(lambda: read_log(text, name, random.choice((None, 8))))
    if refusal is not None:
        return REFUSED
    for row in (*result.collectives, *result.gemms):
        assert 0 < row.seconds < float("inf"), row
    assert all(0 <= x < float("inf") for x in result.copies)
    other = machine("h100-8")
    fit, refusal = tried(lambda: fitted(marked(other.document, other.name), [result], {}, "a log"))
    if refusal is not None:
        return REFUSED
    tried(lambda: build(fit.content, Path("x.toml"), "x"))
    return TAKEN


def model(random: Random, folder: Path) -> str:
    """A config.json is refused by a key, or has layers and a number of parameters."""
    path, full = folder / "config.json", json.dumps(PUBLIC[random.choice(list(PUBLIC))])
    if random.random() < 0.8:
        text = json.dumps(mutant(random, full)).replace('"deep"', DEEP)
    else:
        text = changed_text(random, full, most=5)
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    result, refusal = tried(lambda: find_model(str(path)))
    if refusal is not None:
        return REFUSED
    counted, refusal = tried(lambda: count(result))
    if refusal is not None:
        return REFUSED
    assert counted.parameters > 0
    return TAKEN


def numbers(random: Random, folder: Path) -> str:
    """Files of measured times and of tokens' choices are refused, or keep their values."""
    words = ["1.5", "2.0", "3", "1", "0", "2", "0.25"]
    words = [random.choice((*ODD, "²", "9" * 5000)) if random.random() < 0.1 else x for x in words]
    text = random.choice(("\n", ",", " ", ",\n")).join(random.sample(words, random.randrange(1, 7)))
    path = folder / "numbers.txt"
    content = text.encode("utf-8", "surrogatepass")
    path.write_bytes(bytes_changed(random, content) if random.random() < 0.2 else content)
    noise, first = tried(lambda: Noise.of(f"gemm={path}", None))
    rule, second = tried(lambda: _routing(str(path)))
    assert noise is None or all(0 < x < float("inf") for _, times in noise.measured for x in times)
    if rule is not None:
        _, second = tried(lambda: Routing.parse(f"7x3x1:{rule}:0"))
    return REFUSED if first and second else TAKEN


def no_file(random: Random, folder: Path) -> str:
    """Every reader refuses a pipe, a device, a folder, a link in a circle and a file without an end."""
    readers = {
        ".json": (load, load_trace, find_model),
        ".npz": (load, load_trace),
        ".toml": (machine, load_chain, read_toml),
        ".db": (Store,),
        ".txt": (lambda path: Noise.of(f"link={path}", None), _routing),
        "": (load_checkpoint,),
    }
    suffix = random.choice(list(readers))
    path = folder / f"odd{suffix}"
    made = random.choice(("pipe", "device", "folder", "circle", "endless", "nothing"))
    if made == "pipe":
        os.mkfifo(path)
    elif made in ("device", "circle"):
        path.symlink_to("/dev/zero" if made == "device" else path)
    elif made == "folder":
        path.mkdir()
    elif made == "endless":
        path.touch()
        os.truncate(path, 2**40)
    try:
        refusal = tried(lambda: random.choice(readers[suffix])(str(path)))[1]
    finally:
        (path.rmdir if made == "folder" else path.unlink)() if os.path.lexists(path) else None
        for beside in folder.glob("odd.db-*"):
            beside.unlink()
    assert refusal or (suffix, made) == (".db", "nothing"), (suffix, made)
    shown(refusal or "")
    return REFUSED

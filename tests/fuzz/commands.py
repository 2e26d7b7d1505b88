"""Command lines and ``--config`` files: exit codes, streams, what is echoed, what is left behind."""

import json
import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import click
from click.testing import CliRunner

from fuzz.files import MACHINES, toml_file
from fuzz.judged import REFUSED, TAKEN, shown, tried
from fuzz.strings import changed_text, odd_text
from fuzz.texts import FOREIGN, LAYOUTS
from umm.cli.main import main
from umm.errors import InputError

CODES = {0, 1, 2, 3, 4, 5, 130}
"""Those that ``umm --help`` documents."""
VALUES: dict[str, tuple[str, ...]] = {
    "m": ("8", "16", "12", "1", "1K", "0", "-1", "5", "64M", "512M", "8,16"),
    "n": ("8", "16", "12", "1", "7"),
    "k": ("8", "16", "12", "1", "9"),
    "machine": (*MACHINES[:7], "h100-8:tf32", "machine.toml"),
    "ranks": ("1", "2", "4", "8", "3", "0", "-1", "9999999999999999999"),
    "dtype": ("float32", "bf16", "float64", "float16", "int32", ""),
    "c-dtype": ("float32", "bf16", "float64"),
    "stationary": ("A", "B", "C", "auto"),
    "policy": ("direct", "greedy", "cost-greedy"),
    "prefetch": ("0", "1", "2", "4096", "4097", "-1"),
    "max-gemms": ("1", "2", "0"),
    "max-accumulates": ("1", "2", "0"),
    "offset": ("none", "index", "rotate"),
    "granularity": ("tile", "slice"),
    "final": ("reduce", "broadcast", "all-reduce", "reduce-scatter"),
    "reuse": ("on", "none"),
    "given": ("a=row", "a=row,c=col@2", "c=col", ""),
    "memory": ("device", "none", "2x", "16GiB", "1", "0", "1e30 B"),
    "set": ("fabric.bandwidth=x0.5", "memory=40 GB", "devices.count=4", "fabric*=x2"),
    "algorithm": ("universal", "cannon", "summa", "dtensor", "ring", "direct", "all"),
    "with": ("panel=4", "mesh=2x2", "order=3"),
    "preset": ("mlp1", "mlp2", "mlp3"),
    "chain": ("mlp", "gated-mlp", "attention", "transformer-layer", "none.toml"),
    "hidden": ("8", "16"), "ffn": ("8", "12"), "heads": ("2", "3"), "kv-heads": ("1", "2"), "tokens": ("4",
    "8"),
    "layouts": ("megatron", "sequence", "data", "W1=col", "X=row,W1=col@2"),
    "model": ("llama-3-8b", "gpt-2"),
    "dropout": ("0.5", "0", "1", "nan"),
    "executor": ("numpy", "sim", "cuda", "nvshmem", "gpu"),
    "option": ("order=random", "seed=3", "replica=0", "x=1"),
    "iters": ("1", "2", "0"), "warmup": ("0", "1"),
    "begin": ("1KiB", "1M", "0", "8"), "end": ("4KiB", "1KiB"), "factor": ("2", "3", "1"),
    "root": ("0", "1", "9"), "directions": ("1", "2", "3"), "chunks": ("1", "2", "0"),
    "means": ("copy_engine", "kernel"),
    "fail-above": ("25%", "0.25", "nan", "-1"),
    "as": ("dtensor", "jax", "scalapack", "hpf"),
    "emit": ("torch", "jax", "umm"),
    "top": ("1", "3", "0"), "grids": ("all", "square"), "choices": ("row,col", "all"), "optimizer": ("12",
    "0"),
    "pool": ("none",), "jobs": ("1",),
    "map": ("memory", "fabric*bandwidth", "x"), "reach": ("2", "1"), "margin": ("0.01", "0.5"),
    "save-schedule": ("out.json", "out.npz", "none/out.json"), "save-trace": ("trace.json", "trace.npz"),
    "html": ("page.html",), "perfetto": ("x.pftrace",), "output": ("out.txt", "none/out.txt"),
    "export": ("runs.csv", "runs.txt"),
    "schedule": ("out.json", "none.json"), "load": ("folder",), "save": ("folder",),
    "save-chain": ("chain.toml",),
    "config": ("config.toml",), "nodes": ("1", "2"), "devices": ("2", "4"), "from": ("h100-8",),
    "nvlink": ("25GB/s",),
    "source": ("a data sheet",),
}  # fmt: skip
ARGUMENTS = {
    "collective": ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce",
    "gather"),
    "machine show": (*MACHINES, "machine.toml"), "machine check": (*MACHINES, "machine.toml"),
    "compare": ("trace.json",),
    "machine new": ("mine", "mine.toml"), "machine import": ("topo.txt",),
}  # fmt: skip
ALWAYS = {
    "simulate": "-m 16 -n 12 -k 8",
    "search": "-m 16 -n 12 -k 8 --ranks 2 --a row,col --b row --c row --top 1",
    "sweep": "-m 8 -n 8 -k 8 --ranks 2 --a row --b row --c row,col -o s.db --pool none --quiet",
    "run": "-m 16 -n 12 -k 8 --ranks 2 --machine h100-8 --iters 1 --warmup 0",
    "compare": "-m 16 -n 12 -k 8 --ranks 2 --machine h100-8",
    "peers": "-m 16 -n 12 -k 8 --ranks 2 --no-crossover", "collective": "-b 1KiB -e 4KiB --ranks 2",
    "what-if": "-m 8 -n 8 -k 8 --ranks 2 --a row --b row --c row --reach 2 --final reduce --granularity tile",
    "tiles": "-m 16 -n 12 -k 8 --ranks 4", "machine list": "", "machine show": "h100-8",
    "machine check": "h100-8",
    "machine new": "mine --from h100-8 --force", "machine import": "topo.txt mine --from h100-8 --force",
}  # fmt: skip
WEIGHTS = {"simulate": 8, "tiles": 8, "collective": 6, "machine show": 3, "machine check": 4, "run": 4,
"search": 1, "sweep": 2,
           "compare": 2, "machine list": 1, "peers": 1, "what-if": 1, "machine new": 2,
           "machine import": 2}  # fmt: skip
SLOW = {"config", "preset", "model", "chain"}


@cache
def flags(name: str) -> dict[str, click.Option]:
    """Return the options of a command by what is typed."""
    command: Any = main
    for part in name.split():
        command = command.get_command(click.Context(command), part)
    return {x: param for param in command.params if isinstance(param, click.Option) for x in param.opts}


def value_of(random: Random, flag: str) -> str:
    """Return a value for a flag: mostly one that may be right."""
    name = flag.lstrip("-")
    name = (
        {"b": "begin", "e": "end", "f": "factor", "o": "output"}.get(name, name)
        if flag.startswith("-")
        else name
    )
    known = VALUES.get(name, ())
    if name in ("a", "b", "c"):
        known = (*LAYOUTS, *FOREIGN, "row,col", "all")
    if known and random.random() < 0.85:
        value = random.choice(known)
        return changed_text(random, value, 1) if random.random() < 0.1 else value
    return odd_text(random)


def arguments(random: Random) -> tuple[str, list[str]]:
    """Return a command, and what is typed behind it."""
    name = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    args = ALWAYS[name].split()
    if name in ARGUMENTS and random.random() < 0.9:
        args = [random.choice(ARGUMENTS[name])] + (args if name in ("collective", "compare") else args[1:])
    known = [
        x
        for x in flags(name)
        if x not in ("--help", "-h", "--open", "--pool", "--jobs", "--executor") or name == "run"
    ]
    for _ in range(random.choice((0, 1, 1, 2, 3))):
        flag = random.choice(known) if random.random() < 0.95 else odd_text(random)
        option = flags(name).get(flag)
        takes = option is None or not option.is_flag
        if flag.lstrip("-") in ("m", "n", "k", "a", "b", "c", "ranks") and name in (
            "search",
            "peers",
            "what-if",
            "sweep",
        ):
            takes, flag = False, "--json"
        args += [flag, value_of(random, flag)] if takes and random.random() < 0.97 else [flag]
    return name, args


def command_line(random: Random, folder: Path) -> str:
    """A command ends with a documented code; what it cannot do is one line, and leaves no file behind."""
    name, args = arguments(random)
    (folder / "topo.txt").write_text("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n")
    config = {
        random.choice((*VALUES, "a", "b", "c", "odd")): random.choice(
            (*ODD_VALUES, value_of(random, "--dtype"))
        )
    }
    (folder / "config.toml").write_text(toml_file(config), encoding="utf-8", errors="surrogatepass")
    before = {x.name for x in folder.iterdir()}
    runner = CliRunner(env={"XDG_CONFIG_HOME": str(folder / "user")})
    done = runner.invoke(main, [*name.split(), *args])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in CODES, done.exit_code
    for text in (done.stdout, done.stderr):
        shown(text)
        assert "Traceback" not in text
    after = {x.name for x in folder.iterdir()}
    if done.exit_code == 2 and name != "machine check":
        assert done.stdout == "", done.stdout
        assert re.search(r"error: [^\n]+\n\Z", done.stderr), done.stderr
        assert len(done.stderr.splitlines()[-1]) < 2100
        assert after <= before | {"s.db", "folder"}, after - before
        return REFUSED
    assert not [x for x in after if x.startswith(".umm-partial")]
    if done.exit_code == 0 and "--json" in args and done.stdout and name != "sweep":
        record = json.loads(done.stdout)
        assert record["schema"] == 1
        _echoed(record, args)
    return TAKEN if done.exit_code == 0 else REFUSED


def _echoed(record: dict[str, Any], args: list[str]) -> None:
    """Assert that sizes and layouts are echoed as they were asked for."""
    problem = record.get("problem") or {}
    for name in "mnk":
        asked = [value for flag, value in pairwise(args) if flag == f"-{name}"]
        if name in problem and asked and "--config" not in args:
            size = re.fullmatch(r"\s*([0-9]+)\s*([kKM]?)\s*", asked[-1])
            assert size, asked
            assert problem[name] == int(size[1]) * {"": 1, "K": 2**10, "k": 2**10, "M": 2**20}[size[2]]
    assert "--ranks" not in args or "ranks" not in problem or str(problem["ranks"]) in args


ODD_VALUES = (
    True,
    False,
    0,
    1,
    -1,
    2.5,
    10**30,
    float("nan"),
    "",
    "8",
    "on",
    "yes",
    [1],
    {"a": 1},
    "a\0b",
    "é",
    2**63,
    [],
    "all",
)


def config(random: Random, folder: Path) -> str:
    """A file's value is refused, or is what the same value means when it is typed."""
    name = random.choice(("simulate", "run", "tiles", "search", "collective"))
    keys = [x.lstrip("-") for x in flags(name) if x.lstrip("-") not in ("config", "help", "h", "output", "o")]
    key = random.choice(keys) if random.random() < 0.95 else odd_text(random)
    flag = f"-{key}" if f"-{key}" in flags(name) else f"--{key}"
    value: Any = random.choice(ODD_VALUES) if random.random() < 0.5 else value_of(random, flag)
    path = folder / "config.toml"
    path.write_text(toml_file({key: value}), encoding="utf-8", errors="surrogatepass")
    option = flags(name).get(flag)
    parts = name.split()
    by_file, refusal = _parsed(parts, ["--config", str(path)], name)
    typed = [flag] if option is not None and option.is_flag else [flag, str(value)]
    if refusal is not None:
        return REFUSED
    if option is not None and option.is_flag:
        assert isinstance(value, bool), (key, value)
        typed = [flag] if value else []
    else:
        assert type(value) in (str, int, float), (key, value)
    by_hand, why = _parsed(parts, typed, name)
    assert why is None, (key, value, why)
    assert by_file == by_hand, (key, value)
    return TAKEN


def _parsed(parts: list[str], args: list[str], name: str) -> tuple[Any, str | None]:
    """Return what a command would be called with."""
    command: Any = main
    for part in parts:
        command = command.get_command(click.Context(command), part)
    extra = ["all-gather"] if name == "collective" else []

    def params() -> Any:
        try:
            with command.make_context(name, [*extra, *args]) as ctx:
                return repr(sorted(ctx.params.items()))
        except click.ClickException as error:
            raise InputError(error.format_message()) from None

    return tried(params)

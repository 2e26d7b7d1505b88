"""Command lines and ``--config`` files: exit codes, streams, echoed values, files left behind."""

import json
import os
import re
import signal
from functools import cache
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import click
from click.testing import CliRunner

from fuzz.files import toml_file
from fuzz.judged import REFUSED, TAKEN, shown, tried
from fuzz.strings import changed_text, odd_text
from fuzz.texts import FOREIGN, LAYOUTS
from fuzz.typed import ALWAYS, ARGUMENTS, VALUES, WEIGHTS
from umm.cli.main import main
from umm.errors import InputError

CODES = {0, 1, 2, 3, 4, 5, 130}
"""Those that ``umm --help`` documents."""


@cache
def flags(name: str) -> dict[str, click.Option]:
    """Return the options of a command by their typed form."""
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
    """Return a command and its arguments."""
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
        value = value_of(random, flag)
        if name == "run" and value == "64M":  # which it does, with 10 GB
            value = "64K"
        args += [flag, value] if takes and random.random() < 0.97 else [flag]
    return name, args


def write_inputs(random: Random, folder: Path) -> None:
    """Write files that commands read: a node, a log, a model, a pipe without a writer."""
    (folder / "topo.txt").write_text("GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n")
    row = f" 1048576 262144 float sum -1 {random.choice(('20.0', '²', 'nan', '9' * 5000))} 52.4 91.8 0\n"
    (folder / "log.txt").write_text("# nGpus 8\n# size count type redop root time algbw busbw #wrong\n" + row)
    (folder / "config.json").write_text(random.choice(("{", "[" * 10_000, '{"hidden_size": 1e400}')))
    if not (folder / "pipe.json").exists():
        os.mkfifo(folder / "pipe.json")


def command_line(random: Random, folder: Path) -> str:
    """A command ends with a documented code; a refusal is one line, and leaves no file behind."""
    name, args = arguments(random)
    write_inputs(random, folder)
    config = {
        random.choice((*VALUES, "a", "b", "c", "odd")): random.choice(
            (*ODD_VALUES, value_of(random, "--dtype"))
        )
    }
    (folder / "config.toml").write_text(toml_file(config), encoding="utf-8", errors="surrogatepass")
    before = {x.name for x in folder.iterdir()}
    runner = CliRunner(env={"XDG_CONFIG_HOME": str(folder / "user")})
    done = runner.invoke(main, [*name.split(), *args])
    signal.setitimer(signal.ITIMER_REAL, 0)  # of --seconds in what was refused; a process of its own ends
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
    helped = {"--help", "--help-all", "-h"} & set(args)
    if done.exit_code == 0 and "--json" in args and done.stdout and name != "sweep" and not helped:
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
            assert problem[name] == int(size[1]) * {"": 1, "K": 2**10, "k": 2**10, "M": 10**6}[size[2]]
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
    """A file's value is refused, or means the same as typed."""
    name = random.choice(("simulate", "run", "tiles", "search", "collective"))
    keys = [
        x.lstrip("-")
        for x in flags(name)
        if x.lstrip("-") not in ("config", "help", "help-all", "h", "output", "o")
    ]
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
        typed = [flag] if value else option.secondary_opts[:1]  # --eager is --graphs in a file, and false
    else:
        assert type(value) in (str, int, float), (key, value)
    by_hand, why = _parsed(parts, typed, name)
    assert why is None, (key, value, why)
    assert by_file == by_hand, (key, value)
    return TAKEN


def _parsed(parts: list[str], args: list[str], name: str) -> tuple[Any, str | None]:
    """Return the arguments that a command would be called with."""
    command: Any = main
    for part in parts:
        command = command.get_command(click.Context(command), part)
    extra = ["all-gather"] if name == "collective" else []

    def params() -> Any:
        try:
            with command.make_context(name, [*extra, *args]) as ctx:
                return repr(sorted(x for x in ctx.params.items() if x[0] != "config"))
        except click.ClickException as error:
            raise InputError(error.format_message()) from None

    return tried(params)

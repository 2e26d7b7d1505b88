"""Defaults for flags from a TOML file and from presets, below what is typed and UMM_* variables."""

from pathlib import Path
from typing import Any

import click

from umm.errors import InputError, did_you_mean
from umm.files import read_toml, shown

# Brock & Golin (2025), section 5.1: the two multiplies of a transformer's MLP; m is the batch.
PRESETS = {
    "mlp1": {"m": 8192, "n": 49152, "k": 12288},
    "mlp2": {"m": 8192, "n": 12288, "k": 49152},
}

CONFIG = "umm.config"  # where a click context keeps the path of the file


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Let the values of a TOML file stand in for flags that are not given.

    Raises:
        InputError: if the file cannot be read, has a key that is not a flag of the command, or a value of
            another type than its flag.
    """
    if path is None:
        return None
    content = read_toml(path)
    ctx.meta[CONFIG] = path
    params = _params(ctx.command)
    values: dict[str, Any] = {}
    for key, value in content.items():
        where = f"{path}: {shown(key)}"
        if key not in params:
            raise InputError(f"{where} is not a flag of {ctx.command_path}; {did_you_mean(key, params)}")
        param = params[key]
        if param.name in values:
            raise InputError(f"{where} is the same flag as another key; keep one")
        if param.is_flag and not isinstance(value, bool):
            raise InputError(f"{where} must be true or false, not {shown(value)}")
        if not param.is_flag and (not isinstance(value, str | int | float) or isinstance(value, bool)):
            raise InputError(f"{where} must be a string or a number, not {shown(value)}")
        if "\0" in str(value):
            raise InputError(f"{where} = {shown(value)} has a NUL, which no value has")
        text = value if isinstance(value, bool) else str(value)
        values[str(param.name)] = [text] if param.multiple else text
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def load_preset(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Let the sizes of a preset stand in for what neither a flag, a variable nor a file gives."""
    if name is not None:
        ctx.default_map = {**{x: str(size) for x, size in PRESETS[name].items()}, **(ctx.default_map or {})}
    return name


def _params(command: click.Command) -> dict[str, click.Option]:
    """Return the parameter that each flag sets, by the flag's name as typed but without dashes."""
    return {
        flag.lstrip("-"): param
        for param in command.params
        if isinstance(param, click.Option) and param.name not in ("config", "help")
        for flag in param.opts
    }

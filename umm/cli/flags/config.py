"""Defaults for flags from a TOML file and from presets, below what is typed and UMM_* variables."""

import tomllib
from pathlib import Path
from typing import Any

import click

from umm.errors import InputError, did_you_mean

# Brock & Golin (2025), section 5.1: the two multiplies of a transformer's MLP; m is the batch.
PRESETS = {
    "mlp1": {"m": 8192, "n": 49152, "k": 12288},
    "mlp2": {"m": 8192, "n": 12288, "k": 49152},
}

CONFIG = "umm.config"  # where a click context keeps the path of the file


def load_config(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    """Let the values of a TOML file stand in for flags that are not given.

    Raises:
        InputError: if the file cannot be read, or has a key that is not a flag of the command.
    """
    if path is None:
        return None
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    ctx.meta[CONFIG] = path
    names = _flag_names(ctx.command)
    for key, value in content.items():
        if key not in names:
            hint = did_you_mean(key, names)
            raise InputError(f"{path}: {key!r} is not a flag of {ctx.command_path}; {hint}")
        if not isinstance(value, str | int | float):
            raise InputError(f"{path}: {key} must be a string, a number, true or false")
    several = {param.name for param in ctx.command.params if getattr(param, "multiple", False)}
    values: dict[str, Any] = {
        names[key]: value if isinstance(value, bool) else str(value) for key, value in content.items()
    }
    values |= {name: [value] for name, value in values.items() if name in several}
    ctx.default_map = {**(ctx.default_map or {}), **values}
    return path


def load_preset(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Let the sizes of a preset stand in for what neither a flag, a variable nor a file gives."""
    if name is not None:
        ctx.default_map = {**{x: str(size) for x, size in PRESETS[name].items()}, **(ctx.default_map or {})}
    return name


def _flag_names(command: click.Command) -> dict[str, Any]:
    """Return for each flag's name, as typed but without dashes, the parameter it sets."""
    return {
        flag.lstrip("-"): param.name
        for param in command.params
        if isinstance(param, click.Option) and param.name not in ("config", "help")
        for flag in param.opts
    }

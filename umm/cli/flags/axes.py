"""From comma lists to the axes of a design space."""

from typing import Any

from umm.errors import InputError

TEXTS = ("a", "b", "c", "stationary", "policy", "offset", "granularity", "final")
WHOLE = ("prefetch", "max_gemms", "max_accumulates")


def asked_axes(flags: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `umm.Space` that the flags of `axis_options` describe.

    Raises:
        InputError: if a list holds something that is no whole number, or neither on nor none.
    """
    axes = {name: flags[name] for name in TEXTS}
    axes |= {name: [_whole(name, text) for text in flags[name].split(",")] for name in WHOLE}
    axes["reuse"] = [_reuse(text) for text in flags["reuse"].split(",")]
    return axes


def _whole(name: str, text: str) -> int:
    if not text.strip().isdecimal():
        flag = "--" + name.replace("_", "-")
        raise InputError(f"{flag}: {text!r} is not a whole number; write it like 2 or 1,2,4")
    return int(text)


def _reuse(text: str) -> bool:
    if text.strip() not in ("on", "none"):
        raise InputError(f"--reuse {text!r} is unknown; choose from on, none")
    return text.strip() == "on"

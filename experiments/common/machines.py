"""The machines that experiments predict on: the shipped ones, whatever the user has of the same name."""

from functools import cache

import umm
from umm.machines import Machine
from umm.machines.files import shipped_folder


@cache
def shipped(name: str) -> Machine:
    """Return a shipped machine; with ``:tf32`` behind its name in TF32."""
    plain = umm.machine(shipped_folder() / f"{name.removesuffix(':tf32')}.toml")
    return plain.with_tf32() if name.endswith(":tf32") else plain

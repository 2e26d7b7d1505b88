"""Compiles what is in C, for wheels and tests; needs a C compiler and Python's headers."""

import shlex
import subprocess
import sysconfig
from pathlib import Path

SOURCES = (
    "umm_sim/_player.c",
    "umm/algorithms/universal/_plan.c",
    "umm/schedules/table/_accesses.c",
    "umm/traces/_path.c",
)
# Contracted, a product and a sum round once, and makespans differ from the reference's in the last bit.
FLAGS = ("-O3", "-fPIC", "-ffp-contract=off")


def build(source: Path, folder: Path) -> Path:
    """Compile a source into a folder and return the path of the module.

    Raises:
        OSError: if there is no compiler, or none is known for this platform.
        subprocess.CalledProcessError: if it fails, as without Python's headers.
    """
    made = folder / f"{source.stem}.abi3.so"
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if not linker:
        raise OSError("this Python does not say how to link a library")
    include = sysconfig.get_paths()["include"]
    subprocess.run([*linker, *FLAGS, f"-I{include}", str(source), "-o", str(made)], check=True)
    return made

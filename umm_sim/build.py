"""Compiles the player in C, for wheels and tests; needs a C compiler and Python's headers."""

import shlex
import subprocess
import sysconfig
from pathlib import Path

SOURCE = Path(__file__).with_name("_player.c")
# Contracted, a product and a sum round once, and makespans differ from the reference's in the last bit.
FLAGS = ("-O3", "-fPIC", "-ffp-contract=off")


def build(folder: Path) -> Path:
    """Compile the player into a folder and return its path.

    Raises:
        OSError: if there is no compiler.
        subprocess.CalledProcessError: if it fails, as without Python's headers.
    """
    made = folder / "_player.abi3.so"
    linker = shlex.split(sysconfig.get_config_var("LDSHARED"))
    include = sysconfig.get_paths()["include"]
    subprocess.run([*linker, *FLAGS, f"-I{include}", str(SOURCE), "-o", str(made)], check=True)
    return made

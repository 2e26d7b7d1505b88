"""Compiles the C sources, for wheels, editable installs and tests; needs a C compiler and Python's headers.

``python -m umm_sim.build`` compiles beside the sources whatever is older than its source.
"""

import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = (
    "umm_sim/_player.c",
    "umm/plans/multiply/_plan.c",
    "umm/schedules/_bound.c",
    "umm/schedules/table/_accesses.c",
    "umm/traces/_path.c",
    "umm/space/bounds/_spans.c",
)
# Contracted, a product and a sum round once, and makespans differ from the reference's in the last bit.
FLAGS = ("-O3", "-fPIC", "-ffp-contract=off")


def build(source: Path, folder: Path) -> Path:
    """Compile a source into a folder and return the path of the module.

    Raises:
        OSError: if there is no compiler, or none is known for this platform.
        subprocess.CalledProcessError: if it fails, as without Python's headers.
    """
    made = folder / library(source).name
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "")
    if not linker:
        raise OSError("this Python does not say how to link a library")
    include = sysconfig.get_paths()["include"]
    subprocess.run([*linker, *FLAGS, f"-I{include}", str(source), "-o", str(made)], check=True)
    return made


def library(source: Path) -> Path:
    """Return where a source's module is in an installed package, which is beside it."""
    return source.with_suffix(".abi3.so")


def build_in_place(root: Path) -> None:
    """Compile beside its source in a tree whatever is missing there or older.

    Raises:
        OSError: see :func:`build`; also if nothing may be written there.
        subprocess.CalledProcessError: see :func:`build`.
    """
    for source in (root / x for x in SOURCES):
        made = library(source)
        if made.exists() and made.stat().st_mtime >= source.stat().st_mtime:
            continue
        with tempfile.TemporaryDirectory() as folder:
            built = build(source, Path(folder))
            made.unlink(missing_ok=True)  # written over, it would change under who has it loaded
            shutil.move(built, made)


if __name__ == "__main__":
    try:
        build_in_place(Path(__file__).parents[1])
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"not compiled, the simulator runs in Python: {error}", file=sys.stderr)

"""Compiles the inner loops, which are in C, for wheels, editable installs and tests.

``python -m umm_sim.build`` compiles beside the sources whatever is older than its source. Setuptools knows
each system's compiler and Python's headers.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

SOURCES = (
    "umm_sim/_player.c",
    "umm/plans/multiply/_plan.c",
    "umm/schedules/_bound.c",
    "umm/schedules/table/_accesses.c",
    "umm/traces/_path.c",
)
ROOT = Path(__file__).resolve().parents[1]
HEADER = ROOT / "umm" / "arrays.h"  # included by all of them
# Contracted, a product and a sum round once, and makespans differ from the reference's in the last bit.
# Microsoft's compiler contracts none by default.
FLAGS = () if sys.platform == "win32" else ("-O3", "-ffp-contract=off")
LIBRARY = ".pyd" if sys.platform == "win32" else ".abi3.so"
MISSING = (
    "umm's inner loops are in C, and cannot be compiled here: {error}. Install a C compiler and Python's "
    "headers (Debian: apt-get install gcc python3-dev; Fedora: dnf install gcc python3-devel; macOS: "
    "xcode-select --install; Windows: Build Tools for Visual Studio), or a wheel, which has them compiled"
)


class CompilerError(Exception):
    """There is no compiler, or it failed; one line names the package to install."""


def build(source: Path, folder: Path) -> Path:
    """Compile a source into a folder and return the path of the module.

    CompilerError if there is no compiler, or it fails, as without Python's headers.
    """
    from setuptools import Distribution, Extension
    from setuptools.command.build_ext import build_ext
    from setuptools.errors import BaseError, CompileError, LinkError

    extension = Extension(
        source.stem, [str(source)], [str(ROOT)], extra_compile_args=list(FLAGS), py_limited_api=True
    )  # one library for every Python from 3.11 on
    command = build_ext(Distribution({"name": "umm", "ext_modules": [extension]}))
    try:
        with TemporaryDirectory(prefix="umm-build-") as temporary:
            command.build_lib, command.build_temp, command.force = str(folder), temporary, True
            command.ensure_finalized()
            command.run()
    except (BaseError, CompileError, LinkError, OSError) as error:
        raise CompilerError(MISSING.format(error=error)) from error
    return folder / f"{source.stem}{LIBRARY}"


def library(source: Path) -> Path:
    """Return where a source's module is in an installed package, which is beside it."""
    return source.with_suffix(LIBRARY)


def build_in_place(root: Path) -> None:
    """Compile beside its source in a tree whatever is missing there or older.

    CompilerError if see :func:`build`.
    """
    for source in (root / x for x in SOURCES):
        made = library(source)
        newest = max(x.stat().st_mtime for x in (source, HEADER))
        if made.exists() and made.stat().st_mtime >= newest:
            continue
        # In the folder itself, so that it can take the place of one that somebody has loaded: written over,
        # that would change under them.
        with TemporaryDirectory(prefix=".build-", dir=source.parent) as folder:
            build(source, Path(folder)).replace(made)


if __name__ == "__main__":
    try:
        build_in_place(ROOT)
    except CompilerError as error:
        sys.exit(str(error))

"""What is compiled from C: as installed, or built from its source for the test."""

import shutil
import sysconfig
import tempfile
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

from umm_sim.build import SOURCES, build, library

ROOT = Path(__file__).resolve().parents[2]


@lru_cache
def compiled(name):
    """The module of a source by its name, such as ``_player``; skips the test where it cannot be built."""
    source = next(x for x in SOURCES if Path(x).stem == name)
    made = library(ROOT / source)
    if not (made.exists() and made.stat().st_mtime < (ROOT / source).stat().st_mtime):
        with suppress(ImportError):
            return import_module(source.removesuffix(".c").replace("/", "."))
    if not (shutil.which("cc") and Path(sysconfig.get_paths()["include"], "Python.h").exists()):
        pytest.skip("needs a C compiler and Python's headers")
    with tempfile.TemporaryDirectory() as folder:
        spec = spec_from_file_location(name, build(ROOT / source, Path(folder)))
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


def text_of(name):
    """The source itself."""
    return (ROOT / next(x for x in SOURCES if Path(x).stem == name)).read_text(encoding="utf-8")

"""Compiles the inner loops, which are in C, into a wheel or beside their sources: docs/decisions/0038."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class Compiled(BuildHookInterface):  # type: ignore[misc]
    """Compiles the sources in C; one wheel serves every Python from 3.11 on."""

    folder: tempfile.TemporaryDirectory[str]
    """Where the libraries are until the wheel has them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries to a wheel, and its platform; an editable one has them in place."""
        sys.path.insert(0, self.root)
        from umm_sim.build import SOURCES, CompilerError, build, build_in_place, library

        try:
            if version == "editable":
                build_in_place(Path(self.root))
                return
            self.folder = tempfile.TemporaryDirectory(prefix="umm-build-")
            made = [build(Path(self.root, source), Path(self.folder.name)) for source in SOURCES]
        except CompilerError as error:
            self.app.abort(str(error))
        for source, built in zip(SOURCES, made, strict=True):
            build_data["force_include"][str(built)] = str(library(Path(source)))
        platform = next(
            x.platform for x in sys_tags() if "linux_" not in x.platform or x.platform[:6] == "linux_"
        )
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the libraries, which are in the wheel."""
        if hasattr(self, "folder"):
            self.folder.cleanup()

"""Puts what is compiled from C into a wheel where HATCH_BUILD_HOOK_ENABLE_CUSTOM=1: docs/decisions/0026."""

import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class Compiled(BuildHookInterface):  # type: ignore[misc]
    """Compiles the sources in C; one wheel serves every Python from 3.11 on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the wheel and say for which platform it is."""
        sys.path.insert(0, self.root)
        from umm_sim.build import SOURCES, build

        for source in SOURCES:
            made = build(Path(self.root, source), Path(tempfile.mkdtemp()))
            build_data["force_include"][str(made)] = str(Path(source).with_name(made.name))
        platform = next(
            x.platform for x in sys_tags() if "linux_" not in x.platform or x.platform[:6] == "linux_"
        )
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False

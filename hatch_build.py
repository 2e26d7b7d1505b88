"""Puts what is compiled from C into a wheel where there is a C compiler: docs/decisions/0026.

HATCH_BUILD_HOOK_ENABLE_CUSTOM=1 fails without one, HATCH_BUILD_NO_HOOKS=1 leaves it out.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import sys_tags


class Compiled(BuildHookInterface):  # type: ignore[misc]
    """Compiles the sources in C; one wheel serves every Python from 3.11 on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the library to the wheel and say for which platform it is; an editable one stays without."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        from umm_sim.build import SOURCES, build

        try:
            made = [build(Path(self.root, source), Path(tempfile.mkdtemp())) for source in SOURCES]
        except (OSError, subprocess.CalledProcessError) as error:
            if os.environ.get("HATCH_BUILD_HOOK_ENABLE_CUSTOM"):
                raise
            self.app.display_warning(f"nothing is compiled, Python runs in its place: {error}")
            return
        for source, library in zip(SOURCES, made, strict=True):
            build_data["force_include"][str(library)] = str(Path(source).with_name(library.name))
        platform = next(
            x.platform for x in sys_tags() if "linux_" not in x.platform or x.platform[:6] == "linux_"
        )
        build_data["tag"] = f"cp311-abi3-{platform}"
        build_data["pure_python"] = False

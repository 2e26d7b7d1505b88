"""``python -m experiments`` lists the experiments; ``python -m experiments universal`` runs one."""

import importlib
import runpy
import sys
from pathlib import Path


def main() -> None:
    """List the folders here that can be run, or run one; further arguments are the experiment's own."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/__main__.py"))
    if len(sys.argv) < 2:
        for name in names:
            about = importlib.import_module(f"experiments.{name}").__doc__ or ""
            print(f"{name:12} {about.strip().splitlines()[0] if about else ''}")
        return
    name = sys.argv.pop(1)
    if name not in names:
        sys.exit(f"error: there is no experiment {name!r}; choose from {', '.join(names)}")
    runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)


main()

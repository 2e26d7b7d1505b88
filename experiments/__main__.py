"""``python -m experiments`` lists the experiments, ``python -m experiments universal`` runs one."""

import argparse
import difflib
import importlib
import runpy
import sys
from pathlib import Path

from experiments.common.kept import FULL, SMOKE, StaleError
from experiments.ledger import DOCUMENTS, LEDGER, part, with_part

HERE = Path(__file__).parent


def main() -> int:
    """List the experiments, run documents into the ledger, or run another one with arguments of its own."""
    others = sorted(path.parent.name for path in HERE.glob("*/__main__.py"))
    if len(sys.argv) < 2:
        for name in (*DOCUMENTS, *others):
            about = importlib.import_module(f"experiments.{name}").__doc__ or ""
            print(f"{name:18} {about.strip().splitlines()[0] if about else ''}")
        return 0
    if sys.argv[1] in others:
        name = sys.argv.pop(1)
        runpy.run_module(f"experiments.{name}", run_name="__main__", alter_sys=True)
        return 0
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"{', '.join(DOCUMENTS)}; or {', '.join(others)}"
    )
    parser.add_argument("--all", action="store_true", help="every document")
    parser.add_argument(
        "--size", choices=(SMOKE, FULL), default=FULL,
        help="smoke performs some points, reads the others, and fails where a file is not up to date",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, help="processes of a full run; one a core if not given")
    options = parser.parse_args()
    for name in options.names:
        if name not in DOCUMENTS:
            parser.error(f"there is no experiment {name!r}; choose from {', '.join((*DOCUMENTS, *others))}")
    try:
        return run(DOCUMENTS if options.all else options.names, options.size, options.jobs)
    except StaleError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(names: list[str] | tuple[str, ...], size: str, jobs: int | None) -> int:
    """Run documents and write their parts of the ledger; of a smoke run see that it has them."""
    text = before = LEDGER.read_text(encoding="utf-8")
    for name in names:
        text = with_part(text, name, part(name, size, jobs))
    if size == FULL:
        LEDGER.write_text(text, encoding="utf-8")
        print(f"wrote {LEDGER.name}")
        return 0
    changed = list(
        difflib.unified_diff(before.splitlines(), text.splitlines(), "committed", "now", lineterm="", n=0)
    )
    print("\n".join(changed) or f"{LEDGER.name} is what the code gives now")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())

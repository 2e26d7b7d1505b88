"""``python -m experiments`` lists the experiments, ``python -m experiments universal`` runs one."""

import argparse
import difflib
import importlib
import runpy
import sys
from pathlib import Path

from experiments.common.kept import FULL, SMOKE, StaleError
from experiments.ledger import CLAIMS, DOCUMENTS, LEDGER, csv_of, page, read, rows_of, with_part, with_rows

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
    """Run documents and write their rows of the ledger; of a smoke run see that it has them."""
    before = {file: file.read_text(encoding="utf-8") for file in (CLAIMS, LEDGER)}
    rows = read(before[CLAIMS])
    for name in names:
        rows = with_rows(rows, name, rows_of(name, size, jobs))
    now = {CLAIMS: csv_of(rows), LEDGER: with_part(before[LEDGER], "claims", page(rows))}
    changed = list[str]()
    for file, text in now.items():
        if size == FULL:
            file.write_text(text, encoding="utf-8")
            print(f"wrote {file.name}")
            continue
        lines = before[file].splitlines(), text.splitlines()
        differing = list(difflib.unified_diff(*lines, "committed", "now", lineterm="", n=0))
        print("\n".join(differing) or f"{file.name} is what the code gives now")
        changed += differing
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())

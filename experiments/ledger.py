"""The ledger of all documents: a part for each, between marks, written by running it."""

import importlib
from pathlib import Path

from experiments.common.ledger import table

LEDGER = Path(__file__).parent / "LEDGER.md"
DOCUMENTS = ("universal", "summa25", "collective_matmul", "dtensor_report", "scaling_book", "truth")


def part(name: str, size: str, jobs: int | None = None) -> str:
    """Run a document and return its part of the ledger.

    Args:
        name: The document.
        size: ``full`` or ``smoke``.
        jobs: Processes of a full run.

    Raises:
        StaleError: if a smoke run finds that a committed file is not up to date.
    """
    sections = importlib.import_module(f"experiments.{name}.run").run(size, jobs)
    return "\n".join(f"## {heading}\n\n{table(entries)}" for heading, entries in sections.items())


def with_part(text: str, name: str, result: str) -> str:
    """Return the ledger with the part of a document in place of the one it has."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(start)
    return f"{before}{start}\n{result}{end}{rest.split(end)[1]}"

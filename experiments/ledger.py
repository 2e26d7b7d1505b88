"""The ledger of all documents: a CSV file with a row for each claim, and a page that sums it up."""

import csv
import importlib
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from experiments.common.ledger import INPUT, NOT_REPRODUCED, REFUTED, REPRODUCED, Entry

LEDGER = Path(__file__).parent / "LEDGER.md"
CLAIMS = Path(__file__).parent / "ledger.csv"
DOCUMENTS = ("universal", "summa25", "collective_matmul", "dtensor_report", "scaling_book", "truth")
COLUMNS = ("document", "part", "claim", "source", "here", "verdict", "why", "decided by", "reproduce")
VERDICTS = (REPRODUCED, NOT_REPRODUCED, REFUTED, INPUT)
Row = dict[str, str]


def rows_of(name: str, size: str, jobs: int | None = None) -> list[Row]:
    """Run a document and return its rows of the ledger.

    Args:
        name: The document.
        size: ``full`` or ``smoke``.
        jobs: Processes of a full run.

    Raises:
        StaleError: if a smoke run finds that a committed file is not up to date.
    """
    sections = importlib.import_module(f"experiments.{name}.run").run(size, jobs)
    return [_row(name, heading, x) for heading, entries in sections.items() for x in entries]


def _row(name: str, heading: str, entry: Entry) -> Row:
    verdict, _, why = entry.verdict.partition(": ")
    reproduce = f"python -m experiments {name}"
    cells = (name, heading, entry.claim, entry.where, entry.got, verdict, why, entry.hangs_on, reproduce)
    return dict(zip(COLUMNS, cells, strict=True))


def read(text: str) -> list[Row]:
    """Return the rows of a CSV file's text."""
    return list(csv.DictReader(io.StringIO(text, newline="")))


def csv_of(rows: Sequence[Row]) -> str:
    """Return rows as the text of a CSV file."""
    out = io.StringIO()
    writer = csv.DictWriter(out, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def with_rows(rows: Sequence[Row], name: str, those: Sequence[Row]) -> list[Row]:
    """Return the rows of all documents, those of one replaced."""
    by_document = {x: [row for row in rows if row["document"] == x] for x in DOCUMENTS}
    by_document[name] = [*those]
    return [row for x in DOCUMENTS for row in by_document[x]]


def page(rows: Sequence[Row]) -> str:
    """Return the verdicts counted by document, and the claims that do not hold."""
    return "\n".join([*_counts(rows), *_disagreements(rows)]) + "\n"


def _counts(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table of verdicts by document."""
    yield f"| document | {' | '.join(VERDICTS)} |"
    yield "|---|" + "--:|" * len(VERDICTS)
    counted = {name: Counter(_kind(x) for x in rows if x["document"] == name) for name in DOCUMENTS}
    for name, counts in counted.items():
        yield f"| [{name}]({name}/README.md) | {_cells(counts)} |"
    yield f"| all | {_cells(sum(counted.values(), Counter()))} |"


def _disagreements(rows: Sequence[Row]) -> Iterator[str]:
    """Yield a table for each document of its claims that are not reproduced or refuted."""
    for name in DOCUMENTS:
        those = [x for x in rows if x["document"] == name and _kind(x) in (NOT_REPRODUCED, REFUTED)]
        if those:
            yield f"\n## {name}: claims that do not hold here\n"
            yield "| claim, where | here | verdict |"
            yield "|---|---|---|"
        for row in those:
            cells = f"{row['claim']} ({row['source']})", row["here"], f"{row['verdict']}: {row['why']}"
            yield "| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |"


def _cells(counts: Counter[str]) -> str:
    return " | ".join(str(counts[x] or "") for x in VERDICTS)


def _kind(row: Row) -> str:
    """Return the verdict without the groups of ranks that it is of."""
    return next(x for x in VERDICTS if row["verdict"].startswith(x))


def with_part(text: str, name: str, result: str) -> str:
    """Return a page with a part between marks replaced."""
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    before, rest = text.split(start)
    return f"{before}{start}\n{result}{end}{rest.split(end)[1]}"

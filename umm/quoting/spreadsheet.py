"""Text of anybody in a CSV file: a cell, and no formula."""

import re

_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def csv_cell(text: str) -> str:
    """Return a text as a cell of a CSV file that no spreadsheet takes for a formula.

    >>> csv_cell("=1+1"), csv_cell("row@2")
    ("'=1+1", 'row@2')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def of_csv_cell(cell: str) -> str:
    """Return the text that :func:`csv_cell` made a cell of."""
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell

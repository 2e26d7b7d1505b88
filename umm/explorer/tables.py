"""Tables of the page: rows of cells below their headings."""

from collections.abc import Iterable
from typing import Any


def table(headings: Iterable[str], rows: list[Any], look: str) -> Any:
    """Return rows below their headings.

    Args:
        headings: Of the columns.
        rows: As Dash has them.
        look: The class of the table, by which the page's style knows it.
    """
    from dash import html

    head = html.Thead(html.Tr([html.Th(x, scope="col") for x in headings]))
    return html.Table([head, html.Tbody(rows)], className=look)

"""The numbers of documents: ``published.toml`` of each, tables that name where they stand."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1]


@cache
def published(document: str) -> dict[str, Any]:
    """Return the numbers of a document, tables by name; each has ``where``, the place in the document."""
    return tomllib.loads((FOLDER / document / "published.toml").read_text(encoding="utf-8"))

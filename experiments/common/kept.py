"""Committed files: a full run writes them, a smoke run compares them with its results."""

from pathlib import Path

from umm.files import whole_file

ROOT = Path(__file__).parents[2]
SMOKE, FULL = "smoke", "full"


class StaleError(Exception):
    """A committed file does not equal the code's result now."""


def keep(file: Path, text: str, size: str) -> None:
    """Write a file; of a smoke run see that it has this text.

    Raises:
        StaleError: if it has not.
    """
    if size == FULL:
        # A smoke run may read it meanwhile.
        with whole_file(file) as partial:
            partial.write_text(text, encoding="utf-8")
    elif not file.exists() or file.read_text(encoding="utf-8") != text:
        raise stale(file)


def stale(file: Path, why: str = "") -> StaleError:
    """Return the error of a file that is not up to date."""
    result = f"{file.name} is not what the code gives now{why and ': '}{why}"
    return StaleError(
        f"{result}; run python -m experiments {file.parent.name}, look at what changes, commit it"
    )

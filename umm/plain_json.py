"""Read JSON that somebody else wrote: whatever is wrong with it, one clear line."""

import json
from typing import Any

from umm.errors import InputError


def parse_json(text: str, what: str) -> Any:
    """Return what a JSON text holds.

    Args:
        text: The text.
        what: What it should be, for the message: ``schedule``, ``trace``.

    Raises:
        InputError: if the text is not JSON, or nests or counts beyond reason.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"not a {what}: the JSON ends or breaks at line {error.lineno} ({error.msg})"
        ) from None
    except (RecursionError, ValueError):
        raise InputError(f"not a {what}: the JSON nests too deep or has a number too long") from None

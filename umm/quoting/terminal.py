"""Text of anybody on a terminal: it is shown, and moves or hides nothing."""

import json
import re
from typing import Any

from umm.errors import InputError

_UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return a text with control characters written as escapes; line ends stay.

    >>> visible("red: \x1b[31m, left: \u202e")
    'red: \\x1b[31m, left: \\u202e'
    """
    return _UNSEEN.sub(lambda match: repr(match[0])[1:-1], text)


def line(text: str) -> str:
    r"""Return a text as one line: of a name or a source that could look like lines of ours.

    >>> line("a source\n\terror: \x1b[31m")
    'a source error: \\x1b[31m'
    """
    return visible(" ".join(text.split())) if not text.isprintable() else text


def in_lines(value: Any) -> Any:
    r"""Return a file's value with every text and key in it as one line.

    InputError if it nests deeper than Python's own limit on calls, which a parser in C reaches later.

    >>> in_lines({"source": "table 2\nof a paper", "value": [1, "a\x07"]})
    {'source': 'table 2 of a paper', 'value': [1, 'a\\x07']}
    """
    try:
        return _in_lines(value)
    except RecursionError:
        raise InputError("the file nests too deep") from None


def _in_lines(value: Any) -> Any:
    if isinstance(value, dict):
        return {line(key): _in_lines(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_lines(item) for item in value]
    return line(value) if isinstance(value, str) else value


def json_line(value: Any) -> str:
    r"""Return a value as JSON in one line that a terminal only shows; ``Infinity`` and NaN are refused.

    >>> print(json_line({"µ": "\x9b"}))
    {"µ": "\u009b"}
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)

"""Text of anybody in a Python program: a literal, or words of a docstring."""

import re
from collections.abc import Mapping

from umm.quoting.terminal import visible

_PLACE = re.compile(r"<([a-z_0-9]+)>")


def literal(text: str) -> str:
    r"""Return an expression in ASCII whose value is a text.

    >>> literal('m\n"µ')
    '\'m\\n"\\xb5\''
    """
    return ascii(text)


def docstring(text: str) -> str:
    r'''Return the text between the double quotes of a docstring of this text, its unseen parts visible.

    >>> print(docstring('a folder C:\\new and """ "'))
    a folder C:\\new and \"\"\" \"
    '''
    quoted = visible(text).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return f'{quoted[:-1]}\\"' if quoted.endswith('"') else quoted


def filled(template: str, texts: Mapping[str, object]) -> str:
    """Return a template with each ``<name>`` replaced; a text that has such a place itself keeps it.

    >>> filled("<a> + <b>", {"a": "<b>", "b": 2})
    '<b> + 2'
    """
    return _PLACE.sub(lambda place: str(texts[place[1]]), template)

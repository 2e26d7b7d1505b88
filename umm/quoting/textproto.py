"""Text of anybody in the text form of a protocol buffer."""


def string(text: str) -> str:
    r"""Return a string literal: ASCII as it is, all else and quotes as octal bytes of UTF-8.

    >>> print(string('sm_90" } µ'))
    "sm_90\042 } \302\265"
    """
    plain = {*range(32, 127)} - {*b"\"'\\"}
    coded = text.encode("utf-8", "replace")
    return '"' + "".join(chr(x) if x in plain else f"\\{x:03o}" for x in coded) + '"'

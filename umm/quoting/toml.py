"""Values of anybody in a TOML file."""

from typing import Any


def toml_value(item: Any) -> str:
    r"""Return a text, number, switch, or a list or table of these, as TOML writes it in one line.

    >>> print(toml_value(["a\"b", "line\nend", 2.5, True, {"a b": 1}]))
    ["a\"b", "line\nend", 2.5, true, {"a b" = 1}]
    """
    import tomlkit  # which takes 30 ms

    if isinstance(item, dict):
        table = tomlkit.inline_table()
        table.update(item)
        written: str = table.as_string()
        return written
    return str(tomlkit.item(item).as_string())


def toml_key(name: str) -> str:
    """Return the key of a table, in quotes unless it is a bare one.

    >>> toml_key("heads"), toml_key("a b")
    ('heads', '"a b"')
    """
    import tomlkit

    return tomlkit.key(name).as_string()

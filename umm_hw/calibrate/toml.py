"""Machine files as text: each number an inline table with its source, each efficiency a grid by shape."""

from collections.abc import Mapping, Sequence
from typing import Any

import tomlkit
from tomlkit.items import Array, InlineTable

Grid = Sequence[Sequence[Sequence[float]]]


def number(
    value: str | float,
    source: str,
    per: str = "",
    uncertainty: float | None = None,
    assumed: bool = False,
) -> InlineTable:
    """Return a number with its source, as an inline table.

    Args:
        value: With its unit, as text, if it has one.
        per: Its unit of counting, such as ``core, one direction``.
        uncertainty: As a share of it.
        assumed: Whether nothing but judgement stands behind it.

    >>> number("3 us", "the quickest GEMM", uncertainty=0.1).as_string()
    '{value = "3 us", source = "the quickest GEMM", uncertainty = 0.1}'
    """
    table = tomlkit.inline_table()
    table.update({"value": value, "source": source})
    if per:
        table["per"] = per
    if uncertainty is not None:
        table["uncertainty"] = uncertainty
    if assumed:
        table["assumed"] = True
    return table


def efficiency(
    dtype: str, source: str, axes: Sequence[Sequence[int]], shares: Grid, uncertainty: float | None = None
) -> dict[str, Any]:
    """Return the shares of the peak that multiplies of one type reach.

    Args:
        dtype: The type.
        source: What measured them.
        axes: The values that m, n and k took.
        shares: For each m, n and k.
        uncertainty: As a share of them.
    """
    table: dict[str, Any] = {"dtype": dtype, "source": source}
    if uncertainty is not None:
        table["uncertainty"] = uncertainty
    planes: Array = tomlkit.item(shares).multiline(True)  # a line for each m
    return table | dict(zip("mnk", axes, strict=True)) | {"value": planes}


def text(machine: Mapping[str, Any]) -> str:
    """Return a machine file from its sections."""
    return tomlkit.dumps({"schema": 1, **machine})

"""Tiles that a library takes by rules of its source, which rows, columns and k of a multiply decide."""

import re
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from umm.arrays import Bools, Floats, Ints
from umm.errors import MachineError
from umm.files import shown
from umm.machines.declaring import BeforeValidator, Field, Table
from umm.machines.quantities import Positive
from umm.numbers import parse_whole


def tile_of(text: Any) -> Any:
    """Return rows and columns of a tile that is written like ``128x256``."""
    if not isinstance(text, str) or not re.fullmatch(r"[1-9][0-9]{0,3}x[1-9][0-9]{0,3}", text):
        raise ValueError(f"{shown(text)} is not a tile; write rows and columns like 128x256")
    rows, cols = text.split("x")
    return parse_whole(rows), parse_whole(cols)


def frozen(values: Any) -> Any:
    """Return a list of a file as a tuple, so that kernels can be keys of a cache."""
    return tuple(values) if isinstance(values, list) else values


class Rule(Table):
    """A tile, and the shapes that it is for where no rule before holds."""

    tile: Annotated[tuple[Positive, Positive], BeforeValidator(tile_of)]
    rows: Positive | None = None  # of C up to which it is taken; None for any.
    cols: Positive | None = None  # the same of columns
    least_rows: Positive | None = None  # of C from which it is taken
    least_k: Positive | None = None  # the same of k

    @property
    def always(self) -> bool:
        """Whether it holds for all shapes."""
        return not (self.rows or self.cols or self.least_rows or self.least_k)

    def holds(self, m: Floats, n: Floats, k: Floats) -> Bools:
        """Return for which shapes it holds."""
        applies = np.ones(m.shape, dtype=bool)
        for size, most in ((m, self.rows), (n, self.cols)):
            if most:
                applies &= size <= most
        for size, least in ((m, self.least_rows), (k, self.least_k)):
            if least:
                applies &= size >= least
        return applies


Rules = Annotated[tuple[Rule, ...], BeforeValidator(frozen), Field(min_length=1)]


def ruled(rules: Sequence[Rule], tiles: Sequence[tuple[int, int]], m: Floats, n: Floats, k: Floats) -> Ints:
    """Return the place among tiles of the one that the first rule which holds takes, for each shape.

    >>> rules = [Rule(tile="16x64", rows=16), Rule(tile="128x128")]
    >>> m = np.array([16.0, 17.0])
    >>> ruled(rules, [(16, 64), (128, 128)], m, m, m).tolist()
    [0, 1]
    """
    places = np.full(m.shape, tiles.index(rules[-1].tile))
    for rule in reversed(rules):
        places = np.where(rule.holds(m, n, k), tiles.index(rule.tile), places)
    return places


def checked(rules: Sequence[Rule], tiles: Sequence[tuple[int, int]]) -> None:
    """Raise MachineError if a rule's tile is not among those of the kernels, or a shape has no rule."""
    if rules and not rules[-1].always:
        raise MachineError("the last of rules has to hold for all shapes; add one that states its tile alone")
    for rule in rules:
        if rule.tile not in tiles:
            rows, cols = rule.tile
            raise MachineError(f"rules take a tile of {rows}x{cols}, which is not among tiles; add it there")

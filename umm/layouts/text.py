"""The text form of a layout, as people type it and as files and links carry it.

A partition, then maybe ``@`` and where replicas and places lie among the ranks::

    row   col   2d   2d:3x4   cyclic:256x128:3x4   edges:0-3-8x0-5-9:1x2   then :balanced, :colmajor
    zigzag   zigzag:4   (rows front and back of each of 4 sequences to one rank)
    @2   @2:interleaved   @2x2x2:r-c   @2:0-3-1-2
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.edges import RULES, square_grid, tile_edges, zigzag_edges
from umm.layouts.places import ORDERS, USES, mesh_sizes, replication_factors
from umm.numbers import parse_whole

FORMS = "row, col, 2d, 2d:3x4, zigzag, cyclic:256x128:3x4 or edges:0-3-8x0-5-9:1x2"
FLAGS = ("balanced", "colmajor")
_SIZES = re.compile(r"[0-9]{1,9}(x[0-9]{1,9})*")
_RANKS = re.compile(r"[0-9]{1,9}(-[0-9]{1,9})*")
_WHOLE = {  # words: least, most
    "row": (1, 1), "col": (1, 1), "zigzag": (1, 2), "2d": (1, 2), "cyclic": (2, 3), "edges": (2, 3)
}  # fmt: skip
_LONG_EDGES = re.compile(r"edges:(?=(?:\d+[-x]){8})[\d-]+x[\d-]+(?::(\d+x\d+)|(?=@))")
_LONG_RANKS = re.compile(r"@(\d+):(?:\d+-){8,}\d+")


def brief(text: str) -> str:
    """Return the text of a layout for people: more than eight edges as their grid, so many ranks as a word.

    >>> brief("edges:0-9-12-20-31-40-50-60-64x0-32:8x1"), brief("edges:0-3-8x0-5-9:1x2")
    ('edges 8x1', 'edges:0-3-8x0-5-9:1x2')
    >>> brief("edges:0-9-12-20-31-40-50-60-64x0-32@4x8:-r")
    'edges@4x8:-r'
    >>> brief("2d:2x4@2:0-2-1-3-4-6-5-7-8-10-9-11-12-14-13-15")
    '2d:2x4@2 (ranks permuted)'
    """
    text = _LONG_EDGES.sub(lambda x: f"edges {x[1]}" if x[1] else "edges", text)
    return _LONG_RANKS.sub(lambda x: f"{f'@{x[1]}' * (x[1] != '1')} (ranks permuted)", text)


@dataclass(frozen=True)
class Where:
    """The part after ``@``: the place of replicas and of their process grids among the ranks."""

    replicas: int = 1  # number of replicas
    order: str = "blocked"  # how they share the ranks: `blocked` or `interleaved`
    # Lengths of the axes of the mesh that ranks are counted along, if the text has one.
    mesh: tuple[int, ...] = ()
    axes: str = ""  # use of each of these axes; see `umm.layouts.places.on_mesh`
    # The ranks, replica after replica and along the rows of its process grid, if they are listed.
    ranks: tuple[int, ...] = ()

    def __str__(self) -> str:
        if self.mesh:
            return f"@{_times(self.mesh)}:{self.axes}"
        if self.ranks:
            return f"@{self.replicas}:{'-'.join(map(str, self.ranks))}"
        if self.order != "blocked":
            return f"@{self.replicas}:{self.order}"
        return f"@{self.replicas}" if self.replicas > 1 else ""


@dataclass(frozen=True)
class Form:
    """A parsed text, before the shape and the number of ranks are known; ``str`` is the text again."""

    rule: str  # how the matrix is cut: `row`, `col`, `zigzag`, `2d`, `cyclic` or `edges`
    grid: tuple[int, int] | None = None  # the process grid, if the text has one
    tile_shape: tuple[int, int] | None = None  # of `cyclic`
    # Of `edges`: those of the rows, those of the columns.
    edges: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    sequences: int = 1  # of `zigzag`: equal parts of the rows that are each cut so
    balanced: bool = False  # whether parts differ by one at most, instead of all being as large as the first
    colmajor: bool = False  # whether ranks go down the columns of the process grid
    where: Where = Where()  # the part after `@`

    def __str__(self) -> str:
        words = [self.rule]
        if self.tile_shape:
            words.append(_times(self.tile_shape))
        if self.edges:
            words.append("x".join("-".join(map(str, edges)) for edges in self.edges))
        if self.sequences > 1:
            words.append(str(self.sequences))
        if self.grid:
            words.append(_times(self.grid))
        words += [flag for flag in FLAGS if getattr(self, flag)]
        return ":".join(words) + str(self.where)

    def process_grid(self, places: int) -> tuple[int, int]:
        """Return the process grid of a replica that has so many places.

        LayoutError if it has more or fewer of them, or the axes of the mesh make another one.
        """
        grid = self.grid or {"row": (places, 1), "zigzag": (places, 1), "col": (1, places)}.get(self.rule)
        if self.where.mesh:
            _, *made = mesh_sizes(self.where.mesh, self.where.axes)
            if grid is not None and grid != (made[0], made[1]) and self.rule != "zigzag":
                raise LayoutError(
                    f"{self}: the axes of the mesh make a process grid of {_times(made)}, "
                    f"but the layout has one of {_times(grid)}"
                )
            return made[0], made[1]
        grid = grid or square_grid(places)
        if prod(grid) != places:
            replicas = self.where.replicas
            shared = f" ({places * replicas} ranks / {replicas} replicas)" if replicas > 1 else ""
            grids = ", ".join(f"{rows}x{places // rows}" for rows in replication_factors(places))
            raise LayoutError(
                f"{self}: process grid {_times(grid)} has {prod(grid)} places, but a replica has "
                f"{places} ranks{shared}; choose from {grids}"
            )
        return grid

    def unshared(self, shape: tuple[int, int], process_grid: tuple[int, int]) -> "Form":
        """Return ``row`` or ``2d`` in place of a zigzag whose places have whole sequences; else itself."""
        if self.rule != "zigzag" or self.sequences % process_grid[0] or shape[0] % self.sequences:
            return self
        return replace(self, rule="row" if process_grid[1] == 1 else "2d", sequences=1)

    def cut(self, shape: tuple[int, int], process_grid: tuple[int, int]) -> tuple[Ints, Ints]:
        """Return the row edges and the column edges of a matrix of this shape on this process grid."""
        if self.edges:
            return np.array(self.edges[0]), np.array(self.edges[1])
        if self.tile_shape:
            return tile_edges(shape[0], self.tile_shape[0]), tile_edges(shape[1], self.tile_shape[1])
        if self.rule == "zigzag":
            rows = zigzag_edges(shape[0], process_grid[0], self.sequences)
            return rows, RULES["ceil"](shape[1], process_grid[1])
        rule = RULES["balanced" if self.balanced else "ceil"]
        return rule(shape[0], process_grid[0]), rule(shape[1], process_grid[1])


def read_form(text: str) -> Form:
    """Parse a text form; LayoutError if it is not one.

    >>> read_form("cyclic:4x2:3x2@2").tile_shape, str(read_form("2d:3x4:colmajor@1"))
    ((4, 2), '2d:3x4:colmajor')
    >>> read_form("2d@2x2x2:r-c").where.replicas
    2
    """
    partition, at, rest = text.strip().partition("@")
    words, flags = partition.split(":"), set[str]()
    while len(words) > 1 and words[-1] in FLAGS and words[-1] not in flags:
        flags.add(words.pop())
    where = _read_where(rest, text) if at else Where()
    rule = words[0]
    least, most = _WHOLE.get(rule, (0, -1))
    has_grid = len(words) == most > 1 and rule != "zigzag"
    if rule in ("cyclic", "edges") and len(words) == most - 1 and not where.mesh:
        raise LayoutError(
            f"{text} lacks its process grid; write how many rows and columns of ranks a replica has, "
            f"as in {':'.join(words)}:2x4"
        )
    if not least <= len(words) <= most or not (has_grid or least == 1 or where.mesh):
        raise _not_a_layout(text)
    if flags & {"balanced"} and (least > 1 or rule == "zigzag"):
        raise LayoutError(f"{text}: balanced belongs to row, col and 2d; {rule} says its tile sizes itself")
    sequences = _number(words[1], text) if rule == "zigzag" and len(words) == 2 else 1
    if not 1 <= sequences <= 2**20:
        raise LayoutError(f"{text}: zigzag needs how many sequences there are, as in zigzag:4")
    if "colmajor" in flags and (where.mesh or where.ranks):
        raise LayoutError(f"{text}: what follows @ says already where the places lie; leave out colmajor")
    return Form(
        rule,
        _pair(words[-1], text) if has_grid else None,
        _pair(words[1], text) if rule == "cyclic" else None,
        _edges(words[1], text) if rule == "edges" else None,
        sequences,
        "balanced" in flags,
        "colmajor" in flags,
        where,
    )


def scaled_form(text: str, rows: float, cols: float) -> str:
    """Return the text of a layout of a matrix with other sizes, cut alike: tiles and edges with the matrix.

    >>> scaled_form("cyclic:256x128:3x4@2", 1 / 16, 1 / 16), scaled_form("row@8", 0.5, 0.5)
    ('cyclic:16x8:3x4@2', 'row@8')
    """
    form = read_form(text)
    if form.tile_shape is not None:
        height, width = form.tile_shape
        return str(replace(form, tile_shape=(max(1, round(height * rows)), max(1, round(width * cols)))))
    if form.edges is not None:
        of_rows, of_cols = form.edges
        scaled = tuple(round(x * rows) for x in of_rows), tuple(round(x * cols) for x in of_cols)
        return str(replace(form, edges=scaled))
    return text


def _read_where(rest: str, text: str) -> Where:
    sizes, colon, word = rest.partition(":")
    if not _SIZES.fullmatch(sizes) or bool(colon) != bool(word):
        raise _not_a_layout(text)
    mesh = tuple(parse_whole(size) for size in sizes.split("x"))
    if word and not word.strip(USES):
        if len(word) != len(mesh) or min(mesh) < 1:
            raise LayoutError(
                f"{text}: a mesh of {sizes} needs a letter for each axis, not {word!r}: "
                "r cuts rows, c cuts columns, - replicates"
            )
        return Where(mesh_sizes(mesh, word)[0], mesh=mesh, axes=word)
    if len(mesh) > 1:
        raise LayoutError(f"{text}: say what each axis of the mesh {sizes} is for, as in @2x2x2:-rc")
    if _RANKS.fullmatch(word):
        return Where(mesh[0], ranks=tuple(parse_whole(rank) for rank in word.split("-")))
    if word and word not in ORDERS:
        raise LayoutError(f"replicas cannot be ordered {word!r}; choose {' or '.join(ORDERS)}")
    return Where(mesh[0], word or ORDERS[0])


def _not_a_layout(text: str) -> LayoutError:
    if "," in text:
        return LayoutError(
            f"{text!r} is a list; lists are axes of a search or a sweep, and here is one layout: write "
            f"{text.partition(',')[0]}"
        )
    return LayoutError(
        f"{text!r} is not a layout; write {FORMS}, then @c for c replicas, or a framework's own words: "
        "shard(0), dtensor:…, jax:…, scalapack:…, hpf:…"
    )


def _times(sizes: Iterable[int]) -> str:
    return "x".join(map(str, sizes))


def _edges(word: str, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sides = [tuple(_number(edge, text) for edge in side.split("-")) for side in word.split("x")]
    if len(sides) != 2:
        raise LayoutError(f"{text}: edges need row edges x column edges, as in edges:0-3-8x0-5-9:1x2")
    return sides[0], sides[1]


def _number(word: str, text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", word):
        raise LayoutError(f"{text}: {word!r} is not a whole number")
    return parse_whole(word)


def _pair(word: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", word)
    pair = (parse_whole(match[1]), parse_whole(match[2])) if match else (0, 0)
    if min(pair) < 1:
        raise LayoutError(f"{text}: {word!r} is not a pair of sizes like 3x4")
    return pair

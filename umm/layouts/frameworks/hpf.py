"""HPF: ALIGN a matrix with a template, DISTRIBUTE its dimensions over processors, each in a way of its own.

``BLOCK`` parts are ⌈size / processors⌉ long, ``CYCLIC(b)`` deals out tiles of b, ``*`` leaves whole; a matrix
aligned with ``*`` is replicated along that dimension of the template. HPF leaves the order of processors to
the compiler; here the first index counts fastest, as Fortran stores arrays.

Source: High Performance Fortran Language Specification 2.0, sections 3.4 and 3.5.
"""

import re
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.errors import LayoutError
from umm.layouts.edges import ceil_edges, tile_edges
from umm.layouts.frameworks.held import digits, held_by
from umm.layouts.frameworks.mesh import Laid, Parts
from umm.layouts.frameworks.words import edges_text
from umm.numbers import parse_whole

HOW = "hpf:(BLOCK,*), hpf:(CYCLIC(64),BLOCK)onto(2,4) or hpf:align(i,*);distribute(BLOCK,BLOCK)onto(2,4)"
_FORMAT = re.compile(r"\*|BLOCK(\([1-9][0-9]{0,17}\))?|CYCLIC(\([1-9][0-9]{0,17}\))?")


class Dimension(NamedTuple):
    """A dimension of the template."""

    of: str  # the subscript aligned with it: `i` rows, `j` columns, `*` every one
    form: str  # `BLOCK`, `BLOCK(b)`, `CYCLIC(b)` or `*`
    processors: int  # how many it is distributed over; 1 for `*`


@dataclass(frozen=True)
class HpfLayout:
    """ALIGN and DISTRIBUTE; ``str`` is the text that ``--a`` takes."""

    dimensions: tuple[Dimension, ...]  # those of the template, in order

    def __str__(self) -> str:
        align = ",".join(x.of for x in self.dimensions)
        forms = ",".join(x.form for x in self.dimensions)
        onto = ",".join(str(x.processors) for x in self.dimensions if x.form != "*")
        distribute = f"({forms})" + (f"onto({onto})" if onto else "")
        return f"hpf:{distribute}" if align == "i,j" else f"hpf:align({align});distribute{distribute}"

    def directives(self, name: str = "A") -> str:
        """Return the lines of a Fortran program."""
        onto = ",".join(str(x.processors) for x in self.dimensions if x.form != "*")
        align, forms = (",".join(getattr(x, what) for x in self.dimensions) for what in ("of", "form"))
        return (
            f"!HPF$ PROCESSORS P({onto or 1})\n!HPF$ ALIGN {name}(i,j) WITH T({align})\n"
            f"!HPF$ DISTRIBUTE T({forms}) ONTO P"
        )


def read(text: str, shape: tuple[int, int], ranks: int) -> Parts:
    """Parse the text after ``hpf:``; ``onto`` may be left out where one dimension is distributed.

    LayoutError if it means nothing, or not on so many ranks.

    >>> read("(block,*)", (10, 4), 3).row_edges.tolist()
    [0, 4, 8, 10]
    """
    words = re.sub(r"\s", "", text)
    match = re.fullmatch(
        r"(?:align\((?P<align>[ij*](?:,[ij*])*)\);)?(?:distribute)?\((?P<forms>[^;]*?)\)"
        r"(?:onto\((?P<onto>[0-9]{1,9}(?:,[0-9]{1,9})*)\))?",
        words,
        re.IGNORECASE,
    )
    if match is None:
        raise LayoutError(f"{text!r} is no distribution; write {HOW}")
    forms = match["forms"].upper().split(",")
    aligned = (match["align"] or "i,j").lower().split(",")
    if not all(_FORMAT.fullmatch(form) for form in forms) or len(forms) != len(aligned):
        raise LayoutError(
            f"{text!r}: {match['forms']} does not give BLOCK, CYCLIC or * for each of {aligned}"
        )
    if any(aligned.count(letter) > 1 for letter in "ij"):
        raise LayoutError(f"{text!r} aligns a dimension of the matrix twice")
    cut = sum(form != "*" for form in forms)
    onto = [parse_whole(n, "onto") for n in match["onto"].split(",")] if match["onto"] else [ranks] * cut
    if len(onto) != cut or prod(onto) != ranks:
        raise LayoutError(
            f"{text!r} distributes {cut} dimensions, over {prod(onto) if onto else 1} processors; "
            f"say onto(…) with {cut} numbers that make {ranks}"
        )
    left = iter(onto)
    template = [
        Dimension(letter, x, 1 if x == "*" else next(left)) for letter, x in zip(aligned, forms, strict=True)
    ]
    return parts(template, shape)


def parts(template: list[Dimension], shape: tuple[int, int]) -> Parts:
    """Return how a matrix lies that is aligned with a template.

    LayoutError if blocks are too small for the matrix.
    """
    over = [x for x in template if x.form != "*"]
    counts = [x.processors for x in over]
    # The first index is the fastest.
    ranks = np.arange(prod(counts), dtype=np.int64).reshape(counts[::-1]).transpose()
    axes = {letter: [i for i, x in enumerate(over) if x.of == letter] for letter in "*ij"}
    edges, grid = [], []
    for letter, size in zip("ij", shape, strict=True):
        dimension = over[axes[letter][0]] if axes[letter] else Dimension(letter, "*", 1)
        edges.append(_edges(dimension, size))
        grid.append(dimension.processors)
    places = ranks.transpose([*axes["*"], *axes["i"], *axes["j"]]).reshape(-1, *grid)
    return Parts(edges[0], edges[1], (grid[0], grid[1]), places)


def _edges(x: Dimension, size: int) -> Ints:
    name, _, number = x.form.rstrip(")").partition("(")
    if name in ("*", "BLOCK") and not number:
        return ceil_edges(size, x.processors)
    tile = parse_whole(number or "1")
    if name == "BLOCK" and tile * x.processors < size:
        raise LayoutError(
            f"{x.form} on {x.processors} processors holds {tile * x.processors} of {size}; "
            f"take at least BLOCK({-(-size // x.processors)})"
        )
    return tile_edges(size, tile)


def written(layout: Laid, text: str) -> HpfLayout:
    """Return a layout in HPF's words; LayoutError naming the part that HPF cannot say."""
    places = layout.places
    counts = []
    for letter, offsets in zip("*ij", (places[:, 0, 0], places[0, :, 0], places[0, 0, :]), strict=True):
        counted = digits((offsets - places[0, 0, 0]).tolist())
        if counted is None or len(counted) > 1:
            raise _other_order(text)
        counts.append((counted[0][1] if counted else 0, letter, len(offsets)))
    over = sorted(x for x in counts if x[0])
    undistributed = [
        Dimension(letter, "*", 1) for stride, letter, _ in counts if not stride and letter != "*"
    ]
    template = [Dimension(letter, _form(layout, letter, text), n) for _, letter, n in over]
    order = [*template, *undistributed]
    if not any(x.of == "*" for x in order) and [x.of for x in order] == ["j", "i"] and undistributed:
        order.reverse()
    again = parts(order, layout.shape)
    if not np.array_equal(again.places, places):
        raise _other_order(text)
    return HpfLayout(tuple(order))


def _form(layout: Laid, letter: str, text: str) -> str:
    if letter == "*":
        return "BLOCK"
    dim = "ij".index(letter)
    size, places = layout.shape[dim], layout.process_grid[dim]
    edges = (layout.row_edges, layout.col_edges)[dim]
    ranges, tile = held_by(edges, places), int(np.unique(edges)[1])
    if ranges == held_by(ceil_edges(size, places), places):
        return "BLOCK"
    if ranges == held_by(tile_edges(size, tile), places):
        return f"BLOCK({tile})" if tile * places >= size else f"CYCLIC({tile})"
    raise LayoutError(
        f"{text}: HPF cannot have {edges_text(layout, dim)}: BLOCK and CYCLIC make parts of one size"
    )


def _other_order(text: str) -> LayoutError:
    return LayoutError(
        f"{text}: HPF counts processors along the dimensions of one array; these ranks are not"
    )

"""The text form of a layout: what people type, and what files and links carry."""

import re
from functools import lru_cache

from umm.errors import LayoutError
from umm.layouts.layout import Layout, _check_replicas, square_grid

FORMS = "row, col, 2d, 2d:3x4, cyclic:256x128:3x4 or edges:0-3-8x0-5-9:1x2"
_SUFFIX = re.compile(
    r"(?P<partition>[^@]*?)(?P<balanced>:balanced)?(?:@(?P<replicas>[0-9]{1,9})(?P<order>:\w+)?)?"
)


@lru_cache(maxsize=8192)
def parse_layout(text: str, shape: tuple[int, int], ranks: int) -> Layout:
    """Return the layout a text form means; equal arguments give the same object.

    See :meth:`umm.layouts.layout.Layout.parse`.
    """
    match = _SUFFIX.fullmatch(text.strip())
    if match is None:
        raise LayoutError(f"{text!r} is not a layout; write {FORMS}, then @c for c replicas")
    replicas = int(match["replicas"] or 1)
    order = (match["order"] or ":blocked")[1:]
    _check_replicas(ranks, replicas)
    if order not in ("blocked", "interleaved"):
        raise LayoutError(f"replicas cannot be ordered {order!r}; choose blocked or interleaved")
    rule = "balanced" if match["balanced"] else "ceil"
    places = ranks // replicas
    name, *parts = match["partition"].split(":")
    canonical = text.strip().removesuffix(":blocked")
    if replicas == 1 and order == "blocked":
        canonical = canonical.removesuffix("@1")

    if name in ("row", "col", "2d") and len(parts) <= (name == "2d"):
        if parts:
            grid = _pair(parts[0], text)
        else:
            grid = {"row": (places, 1), "col": (1, places), "2d": square_grid(places)}[name]
        if grid[0] * grid[1] != places:
            raise LayoutError(
                f"{text}: process grid {grid[0]}x{grid[1]} has {grid[0] * grid[1]} places, but a replica "
                f"has {places} ranks ({ranks} ranks / {replicas} replicas)"
            )
        return Layout.block(shape, grid, replicas=replicas, rule=rule, order=order, text=canonical)
    if rule == "balanced" and name in ("cyclic", "edges"):
        raise LayoutError(f"{text}: balanced belongs to row, col and 2d; {name} says its tile sizes itself")
    if name == "cyclic" and len(parts) == 2:
        tile_shape, grid = _pair(parts[0], text), _pair(parts[1], text)
        layout = Layout.block_cyclic(shape, tile_shape, grid, replicas=replicas, order=order)
    elif name == "edges" and len(parts) == 2:
        edges = [[_number(e, text) for e in side.split("-")] for side in parts[0].split("x")]
        if len(edges) != 2:
            raise LayoutError(f"{text}: edges need row edges x column edges, as in edges:0-3-8x0-5-9:1x2")
        layout = Layout(shape, edges[0], edges[1], _pair(parts[1], text), replicas=replicas, order=order)
    else:
        raise LayoutError(f"{text!r} is not a layout; write {FORMS}, then @c for c replicas")
    if layout.ranks != ranks:
        raise LayoutError(
            f"{text}: its process grid has {layout.ranks // replicas} places, but a replica has {places} "
            f"ranks ({ranks} ranks / {replicas} replicas)"
        )
    return layout


def _number(text: str, whole: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise LayoutError(f"{whole}: {text!r} is not a whole number")
    return int(text)


def _pair(text: str, whole: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})x([0-9]{1,9})", text)
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise LayoutError(f"{whole}: {text!r} is not a pair of sizes like 3x4")
    return int(match[1]), int(match[2])

"""Layouts by the names that training systems have for them, sized by the user: ``tp8-dp4``, ``fsdp32``.

A scheme is a mesh of ranks, its last axis inside a node, and what each axis does to each kind of tensor.
"""

import re
from collections.abc import Mapping
from math import prod
from typing import NamedTuple

from umm.errors import ProblemError
from umm.numbers import parse_whole, whole_in

WORDS = "tp8-dp4, sp8-dp4, tp16x8, fsdp32, hsdp8x4, fsdp4-tp8, fsdp4-sp8, 2d8x4, or tp, sp and dp alone"
KNOWN = ("megatron", "sequence", "data")  # the layouts that depend on a tensor's kind
KINDS = {
    ("row@p", "row", "row"): "tokens",
    ("col", "col", "row"): "inner",
    ("col", "col", "row@p"): "first",
    ("row", "row", "row@p"): "second",
    ("row@p", "row@p", "row@p"): "scale",
}
# For each kind of tensor the cut and, axis by axis of the mesh, what the axis does: letters as in layouts.
TENSOR = {"inner": ("2d", "rc"), "first": ("col", "-c"), "second": ("row", "-r"), "scale": ("row", "--")}
SHARDED = {"inner": ("2d", "rc"), "first": ("2d", "rc"), "second": ("2d", "cr"), "scale": ("row", "--")}
BY_TOKENS, BY_ALL = ("row", "r-"), ("row", "rr")
NODES = {
    "tokens": BY_ALL,
    "inner": BY_ALL,
    "first": ("row", "-r"),
    "second": ("row", "-r"),
    "scale": ("row", "--"),
}
# Ranks that follow each other cut what activations have in common with weights, or an inner one's rows.
BOTH = {
    "tokens": ("2d", "rc"),
    "inner": ("2d", "cr"),
    "first": ("2d", "cr"),
    "second": ("2d", "rc"),
    "scale": ("row", "--"),
}
GRID = dict.fromkeys(("tokens", "inner", "first", "second"), ("2d", "rc")) | {"scale": ("row", "--")}


class Family(NamedTuple):
    """Schemes whose names differ in two numbers."""

    pattern: str  # the name
    places: tuple[int, int]  # which of its numbers each axis of the mesh is
    kinds: Mapping[str, tuple[str, str]]  # for each kind of tensor how it is cut and what each axis does
    # What the scheme is called with the first number or the second alone; empty: no scheme.
    alone: tuple[str, str]
    source: str  # where it is published


FAMILIES = (
    Family(
        r"tp(\d+)-dp(\d+)", (1, 0), TENSOR | {"tokens": BY_TOKENS}, ("tp", "dp"),
        "Shoeybi et al. (2019); Narayanan et al. (2021)",
    ),
    Family(
        r"sp(\d+)-dp(\d+)", (1, 0), TENSOR | {"tokens": BY_ALL}, ("sp", "dp"),
        "Korthikanti et al. (2022), section 4.2.2",
    ),
    Family(
        r"tp(\d+)x(\d+)", (1, 0), BOTH, ("", "sp"),
        "Pope et al. (2022), section 3.2.2: 2D weight-stationary",
    ),
    Family(
        r"fsdp(\d+)-tp(\d+)", (0, 1), SHARDED | {"tokens": BY_TOKENS}, ("fsdp", "tp"),
        "Zhao et al. (2023) over Shoeybi et al. (2019)",
    ),
    Family(
        r"fsdp(\d+)-sp(\d+)", (0, 1), SHARDED | {"tokens": BY_ALL}, ("fsdp", "sp"),
        "Zhao et al. (2023) over Korthikanti et al. (2022)",
    ),
    Family(
        r"hsdp(\d+)x(\d+)", (1, 0), NODES, ("fsdp", "dp"),
        "Zhao et al. (2023), section 3.2.2: hybrid sharding",
    ),
    Family(r"2d(\d+)x(\d+)", (0, 1), GRID, ("", ""), "van de Geijn and Watts (1997): SUMMA's grid"),
)  # fmt: skip
OVER_NODES = (("row", "r-"), ("col", "c-"), ("2d", "cr"))
"""Layouts of one matrix cut between nodes that blocks of consecutive ranks do not give it."""
DATA = {"tokens": BY_ALL, "inner": BY_ALL} | dict.fromkeys(("first", "second", "scale"), ("row", "--"))


class Scheme(NamedTuple):
    """A name made out."""

    mesh: tuple[int, ...]  # lengths of the axes, the last inside a node
    kinds: Mapping[str, tuple[str, str]]  # for each kind of tensor how it is cut and what each axis does


def plain(name: str) -> str:
    """Return the plain name of a scheme whose mesh has one axis; other names unchanged.

    ProblemError if no scheme of one axis is the same.

    >>> plain("hsdp8x1"), plain("tp1-dp8"), plain("fsdp4-tp2"), plain("megatron")
    ('fsdp8', 'dp8', 'fsdp4-tp2', 'megatron')
    """
    family, sizes = family_of(name)
    if family is None or 1 not in sizes:
        return name
    at = 0 if sizes[1] == 1 else 1
    axis, size = family.alone[at], sizes[at]
    if not axis:
        raise ProblemError(f"{name} is a mesh of one axis; write tp{size}, sp{size} or fsdp{size}")
    return f"{axis}{size}"


def family_of(name: str) -> tuple[Family | None, tuple[int, ...]]:
    """Return the family of a scheme that has two numbers in its name, and these; None and () of others.

    >>> family, sizes = family_of("fsdp4-tp8")
    >>> family.alone, sizes
    (('fsdp', 'tp'), (4, 8))
    """
    for family in FAMILIES:
        match = re.fullmatch(family.pattern, name)
        sizes = [whole_in(x, 1, 10**6) for x in match.groups()] if match else [None]
        if None not in sizes:
            return family, tuple(x for x in sizes if x is not None)
    return None, ()


def is_scheme(name: str) -> bool:
    """Whether a name is of a scheme that layouts can be made for.

    >>> is_scheme("tp8-dp4"), is_scheme("megatron")
    (True, False)
    """
    return _made_out(name) is not None


def scheme_layouts(
    name: str,
    layouts: Mapping[str, Mapping[str, str]],
    shapes: Mapping[str, tuple[int, int]],
    ranks: int,
    chain: str,
) -> dict[str, str]:
    """Return the layout of each tensor of a chain by a scheme.

    ProblemError if it is not for so many ranks, or the chain lacks these layouts.

    Args:
        layouts: The chain's own, which distinguish activations from weights: megatron, sequence and data.
    """
    scheme = _made_out(plain(name))
    if scheme is None:
        raise ProblemError(f"{name!r} is not a scheme; choose from {WORDS}")
    if prod(scheme.mesh) != ranks:
        made = " x ".join(map(str, scheme.mesh))
        raise ProblemError(
            f"{name} is for {prod(scheme.mesh)} ranks ({made}), not for {ranks}; change its numbers"
        )
    if any(x not in layouts for x in KNOWN):
        raise ProblemError(
            f"{name} needs the layouts {', '.join(KNOWN)} of chain {chain}, as presets have; add them"
        )
    texts = {}
    # Ranks that share the tokens between two multiplies share sequences. Where blocks have them otherwise, as
    # in sequence parallelism, rows cut front and back do not nest, and collectives move them tile by tile.
    rows = [[use == "r" for use in scheme.kinds[x][1]] for x in ("tokens", "inner")]
    nests = rows[0] == rows[1] and "c" not in scheme.kinds["tokens"][1]
    context = layouts.get("context", {}) if nests else {}
    places = prod(size for size, cuts in zip(scheme.mesh, rows[1], strict=True) if cuts)
    for tensor, (_, cols) in shapes.items():
        given = tuple(layouts[x].get(tensor, "row") for x in KNOWN)
        if given not in KINDS:
            raise ProblemError(
                f"{tensor} of chain {chain} has the layouts {', '.join(given)}, which {name} cannot place"
            )
        cut, axes = scheme.kinds[KINDS[given]]
        if cut == "2d" and cols == 1:
            cut, axes = "row", axes.replace("c", "-")
        text = text_of(cut, axes, scheme.mesh)
        texts[tensor] = re.sub(
            r"^(row|2d)(?!@p)", shared_rule(context.get(tensor, ""), places) or r"\1", text
        )
    return texts


def shared_rule(context: str, places: int) -> str:
    """Return the rule that balances a causal mask if places share sequences; nothing if they do not.

    Args:
        context: The layout of a tensor in ``context``: of tokens ``zigzag``, or ``zigzag:4`` of 4 sequences.
        places: How many parts its rows are in.

    >>> shared_rule("zigzag:4", 8), shared_rule("zigzag:4", 2), shared_rule("row@p", 8)
    ('zigzag:4', '', '')
    """
    rule, _, sequences = context.partition(":")
    return context if rule == "zigzag" and parse_whole(sequences or "1") % places else ""


def text_of(cut: str, axes: str, mesh: tuple[int, ...]) -> str:
    """Return the shortest text of a layout over a mesh.

    >>> text_of("row", "rr", (4, 8)), text_of("2d", "rc", (4, 8)), text_of("row", "r-", (4, 1))
    ('row', '2d@4x8:rc', 'row')
    """
    used = [(size, use) for size, use in zip(mesh, axes, strict=True) if size > 1]
    uses = {use for _, use in used}
    if not used or len(uses) == 1:
        return {"r": "row", "c": "col", "-": "row@p"}[uses.pop() if uses else "r"]
    if cut == "2d" and len(uses - {"-"}) == 1:
        cut = "row" if "r" in uses else "col"
    return f"{cut}@{'x'.join(str(size) for size, _ in used)}:{''.join(use for _, use in used)}"


def on_nodes(nodes: int, size: int) -> list[str]:
    """Return the names of the schemes that people use on some nodes of so many devices.

    >>> on_nodes(4, 8)
    ['tp8-dp4', 'sp8-dp4', 'fsdp32', 'hsdp8x4', 'fsdp4-tp8', 'fsdp4-sp8', '2d8x4']
    >>> on_nodes(128, 8)[-2:]
    ['tp32x32', '2d8x128']
    """
    # Weights cut about as often by rows as by columns, several nodes either way: with p ranks each moves a
    # share of activations that falls as the root of p, where all by columns it is always the same. On fewer
    # nodes than a node has devices that does not pay yet.
    able = [k for k in range(2, nodes) if nodes % k == 0 and (k * size) ** 2 >= nodes * size]
    both_ways = [f"tp{able[0] * size}x{nodes // able[0]}"] if nodes > size and able else []
    return [
        f"tp{size}-dp{nodes}", f"sp{size}-dp{nodes}", f"fsdp{nodes * size}", f"hsdp{size}x{nodes}",
        f"fsdp{nodes}-tp{size}", f"fsdp{nodes}-sp{size}", *both_ways, f"2d{size}x{nodes}",
    ]  # fmt: skip


def mesh_choices(
    nodes: int, size: int, layouts: Mapping[str, Mapping[str, str]], shapes: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[str, ...]]:
    """Return for each tensor of a chain the layouts over nodes and inside them that schemes give it.

    Args:
        layouts: The chain's own; without those that depend on a tensor's kind every tensor gets all.
    """
    mesh = nodes, size
    try:
        names = on_nodes(*mesh)[:-1]
        choices = [scheme_layouts(name, layouts, shapes, nodes * size, "") for name in names]
    except ProblemError:
        pairs = [BY_TOKENS, *SHARDED.values(), *TENSOR.values()]
        choices = [dict.fromkeys(shapes, text_of(*x, mesh)) for x in pairs]
    return {
        x: tuple(dict.fromkeys(texts[x] for texts in choices if "@" in texts[x] and "@p" not in texts[x]))
        for x in shapes
    }


def _made_out(name: str) -> Scheme | None:
    family, sizes = family_of(name)
    if family is not None:
        return Scheme(tuple(sizes[place] for place in family.places), family.kinds)
    match = re.fullmatch(r"(fsdp|tp|sp|dp)([1-9]\d{0,5})", name)
    if match is None:
        return None
    last = {"fsdp": NODES, "tp": TENSOR | {"tokens": BY_TOKENS}, "sp": TENSOR | {"tokens": BY_ALL}}.get(
        match[1], DATA
    )
    return Scheme((parse_whole(match[2]),), {kind: (cut, axes[-1]) for kind, (cut, axes) in last.items()})

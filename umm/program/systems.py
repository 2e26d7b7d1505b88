"""Chains as training systems run them beyond a layout for each tensor: FSDP, Ulysses, experts."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from math import isqrt
from typing import Any

from umm.errors import ProblemError
from umm.numbers import parse_whole
from umm.program.chain import Chain
from umm.program.mixture import each_by_itself, in_8_bits, in_data_groups, in_parts, with_copies
from umm.program.outline import BY_EXPERT, DEFAULT, Outline
from umm.program.schemes import family_of, plain, shared_rule, text_of
from umm.program.statements import Statement, reading, renamed
from umm.program.statements.attention import attending, attentions
from umm.program.statements.copies import Copy
from umm.program.statements.multiply import joinable, products

DATA, CONTEXT = "data", "context"
_BY_HEADS = re.compile(r"(fsdp|ring)([1-9]\d{0,5})-ulysses([1-9]\d{0,5})")
WHOLE = ".whole"  # how the gathered copy of a weight ends
HEADS = ".heads"  # how what attention has by heads, or in another order of tokens, ends
ZIGZAG = "-zigzag"  # how the name of a scheme ends that exchanges tokens before attention


def fully_sharded(outline: Outline) -> Outline:
    """Return a chain whose weights lie over all ranks and are gathered before each use: ZeRO stage 3.

    All else lies by tokens, as in its layouts ``context`` where a causal mask is to be balanced, else
    ``data``; so does what the gathered weights are copied to, on every rank. A weight that the backward part
    reads too is gathered again, but the one it begins with; an embedding's table, as its map gathers it.
    ProblemError if it has none.

    >>> from umm.program.presets import chain
    >>> print(fully_sharded(chain("mlp", hidden=8, ffn=16, tokens=4)))
    mlp: W1.whole = copy of W1; H = X·W1.whole; G = gelu(H); W2.whole = copy of W2; Y = G·W2.whole
    """
    if outline.has_experts:
        raise ProblemError(
            f"fsdp is not for chain {outline.name}, which has experts; write ep1-fsdp8, or ep4-fsdp2 with "
            "experts over 4 ranks"
        )
    layouts = dict(_scheme(outline, CONTEXT if CONTEXT in outline.layouts else DATA))
    of_weights = dict.fromkeys(outline.weights, DEFAULT)
    return _gathering(outline, "fsdp", layouts, of_weights)


def beside_experts(layouts: str | None, decode: bool = False) -> str | None:
    """Return the layouts of a model's dense layers, given those of its layers with experts.

    Attention is laid out as there: by tokens beside whole experts, with weights on every rank or sharded.
    Decoded tokens have no mask to balance, and are on every rank where experts are cut.

    >>> [beside_experts(x) for x in ("ep8", "ep4-fsdp2", "tensor", "tp8-dp4")], beside_experts("tensor", True)
    (['context', 'fsdp8', 'sequence', 'tp8-dp4'], 'megatron')
    """
    name = (layouts or "").partition(",")[0].strip()
    experts = re.fullmatch(r"ep(\d+)(?:-(tp|dp|fsdp)(\d+))?\D?.*", name)
    if experts and experts[2] == "fsdp":
        return f"fsdp{parse_whole(experts[1]) * parse_whole(experts[3])}"
    if experts or name in ("", "expert", "whole"):
        return DATA if decode else CONTEXT
    if name == "tensor":
        return "megatron" if decode else "sequence"
    return layouts


def _gathering(
    outline: Outline, name: str, layouts: Mapping[str, str], sharded: Mapping[str, str], tables: bool = False
) -> Outline:
    """Return a chain that gathers each weight before a statement reads it, in layouts of a name.

    A weight that is read next again is there still, as FSDP2 keeps the last it gathers.

    Args:
        layouts: Where all tensors lie, gathered weights as their weights.
        sharded: Where weights lie before, and their gradients; each has several rows.
        tables: Whether a table, too, is gathered before rows of it are looked up.
    """

    def reads_whole(x: Statement) -> bool:
        return x.has_weights or (tables and x.looks_up)

    shapes = {x.name: x for x in outline.tensors}
    read = {x for statement in outline.statements if reads_whole(statement) for x in statement.reads}
    names = {x: f"{x}{WHOLE}" for x in sharded if x in read}
    statements, gathered = list[Statement](), dict[str, None]()
    added_up: list[list[Statement]] = []
    for statement in outline.statements:
        if added_up and joinable(added_up[-1][-1], statement):
            added_up[-1].append(statement)
        else:
            added_up.append([statement])
    for terms in added_up:
        # Nothing comes between multiplies that are summed together.
        needs = dict.fromkeys(x for one in terms if reads_whole(one) for x in one.reads if x in names)
        statements += [Copy(names[weight], weight) for weight in needs if weight not in gathered]
        gathered = needs or gathered
        statements += [reading(one, names) if reads_whole(one) else one for one in terms]
    texts = {**layouts, **{copy: layouts[weight] for weight, copy in names.items()}}
    for weight, text in sharded.items():
        if shapes[weight].rows > 1:
            texts |= {x: text for x in (weight, f"d{weight}") if x in shapes}
    tensors = (*outline.tensors, *(replace(shapes[x], name=name, role="work") for x, name in names.items()))
    return replace(outline, tensors=tensors, statements=tuple(statements), layouts={name: texts})


def over_mesh(name: str, outline: Outline, ranks: int) -> Outline:
    """Return a chain that gathers weights over an axis of a mesh before each use: HSDP, or FSDP over TP.

    ``hsdp8x4`` multiplies as ``dp32`` and ``fsdp4-tp8`` as ``tp8-dp4``, by gathered weights. Of a table
    ``fsdp4-tp8`` gathers the columns before rows are looked up; in ``hsdp8x4`` the map gathers. Other chains
    and schemes stay as they are.

    Source: Zhao et al. (2023), PyTorch FSDP, section 3.2.2.
    """
    family, sizes = family_of(plain(name))
    if name in outline.layouts or family is None or family.alone[0] != "fsdp":
        return outline
    (data, cuts), within = sizes, family.alone[1]
    tables = [x.reads[0] for x in outline.statements if within != "dp" and x.looks_up]
    texts = outline.layouts_of(name, ranks)
    sharded = {x: texts[x] for x in (*outline.weights, *tables)}
    if not sharded:
        return outline
    gathered = outline.layouts_of(f"dp{ranks}" if within == "dp" else f"{within}{cuts}-dp{data}", ranks)
    return _gathering(outline, name, gathered, sharded, tables=within != "dp")


def by_heads(outline: Outline) -> Outline:
    """Return a chain whose attention is by heads and all else by tokens: Ulysses.

    Queries, keys and values are exchanged from tokens to heads before attention, and its result back after.
    ProblemError if it has none.

    Source: Jacobs et al. (2023), DeepSpeed Ulysses.
    """
    layouts = dict(_scheme(outline, DATA))
    result, copies = _exchanged(outline)
    if not copies:
        raise ProblemError(f"chain {outline.name} has no fused attention to do by heads; use attention")
    layouts |= dict.fromkeys(copies.values(), "col")
    there_are = {x.name for x in result.tensors}
    return replace(result, layouts={"ulysses": {x: text for x, text in layouts.items() if x in there_are}})


def _exchanged(outline: Outline) -> tuple[Outline, dict[str, str]]:
    """Return a chain that copies attention's operands before it and its results after it, and their names.

    The chain's layouts lack the copies.
    """
    shapes = {x.name: x for x in outline.tensors}
    # What something but attention reads, or goes out.
    read = {y for x in outline.statements if not x.attends for y in x.reads}
    read |= {x.name for x in outline.tensors if x.role != "work"}
    copies: dict[str, str] = {}
    statements: list[Statement] = []
    for statement in outline.statements:
        if not statement.attends:
            statements.append(statement)
            continue
        names = {x: f"{x}{HEADS}" for x in (*statement.reads, *statement.outs)}
        for x in statement.of_all_heads:
            del names[x]
        # The gradients read by heads what attention has had by heads.
        statements += [Copy(names[x], x) for x in statement.reads if x in names and x not in copies]
        copies |= names
        statements.append(renamed(statement, names))
        statements += [Copy(x, names[x]) for x in statement.outs if x in names and x in read]
    moved = [replace(shapes[x], name=name, role="work") for x, name in copies.items()]
    written = {x for statement in statements for x in statement.outs}
    tensors = tuple(x for x in (*outline.tensors, *moved) if x.name in written or x.role != "work")
    there_are = {x.name for x in tensors}
    kept = tuple(x for name in outline.kept for x in (name, copies.get(name, name)) if x in there_are)
    return replace(outline, tensors=tensors, statements=tuple(statements), layouts={}, kept=kept), copies


def front_and_back(name: str, outline: Outline, ranks: int) -> Outline | None:
    """Return a chain that exchanges tokens before attention, so that a causal mask gives ranks equal work.

    ``sp8-dp4-zigzag`` is ``sp8-dp4`` with tokens in order, but those of queries, keys and values front and
    back of the sequences that its 4 groups of ranks share. None if the name does not end so. ProblemError if
    the chain has no causal fused attention, or the scheme's ranks share no sequence, or have it front and
    back as it is.

    Source: Zhu (2024), zigzag ring attention, on the balance.
    """
    base = name.removesuffix(ZIGZAG)
    if base == name:
        return None
    result = in_scheme(base, outline, ranks)
    texts = dict(result.layouts_of(base, ranks))
    attention = next(iter(attentions(result.statements)), None)
    if CONTEXT not in outline.layouts or attention is None:
        raise ProblemError(f"chain {outline.name} has no causal fused attention to balance; use {base}")
    layout = next(x for x in result.laid_out(texts, ranks).tensors if x.name == attention.q).layout
    context = outline.layouts[CONTEXT].get(attention.q.removesuffix(HEADS), "")
    rule = shared_rule(context, layout.process_grid[0])
    if not rule or texts[attention.q].startswith("zigzag"):
        raise ProblemError(f"{base} balances attention as it is; leave out {ZIGZAG}")
    if not attention.q.endswith(HEADS):
        result, copies = _exchanged(result)
        texts |= {copy: texts[x] for x, copy in copies.items()}
    balanced = {
        x.name: re.sub(r"^(row|2d)(?!@p)", rule, texts[x.name]) if x.name.endswith(HEADS) else texts[x.name]
        for x in result.tensors
    }
    return replace(result, layouts={name: balanced})


def sharded_by_heads(name: str, outline: Outline, ranks: int) -> Outline | None:
    """Return a chain with attention by heads within groups of ranks, and weights over all or on each.

    ``fsdp4-ulysses8`` has 4 groups of 8 ranks that follow each other: tokens and weights are over all 32,
    queries, keys and values by heads over the 8 of a group. Weights are gathered before each use, as in
    :func:`fully_sharded`. A chain without attention is as in ``fsdp32``. In ``ring4-ulysses8`` the keys of
    causal sequences that groups share go round rings of 4 ranks, front and back, and weights are on every
    rank. None if the name is not such a scheme. ProblemError if it is for another number of ranks, the chain
    has experts, or no sequences are shared.

    Source: Jacobs et al. (2023), DeepSpeed Ulysses, on memory: ZeRO-3 over data and sequence parallel ranks;
    Fang and Zhao (2024), USP: a unified sequence parallelism approach, on rings of groups.
    """
    match = _BY_HEADS.fullmatch(name)
    if match is None:
        return None
    groups, size = parse_whole(match[2]), parse_whole(match[3])
    if groups * size != ranks:
        raise ProblemError(
            f"{name} is for {groups * size} ranks ({groups} x {size}), not for {ranks}; change its numbers"
        )
    if outline.has_experts:
        raise ProblemError(
            f"{name} is not for chain {outline.name}, which has experts; write ep1-fsdp{ranks}"
        )
    if match[1] == "ring":
        return _rings_of_groups(name, outline, groups, size)
    if not any(x.attends for x in outline.statements):
        result = in_scheme(f"fsdp{ranks}", outline, ranks)
        return result.with_layouts(name, result.layouts_of(f"fsdp{ranks}", ranks))
    result = by_heads(outline)
    heads = text_of("2d", "rc", (groups, size))
    layouts = {x: heads if x.endswith(HEADS) else text for x, text in result.default_layouts.items()}
    sharded = dict.fromkeys(result.weights, DEFAULT)
    return _gathering(result, name, layouts, sharded)


def _rings_of_groups(name: str, outline: Outline, groups: int, size: int) -> Outline:
    """Return a chain whose attention is by heads within groups, and whose keys go round rings across them."""
    attention = next(iter(attentions(outline.statements)), None)
    context = outline.layouts.get(CONTEXT, {}).get(attention.q, "") if attention else ""
    rule = shared_rule(context, groups)
    if not rule:
        raise ProblemError(f"{name} is of causal sequences that {groups} groups share; write ulysses")
    result = by_heads(outline)
    heads = re.sub(r"^(row|2d)", rule, text_of("2d", "rc", (groups, size)))
    layouts = {x: heads if x.endswith(HEADS) else text for x, text in result.default_layouts.items()}
    statements = tuple(attending(x, "ring") for x in result.statements)
    return replace(result, statements=statements, layouts={name: layouts})


def with_way(outline: Outline, way: str) -> Outline:
    """Return a chain whose attention brings keys to queries in a way, tokens front and back of the sequences.

    ProblemError if it has none.
    """
    if CONTEXT not in outline.layouts:
        raise ProblemError(
            f"chain {outline.name} has no causal fused attention, which {way} is of; use attention"
        )
    statements = tuple(attending(x, way) for x in outline.statements)
    return replace(outline, statements=statements, layouts={way: outline.layouts[CONTEXT]})


CHANGES: Mapping[str, Callable[[Outline], Outline]] = {
    "fsdp": fully_sharded,
    "ring": partial(with_way, way="ring"),
    "gather": partial(with_way, way="gather"),
    "ulysses": by_heads,
}
"""Schemes that change what a chain does, not only where its tensors lie: each gives it in its own layouts."""


EACH = "each"  # in a scheme of experts: each choice of a token by itself
_EXPERTS = re.compile(
    r"ep([1-9]\d{0,5})(?:-tp([1-9]\d{0,5}))?(?:-(dp|fsdp)([1-9]\d{0,5}))?"
    rf"(?:\+([1-9]\d{{0,5}}))?(?:/({EACH}|[1-9]\d{{0,4}}))?(:fp8)?"
)


def of_experts(name: str, outline: Outline, ranks: int) -> Outline | None:
    """Apply a scheme of experts that rewrites the program.

    ``ep8-dp16`` has 16 data groups of 8 ranks, each with all experts; ``ep8-fsdp16`` as well, but weights and
    their gradients are cut over groups, and gathered before each use. ``ep8+4`` and ``ep4-tp2+4`` have 4
    copies of the experts that have most rows, in each data group. ``ep8/2`` moves the rows of each rank's
    experts in 2 parts, one behind another, ``ep8/each`` each choice of a token by itself, and ``ep8:fp8``
    tokens in 8 bits. Layouts of that name are those of ``ep8-tp1`` or ``ep4-tp2``. None if the name is not
    such a scheme. ProblemError if the program has no experts, or the scheme is for another number of ranks.
    """
    match = _EXPERTS.fullmatch(name)
    if match is None or not any(match.groups()[2:]):
        return None
    groups, cuts, data = (parse_whole(match[x] or "1") for x in (1, 2, 4))
    if groups * cuts * data != ranks:
        works, mesh = f"ep{ranks}", name[: match.end(2) if match[2] else match.end(1)]
        if groups * cuts < ranks and ranks % (groups * cuts) == 0:
            works += f" or {mesh}-{match[3] or 'dp'}{ranks // (groups * cuts)}"
        elif match[3]:
            square = max(x for x in range(1, isqrt(ranks) + 1) if ranks % x == 0)
            works += f" or ep{square}-{match[3]}{ranks // square}"
        raise ProblemError(f"{name} is for {groups * cuts * data} ranks, not for {ranks}; write {works}")
    result = in_data_groups(outline, data, ranks)
    if match[5]:
        result = with_copies(result, parse_whole(match[5]), groups, at_once=match[3] == "dp" and data > 1)
    if match[6]:
        result = each_by_itself(result) if match[6] == EACH else in_parts(result, parse_whole(match[6]))
    if match[7]:
        result = in_8_bits(result)
    layouts = dict(result.layouts_of(f"ep{groups * data}-tp{cuts}", ranks))
    if data == 1:
        return result.with_layouts(name, layouts)
    weights = [x.name for x in result.tensors if x.experts and x.role != "work"]
    mesh = f"@{data}x{groups}x{cuts}" if cuts > 1 else f"@{data}x{groups}"
    uses = "-rc"[: mesh.count("x") + 1]
    layouts |= dict.fromkeys(weights, f"{BY_EXPERT}{mesh}:{uses}")
    if match[3] == "dp":
        return result.with_layouts(name, layouts)
    sharded = dict.fromkeys(result.weights, DEFAULT) | {
        x: f"{BY_EXPERT}{mesh}:c{uses[1:]}" for x in result.weights if x in weights
    }
    return _gathering(result, name, layouts, sharded)


def gradients_by_tokens(outline: Outline | Chain) -> dict[str, str]:
    """Return the stationary matrix of the multiplies that give a weight's gradient: the one cut by tokens."""
    given = {x.name for x in outline.tensors if x.role == "input"}
    gradients = {f"d{x}" for x in given if f"d{x}" not in given}
    return {x.out: "A" for x in products(outline.statements) if x.out in gradients}


def sharded_choices(chain: Chain) -> dict[str, Any]:
    """Return how FSDP multiplies: weights are gathered, gradients whole on every rank, then reduce-scattered.

    Tile by tile they would be added at their owners one-sided, and multiplies would wait for room. In a node
    the machine's library gathers weights and sums gradients, one collective after another. What lies by
    tokens stays, whatever would take less. Under tensor parallelism, too, that of both activations whose
    columns are cut over the ranks that cut the weight: the other is gathered, or summed, among these.
    """
    # Weights of multiplies, by the tensor that they read: the weight or a gathered copy.
    copied = {x.out: x.reads[0] for x in chain.statements if x.moves_only}
    given = {x.name for x in chain.tensors if x.role == "input"}
    multiplies = [x for x in products(chain.statements) if x.batch == 1]
    on_the_left = {x.a for x in multiplies}  # such as dY
    read = {x.b: copied.get(x.b, x.b) for x in multiplies if "a" not in x.trans}
    read = {x: weight for x, weight in read.items() if weight in given and x not in on_the_left}
    cuts = {x.name: x.layout.grid_shape()[1] > 1 for x in chain.tensors}
    gradients, result = {f"d{x}" for x in read.values()}, dict[str, str]()
    for x in products(chain.statements):
        if x.b in read:
            result[x.out] = "C" if cuts[x.out] and not cuts[x.a] else "A"
        elif x.out in gradients:
            result[x.out] = "B" if cuts[x.b] and not cuts[x.a] else "A"
    return {"stationary": result, "movement": "library"}


def in_scheme(name: str, outline: Outline, ranks: int) -> Outline:
    """Apply a scheme that rewrites the program (ring, fsdp, …); other schemes return it unchanged."""
    # `fsdp8` is the `fsdp` of eight ranks: each weight is gathered whole before it is used.
    changed = (
        front_and_back(name, outline, ranks)
        or of_experts(name, outline, ranks)
        or sharded_by_heads(name, outline, ranks)
    )
    if changed is not None:
        return changed
    change = CHANGES.get("fsdp" if plain(name) == f"fsdp{ranks}" else name)
    if change is None or name in outline.layouts:
        return over_mesh(name, outline, ranks)
    result = change(outline)
    return result.with_layouts(name, result.default_layouts)


def shards_weights(scheme: str, tensors: Iterable[str] = ()) -> bool:
    """Whether a scheme gathers weights, by its name or by the copies among its tensors.

    >>> shards_weights("hsdp4x2"), shards_weights("ep1-fsdp8", ["W1", "W1.whole"]), shards_weights("tp8")
    (True, True, False)
    """
    return scheme.startswith(("fsdp", "hsdp")) or any(x.endswith(WHOLE) for x in tensors)


def choices_left(chain: Chain, how: Mapping[str, Any], scheme: str = "") -> dict[str, Any]:
    """Return the choices that a chain with gathered weights sets where they are ``auto``.

    Args:
        scheme: What its layouts are called: FSDP within part of a mesh gathers, too.
    """
    if not shards_weights(scheme, (x.name for x in chain.tensors)):
        return {}
    return {x: y for x, y in sharded_choices(chain).items() if how.get(x) == "auto"}


def _scheme(outline: Outline, name: str) -> Mapping[str, str]:
    if name not in outline.layouts:
        raise ProblemError(f"chain {outline.name} has no layouts {name!r}, which a preset has; add them")
    return outline.layouts[name]

"""A search's result in sentences, and its best assignments of layouts to tensors."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.cli.printed.output import grid
from umm.plans.movement.choice import in_pairs, node_count
from umm.plans.multiply.options import Options, known
from umm.program import Outline
from umm.program.problem import MATRICES
from umm.program.systems import shards_weights
from umm.space import Choice, Found, Space
from umm.space.assignments import Assignments
from umm.space.search.search import more_memory
from umm.space.search.uncertainty import ties
from umm.units import format_bytes, format_seconds, gap_in_words, percent, range_in_words


def budget(result: Found) -> str:
    """Return the most a rank may hold, in words."""
    device, share = result.device, result.limit / result.points.share
    if result.limit == device:
        return f"At most {format_bytes(device)} a rank, all it has of its device ({share:.3g}x)."
    if result.reserves:
        return f"At most {format_bytes(result.limit)} a rank: 90 % of its device's {format_bytes(device)}."
    return f"At most {format_bytes(result.limit)} a rank ({share:.3g}x)."


def proof(result: Found) -> str:
    """Return one line on how many points were priced, and the space over which the best is proven."""
    space, simulated = result.space, len(result.pricer.choices)
    if not result.proven:
        return (
            f"Not proven: {result.distinct:,} points priced, {result.pruned:,} ruled out, "
            f"{result.simulated} simulated."
        )
    return (
        f"Proven best of {result.distinct:,} in this model, to {100 * result.tolerance:.1g} %: "
        f"{space_in_words(space)}. {result.distinct - simulated:,} ruled out by bounds, "
        f"{simulated} simulated."
    )


def assignments_proof(result: Found) -> str:
    """Return how many assignments were simulated, and whether bounds rule out the others."""
    count = f"{result.priced / 1e6:.3g} million" if result.priced >= 10**6 else f"{result.priced:,}"
    simulated = f"{result.simulated:,} simulated"
    if result.proven:
        beside = " and the schemes above" if result.points.place(result.top[0].layouts) is None else ""
        return f"Proven best of {count}{beside}: {simulated}, the others ruled out by bounds."
    return f"Not proven, within {gap_in_words(result.gap)}: {simulated} of {count}."


def space_in_words(space: Space) -> str:
    """Return a space's axes, in a line.

    >>> space_in_words(Space(m=64, n=64, k=64, ranks=4, a="row", b="row", c="col", prefetch=(1, 2)))
    'A row, B row, C col; stationary A, B, C; prefetch 1, 2'
    """
    written = dict(space.layouts)
    each = {x: ", ".join(written.get(x, ("all",))) for x in MATRICES}
    grids = " on every process grid" if space.grids == "all" else ""
    factors = "every replication factor" if space.replication is None else f"@{space.replication}"
    family = f"{', '.join(space.partitions)}{grids} with {factors}"
    if "interleaved" in space.orders:
        family += f", {' and '.join(space.orders)}"
    if set(each.values()) == {"all"}:
        layouts = family
    else:
        family_words = f" of {family}" if "all" in each.values() else ""
        layouts = ", ".join(f"{x} {texts}" for x, texts in each.items()) + family_words
    parts = [layouts, f"stationary {', '.join(space.stationary)}"]
    for option, values in zip(known(), space.axes.values, strict=True):
        if len(values) > 1:
            words = ", ".join(str(x) for x in values)
            spoken = [option.words(x) for x in values]
            parts.append(", ".join(spoken) if option.name == "granularity" else f"{option.name} {words}")
    return "; ".join(parts)


def assignments_record(result: Found) -> dict[str, Any]:
    """Return the best assignments, with their proof and moves, as plain values."""
    counts = {x: getattr(result, x) for x in ("priced", "pruned", "simulated", "proven", "gap")}
    return {
        "problem": result.points.to_dict()
        | {"optimizer_bytes": result.space.state, "layers": result.space.layers},
        "machine": result.machine,
        "memory_limit_bytes": result.limit,
        **counts,
        "named": result.named,
        "left_out": result.left_out,
        "moved": [{"statement": statement, "nbytes": dict(nbytes)} for statement, nbytes in result.moved],
        "tolerance": result.tolerance,
        "top": [result.record(x) for x in result.top],
        "more_memory_steps": more_record(result),
        "assumed_latencies": None if result.starts is None else result.starts.to_dict(),
    }


def more_record(result: Found) -> list[dict[str, Any]]:
    """Return the gains of more memory than the budget as plain values."""
    return [
        choice.to_dict() | {"extra_bytes": extra, "saving": saving, "saving_per_gib": saving / extra * 2**30}
        for choice, extra, saving in _bought(result)
    ]


def print_more_memory(console: Console, result: Found) -> None:
    """Print a line for each amount of memory above the budget that makes the best faster."""
    for choice, extra, saving in _bought(result):
        each = f" ({100 * saving / extra * 2**30:.2g} % a GiB)" if extra >= 2**28 else ""
        console.print(
            f"{format_bytes(extra)} above the limit would buy {percent(saving)}{each}: "
            f"{format_seconds(choice.makespan_s)} in {format_bytes(choice.memory_bytes)}"
            + (f" with {choice.words}." if result.space.is_multiply else ".")
        )


def print_starts(console: Console, result: Found) -> None:
    """Print the assumptions that affect the best choice."""
    words = "" if result.starts is None else result.starts.in_words(result.top[0].makespan_s)
    if words:
        console.print(f"Best: {words}")


def _bought(result: Found) -> list[tuple[Choice, int, float]]:
    """Return points that more memory buys, the bytes above the budget, and the share of time they save."""
    best = result.top[0]
    return [
        (x, x.memory_bytes - result.limit, 1 - x.makespan_s / best.makespan_s) for x in more_memory(result)
    ]


def print_assignments(console: Console, result: Found) -> None:
    """Print the best layouts, the next best by their differences, named ones, moves, the proof."""
    state, points = result.space.state, result.points
    optimizer = f", of it {state:g} B of optimizer for each element of a weight" if state else ""
    console.print(f"{points.words} on {result.machine}", highlight=False)
    layers = f" for {result.space.layers} layers" if result.space.layers > 1 else ""
    middle = "; times are of a layer in the middle" if layers and not points.outline.given else ""
    console.print(
        f"At most {format_bytes(result.limit)} a rank{layers}{optimizer}{middle}; "
        f"stationary {points.stationary}."
    )
    if points.outline.given:
        console.print(given_in_words(points.outline))
    best = result.top[0]
    console.print(_layouts(points, best))
    console.print(_ranking(points, result))
    if len(result.ranged) > 1:
        console.print(ties(result.sure, result.ranged))
    for name, seconds in result.named.items():
        beside = "does not fit" if seconds is None else _beside(seconds, best.makespan_s)
        console.print(f"{name}: {beside}", highlight=False)
    for name, seconds in result.left_out.items():
        console.print(f"{name}: at least {_beside(seconds, best.makespan_s)}; not simulated")
    schemes = (*result.named, *result.left_out)
    if any(map(shards_weights, schemes)):
        console.print("fsdp and hsdp gather weights by copies of their own, which no layouts above do.")
    elif schemes:
        console.print("umm peers also compares schemes that change what a chain does, such as fsdp.")
    if points.outline.is_long:
        total: Counter[str] = Counter()
        for _, nbytes in result.moved:
            total.update(nbytes)
        console.print(f"Moved to a rank: {_of_each(dict(total.most_common()))}.", highlight=False)
    else:
        for statement, nbytes in result.moved:
            console.print(f"{statement} moves to a rank {_of_each(nbytes)}", highlight=False)
    print_more_memory(console, result)
    print_starts(console, result)
    if not result.moved:
        console.print("No statement moves anything between ranks.")
    if not points.outline.given:
        console.print("Assumes inputs start in the layouts shown; --given adds the time to move them.")
    console.print(Text(assignments_proof(result), style="bold"))
    if best.movement:
        depth = result.space.options.prefetch
        usual = "" if depth == Options().prefetch else f" --prefetch {depth}"
        command = f"To simulate it: --movement {in_pairs(best.movement)}{usual}"
        console.print(command, highlight=False, soft_wrap=True)
    elif (
        result.space.options.movement == "auto"
        and node_count(result.pricer.machine, points.ranks) == 1 < points.ranks
    ):
        console.print("Operands move one-sided; --movement flat,gathered,chunks chooses by multiply.")


def _of_each(nbytes: Mapping[str, int]) -> str:
    """Return bytes of tensors in words, those of as many bytes together."""
    parts = []
    for count, group in groupby(nbytes, key=nbytes.__getitem__):
        names = [*group]
        parts.append(f"{format_bytes(count)} {'each of' if names[1:] else 'of'} {' '.join(names)}")
    return ", ".join(parts)


def given_in_words(outline: Outline) -> str:
    """Return where inputs of a chain lie before, as a sentence."""
    lies = ", ".join(f"{name} in {text}" for name, text in outline.given.items())
    return f"Inputs start as given, {lies}; each is moved to its layout."


def _layouts(points: Assignments, best: Choice) -> Table:
    """Return the layout of each group of tensors."""
    table = grid(("layout", "tensors of the best"), folds=["tensors of the best"])
    by_layout: dict[str, list[str]] = {}
    for names in points.groups:
        by_layout.setdefault(best.layouts[names[0]], []).extend(names)
    for layout, tensors in by_layout.items():
        table.add_row(layout, " ".join(tensors))
    return table


def _ranking(points: Assignments, result: Found) -> Table:
    """Return the best assignments by their differences from the best; those of equal numbers are one row."""
    spread = any(low < high for low, high in map(result.sure.range, result.ranged))
    figures = ("makespan", *(["range"] if spread else []), "of peak", "memory")
    table = grid(("#", *figures, "layouts"), figures, folds=["layouts"])

    def numbers(placed: tuple[int, Choice]) -> tuple[str, ...]:
        choice = placed[1]
        ranged = spread and result.is_ranged(choice)  # else it was not simulated at its ends
        ends = range_in_words(choice.makespan_s, result.sure.range(choice)) if ranged else ""
        of_range = [ends] if spread else []
        peak = percent(choice.fraction_of_peak, 1) if choice.fraction_of_peak >= 0 else "no flop"
        return format_seconds(choice.makespan_s), *of_range, peak, format_bytes(choice.memory_bytes)

    for cells, alike in groupby(enumerate(result.top, 1), key=numbers):
        places, choices = zip(*alike, strict=True)
        first, last = places[0], places[-1]
        of_best = _differing(points, result.top[0], choices[:1])
        words = ", ".join(f"{name} {choices[0].layouts[name]}" for name in of_best) or "as above"
        if last > first:
            others = _differing(points, choices[0], choices[1:])
            by = f"layouts of {', '.join(others)}" if others else "movement"
            words += f"; {last - first} more by other {by}"
        table.add_row(
            str(first) if first == last else f"{first} to {last}",
            *cells,
            words,
            style="bold" if first == 1 else "",
        )
    return table


def _differing(points: Assignments, one: Choice, others: Sequence[Choice]) -> list[str]:
    """Return the first tensor of each group that others lay out differently from one."""
    names = [group[0] for group in points.groups]
    return [x for x in names if any(other.layouts[x] != one.layouts[x] for other in others)]


def _beside(seconds: float, best: float) -> str:
    return f"{format_seconds(seconds)}, {seconds / best:.2f}x"

"""What a search over a chain's layouts found: the best assignments, and how sure that is."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from umm.space import ChainSpace, FoundChain
from umm.units import format_bytes, format_seconds


def found_chain_record(space: ChainSpace, found: FoundChain) -> dict[str, Any]:
    """Return the best assignments and what they rest on as plain values."""
    outline = space.chain
    counts = {x: getattr(found, x) for x in ("priced", "pruned", "simulated", "proven", "gap")}
    return {
        "problem": {
            "chain": outline.name,
            "tensors": {x.name: [x.rows, x.cols] for x in outline.tensors},
            "ranks": space.ranks,
            "alike": [list(x) for x in space.groups],
            "stationary": "auto",
        },
        "machine": found.machine,
        "memory_limit_bytes": found.limit,
        **counts,
        "named": found.named,
        "top": [x.to_dict() for x in found.top],
    }


def print_chain_leaderboard(console: Console, space: ChainSpace, found: FoundChain) -> None:
    """Print the best assignments, fastest first, the chain's own layouts beside them, and the proof."""
    console.print(f"{space.chain}; {space.ranks} ranks on {found.machine}")
    console.print(f"At most {format_bytes(found.limit)} a rank; stationary auto.")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("#", no_wrap=True)
    for names in space.groups:
        table.add_column(" ".join(names), overflow="fold")
    for header in ("makespan", "of peak", "memory"):
        table.add_column(header, justify="right", no_wrap=True)
    for place, choice in enumerate(found.top, 1):
        layouts = [choice.layouts[names[0]] for names in space.groups]
        facts = [
            format_seconds(choice.makespan_s),
            f"{100 * choice.fraction_of_peak:.1f} %",
            format_bytes(choice.memory_bytes),
        ]
        table.add_row(str(place), *layouts, *facts, style="bold" if place == 1 else "")
    console.print(table)
    best = found.top[0].makespan_s
    for name, seconds in found.named.items():
        beside = "does not fit" if seconds is None else f"{format_seconds(seconds)}, {seconds / best:.2f}x"
        console.print(f"{name}: {beside}")
    sure = "Proven best" if found.proven else f"Not proven, within {100 * found.gap:.2g} %"
    console.print(
        Text(
            f"{sure}: {found.priced} assignments priced, {found.pruned} pruned, {found.simulated} simulated.",
            style="bold",
        )
    )

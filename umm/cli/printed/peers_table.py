"""The universal algorithm and its peers as a table, and as plain values."""

from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.printed.chain_leaderboard import given_in_words
from umm.cli.printed.report import program_record
from umm.problem import MATRICES
from umm.space.peers.chains import BEST, ChainPeers
from umm.space.peers.contender import Figures, Row
from umm.space.peers.table import Peers
from umm.units import format_bytes, format_seconds

CHAIN_LINE = "{:<16} {:>10} {:>10} {:>11} {:>12}"
LINE = "{:<12} {:>10} {:>10} {:>10} {:>11} {:>12}"


def peers_record(found: Peers) -> dict[str, Any]:
    """Return the rows, the verdict and where it changes as plain values."""
    free, crossover = found.anywhere, found.crossover
    return {
        "problem": program_record(found.start),
        "machine": found.machine.name,
        "memory_limit_bytes": found.limit,
        "rows": [row.to_dict() for row in found.rows],
        "refused": dict(found.refused),
        "anywhere": None if free is None else free.to_dict(),
        "verdict": found.verdict,
        "crossover": crossover and {"m": crossover.m, "below": crossover.below, "from": crossover.above},
        "stretches": [vars(x) for x in found.stretches],
    }


def print_peers(console: Console, found: Peers, refused: bool) -> None:
    """Print where operands start, two lines for every row, and what to do.

    Args:
        console: Where to.
        found: What was found.
        refused: Whether those that cannot serve are listed too.
    """
    start = found.start
    console.print(
        f"C = AB with m={start.m}, n={start.n}, k={start.k}, {start.types}, {start.p} ranks on "
        f"{found.machine.name}\nFrom A {start.a}, B {start.b} to C {start.c}; at most "
        f"{format_bytes(found.limit)} a rank."
    )
    header = LINE.format("", "time", "own", "exposed", "moved", "memory")
    console.print(Text(header, style="dim"))
    for row in found.rows:
        style = "bold" if row is found.best else "" if row.fits else "dim"
        times = format_seconds(row.makespan_s), format_seconds(row.own_s)
        cells = (row.algorithm, *times, *_moved_and_held(row))
        console.print(Text(LINE.format(*cells).rstrip(), style=style))
        console.print(Text(f"  {_choices(row, found)}", style="dim"))
    console.print("own: if A, B and C lay as the row multiplies them.")
    if not all(row.fits for row in found.rows):
        console.print("*: more than a rank may hold.")
    if refused:
        for name, why in found.refused.items():
            console.print(f"{name} cannot serve: {why}")
    elif found.refused:
        console.print(f"Cannot serve: {', '.join(found.refused)}; --refused tells why.")
    free = found.anywhere
    if free is not None:
        console.print(f"If they lay where they liked best: {free}.")
    console.print(Text(found.verdict, style="bold"))


def chain_record(found: ChainPeers) -> dict[str, Any]:
    """Return the rows of a chain, the verdict and where it changes as plain values."""
    crossover = found.crossover
    return {
        "problem": {
            "chain": found.outline.name,
            "ranks": found.ranks,
            "given": dict(found.outline.given),
        },
        "machine": found.machine.name,
        "memory_limit_bytes": found.limit,
        "rows": [row.to_dict() for row in found.rows],
        "proven": found.proven,
        "verdict": found.verdict,
        "crossover": crossover and {"tokens": crossover.m, "below": crossover.below, "from": crossover.above},
        "stretches": [vars(x) for x in found.stretches],
    }


def print_chain(console: Console, found: ChainPeers) -> None:
    """Print two lines for every row of a chain, the second with its layouts, and which is fastest."""
    console.print(f"{found.outline}; {found.ranks} ranks on {found.machine.name}")
    if found.outline.given:
        console.print(given_in_words(found.outline))
    sure = "proven best of its space" if found.proven else "not proven best"
    console.print(f"At most {format_bytes(found.limit)} a rank; {BEST} is {sure}.")
    console.print(Text(CHAIN_LINE.format("", "time", "exposed", "moved", "memory"), style="dim"))
    for row in found.rows:
        style = "bold" if row is found.best else "" if row.fits else "dim"
        cells = (row.algorithm, format_seconds(row.makespan_s), *_moved_and_held(row))
        console.print(Text(CHAIN_LINE.format(*cells).rstrip(), style=style))
        alike: dict[str, list[str]] = {}
        for name, layout in row.scheme.layouts.items():
            alike.setdefault(layout, []).append(name)
        lies = "; ".join(f"{layout}: {' '.join(names)}" for layout, names in alike.items())
        console.print(Text(f"  {lies}", style="dim"))
    console.print(Text(found.verdict, style="bold"))


def _moved_and_held(row: Figures) -> tuple[str, str, str]:
    held = format_bytes(row.memory_bytes) + ("" if row.fits else " *")
    return format_seconds(row.exposed_s), format_bytes(row.bytes), held


def _choices(row: Row, found: Peers) -> str:
    """Return where a row multiplies what lies elsewhere, and how."""
    layouts = zip(MATRICES, found.start.layouts, (row.a, row.b, row.c), strict=True)
    moved = [f"{name} in {then}" for name, now, then in layouts if str(now) != then]
    return "; ".join(x for x in (", ".join(moved) or "all where they lie", row.how) if x)

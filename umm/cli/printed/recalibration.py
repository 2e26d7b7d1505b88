"""What a new machine file changes against the one it replaces: numbers, and decisions for a few problems."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from umm.machines.changes import Change
from umm.space.choice import Choice
from umm.space.what_if.flips import Decision

MOST = 16  # numbers that are shown


def decision_record(decision: Decision) -> dict[str, Any]:
    """Return a decision as plain values."""
    return {
        "problem": dict(zip("mnk", decision.problem, strict=True)),
        "before": decision.before.to_dict(),
        "after": decision.after.to_dict(),
        "costs": decision.costs,
        "flips": decision.flips,
    }


def print_changes(console: Console, found: Sequence[Change]) -> None:
    """Print the numbers that changed by more than they are unsure, and count the others."""
    sure = [change for change in found if change.sure]
    within = len(found) - len(sure)
    if not sure:
        console.print(f"Nothing changed beyond its uncertainty; {within} numbers within it.")
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in ("changed", "before", "now", "times"):
        table.add_column(column, overflow="fold", justify="right" if column == "times" else "left")
    for change in sure[:MOST]:
        factor = "" if change.factor is None else f"{change.factor:.3g}"
        table.add_row(change.key.removeprefix("devices."), change.before, change.after, factor)
    console.print(table)
    more = f"{len(sure) - MOST} more changed; " if len(sure) > MOST else ""
    console.print(f"{more}{within} other numbers changed within their uncertainty.")


def print_decisions(console: Console, found: Sequence[Decision]) -> None:
    """Print for each problem whether the new file chooses other layouts, and what the old ones would cost."""
    for decision in found:
        m, n, k = decision.problem
        head = f"{m}x{n}x{k}"
        if not decision.flips:
            console.print(f"{head}: still {_words(decision.before)}")
            continue
        longer = 100 * (decision.costs - 1)
        console.print(
            f"{head}: now {_words(decision.after)}; before {_words(decision.before)}, "
            f"which takes {longer:.2g} % longer"
        )


def _words(choice: Choice) -> str:
    return f"{choice.words}, stationary {choice.kept}"

"""Search the cases, and write their rows and tables."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.chains.cases import NAMED, Case, blocks, layers
from umm.space import Found

Searched = tuple[Case, Found | None, float]
HERE = Path(__file__).parent
SHOWN = "device"  # the memory of the cases in the tables
HEADER = ("chain", "model", "machine", "tokens", "memory", "best_s", "gap", "simulated", "search_cpu_s")


def main() -> None:
    """Search all cases, or those of the tables that are named; write CSV and tables as they are found."""
    kinds = {"blocks": blocks, "layers": layers}
    for name in sys.argv[1:] or kinds:
        result: list[Searched] = []
        for case in kinds[name]():
            result.append((case, *case.found()))
            print(*_row(*result[-1]), flush=True)
            _write(name, result)


def _write(name: str, result: Sequence[Searched]) -> None:
    page = HERE / "README.md"
    start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    before, rest = page.read_text(encoding="utf-8").split(start)
    page.write_text(
        before + start + _table([x for x in result if x[0].memory == SHOWN]) + end + rest.split(end)[1],
        encoding="utf-8",
    )
    with (HERE / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [(*HEADER, *NAMED), *(_row(*x) for x in result)]
        csv.writer(file, lineterminator="\n").writerows(rows)


def _row(case: Case, result: Found | None, seconds: float) -> list[object]:
    asked = [case.chain, case.model, case.machine, case.tokens, case.memory]
    if result is None:
        return [*asked, "", "", 0, f"{seconds:.1f}", *("" for _ in NAMED)]
    best = [f"{result.top[0].makespan_s:.6g}", f"{result.gap:.3g}", result.simulated, f"{seconds:.1f}"]
    named = (result.named.get(name) for name in NAMED)
    return [*asked, *best, *("" if x is None else f"{x:.6g}" for x in named)]


def _beside(result: Found, name: str) -> str:
    """Return how much longer than the best some layouts take; at least, if there was no time for them."""
    best = result.top[0].makespan_s
    if name in result.left_out:
        return f"≥ {result.left_out[name] / best:.2f}x"
    seconds = result.named[name]
    return "–" if seconds is None else f"{seconds / best:.2f}x"


def _table(results: Sequence[Searched]) -> str:
    """Return cases as Markdown: the best, how sure, its layouts, and the named ones beside it."""
    lines = [f"| case | best, ms | how sure | {' | '.join(NAMED)} | layouts of the best |", "|---" * 8 + "|"]
    for case, result, _ in results:
        chain = f"{case.chain} {case.model}, " if case.model else ""
        name = f"{chain}{case.machine}, {case.tokens}"
        if result is None:
            lines.append(f"| {name} | nothing fits |" + " |" * 6)
            continue
        best = result.top[0]
        sure = "proven" if result.proven else f"within {100 * result.gap:.0f} %"
        beside = [_beside(result, x) for x in NAMED]
        lies = {
            x: best.layouts[x] for x in ("X", "Y", "H", "H1", "W1", "W2", "Wq", "Wo") if x in best.layouts
        }
        texts = " ".join(f"{x}:{text}" for x, text in lies.items())
        lines.append(f"| {name} | {1e3 * best.makespan_s:.3f} | {sure} | {' | '.join(beside)} | {texts} |")
    return "\n".join(lines) + "\n"

"""``python -m experiments serve``: measured deployments beside predictions; ``--write`` keeps the figures."""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from statistics import median

import umm
from experiments.ledger import with_part
from umm.machines import Machine
from umm.program.models import find_model
from umm.serve.deployment import Deployment
from umm.serve.serve import rates_of, serve

HERE = Path(__file__).parent


@lru_cache
def machine(name: str, engine: str) -> Machine:
    """Return a machine with an engine's kernels."""
    return umm.machine(name, kernels=engine)


def ratios() -> Iterator[tuple[str, float, float, bool]]:
    """Yield each row's group, predicted over measured TPOT and TTFT, and whether the range holds TPOT."""
    with (HERE / "deployments.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            sizes = {
                x: int(row[x])
                for x in ("input", "output", "concurrency", "tp", "attention_dp", "moe_tp", "ep")
            }
            deployment = Deployment(**sizes, precision=row["precision"])
            model = find_model(row["model"])
            rates = rates_of(model, machine(row["machine"], row["engine"]), deployment, row["engine"])
            result = serve(model, deployment, rates)
            tpot, ttft = float(row["tpot_ms"]) / 1e3, float(row["ttft_ms"]) / 1e3
            low, high = result.tpot_range
            group = f"{row['published']}, {row['engine']}, {row['machine']}, {row['precision']}"
            yield group, result.tpot / tpot, result.ttft / ttft, low <= tpot <= high


def report() -> Iterator[str]:
    """Yield the table and its last line."""
    groups = defaultdict[str, list[tuple[float, float, bool]]](list)
    for group, *values in ratios():
        groups[group].append(tuple(values))  # type: ignore[arg-type]
    yield "| deployment | rows | TPOT, median | mean error | in range | TTFT, median |\n"
    yield "|---|---|---|---|---|---|\n"
    for group, rows in sorted(groups.items()):
        tpots, ttfts, inside = zip(*rows, strict=True)
        error = sum(abs(x - 1) for x in tpots) / len(tpots)
        yield f"| {group} | {len(rows)} | {median(tpots):.2f} | {error:.0%} | {sum(inside)} "
        yield f"| {median(ttfts):.2f} |\n"
    every = [x for rows in groups.values() for x, *_ in rows]
    errors = [abs(x - 1) for x in every]
    yield (
        f"\nTPOT of {len(every)} deployments: mean error {sum(errors) / len(errors):.0%}, "
        f"median {median(errors):.0%}, {sum(x < 0.25 for x in errors)} within 25 %.\n"
    )


def main() -> None:
    """Print the figures, or write them into README.md."""
    parser = argparse.ArgumentParser(prog="python -m experiments serve", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write README.md")
    text = "".join(report())
    if parser.parse_args().write:
        page = HERE / "README.md"
        page.write_text(with_part(page.read_text(encoding="utf-8"), "figures", text), encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()

"""``python -m experiments serve``: measured deployments beside predictions; ``--write`` keeps the figures."""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import umm
from experiments.ledger import with_part
from umm.errors import ProblemError
from umm.machines import Machine
from umm.program.models import find_model
from umm.program.models.layers import Model
from umm.serve.deployment import Deployment
from umm.serve.rates import find_engine
from umm.serve.serve import rates_of, serve

HERE = Path(__file__).parent
APART = 1.1
FAR = 0.15  # groups with larger errors are shown
"""Ratio of two times from which their order counts."""

BACKENDS = {("sglang", x): "sglang+trtllm_mha" for x in ("b200-8", "b300-8")}
"""Backends of attention that deployments ask for (SemiAnalysisAI/InferenceX, benchmarks/single_node)."""


class Row(NamedTuple):
    """A measured deployment beside its prediction.

    Attributes:
        group: Model, engine, machine, precision and split.
        question: All but the split: model, engine, machine, precision, lengths, requests, ranks.
        version: Of the engine; empty where it was not published.
        measured: Seconds of a further token.
        fitted: Whether numbers of engines were chosen on it.
        tpot: Predicted over measured time of a further token; 0 where there is no answer.
        ttft: The same of the first.
        inside: Whether the range holds the time of a further token.
    """

    group: str
    question: str
    version: str
    measured: float
    fitted: bool
    tpot: float = 0.0
    ttft: float = 0.0
    inside: bool = False


@lru_cache
def machine(name: str, engine: str) -> Machine:
    """Return a machine with an engine's kernels."""
    return umm.machine(name, kernels=engine)


@lru_cache
def model(name: str) -> Model:
    """Return a preset, or the model of a file of this folder."""
    return find_model(str(HERE / name) if name.endswith(".json") else name)


def rows() -> Iterator[Row]:
    """Yield each measured deployment with its prediction."""
    with (HERE / "deployments.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names = ("input", "output", "concurrency", "tp", "attention_dp", "moe_tp", "ep")
            bits = find_engine(row["engine"]).cache_bits(row["precision"])
            deployment = Deployment(
                **{x: int(row[x]) for x in names}, precision=row["precision"], cache_bits=bits
            )
            split = "attention DP" if deployment.attention_dp > 1 else "EP" if deployment.ep > 1 else "TP"
            group = f"{row['published']}, {row['engine']}, {row['machine']}, {row['precision']}, {split}"
            fitted, tpot = row["fitted"] == "yes", float(row["tpot_ms"]) / 1e3
            names = ("published", "engine", "machine", "precision", "input", "output", "concurrency")
            question = " ".join([*(row[x] for x in names), str(deployment.ranks)])
            known = (group, question, row["version"], tpot, fitted)
            try:
                where = machine(row["machine"], BACKENDS.get((row["engine"], row["machine"]), row["engine"]))
                rates = rates_of(model(row["model"]), where, deployment, row["engine"])
            except ProblemError:  # ranks that do not divide the experts
                yield Row(*known)
                continue
            result = serve(model(row["model"]), deployment, rates)
            (low, high), ttft = result.tpot_range, float(row["ttft_ms"]) / 1e3
            yield Row(*known, result.tpot / tpot, result.ttft / ttft, low <= tpot <= high)


def pairs(every: Sequence[Row], versions: int) -> tuple[int, int]:
    """Return the pairs of splits of one question, over 10 % apart, whose order is right, and all of them.

    Args:
        every: Deployments; what one version measured twice counts by its mean.
        versions: Of the engine in a pair: 1 if both are of the same, which is published, else 2.
    """
    repeats = defaultdict[tuple[str, str, str], list[Row]](list)
    for row in every:
        if row.tpot:
            repeats[row.question, row.group, row.version].append(row)
    questions = defaultdict[str, list[tuple[Row, float, float]]](list)
    for some in repeats.values():
        ours = fmean(x.measured * x.tpot for x in some)
        questions[some[0].question].append((some[0], fmean(x.measured for x in some), ours))
    orders = [
        (measured > measured_too) == (ours > ours_too)
        for some in questions.values()
        for (one, measured, ours), (other, measured_too, ours_too) in combinations(some, 2)
        if one.group != other.group
        and (1 if one.version == other.version != "" else 2) == versions
        and max(measured, measured_too) > APART * min(measured, measured_too)
    ]
    return sum(orders), len(orders)


def repeated(every: Sequence[Row]) -> tuple[int, float, float]:
    """Return how often two versions measured one deployment, and by how much they differ: median, 9 of 10."""
    deployments = defaultdict[tuple[str, str], dict[str, float]](dict)
    for row in every:
        deployments[row.question, row.group][row.version] = row.measured
    apart = sorted(
        max(one, other) / min(one, other) - 1
        for some in deployments.values()
        for one, other in combinations(some.values(), 2)
    )
    return len(apart), median(apart), apart[len(apart) * 9 // 10]


def summary(some: Sequence[Row]) -> str:
    """Return how many rows are answered, and how far off they are."""
    errors = [abs(x.tpot - 1) for x in some if x.tpot]
    return (
        f"{len(errors):,} of {len(some):,} answered, mean error {fmean(errors):.1%}, "
        f"median {median(errors):.1%}, {sum(x < 0.25 for x in errors):,} within 25 %"
    )


def report(full: bool) -> Iterator[str]:
    """Yield a table of the groups whose mean error is above FAR, and the lines on all.

    Args:
        full: Whether the table has all groups.
    """
    groups = defaultdict[str, list[Row]](list)
    for row in rows():
        groups[row.group].append(row)
    yield "| deployment | rows | fitted | TPOT | mean error | in range | TTFT |\n"
    yield "|---|---|---|---|---|---|---|\n"
    shown = 0
    for group, some in sorted(groups.items()):
        answered = [x for x in some if x.tpot]
        error = fmean(abs(x.tpot - 1) for x in answered) if answered else 1.0
        if not full and error <= FAR:
            continue
        shown += 1
        yield f"| {group} | {len(some)} | {sum(x.fitted for x in some)} "
        if not answered:
            yield "| no answer | | | |\n"
            continue
        yield f"| {median(x.tpot for x in answered):.2f} | {error:.0%} "
        yield f"| {sum(x.inside for x in answered)} | {median(x.ttft for x in answered):.2f} |\n"
    if shown < len(groups):
        yield f"\n{len(groups) - shown} further groups have a mean error of at most {FAR:.0%}.\n"
    every = [x for some in groups.values() for x in some]
    yield f"\nTPOT of deployments that nobody fitted: {summary([x for x in every if not x.fitted])}.\n"
    yield f"Of the others: {summary([x for x in every if x.fitted])}.\n"
    count, middle, most = repeated(every)
    for versions, words in (1, "one version"), (2, "two versions"):
        right, apart = pairs(every, versions)
        yield f"\nPairs of splits of one question by {words}, over 10 % apart: {right} of {apart} in order."
    yield f"\nTwo versions differ in one deployment by {middle:.0%} in the median, {most:.0%} in one of ten "
    yield f"({count} times).\n"


def main() -> None:
    """Print the figures, or write them into README.md."""
    parser = argparse.ArgumentParser(prog="python -m experiments serve", description=__doc__)
    parser.add_argument("--write", action="store_true", help="write README.md")
    write = parser.parse_args().write
    text = "".join(report(not write))
    if write:
        page = HERE / "README.md"
        page.write_text(with_part(page.read_text(encoding="utf-8"), "figures", text), encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()

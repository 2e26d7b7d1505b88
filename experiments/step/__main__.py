"""``python -m experiments step``: measured steps beside their predictions.

``--search`` adds the best configuration of each row; ``--write`` puts the figures into README.md.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from math import exp, log
from pathlib import Path
from typing import NamedTuple

import umm
from experiments.ledger import with_part
from umm.machines import Machine
from umm.program.models import find_model
from umm.program.models.layers import Experts, LatentAttention, Layer, Mlp, Model
from umm.step.parallel import Parallel
from umm.step.rates import Rates
from umm.step.search import USABLE, search
from umm.step.step import Step, predict, question, rates_of, with_prediction

HERE = Path(__file__).parent
NODE = {"gb200-nvl72": 72, "gb300-nvl72": 72}
"""Devices of a node; of others 8."""


class Row(NamedTuple):
    """A measured step.

    Attributes:
        name: Model, machine and type.
        stack: Software that ran it.
        measured: Tokens/s a device, or seconds.
        predicted: The same, predicted, over the measured one.
        step: The prediction.
        memory: Predicted bytes over measured ones; 0 where these are unknown.
        search: Best predicted seconds over those of the measured configuration; 0 where it was not searched.
    """

    name: str
    stack: str
    measured: float
    ratio: float
    step: Step
    memory: float = 0.0
    search: float = 0.0


def read(name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of a file."""
    with (HERE / name).open(encoding="utf-8") as file:
        yield from csv.DictReader(file)


@lru_cache
def machine(name: str, ranks: int) -> Machine:
    """Return a machine with enough nodes."""
    nodes = -(-ranks // NODE.get(name, 8))
    return umm.machine(name, nodes=nodes) if nodes > 1 else umm.machine(name)


@lru_cache
def rates(name: str, ranks: int, precision: str, stack: str) -> Rates:
    """Return the prices on a machine; rows share them."""
    return rates_of(machine(name, ranks), precision, stack)


def nvidia(searched: bool) -> Iterator[Row]:
    """Yield NVIDIA's records: Megatron-Bridge, performance summary, by the release that was measured."""
    for row in read("nvidia.csv"):
        sizes = {
            x: int(row[x]) for x in ("ranks", "batch", "micro_batch", "length", "tp", "pp", "cp", "vp", "ep")
        }
        fsdp = int(row["fsdp"])
        parallel = Parallel(
            **sizes, fsdp=fsdp, zero=3 if fsdp else 1, precision=row["precision"],
            schedule="interleaved" if sizes["vp"] > 1 else "1f1b", offload=row["offload"],
            **{x: row[x].replace("+", ",") for x in ("recompute", "keep_bf16")},
        )  # fmt: skip
        stack = row["stack"]
        prices = rates(row["machine"], parallel.ranks, row["precision"], stack)
        model = find_model(row["model"])
        if row["mtp"] != "0":
            model = with_prediction(model, int(row["mtp"]))
        step = predict(question(model, parallel, prices))
        measured = float(row["tokens_per_s"])
        best = 0.0
        if searched:
            given = {x: getattr(parallel, x) for x in ("ranks", "batch", "length", "precision", "keep_bf16")}
            best = (
                search(model, prices, given, USABLE * prices.machine.memory, 1).top[0].seconds / step.seconds
            )
        name = f"{row['model']} {row['machine']} {row['precision']}"
        yield Row(name, stack, measured, step.tokens_per_second / measured, step, search=best)


def deepseek_v2() -> Model:
    """Return DeepSeek-V2 with one dense layer and three of experts, as SimuMax ran it."""
    mixer = LatentAttention(heads=128, head=128, value=128, q_rank=1536, kv_rank=512, rope_dim=64)
    sparse = Layer(mixer, (Experts(experts=160, top_k=6, ffn=1536, shared_ffn=3072),))
    return Model("deepseek-v2", 5120, 102400, (Layer(mixer, (Mlp(12288),)), *[sparse] * 3))


def simumax() -> Iterator[Row]:
    """Yield Megatron's steps on 8 B200 as SimuMax measured them."""
    for row in read("simumax.csv"):
        model = find_model("llama-3-70b") if row["model"] == "llama-3-70b" else deepseek_v2()
        model = replace(model, layers=model.layers[: int(row["layers"])])
        sizes = {x: int(row[x]) for x in ("tp", "pp", "cp", "ep", "length")}
        batch = int(row["micro_batches"]) * 8 // (sizes["tp"] * sizes["pp"] * sizes["cp"])
        prices = rates("b200-8", 8, "bf16", "megatron-plain")
        step = predict(question(model, Parallel(ranks=8, batch=batch, **sizes), prices))
        measured = float(row["measured_ms"]) / 1e3
        memory = step.memory_bytes / 2**30 / float(row["measured_gib"])
        yield Row(row["model"], "megatron-plain", measured, measured / step.seconds, step, memory)


def table(rows: Mapping[str, list[Row]]) -> Iterator[str]:
    """Yield a table: the ratio of predicted and measured rates by group."""
    yield "| group | rows | predicted / measured | mean error | in range |\n|---|---|---|---|---|\n"
    for name, group in rows.items():
        ratios = [x.ratio for x in group]
        inside = sum(
            x.step.seconds / x.step.highest * x.ratio <= 1 <= x.step.seconds / x.step.lowest * x.ratio
            for x in group
        )
        yield (
            f"| {name} | {len(group)} | {exp(sum(map(log, ratios)) / len(ratios)):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {mean_error(ratios):.1%} | {inside} |\n"
        )


def mean_error(ratios: list[float]) -> float:
    """Return the mean of the errors."""
    return sum(abs(x - 1) for x in ratios) / len(ratios)


def in_order(rows: list[Row]) -> tuple[int, int]:
    """Return how many pairs of rows differ by more than 3 %, and how many are predicted in order."""
    pairs = right = 0
    for number, one in enumerate(rows):
        for other in rows[:number]:
            if abs(log(one.measured / other.measured)) > log(1.03):
                pairs += 1
                predicted = (one.measured * one.ratio) > (other.measured * other.ratio)
                right += predicted == (one.measured > other.measured)
    return pairs, right


def report(searched: bool) -> Iterator[str]:
    """Yield the figures of README.md."""
    records, steps = list(nvidia(searched)), list(simumax())
    groups = defaultdict[str, list[Row]](list)
    for row in records:
        groups[row.name].append(row)
    yield from table(groups)
    ratios = [x.ratio for x in records]
    pairs, right = in_order(records)
    yield f"\nNVIDIA's records: mean error {mean_error(ratios):.1%} of {len(ratios)}, "
    yield f"{sum(abs(x - 1) < 0.25 for x in ratios)} within 25 %, {right} of {pairs} pairs in order.\n"
    if searched:
        near = sum(x.search >= 1 / 1.03 for x in records)
        yield f"Its own configuration is within 3 % of the best found in {near} of {len(records)} rows.\n"
    memory = [x.memory for x in steps]
    yield f"SimuMax's steps: mean error of times {mean_error([1 / x.ratio for x in steps]):.1%}, "
    yield f"of memory {mean_error(memory):.1%} of {len(steps)}.\n"


def main() -> None:
    """Print the figures, or write them."""
    parser = argparse.ArgumentParser(prog="python -m experiments step", description=__doc__)
    parser.add_argument("--search", action="store_true", help="search each row's own best configuration")
    parser.add_argument("--write", action="store_true", help="write README.md")
    options = parser.parse_args()
    text = "".join(report(options.search or options.write))
    if options.write:
        page = HERE / "README.md"
        page.write_text(with_part(page.read_text(encoding="utf-8"), "figures", text), encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()

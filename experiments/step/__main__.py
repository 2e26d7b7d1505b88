"""``python -m experiments step``: measured steps beside their predictions.

``--search`` adds the best configuration of each row; ``--write`` puts the figures into README.md. With a
FOLDER of measured rows, published steps of other software are predicted too.
"""

import argparse
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import umm
from experiments.ledger import with_part
from experiments.step.published import Published, published
from umm.machines import Machine
from umm.program.models import find_model
from umm.program.models.layers import Experts, LatentAttention, Layer, Mlp, Model
from umm.step.parallel import Parallel
from umm.step.rates import Rates
from umm.step.search import search, usable_memory
from umm.step.step import Question, Step, predict, question, rates_of, simulated, with_prediction

FAR = 0.1  # groups with larger errors are shown
CLOCKS = [0.45 + 0.02 * i for i in range(21)]
"""Clocks under load, as shares, that leaving a model out chooses from."""
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
        best: Sizes of that best.
        near: Whether that is within 3 % of a configuration that any release published for the same question.
    """

    name: str
    stack: str
    measured: float
    ratio: float
    step: Step
    memory: float = 0.0
    search: float = 0.0
    best: str = ""
    near: bool = False


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


class Asked(NamedTuple):
    """A configuration that was measured, in one release or several."""

    model: str
    machine: str
    stack: str
    mtp: int
    parallel: Parallel

    @property
    def name(self) -> str:
        """Model, machine and type."""
        return f"{self.model} {self.machine} {self.parallel.precision}"

    @property
    def prices(self) -> Rates:
        """The prices on its machine."""
        return rates(self.machine, self.parallel.ranks, self.parallel.precision, self.stack)

    def question(self, clock: float = 0.0) -> Question:
        """Return the question to predict, with another clock of the chip if one is given."""
        model = find_model(self.model)
        prices = self.prices
        if clock:
            prices = replace(prices, load=replace(prices.load, clock=clock), layers={}, _known={})
        return question(with_prediction(model, self.mtp) if self.mtp else model, self.parallel, prices)

    @property
    def given(self) -> dict[str, Any]:
        """The arguments of a search of its best."""
        return {x: getattr(self.parallel, x) for x in ("ranks", "batch", "length", "precision", "keep_bf16")}

    def laid_out(self) -> "Asked":
        """Return the same with stages cut as a search cuts them."""
        return self._replace(parallel=replace(self.parallel, chunk_layers=0))

    def searched(self) -> tuple[float, str, bool]:
        """Return the fields of :class:`Row` from ``search`` on."""
        given = self.given
        asked = self.laid_out().question()
        best = search(asked.model, self.prices, given, usable_memory(asked.machine), 1).top[0]
        sizes = best.parallel
        again = "" if sizes.recompute == "none" else f", {sizes.recompute} again"
        away = "" if sizes.offload == "none" else f", {sizes.offload} in the host's memory"
        published = [
            simulated(self._replace(parallel=x.laid_out().parallel).question())
            for x in records()
            if (x.model, x.machine, x.mtp, x.given) == (self.model, self.machine, self.mtp, given)
        ]
        near = any(is_near(best.seconds / x) for x in published)
        return best.seconds / simulated(asked), sizes.words() + again + away, near


def is_near(ratio: float) -> bool:
    """Return whether two times are within 3 %, either way."""
    return 1 / 1.03 <= ratio <= 1.03


@lru_cache
def records() -> dict[Asked, list[float]]:
    """Return NVIDIA's records by configuration: Megatron-Bridge, performance summary, tokens/s a device."""
    result = defaultdict[Asked, list[float]](list)
    for row in read("nvidia.csv"):
        sizes = {
            x: int(row[x]) for x in ("ranks", "batch", "micro_batch", "length", "tp", "pp", "cp", "vp", "ep")
        }
        fsdp = int(row["fsdp"])
        parallel = Parallel(
            **sizes, fsdp=fsdp, zero=3 if fsdp else 1, precision=row["precision"],
            schedule="interleaved" if sizes["vp"] > 1 else "1f1b", offload=row["offload"],
            **{x: row[x].replace("+", ",") for x in ("recompute", "keep_bf16")},
            chunk_layers=int(row["chunk_layers"]),
        )  # fmt: skip
        asked = Asked(row["model"], row["machine"], row["stack"], int(row["mtp"]), parallel)
        result[asked].append(float(row["tokens_per_s"]))
    return result


def nvidia(searched: bool) -> Iterator[Row]:
    """Yield NVIDIA's records."""
    for asked, rows in records().items():
        step = predict(asked.question())
        best = asked.searched() if searched else (0.0, "", False)
        for measured in rows:
            ratio = step.tokens_per_second / measured
            yield Row(asked.name, asked.stack, measured, ratio, step, 0.0, *best)


def left_out() -> Iterator[tuple[str, str, list[float]]]:
    """Yield chip, model, and its ratios with the clock that fits the chip's other models best."""
    ratios = defaultdict[str, dict[str, list[list[float]]]](dict)
    for asked, rows in records().items():
        p = asked.parallel
        for number, clock in enumerate(CLOCKS):
            rate = p.batch * p.length / p.ranks / simulated(asked.question(clock))
            grid = ratios[asked.machine].setdefault(asked.model, [[] for _ in CLOCKS])
            grid[number] += [rate / x for x in rows]
    for chip, models in ratios.items():
        for model, grid in models.items():
            others = [
                [x for name, m in models.items() if name != model for x in m[i]] for i in range(len(CLOCKS))
            ]
            if others[0]:
                best = min(range(len(CLOCKS)), key=lambda i: mean_error(others[i]))
                yield chip, model, grid[best]


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
    """Yield a table: the ratio of predicted and measured rates, of groups whose mean error is above FAR."""
    yield "| group | rows | predicted / measured | mean error | in range |\n|---|---|---|---|---|\n"
    shown = 0
    for name, group in rows.items():
        ratios = [x.ratio for x in group]
        if mean_error(ratios) <= FAR:
            continue
        shown += 1
        inside = sum(x.step.lowest <= x.step.seconds * x.ratio <= x.step.highest for x in group)
        yield (
            f"| {name} | {len(group)} | {exp(sum(map(log, ratios)) / len(ratios)):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f}) | {mean_error(ratios):.1%} | {inside} |\n"
        )
    yield f"\n{len(rows) - shown} further groups have a mean error of at most {FAR:.0%}.\n"


def mean_error(ratios: list[float]) -> float:
    """Return the mean of the errors."""
    return sum(abs(x - 1) for x in ratios) / len(ratios)


def stated(ratios: list[float]) -> str:
    """Return the mean error and how many are within 25 %."""
    near = sum(abs(x - 1) < 0.25 for x in ratios)
    return f"mean error {mean_error(ratios):.1%} of {len(ratios)}, {near} within 25 %"


def ordered(rows: Sequence[Row | Published]) -> str:
    """Return how many of the pairs of rows that differ by more than 3 % are predicted in order."""
    pairs = right = 0
    for number, one in enumerate(rows):
        for other in rows[:number]:
            if abs(log(one.measured / other.measured)) > log(1.03):
                pairs += 1
                predicted = (one.measured * one.ratio) > (other.measured * other.ratio)
                right += predicted == (one.measured > other.measured)
    return f"{right} of {pairs} pairs in order"


def correlations(rows: list[Row]) -> Iterator[str]:
    """Yield Spearman's correlation of predicted and measured rates by model and by system.

    A configuration is one point, with the mean of its releases; groups of two points are left out, and
    configurations that a device cannot hold, which cannot have run.
    """
    means = defaultdict[tuple[str, Parallel, str], list[Row]](list)
    for row in rows:
        p = row.step.parallel
        if row.step.memory_bytes <= machine(row.name.split()[1], p.ranks).load.visible_memory:
            means[row.name, p, row.stack].append(row)
    points = [
        (*name.split()[:2], sum(x.measured for x in group) / len(group), group[0].measured * group[0].ratio)
        for (name, _, _), group in means.items()
    ]
    for place, word in enumerate(("model", "system")):
        groups = defaultdict[str, list[tuple[float, float]]](list)
        for *names, measured, predicted in points:
            groups[str(names[place])].append((float(measured), float(predicted)))
        values = (
            f"{name} {spearman(group):.2f} of {len(group)}"
            for name, group in groups.items()
            if len(group) > 2
        )
        yield f"Rank correlation by {word}, of configurations that fit: {', '.join(values)}.\n"


def spearman(pairs: list[tuple[float, float]]) -> float:
    """Return Spearman's rank correlation of pairs.

    >>> spearman([(1.0, 10.0), (2.0, 20.0), (3.0, 15.0)])
    0.5
    """
    columns = np.array(pairs).T[:, :, None]
    # Ties share the mean of their ranks.
    ranks = (columns > columns.transpose(0, 2, 1)).sum(2) - (columns < columns.transpose(0, 2, 1)).sum(2)
    return float(np.corrcoef(ranks)[0, 1])


def held(ranges: list[tuple[float, float, float]]) -> str:
    """Return how many ratios lie in their range, and the ranges' median width."""
    widths = sorted(high - low for low, _, high in ranges)
    inside = sum(low <= ratio <= high for low, ratio, high in ranges)
    return f"Ranges hold {inside} of {len(ranges)}; their median width is {widths[len(widths) // 2]:.0%}.\n"


def range_of(step: Step, ratio: float) -> tuple[float, float, float]:
    """Return a step's range and a ratio of predicted and measured rates, over its seconds."""
    return step.lowest / step.seconds, ratio, step.highest / step.seconds


def report(searched: bool, folder: Path | None) -> Iterator[str]:
    """Yield the figures of README.md."""
    rows, steps = list(nvidia(searched)), list(simumax())
    groups = defaultdict[str, list[Row]](list)
    for row in rows:
        groups[row.name].append(row)
    yield from table(groups)
    ratios = [x.ratio for x in rows]
    yield f"\nNVIDIA's records: {stated(ratios)}, {ordered(rows)}.\n"
    yield from correlations(rows)
    ranges = [range_of(x.step, x.ratio) for x in rows]
    yield held(ranges)
    if searched:
        near, of_row = sum(x.near for x in rows), sum(is_near(x.search) for x in rows)
        yield "The best found is within 3 % of a configuration of NVIDIA's for the same model, system, GPUs, "
        yield f"type and batch in {near} of {len(rows)} rows, of the row's own in {of_row}. "
        yield "The others, once each:\n\n| row | NVIDIA's | predicted best | its time |\n|---|---|---|---|\n"
        others = {(x.name, x.step.parallel): x for x in rows if not x.near}
        for (name, p), row in others.items():
            yield f"| {name} | {p.words()} | {row.best} | {row.search:.2f} |\n"
        alone = {f"{model} {chip}": values for chip, model, values in left_out()}
        worst = max(alone, key=lambda x: mean_error(alone[x]))
        every = [x for some in alone.values() for x in some]
        yield f"\nModels left out of their chip's clock: {stated(every)}; "
        yield f"at worst {worst}, {mean_error(alone[worst]):.1%}.\n"
    memory = [x.memory for x in steps]
    yield f"SimuMax's steps: mean error of times {mean_error([1 / x.ratio for x in steps]):.1%}, "
    yield f"of memory {mean_error(memory):.1%} of {len(steps)}.\n"
    if folder is not None:
        steps_of_others = list(published(folder))
        yield (
            "Published steps of llm-foundry and torchtitan: "
            f"{stated([x.ratio for x in steps_of_others])}, {ordered(steps_of_others)}. "
        )
        ranges_of_others = [range_of(x.step, x.ratio) for x in steps_of_others]
        yield held(ranges_of_others)
        yield f"Together: {held(ranges + ranges_of_others)}"


def main() -> None:
    """Print the figures, or write them."""
    parser = argparse.ArgumentParser(prog="python -m experiments step", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="the measured rows")
    parser.add_argument("--search", action="store_true", help="search each row's own best configuration")
    parser.add_argument("--write", action="store_true", help="write README.md")
    options = parser.parse_args()
    text = "".join(report(options.search or options.write, options.folder))
    if options.write:
        page = HERE / "README.md"
        page.write_text(with_part(page.read_text(encoding="utf-8"), "figures", text), encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()

"""Muon's placements as others measured them, and as they are predicted: their order, and times where stated.

Most threads state neither shapes nor models. There the order is predicted for public models that stand in,
and has to be right for every one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

import umm
from umm.muon.placements import DUPLICATED, GRAM, OWNERS, Costs
from umm.muon.planning import plan
from umm.muon.weights import matrices
from umm.program.models import find_model
from umm.step.step import rates_of
from umm.units import counted

STAND_INS = ("qwen3-235b-a22b", "deepseek-v3", "qwen3-30b-a3b")
"""Mixtures of experts of 30 to 671 billion parameters, as the threads train."""
Seconds = dict[str, float]


class Set(NamedTuple):
    """Placements that somebody measured together.

    Attributes:
        source: Pull request or issue.
        states: Parts of the question that the source has.
        measured: Milliseconds by placement; 0 where only that nothing moves is stated.
        predicted: Yields the seconds of the same for each stand-in, or once where shapes are stated.
        timed: Whether shapes and machine are stated, so that times count.
    """

    source: str
    states: str
    measured: Seconds
    predicted: Callable[[], Iterator[Seconds]]
    timed: bool = False


def costs(machine: str, **options: object) -> Costs:
    """Return the prices on a machine."""
    return Costs(rates_of(umm.machine(machine), "bf16"), **options)  # type: ignore[arg-type]


def stand_ins(machine: str, grid: str, names: tuple[str, ...]) -> Callable[[], Iterator[Seconds]]:
    """Return a function that yields each stand-in's seconds of some placements."""

    def predicted() -> Iterator[Seconds]:
        for name in STAND_INS:
            every, prices = matrices(find_model(name)), costs(machine)
            rows = {x.placement: x.seconds for x in plan(every, grid, prices).rows}
            if GRAM in names:
                # Megatron-LM's mode of dense weights alone: it keeps experts duplicated (pull request 6664).
                dense = plan([x for x in every if x.each == 1], grid, prices, only=GRAM).rows[-1]
                experts = plan([x for x in every if x.each > 1], grid, prices, only=DUPLICATED).rows[-1]
                rows[GRAM] = dense.seconds + experts.seconds
            yield {placement: rows[placement] for placement in names}

    return predicted


def experts_in_place() -> Iterator[Seconds]:
    """Yield the compute of all experts of a layer on each of four ranks, and of a fourth of them on each."""
    for name in STAND_INS:
        every = [x for x in matrices(find_model(name)) if x.each > 1]
        layer = [replace(x, layers=1) for x in every]
        gathered = plan(layer, "fsdp4", costs("h100-8"), only=DUPLICATED).rows[-1].busiest
        yield {
            "gathered": gathered,
            "in place": sum(costs("h100-8").compute(*x.sides, x.each // 4) * x.each / 4 for x in layer),
        }


def batched() -> Iterator[Seconds]:
    """Yield 74 matrices of 24 x 10240, one after another and in batches."""
    yield {
        name: 74 * costs("h100-8", batch=batch).compute(24, 10240, 74)
        for name, batch in (("alone", 1), ("batched", 74))
    }


def resident() -> Iterator[Seconds]:
    """Yield weights that live with their owners, and those that every rank gathers."""
    for name in STAND_INS:
        every = matrices(find_model(name))
        owned = plan(every, "fsdp8", costs("h100-8", resident=True), only=OWNERS).rows[-1]
        copies = plan(every, "fsdp8", costs("h100-8"), only=DUPLICATED).rows[-1]
        yield {"owned, moved": owned.moved, "gathered, moved": copies.moved}


def on_grams() -> Iterator[Seconds]:
    """Yield Newton-Schulz steps as usual, and on X·Xᵀ with one triangle computed where matrices are long."""
    weights = matrices(find_model("qwen3-30b-a3b"))
    for machine in ("h100-8", "h200-8", "b200-8"):
        usual, gram = costs(machine, batch=32), costs(machine, batch=32, optimizer="muon-gram", syrk=True)

        def total(price: Costs, long: Costs) -> float:
            # The thread leaves matrices up to twice as long as wide to the usual steps.
            chosen = [(x, long if x.sides[1] > 2 * x.sides[0] else price) for x in weights]
            return sum(x.count * prices.compute(*x.sides, x.count) for x, prices in chosen)

        yield {"standard": total(usual, usual), "gram": total(usual, gram)}


def experts_of_two_layers(steps: int) -> Callable[[], Iterator[Seconds]]:
    """Return a function that yields batched steps on 256 experts of two layers, 64 a rank of each shape.

    In place a rank keeps its results; sent back, two ranks gather each other's layer after the steps.
    """

    def predicted() -> Iterator[Seconds]:
        under_load = costs("h100-8", steps=steps, batch=64)
        # Five iterations are over before the clock falls as it does in training.
        rates = replace(under_load.rates, load=replace(under_load.rates.load, clock=1.0))
        price, experts = replace(under_load, rates=rates), ((2560, 2560), (1280, 2560))
        seconds = sum(64 * price.compute(m, n, 64) for m, n in experts)
        nbytes = 2 * sum(64 * m * n * price.itemsize for m, n in experts)
        yield {"in place": seconds, "sent back": seconds + price.collective("all-gather", (0, 1), nbytes)}

    return predicted


GB300 = "gb300-nvl72", "tp2-fsdp8-ep8"
SETS = (
    Set("Megatron-LM#6676", "32 GB300, TP 2 × 8, EP 8 × 2", {DUPLICATED: 632, GRAM: 356, OWNERS: 157},
        stand_ins(*GB300, (DUPLICATED, GRAM, OWNERS))),
    Set("Megatron-LM#6683", "the same domain", {DUPLICATED: 264, OWNERS: 139},
        stand_ins(*GB300, (DUPLICATED, OWNERS))),
    Set("hyper-parallel#513, dense", "nothing", {DUPLICATED: 485, OWNERS: 129},
        stand_ins("h100-8", "fsdp8", (DUPLICATED, OWNERS))),
    Set("hyper-parallel#513, experts", "nothing", {"gathered": 4.9, "in place": 1.1}, experts_in_place),
    Set("hyper-parallel#513, 74 of 24 × 10240", "shapes; an NPU of no name",
        {"alone": 74.0, "batched": 2.4}, batched),
    Set("torchtitan#3719", "8 GPUs; its tables were out of reach",
        {"gathered, moved": 1, "owned, moved": 0}, resident),
    Set("xtuner#2049", "model, 32 GPUs of no name; its table was out of reach",
        {"standard": 1, "gram": 0}, on_grams),
    *(Set(f"marin#6493, {counted(steps, 'step')}", "8 H100, shapes",
          {"in place": in_place, "sent back": sent_back}, experts_of_two_layers(steps), timed=True)
      for steps, in_place, sent_back in ((1, 13.11, 18.29), (3, 37.75, 43.04), (5, 62.09, 67.30))),
)  # fmt: skip
"""Every set of the collection, and one beside it that states shapes and machine.

The latter is of the research log of marin's issue 6493, 2026-06-18, restore boundary of D2/E4 and two layers.
"""


def in_order(measured: Seconds, predicted: Seconds) -> bool:
    """Whether the placements have the same order in both."""
    return sorted(measured, key=measured.__getitem__) == sorted(predicted, key=predicted.__getitem__)


def table() -> Iterator[str]:
    """Yield the rows of a table."""
    yield "| set | states | measured | predicted | order |\n|---|---|---|---|---|\n"
    for each in SETS:
        predictions = list(each.predicted())
        right = sum(in_order(each.measured, x) for x in predictions)
        measured = ", ".join(f"{name} {ms:g} ms" for name, ms in each.measured.items() if ms > 1)
        texts = [", ".join(f"{name} {x[name] * 1e3:.3g}" for name in each.measured) for x in predictions]
        order = f"{right} of {len(predictions)}"
        if each.timed:
            order += "; " + ", ".join(
                f"{predictions[0][name] * 1e3 / ms - 1:+.0%}" for name, ms in each.measured.items()
            )
        measured = measured or " > ".join(sorted(each.measured, key=lambda x, m=each.measured: -m[x]))
        yield f"| {each.source} | {each.states} | {measured} | {'; '.join(texts)} ms | {order} |\n"

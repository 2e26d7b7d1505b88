"""Published steps of other software, from the measured rows: llm-foundry's of MPT, and torchtitan's."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import umm
from umm.machines import Machine
from umm.program.models import find_model
from umm.step.parallel import Parallel
from umm.step.step import Step, predict, question, rates_of

MPT = re.compile(r"(mpt-\w+) seq (\d+) x(\d+) mb(\d+) (full|no) AC")
WATTS = 500.0
"""Power limit of torchtitan's H100."""
TITAN = {
    "8B FSDP8 b2 eager": ("llama-3-8b", "h100-8", "eager", (8, 16, 8192, 2, 1), "selective"),
    "8B FSDP8 b2 compile": ("llama-3-8b", "h100-8", "torchtitan", (8, 16, 8192, 2, 1), "selective"),
    "8B FSDP128 b2 eager": ("llama-3-8b", "h100-8", "eager", (128, 256, 8192, 2, 1), "selective"),
    "8B FSDP8 TP8 b12 vanilla": ("llama-3-8b", "h100-8", "torchtitan", (64, 96, 8192, 12, 8), "selective"),
    "70B FSDP16 TP8 vanilla (b16)": ("llama-3-70b", "h100-8", "torchtitan", (128, 256, 8192, 16, 8), "full"),
    "llama3 8B b1 sel op": ("llama-3-8b", "a100-8", "torchtitan", (64, 64, 8192, 1, 1), "selective"),
    "llama2 13B b2 no AC": ("llama-2-13b", "a100-8", "torchtitan", (64, 128, 4096, 2, 1), "none"),
}
"""Rows by name: model, machine, stack, (ranks, batch, length, micro-batch, tp), recomputation."""


class Published(NamedTuple):
    """A published rate beside its prediction."""

    source: str
    row: str
    measured: float
    step: Step

    @property
    def ratio(self) -> float:
        """Predicted over published tokens/s a device."""
        return self.step.tokens_per_second / self.measured


def published(folder: Path) -> Iterator[Published]:
    """Yield the rows of ``steps/published.csv`` that a step can say.

    Args:
        folder: The measured rows.
    """
    with (folder / "steps" / "published.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            name, rate = row["row"], row["published"]
            if match := MPT.fullmatch(name):
                model, length, ranks, micro, again = match.groups()
                steps = int(re.findall(r"GA (\d+)", row["config"])[0])
                sizes = (int(ranks), int(ranks) * int(micro) * steps, int(length), int(micro), 1)
                chip = "a100-8" if "A100" in row["source"] else "h100-8"
                asked = (model, chip, "fsdp1", sizes, "full" if again == "full" else "none")
            elif name in TITAN:
                asked = TITAN[name]
            else:
                continue
            yield Published(row["source"], name, float(rate), _predicted(folder, *asked))


def _predicted(folder: Path, model: str, chip: str, stack: str, sizes: tuple[int, ...], again: str) -> Step:
    ranks, batch, length, micro, tp = sizes
    parallel = Parallel(
        ranks=ranks, batch=batch, length=length, micro_batch=micro, tp=tp, zero=3, recompute=again
    )
    file = folder / "steps" / "models4" / f"{model}.json"
    watts = WATTS if chip == "h100-8" and stack != "fsdp1" else 0.0
    rates = rates_of(_machine(chip, ranks), "bf16", stack, watts)
    return predict(question(find_model(str(file) if file.exists() else model), parallel, rates))


def _machine(chip: str, ranks: int) -> Machine:
    nodes = -(-ranks // 8)
    return umm.machine(chip, nodes=nodes) if nodes > 1 else umm.machine(chip)

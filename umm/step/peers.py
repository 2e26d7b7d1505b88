"""Named ways to spread a step, as published recipes do, each with its best micro-batch and recomputation."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from umm.errors import InfeasibleError, ProblemError
from umm.plans.collectives.library import domains
from umm.program.models.layers import Model
from umm.program.models.split import shared
from umm.step.parallel import divisors
from umm.step.rates import Rates
from umm.step.search import search
from umm.step.step import Step

BEST = "best"


@dataclass(frozen=True)
class PeerRow:
    """A recipe of a step."""

    name: str  # as in recipes: `TP8 + PP2`
    step: Step | None  # The fastest step that follows it; None if none does.
    why: str = ""  # what forbids it, where there is none


def recipes(model: Model, ranks: int, node: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield names of published recipes, and the sizes that each fixes.

    Sources: PyTorch FSDP2 and HSDP; Megatron-LM with ZeRO-1 (Narayanan et al. 2021: tensor parallel in a
    node, pipelines across); torchtitan's FSDP2 with tensor parallel ranks; experts over a node, or over all.
    """
    alone = {"tp": 1, "pp": 1, "cp": 1, "ep": 1}
    yield "DDP", alone | {"zero": 0}
    yield "ZeRO-1", alone | {"zero": 1}
    yield "FSDP2", alone | {"zero": 3}
    if ranks > node:
        yield "HSDP", alone | {"fsdp": node, "zero": 3}
    heads, experts = shared(model)
    tp = max((x for x in divisors(node, 8) if ranks % x == 0 and all(n % x == 0 for n in heads)), default=1)
    if tp > 1:
        yield f"TP{tp}", alone | {"tp": tp, "zero": 1}
        yield f"TP{tp} + FSDP2", alone | {"tp": tp, "zero": 3}
        for pp in (2, 4, 8, 16):
            if ranks % (tp * pp) == 0 and pp <= len(model.layers):
                yield f"TP{tp} + PP{pp}", {"tp": tp, "pp": pp, "cp": 1, "ep": 1}
    for ep in sorted({min(node, ranks), ranks} if experts else ()):
        ep = max(x for x in divisors(ranks, ep) if all(n % x == 0 for n in experts))
        yield f"EP{ep}", alone | {"ep": ep, "zero": 1}
        yield f"EP{ep} + FSDP2", alone | {"ep": ep, "zero": 3}


def step_peers(model: Model, rates: Rates, given: Mapping[str, Any], memory: float) -> list[PeerRow]:
    """Return each recipe's fastest step that fits, and last the best of all configurations.

    Args:
        given: Fields of :class:`Parallel` that are fixed, ``ranks``, ``batch`` and ``length`` among them.
        memory: Bytes of a device; infinity for no limit.
    """
    total = rates.machine.device_count
    node = len(domains(rates.machine, range(total), total)[0])
    rows = dict[str, PeerRow]()
    for name, sizes in (*recipes(model, given["ranks"], node), (BEST, {})):
        try:
            rows[name] = PeerRow(name, search(model, rates, {**given, **sizes}, memory, 1).top[0])
        except (InfeasibleError, ProblemError) as error:
            rows[name] = PeerRow(name, None, str(error))
    return list(rows.values())

"""A plan of Muon as text: Megatron-LM's mode of each weight, torchtitan's owner of each matrix."""

from collections.abc import Callable

from umm.errors import ProblemError
from umm.muon.placements import DUPLICATED, GRAM, OWNERS, TWO_AXIS
from umm.muon.planning import LAYERS, MuonPlan
from umm.quoting.python import literal
from umm.units import format_seconds

MODES = {
    DUPLICATED: "duplicated", OWNERS: "layer_sharded", LAYERS: "layer_sharded", GRAM: "distributed",
    TWO_AXIS: "distributed",
}  # fmt: skip
"""Megatron-LM's ``--muon-tp-mode`` of each placement. Source: pull requests 6380 and 6683."""


def megatron(plan: MuonPlan) -> str:
    """Return Megatron-LM's mode of each weight and the ranks that orthogonalise its matrices.

    ProblemError for a placement that Megatron-LM has no mode for.
    """
    for name, placement in plan.best.items():
        if placement not in MODES:
            raise ProblemError(
                f"Megatron-LM has no mode for {name} {placement}; emit one placement: {', '.join(MODES)}"
            )
    lines = [f"# --muon-tp-mode by weight; {_predicted(plan)}", "muon_tp_mode = {"]
    for name, placement in plan.best.items():
        lines.append(f"    {literal(name)}: {literal(MODES[placement])},{_time(plan, name)}")
    lines.append("}")
    if plan.homes:
        tp = plan.grid.tp
        lines += [
            "# (gtp_remat, tp) rank of each matrix of a layer-sharded weight, layer by layer",
            "ns_homes = {",
        ]
        for name, ranks in plan.homes.items():
            homes = ", ".join(f"({rank // tp}, {rank % tp})" for rank in ranks)
            lines.append(f"    {literal(name)}: [{homes}],")
        lines.append("}")
    return "\n".join(lines)


def torchtitan(plan: MuonPlan) -> str:
    """Return torchtitan's owner of each matrix by its name; weights without owners stay sharded."""
    lines = [f"# Owned(rank) of each matrix; {_predicted(plan)}", "owners = {"]
    for weight in plan.weights:
        ranks = plan.homes.get(weight.name, ())
        if ranks:
            lines.append(f"    #{_time(plan, weight.name)[3:]} for {literal(weight.name)}")
        module = weight.name.removesuffix(f".{weight.rows}x{weight.cols}")
        for number, (layer, rank) in enumerate(zip(weight.numbers, ranks, strict=False)):
            name = f"layers.{layer}.{module}" + (f".{number % weight.each}" if weight.each > 1 else "")
            lines.append(f"    {literal(name)}: {rank},")
    lines.append("}")
    sharded = [name for name in plan.best if name not in plan.homes]
    if sharded:
        lines.append("sharded = {")
        lines += [f"    {literal(x)}: {literal(plan.best[x])},{_time(plan, x)}" for x in sharded]
        lines.append("}")
    return "\n".join(lines)


def _time(plan: MuonPlan, name: str) -> str:
    return f"  # {format_seconds(plan.seconds[name])}"


def _predicted(plan: MuonPlan) -> str:
    sizes = (("tp", plan.grid.tp), ("fsdp", plan.grid.fsdp), ("ep", plan.grid.ep))
    grid = "-".join(f"{name}{size}" for name, size in sizes if size > 1) or "1 rank"
    return f"predicted {format_seconds(plan.rows[-1].seconds)} a step on {grid}"


WRITERS: dict[str, Callable[[MuonPlan], str]] = {"megatron": megatron, "torchtitan": torchtitan}


def emitted(plan: MuonPlan, trainer: str) -> str:
    """Return a plan as a trainer's text; ProblemError for an unknown trainer."""
    if trainer not in WRITERS:
        raise ProblemError(f"--emit {trainer!r} is unknown; choose from {', '.join(WRITERS)}")
    return WRITERS[trainer](plan)

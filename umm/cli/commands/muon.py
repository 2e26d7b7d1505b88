"""``umm muon``: the ranks at which Muon orthogonalises each weight, and the cost of that."""

from typing import TYPE_CHECKING, Any

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering, Configured, Located

if TYPE_CHECKING:
    from rich.console import Console

    from umm.muon.plan import MuonPlan


class Muon(Located, Configured, Answering):
    """A model, and the ranks that split its weights."""

    model: str = flag(required=True, metavar="NAME|FILE", help="A model of 'umm models', or its config.json.")
    layouts: str = flag(
        default="fsdp8", show_default=True, metavar="GRID",
        help="Ranks that split the weights: tp4-fsdp16, fsdp64-ep8.",
    )  # fmt: skip
    stack: str = flag(default="megatron", show_default=True, metavar="NAME", help="Software, as in umm step.")


@command(Muon, machine="h100-8")
def muon(asked: Muon) -> None:
    """Compare where Muon's momenta are orthogonalised, and plan the best mix.

    Each matrix of a layer takes five Newton-Schulz steps in bfloat16: on every rank, at an owner, by whole
    layers, split by its longer side with X·Xᵀ summed, or split by columns alone. The best mix may take
    another placement for each weight; owners are balanced.
    """
    from dataclasses import asdict

    from umm.errors import InputError
    from umm.muon.plan import plan
    from umm.muon.weights import Grid, matrices
    from umm.program.models import find_model
    from umm.step.step import rates_of

    machine, grid, model = asked.hardware, Grid.parse(asked.layouts), find_model(asked.model)
    if grid.ranks > machine.device_count:
        raise InputError(
            f"{asked.layouts} needs {grid.ranks} devices; {machine.name} has {machine.device_count}: "
            "give --nodes"
        )
    result = plan(matrices(model), grid, rates_of(machine, "bf16", asked.stack))
    rows = [
        {"placement": x.placement, "seconds": x.seconds, "memory_bytes": int(x.memory)}
        | {"busiest_s": x.busiest, "idlest_s": x.idlest}
        for x in result.rows
    ]
    record: dict[str, Any] = {
        "model": model.name,
        "machine": machine.name,
        "grid": asdict(grid),
        "rows": rows,
    }
    record |= {"best": result.best, "owners": result.owners, "proven": result.proven, "gap": result.gap}
    title = f"Muon of {model.name} on {machine.name}, {asked.layouts}: {grid.ranks} ranks"
    asked.answer(lambda: record, lambda console: print_plan(console, title, result))


def print_plan(console: "Console", title: str, result: "MuonPlan") -> None:
    """Print each placement's times and memory, and the best mix."""
    from umm.units import format_bytes, format_seconds

    console.print(title)
    line = "{:<12}{:>12}{:>12}{:>12}{:>12}"
    console.print(line.format("placement", "step", "busiest", "idlest", "memory"))
    for row in result.rows:
        times = map(format_seconds, (row.seconds, row.busiest, row.idlest))
        console.print(line.format(row.placement, *times, format_bytes(row.memory)))
    placed = dict[str, list[str]]()
    for name, placement in result.best.items():
        placed.setdefault(placement, []).append(name.rpartition(".")[2])
    for placement, names in placed.items():
        console.print(f"best      {placement}: {', '.join(names)}")
    proof = "proven best of all mixes" if result.proven else f"at most {result.gap:.1%} above the best mix"
    console.print(f"          {proof}")

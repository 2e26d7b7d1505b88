"""``umm muon``: the ranks at which Muon orthogonalises each weight, and the cost of that."""

from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import Answering, Configured, FromModel, Located
from umm.cli.flags.values import Finite

if TYPE_CHECKING:
    from rich.console import Console

    from umm.muon.planning import MuonPlan


NAMES = {"muon": "Muon", "muon-gram": "Muon-gram", "shampoo": "Shampoo", "soap": "SOAP"}
"""Optimizers as papers write them."""


class Muon(Located, Configured, FromModel, Answering):
    """A model, and the ranks that split its weights."""

    layouts: str = flag(
        default="fsdp8", show_default=True, metavar="GRID",
        help="Ranks that split the weights: tp4-fsdp16, fsdp64-ep8.",
    )  # fmt: skip
    stack: str = flag(default="megatron", show_default=True, metavar="NAME", help="Software, as in umm step.")
    optimizer: str = flag(
        type=click.Choice(list(NAMES)), default="muon", show_default=True,
        help="Whose products; muon-gram works on X·Xᵀ alone. Shampoo's roots and SOAP's bases come apart.",
    )  # fmt: skip
    placement: str | None = flag(metavar="NAME", help="Emit this placement of all weights, not the best mix.")
    coefficients: str | None = flag(
        metavar="FILE", help="TOML with steps = [[a, b, c], …]; five of Jordan's if not given."
    )
    syrk: bool = flag(
        is_flag=True, help="The library computes one triangle of X·Xᵀ and A²; else both are computed whole."
    )
    batch: int = flag(
        type=click.IntRange(1, 4096), default=1, show_default=True, metavar="N",
        help="Equal matrices that one kernel multiplies.",
    )  # fmt: skip
    overlap: bool = flag(is_flag=True, help="Collectives run beside the compute of other buckets.")
    backward: float = flag(
        type=Finite(0, 1e6), default=0.0, metavar="SECONDS",
        help="Backward pass before, behind which momenta move; implies --overlap.",
    )  # fmt: skip
    resident: bool = flag(
        is_flag=True, help="Weights live with their owners: nothing moves beside FSDP's collectives."
    )
    emit: str | None = flag(
        type=click.Choice(["megatron", "torchtitan"]),
        help="Print only Megatron-LM's mode of each weight, or torchtitan's owner of each matrix.",
    )  # fmt: skip


@command(Muon, machine="h100-8")
def muon(asked: Muon) -> None:
    """Compare where Muon's momenta are orthogonalised, and plan the best mix.

    Each matrix of a layer takes five Newton-Schulz steps in bfloat16: on every rank, at an owner, by whole
    layers, split by its longer side with X·Xᵀ summed, split by columns alone, or in place by one-sided
    multiplies, simulated on up to 32 ranks. An integer linear program gives each weight a placement and each
    matrix an owner, proven best or with its gap.
    """
    from dataclasses import asdict

    from umm.errors import InputError
    from umm.muon.emit import emitted
    from umm.muon.placements import Costs
    from umm.muon.planning import plan
    from umm.muon.program import JORDAN, read_coefficients
    from umm.muon.weights import Grid, matrices
    from umm.step.step import rates_of
    from umm.units import counted

    if asked.placement and not asked.emit:
        raise InputError("--placement chooses what --emit writes; add --emit, or leave it out")
    machine, grid, model = asked.hardware, Grid.parse(asked.layouts), asked.read_model()
    machine.check_alike(grid.ranks)
    steps = read_coefficients(asked.coefficients) if asked.coefficients else JORDAN
    costs = Costs(
        rates_of(machine, "bf16", asked.stack), steps=len(steps), syrk=asked.syrk, batch=asked.batch,
        resident=asked.resident, optimizer=asked.optimizer,
    )  # fmt: skip
    result = plan(
        matrices(model), grid, costs, only=asked.placement, coefficients=steps, overlap=asked.overlap,
        backward=asked.backward,
    )  # fmt: skip
    if asked.emit:
        if asked.output.as_json:
            raise InputError("--emit prints a trainer's text; leave out --json")
        click.echo(emitted(result, asked.emit))
        return
    rows = [
        {"placement": x.placement, "seconds": x.seconds, "memory_bytes": int(x.memory), "moved_s": x.moved}
        | {"busiest_s": x.busiest, "idlest_s": x.idlest, "collectives": x.collectives}
        for x in result.rows
    ]
    record: dict[str, Any] = {
        "model": model.name,
        "machine": machine.name,
        "grid": asdict(grid),
        "products": "syrk" if asked.syrk else "whole",
        "rows": rows,
    }
    record |= {"best": result.best, "owners": result.owners, "loads_s": result.loads}
    record |= {"proven": result.proven, "gap": result.gap}
    title = f"{NAMES[asked.optimizer]} of {model.name} on {machine.name}, {asked.layouts}: "
    title += counted(grid.ranks, "rank")
    products = "one triangle of X·Xᵀ and A², by SYRK" if asked.syrk else "whole"
    asked.answer(lambda: record, lambda console: print_plan(console, title, products, result))


def print_plan(console: "Console", title: str, products: str, result: "MuonPlan") -> None:
    """Print each placement's times and memory, the best mix, and how symmetric products are computed."""
    from textwrap import wrap

    from umm.units import format_bytes, format_seconds

    console.print(title)
    line = "{:<11}{:>10}{:>10}{:>10}{:>10}{:>11}{:>13}"
    console.print(line.format("placement", "step", "moved", "busiest", "idlest", "memory", "collectives"))
    for row in result.rows:
        times = map(format_seconds, (row.seconds, row.moved, row.busiest, row.idlest))
        console.print(line.format(row.placement, *times, format_bytes(row.memory), row.collectives))
    placed = dict[str, list[str]]()
    for name, placement in result.best.items():
        placed.setdefault(placement, []).append(name)
    for placement, names in placed.items():
        text = f"best      {placement}: {', '.join(names)}"
        for part in wrap(text, console.width, subsequent_indent=" " * 10, break_on_hyphens=False):
            console.print(part)
    proof = "proven best of all mixes" if result.proven else f"at most {result.gap:.1%} above the best mix"
    console.print(f"          {proof}")
    console.print(f"products  {products}")

"""Answers of the commands in :mod:`umm.cli.commands.muon`."""

from dataclasses import asdict
from textwrap import wrap
from typing import Any

import click
from rich.console import Console

from umm.cli.commands.muon import NAMES, Muon
from umm.errors import InputError
from umm.muon.emit import emitted
from umm.muon.placements import Costs
from umm.muon.planning import plan
from umm.muon.program import JORDAN, read_coefficients
from umm.muon.weights import Grid, matrices
from umm.step.step import rates_of
from umm.units import counted, format_bytes, format_seconds, percent


def muon(asked: Muon) -> None:
    """Answer ``umm muon``."""
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

    def shown(console: Console) -> None:
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
        proof = (
            "proven best of all mixes"
            if result.proven
            else f"at most {percent(result.gap, 1)} above the best mix"
        )
        console.print(f"          {proof}")
        console.print(f"products  {products}")

    asked.answer(lambda: record, shown)

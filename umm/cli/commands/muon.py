"""``umm muon``: where the optimizer Muon orthogonalises each weight, and what that takes."""

from typing import Any

import click

from umm.cli.flags.options import READ, nodes_option, option, output_options, set_option
from umm.cli.flags.values import among, load_config, machines
from umm.cli.printed.output import Output


@click.command()
@option(
    "--config",
    type=READ,
    is_eager=True,
    callback=load_config,
    expose_value=False,
    help="TOML file with flag names as keys.",
)
@option("--model", required=True, metavar="NAME|FILE", help="A model of 'umm models', or its config.json.")
@option(
    "--machine",
    default="h100-8",
    show_default=True,
    metavar="NAME|FILE",
    shell_complete=among(machines),
    help="A machine of 'umm machine list' or a machine file.",
)
@nodes_option()
@option(
    "--layouts",
    default="fsdp8",
    show_default=True,
    metavar="GRID",
    help="Ranks that split the weights: tp4-fsdp16, fsdp64-ep8.",
)
@option("--stack", default="megatron", show_default=True, metavar="NAME", help="Software, as in umm step.")
@set_option()
@output_options()
def muon(
    model: str, machine: str, layouts: str, stack: str, as_json: bool, quiet: bool, no_color: bool,
    **flags: Any,
) -> None:  # fmt: skip
    """Compare where Muon's momenta are orthogonalised, and plan the best mix.

    Each matrix of a layer takes five Newton-Schulz steps in bfloat16: on every rank, at an owner, by whole
    layers, split by its longer side with X·Xᵀ summed, or split by columns alone. The best mix may take
    another placement for each weight; owners are balanced.
    """
    from dataclasses import asdict

    from umm.cli.flags.asked import asked_machine
    from umm.errors import InputError
    from umm.muon.plan import plan
    from umm.muon.weights import Grid, matrices
    from umm.program.models import find_model
    from umm.step.step import rates_of
    from umm.units import format_bytes, format_seconds

    output = Output(as_json, quiet, no_color)
    found, grid, chosen = asked_machine(flags | {"machine": machine}), Grid.parse(layouts), find_model(model)
    if grid.ranks > found.device_count:
        raise InputError(
            f"{layouts} needs {grid.ranks} devices; {found.name} has {found.device_count}: give --nodes"
        )
    result = plan(matrices(chosen), grid, rates_of(found, "bf16", stack))
    if as_json:
        rows = [
            {"placement": x.placement, "seconds": x.seconds, "memory_bytes": int(x.memory)}
            | {"busiest_s": x.busiest, "idlest_s": x.idlest}
            for x in result.rows
        ]
        record: dict[str, Any] = {
            "model": chosen.name,
            "machine": found.name,
            "grid": asdict(grid),
            "rows": rows,
        }
        record |= {"best": result.best, "owners": result.owners, "proven": result.proven, "gap": result.gap}
        output.json("muon", record)
        return
    console = output.console()
    console.print(f"Muon of {chosen.name} on {found.name}, {layouts}: {grid.ranks} ranks")
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

"""``umm sweep``: every point asked for, into a store."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import asked_outlines, chain_options
from umm.cli.flags.options import (
    READ,
    WRITE,
    all_of,
    given,
    given_option,
    kernels_option,
    nodes_option,
    option,
    output_options,
    ranks_option,
    set_option,
    time_limit,
    type_options,
)
from umm.cli.flags.scaling import asked_scales, scaling_options
from umm.cli.flags.schedule import SCHEDULE, asked_axes, axis_options
from umm.cli.flags.values import PRESETS, dimension_list, load_config
from umm.cli.printed.output import Output
from umm.errors import InputError
from umm.files import shown
from umm.units import counted, format_seconds

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.program import Outline
    from umm.space import Space
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress as Settled
    from umm.space.store.sweeps import Progress


@click.command()
@option(
    "--config", type=READ, is_eager=True, callback=load_config, expose_value=False,
    help="TOML file with flag names as keys.",
)  # fmt: skip
@option("--preset", metavar="LIST", help="Layers mlp1, mlp2: their n and k, and m unless -m is given.")
@option("-m", callback=dimension_list, metavar="LIST", help="Rows of A and C: 1K,2K,4K,8K.")
@option("-n", callback=dimension_list, metavar="LIST", help="Columns of B and C.")
@option("-k", callback=dimension_list, metavar="LIST", help="Columns of A, rows of B.")
@all_of(type_options())
@given_option()
@ranks_option(several=True)
@option("--machine", default="h100-8", show_default=True, metavar="LIST",
        help="Machines of 'umm machine list' or machine files.")  # fmt: skip
@nodes_option(several=True)
@set_option()
@kernels_option()
@scaling_options()
@chain_options(layouts=False, axes=True)
@option("--layouts", metavar="LIST", help="Schemes of a chain by name; all of them if not given.")
@option(
    "--choices", metavar="LIST", help="Layouts to choose from: every assignment of them to a chain's tensors."
)
@axis_options()
@option(
    "--memory",
    default="none",
    show_default=True,
    metavar="BUDGET",
    help="Memory limit of a rank; points that need more are stored as too large.",
)
@option("--executor", default="sim", show_default=True, metavar="NAME",
        help="Executor of the schedules; bound stores lower bounds.")  # fmt: skip
@option(
    "--pool",
    default="process",
    show_default=True,
    metavar="NAME",
    help="process: processes of this host; mpi: the ranks of mpiexec; dask: a cluster; none: this process "
    "alone.",
)
@option(
    "--jobs",
    type=int,
    metavar="N",
    help="Number of processes; one per core, or what the pool has, if not given.",
)
@option(
    "-o",
    "store",
    type=WRITE,
    required=True,
    metavar="STORE",
    help="SQLite file; an existing one is continued.",
)
@option("--export", type=WRITE, metavar="FILE", help="Afterwards export the whole store as .csv or .parquet.")
@time_limit()
@output_options(file=False)
@click.pass_context
def sweep(
    ctx: click.Context,
    /,
    store: Path,
    export: Path | None,
    pool: str,
    jobs: int | None,
    executor: str,
    memory: str,
    as_json: bool,
    quiet: bool,
    no_color: bool,
    **flags: Any,
) -> None:
    """Run every point of a space and store the results.

    Comma lists are axes, of sizes and machines too. Points already stored are skipped, so the same
    command continues a stopped sweep, and several sweeps may fill one store. --json prints a line per run.

    Several --nodes or --ranks of one multiply end with a table of the fastest of each.

    With --chain the points are layouts of all its tensors together: its named schemes, or every
    assignment of --choices; sizes are axes.
    """
    from umm.cli.printed.save import check_targets
    from umm.space.store.database import Store, checked_export
    from umm.space.store.sweeps import sweep as perform

    output = Output(as_json, quiet, no_color)
    if export is not None:
        checked_export(export)
        check_targets(None if store.is_file() and store != export else store, export)
    scales = asked_scales(flags)
    asked = [(_spaces(ctx, of), _machines(of)) for of in scales or [flags]]
    budget = None if memory == "none" else memory
    swepts, there = [], [0, 0]
    began = time.monotonic()
    with output.progress() as bar:
        task = bar.add_task("sweeping", total=None)

        def report(progress: "Progress") -> None:
            settled = progress.found + progress.performed
            bar.update(task, completed=settled, total=progress.asked)
            there[:] = settled, progress.asked
            if progress.lost:
                output.note(progress.lost)
            if as_json:
                for row in progress.rows:
                    output.json("sweep", row)

        how: dict[str, Any] = {"executor": executor, "memory": budget, "pool": pool, "jobs": jobs}
        try:
            for spaces, machines in asked:
                swepts.append(perform(spaces, machines, store, progress=report, **how))
        except KeyboardInterrupt:
            output.note(
                f"{there[0]} of {there[1] or 'the'} points are in {store}; the same command continues"
            )
            raise click.Abort from None
    done = [swept for swept in swepts if swept is not None]
    if len(done) < len(swepts):
        return
    with Store(store) as opened:
        others = opened.of_other_models
        if export is not None:
            opened.export(export, "all_runs" if flags["chain"] else "runs")
    found, performed, failed = (sum(getattr(x, of) for x in done) for of in ("found", "performed", "failed"))
    output.note(
        f"{sum(x.asked for x in done)} points: {found} were in {store}, {performed} performed in "
        f"{format_seconds(time.monotonic() - began)}, {failed} of them failed."
    )
    if others:
        output.note(
            f"{store} also keeps {counted(others, 'run')} that another version of the model has priced: "
            "their column model differs"
        )
    one = all(len(spaces) * len(machines) == 1 for spaces, machines in asked)
    if scales and one and not flags["chain"] and not as_json:
        _print_best(output, flags, scales, store)


def _print_best(output: Output, flags: dict[str, Any], scales: list[dict[str, Any]], path: Path) -> None:
    """Print the fastest run that a store has of each number of nodes or ranks."""
    from umm.cli.flags.scaling import compare_scales, show_scales
    from umm.space.scaling import Scale, devices_of
    from umm.space.store.database import Store
    from umm.space.store.model import model_digest

    def best_of(of: dict[str, Any], machine: "Machine", report: "Settled") -> "tuple[str, Scale]":
        (n, k, (m,)), ranks = _layers(of)[0], of["ranks"] or machine.default_ranks
        with Store(path) as store:
            runs = store.frame(machine=machine.name, ranks=ranks, m=m, n=n, k=k, model=model_digest())
        if not len(runs) or not runs.time_s.notna().any():
            raise InputError(f"no run on {machine.name} with {ranks} ranks ended; see {path}")
        best = runs.iloc[0]
        dtype = best["dtype"]
        chosen = f"A {best.a}, B {best.b}, C {best.c}, stationary {best.stationary}"
        used, memory = devices_of(machine, ranks), int(best.memory_bytes)
        words = f"C = AB with m={m}, n={n}, k={k}, {dtype}"
        return words, Scale(ranks, used, chosen, float(best.time_s), memory)

    show_scales(output, "sweep", compare_scales(output, flags, scales, best_of), None, {})


def _machines(flags: dict[str, Any]) -> "list[Machine]":
    """Return the machines that the flags describe."""
    from umm.cli.flags.asked import asked_machines

    return [x for name in flags["machine"].split(",") for x in asked_machines(name.strip(), flags)]


def _spaces(ctx: click.Context, flags: dict[str, Any]) -> list["Space"]:
    """Return the points that the flags describe, of multiplies or of chains."""
    from umm.space import Space

    chains = asked_outlines(ctx, flags)
    if chains:
        return _of_chains(ctx, chains, flags)
    axes = asked_axes(flags) | {name: flags[name] for name in ("dtype", "c_dtype", "given", "ranks")}
    return [Space(m=m, n=n, k=k, **axes) for n, k, rows in _layers(flags) for m in rows]


def _of_chains(ctx: click.Context, chains: list["Outline"], flags: dict[str, Any]) -> list["Space"]:
    """Return the points of chains: their own layouts by name, or every assignment of choices.

    Raises:
        InputError: if both are asked for, or an axis of a multiply is.
    """
    from umm.space import Space

    typed = given(ctx, SCHEDULE)
    if typed:
        raise InputError(f"{', '.join(typed)} is not an axis of a chain's sweep; leave it out")
    named, choices = (
        None if flags[x] is None else tuple(text.strip() for text in flags[x].split(","))
        for x in ("layouts", "choices")
    )
    if choices is None:
        return [Space(chain=x, ranks=flags["ranks"], named=named or "all") for x in chains]
    if named is not None:
        raise InputError("--choices makes every assignment, --layouts names some; leave out one or the other")
    return [Space(chain=x, ranks=flags["ranks"], layouts=choices) for x in chains]


def _layers(flags: dict[str, Any]) -> list[tuple[int, int, list[int]]]:
    """Return n, k and the values of m of each layer asked for.

    Raises:
        InputError: for an unknown preset, or a dimension that is missing or given twice.
    """
    m, n, k = (flags[name] for name in "mnk")
    if flags["preset"] is None:
        if m is None or n is None or k is None:
            raise InputError("the sweep lacks sizes; give -m, -n and -k, or --preset mlp1,mlp2")
        return [(columns, inner, m) for columns in n for inner in k]
    if n is not None or k is not None:
        raise InputError("a preset already decides -n and -k; leave out one or the other")
    layers = []
    for name in flags["preset"].split(","):
        if name.strip() not in PRESETS:
            raise InputError(f"preset {shown(name.strip())} is unknown; choose from {', '.join(PRESETS)}")
        preset = PRESETS[name.strip()]
        layers.append((preset["n"], preset["k"], m or [preset["m"]]))
    return layers

"""``umm sweep``: every point asked for, into a store."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.chain import OfChains
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import WRITE, Budgeted, Limited, Printed
from umm.cli.flags.scaling import Scaled, compare_scales, show_scales
from umm.cli.flags.schedule import SCHEDULE, Axes
from umm.cli.flags.values import PRESETS, dimension_list
from umm.errors import InputError
from umm.files import shown
from umm.units import counted, format_seconds

if TYPE_CHECKING:
    from umm.program import Outline
    from umm.space import Space
    from umm.space.scaling import Scale
    from umm.space.search.walk import Progress as Settled
    from umm.space.store.sweeps import Progress


class Sweep(Axes, OfChains, Scaled, Budgeted, Limited, Printed):
    """Axes of sizes, layouts and machines, and a store of the results."""

    preset: str | None = flag(
        metavar="LIST", usual=True, help="Layers mlp1, mlp2: their n and k, and m unless -m is given.",
    )  # fmt: skip
    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K,8K.",
    )  # fmt: skip
    n: Any = flag("-n", callback=dimension_list, metavar="LIST", usual=True, help="Columns of B and C.")
    k: Any = flag("-k", callback=dimension_list, metavar="LIST", usual=True, help="Columns of A, rows of B.")
    machine: str = flag(
        default="h100-8", show_default=True, metavar="LIST", usual=True,
        help="Machines of 'umm machine list' or machine files.",
    )  # fmt: skip
    layouts: str | None = flag(
        metavar="LIST", usual=True, help="Schemes of a chain by name; all of them if not given.",
    )  # fmt: skip
    choices: str | None = flag(
        metavar="LIST", help="Layouts to choose from: every assignment of them to a chain's tensors.",
    )  # fmt: skip
    memory: str = flag(
        default="none", show_default=True, metavar="BUDGET",
        help="Memory limit of a rank; points that need more are stored as too large.",
    )  # fmt: skip
    executor: str = flag(
        default="sim", show_default=True, metavar="NAME",
        help="Executor of the schedules; bound stores lower bounds.",
    )  # fmt: skip
    pool: str = flag(
        default="process", show_default=True, metavar="NAME", usual=True,
        help="process: processes of this host; mpi: the ranks of mpiexec; dask: a cluster; none: this "
        "process alone.",
    )  # fmt: skip
    jobs: int | None = flag(
        type=int, metavar="N", usual=True,
        help="Number of processes; one per core, or what the pool has, if not given.",
    )  # fmt: skip
    store: Path = flag(
        "-o", type=WRITE, required=True, metavar="STORE", usual=True,
        help="SQLite file; an existing one is continued.",
    )  # fmt: skip
    export: Path | None = flag(
        type=WRITE, metavar="FILE", usual=True, help="Afterwards export the whole store as .csv or .parquet.",
    )  # fmt: skip

    def spaces(self) -> "list[Space]":
        """Return the points that are asked for, of multiplies or of chains."""
        from umm.space import Space

        chains = self.outlines()
        if chains:
            return self._of_chains(chains)
        axes = self.axes_asked | self.types | {"ranks": self.ranks}
        return [Space(m=m, n=n, k=k, **axes) for n, k, rows in self.multiplies() for m in rows]

    def _of_chains(self, chains: "list[Outline]") -> "list[Space]":
        """Return the points of chains: their own layouts by name, or every assignment of choices."""
        from umm.space import Space

        self.refuse(SCHEDULE, "{} is not an axis of a chain's sweep; leave it out")
        named, choices = (
            None if texts is None else tuple(text.strip() for text in texts.split(","))
            for texts in (self.layouts, self.choices)
        )
        if choices is None:
            return [Space(chain=x, ranks=self.ranks, named=named or "all") for x in chains]
        if named is not None:
            raise InputError(
                "--choices makes every assignment, --layouts names some; leave out one or the other"
            )
        return [Space(chain=x, ranks=self.ranks, layouts=choices) for x in chains]

    def multiplies(self) -> list[tuple[int, int, list[int]]]:
        """Return n, k and the values of m of each layer asked for.

        Raises:
            InputError: for an unknown preset, or a dimension that is missing or given twice.
        """
        m, n, k = self.m, self.n, self.k
        if self.preset is None:
            if m is None or n is None or k is None:
                raise InputError("the sweep lacks sizes; give -m, -n and -k, or --preset mlp1,mlp2")
            return [(columns, inner, m) for columns in n for inner in k]
        if n is not None or k is not None:
            raise InputError("a preset already decides -n and -k; leave out one or the other")
        layers = []
        for name in self.preset.split(","):
            if name.strip() not in PRESETS:
                raise InputError(f"preset {shown(name.strip())} is unknown; choose from {', '.join(PRESETS)}")
            preset = PRESETS[name.strip()]
            layers.append((preset["n"], preset["k"], m or [preset["m"]]))
        return layers


@command(Sweep)
def sweep(asked: Sweep) -> None:
    """Run every point of a space and store the results.

    Comma lists are axes, of sizes and machines too. Points already stored are skipped, so the same
    command continues a stopped sweep, and several sweeps may fill one store. --json prints a line per run.

    Several --nodes or --ranks of one multiply end with a table of the fastest of each.

    With --chain the points are layouts of all its tensors together: its named schemes, or every
    assignment of --choices; sizes are axes.
    """
    asked = asked.with_model()
    from umm.cli.printed.save import check_targets
    from umm.space.store.database import Store, checked_export
    from umm.space.store.sweeps import sweep as perform

    output, store, export = asked.output, asked.store, asked.export
    if export is not None:
        checked_export(export)
        new = {} if store.is_file() and store != export else {"store": store}
        check_targets(new | {"export": export})
    scales = asked.scales()
    points = [
        (each.spaces(), [x for name in each.machine.split(",") for x in each.machines(name.strip())])
        for each in scales or [asked]
    ]
    swepts, stored = [], [0, 0]
    began = time.monotonic()
    with output.progress() as bar:
        task = bar.add_task("sweeping", total=None)

        def report(progress: "Progress") -> None:
            settled = progress.found + progress.performed
            bar.update(task, completed=settled, total=progress.asked)
            stored[:] = settled, progress.asked
            if progress.lost:
                output.note(progress.lost)
            if output.as_json:
                for row in progress.rows:
                    output.json("sweep", row)

        how: dict[str, Any] = {"memory": asked.budget, "pool": asked.pool, "jobs": asked.jobs}
        try:
            for spaces, machines in points:
                swept = perform(spaces, machines, store, executor=asked.executor, progress=report, **how)
                swepts.append(swept)
        except KeyboardInterrupt:
            output.note(
                f"{stored[0]} of {stored[1] or 'the'} points are in {store}; the same command continues"
            )
            raise click.Abort from None
    done = [swept for swept in swepts if swept is not None]
    if len(done) < len(swepts):
        return
    with Store(store) as opened:
        others = opened.of_other_models
        if export is not None:
            opened.export(export, "all_runs" if asked.chain else "runs")
    already, performed, failed = (sum(getattr(x, y) for x in done) for y in ("found", "performed", "failed"))
    output.note(
        f"{sum(x.asked for x in done)} points: {already} were in {store}, {performed} performed in "
        f"{format_seconds(time.monotonic() - began)}, {failed} of them failed."
    )
    if others:
        output.note(
            f"{store} also keeps {counted(others, 'run')} that another version of the model has priced: "
            "their column model differs"
        )
    one = all(len(spaces) * len(machines) == 1 for spaces, machines in points)
    if scales and one and not asked.chain and not output.as_json:
        show_scales(asked, compare_scales(asked, scales, _best_stored), {})


def _best_stored(asked: Sweep, report: "Settled") -> "tuple[str, Scale]":
    """Return the fastest run that a store has of a number of nodes or ranks."""
    from umm.space.scaling import Scale, devices_of
    from umm.space.store.database import Store
    from umm.space.store.model import model_digest

    machine = asked.hardware
    (n, k, (m,)), ranks = asked.multiplies()[0], asked.ranks or machine.default_ranks
    with Store(asked.store) as store:
        runs = store.frame(machine=machine.name, ranks=ranks, m=m, n=n, k=k, model=model_digest())
    if not len(runs) or not runs.time_s.notna().any():
        raise InputError(f"no run on {machine.name} with {ranks} ranks ended; see {asked.store}")
    best = runs.iloc[0]
    dtype = best["dtype"]
    chosen = f"A {best.a}, B {best.b}, C {best.c}, stationary {best.stationary}"
    used, memory = devices_of(machine, ranks), int(best.memory_bytes)
    words = f"C = AB with m={m}, n={n}, k={k}, {dtype}"
    return words, Scale(ranks, used, chosen, float(best.time_s), memory)

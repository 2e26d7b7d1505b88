"""``umm sweep``: every point asked for, into a store."""

from pathlib import Path
from typing import Any

from umm.cli.flags.chain import OfChains
from umm.cli.flags.declared import command, flag
from umm.cli.flags.options import WRITE, Budgeted, Limited, Printed
from umm.cli.flags.scaling import Scaled
from umm.cli.flags.schedule import Axes
from umm.cli.flags.values import dimension_list


@command("umm.cli.answers.sweep:sweep")
class Sweep(Axes, OfChains, Scaled, Budgeted, Limited, Printed):
    """Run every point of a space and store the results.

    Comma lists are axes, of sizes and machines too. Points already stored are skipped, so the same
    command continues a stopped sweep, and several sweeps may fill one store. --json prints a line per run.

    Several --nodes or --ranks of one multiply end with a table of the fastest of each.

    With --chain the points are layouts of all its tensors together: its named schemes, or every
    assignment of --choices; sizes are axes.
    """

    preset: str | None = flag(
        metavar="LIST", usual=True, help="Layers mlp1, mlp2: their n and k, and m unless -m is given.",
    )  # fmt: skip
    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K,8K.",
    )  # fmt: skip
    n: Any = flag("-n", callback=dimension_list, metavar="LIST", usual=True, help="Columns of B and C.")
    k: Any = flag("-k", callback=dimension_list, metavar="LIST", usual=True, help="Columns of A, rows of B.")
    machine: str = flag(
        default="h100-8", metavar="LIST", usual=True,
        help="Machines of 'umm machine list' or machine files.",
    )  # fmt: skip
    layouts: str | None = flag(
        metavar="LIST", usual=True, help="Schemes of a chain by name; all of them if not given.",
    )  # fmt: skip
    choices: str | None = flag(
        metavar="LIST", help="Layouts to choose from: every assignment of them to a chain's tensors.",
    )  # fmt: skip
    memory: str = flag(
        default="none", metavar="BUDGET",
        help="Memory limit of a rank; points that need more are stored as too large.",
    )  # fmt: skip
    executor: str = flag(
        default="sim", metavar="NAME",
        help="Executor of the schedules; bound stores lower bounds.",
    )  # fmt: skip
    pool: str = flag(
        default="process", metavar="NAME", usual=True,
        help="process: processes of this host; mpi: the ranks of mpiexec; dask: a cluster; none: this "
        "process alone.",
    )  # fmt: skip
    jobs: int | None = flag(
        metavar="N", usual=True,
        help="Number of processes; one per core, or what the pool has, if not given.",
    )  # fmt: skip
    store: Path = flag(
        "-o", type=WRITE, required=True, metavar="STORE", usual=True,
        help="SQLite file; an existing one is continued.",
    )  # fmt: skip
    export: Path | None = flag(
        type=WRITE, metavar="FILE", usual=True, help="Afterwards export the whole store as .csv or .parquet.",
    )  # fmt: skip

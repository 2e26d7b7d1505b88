"""``umm compare``: predicted against measured."""

from pathlib import Path

import click

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import argument, command, flag
from umm.cli.flags.options import READ, Answering, FromFile, Limited, Measured, Paged
from umm.cli.flags.values import share


@command("umm.cli.answers.compare:compare", machine="localhost")
class Compare(ToSchedule, FromFile, Measured, Paged, Limited, Answering, heading="Execution"):
    """Compare a predicted trace with a measured one, action by action.

    TRACES are two files that 'umm simulate --save-trace' and 'umm run --save-trace' wrote, the predicted
    first. Without them the schedule is simulated, executed with --executor, and the best run is compared.

    --profile puts a framework's kernels beside predicted ones: the share of their time that is explained,
    where both part, and the numbers of the machine that would close the gap.
    """

    traces: tuple[Path, ...] = argument(nargs=-1, type=READ)
    profile: Path | None = flag(
        type=READ, metavar="FILE", usual=True,
        help="A profile instead: torch.profiler's JSON (also .gz) or a Chakra trace, beside a prediction: a "
        "trace of 'umm simulate --save-trace', 'umm step --json -o FILE', or flags of a multiply or chain.",
    )  # fmt: skip
    module: str | None = flag(
        metavar="PACKAGE.MODULE:FUNCTION",
        help="With --profile, an nn.Module as eager PyTorch runs it, a kernel for each operation: the "
        "function returns it and its inputs. --backward adds gradients.",
    )  # fmt: skip
    steps: int | None = flag(
        type=click.IntRange(1, 1_000_000), metavar="COUNT",
        help="Steps that a --profile without ProfilerStep marks is of; 1 if not given.",
    )  # fmt: skip
    fail_above: float | None = flag(
        callback=share, metavar="SHARE", usual=True,
        help="Exit with code 4 if the predicted makespan is off by more than this.",
    )  # fmt: skip

"""``umm peers``: the universal algorithm beside current practice, and whether to change."""

import click

from umm.cli.flags.chain import Layered
from umm.cli.flags.declared import command, flag
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import Answering, Budgeted, Limited, Noisy, OfProblem, Paged
from umm.cli.flags.scaling import Scaled


@command("umm.cli.answers.peers:peers", machine="h100-8")
class Peer(OfFramework, Scaled, Layered, OfProblem, Budgeted, Noisy, Limited, Paged, Answering):
    """Compare the universal algorithm with other algorithms and with training systems.

    Every row starts with A and B in --a and --b (or --given) and ends with C in --c. Universal: in place,
    with the best stationary matrix and options. Redistribute: the same after moving operands to the best
    layouts, which a search finds. Then every other algorithm with its best options, including moves in and
    out. The verdict says what to do, and at which m that changes.

    With --chain: the best layouts of all its tensors, and the layouts of Megatron, sequence parallel, FSDP,
    data and data × tensor parallel. Every row assumes that inputs start in its layouts; --given X=row,W1=col
    adds the moves. Time, bytes and memory are of all --layers, those of a --model if not given.

    With --step: published recipes of whole training steps, with the flags of umm step.

    Ctrl-C and --seconds print the rows found so far, and name the missing ones.
    """

    refused: bool = flag(usual=True, help="Also list algorithms that do not apply, and what would work.")
    crossover: bool | None = flag(
        "--crossover/--no-crossover", default=None, usual=True,
        help="Look for other sizes at which the verdict changes.  [default: for a multiply]",
    )  # fmt: skip
    routings: int | None = flag(
        type=click.IntRange(2, 1000), metavar="COUNT",
        help="Add p50 and p95 over this many routings of a mixture of experts, with consecutive seeds.",
    )  # fmt: skip

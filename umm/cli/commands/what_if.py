"""The sensitivity command: each machine number's effect on the time, and where the choice flips."""

from pathlib import Path
from typing import Any

from umm.cli.flags.chain import ChainSearched
from umm.cli.flags.declared import command, flag
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import READ, Answering, Budgeted, Limited, Paged
from umm.cli.flags.schedule import SearchedAxes
from umm.cli.flags.values import Finite, dimension_list, seconds


@command("umm.cli.answers.what_if:what_if", name="what-if", machine="h100-8")
class WhatIf(OfFramework, SearchedAxes, ChainSearched, Budgeted, Paged, Limited, Answering, heading="Space"):
    """Show what would change the answer of a search.

    Each number of the machine is halved and doubled: the output shows how the best choice's time changes, and
    from which value on another choice is better. Fixed layouts (--a row --b col …) are one choice. --map
    shows the best choice over sizes -m 1K,2K,4K and memory or one number. With --chain a choice is the
    layouts of all its tensors; with --layers they have to fit the memory of as many.

    --measured 8.2s seeks the one number (a card's bandwidth, clocks, host time a kernel) with which the best
    choice, fixed layouts, or a --step takes that long.
    """

    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K.",
    )  # fmt: skip
    over: str | None = flag(
        "--map", metavar="memory|KEY", usual=True,
        help="Map the best choice over -m and the memory, or over -m and a machine number such as "
        "fabric*bandwidth.",
    )  # fmt: skip
    reach: float = flag(
        type=Finite(min=1.0, min_open=True), default=4.0, metavar="X", usual=True,
        help="Largest factor to try for a number; the smallest is its inverse.",
    )  # fmt: skip
    measured: float | None = flag(
        callback=seconds, metavar="TIME", usual=True,
        help="A measured time such as 8.2s: seek the one number that explains it, and say what else could.",
    )  # fmt: skip
    step: Path | None = flag(
        type=READ, metavar="FILE", usual=True,
        help="With --measured: a training step, as 'umm step … --json -o FILE' wrote it.",
    )  # fmt: skip
    margin: float = flag(
        type=Finite(min=0.0, max=0.5), default=0.01, metavar="SHARE",
        help="How much better another choice must be to be reported.",
    )  # fmt: skip

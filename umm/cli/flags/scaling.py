"""The axis of nodes or ranks, ``--nodes 1,2,4`` or ``--ranks 8,16``: its price, and growing sizes."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self, TypeVar

import click

from umm.cli.flags.chain import OfChain
from umm.cli.flags.declared import flag
from umm.cli.flags.values import Finite, ranks
from umm.errors import InputError
from umm.numbers import parse_whole, whole_in

if TYPE_CHECKING:
    from rich.console import Console

    from umm.space.scaling import Scale, Scaling
    from umm.space.search.walk import Progress

WEAK = ("m", "n", "k", "tokens", "length")
NUMBERS = (
    "nodes", "ranks", "m", "n", "k", "tokens", "sequences", "makespan", "speed-up", "efficiency", "GPU-s",
    "memory", "gap", "$/million",
)  # fmt: skip
"""Headings of columns that are aligned on the right."""


class Scaled(OfChain, heading="Machine"):
    """One or several numbers of nodes or ranks, with the price of a device and sizes that grow."""

    ranks: Any = flag(
        callback=ranks, metavar="LIST", usual=True,
        help="Number of ranks; the machine's own number if not given. A list compares numbers: 8,16,32.",
    )  # fmt: skip
    nodes: str | None = flag(
        metavar="LIST", usual=True,
        help="Number of nodes, for machines whose file has network cards; the file's own number if not "
        "given. A list compares numbers: 1,2,4.",
    )  # fmt: skip
    price: float | None = flag(
        type=Finite(min=0, min_open=True), metavar="DOLLARS",
        help="Dollars per device and hour: one table of what each number of nodes or ranks costs.",
    )  # fmt: skip
    weak: str | None = flag(
        type=click.Choice(WEAK),
        help="The dimension that grows with the ranks (weak scaling), with several --nodes or --ranks: "
        "tokens adds sequences where there is attention, length makes them longer.",
    )  # fmt: skip

    @property
    def by_nodes(self) -> bool:
        """Whether numbers of nodes are compared, not of ranks."""
        return bool(self.nodes) and not isinstance(self.ranks, tuple)

    def scales(self) -> list[Self]:
        """Return a request for each number of nodes or ranks; none for one number without a price.

        InputError for two axes, or a size that cannot grow.
        """
        nodes = [part.strip() for part in (self.nodes or "").split(",")]
        ranks = self.ranks if isinstance(self.ranks, tuple) else (self.ranks,)
        if len(nodes) == 1 and len(ranks) == 1:
            if self.weak is not None:
                raise InputError("--weak compares several numbers; give a list, such as --nodes 1,2,4")
            return [] if self.price is None else [self]
        if len(nodes) > 1 and len(ranks) > 1:
            raise InputError("--nodes and --ranks cannot both be lists; give one number of one of them")
        each = [replace(self, nodes=x) for x in nodes] if len(nodes) > 1 else [
            replace(self, ranks=x) for x in ranks
        ]  # fmt: skip
        counts = [x for x in map(whole_in, nodes) if x] if len(nodes) > 1 else list(ranks)
        if self.weak is None or len(counts) < len(each):  # a number that is none is refused where it is read
            return each
        return [x._grown(Fraction(count, counts[0])) for x, count in zip(each, counts, strict=True)]

    def size_of(self, name: str) -> Any:
        """Return a dimension of the multiply or the chain."""
        return self.sizes[name] if name in self.sizes else getattr(self, name)

    @property
    def growing(self) -> str:
        """The dimension that grows; empty if none does."""
        return "tokens" if self.weak == "length" else self.weak or ""

    def _grown(self, factor: Fraction) -> Self:
        """Return this with the sizes that grow with the ranks times a factor."""
        # More tokens are more sequences of the same length, as more of a batch is; longer ones would give
        # attention more work for each token.
        name, weak = self.growing, self.weak
        size = self.size_of(name)
        if size is None:
            typed = f"--{name}" if name == "tokens" else f"-{name}"
            raise InputError(f"--weak {weak} lacks the size that grows; give {typed}")
        from umm.program.presets import PRESETS

        attends = (self.chain or "") in PRESETS and "sequences" in PRESETS[self.chain or ""].sizes
        if weak == "length" and not attends:
            raise InputError(
                "--weak length is of chains with attention, such as transformer-layer; try --weak tokens"
            )
        if name != "tokens":
            grown: dict[str, Any] = {name: _times(size, factor)}
            return replace(self, **grown)
        sizes = {**self.sizes, name: _times(size, factor)}
        if weak == "tokens" and attends:
            sequences = self.sizes["sequences"] or 1
            each = sequences if isinstance(sequences, list) else [sequences]
            if any((x * factor).denominator > 1 for x in each):
                raise InputError(
                    f"--weak tokens adds whole sequences, and {factor} times {each[0]} is not whole; "
                    f"give another --sequences, or --weak length for longer ones"
                )
            sizes["sequences"] = _times(sequences, factor)
        return replace(self, sizes=sizes)

    def refuse_of_one(self, names: Sequence[str]) -> None:
        """Refuse flags that have a meaning for one number alone; InputError if one is given."""
        self.refuse(names, "several --nodes or --ranks, or --price, have one table; leave out {}")


def _times(size: Any, factor: Fraction) -> Any:
    """Return a size, or several, times a factor, rounded."""
    return [_times(x, factor) for x in size] if isinstance(size, list) else max(1, round(size * factor))


def _first(size: Any) -> Any:
    return size[0] if isinstance(size, list) else size


S = TypeVar("S", bound=Scaled)


def compare_scales(
    asked: S, scales: Sequence[S], best_of: "Callable[[S, Progress], tuple[str, Scale]]"
) -> "Scaling":
    """Return the best of each number of nodes or ranks; ended early, of those looked at so far.

    Of a limit of time each has its share of what is left.

    Args:
        asked: All of them; the command ends with :meth:`Output.end`.
        scales: Each, as :meth:`Scaled.scales` returns them.
        best_of: Returns for one what is computed, in words, and the best of it.
    """
    from umm.cli.printed.streams import share_of_time
    from umm.machines.settings import NODES, split_settings
    from umm.space.scaling import Scale, Scaling, in_words

    rows: list[Scale] = []
    missing: list[str] = []
    interrupted = False
    words, by_nodes = "", asked.by_nodes
    name, settings = split_settings(scales[0].hardware.name)
    kept = [f"{key}={value}" for key, value in settings.items() if key != NODES or not by_nodes]
    with asked.output.progress() as bar:
        task = bar.add_task("comparing", total=None)
        for place, scale in enumerate(scales):
            count = scale.nodes if by_nodes else scale.ranks
            number = in_words(count, by_nodes) if count else "all ranks"
            if interrupted:
                missing.append(number)
                continue

            def report(done: int, total: int, number: str = number) -> None:
                bar.update(task, description=number, completed=done, total=total or None)

            report(0, 0)
            try:
                with share_of_time(len(scales) - place) as used_up:
                    program, best = best_of(scale, report)
                early = bool(best.without)
            except KeyboardInterrupt:
                early = True
                missing.append(number)
            else:
                words = words or program
                size = _first(scale.size_of(scale.growing)) if scale.growing else 1
                row = replace(best, size=size, sequences=_first(scale.sizes["sequences"]) or 1)
                rows.append(replace(row, nodes=parse_whole(scale.nodes or "") if by_nodes else None))
            interrupted = early and not used_up()
            if early:
                asked.output.early.append(True)
    if not rows:
        raise KeyboardInterrupt
    return Scaling(" ".join([name, *kept]), words, rows, asked.weak or "", asked.price, missing)


def show_scales(asked: Scaled, scaling: "Scaling", more: dict[str, Any]) -> None:
    """Give numbers side by side as the answer, as JSON with something more."""
    from umm.cli.printed.output import print_fitting

    def shown(console: "Console") -> None:
        grows = f"; {scaling.grows}" if scaling.grows else ""
        console.print(f"{scaling.words} on {scaling.machine}{grows}")
        print_fitting(console, scaling.in_words(), NUMBERS, ["dim", *[""] * len(scaling.rows)])
        if scaling.left_out:
            console.print(scaling.left_out)
        if scaling.verdict:
            console.print(scaling.verdict, style="bold")

    asked.answer(lambda: more | {"scaling": scaling.to_dict()}, shown, [scaling])

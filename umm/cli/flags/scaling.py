"""The axis of nodes or ranks, ``--nodes 1,2,4`` or ``--ranks 8,16``: its price, and what grows with it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from umm.cli.flags.options import Command, all_of, given, option
from umm.cli.flags.values import Finite
from umm.cli.printed.output import Output
from umm.errors import InputError
from umm.numbers import parse_whole, whole_in
from umm.program.presets import PRESETS

if TYPE_CHECKING:
    from umm.machines import Machine
    from umm.space.scaling import Scale, Scaling
    from umm.space.search.walk import Progress

WEAK = ("m", "n", "k", "tokens", "length")


def scaling_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the price of a device and the dimension that grows with the ranks."""
    price = option(
        "--price", type=Finite(min=0, min_open=True), metavar="DOLLARS",
        help="Dollars per device and hour: one table of what each number of nodes or ranks costs.",
    )  # fmt: skip
    weak = option(
        "--weak", type=click.Choice(WEAK),
        help="The dimension that grows with the ranks (weak scaling), with several --nodes or --ranks: "
             "tokens adds sequences where there is attention, length makes them longer.",
    )  # fmt: skip
    return all_of([price, weak])


def asked_scales(flags: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the flags of each number of nodes or ranks; none where one number is asked for without a price.

    Raises:
        InputError: for two axes, or a size that cannot grow.
    """
    nodes = [part.strip() for part in (flags["nodes"] or "").split(",")]
    ranks = flags["ranks"] if isinstance(flags["ranks"], tuple) else (flags["ranks"],)
    price, weak = flags["price"], flags["weak"]
    if len(nodes) == 1 and len(ranks) == 1:
        if weak is not None:
            raise InputError("--weak compares several numbers; give a list, such as --nodes 1,2,4")
        return [] if price is None else [flags]
    if len(nodes) > 1 and len(ranks) > 1:
        raise InputError("--nodes and --ranks cannot both be lists; give one number of one of them")
    each = [{"nodes": x} for x in nodes] if len(nodes) > 1 else [{"ranks": x} for x in ranks]
    given = nodes if len(nodes) > 1 else [str(number) for number in ranks]
    counts = [count for count in map(whole_in, given) if count]
    if weak is None or len(counts) < len(each):  # a number that is none is refused where it is read
        return [flags | _one(flags) | x for x in each]
    return [
        flags | _one(flags) | x | _grown(flags, Fraction(count, counts[0]))
        for x, count in zip(each, counts, strict=True)
    ]


def _one(flags: dict[str, Any]) -> dict[str, Any]:
    return {} if not isinstance(flags["ranks"], tuple) else {"ranks": None}


def _grown(flags: dict[str, Any], factor: Fraction) -> dict[str, Any]:
    """Return the sizes that grow with the ranks, times a factor.

    More tokens are more sequences of the same length, as more of a batch is; longer ones would give attention
    more work for each token.

    Raises:
        InputError: if a size is not given, or sequences are not whole.
    """
    weak = flags["weak"]
    name = _size(weak)
    size = flags.get(name)
    if size is None:
        flag = f"--{name}" if name == "tokens" else f"-{name}"
        raise InputError(f"--weak {weak} lacks the size that grows; give {flag}")
    attends = flags.get("chain") in PRESETS and "sequences" in PRESETS[flags["chain"]].sizes
    if weak == "length" and not attends:
        raise InputError(
            "--weak length is of chains with attention, such as transformer-layer; try --weak tokens"
        )
    grown = {name: _times(size, factor)}
    if weak == "tokens" and attends:
        sequences = flags["sequences"] or 1
        each = sequences if isinstance(sequences, list) else [sequences]
        if any((x * factor).denominator > 1 for x in each):
            raise InputError(
                f"--weak tokens adds whole sequences, and {factor} times {each[0]} is not whole; "
                f"give another --sequences, or --weak length for longer ones"
            )
        grown["sequences"] = _times(sequences, factor)
    return grown


def _size(weak: str) -> str:
    """Return the flag of the dimension that grows."""
    return "tokens" if weak == "length" else weak


def _times(size: Any, factor: Fraction) -> Any:
    """Return a size, or several, times a factor, rounded."""
    return [_times(x, factor) for x in size] if isinstance(size, list) else max(1, round(size * factor))


def _first(size: Any) -> Any:
    return size[0] if isinstance(size, list) else size


Sought = Callable[[dict[str, Any], "Machine", "Progress"], "tuple[str, Scale]"]
"""Returns for some flags what is computed, in words, and the best of it."""


def compare_scales(
    output: Output, flags: dict[str, Any], scales: Sequence[dict[str, Any]], best_of: Sought
) -> "Scaling":
    """Return the best of each number of nodes or ranks; ended early, of those looked at so far.

    Of a limit of time each has its share of what is left.

    Args:
        output: Where progress goes; the command ends with :meth:`Output.end`.
        flags: Those of the command.
        scales: Those of each number, as :func:`asked_scales` returns them.
        best_of: Finds the best of one.
    """
    from umm.cli.flags.asked import asked_machine
    from umm.cli.printed.streams import share_of_time
    from umm.machines.settings import NODES, split_settings
    from umm.space.scaling import Scale, Scaling, in_words

    rows: list[Scale] = []
    missing: list[str] = []
    interrupted = False
    words, by_nodes = "", bool(flags["nodes"]) and not isinstance(flags["ranks"], tuple)
    name, settings = split_settings(asked_machine(scales[0]).name)
    kept = [f"{key}={value}" for key, value in settings.items() if key != NODES or not by_nodes]
    with output.progress() as bar:
        task = bar.add_task("comparing", total=None)
        for place, scale in enumerate(scales):
            asked = scale["nodes" if by_nodes else "ranks"]
            number = in_words(asked, by_nodes) if asked else "all ranks"
            if interrupted:
                missing.append(number)
                continue

            def report(done: int, of: int, number: str = number) -> None:
                bar.update(task, description=number, completed=done, total=of or None)

            report(0, 0)
            try:
                with share_of_time(len(scales) - place) as used_up:
                    said, found = best_of(scale, asked_machine(scale), report)
                early = bool(found.without)
            except KeyboardInterrupt:
                early = True
                missing.append(number)
            else:
                words = words or said
                size = _first(scale[_size(flags["weak"])]) if flags["weak"] else 1
                sequences = _first(scale.get("sequences")) or 1
                row = replace(found, size=size, sequences=sequences)
                rows.append(replace(row, nodes=parse_whole(scale["nodes"]) if by_nodes else None))
            interrupted = early and not used_up()
            if early:
                output.early.append(True)
    if not rows:
        raise KeyboardInterrupt
    name, price = " ".join([name, *kept]), flags["price"]
    return Scaling(name, words, rows, flags["weak"] or "", price, missing)


def show_scales(
    output: Output, command: str, found: "Scaling", html: Path | None, more: dict[str, Any]
) -> None:
    """Print numbers side by side, as a table or as JSON with something more, and write their page.

    Args:
        output: Where to.
        command: Which.
        found: The numbers.
        html: Where the page goes; None for nowhere.
        more: What else a JSON object has.
    """
    from umm.cli.printed.tables import print_scaling

    if output.as_json:
        output.json(command, more | {"scaling": found.to_dict()})
    else:
        print_scaling(output.console(), found)
    if html is not None:
        from umm.figures.what_if import write_scaling

        write_scaling(found, html)
        output.note(f"wrote {html}; it opens in any browser, offline")
    output.end()


def refuse_of_one(ctx: click.Context, names: Sequence[str]) -> None:
    """Refuse flags that have a meaning for one number alone.

    Raises:
        InputError: if one is given.
    """
    typed = given(ctx, names)
    if typed:
        raise InputError(
            f"several --nodes or --ranks, or --price, have one table; leave out {', '.join(typed)}"
        )

"""Answers of the commands in :mod:`umm.cli.commands.peers`."""

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import click
from click.core import ParameterSource
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from umm.cli.commands.peers import Peer
from umm.cli.flags.asked import PROBLEM
from umm.cli.flags.chain import CHAIN, LAYERS
from umm.cli.flags.declared import names_of
from umm.cli.flags.options import Noisy
from umm.cli.flags.scaling import compare_scales, show_scales
from umm.cli.printed.assignments import given_in_words
from umm.cli.printed.report import on_nodes
from umm.errors import EndedEarlyError, InputError
from umm.executor import executor
from umm.layouts.layout import Layout
from umm.layouts.text import brief
from umm.program import Outline
from umm.program.models import find_model
from umm.program.presets import PRESETS, next_tokens
from umm.program.problem import MATRICES, Problem
from umm.program.statements.attention import sequences_in_words
from umm.space.peers import peers as comparing
from umm.space.peers.contender import BEST, FOUND, Row, Scheme, Stack, over_routings
from umm.space.peers.multiplies import PDGEMM, Way
from umm.space.peers.table import Peers
from umm.space.scaling import NO_ROOM, Scale
from umm.space.search.noise import Noise
from umm.space.search.robustness import Spread, spread
from umm.space.search.walk import Progress
from umm.units import counted, format_bytes, format_seconds, range_in_words

CHAIN_LINE = "{:<16} {:>9} {:>13} {:>9} {:>10} {:>12}"
UNKNOWN = "–"  # in the column of ranges of a row that has none
LINE = "{:<12} {:>9} {:>13} {:>9} {:>9} {:>9} {:>11}"


def peers(asked: Peer) -> None:
    """Answer ``umm peers``."""
    of_one = ("crossover", "routings", *names_of(Noisy))
    asked = asked.with_model(of_one)
    output, noise, routings = asked.output, asked.noise, asked.routings
    scales = asked.scales()
    asked.check_layers()
    if asked.layers is not None:
        asked.refuse(of_one, "{} is for one layer; leave out --layers")
    if scales:
        asked.refuse_of_one(("refused", *of_one))
        show_scales(asked, compare_scales(asked, scales, _best_of), {})
        return
    outline = asked.outline()
    if routings is not None and (noise is not None or outline is None or not outline.has_experts):
        raise InputError("--routings needs a mixture of experts, without --jitter and --straggler")

    def ended(row: Row) -> None:  # before its range and its place among the others are known
        time, mark = format_seconds(row.makespan_s), "" if row.fits else "*"
        output.by_the_way(f"{row.algorithm:<16} {time:>9}  {mark}{row.how}")

    with output.ending(Peers) as answer, output.reporting() as report:
        answer.append(
            comparing.peers(
                outline or asked.problem,
                asked.hardware,
                ranks=asked.ranks,
                memory=asked.budget,
                crossover=outline is None if asked.crossover is None else asked.crossover,
                at=_at(asked),
                tokens=asked.sizes["tokens"] or 0,
                stack=_stack(asked),
                progress=report,
                ended=ended,
            )
        )
    (result,) = answer
    spreads = _spreads(asked, result)
    over = noise if routings is None else f"{routings} routings"

    def record() -> dict[str, Any]:
        free, crossover, starts = result.anywhere, result.crossover, result.starts
        size = result.size
        record: dict[str, Any] = {
            "problem": {"chain": result.start.name, "ranks": result.ranks, "given": dict(result.start.given)}
            if size == "tokens"
            else dict((result.asked or result.start).record()),
            "machine": result.machine.name,
            "memory_limit_bytes": result.limit,
            "rows": [result.record(row) for row in result.rows],
            "verdict": result.verdict,
            "crossover": crossover
            and {size: crossover.at, "below": crossover.below, "from": crossover.above},
            "stretches": [vars(x) for x in result.stretches],
            "assumed_latencies": None if starts is None else starts.to_dict(),
        }
        if spreads is not None:
            record["rows"] = [row | x._asdict() for row, x in zip(record["rows"], spreads, strict=True)]
        for row, x in zip(record["rows"], result.rows, strict=True):
            row["command"] = _as_simulate(asked.ctx, result, x)
        if not result.complete:
            record |= {"complete": False, "missing": list(result.missing)}
        record["refused"] = dict(result.refused)
        if size == "tokens":
            return record | {"proven": result.proven}
        return record | {"anywhere": None if free is None else free.to_dict()}

    def shown(console: Console) -> None:
        (_print_multiply if result.size == "m" else _print_program)(console, result)
        console.print("moved: bytes between ranks, all ranks together; memory: of the fullest rank.")
        if not all(row.fits for row in result.rows):
            console.print("*: more than a rank may hold.")
        if result.complete and any(row.corners_s is None for row in result.rows):
            console.print(f"{UNKNOWN}: no range, since simulating it again would take long.")
        if result.refused and result.size == "tokens":
            cannot = ", ".join(f"{name} ({why})" for name, why in result.refused.items())
            console.print(f"Not simulated, since they cannot fit: {cannot}.")
        elif asked.refused:
            for name, why in result.refused.items():
                console.print(f"{name} is not applicable: {why}")
        elif result.refused:
            console.print(f"Not applicable here: {', '.join(result.refused)} (see --refused).")
        if result.anywhere is not None:
            console.print(f"With free choice of layouts: {result.anywhere}.")
        if not result.complete:
            rest = list(result.missing)
            ranges = ", and no ranges" if any(row.corners_s is None for row in result.rows) else ""
            console.print(f"Ended early: not simulated are {', '.join(rest) or 'other sizes'}{ranges}.")
        words = "" if result.starts is None else result.starts.in_words(result.best.makespan_s)
        if words:
            console.print(f"{result.best.title}: {words}")
        console.print(Text(result.verdict, style="bold"))
        if spreads is not None:
            _print_spreads(console, result, spreads, over)
        console.print(f"To repeat {result.best.title}:")
        console.print(_as_simulate(asked.ctx, result, result.best), soft_wrap=True)

    asked.answer(record, shown, [result])


def _spreads(asked: Peer, result: Peers) -> Sequence[Spread] | None:
    """Return the median and p95 of each row; None if nothing varies, or it was ended early."""
    output, noise = asked.output, asked.noise
    try:
        if noise is not None and not output.early:
            simulator = executor("sim")
            with output.tracking("draws of each row") as track:
                made = (result.rows[i].contender for i in track(range(len(result.rows))))
                return [spread(x.schedule(result.start, result.machine), noise, simulator) for x in made]
        if asked.routings is not None and not output.early:
            seeds = range(asked.routing_seed, asked.routing_seed + asked.routings)
            starts = [replace(asked, routing_seed=seed).outline() for seed in seeds]
            return over_routings(result.rows, [x for x in starts if x is not None], result.machine)
    except KeyboardInterrupt:  # the table is shown without them
        output.early.append(True)
    return None


def _best_of(asked: Peer, report: Progress) -> tuple[str, Scale]:
    """Return the program in words, and the best row on a number of nodes or ranks."""
    program: Outline | Problem = asked.outline() or asked.problem
    machine, without = asked.hardware, cast("Sequence[str]", ())
    how: dict[str, Any] = {"ranks": asked.ranks, "memory": asked.budget, "stack": _stack(asked)}
    try:
        result = comparing.peers(program, machine, crossover=None, **how)
    except EndedEarlyError as early:
        if not isinstance(early.found, Peers):
            raise
        result, without = early.found, early.found.missing
    best = result.best
    if program.kind == "problem":
        words = program.facts("")[0][1].rstrip(", ")
        chosen = ", ".join([best.algorithm, *(f"{x} {text}" for x, text in best.layouts.items())])
    else:
        layers = "" if asked.layers is None else f"{asked.layers} layers of "
        words = layers + program.in_words
        named = cast("Scheme", best.contender).named(_schemes(result))
        chosen = ", ".join(x for x in (named, best.how) if x)
    chosen += "" if best.fits else NO_ROOM
    figures = chosen, best.makespan_s, best.memory_bytes
    return words, Scale.of(machine, result.ranks, *figures, without=without)


def _as_simulate(ctx: click.Context, result: Peers, row: Row) -> str:
    """Return the command that simulates a row."""
    if result.size == "m":
        start = result.asked or result.start
        typed, replaced = cast("Way", row.contender).typed(result.start, start), {"a", "b", "c", "given"}
    else:
        typed, replaced = cast("Scheme", row.contender).typed(_schemes(result)), set()
    words = ["umm", "simulate"]
    for param in ctx.command.params:
        name, value = param.name or "", ctx.params.get(param.name or "")
        of_program = {*CHAIN, *LAYERS, *PROBLEM, "module", "einsum", "letters"} - replaced
        of_model = name == "layers" and row.model is not None
        usual = ctx.get_parameter_source(name) is ParameterSource.DEFAULT and not of_model
        if name not in of_program or usual:
            continue
        if of_model and row.model is not None:
            value = row.model.layers
        if name == "recompute" and row.model is not None:
            value = row.model.recompute
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(param, click.Argument):
                words.append(str(one))
                continue
            switch = param.opts if one is True else param.secondary_opts
            words += [switch[0]] if isinstance(one, bool) else [param.opts[0], str(one)]
    return shlex.join(words + typed)


def _schemes(result: Peers) -> list[Scheme]:
    """Return the schemes of a table's rows, of a chain."""
    return [cast("Scheme", row.contender) for row in result.rows]


def _stack(asked: Peer) -> Stack | None:
    """Return the layers; None if no number of them is asked for; InputError if there is no chain."""
    if asked.layers is None:
        return None
    if asked.chain is None:
        raise InputError("layers need a chain, such as --chain transformer-layer")
    vocab = find_model(asked.model).vocab if asked.model else 0
    return Stack(asked.layers, asked.recompute, asked.optimizer, vocab, asked.head_type)


def _at(asked: Peer) -> Callable[[int], Outline] | None:
    """Return a function from a number of tokens to the preset with it; None of anything else."""
    if asked.chain not in PRESETS:
        return None
    return lambda tokens: cast("Outline", replace(asked, sizes={**asked.sizes, "tokens": tokens}).outline())


def _print_spreads(
    console: Console, result: Peers, spreads: Sequence[Spread], noise: Noise | str | None
) -> None:
    """Print the median and p95 of each row, and which of those that fit has the least p95."""
    console.print(f"With {noise}:")
    console.print(Text(f"{'':<16} {'p50':>10} {'p95':>10}", style="dim"))
    fitting = []
    for row, x in zip(result.rows, spreads, strict=True):
        p50, p95 = map(format_seconds, x)
        console.print(Text(f"{row.title:<16} {p50:>10} {p95:>10}"))
        fitting += [(x.p95_s, row.title)] if row.fits else []
    if fitting:
        console.print(f"{min(fitting)[1]} has the least p95.")


def _print_program(console: Console, result: Peers) -> None:
    """Print the program, and a line for each row; layouts for the one that has no name."""
    stack = result.stack
    times = f"{counted(stack.layers, 'layer')} of " if stack else ""
    console.print(f"{times}{result.start.in_words}; {result.ranks} ranks on {result.machine.name}")
    if tokens := sequences_in_words(result.start.statements, {x.name: x.rows for x in result.start.tensors}):
        console.print(f"{tokens}.")
    if result.start.given:
        console.print(given_in_words(result.start))
    if stack is not None:
        console.print(_stack_in_words(result, stack))
    sure = "proven best of its space" if result.proven else "not proven best"
    console.print(f"At most {format_bytes(result.limit)} a rank; the {FOUND} is {sure}.")
    console.print(Text(CHAIN_LINE.format("", "time", "range", "exposed", "moved", "memory"), style="dim"))
    for row in result.rows:
        cells = (row.title, format_seconds(row.makespan_s), _range(row), *_moved_and_held(row))
        console.print(Text(CHAIN_LINE.format(*cells).rstrip(), style=_style(row, result)))
        below = _below(row, result)
        if below:
            console.print(_indented("; ".join(below)))
    console.print("The tensors' layouts of the others: umm simulate … --layouts NAME.")


def _indented(text: str) -> Padding:
    """Return the text below a row, all its lines indented."""
    return Padding(Text(text, style="dim"), (0, 0, 0, 2))


def _below(row: Row, result: Peers) -> list[str]:
    """Return the second line of a program's row: layouts without a name, movement, how many layers fit."""
    parts = [row.how] if row.how else []
    if row.algorithm == BEST:
        same = [x.algorithm for x in result.rows if x is not row and _is_like(x.contender, row.contender)]
        alike: dict[str, list[str]] = {}
        for name, layout in row.layouts.items():
            alike.setdefault(brief(layout).removesuffix(" (ranks permuted)"), []).append(name)
        lies = [f"{layout}: {' '.join(names)}" for layout, names in alike.items()]
        parts = [f"as {same[0]}", *parts] if same else lies + parts
    if row.model and not row.fits:
        fit, chunked = (row.model.fits(result.limit, x) for x in (False, True))
        more = f", {chunked} with the loss in chunks of tokens" if chunked > fit else ""
        parts.append(f"{fit} of {counted(row.model.layers, 'layer')} fit{more}")
    return parts


def _is_like(one: Any, other: Any) -> bool:
    """Whether two schemes have the same statements in the same layouts, whatever moves them."""
    texts = (
        [x.replace("@p", f"@{scheme.ranks}") for x in scheme.layouts.values()] for scheme in (one, other)
    )
    return one.change == other.change and next(texts) == next(texts)


def _stack_in_words(result: Peers, stack: Stack) -> str:
    """Explain the times and memory of several layers."""
    trained = any(x.name == "dY" for x in result.start.tensors)
    *tried, last = stack.recompute
    again = f"recompute {', '.join(tried)} or {last}, the first that fits" if tried else f"recompute {last}"
    parts = [again] if trained else []
    if stack.state:
        parts.append(f"{stack.state:g} bytes of optimizer state for each element of a weight")
    elif trained:
        parts.append("no optimizer's states (--optimizer adam for Adam in mixed precision)")
    rows = {x.name: x.rows for x in result.start.tensors}
    few = 0 < next_tokens(result.start.statements, rows) < rows["X"]
    last = " of each sequence's last token" if stack.vocab and few else ""
    ends = f"{'with' if stack.vocab else 'without'} embedding and head{last}"
    return f"Times, bytes and memory are of all layers, {'; '.join([ends, *parts])}."


def _print_multiply(console: Console, result: Peers) -> None:
    """Print where operands start, and a line for each row with its choices below."""
    start: Any = result.asked or result.start
    a, b, c = map(brief, (start.a, start.b, start.c))
    lie = f"A, B and C in {a}" if a == b == c else f"From A {a}, B {b} to C {c}"
    console.print(
        f"C = AB with m={start.m}, n={start.n}, k={start.k}, {start.types}, {start.p} ranks on "
        f"{result.machine.name}\n{lie}; at most {format_bytes(result.limit)} a rank."
    )
    if filled := on_nodes(result.machine, start.p):
        console.print(f"Nodes: {filled}.")
    if result.machine.rank:
        console.print(f"A rank is {result.machine.rank}.")
    if start.layouts != result.start.layouts:
        console.print("All blocks of a rank count as one tile: what moves between two ranks is one message.")
    header = LINE.format("", "time", "range", "own", "exposed", "moved", "memory")
    console.print(Text(header, style="dim"))
    for row in result.rows:
        times = format_seconds(row.makespan_s), _range(row), format_seconds(row.own_s)
        cells = (row.algorithm, *times, *_moved_and_held(row))
        console.print(Text(LINE.format(*cells).rstrip(), style=_style(row, result)))
        console.print(_indented(_choices(row, result)))
    console.print("own: if operands started in the layouts in which the row multiplies.")


def _style(row: Row, result: Peers) -> str:
    return "bold" if row is result.best else "" if row.fits else "dim"


def _range(row: Row) -> str:
    """Return the range of a row; one number where its ends are written alike."""
    if row.range_s is None:
        return UNKNOWN
    low, to, high = range_in_words(row.makespan_s, row.range_s).partition(" to ")
    return low + to + high if low != high else low


def _moved_and_held(row: Row) -> tuple[str, str, str]:
    memory = format_bytes(row.memory_bytes) + ("" if row.fits else " *")
    exposed = row.exposed_s if row.exposed_s > 1e-9 * row.makespan_s else 0.0  # the rest is rounding
    return format_seconds(exposed), format_bytes(row.bytes), memory


def _choices(row: Row, result: Peers) -> str:
    """Return the layouts in which a row multiplies, where they differ, and its options."""
    layouts = zip(result.start.layouts, row.layouts.values(), strict=True)
    moved = [
        None if now == Layout.parse(then, now.shape, now.ranks) else then  # however each is written
        for now, then in layouts
    ]
    where = "PDGEMM, in place" if row.algorithm == PDGEMM else "in place"
    return "; ".join(x for x in (_alike(moved) or where, row.how) if x)


def _alike(layouts: Sequence[str | None]) -> str:
    """Return which layouts A, B and C have, those alike together: ``A in row, B C in col``."""
    alike: dict[str, list[str]] = {}
    for name, layout in zip(MATRICES, layouts, strict=True):
        if layout is not None:
            alike.setdefault(brief(layout), []).append(name)
    return ", ".join(f"{' '.join(names)} in {layout}" for layout, names in alike.items())

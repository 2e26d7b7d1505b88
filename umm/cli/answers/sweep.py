"""Answers of the commands in :mod:`umm.cli.commands.sweep`."""

import time
from typing import Any

import click

from umm.cli.commands.sweep import Sweep
from umm.cli.flags.scaling import compare_scales, show_scales
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.flags.values import PRESETS
from umm.cli.printed.save import check_targets
from umm.errors import InputError
from umm.files import shown
from umm.program import Outline
from umm.space import Space
from umm.space.scaling import Scale
from umm.space.search.walk import Progress as Settled
from umm.space.store.database import Store, checked_export
from umm.space.store.model import model_digest
from umm.space.store.sweeps import Progress
from umm.space.store.sweeps import sweep as perform
from umm.units import counted, format_seconds


def sweep(asked: Sweep) -> None:
    """Answer ``umm sweep``."""
    asked = asked.with_model()

    output, store, export = asked.output, asked.store, asked.export
    if export is not None:
        checked_export(export)
        new = {} if store.is_file() and store != export else {"store": store}
        check_targets(new | {"export": export})
    scales = asked.scales()
    points = [
        (_spaces(each), [x for name in each.machine.split(",") for x in each.machines(name.strip())])
        for each in scales or [asked]
    ]
    swepts, stored = [], [0, 0]
    began = time.monotonic()
    with output.progress() as bar:
        task = bar.add_task("sweeping", total=None)

        def report(progress: Progress) -> None:
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


def _best_stored(asked: Sweep, report: Settled) -> tuple[str, Scale]:
    """Return the fastest run that a store has of a number of nodes or ranks."""
    machine = asked.hardware
    (n, k, (m,)), ranks = _multiplies(asked)[0], asked.ranks or machine.default_ranks
    with Store(asked.store) as store:
        runs = store.frame(machine=machine.name, ranks=ranks, m=m, n=n, k=k, model=model_digest())
    if not len(runs) or not runs.time_s.notna().any():
        raise InputError(f"no run on {machine.name} with {ranks} ranks ended; see {asked.store}")
    best = runs.iloc[0]
    dtype = best["dtype"]
    chosen = f"A {best.a}, B {best.b}, C {best.c}, stationary {best.stationary}"
    words = f"C = AB with m={m}, n={n}, k={k}, {dtype}"
    return words, Scale.of(machine, ranks, chosen, float(best.time_s), int(best.memory_bytes))


def _spaces(asked: Sweep) -> list[Space]:
    """Return the points that are asked for, of multiplies or of chains."""
    chains = asked.outlines()
    if chains:
        return _of_chains(asked, chains)
    axes = asked.axes_asked | asked.types | {"ranks": asked.ranks}
    return [Space(m=m, n=n, k=k, **axes) for n, k, rows in _multiplies(asked) for m in rows]


def _of_chains(asked: Sweep, chains: list[Outline]) -> list[Space]:
    """Return the points of chains: their own layouts by name, or every assignment of choices."""
    asked.refuse(SCHEDULE, "{} is not an axis of a chain's sweep; leave it out")
    named, choices = (
        None if texts is None else tuple(text.strip() for text in texts.split(","))
        for texts in (asked.layouts, asked.choices)
    )
    if choices is None:
        return [Space(chain=x, ranks=asked.ranks, named=named or "all") for x in chains]
    if named is not None:
        raise InputError("--choices makes every assignment, --layouts names some; leave out one or the other")
    return [Space(chain=x, ranks=asked.ranks, layouts=choices) for x in chains]


def _multiplies(asked: Sweep) -> list[tuple[int, int, list[int]]]:
    """Return n, k and the values of m of each layer asked for.

    InputError for an unknown preset, or a dimension that is missing or given twice.
    """
    m, n, k = asked.m, asked.n, asked.k
    if asked.preset is None:
        if m is None or n is None or k is None:
            raise InputError("the sweep lacks sizes; give -m, -n and -k, or --preset mlp1,mlp2")
        return [(columns, inner, m) for columns in n for inner in k]
    if n is not None or k is not None:
        raise InputError("a preset already decides -n and -k; leave out one or the other")
    layers = []
    for name in asked.preset.split(","):
        if name.strip() not in PRESETS:
            raise InputError(f"preset {shown(name.strip())} is unknown; choose from {', '.join(PRESETS)}")
        preset = PRESETS[name.strip()]
        layers.append((preset["n"], preset["k"], m or [preset["m"]]))
    return layers

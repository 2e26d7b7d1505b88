"""The kernels of a step at one rank, each with its shape and seconds, to stand beside a profile's."""

from collections.abc import Iterable, Iterator
from itertools import chain

from umm.profiles.kernel import MAP, Kernel
from umm.program.models.layers import Layer
from umm.step.layers import FORWARD, Part
from umm.step.pipeline import stage_of
from umm.step.step import Question, update_kernels

AGAIN = "recomputed"


def _kernels_of(parts: Iterable[Part]) -> Iterator[Kernel]:
    return chain.from_iterable(x.kernels for x in parts)


def layer_kernels(asked: Question, layer: Layer, full: bool, plain: bool) -> Iterator[Kernel]:
    """Yield the kernels of a layer for one micro-batch, forward and backward.

    Args:
        full: Whether backward computes all of it again.
        plain: Whether it stays in bfloat16.
    """
    parts, again = asked.parts(layer, full, plain)
    yield from _kernels_of(parts)
    yield from (x._replace(name=AGAIN) for x in _kernels_of(again) if x.name == FORWARD)
    if not full:
        yield from (Kernel(MAP, AGAIN, x.recast) for x in again)
    if share := asked.repeated(full):
        for one in _kernels_of(x for x in parts if x.weight):
            if one.name == FORWARD:
                yield one._replace(name=AGAIN, calls=share * one.calls)
    yield from asked.gathers(asked.weights(layer, plain))


def step_kernels(asked: Question, stage: int = 0) -> list[Kernel]:
    """Return the kernels of a step at a rank of a stage; calls with one shape and pass are one row.

    Weights that are split and gathered, expert parallel exchanges and recomputed passes are among them; sends
    between stages are not.
    """
    p, model = asked.parallel, asked.model
    layers, count = (*model.layers, *model.mtp), p.micro_batches
    rows: dict[tuple[object, ...], Kernel] = {}

    def add(kernels: Iterable[Kernel], times: float) -> None:
        for one in kernels:
            if one.seconds:
                key = (*one.key, one.name, one.seconds, one.group)
                before = rows[key].calls if key in rows else 0.0
                rows[key] = one._replace(calls=before + one.calls * times)

    parts, costs = asked.end_parts, asked.ends
    seconds = [x.seconds for x in (costs[0], *asked.layer_costs, costs[1])]
    for chunk, items in enumerate(asked.split(seconds)):
        for item in items if stage_of(chunk, p.pp, p.schedule) == stage else ():
            number, end = item - 1, int(item > 0)
            if item in (0, len(seconds) - 1):
                add([*_kernels_of(parts[end]), *asked.gathers(costs[end])], count)
                continue
            add(layer_kernels(asked, layers[number], *asked.kind(number)), count)
            if number >= len(model.layers) and layers[number].expansions:
                add(_kernels_of([*asked.prediction_parts, *parts[1]]), count)
    tie = [asked.tie] if stage * p.stage_ranks in asked.ends_at else []
    add([*update_kernels(asked, asked.stages[stage]), *tie], 1.0)
    return list(rows.values())

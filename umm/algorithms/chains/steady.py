"""Many layers: what one in the middle takes, when its neighbours' transfers run behind its multiplies."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from umm.algorithms.chains.lower import lower
from umm.executor import run
from umm.machines import Machine
from umm.program import Outline
from umm.program.layers import of_layers, parts_of, repeated
from umm.traces.trace import Trace

FEW = 2
"""Layers that a model starts and ends with; each more adds as much as the one before."""


@dataclass(frozen=True)
class Steady:
    """A model of equal layers on a machine.

    Attributes:
        layers: How many.
        recompute: What the backward part computes again.
        layer_s: Seconds of one in the middle, forward and backward.
        makespan_s: Seconds of all of them.
        parts: Of a layer in the middle the seconds of compute, reduce, exposed communication and idle, the
            mean of all ranks.
        memory_bytes: What the fullest rank holds of all layers.
        weights: Elements of the weights of a layer.
        kept_bytes: Of it what a layer keeps for the backward part on the fullest rank.
        trace: Of a few layers.
    """

    layers: int
    recompute: str
    layer_s: float
    makespan_s: float
    parts: Mapping[str, float]
    memory_bytes: int
    weights: int
    kept_bytes: int
    trace: Trace

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "layers": self.layers, "recompute": self.recompute, "layer_s": self.layer_s,
            "makespan_s": self.makespan_s, "layer_parts": dict(self.parts),
            "memory_bytes": self.memory_bytes, "kept_bytes": self.kept_bytes,
        }  # fmt: skip


def steady(
    layer: Outline,
    layouts: Mapping[str, str],
    ranks: int,
    machine: Machine,
    layers: int,
    *,
    recompute: str = "none",
    state: float = 0.0,
    **how: Any,
) -> Steady:
    """Return what many layers take, from schedules of two and of three.

    The third layer adds what every further one adds: by then gathers of the next layer's weights, and sums of
    gradients, run behind the multiplies of their neighbours as far as they can.

    Args:
        layer: One layer, such as a preset.
        layouts: The layout of each of its tensors.
        ranks: Ranks that share the work.
        machine: Where.
        layers: How many layers.
        recompute: What the backward part computes again: none, attention, all.
        state: Bytes of optimizer state for each element of a weight.
        how: As :func:`umm.algorithms.chains.lower.lower` takes it.

    Raises:
        InputError: if the chain is not a layer, or cannot be laid out.
    """
    few = min(layers, FEW)
    fewer, more = (_trace(layer, layouts, ranks, machine, n, recompute, how) for n in (few, few + 1))
    rest = layers - few
    layer_s = more.makespan_s - fewer.makespan_s
    held = [trace.schedule.memory_bytes for trace in (fewer, more)]
    laid = layer.laid_out(layouts, ranks)
    of_state = sum(
        (x.layout.elements_of_rank * state for x in laid.tensors if x.name in layer.weights),
        start=0 * held[0],
    )
    memory = held[0] + (held[1] - held[0]) * rest + (of_state * layers).astype(held[0].dtype)
    kept = parts_of(layer, recompute).kept if recompute != "none" or layer.kept else frozenset()
    return Steady(
        layers,
        recompute,
        layer_s,
        fewer.makespan_s + layer_s * rest,
        {name: more.breakdown().mean[name] - x for name, x in fewer.breakdown().mean.items()},
        int(memory.max()),
        sum(x.shape[0] * x.shape[1] for x in laid.tensors if x.name in layer.weights),
        int(sum(x.nbytes_of_rank.max() for x in laid.tensors if x.name in kept)),
        more,
    )


def _trace(
    layer: Outline,
    layouts: Mapping[str, str],
    ranks: int,
    machine: Machine,
    layers: int,
    recompute: str,
    how: Any,
) -> Trace:
    whole = repeated(layer.with_layouts("asked", layouts), layers, recompute)
    if isinstance(how.get("stationary"), Mapping):
        how = how | {"stationary": of_layers(layer, layers, how["stationary"], recompute)}
    return run(lower(whole.laid_out("asked", ranks), machine, **how))

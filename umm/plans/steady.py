"""Time and memory of a model's layers, of which a few are simulated: one in the middle, and the ends."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from math import ceil, inf, isclose
from typing import Any, NamedTuple

import numpy as np

from umm.arrays import Ints
from umm.errors import ProblemError
from umm.executor import run
from umm.files import whole_number
from umm.machines import Machine
from umm.plans.lower import lower
from umm.plans.movement.choice import AUTO
from umm.program import Outline
from umm.program.layers import CACHE, X, copies, of_layers, parts_of, repeated
from umm.program.presets import ends
from umm.program.systems import choices_left, in_scheme
from umm.schedules.schedule import Schedule
from umm.traces.breakdown import PARTS
from umm.traces.trace import Trace
from umm.traces.traffic import bytes_by_kind

MAX_SIMULATED_LAYERS = 16  # layers simulated at most, all of them if there are no more
MAX_LAYERS_WITHOUT_ROOM = 4  # layers simulated at most of a model that does not fit
MOST_ACTIONS = 60_000  # actions of a schedule of several layers; two layers may have more
REGULAR = 1e-4  # share by which layers that take the same may differ: deeper schedules would show nothing new


class KindTime(NamedTuple):
    """Seconds of the layers of one kind."""

    layers: int  # number of layers
    layer_s: float  # of one in the middle
    makespan_s: float  # of all of them


@dataclass(frozen=True)
class Steady:
    """A model of equal layers, or of layers of several kinds, on a machine."""

    layers: int  # number of layers
    recompute: str  # what the backward part computes again
    # How many layers the schedules have that layers are timed by, the last that of `trace`.
    depths: tuple[int, ...]
    alone_s: float  # seconds of one without neighbours
    # Seconds of one in the middle, forward and backward, the mean of all between the first and the last
    # depth.
    layer_s: float
    # The least and the most seconds of a layer, each the mean between two depths that follow each other:
    # apart where ranks drift away from each other.
    range_s: tuple[float, float]
    makespan_s: float  # seconds of all of them
    # Of a layer in the middle the seconds of compute, reduce, exposed communication and idle, the mean of all
    # ranks; they add up to `layer_s`, and none is negative.
    parts: Mapping[str, float]
    breakdown: Mapping[str, float]  # the same of all, ends included; they add up to `makespan_s`
    # Payload between ranks of each kind of transfer, all ranks together, of all layers.
    moved: Mapping[str, int]
    memory_bytes: int  # what the fullest rank holds of all layers
    weights: int  # elements of the weights of a layer
    # Useful flop of all: what the backward part computes again is none, such as scores, nor is what a mask
    # drops.
    flop: int
    # Of it what all layers' weights, gradients, optimizer states, inputs and what else they keep for the
    # backward part take there, and each of the ends; the rest is what one layer after another uses.
    held: Mapping[str, int]
    kept_bytes: int  # what a layer keeps for the backward part on the rank that keeps most
    layer_bytes: int  # what one layer more adds on the rank where it adds most
    trace: Trace  # of a few layers
    state: float = 0.0  # bytes of optimizer state for each element of a weight, counted in the memory
    # Seconds of the embedding and the head, which are part of all seconds; empty without them.
    ends: Mapping[str, float] = field(default_factory=dict)
    logits_bytes: int = 0  # what the head's logits and the gradients by them take of the memory, being whole
    # Whether ranks that drift apart have to wait for each other for a layer to take `layer_s`.
    waits: bool = False
    # Where layers are of several kinds, the seconds of each by its name; `layer_s` is their mean, and depths
    # and trace are of the one that takes longest.
    kinds: Mapping[str, KindTime] = field(default_factory=dict)

    def with_ends(self, ends: Iterable["End"], ranks: int, machine: Machine, **how: Any) -> "Steady":
        """Return it with a model's ends before and after its layers, which overlap none of them.

        Args:
            how: As :func:`lower` takes it for the layers; what is said of each multiply is of these.
        """
        result = self
        # Choices by product name are of the layers' multiplies, which the ends do not have.
        how = how | {x: AUTO for x in ("stationary", "movement") if isinstance(how.get(x), Mapping)}
        for name, outline, texts, scheme in ends:
            chain = outline.laid_out(texts, ranks)
            trace = run(lower(chain, machine, **how | choices_left(chain, how, scheme)))
            nbytes = trace.memory_bytes + sum(
                int(self.state * x.layout.elements_of_rank.max())
                for x in chain.tensors
                if x.name in outline.weights
            )
            # A head's logits and the gradients by them, on the rank that holds most.
            outputs = [x for x in chain.tensors if x.name in ("Y", "dY")]
            logits = sum(int(x.itemsize * x.layout.elements_of_rank.max()) for x in outputs)
            result = replace(
                result,
                makespan_s=result.makespan_s + trace.makespan_s,
                breakdown=_sums(result.breakdown, trace.breakdown().mean),
                flop=result.flop + chain.flop,
                moved=_sums(result.moved, bytes_by_kind(trace.schedule)),
                memory_bytes=result.memory_bytes + nbytes,
                held={**result.held, name: nbytes},
                ends={**result.ends, name: trace.makespan_s},
                logits_bytes=result.logits_bytes + (logits if name == "head" else 0),
            )
        return result

    @property
    def bytes(self) -> int:
        """Payload between ranks, all ranks together, of all layers and ends."""
        return sum(self.moved.values())

    @property
    def times(self) -> float:
        """How many times as long as one layer alone all take."""
        return self.makespan_s / self.alone_s

    def fits(self, room: float, chunked: bool = False) -> int:
        """Return how many such layers fit into so many bytes of a rank.

        Args:
            chunked: Whether the loss is computed in chunks of tokens: of the few logits then, none counts.

        Source: Hsu et al. (2024), Liger Kernel, fused linear cross entropy.
        """
        room += self.logits_bytes if chunked else 0
        # Everything but the per-layer part is fixed, so the layers that do not fit follow from one division.
        over = max(0.0, self.memory_bytes - room)
        return max(0, self.layers - ceil(over / self.layer_bytes)) if self.layer_bytes else self.layers

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values: of all layers, except those that begin with ``layer``."""
        moved = {f"{kind}_bytes": self.moved.get(kind, 0) for kind in ("get", "put", "accumulate", "reduce")}
        return moved | {
            "kinds": [{"kind": name, **x._asdict()} for name, x in self.kinds.items()],
            "ends": dict(self.ends), "breakdown": dict(self.breakdown),
            "layers": self.layers, "simulated_layers": self.depths[-1],
            "recompute": self.recompute, "layer_s": self.layer_s,
            "layer_range_s": list(self.range_s),
            "makespan_s": self.makespan_s, "layer_parts": dict(self.parts),
            "memory_bytes": self.memory_bytes, "held_bytes": dict(self.held),
            "kept_bytes": self.kept_bytes, "layer_bytes": self.layer_bytes,
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
    room: float = inf,
    **how: Any,
) -> Steady:
    """Time many layers by schedules of a few, or of all if they are up to sixteen.

    Gathers of the next layer's weights, and sums of gradients, run behind the multiplies of their neighbours
    as far as they can. Where layers take the same from the second on, four are enough; else as many are
    simulated as :data:`MAX_SIMULATED_LAYERS` and :data:`MOST_ACTIONS` let, and further ones take the mean of
    these, the first quarter left out; see :func:`middle` for ranks that drift apart. InputError if the chain
    is not a layer, or cannot be laid out.

    Args:
        recompute: What the backward part computes again: none, attention, all.
        state: Bytes of optimizer state for each element of a weight.
        room: Bytes of a rank: of layers that hold more, at most four are simulated.
        how: As :func:`umm.plans.lower.lower` takes it.
    """
    laid = layer.laid_out(layouts, ranks)
    weights = [x for x in laid.tensors if x.name in layer.weights]
    of_state = sum((x.layout.elements_of_rank * state for x in weights), start=np.zeros(ranks))

    def held(depth: int, trace: Trace) -> Ints:
        """Return the bytes of each rank for all layers, from a trace of some."""
        count = copies(layer, layers, recompute)
        counted = copies(layer, depth, recompute, written=True)
        more = sum(x.nbytes_of_rank * (count[x.name] - counted[x.name]) for x in laid.tensors)
        total: Ints = trace.schedule.memory_bytes + more + (of_state * layers).astype(np.int64)
        return total

    def several(depth: int, inner: bool = False) -> Trace:
        return run(of_several(layer, layouts, ranks, machine, depth, recompute, inner, **how))

    # Extrapolation: simulate few layers, take the slope between two depths, and add it for the rest.
    traces = _deeper(layers, several, lambda depth, trace: bool(held(depth, trace).max() > room))
    depth, more = max(traces.items())
    start = _start(traces)
    rest, between = layers - depth, depth - start
    fewer = traces.get(start)
    now, before = bytes_by_kind(more.schedule), bytes_by_kind(fewer.schedule) if fewer else {}
    # Bytes grow linearly from `start` on; the first layers differ, as they have no neighbour before them.
    moved = {x: nbytes + round((nbytes - before.get(x, 0)) / between * rest) for x, nbytes in now.items()}
    layer_s, each_parts, waits = middle(traces, partial(several, 1, inner=True) if rest else None)
    count, next_one = copies(layer, layers, recompute), copies(layer, layers + 1, recompute)
    added = sum((x.nbytes_of_rank * (next_one[x.name] - count[x.name]) for x in laid.tensors), of_state)
    # Activations of the backward part; recomputing trades them for work.
    kept = parts_of(layer, recompute).kept if recompute != "none" or layer.kept else frozenset()
    each = [layer_s, *(seconds for at, seconds in _slopes(traces) if at > start)]
    full = held(depth, more)
    # The fullest rank decides whether a model fits, so the breakdown is of that one.
    rank = int(full.argmax())

    def there(names: Collection[str]) -> int:
        return sum(int(x.nbytes_of_rank[rank]) for x in laid.tensors if x.name in names)

    of_rank = {
        "weights": there(layer.weights),
        "gradients": there([f"d{x}" for x in layer.weights]),
        "optimizer": int(of_state[rank]),
        "layer inputs": there([X]) if X in layer.kept and parts_of(layer).backward else 0,
        "kept for the backward part": there(kept),
        "cache": there([x.name for x in laid.tensors if x.name.endswith(CACHE)]),
    }
    return Steady(
        layers=layers,
        recompute=recompute,
        depths=(*([start] if fewer else []), depth),
        alone_s=traces[1].makespan_s,
        layer_s=layer_s,
        range_s=(min(each), max(each)),
        makespan_s=more.makespan_s + layer_s * rest,
        parts=each_parts,
        breakdown=_sums(more.breakdown().mean, {x: seconds * rest for x, seconds in each_parts.items()}),
        moved=moved,
        memory_bytes=int(full[rank]),
        weights=sum(x.shape[0] * x.shape[1] for x in weights),
        flop=laid.flop * layers,
        held={what: nbytes * layers for what, nbytes in of_rank.items() if nbytes},
        kept_bytes=int(sum(x.nbytes_of_rank.max() for x in laid.tensors if x.name in kept)),
        layer_bytes=int(added.max()),
        trace=more,
        state=state,
        waits=waits,
    )


def _deeper(
    layers: int, simulated: Callable[[int], Trace], too_large: Callable[[int, Trace], bool]
) -> dict[int, Trace]:
    """Return the traces of 1, 2, 4, … layers, until all are there, or more would show nothing new."""
    # Ranks that wait for each other keep step, and each layer takes the same; ranks that do not may drift
    # apart over several layers, which just deeper schedules show.
    whole_number(layers, "layers", 1)
    deepest = min(layers, MAX_SIMULATED_LAYERS)
    # Doubling keeps all shallower schedules together below twice the deepest one.
    depths = [*(x for x in (1, 2, 4, 8) if x < deepest), deepest]
    traces: dict[int, Trace] = {}
    for depth in depths:
        if len(traces) > 1:
            last, trace = max(traces.items())
            # Actions grow linearly with depth, so the next schedule's size is known before it is made.
            large = len(trace.schedule) * depth > MOST_ACTIONS * last
            if large or _is_regular(traces) or (depth > MAX_LAYERS_WITHOUT_ROOM and too_large(last, trace)):
                break
        traces[depth] = simulated(depth)
    return traces


def _slopes(traces: Mapping[int, Trace]) -> list[tuple[int, float]]:
    """Return the mean seconds of the layers up to each depth from the one before, or from none."""
    pairs = pairwise([(0, 0.0), *((depth, trace.makespan_s) for depth, trace in sorted(traces.items()))])
    return [(depth, (now - then) / (depth - before)) for (before, then), (depth, now) in pairs]


def _is_regular(traces: Mapping[int, Trace]) -> bool:
    """Return whether the layers of the last two stretches take the same; the first layer is none."""
    seconds = [x for _, x in _slopes(traces)[1:]]
    return len(seconds) > 1 and isclose(*seconds[-2:], rel_tol=REGULAR)


def _start(traces: Mapping[int, Trace]) -> int:
    """Return the depth after which layers are in the middle: the last but one, or a quarter of the last."""
    *before, depth = sorted(traces)
    if _is_regular(traces):
        return before[-1]
    # Early layers, in which ranks have not drifted apart yet, would make the slope too small.
    return max((x for x in before if 4 * x <= depth), default=before[0] if before else 0)


def middle(
    traces: Mapping[int, Trace], inner: Callable[[], Trace] | None
) -> tuple[float, dict[str, float], bool]:
    """Return the seconds of a layer in the middle, their parts, and whether its ranks have to wait for it.

    Ranks that drift apart, so that layers take longer than the second did, could wait for each other in
    between, as where collectives of a library keep them in step. Layers then take what the second took, or
    what one of the middle takes alone if that is more: it gathers its weights twice, and computes again what
    it does not keep, where a first layer that is the last finds both there.

    Args:
        inner: Gives the trace of one of the middle alone; None if there are no more than simulated.
    """
    depth, more = max(traces.items())
    start = _start(traces)
    fewer, between = traces.get(start), depth - start
    layer_s = (more.makespan_s - (fewer.makespan_s if fewer else 0.0)) / between
    # The second layer is the first with a neighbour, and ranks have hardly drifted apart yet.
    second = traces[2].makespan_s - traces[1].makespan_s if depth > 2 else inf
    # A mean above both the second layer's and a lone layer's time is a sign of drift, not of work.
    if inner and layer_s > max(second, traces[1].makespan_s) and not _is_regular(traces):
        alone = inner()
        if layer_s > max(second, alone.makespan_s):
            if alone.makespan_s < second:
                return second, added_parts(traces[1], traces[2]), True
            return alone.makespan_s, dict(alone.breakdown().mean), True
    parts = added_parts(fewer, more) if fewer else more.breakdown().mean
    return layer_s, {part: seconds / between for part, seconds in parts.items()}, False


def _sums(some: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Add up two mappings key by key; a missing key counts 0."""
    return {x: some.get(x, 0) + others.get(x, 0) for x in {**some, **others}}


def added_parts(fewer: Trace, more: Trace) -> dict[str, float]:
    """Return the parts of the time that a layer more adds, in seconds, the mean of all ranks.

    It may take away some of a part, as when its gathers fill idle time at the ends. That part is then 0, and
    another wait is as much shorter.
    """
    before, after = fewer.breakdown().mean, more.breakdown().mean
    parts, rest = {}, max(0.0, more.makespan_s - fewer.makespan_s)
    for part in PARTS[:-1]:
        # Capped by what is left, so that the parts add up to the time that the layer adds.
        parts[part] = min(max(0.0, after[part] - before[part]), rest)
        rest -= parts[part]
    return {**parts, PARTS[-1]: rest}  # idle is what is left


def of_several(
    layer: Outline,
    layouts: Mapping[str, str],
    ranks: int,
    machine: Machine,
    layers: int,
    recompute: str = "none",
    inner: bool = False,
    **how: Any,
) -> Schedule:
    """Return the schedule of some layers one after another."""
    outline = _repeated(layer, layers, recompute, inner)
    # Choices by product name are repeated under the names that each layer's copy of the product has.
    each = {
        x: value for x, value in how.items() if x in ("stationary", "movement") and isinstance(value, Mapping)
    }
    how = how | {x: of_layers(layer, layers, value, recompute) for x, value in each.items()}
    return lower(outline.laid_out(of_layers(layer, layers, layouts, recompute), ranks), machine, **how)


# A search asks for the same layers in one assignment of layouts after another.
_repeated = lru_cache(maxsize=4)(repeated)


class End(NamedTuple):
    """A part of a model before or after its layers."""

    name: str  # what it is called
    outline: Outline  # the chain, as its scheme runs it
    layouts: Mapping[str, str]  # a text for each tensor
    scheme: str = ""  # the name of these; empty if they have none


def ends_in(scheme: str, layer: Outline, vocab: int, ranks: int, head: str = "") -> list[End]:
    """Return the embedding and the head of a model in a scheme, or in one of their own where they lack it.

    Args:
        vocab: Different tokens; 0 if that is not known, and there are none.
        head: Type of the head's weight, if not that of the layer.
    """
    result = []
    # Experts cut by tensors have decoded tokens on every rank.
    decoded = scheme == "tensor" and any(x.context for x in layer.tensors)
    other = "megatron" if decoded else "sequence"
    for name, outline in ends(layer, vocab, head).items() if vocab else ():
        try:
            end = in_scheme(scheme, outline, ranks)
            result.append(End(name, end, end.layouts_of(scheme or None, ranks), scheme))
        except ProblemError:  # of attention's, such as ring
            result.append(End(name, outline, outline.layouts_of(other, ranks)))
    return result


def together(kinds: Mapping[str, Steady]) -> Steady:
    """Add up layers of several kinds that run one after another.

    Seconds, bytes and flop add up by count. Layers of one kind overlap their neighbours as if all of a kind
    came in a row; where two kinds meet nothing overlaps. Of memory, what each layer keeps adds up, and what
    one layer after another uses is the most of any kind. The trace is of the kind that takes longest.
    """
    main = max(kinds.values(), key=lambda x: x.makespan_s)
    if len(kinds) == 1:
        return main
    every = kinds.values()
    layers = sum(x.layers for x in every)
    memory, moved, breakdown, parts = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for kind in every:
        memory.update(kind.held)
        moved.update(kind.moved)
        breakdown.update(kind.breakdown)
        parts.update({x: seconds * kind.layers / layers for x, seconds in kind.parts.items()})
    # Layers run one after another and reuse the same working memory; what they hold stays.
    used_in_turn = max(x.memory_bytes - sum(x.held.values()) for x in every)
    layer_s = sum(x.layer_s * x.layers for x in every) / layers
    return replace(
        main,
        layers=layers,
        # A kind without attention has none of it to compute again.
        recompute=next((x.recompute for x in every if x.recompute != "none"), "none"),
        layer_s=layer_s,
        range_s=(layer_s, layer_s),
        makespan_s=sum(x.makespan_s for x in every),
        parts=parts,
        breakdown=breakdown,
        moved=moved,
        memory_bytes=sum(memory.values()) + used_in_turn,
        flop=sum(x.flop for x in every),
        held=memory,
        kept_bytes=max(x.kept_bytes for x in every),
        layer_bytes=max(x.layer_bytes for x in every),
        waits=any(x.waits for x in every),
        kinds={label: KindTime(x.layers, x.layer_s, x.makespan_s) for label, x in kinds.items()},
    )


def weights_stored(layers: Steady, share: float) -> Steady:
    """Return layers whose weights are stored in fewer bytes than their multiplies are priced with.

    Args:
        share: Bytes of the weights as stored, over those that were counted.
    """
    weights = layers.held.get("weights", 0)
    if share == 1 or not weights:
        return layers
    saved = round(weights * (1 - share))
    return replace(
        layers,
        held={**layers.held, "weights": weights - saved},
        memory_bytes=layers.memory_bytes - saved,
        layer_bytes=layers.layer_bytes - saved // layers.layers,
    )

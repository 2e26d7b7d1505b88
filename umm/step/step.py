"""The time and memory of a training step: chunks of layers, their pipeline, sums of gradients, the update."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import pairwise
from typing import NamedTuple

from umm.errors import ProblemError
from umm.machines import Machine
from umm.profiles.kernel import MAP, Kernel
from umm.program.models.layers import Attention, LatentAttention, Layer, Model
from umm.program.models.split import check_split
from umm.step.layers import CORE, DATA, EXCHANGE, FORWARD, UPDATE, WEIGHT, Part, Shape, layer_parts, pieces
from umm.step.parallel import FROM_START, Parallel
from umm.step.pipeline import ZERO_BUBBLE, Chunk, Timeline, kept_at_peaks, stage_of, timeline
from umm.step.rates import BF16, DTYPES, FP32, KEPT_MORE, STORED, Rates
from umm.step.stacks import Stack, find_stack
from umm.units import percent

LAYERS, BUBBLE, COMMUNICATION, LOSS, OPTIMIZER, HOST = (
    "layers", "bubble", "communication", "loss", "optimizer", "host",
)  # fmt: skip
ATTENDS = Attention | LatentAttention
STATES = {"adam": 3, "muon": 2, "sgd": 1}
"""Numbers of 4 bytes that an optimizer keeps for each weight, the weight itself in float32 among them."""
GATHERED = 2
"""Layers whose weights are gathered at a time where they are split: the one that runs and the next."""
GATHER_BUFFERS, SUM_BUFFERS = 6, 4
"""Buffers of a micro-batch's hidden states for tensor parallel collectives that run beside multiplies.

Operands are gathered in the type of the multiplies, sums are in bfloat16. Source: Transformer Engine,
pytorch/module/base.py (initialize_ub).
"""
IN_BF16_WEIGHTS = {"attention": "self_attn.", "latent": "_latent_proj"}
"""Parts of the names of weights whose modules ``--keep-bf16`` leaves in bfloat16."""
MAX_PASSES = 2**21  # passes of all micro-batches that are simulated at most: some ten seconds
MAX_DEPTHS = 8  # depths of multi-token prediction
LEAST_POWER = 0.25
"""Lowest power limit of a device, of its own: nvidia-smi takes 100 of 400 W (A100), 200 of 700 W (H100)."""


class Cost(NamedTuple):
    """One micro-batch in a layer, or in the parts before or after all layers."""

    forward: float = 0.0  # seconds of kernels forward
    data: float = 0.0  # seconds backward, recomputed passes included, without the gradients of weights
    weight: float = 0.0  # seconds of the gradients of weights
    sent: float = 0.0  # seconds of collectives forward that nothing hides
    returned: float = 0.0  # the same backward
    kept: float = 0.0  # bytes kept from forward to backward
    issued: float = 0.0  # kernels that the host issues, forward and backward
    dense: float = 0.0  # weights of a rank outside experts
    experts: float = 0.0  # weights of a rank's experts
    wide: float = 0.0  # of `dense`, those that stay in bfloat16
    wide_experts: float = 0.0  # of `experts`
    loss: float = 0.0  # seconds of kernels that belong to the loss
    offloaded: float = 0.0  # bytes kept in the host's memory from forward to backward
    waits: float = 0.0  # seconds forward in which the device has nothing to do but wait for its host
    # Bytes that its backward pass needs beside those kept, a layer at a time: several need the most of them.
    working: float = 0.0
    placeholders: float = 0.0  # bytes of weights' gradients that autograd is handed beside their sums

    def __add__(self, other: object) -> "Cost":
        """Return the sum, field by field."""
        assert isinstance(other, Cost)
        total = Cost(*(x + y for x, y in zip(self, other, strict=True)))
        return total._replace(
            working=max(self.working, other.working), placeholders=max(self.placeholders, other.placeholders)
        )

    @property
    def seconds(self) -> float:
        """Seconds forward and backward."""
        return self.forward + self.data + self.weight + self.sent + self.returned + self.waits

    @property
    def backward(self) -> float:
        """Seconds backward, collectives that nothing hides among them."""
        return self.data + self.weight + self.returned


@dataclass(frozen=True)
class Step:
    """A training step as it is predicted."""

    seconds: float  # from its first kernel to its last
    lowest: float  # the same where all uncertain numbers are on the fast side
    highest: float  # on the slow side
    parts: Mapping[str, float]  # seconds by part; they sum to `seconds`
    by_stage: list[dict[str, float]]  # bytes of a rank of each pipeline stage at its peak, by part
    model_flop: float  # arithmetic of the model, forward and backward, nothing computed again
    parallel: Parallel  # how it is spread
    pipeline: Timeline  # when passes run
    peak: float

    @property
    def memory(self) -> Mapping[str, float]:
        """Bytes of the rank that needs most, by part."""
        return max(self.by_stage, key=lambda parts: sum(parts.values()))

    @property
    def memory_bytes(self) -> float:
        """Bytes of the rank that needs most."""
        return sum(self.memory.values())

    @property
    def tokens_per_second(self) -> float:
        """Tokens of all sequences a second and device."""
        return self.parallel.batch * self.parallel.length / self.seconds / self.parallel.ranks

    @property
    def shares(self) -> str:
        """Parts of its time of half a percent and more, in words: ``layers 80 %, bubble 12 %``."""
        parts = {x: s / self.seconds for x, s in self.parts.items()}
        return ", ".join(f"{x} {percent(share)}" for x, share in parts.items() if abs(share) >= 0.005)

    @property
    def mfu(self) -> float:
        """Model flop over those of all devices at the peak of the step's type."""
        return self.model_flop / (self.seconds * self.parallel.ranks * self.peak)


@dataclass(frozen=True)
class Question:
    """A step to be predicted."""

    model: Model  # the model, with its vocabulary
    parallel: Parallel  # how it is spread
    # Seconds of kernels and collectives on its machine; questions that share it share their prices.
    rates: Rates

    @property
    def stack(self) -> Stack:
        """The software that runs the step."""
        return self.rates.stack

    @property
    def machine(self) -> Machine:
        """The machine."""
        return self.rates.machine

    @cached_property
    def shape(self) -> Shape:
        """Arguments of a layer's kernels."""
        return Shape(self.model.hidden, self.parallel, self.rates)

    @cached_property
    def plain(self) -> Shape:
        """Arguments of the kernels of a layer that stays in bfloat16."""
        return replace(self.shape, rates=replace(self.rates, precision="bf16", _known={}))

    @cached_property
    def layer_costs(self) -> list[Cost]:
        """Each layer in order, those of multi-token prediction last; equal layers share one."""
        p, known, costs = self.parallel, self.rates.layers, []
        sizes = (p.tp, p.cp, p.ep, p.dp, p.shards, p.zero == 2, p.micro_batch, p.length, p.recompute)
        alike = (*sizes, p.keep_bf16, self.model.hidden, self.model.vocab)
        count = len(self.model.layers)
        for number, layer in enumerate((*self.model.layers, *self.model.mtp)):
            full, plain = self.kind(number)
            offloads = number < p.offloaded_layers
            key = (layer, full, plain, offloads, number >= count, alike)
            if key not in known:
                cost = self._layer(layer, full, plain, offloads)
                known[key] = cost + self._prediction(layer) if number >= count else cost
            costs.append(known[key])
        return costs

    def kind(self, number: int) -> tuple[bool, bool]:
        """Return whether a layer is computed again in full, and whether it stays in bfloat16."""
        p, count = self.parallel, len(self.model.layers)
        full = p.recompute == "full" or bool(p.every and number % p.every == 0)
        return full, "mtp" in p.kept_bf16 if number >= count else number >= count - p.last_bf16

    @cached_property
    def prediction_parts(self) -> list[Part]:
        """The parts before the head of a depth of multi-token prediction: DeepSeek-V3, section 2.2."""
        joint = self.plain.linear(2 * self.model.hidden, self.model.hidden, rows=self.plain.own_rows)
        return [joint, *[self.plain.norm()] * 3]

    def _prediction(self, layer: Layer) -> Cost:
        """Return the end of a depth of multi-token prediction; the embedding and the head are the model's."""
        if not layer.expansions:
            return Cost()
        # Its logits wait for the backward pass beside those of the model.
        last, dense = self.ends[1], 2.0 * self.model.hidden**2
        last = last._replace(dense=dense, wide=dense, kept=last.kept + last.working, working=0.0)
        return last + _cost(self.prediction_parts, 12, 0.0)

    def parts(self, layer: Layer, full: bool, plain: bool) -> tuple[list[Part], list[Part]]:
        """Return the parts of a layer, and those that backward computes again.

        Args:
            full: Whether it computes all again.
            plain: Whether the layer stays in bfloat16.
        """
        parts = layer_parts(layer, self.plain if plain else self.shape)
        return parts, [p for p in parts if full or _computed_again(p, self.parallel)]

    def repeated(self, full: bool) -> float:
        """Return the share of multiplies by weights that backward repeats, parts computed again aside."""
        return self.stack.repeats if self.parallel.recompute == "selective" and not full else 0.0

    def _layer(self, layer: Layer, full: bool, plain: bool, offloads: bool) -> Cost:
        parts, again = self.parts(layer, full, plain)
        # Of a module that is computed again from its start, nothing is kept inside.
        inner = [p for p in again if full or not self.parallel.again.isdisjoint({*p.modules} & FROM_START)]
        kept = sum(0.0 if p in inner else p.inputs + (0.0 if p in again else p.kept) for p in parts)
        if full:
            kept = self.shape.own_rows * self.model.hidden * BF16
        weights = self.weights(layer, plain)
        cost = _cost(parts, 3 * sum(p.issued for p in parts) + sum(p.issued for p in again), weights.dense)
        cost = cost._replace(
            # Computed again with its multiply, a result is cast there.
            data=cost.data
            + sum(p.forward + (0.0 if full else p.recast) for p in again)
            + self.repeated(full) * sum(p.forward for p in parts if p.weight),
            returned=cost.returned + sum(p.sent for p in again),
            kept=kept,
            experts=weights.experts,
            wide=weights.wide,
            wide_experts=weights.wide_experts,
            waits=self._waits(parts),
            # What is computed again of a layer stays while that layer's backward pass runs.
            working=cost.working + sum(p.kept + (p.inputs if p in inner else 0.0) for p in again),
            placeholders=self._placeholders(parts),
        )
        cost = self._with_gathers(cost)
        if offloads:
            # Copies run beside the layer, out in the forward pass and back in the backward one.
            copied = kept / self.rates.load.host_link
            forward = cost.forward + cost.sent + cost.waits
            cost = cost._replace(
                kept=0.0, offloaded=kept, sent=cost.sent + max(0.0, copied - forward),
                returned=cost.returned + max(0.0, copied - cost.backward),
            )  # fmt: skip
        return cost

    def _placeholders(self, parts: Sequence[Part]) -> float:
        """Return the bytes of a gradient of each shape of a layer's weights, where autograd is handed one."""
        if not self.stack.placeholders or self.parallel.shards > 1:
            return 0.0
        shapes = {x.shape[-3:-1] for p in parts for x in p.kernels if x.name == WEIGHT and x.seconds}
        return sum(float(k) * n * BF16 for k, n in shapes)

    def weights(self, layer: Layer, plain: bool) -> Cost:
        """Return a layer's weights of a rank; all of them stay in bfloat16 if ``plain``."""
        p = self.parallel
        dense = experts = wide = 0.0
        kept = [name for module, name in IN_BF16_WEIGHTS.items() if module in p.kept_bf16]
        for weight in layer.weights(self.model.hidden):
            if weight.module.startswith("mlp.experts"):
                experts += weight.elements / p.ep
                continue
            share = weight.elements / (p.tp if weight.linear else 1)
            dense += share
            # Norms, biases and the router are no multiplies in few bits.
            wide += share if not weight.linear or any(x in weight.module for x in kept) else 0.0
        if plain:
            wide = dense
        return Cost(dense=dense, experts=experts, wide=wide, wide_experts=experts if plain else 0.0)

    def _waits(self, parts: Sequence[Part]) -> float:
        """Return by how much the host, which learns their sizes late, issues kernels too slowly."""
        awaited = [x for x in parts if x.awaited]
        issued = sum(x.issued for x in awaited) * self.stack.launch_s * self.rates.load.host
        return max(0.0, issued - sum(x.forward + x.sent for x in awaited))

    def _with_gathers(self, cost: Cost) -> Cost:
        """Return a layer with its weights gathered before each pass, and its gradients scattered after."""
        gathers = self.gathers(cost)
        if not gathers:
            return cost
        gather = sum(x.seconds for x in gathers if x.name == FORWARD)
        scatter = sum(x.seconds for x in gathers if x.kind == "reduce-scatter")
        # Collectives run beside the layer before or after, also where that waits for its host.
        backward = cost.data + cost.weight
        forward_slowed = self.rates.load.contention * min(gather, cost.forward)
        back_slowed = self.rates.load.contention * min(gather + scatter, backward)
        return cost._replace(
            forward=cost.forward + forward_slowed,
            data=cost.data + back_slowed,
            sent=cost.sent + max(0.0, gather - cost.forward - cost.waits - forward_slowed),
            returned=cost.returned + max(0.0, gather + scatter - backward - back_slowed),
        )

    def gathers(self, cost: Cost) -> list[Kernel]:
        """Return each micro-batch's gathers of weights in both passes, and sums of their gradients."""
        p, shape, stack = self.parallel, self.shape, self.stack
        groups = [(p.data_group[: p.shards] if p.shards > 1 else p.data_group, cost.dense, cost.wide)]
        if cost.experts and len(p.expert_data_group) > 1:
            groups.append((p.expert_data_group, cost.experts, cost.wide_experts))
        kernels = []
        for group, weights, wide in groups:
            if p.shards > 1:
                nbytes = gathered_bytes(p, stack, weights, wide)
                kernels += [shape.collective(word, "all-gather", group, nbytes) for word in (FORWARD, DATA)]
            # Sums that are split leave no room for those of several micro-batches.
            if p.shards > 1 or p.zero == 2:
                nbytes = weights * stack.gradient_bytes
                kernels.append(shape.collective(DATA, "reduce-scatter", group, nbytes))
        return kernels

    @cached_property
    def end_parts(self) -> tuple[list[Part], list[Part]]:
        """The parts of the embedding, and of the head and the loss."""
        shape, vocab = self.shape, -(-self.model.vocab // self.parallel.tp)
        looked_up = shape.passes(FORWARD, 2.0 * shape.own_rows * self.model.hidden * BF16)
        # PyTorch writes a gradient as large as the table, mostly zeros, then adds it to the sum.
        # Source: ATen, native/cuda/Embedding.cu (embedding_dense_backward_cuda).
        nbytes = vocab * self.model.hidden * (2.0 * BF16 + 2.0 * self.stack.gradient_bytes)
        table = shape.passes(DATA, nbytes, 2)
        first = [
            Part(LOSS, (looked_up, looked_up._replace(name=DATA, calls=2.0), table)),
            self.plain.scatter(self.model.hidden),
        ]
        if not vocab:
            return first, []
        end = shape if self.parallel.precision in self.stack.head_types else self.plain
        head = end.linear(self.model.hidden, vocab, kept=shape.own_rows)
        loss = shape.passes(FORWARD, shape.rows * vocab * self.stack.loss_bytes / 2, 3)
        logits = shape.rows * vocab * self.stack.logit_bytes
        passes = Part(LOSS, (loss, loss._replace(name=DATA)), gradient=logits)
        return first, [head, end.gather(self.model.hidden), passes]

    @property
    def ends_at(self) -> tuple[int, ...]:
        """The first rank of the embedding's stage and of the head's, once where these are one."""
        p = self.parallel
        stages = {stage_of(x, p.pp, p.schedule): None for x in (0, p.chunks - 1)}
        return tuple(x * p.stage_ranks for x in stages)

    @property
    def tie(self) -> Kernel:
        """The sum of a table's two gradients, where the head is in another stage and multiplies by it."""
        group = self.ends_at if self.model.tied else ()
        nbytes = self.ends[0].dense * self.stack.gradient_bytes
        return self.shape.collective(UPDATE, "all-reduce", group, nbytes)

    @cached_property
    def ends(self) -> tuple[Cost, Cost]:
        """The embedding, and the last norm with the head and the loss."""
        table = -(-self.model.vocab // self.parallel.tp) * self.model.hidden
        tied = self.model.tied and len(self.ends_at) == 1
        first, last = (
            _cost(*x) for x in zip(self.end_parts, (3, 12), (table, 0.0 if tied else table), strict=True)
        )
        if not table:
            return first, Cost()
        if self.parallel.precision in self.stack.head_types:
            last = last._replace(wide=0.0)
        first, last = self._with_gathers(first), self._with_gathers(last)
        return first, last._replace(loss=last.forward + last.data + last.weight)

    @cached_property
    def chunks(self) -> list[Cost]:
        """The costs of each chunk of the pipeline, cut so that the slowest takes least."""
        first, last = self.ends
        items = [first, *self.layer_costs, last]
        return [sum((items[i] for i in part), Cost()) for part in self.split([x.seconds for x in items])]

    def split(self, seconds: Sequence[float]) -> list[range]:
        """Return which items are in each chunk: as many layers in each where that is possible."""
        # Megatron-LM splits layers evenly, or with the embedding and the loss counted as a layer each; what
        # cannot be split so, or has multi-token prediction, is cut so that the slowest chunk takes least, as
        # its layout strings allow.
        chunks, items = self.parallel.chunks, len(seconds)
        if (each := self.parallel.chunk_layers) and chunks > 1:
            if each * (chunks - 1) > len(self.model.layers):
                raise ProblemError(
                    f"--chunk-layers {each} in {chunks} chunks needs {each * (chunks - 1)} layers at least; "
                    f"{self.model.name} has {len(self.model.layers)}"
                )
            starts = [0, *(1 + each * i for i in range(1, chunks)), items]
            return [range(*x) for x in pairwise(starts)]
        if self.model.mtp:
            return cut(seconds, chunks)
        if (items - 2) % chunks == 0 and items > 2:
            each = (items - 2) // chunks
            starts = [0, *(1 + each * i for i in range(1, chunks)), items]
        elif items % chunks == 0:
            starts = [items // chunks * i for i in range(chunks + 1)]
        else:
            return cut(seconds, chunks)
        return [range(*x) for x in pairwise(starts)]

    @cached_property
    def stage_chunks(self) -> list[list[Cost]]:
        """Each stage's chunks."""
        p = self.parallel
        by_stage: list[list[Cost]] = [[] for _ in range(p.pp)]
        for number, cost in enumerate(self.chunks):
            by_stage[stage_of(number, p.pp, p.schedule)].append(cost)
        return by_stage

    @cached_property
    def stages(self) -> list[Cost]:
        """The sum of each stage's chunks."""
        return [reduce(Cost.__add__, chunks, Cost()) for chunks in self.stage_chunks]

    @property
    def passes(self) -> int:
        """Passes of all micro-batches through all chunks."""
        p = self.parallel
        return p.micro_batches * p.chunks * (3 if p.schedule in ZERO_BUBBLE else 2)

    @cached_property
    def pipeline(self) -> Timeline:
        """When the passes of all micro-batches run; ProblemError for more than are simulated."""
        p = self.parallel
        if self.passes > MAX_PASSES:
            most = MAX_PASSES * p.micro_batches // self.passes * p.dp * p.micro_batch
            raise ProblemError(
                f"{p.micro_batches:,} micro-batches through {p.chunks} chunks are too many to simulate; "
                f"take a --batch of at most {most}, or a larger --micro-batch"
            )
        apart = p.schedule in ZERO_BUBBLE
        nbytes = self.shape.own_rows * self.model.hidden * BF16
        blocks = 0.0 if p.chunks > p.pp else self.stack.sends_block
        places = [stage_of(i, p.pp, p.schedule) * p.stage_ranks for i in range(p.chunks)]
        sends = [self.rates.send(*x, nbytes) if x[0] != x[1] else 0.0 for x in pairwise(places)]
        chunks = [
            Chunk(
                x.forward + x.sent + x.waits, x.data + x.returned + (0.0 if apart else x.weight),
                x.weight if apart else 0.0, x.kept, send, send * blocks,
            )
            for x, send in zip(self.chunks, [*sends, 0.0], strict=True)
        ]  # fmt: skip
        return timeline(chunks, p.pp, p.micro_batches, p.schedule)


def _cost(parts: Sequence[Part], issued: float, dense: float) -> Cost:
    """Return the cost of parts that keep nothing back to compute again."""
    return Cost(
        sum(x.forward for x in parts), sum(x.data for x in parts), sum(x.weight for x in parts),
        sum(x.sent for x in parts), sum(x.returned for x in parts), sum(x.kept for x in parts), issued, dense,
        wide=dense, working=max((x.gradient for x in parts), default=0.0),
    )  # fmt: skip


def cut(seconds: Sequence[float], parts: int) -> list[range]:
    """Return consecutive parts of a list whose largest sum is least, each with at least one item.

    >>> cut([1.0, 2.0, 2.0, 2.0, 3.0], 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    if parts > len(seconds):
        raise ProblemError(
            f"{len(seconds) - 2} layers cannot be split into {parts} chunks; take fewer stages or --vp"
        )

    def fits(limit: float) -> list[range] | None:
        result = list[range]()
        start, total = 0, 0.0
        for i, x in enumerate(seconds):
            if i > start and (total + x > limit or len(seconds) - i <= parts - len(result) - 1):
                result.append(range(start, i))
                start, total = i, 0.0
            total += x
        result.append(range(start, len(seconds)))
        return result if len(result) <= parts else None

    low, high = max(max(seconds), sum(seconds) / parts), sum(seconds)
    for _ in range(40):
        middle = (low + high) / 2
        if fits(middle) is None:
            low = middle
        else:
            high = middle
    result = fits(high * (1 + 1e-12))
    assert result is not None
    return result


def _computed_again(part: Part, parallel: Parallel) -> bool:
    """Whether backward computes a part again: some modules, or all that is no multiply by a weight."""
    if parallel.recompute == "attention":
        return part.name == CORE
    if parallel.recompute == "selective":
        return not part.weight and part.name != EXCHANGE
    return not parallel.again.isdisjoint(part.modules)


def update_kernels(asked: Question, stage: Cost) -> list[Kernel]:
    """Return the sums of a stage's gradients, the update of its weights, and their gathers."""
    p, shape, stack = asked.parallel, asked.shape, asked.stack
    local = _updated(p, stage)
    # Reads of the gradient for its norm and for the update; each state read and written; the weight written.
    states = 0 if p.offload == "optimizer" else STATES[p.optimizer] * 2 * FP32 + BF16
    kernels = [shape.passes(UPDATE, local * (2 * FP32 + states), 8)]
    # Weights in few bits are written once a step, by rows and by columns.
    few_bits = stage.dense - stage.wide, stage.experts - stage.wide_experts
    kernels += shape.casts(UPDATE, _share(p, *few_bits, False))
    if p.shards > 1:
        replicas = len(p.data_group) // p.shards
        group = tuple(range(0, p.stage_ranks, p.tp * p.shards))[:replicas]
        nbytes = stage.dense / p.shards * stack.gradient_bytes
        return [*kernels, shape.collective(UPDATE, "all-reduce", group, nbytes)]
    for group, weights, wide in (
        (p.data_group, stage.dense, stage.wide),
        (p.expert_data_group, stage.experts, stage.wide_experts),
    ):
        what = "reduce-scatter" if p.zero else "all-reduce"
        if p.zero != 2:
            kernels.append(shape.collective(UPDATE, what, group, weights * stack.gradient_bytes))
        if p.zero:
            nbytes = gathered_bytes(p, stack, weights, wide)
            kernels.append(shape.collective(UPDATE, "all-gather", group, nbytes))
    return kernels


def gathered_bytes(p: Parallel, stack: Stack, weights: float, wide: float) -> float:
    """Return the bytes of weights that ranks gather, of which some stay in bfloat16."""
    # Megatron-LM gathers primary weights in their few bits, FSDP among it, but MXFP8's through the buffer of
    # gradients, in bfloat16. Source: fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag of its
    # distributed_data_parallel_config.py, which Megatron-Bridge's recipes in 8 bits set.
    narrow = p.keeps_stored(stack) and (p.precision != "mxfp8" or p.is_fsdp)
    stored = STORED[p.precision] if narrow else BF16
    return (weights - wide) * stored + wide * BF16


def host_bytes(asked: Question) -> float:
    """Return the bytes that wait in the host's memory, of a rank of the stage that has most."""
    p, states = asked.parallel, STATES[asked.parallel.optimizer] * FP32
    return max(
        offloaded + (_updated(p, stage) * states if p.offload == "optimizer" else 0.0)
        for stage, offloaded in zip(asked.stages, _peaks(asked, "offloaded"), strict=True)
    )


def _peaks(asked: Question, what: str) -> list[float]:
    """Return the most bytes of ``kept`` or ``offloaded`` that a rank of each stage has at a time."""
    p = asked.parallel
    peaks = []
    for i, some in enumerate(asked.stage_chunks):
        weights = tuple(p.schedule in ZERO_BUBBLE and x.weight > 0 for x in some)
        kept = kept_at_peaks(i, p.pp, p.micro_batches, weights, p.schedule)
        peaks.append(float((kept @ [getattr(x, what) for x in some]).max()))
    return peaks


def _updated(p: Parallel, stage: Cost) -> float:
    """Return the weights of a stage that a rank updates, and whose states it keeps."""
    return _share(p, stage.dense, stage.experts, p.zero > 0)


def _share(p: Parallel, dense: float, experts: float, split: bool) -> float:
    """Return a rank's share of a stage's weights, where these or all data parallel ranks split them."""
    if p.shards == 1 and not split:
        return dense + experts
    return dense / (p.shards if p.shards > 1 else len(p.data_group)) + experts / len(p.expert_data_group)


def update_seconds(asked: Question, stage: Cost) -> tuple[float, float, float]:
    """Return the seconds of gradients' sums and weights' gathers that nothing hides, and of the update."""
    p, load, stack = asked.parallel, asked.rates.load, asked.stack
    kernels = update_kernels(asked, stage)
    update = sum(x.seconds * x.calls for x in kernels if x.kind == MAP)
    gather = sum(x.seconds for x in kernels if x.kind == "all-gather")
    scatter = sum(x.seconds for x in kernels if x.kind not in (MAP, "all-gather"))
    if p.offload == "optimizer":
        # The host reads and writes the states; gradients come to it and weights go back beside that.
        states = STATES[p.optimizer] * 2 * FP32
        update += _updated(p, stage) * max(states / load.host_memory, stack.gradient_bytes / load.host_link)
    if p.shards > 1:
        return max(0.0, scatter - stage.backward), 0.0, update
    # Buckets of gradients are summed while the last micro-batch goes backward; the last one is not hidden.
    behind = max(scatter / stack.buckets, scatter - stage.backward * stack.data_overlap)
    before = max(
        gather / stack.buckets, gather - (stage.forward + stage.sent + stage.waits) * stack.data_overlap
    )
    return (behind if scatter else 0.0), (before if gather else 0.0), update


def least_seconds(asked: Question) -> float:
    """Return a lower bound of a step's seconds: the busiest stage runs every micro-batch, then the update."""
    busiest = max(x.seconds for x in asked.stages)
    return asked.parallel.micro_batches * busiest + max(update_seconds(asked, x)[2] for x in asked.stages)


def memory_bytes(asked: Question) -> float:
    """Return the bytes of the rank that needs most; no pipeline is simulated for it."""
    return max(sum(parts.values()) for parts in _memory(asked))


def predict(asked: Question) -> Step:
    """Return a step's time, memory and parts.

    ProblemError for more stages than layers, or a model without a vocabulary.
    """
    seconds, parts = _seconds(asked)
    fast, slow = (_seconds(_varied(asked, side))[0] for side in (1, -1))
    return Step(
        seconds,
        min(fast, seconds),
        max(slow, seconds),
        parts,
        _memory(asked),
        model_flop(asked.model, asked.parallel),
        asked.parallel,
        asked.pipeline,
        asked.machine.peak(DTYPES[asked.parallel.precision]),
    )


def simulated(asked: Question) -> float:
    """Return a step's seconds."""
    return _seconds(asked)[0]


def _varied(asked: Question, side: int) -> Question:
    """Return the question with all uncertain numbers on the fast (1) or slow (-1) side."""
    stack, load = asked.stack, asked.rates.load
    overlaps = {
        name: min(1.0, max(0.0, getattr(stack, name) + side * stack.spread))
        for name in ("tensor_overlap", "expert_overlap", "data_overlap")
    }
    factor = 1 + side * stack.spread
    varied = replace(stack, passes=stack.passes / factor, attention=stack.attention * factor,
                     launch_s=stack.launch_s / factor, **overlaps)  # fmt: skip
    rates = Rates(asked.machine, varied, load.scaled(1 + side * load.spread), asked.parallel.precision)
    return replace(asked, rates=rates)


def _seconds(asked: Question) -> tuple[float, dict[str, float]]:
    p, stack = asked.parallel, asked.stack
    line, stages = asked.pipeline, asked.stages
    count = p.micro_batches
    busiest = max(range(p.pp), key=lambda x: stages[x].seconds)
    stage = stages[busiest]
    behind, before, update = max((update_seconds(asked, x) for x in stages), key=sum)
    behind += asked.tie.seconds
    sent = count * (stage.sent + stage.returned)
    loss = count * stage.loss
    device = line.seconds + behind + before + update + stack.gap_s
    host = count * stage.issued * stack.launch_s * asked.rates.load.host
    waits = max(0.0, host - device) + stack.gap_s
    parts = {
        LAYERS: count * (stage.forward + stage.data + stage.weight) - loss,
        BUBBLE: max(0.0, line.seconds - count * stage.seconds) if p.pp > 1 else 0.0,
        COMMUNICATION: sent + behind + before,
        LOSS: loss,
        OPTIMIZER: update,
        HOST: waits + count * stage.waits,
    }
    return sum(parts.values()), parts


def _memory(asked: Question) -> list[dict[str, float]]:
    """Return the bytes of a rank of each stage, by part."""
    return [_bytes(asked, *x) for x in zip(asked.stages, _peaks(asked, "kept"), strict=True)]


def _bytes(asked: Question, stage: Cost, activations: float) -> dict[str, float]:
    """Return the bytes of a rank of a stage, by part."""
    p, stored = asked.parallel, STORED[asked.parallel.precision]

    def resident(dense: float, experts: float) -> float:
        moved = dense + (experts if len(p.expert_data_group) > 1 else 0.0)
        gathered = GATHERED * moved * p.pp / len(asked.model.layers) if p.shards > 1 else 0.0
        return _share(p, dense, experts, False) + gathered

    states, gradients = _updated(p, stage), _share(p, stage.dense, stage.experts, p.zero == 2)
    # Copies to the host are spread over all layers, so when the forward pass ends the last one is on its way.
    # Source: Transformer Engine, pytorch/cpu_offload.py (layer_window_map).
    copying = max(x.offloaded for x in asked.layer_costs) if stage.offloaded else 0.0
    overlapped = 0.0
    if p.tp > 1 and asked.stack.overlaps_tensor(p.precision):
        overlapped = p.tokens * asked.model.hidden * (GATHER_BUFFERS * (stored or BF16) + SUM_BUFFERS * BF16)
    # Multiplies in few bits read copies of the weights by rows and by columns, with bfloat16 ones or alone.
    weight = 2 * stored + (0 if p.keeps_stored(asked.stack) else BF16)
    wide = resident(stage.wide, stage.wide_experts)
    return {
        "weights": (resident(stage.dense, stage.experts) - wide) * weight + wide * BF16,
        "gradients": gradients * asked.stack.gradient_bytes,
        "optimizer": 0.0 if p.offload == "optimizer" else states * STATES[p.optimizer] * FP32,
        "activations": activations * (1.0 + asked.stack.graph_share + KEPT_MORE.get(p.precision, 0.0)),
        "buffers": stage.working + stage.placeholders + copying + overlapped,
    }


def with_prediction(model: Model, depths: int) -> Model:
    """Return a model with so many depths of multi-token prediction, each like its last layers.

    ProblemError for more than :data:`MAX_DEPTHS`.
    """
    if not 0 <= depths <= MAX_DEPTHS:
        raise ProblemError(f"--mtp {depths} must be from 0 to {MAX_DEPTHS}")
    # A depth is an attention layer with its MLP or experts, of two layers where these alternate.
    attends = next((x for x in reversed(model.layers) if isinstance(x.mixer, ATTENDS)), model.layers[-1])
    depth = [attends]
    if not attends.expansions:
        depth += [x for x in reversed(model.layers) if x.expansions][:1]
    return replace(model, mtp=tuple(depth * depths))


def model_flop(model: Model, parallel: Parallel) -> float:
    """Return the arithmetic of a step's model: 6 for each active weight and token, and causal attention."""
    tokens = parallel.batch * parallel.length
    weights = sum(x.active for x in model.ends() if x.linear or model.tied)
    depths = sum(bool(x.expansions) for x in model.mtp)
    flop = 6.0 * (weights + depths * (model.vocab + 2 * model.hidden) * model.hidden) * tokens
    for layer in (*model.layers, *model.mtp):
        flop += 6.0 * sum(x.active for x in layer.weights(model.hidden) if x.linear) * tokens
        mixer = layer.mixer
        if isinstance(mixer, ATTENDS):
            wide = mixer.head + (mixer.rope_dim if isinstance(mixer, LatentAttention) else 0)
            window = mixer.indexer.top_k if mixer.indexer else mixer.window
            pairs = 0.0
            for rows, count in pieces(mixer, parallel.length):
                seen = min(window or rows, rows)
                pairs += count * (seen * (rows - seen) + seen * (seen + 1) / 2)
            flop += 6.0 * mixer.heads * (wide + mixer.value) * pairs * parallel.batch
    return flop


def rates_of(machine: Machine, precision: str, stack: str = "megatron", watts: float = 0.0) -> Rates:
    """Return a machine's seconds with the numbers of a stack and of devices under load, by name.

    ProblemError for an unknown stack, or a power limit that devices cannot have.
    """
    limit = machine.load.power
    if watts and not limit:
        raise ProblemError(f"{machine.name} states no power of its devices; leave out --power")
    if watts and not LEAST_POWER * limit <= watts <= limit:
        raise ProblemError(
            f"--power {watts:g}W is no limit of these devices; take one from {LEAST_POWER * limit:g}W to "
            f"{limit:g}W"
        )
    return Rates(machine, find_stack(stack), machine.load.limited(watts), precision)


def question(model: Model, parallel: Parallel, rates: Rates) -> Question:
    """Return a question, checked.

    MachineError for fewer devices than ranks. ProblemError for a model without a vocabulary, whose heads or
    experts ranks cannot share, or with fewer layers than are named.
    """
    rates.machine.check_alike(parallel.ranks)
    check_split(model, parallel.tp, parallel.ep)
    offloaded = 0 if parallel.offload == "activations" else parallel.offloaded_layers
    for name, layers in (("--offload activations", offloaded), ("--keep-bf16 last", parallel.last_bf16)):
        if layers > len(model.layers):
            raise ProblemError(
                f"{name}:{layers} is of more layers than the {len(model.layers)} of {model.name}"
            )
    return Question(model, parallel, rates)

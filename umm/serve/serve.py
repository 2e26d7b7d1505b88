"""A deployment in steady state: seconds to the first token and for each further one, tokens/s, memory."""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp
from typing import NamedTuple

from umm.errors import InfeasibleError, MachineError, ProblemError
from umm.machines import Machine
from umm.plans.collectives.library import hears
from umm.program.models.count import STATE_BYTES
from umm.program.models.layers import Layer, Model, Weight
from umm.program.models.split import check_split, split
from umm.program.models.weights import Quantization
from umm.serve.deployment import Deployment
from umm.serve.layers import Batch, key_bytes, seconds_of
from umm.serve.rates import QUANTIZED, STORED, Rates, find_engine, head_of, outside_of, stored_type
from umm.units import format_bytes

USED = 0.9  # share of a device's memory that engines fill (vLLM: `--gpu-memory-utilization`)
LAWS = 0.12  # by which attention and experts are uncertain: the mean error of their laws on shapes not fitted


@dataclass(frozen=True)
class Served:
    """Latency and throughput of a deployment, and the bytes that a rank holds."""

    ttft: float  # seconds to the first token, in the mean
    tpot: float  # seconds for each further one
    # Both ends of the first, with the engine's uncertain numbers on the fast and the slow side.
    ttft_range: tuple[float, float]
    tpot_range: tuple[float, float]  # the same of the second
    decode: float  # seconds of an iteration that decodes alone
    prefill: float  # seconds of one prompt alone
    tokens_per_second: float  # tokens of answers a second and device
    running: float  # requests that run at once; the others wait for room in the caches
    memory: dict[str, float]  # bytes of a rank by part: weights and cache
    mixed: float = 0.0  # seconds of an iteration that decodes beside a chunk of prompts; 0 if none does

    @property
    def memory_bytes(self) -> float:
        """Bytes of a rank."""
        return sum(self.memory.values())


def rates_of(model: Model, machine: Machine, deployment: Deployment, engine: str) -> Rates:
    """Return the prices of an engine on a machine, which has its kernels where its file does.

    MachineError for fewer devices than ranks. ProblemError for an unknown engine, or a model without a
    vocabulary.
    """
    machine.check_alike(deployment.ranks)
    check_split(model, deployment.tp, deployment.ep)
    mixture = any(layer.experts for layer in model.layers)
    if deployment.moe_tp > 1 and not mixture:
        raise ProblemError(
            f"--moe-tp {deployment.moe_tp} splits experts, and {model.name} has none; leave out --moe-tp"
        )
    precision = deployment.precision
    outside = outside_of(model, precision) if mixture else precision
    return Rates(machine, find_engine(engine), precision, outside, head_of(model, precision))


def device_memory(machine: Machine) -> float:
    """Return the bytes of a device that programs see, which its file may state beside those of its name."""
    visible = machine.load.visible_memory
    alike = 0.9 < visible / machine.memory < 1.1  # else another memory was asked for
    return visible if alike else machine.memory


def with_fewest_ranks(model: Model, deployment: Deployment, machine: Machine, engine: str) -> Deployment:
    """Return a deployment on the fewest tensor parallel ranks whose devices have room for weights and cache.

    A power of two within the machine; where none has room, the most that can share the model.
    """
    result = deployment
    for tp in (2**x for x in range(machine.device_count.bit_length())):
        try:
            one = replace(deployment, tp=tp)
            rates = rates_of(model, machine, one, engine)
        except (MachineError, ProblemError):  # heads or experts that so many ranks cannot share
            continue
        result = one
        if sum(_memory(model, one, rates).values()) <= USED * device_memory(machine):
            break
    return result


def check_room(model: Model, deployment: Deployment, machine: Machine, engine: str) -> None:
    """Refuse a deployment whose weights leave a device no room for one request.

    An InfeasibleError says tensor parallel ranks or weights of fewer bits that fit.
    """

    def needs(d: Deployment) -> dict[str, float]:
        return _memory(model, replace(d, concurrency=1), rates_of(model, machine, d, engine))

    parts, memory = needs(deployment), device_memory(machine)
    if sum(parts.values()) <= memory:
        return
    remedy = "take a machine with more memory"
    for precision in dict.fromkeys((deployment.precision, "fp8", "int4")):
        one = replace(deployment, attention_dp=1, moe_tp=1, ep=1, precision=precision)
        one = with_fewest_ranks(model, one, machine, engine)
        if sum(needs(one).values()) <= USED * memory:
            remedy = f"--precision {precision} " * (precision != deployment.precision) + f"--tp {one.tp} fits"
            break
    words = " and ".join(f"{format_bytes(nbytes)} of {name}" for name, nbytes in parts.items())
    raise InfeasibleError(
        f"{model.name} in {deployment.precision} needs {words} a device for one request, "
        f"and {machine.name} has {format_bytes(memory)}; {remedy}"
    )


def iteration(model: Model, batch: Batch, ends: int) -> float:
    """Return the seconds of one iteration of the device, with the logits of so many tokens."""
    took = 0.0
    for layer, count in model.kinds.items():
        took += sum(seconds_of(block, batch) for block in layer.blocks) * count
    vocab = -(-model.vocab // batch.deployment.tp)
    return took + batch.rates.logits(ends, vocab, model.hidden) + batch.rates.passes(16.0 * ends * vocab, 4)


def serve(model: Model, deployment: Deployment, rates: Rates, prefill: Deployment | None = None) -> Served:
    """Return the steady state of a deployment.

    Prompts are computed between decoding: each answer of ``output`` iterations brings one prompt of every
    request of its group, so an iteration is longer by their share. Requests end and begin at random, so some
    prompts are waited for. With a ``chunk`` so many of their tokens are in the batch of those decoded. Where
    prompts have ranks of their own, these answer the first token and send the cache, and decoding goes on
    alone. Requests whose caches have no room wait for others to end.

    Args:
        prefill: Ranks that compute prompts alone; None if the same do.
    """
    times = [_times(model, deployment, _varied(rates, side), prefill) for side in (0, 1, -1)]
    one, ttft, tpot = times[0], [x.ttft for x in times], [x.tpot for x in times]
    ranks = deployment.ranks + (prefill.ranks if prefill else 0)
    memory = _memory(model, deployment, rates)
    share = running(model, deployment, rates) / deployment.sequences
    if share < 1:
        room = max(0.0, USED * device_memory(rates.machine) - memory["weights"])
        memory["cache"] = min(memory["cache"], room)
    at_once = share * deployment.concurrency
    return Served(
        # Slower decoding may shorten TTFT: many prompts beside few answers cost what a chunk adds to it.
        one.ttft, one.tpot, (min(ttft), max(ttft)), (min(tpot), max(tpot)), one.decode, one.prompt,
        at_once / one.tpot / ranks, at_once, memory, one.mixed,
    )  # fmt: skip


def table_shares(
    model: Model, deployment: Deployment, rates: Rates, prefill: Deployment | None = None
) -> tuple[float, float] | None:
    """Return the shares of a first token's seconds and of a further one's that measured tables decide.

    By how much both change where all times inside tables do. None of a machine without tables.
    """
    machine, more = rates.machine, 0.01
    if machine.tables is None and machine.serving is None:
        return None
    longer = replace(rates, machine=replace(machine, inside=1 + more), _known={})
    before, after = (_times(model, deployment, x, prefill) for x in (rates, longer))
    return (after.ttft / before.ttft - 1) / more, (after.tpot / before.tpot - 1) / more


def _varied(rates: Rates, side: int) -> Rates:
    """Return prices with the engine's numbers and the machine's laws on the fast (1) or slow (-1) side."""
    engine, share = rates.engine, 1 + side * rates.engine.spread
    faster = {x: min(1.0, getattr(engine, x) * share) for x in ("read", "weights", "expanded", "few")}
    slower = {
        x: getattr(engine, x) / share for x in ("gap_s", "row_s", "scatter_s", "small", "blocks", "waits")
    }
    if not side:
        return rates
    laws = (1 + LAWS) ** -side
    return replace(rates, engine=replace(engine, **faster, **slower), laws=laws, _known={})


class _Times(NamedTuple):
    """Seconds of a deployment's tokens and iterations."""

    ttft: float  # to the first token
    tpot: float  # for each further one
    decode: float  # of an iteration that decodes alone
    prompt: float  # of one prompt alone
    mixed: float  # of an iteration that decodes beside a chunk of prompts; 0 if none does


def _times(model: Model, d: Deployment, rates: Rates, prefill: Deployment | None) -> _Times:
    """Return the seconds of a deployment by its engine's numbers."""
    engine, at_once = rates.engine, running(model, d, rates)
    rows, context = max(1, round(at_once)), d.input + d.output // 2
    decode = iteration(model, Batch(model.hidden, rows, context, 0, 0, d, rates), rows)
    where = prefill or d
    prompt = iteration(model, Batch(model.hidden, 0, 0, d.input, d.input, where, rates), 1)
    beside, mixed, host = prompt, 0.0, engine.gap_s + engine.row_s * rows
    if d.chunk and prefill is None:  # one batch reads weights once
        # As many prompts begin in an iteration as end, so short ones share its chunk.
        tokens = min(d.chunk, d.input * max(1, round(at_once / d.output)))
        mixed = iteration(model, Batch(model.hidden, rows, context, tokens, d.input, d, rates), rows + 1)
        beside, mixed = (mixed - decode) * d.input / tokens, mixed + host
    decode += host
    waits = 1 + engine.waits * max(1.0, at_once * d.attention_dp / where.attention_dp) ** 0.5
    rounds = d.sequences / at_once - 1  # answers that a request without room waits for
    if prefill is None:
        tpot = decode + beside * stalls(at_once / d.output, 1 if engine.together else d.attention_dp)
        return _Times(prompt * waits + tpot + rounds * d.output * tpot, tpot, decode, prompt, mixed)
    total = rates.machine.device_count
    bandwidth, _ = hears(rates.machine, (0, total - 1), total)
    sent = _kept(model, d.cache_bits, d.input) / (bandwidth * min(d.tp, prefill.tp))
    ttft = prompt * waits + sent + decode + rounds * d.output * decode
    return _Times(ttft, decode, decode, prompt, mixed)


def running(model: Model, d: Deployment, rates: Rates) -> float:
    """Return how many requests of a group run at once: all, or those whose caches and chunks have room."""
    # Engines cache in pages, so a request takes its prompt and half its answer in the mean. An iteration
    # brings the prompts of those that end in it, at most a chunk.
    most = min(d.sequences, max(1.0, d.chunk * d.output / d.input)) if d.chunk else d.sequences
    room = USED * device_memory(rates.machine) - _memory(model, d, rates)["weights"]
    each = _kept(model, d.cache_bits, d.input + d.output / 2, d.tp)
    return min(most, max(1.0, room / each)) if each else most


def stalls(prompts: float, groups: int) -> float:
    """Return the prompts that an iteration waits for, of groups that each begin so many in the mean.

    Groups meet at every layer of experts, so all wait for the one with most prompts.

    >>> stalls(0.5, 1), round(stalls(0.001, 8), 4), round(stalls(100.0, 8))
    (0.5, 0.008, 114)
    """
    if groups == 1 or prompts > 500:  # so many hardly differ
        return prompts
    # The mean of the largest of some Poisson numbers is the sum of the chances that one exceeds each count.
    total, chance, below, count = 0.0, exp(-prompts), 0.0, 0
    while count < prompts + 20 * (1 + prompts**0.5):
        below += chance
        total += 1 - min(1.0, below) ** groups
        count += 1
        chance *= prompts / count
    return total


REPLICATED = ("q_a_proj", "kv_a_proj_with_mqa", "indexer.w", "_latent_proj")
"""Parts of the names of matrices that each tensor parallel rank has in full, as their kernels multiply them.

Source: vLLM, deepseek_v2.py and nemotron_h.py (ReplicatedLinear).
"""


def _memory(model: Model, d: Deployment, rates: Rates) -> dict[str, float]:
    """Return the bytes of a rank by part."""
    shared, groups = d.experts_split
    ends = {
        x.module: x.elements * STORED[rates.head if x.module == "lm_head" else "bf16"] for x in model.ends()
    }
    # Engines load what turns pictures into tokens too, in bfloat16 and split as the rest (vLLM:
    # `--mm-encoder-tp-mode weights`).
    nbytes = (sum(ends.values()) + model.vision * STORED["bf16"]) / d.tp
    for layer, of_file in _layers(model, d.precision):
        for weight, stored in zip(layer.weights(model.hidden), of_file, strict=True):
            if weight.module.startswith("mlp.experts"):
                nbytes += weight.elements * (stored or STORED[rates.precision]) / (shared * groups)
            else:
                stored = stored or STORED[rates.outside if weight.linear else "bf16"]
                nbytes += weight.elements * stored * _part(weight, layer, d.tp)
    return {
        "weights": nbytes,
        "cache": _kept(model, d.cache_bits, d.input + d.output, d.tp) * d.sequences,
    }


def _part(weight: Weight, layer: Layer, tp: int) -> float:
    """Return the share of a weight outside experts that each of some tensor parallel ranks has."""
    if not weight.linear or any(x in weight.module for x in REPLICATED):
        return 1.0
    if weight.module in ("self_attn.k_proj", "self_attn.v_proj"):
        heads = getattr(layer.mixer, "kv_heads", tp)
        return split(heads, tp) / heads
    return 1.0 / tp


@lru_cache(64)
def _layers(model: Model, precision: str) -> list[tuple[Layer, list[float]]]:
    """Return each layer with the bytes of an element of its weights by the model's file; 0 for usual ones.

    The file decides where it stores most weights in the precision that is asked for.
    """
    types = Quantization(model)
    if QUANTIZED.get(stored_type(model)) != precision:
        return [(x, [0.0] * len(list(x.weights(model.hidden)))) for x in model.layers]
    return [
        (x, [types.stored(y.module, y.linear, number).bits / 8 for y in x.weights(model.hidden)])
        for number, x in enumerate(model.layers)
    ]


def _kept(model: Model, bits: int, tokens: float, tp: int = 1) -> float:
    """Return the bytes of the cache and the states that a request keeps at each of some ranks."""
    total = 0.0
    for layer, count in model.kinds.items():
        mixer = layer.mixer
        tokens_kept = min(tokens, getattr(mixer, "window", 0) or tokens)
        indexer, heads = getattr(mixer, "indexer", None), getattr(mixer, "kv_heads", 1)
        of_token = (layer.cache - (indexer.cache if indexer else 0)) * bits / 8 * split(heads, tp) / heads
        states = getattr(mixer, "state", 0) * STATE_BYTES / tp
        total += count * ((of_token + key_bytes(mixer, bits)) * tokens_kept + states)
    return total

"""The effects of training software on a step: sourced numbers, by name."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from umm.errors import ProblemError, did_you_mean
from umm.files import read_toml


@dataclass(frozen=True)
class Stack:
    """How a training framework runs a step.

    Attributes:
        name: What it is called.
        attention: Rate of its attention kernels, over the machine file's.
        passes: Bytes of its elementwise kernels, over those of fused ones.
        casts: Bytes of its casts to few bits, over one read and two writes.
        launch_s: Seconds of the host to issue one kernel; a step is no faster than its host.
        tensor_overlap: Share of tensor parallel collectives that runs beside multiplies.
        tensor_overlaps: Precisions in which that is so; all if none is named.
        expert_overlap: Share of the experts' exchange that runs beside computation.
        gradient_bytes: Bytes of an element of the sums of gradients.
        tokens_once: Whether a token crosses once to a rank, or to another node, with several experts there.
        row_passes: Times that rows of experts are read or written to put them in order, there and back.
        syncs: Whether the host reads how many rows each expert has before it issues their kernels.
        grouped_kernels: Whether one kernel multiplies the rows of all experts; else one for each expert.
        fused_experts: Whether grouped multiplies apply the activation and cast their result.
        router32: Whether the router multiplies in float32.
        scan: Share of the multiplies' rate that scans of states reach.
        loss_bytes: Bytes of the cross entropy for each logit, forward and backward.
        buckets: Parts in which gradients are summed while the backward pass goes on.
        sink_bytes: Bytes through memory for each score of attention with sinks; 0 where its kernel is fused.
        logit_bytes: Bytes kept for each logit from forward to backward.
        sends_block: Share of a send between stages in which the sender does nothing else, without chunks.
        data_overlap: Share of a pass beside which sums of gradients or gathers of weights run.
        recompute: What a search may compute again; Megatron-LM names modules.
        repeats: Share of multiplies by weights that recompute ``selective`` repeats too.
        splits_weights: Precisions whose weights data parallel ranks can split; all if none is named.
        interleaves_states: Whether stages of state space models can have several chunks.
        offloads: Whether a search may let activations of some layers wait in the host's memory.
        stored_weights: Precisions whose weights are kept and gathered in their few bits alone.
        gap_s: Seconds of a step outside its passes: data, logging, synchronisation.
        spread: By how much overlaps, passes and host times are uncertain, a share: with the clocks' of
            machine files so chosen that ranges hold four of five measured steps (experiments/step).
        source: Where the numbers are from.
    """

    name: str
    attention: float = 1.0
    passes: float = 1.0
    casts: float = 1.0
    launch_s: float = 0.0
    tensor_overlap: float = 0.0
    tensor_overlaps: tuple[str, ...] = ()
    expert_overlap: float = 0.0
    gradient_bytes: int = 4
    tokens_once: bool = False
    row_passes: float = 8.0
    syncs: bool = False
    grouped_kernels: bool = True
    fused_experts: bool = False
    router32: bool = False
    scan: float = 0.25
    loss_bytes: float = 18.0
    buckets: int = 16
    sink_bytes: float = 0.0
    logit_bytes: float = 2.0
    sends_block: float = 0.0
    data_overlap: float = 0.8
    recompute: tuple[str, ...] = ("none", "selective", "full")
    repeats: float = 0.0
    splits_weights: tuple[str, ...] = ()
    interleaves_states: bool = True
    offloads: bool = False
    stored_weights: tuple[str, ...] = ()
    gap_s: float = 0.0
    spread: float = 0.18
    source: str = ""

    def keeps_stored(self, precision: str) -> bool:
        """Whether weights are kept and gathered in few bits alone, without a copy in bfloat16."""
        return precision in self.stored_weights


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("stacks.toml"))


def stack_names() -> list[str]:
    """Return the names of the stacks."""
    return list(_document()["stacks"])


def find_stack(name: str) -> Stack:
    """Return a stack by its name.

    Raises:
        ProblemError: names those there are.
    """
    stacks = _document()["stacks"]
    if name not in stacks:
        raise ProblemError(f"--stack {name!r} is unknown; {did_you_mean(name, stacks)}")
    return Stack(name, **stacks[name])

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
    """How a training framework runs a step."""

    name: str  # what it is called
    attention: float = 1.0  # rate of its attention kernels, over the machine file's
    passes: float = 1.0  # bytes of its elementwise kernels, over those of fused ones
    casts: float = 1.0  # bytes of its casts to few bits, over one read and two writes
    launch_s: float = 0.0  # seconds of the host to issue one kernel; a step is no faster than its host
    tensor_overlap: float = 0.0  # share of tensor parallel collectives that runs beside multiplies
    # Whether gathers and sums of tokens copy them into order, for the tokens are the second dimension.
    reorders: bool = False
    tensor_overlaps: tuple[str, ...] = ()  # precisions in which that is so; all if none is named
    expert_overlap: float = 0.0  # share of the experts' exchange that runs beside computation
    gradient_bytes: int = 4  # bytes of an element of the sums of gradients
    tokens_once: bool = False
    # Times that rows of experts are read or written to put them in order, there and back.
    row_passes: float = 8.0
    syncs: bool = False  # whether the host reads how many rows each expert has before it issues their kernels
    # Whether one kernel multiplies the rows of all experts; else one for each expert.
    grouped_kernels: bool = True
    fused_experts: bool = False  # whether grouped multiplies apply the activation and cast their result
    router32: bool = False  # whether the router multiplies in float32
    # Precisions of a step in which its head multiplies too; in others it stays in bfloat16.
    head_types: tuple[str, ...] = ()
    scan: float = 0.25  # share of the multiplies' rate that scans of states reach
    loss_bytes: float = 18.0  # bytes of the cross entropy for each logit, forward and backward
    buckets: int = 16  # parts in which gradients are summed while the backward pass goes on
    # Bytes through memory for each score of attention with sinks; 0 where its kernel is fused.
    sink_bytes: float = 0.0
    logit_bytes: float = 2.0  # bytes kept for each logit from forward to backward
    # Share of a send between stages in which the sender does nothing else, without chunks.
    sends_block: float = 0.0
    data_overlap: float = 0.8  # share of a pass beside which sums of gradients or gathers of weights run
    # What a search may compute again; Megatron-LM names modules.
    recompute: tuple[str, ...] = ("none", "selective", "full")
    repeats: float = 0.0  # share of multiplies by weights that recompute `selective` repeats too
    # Precisions whose weights data parallel ranks can split; all if none is named.
    splits_weights: tuple[str, ...] = ()
    interleaves_states: bool = True  # whether stages of state space models can have several chunks
    # Whether stages of experts' layers need several chunks: their exchange is hidden between two of these.
    chunks_experts: bool = False
    offloads: bool = False  # whether a search may let activations of some layers wait in the host's memory
    # Precisions whose weights are kept and gathered in their few bits alone.
    stored_weights: tuple[str, ...] = ()
    # Whether kernels add weights' gradients to their sums and hand autograd a placeholder of each shape.
    placeholders: bool = False
    graph_share: float = 0.0
    gap_s: float = 0.0
    spread: float = 0.18
    source: str = ""  # where the numbers are from

    def overlaps_tensor(self, precision: str) -> bool:
        """Whether tensor parallel collectives run beside multiplies of a precision."""
        return self.tensor_overlap > 0 and (not self.tensor_overlaps or precision in self.tensor_overlaps)


@lru_cache(maxsize=1)
def _document() -> Mapping[str, Any]:
    return read_toml(Path(__file__).with_name("stacks.toml"))


def stack_names() -> list[str]:
    """Return the names of the stacks."""
    return list(_document()["stacks"])


def find_stack(name: str) -> Stack:
    """Return a stack by its name; ProblemError names those there are."""
    stacks = _document()["stacks"]
    if name not in stacks:
        raise ProblemError(f"--stack {name!r} is unknown; {did_you_mean(name, stacks)}")
    row = dict(stacks[name])
    return Stack(name, **{**stacks.get(row.pop("like", ""), {}), **row})

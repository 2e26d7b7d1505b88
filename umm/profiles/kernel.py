"""Kernels of a device, measured or predicted, and the kind of one by its name."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

MULTIPLY, ATTENTION, MAP, COPY, SEND = "multiply", "attention", "map", "copy", "send"
COLLECTIVES = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all", "broadcast", "reduce")


class Kernel(NamedTuple):
    """One kernel, or several calls of one."""

    kind: str  # multiply, attention, map, copy, send, or a collective such as all-gather
    name: str  # as the profile names it, or the part of a step it belongs to
    seconds: float  # seconds of one call
    # M, n, k of a multiply, with its members before them where it has several; () if unknown.
    shape: tuple[int, ...] = ()
    ranks: int = 0  # ranks of a collective; 0 if unknown
    nbytes: int = 0  # bytes of a collective: the whole gathered or reduced buffer, a rank's of an all-to-all
    calls: float = 1.0  # number of calls; a prediction may have a share of one
    start: float = float("nan")  # seconds since some moment; nan of a prediction
    lane: tuple[str, str] = ("", "")  # device and stream of a profile
    group: tuple[int, ...] = ()  # ranks of a collective, where they are known one by one

    @property
    def key(self) -> tuple[object, ...]:
        """Calls with one key do the same: of a multiply, whose result may be transposed, m and n in order."""
        if self.kind == MULTIPLY and self.shape:
            *members, m, n, k = self.shape
            return (self.kind, *members, max(m, n), min(m, n), k)
        if self.kind in COLLECTIVES and self.nbytes:
            return (self.kind, self.ranks, self.nbytes)
        return (self.kind,)

    @property
    def bus_bandwidth(self) -> float:
        """Bytes/s that cross a rank's port, as nccl-tests counts them; 0 if sizes are unknown."""
        if self.ranks < 2 or not self.seconds or self.kind not in COLLECTIVES:
            return 0.0
        factor = {"all-reduce": 2.0, "broadcast": 1.0, "reduce": 1.0}.get(self.kind, 1.0)
        share = 1.0 if self.kind in ("broadcast", "reduce") else (self.ranks - 1) / self.ranks
        return factor * share * self.nbytes / self.seconds


@dataclass(frozen=True)
class Profile:
    """Kernels of one device of a profile."""

    kernels: tuple[Kernel, ...]  # in the order of their starts
    steps: int = 1  # steps that the profile is of, as `ProfilerStep` marks them; 1 if unmarked
    devices: int = 1  # devices that the file has kernels of; only those of one are kept
    source: str = "kineto"  # the format: kineto or chakra
    marks: tuple[tuple[float, float], ...] = field(default=(), repr=False)
    rank: int | None = None  # the rank whose profile it is, and the number of ranks; None if not stated
    ranks: int | None = None

    def rank_of(self, ranks: int) -> int:
        """Return the profile's rank among those predicted; the first if it is of another number."""
        return self.rank if self.rank is not None and self.ranks == ranks and self.rank < ranks else 0

    @property
    def busy_s(self) -> float:
        """Seconds a step in which some kernel runs, kernels side by side counted once."""
        return union(self.kernels) / self.steps

    @property
    def span_s(self) -> float:
        """Seconds a step from the first kernel's start to the last one's end, or of the marked steps."""
        if self.marks:
            return sum(end - start for start, end in self.marks) / self.steps
        ends = [x.start + x.seconds for x in self.kernels]
        return (max(ends) - self.kernels[0].start) / self.steps

    @property
    def total_s(self) -> float:
        """Seconds of all kernels a step, side by side or not."""
        return sum(x.seconds * x.calls for x in self.kernels) / self.steps


def union(kernels: Iterable[Kernel]) -> float:
    """Return the seconds in which at least one of some kernels runs.

    >>> union([Kernel("map", "a", 2.0, start=0.0), Kernel("map", "b", 2.0, start=1.0)])
    3.0
    """
    total, until = 0.0, float("-inf")
    for kernel in sorted(kernels, key=lambda x: x.start):
        end = kernel.start + kernel.seconds
        total += max(0.0, end - max(kernel.start, until))
        until = max(until, end)
    return total


_COLLECTIVE = re.compile(r"all_?gather|reduce_?scatter|all_?reduce|all_?to_?all|broadcast|sendrecv", re.I)
_LIBRARY = re.compile(r"nccl|rccl|msccl|oneccl|deep_ep|nvshmem|allreduce|all_reduce|allgather", re.I)
# Inductor names a kernel after all operators that it touches, also the attention that reads its result.
_MAPS = re.compile(r"triton_(poi|red|per|for|spl)_fused|at::native::\w*(elementwise|reduce)_kernel")
_SPOKEN = {
    "allgather": "all-gather", "reducescatter": "reduce-scatter", "allreduce": "all-reduce",
    "alltoall": "all-to-all", "broadcast": "broadcast", "sendrecv": SEND,
}  # fmt: skip
_KINDS = (
    (ATTENTION, re.compile(r"flash|fmha|sdpa|attention|attn|_mha|mha_|mla_|paged_", re.I)),
    (
        MULTIPLY,
        re.compile(
            r"gemm|gemv|nvjet|xmma|cutlass|cublas|Cijk_|wgmma|splitk|matmul|marlin|fused_moe_kernel|\bbmm_|triton_mm|"
            r"triton_tem_fused\w*mm|aten::(mm|mv|addmm|bmm|baddbmm|linear|_scaled_mm|_grouped_mm|_scaled_grouped_mm)",
            re.I,
        ),
    ),
    (COPY, re.compile(r"memcpy|memset|rocclr_(copy|fill)buffer", re.I)),
)


def spoken(name: str) -> str:
    """Return the collective that a framework's or library's name says; "" for anything else.

    >>> spoken("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)"), spoken("_reduce_scatter_base")
    ('all-gather', 'reduce-scatter')
    >>> spoken("alltoallv"), spoken("aten::reduce_sum"), spoken("ncclDevKernel_SendRecv")
    ('all-to-all', '', 'send')
    """
    match = _COLLECTIVE.search(name)
    if match is not None:
        return _SPOKEN[match[0].replace("_", "").lower()]
    return "reduce" if re.fullmatch(r"reduce|nccl\w*Kernel_Reduce_\w*(\(.*)?", name) else ""


def kind_of(name: str, operator: str = "") -> str:
    """Return the kind of a kernel by its name, and by the operator that launched it.

    >>> kind_of("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT"), kind_of("void flash_fwd_kernel<…>")
    ('multiply', 'attention')
    >>> kind_of("vectorized_elementwise_kernel", "aten::mul"), kind_of("deep_ep::internode::dispatch<true>")
    ('map', 'all-to-all')
    """
    if "deep_ep" in name and re.search(r"dispatch|combine", name):
        return "all-to-all"
    if "cross_device_reduce" in name:  # of vLLM, SGLang and aiter
        return "all-reduce"
    if _MAPS.search(name):
        return MAP
    # RCCL has one kernel for all of its collectives, which the operator names.
    if _LIBRARY.search(name) and (collective := spoken(name) or spoken(operator)):
        return collective
    for text in (name, operator):
        for kind, pattern in _KINDS:
            if text and pattern.search(text):
                return kind
    return MAP

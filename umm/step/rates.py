"""Seconds of a step's kernels and collectives on a machine, under the load of a step."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from umm.cost import attention_seconds, gemm_seconds, grouped_seconds, sparse_seconds
from umm.interval import Interval
from umm.machines import Machine
from umm.machines.load import Load
from umm.plans.collectives.library import hears, seconds_alone
from umm.program.functions.attention import Heads
from umm.program.models.layers import Indexer
from umm.step.stacks import Stack

DTYPES = {
    "bf16": "bfloat16",
    "fp8": "float8_e4m3",
    "fp8-block": "float8_e4m3:128",
    "mxfp8": "float8_e4m3",
    "nvfp4": "float4_e2m1",
}
"""Type of multiplies by precision of a step."""
STORED = {"bf16": 0.0, "fp8": 1.0, "fp8-block": 1.03, "mxfp8": 1.03, "nvfp4": 0.5625}
"""Bytes of an operand as casts write it, with its scales; 0 where nothing is cast."""
READS = {"fp8": 2, "nvfp4": 3}
"""Times that a cast reads its operand, where more than once.

It is read for its largest value, which scales all (fp8, nvfp4), and for the Hadamard transform of its columns
(nvfp4). Source: Transformer Engine, recipes of current scaling and NVFP4.
"""
KEPT_MORE = {"nvfp4": 0.15}
"""Share by which activations exceed those that are counted here, by precision.

Rank 19 of llama-3-405b on GB300 (TP 4, PP 8) had 206.2 GiB allocated beside pools of graphs where 190.3 are
counted, 111.7 of them activations (Megatron-Bridge, issue 2221). No source says what they are. Recipes that
fill their devices leave room for 0.149 (llama-3-405b on GB200, which has run out of memory since: issue 3714)
and 0.154 (llama-3-70b on GB300).
"""
BF16, FP32 = 2, 4


@dataclass(frozen=True)
class Rates:
    """A machine as a training step finds it."""

    machine: Machine
    stack: Stack  # the software that runs the step
    load: Load  # the device under a step's load
    precision: str  # type of the layers' multiplies
    # Costs of layers that were asked for before.
    layers: dict[tuple[object, ...], Any] = field(default_factory=dict, compare=False, repr=False)
    _known: dict[tuple[object, ...], float] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def dtype(self) -> str:
        """Type of the layers' multiplies as a machine file names it."""
        return DTYPES[self.precision]

    def gemm(self, m: int, n: int, k: int, *, dtype: str = "", c_bytes: int = BF16) -> float:
        """Return the seconds of one multiply."""
        if not (m and n and k):
            return 0.0
        dtype = dtype or self.dtype
        key = (m, n, k, dtype, c_bytes)
        if key not in self._known:
            alone = float(gemm_seconds(self.machine, dtype, m, n, k, c_bytes, warm=False))
            start = self.machine.gemm_start(dtype)
            self._known[key] = start + (alone - start) / self.load.clock
        return self._known[key]

    def grouped(self, rows: int, experts: int, n: int, k: int) -> float:
        """Return the seconds of one kernel that multiplies ``rows`` of each of some experts."""
        if not (rows and experts and n and k):
            return 0.0
        key = ("grouped", rows, experts, n, k)
        if key not in self._known:
            if self.stack.grouped_kernels and self.precision != "nvfp4":
                each = np.full(experts, rows, dtype=np.int64)
                alone = float(grouped_seconds(self.machine, self.dtype, each, n, k, BF16).sum())
                self._known[key] = alone / self.load.clock
            else:
                self._known[key] = self.in_streams(rows, n, k, experts)
        return self._known[key]

    def in_streams(self, m: int, n: int, k: int, experts: int, c_bytes: int = BF16) -> float:
        """Return the seconds of a multiply for each expert, in streams, so that starts run beside work."""
        start = self.machine.gemm_start(self.dtype)
        return start + experts * max(0.0, self.gemm(m, n, k, c_bytes=c_bytes) - start)

    def attention(
        self,
        heads: Heads,
        rows: Interval,
        count: int,
        sequences: int,
        backward: bool,
        indexer: Indexer | None = None,
    ) -> float:
        """Return the seconds of attention of some queries of each sequence over all keys, or those chosen."""
        if not count * sequences * rows.size:
            return 0.0
        key = (heads, rows, count, sequences, backward, indexer)
        if key not in self._known:
            asked = "bfloat16", heads, rows, count * sequences, Interval(0, heads.keys)
            if indexer:
                sizes = (0, 0) if indexer.shared else (indexer.heads * sequences, indexer.head)
                choice = *sizes, indexer.top_k
                alone = sparse_seconds(self.machine, *asked, choice, "bfloat16", backward)
            else:
                alone = attention_seconds(self.machine, *asked, backward)
            self._known[key] = alone / self.stack.attention / self.load.attention
        return self._known[key]

    def passes(self, nbytes: float, kernels: int = 1) -> float:
        """Return the seconds of kernels that read and write so many bytes."""
        return kernels * self.machine.launch_s + nbytes / self.machine.pass_bandwidth

    def casts(self, elements: float, parts: int = 1) -> float:
        """Return the seconds of writing an operand in few bits, by rows and by columns, part by part."""
        stored = STORED[self.precision]
        if not stored:
            return 0.0
        reads = READS.get(self.precision, 1)
        return self.passes(elements * (reads * BF16 + 2 * stored) * self.stack.casts, reads * parts)

    def collective(self, what: str, ranks: tuple[int, ...], nbytes: float) -> float:
        """Return the seconds of a collective alone, by the machine's library where its file has one."""
        if len(ranks) < 2 or nbytes < 1:
            return 0.0
        key = (what, ranks, nbytes)
        if key not in self._known:
            self._known[key] = seconds_alone(self.machine, what, ranks, nbytes)
        return self._known[key]

    def send(self, source: int, into: int, nbytes: float) -> float:
        """Return the seconds of a message between two ranks."""
        bandwidth, latency = hears(self.machine, (source, into), self.machine.device_count)
        return self.machine.transfer_overhead_s + latency + nbytes / bandwidth

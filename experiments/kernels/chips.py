"""The devices that the measured tables name: the machine file of each, and its kernels' names.

L40S and RTX PRO 6000 are not among them: no law of ``l40s-8`` and ``rtx-pro-6000-8`` is fitted on anything.
"""

from experiments.kernels.multiplies import TYPES, Device
from umm.machines import Machine

MACHINES = {
    "a100_sxm": "a100-8", "h100_sxm": "h100-8", "h200_sxm": "h200-8", "b200_sxm": "b200-8",
    "b300_sxm": "b300-8",
    "gb200": "gb200-nvl72", "gb300": "gb300-nvl72",
}  # fmt: skip
BLACKWELLS = ("b200_sxm", "b300_sxm", "gb200", "gb300")
BY_CALL = ("sglang", "fp8_block")
PACKED = "sglang@packed-scales"
"""August's rows of SGLang's blocks on Blackwell gave DeepGEMM scales in float32, which it packs into powers
of two on each call. The wheel's are packed once, as SGLang does when it loads weights. Each has its law."""
BORROWED = ("b300_sxm", "sglang")
"""Whose multiplies of August are GB300's, number by number; the wheel's are the first of a B300.

Source: aiconfigurator-core 0.12.0, b300_sxm/gemm/sglang/0.5.14/collection_meta.yaml.
"""
ENGINES = {"vllm": "vLLM", "trtllm": "TensorRT-LLM", "sglang": "SGLang"}
OWN_ALL_REDUCES = {
    "vllm": "vLLM_custom_graph", "trtllm": "TRTLLM", "sglang": "SGLang_CustomAllReduce_graph",
}  # fmt: skip
RANKS = (2, 4, 8)
HOSTED = ("vllm", "fp8_block")
"""Whose rows show what its host takes to issue kernels, not the device: they were not in a graph."""


def device(machine: Machine, dtype: str) -> Device:
    """Return a data sheet's numbers for the device of a machine, for a type as the tables call it."""
    blocks = machine.document["devices"]["accumulate_blocks"]
    return Device(blocks["units"]["value"], machine.peak(TYPES[dtype]), machine.memory_bandwidth)

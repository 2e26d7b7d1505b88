"""Tiles by rules of engines' source, of multiplies of 8 bits with one scale, by engine and device.

Where two multiprocessors share a tile on Blackwell it is the half of one; where A and B change places, rows
are still A's.
"""

from umm.machines.rules import Rule

HOPPER = ("h100_sxm", "h200_sxm")
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
VLLM_HOPPER = (
    Rule(tile="16x64", rows=16), Rule(tile="16x64", rows=64, cols=1280), Rule(tile="64x64", rows=64),
    Rule(tile="64x128", rows=128), Rule(tile="256x128", least_rows=8192, least_k=6144), Rule(tile="128x128"),
)  # fmt: skip
"""``scaled_mm_sm90_fp8_dispatch.cuh`` of vLLM."""
VLLM_BLACKWELL = (
    Rule(tile="32x64", rows=16), Rule(tile="64x64", rows=64), Rule(tile="64x128", rows=256),
    Rule(tile="128x128"),
)  # fmt: skip
"""``scaled_mm_sm100_fp8_dispatch.cuh`` of vLLM, where tiles of 128 and 256 are of two multiprocessors."""
SGLANG_BLACKWELL = (Rule(tile="64x64", rows=64), Rule(tile="64x128", rows=256), Rule(tile="128x128"))
"""``sm100_fp8_dispatch_bias`` of SGLang's ``fp8_gemm_kernel.cu``, the same."""
RULES = {
    **{("vllm", x): VLLM_HOPPER for x in HOPPER},
    **{("vllm", x): VLLM_BLACKWELL for x in BLACKWELL},
    **{("sglang", x): SGLANG_BLACKWELL for x in BLACKWELL},
}
"""By engine and device, of the type ``fp8``."""

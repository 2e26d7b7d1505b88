"""Forms of kernels of multiplies by engine and chip: tiles, parts of k and rules. A fit takes the best.

Rules are those of engines' source, of multiplies of 8 bits with one scale. Where two multiprocessors share a
tile on Blackwell it is the half of one; where A and B change places, rows are still A's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from umm.machines.rules import Rule

AMPERE, HOPPER = ("a100_sxm",), ("h100_sxm", "h200_sxm")
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
TILES = (
    (64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64),
    (64, 32), (64, 16), (16, 64), (32, 64), (128, 32), (32, 128),
)  # fmt: skip
LARGE = TILES[:8]
"""Of at least 64 rows and columns: an instruction of Blackwell's tensor cores has 64 or 128 rows (NVIDIA, PTX
ISA, tcgen05.mma), and a smaller tile loads no faster."""
LARGER = ((128, 64), (128, 128), (128, 256), (256, 128))
"""Cutlass's of 4 bits there, whose instruction has 128 rows."""
DEEP_GEMM = tuple((rows, cols) for rows in (64, 128) for cols in (16, 32, 48, 64, 80, 96, 112, 128, 144, 160))
"""DeepGEMM's on Hopper. Source: deepseek-ai/DeepGEMM, get_best_configs."""
BY_ROWS = ((64, 64), (128, 128))
COARSE = 128
"""Rows of C above which kernels of Cutlass for 8 bits have the second of these tiles, whatever the columns:
``sm90_fp8_dispatch_shape`` of SGLang and vLLM's dispatch by rows; the size is SGLang 0.5.14's by its rows."""
SPLITS = (1, 2, 4, 8, 16)
TO_32 = (*SPLITS, 32)
ANY = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""Parts of k that cuBLAS takes on Ampere, as many as fill the multiprocessors."""
SLOWED = {"boost": 5e-4, "sustained": 0.8}
RANDOM = "sglang"
"""Multiplied random numbers, which draw power until the clock falls; vLLM's weights were not written.
Source: ai-dynamo/aiconfigurator, collector/sglang/collect_gemm.py and collector/vllm/collect_gemm.py."""
CAST = {"cast": 1.5e12, "cast_unit": 1e11, "cast_row": 1e-9}
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


@dataclass(frozen=True)
class Form:
    """Properties of kernels that are not fitted.

    Attributes:
        splits: Parts that k may be cut into.
        more: Numbers to begin with beside those of all kernels.
        tiles: Rows and columns of tiles.
        coarse: Rows of C up to which the kernel has the first tile of BY_ROWS; 0 where a library chooses.
        rules: Of the tiles; () where a library chooses.
    """

    splits: Sequence[int] = (1,)
    more: Mapping[str, float] = field(default_factory=dict)
    tiles: Sequence[tuple[int, int]] = TILES
    coarse: int = 0
    rules: Sequence[Rule] = ()


def forms(engine: str, system: str, dtype: str) -> Sequence[Form]:
    """Return the forms to try for an engine's multiplies on a chip; those of fewer numbers come first.

    Tiles by rules are not compared: they are what a kernel has.

    Args:
        engine: As tables call it, without version.
        system: The same.
        dtype: The same.
    """
    if dtype == "fp8" and (rules := RULES.get((engine, system))):
        return [Form(more=CAST, tiles=tuple(dict.fromkeys(x.tile for x in rules)), rules=rules)]
    if dtype == "bfloat16":
        parts, tiles = (ANY, TILES) if system in AMPERE else (TO_32, LARGE)
        if system in HOPPER:
            return [Form(), Form(SPLITS), Form(SPLITS, SLOWED)]
        slowed = engine == RANDOM and system in BLACKWELL
        return [Form(parts, x, tiles) for x in ([SLOWED] if slowed else [{}, SLOWED])]
    sets = (
        [LARGE, LARGER] if dtype == "nvfp4" else [DEEP_GEMM] if system in HOPPER and "block" in dtype else []
    )
    plain = [Form(), Form(SPLITS), Form(more=CAST), Form(SPLITS, CAST)]
    return [*plain, Form(more=CAST, tiles=BY_ROWS, coarse=COARSE), *(Form(more=CAST, tiles=x) for x in sets)]

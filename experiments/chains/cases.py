"""The cases: MLP blocks over tokens and budgets, and layers of public models, each searched."""

from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

import umm
from umm.errors import InfeasibleError
from umm.space import Found, Space, search

TOKENS = (1024, 2048, 4096, 8192)
BUDGETS = ("2x", "device")
NAMED = ("megatron", "sequence", "data", "multiply by multiply")


@dataclass(frozen=True)
class Case:
    """A search: a chain by name with its sizes, forward and backward, within a budget."""

    chain: str
    machine: str
    tokens: int
    memory: str
    model: str = ""

    def found(self) -> tuple[Found | None, float]:
        """Return the search's result, None if nothing fits, and its CPU seconds."""
        sizes = {"model": self.model} if self.model else {"hidden": 8192, "ffn": 28672}
        dtype = "float32" if self.machine.startswith("pvc") else "bfloat16"
        outline = umm.chain(self.chain, tokens=self.tokens, backward=True, dtype=dtype, **sizes)
        begin = process_time()
        try:
            result = search(Space(chain=outline), self.machine, memory=self.memory, top=1)
        except InfeasibleError:
            result = None
        return result, process_time() - begin


def blocks() -> Iterator[Case]:
    """Yield MLP-1, GELU, MLP-2 of 8192 to 28672 on two machines, over tokens and two budgets."""
    for machine in ("pvc-12", "h100-8"):
        for tokens in TOKENS:
            for memory in BUDGETS:
                yield Case("mlp", machine, tokens, memory)


def layers() -> Iterator[Case]:
    """Yield a gated MLP and a whole layer of two public models on eight GPUs and on four nodes of eight."""
    for chain in ("gated-mlp", "transformer-layer"):
        for model in ("llama-3-8b", "llama-3-70b"):
            for machine in ("h100-8", "dgx-h100x4"):
                yield Case(chain, machine, 4096, "device", model)

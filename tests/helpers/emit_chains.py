"""Chains that programs are emitted for: four presets small enough for CPUs, and schemes of few ranks."""

import umm
from umm.emit.chains.program import emit_chain
from umm.executor import run

MACHINE = umm.machine("h100-8")
CHAINS = {
    "gated-mlp": {"hidden": 64, "ffn": 96, "tokens": 32},
    "head": {"hidden": 64, "vocab": 256, "tokens": 64},
    "attention": {"hidden": 64, "heads": 8, "kv_heads": 4, "tokens": 64, "sequences": 4},
    "transformer-layer": {"hidden": 64, "ffn": 96, "heads": 8, "kv_heads": 4, "tokens": 64, "sequences": 4},
}
SCHEMES = {"megatron": 2, "sequence": 2, "fsdp2": 2, "sp2-dp2": 4, "hsdp2x2": 4, "fsdp2-sp2": 4}
"""Schemes that both frameworks have, and their ranks."""
JAX_ALONE = {"2d2x2": 4, "tp2x2": 4}
TORCH = [(chain, scheme) for chain in CHAINS for scheme in SCHEMES][:20]
JAX = [(chain, scheme) for chain in CHAINS for scheme in SCHEMES | JAX_ALONE if scheme != "hsdp2x2"][:20]


def laid_out(name, scheme, ranks=None, **more):
    """A chain in a scheme's layouts."""
    outline = umm.chain(name, **CHAINS[name], **more)
    ranks = ranks or (SCHEMES | JAX_ALONE)[scheme]
    return outline.laid_out(outline.layouts_of(scheme, ranks), ranks)


def simulated(chain, machine=MACHINE):
    """The trace of a chain's schedule."""
    return run(umm.schedule(chain, machine), "sim")


def emitted(target, name, scheme, note="Predicted 3 ms.", **more):
    """The text that is emitted for a chain."""
    return emit_chain(target, simulated(laid_out(name, scheme, **more)), MACHINE, note)

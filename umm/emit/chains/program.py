"""From a chain in layouts to a framework's program, flags or trace."""

from umm.emit.chains import jax_layer, torch_block
from umm.emit.chains.flags import flags
from umm.emit.chains.forward import Forward
from umm.emit.chains.spread import spread_of
from umm.emit.chains.tuner import tuner_lines
from umm.errors import InputError
from umm.machines import Machine
from umm.program.chain import Chain
from umm.traces.trace import Trace

TARGETS = ("torch", "jax", "torchtitan", "megatron", "nccl")  # what a chain in layouts is printed as


def emit_chain(target: str, trace: Trace, machine: Machine, note: str) -> str:
    """Return a laid out chain as a program or flags, each with the parts that the framework cannot express.

    InputError for layouts that the framework cannot have, naming the property.

    Args:
        target: One of :data:`TARGETS`.
        machine: The machine it was chosen for.
        note: What is predicted, in a sentence.
    """
    chain = trace.schedule.program
    if not isinstance(chain, Chain) or target not in TARGETS:
        raise InputError(f"no chain is emitted for {target!r}; choose from {', '.join(TARGETS)}")
    if target == "nccl":
        return tuner_lines(trace, machine)
    forward = Forward(chain)
    if target == "jax":
        return jax_layer.program(forward, note)
    spread = spread_of(forward)
    return torch_block.program(spread, note) if target == "torch" else flags(target, spread, note)

"""From a chain in layouts to a framework's program, flags or trace."""

from umm.emit.chains import jax_layer, torch_block
from umm.emit.chains.forward import Forward
from umm.emit.chains.spread import DP, FSDP, TP, Spread, spread_of
from umm.emit.collective_tables import tuner_lines
from umm.errors import InputError
from umm.machines import Machine
from umm.program.chain import Chain
from umm.program.statements import of_kind
from umm.program.statements.attention import Attention
from umm.quoting import shell
from umm.step.flags import FRAMEWORKS
from umm.step.parallel import Parallel
from umm.step.stacks import Stack
from umm.traces.trace import Trace

TARGETS = ("torch", "jax", "torchtitan", "megatron", "nccl")  # what a chain in layouts is printed as
WHOLE = "# tokens stay whole: torchtitan 0.2 splits them; 0.3 has parallelism.enable_sequence_parallel"
"""A setting that its TOML cannot have: the parser of 0.2.2 refuses the key."""


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


def flags(framework: str, spread: Spread, note: str) -> str:
    """Return the flags of Megatron-LM, or torchtitan's TOML, with comments on the parts that they lack.

    InputError where ranks share sequences otherwise than frameworks do.
    """
    forward = spread.forward
    # A training step of these sizes: tokens are the sequences of one micro-batch.
    if not forward.inputs:
        raise InputError(f"{forward.chain.name} has no tokens that come in; --emit jax takes it")
    tokens = forward.tensors[forward.inputs[0]].shape[0]
    batch = spread.size(DP) * spread.size(FSDP)
    sequences = next((x.sequences for x in of_kind(Attention, forward.statements)), batch)
    if sequences % batch or tokens % sequences:
        raise InputError(f"{batch} ranks share {sequences} sequences of {tokens} tokens; change --sequences")
    parallel = Parallel(
        int(spread.ranks.size), sequences, tokens // sequences, sequences // batch, spread.size(TP),
        fsdp=spread.size(FSDP), zero=0,
    )  # fmt: skip
    lines = [shell.comment(f"{forward.chain.name}: {spread.words}. {note}")]
    order = " ".join(map(str, spread.ranks.tolist()))
    replicated = TP in spread.roles and not spread.sequence_parallel
    for line in FRAMEWORKS[framework](parallel, Stack(framework)):
        lines.append(line.replace(" --sequence-parallel", "") if replicated else line)
        if replicated and framework == "torchtitan" and line.startswith("tensor_parallel_degree"):
            lines.append(WHOLE)
    if spread.ranks.ravel().tolist() != list(range(spread.ranks.size)):
        lines.append(f"# ranks are not in the framework's order, tensor parallel ones innermost: {order}")
    if FSDP in spread.roles:
        lines.append("# weights are gathered layer by layer; umm gathers each beside the multiply before it")
    lines += [f"# {x}: set them as the model has them" for x in forward.left_out]
    lines.append("# tensors move by collectives; umm's one-sided slices beside multiplies are not expressed")
    return "\n".join(lines) + "\n"

"""A layer's layouts as flags of training frameworks, with comments on the parts that they cannot express."""

from umm.emit.chains.spread import DP, FSDP, TP, Spread
from umm.errors import InputError
from umm.program.statements import of_kind
from umm.program.statements.attention import Attention
from umm.quoting import shell
from umm.step.flags import FRAMEWORKS
from umm.step.parallel import Parallel

WHOLE = "# tokens stay whole: torchtitan 0.2 splits them; 0.3 has parallelism.enable_sequence_parallel"
"""What its TOML cannot say: the parser of 0.2.2 refuses the key."""


def parallel_of(spread: Spread) -> Parallel:
    """Return a layer's axes as the sizes of a training step: tokens are the sequences of one micro-batch.

    InputError where ranks share sequences otherwise than frameworks do.
    """
    forward = spread.forward
    tokens = forward.tensors[forward.inputs[0]].shape[0]
    batch = spread.size(DP) * spread.size(FSDP)
    sequences = next((x.sequences for x in of_kind(Attention, forward.statements)), batch)
    if sequences % batch or tokens % sequences:
        raise InputError(f"{batch} ranks share {sequences} sequences of {tokens} tokens; change --sequences")
    return Parallel(
        int(spread.ranks.size), sequences, tokens // sequences, sequences // batch, spread.size(TP),
        fsdp=spread.size(FSDP), zero=0,
    )  # fmt: skip


def flags(framework: str, spread: Spread, note: str) -> str:
    """Return the flags of Megatron-LM, or torchtitan's TOML.

    Args:
        framework: ``megatron`` or ``torchtitan``.
        spread: A layer's axes.
        note: What is known of it, in a line.
    """
    lines = [shell.comment(f"{spread.forward.chain.name}: {spread.words}. {note}")]
    replicated = TP in spread.roles and not spread.sequence_parallel
    for line in FRAMEWORKS[framework](parallel_of(spread)):
        lines.append(line.replace(" --sequence-parallel", "") if replicated else line)
        if replicated and framework == "torchtitan" and line.startswith("tensor_parallel_degree"):
            lines.append(WHOLE)
    if FSDP in spread.roles:
        lines.append("# weights are gathered layer by layer; umm gathers each beside the multiply before it")
    lines += [f"# {x}: set them as the model has them" for x in spread.forward.left_out]
    lines.append("# tensors move by collectives; umm's one-sided slices beside multiplies are not expressed")
    return "\n".join(lines) + "\n"

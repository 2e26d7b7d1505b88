"""Whether a model's heads and experts can be shared by so many ranks."""

from umm.errors import ProblemError
from umm.program.models.layers import Attention, Model

MAX_LISTED = 128  # ranks that a message lists at most


def split(columns: int, ranks: int) -> int:
    """Return the columns of a rank, of the one that has most."""
    return -(-columns // ranks)


def heads_and_columns(block: Attention, tp: int) -> tuple[int, int, int, int]:
    """Return a rank's heads, heads of keys, columns of queries, and columns of keys and values."""
    heads, kv_heads = split(block.heads, tp), split(block.kv_heads, tp)
    return (
        heads,
        kv_heads,
        heads * block.head,
        kv_heads * (block.head + (0 if block.keys_only else block.value)),
    )


def shared(model: Model) -> tuple[set[int], set[int]]:
    """Return the numbers of heads and of experts of a model's layers, which ranks share as wholes."""
    heads = {getattr(x.mixer, "heads", 0) or getattr(x.mixer, "value_heads", 0) for x in model.layers} - {0}
    return heads, {x.experts.experts for x in model.layers if x.experts}


def check_split(model: Model, tp: int, ep: int) -> None:
    """Refuse ranks that share no whole heads or experts, and a model whose head is unknown.

    A ProblemError names the number, and those that would work, or the missing vocabulary.
    """
    if not model.vocab:
        raise ProblemError(f"{model.name} has no vocab_size, which its head needs; add it to the file")
    heads, experts = shared(model)
    if ep > 1 and not experts:
        raise ProblemError(f"--ep {ep} splits experts, and {model.name} has none; leave out --ep")
    for name, ranks, counts in (("tp", tp, heads), ("ep", ep, experts)):
        for count in sorted(counts):
            if count % ranks:
                works = [
                    str(x) for x in range(1, MAX_LISTED + 1) if all(number % x == 0 for number in counts)
                ]
                parts = "heads" if name == "tp" else "experts"
                raise ProblemError(
                    f"--{name} {ranks} does not divide the {count} {parts} of {model.name}; "
                    f"choose from {', '.join(works)}"
                )

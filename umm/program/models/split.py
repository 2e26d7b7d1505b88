"""Whether a model's heads and experts can be shared by so many ranks."""

from umm.errors import ProblemError
from umm.program.models.layers import Model

MAX_LISTED = 128
"""Ranks that a message lists at most."""


def check_split(model: Model, tp: int, ep: int) -> None:
    """Refuse ranks that share no whole heads or experts.

    Args:
        tp: Ranks that share the heads.
        ep: Groups of experts.

    Raises:
        ProblemError: names the number, and those that would work.
    """
    heads = {getattr(x.mixer, "heads", 0) or getattr(x.mixer, "value_heads", 0) for x in model.layers} - {0}
    experts = {x.experts.experts for x in model.layers if x.experts}
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

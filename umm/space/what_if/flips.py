"""Which layouts another file of one machine would choose, for a few problems."""

from collections.abc import Sequence
from typing import NamedTuple

from umm.executor import executor
from umm.machines import Machine
from umm.space.choice import Choice
from umm.space.search.search import search
from umm.space.space import Space

# MLP-1 and MLP-2 at one sixteenth of the paper's n and k, a square, and a long sum; m, n, k.
PROBLEMS = ((1024, 3072, 768), (1024, 768, 3072), (2048, 2048, 2048), (512, 512, 8192))


class Decision(NamedTuple):
    """The best layouts of one problem by two files.

    Attributes:
        problem: m, n, k.
        before: What the old file chooses.
        after: What the new one does.
        costs: What the old choice takes over the new one, by the new file: 1.03 is 3 % longer.
    """

    problem: tuple[int, int, int]
    before: Choice
    after: Choice
    costs: float

    @property
    def flips(self) -> bool:
        """Whether the old choice takes longer than the new one by the new file."""
        return self.costs > 1.0


def decisions(
    old: Machine, new: Machine, dtype: str, problems: Sequence[tuple[int, int, int]] = PROBLEMS
) -> list[Decision]:
    """Return the best layouts of some problems by two files of as many devices."""
    found = []
    for m, n, k in problems:
        space = Space(m=m, n=n, k=k, ranks=new.default_ranks, dtype=dtype)
        before, after = (search(space, machine, top=1).top[0] for machine in (old, new))
        again = executor("sim").makespan(before.schedule(new))
        found.append(Decision((m, n, k), before, after, max(1.0, again / after.makespan_s)))
    return found

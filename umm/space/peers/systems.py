"""Who competes in a program of several statements: the best layouts, and those of training systems."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from umm.algorithms.chains.lower import lower
from umm.algorithms.movement.choice import node_count
from umm.errors import ProblemError
from umm.machines import Machine
from umm.program import Outline
from umm.program.schemes import on_nodes
from umm.program.systems import CHANGES, fully_sharded, gradients_by_tokens, over_mesh
from umm.schedules.schedule import Schedule
from umm.traces.trace import Trace

BEST = "universal"


@dataclass(frozen=True)
class Scheme:
    """A way to lay out a program; its inputs start as it wants them, unless the program says where they are.

    Attributes:
        name: What its row is called.
        layouts: A text for each tensor.
        ranks: Ranks that share the work.
        change: What becomes of the program's statements before.
        stationary: Of multiplies by what they write, or for all.
    """

    name: str
    layouts: Mapping[str, str]
    ranks: int
    change: Callable[[Outline], Outline] = field(default=lambda outline: outline)
    stationary: str | Mapping[str, str] = "auto"

    def schedule(self, start: Outline, machine: Machine) -> Schedule:
        """Return the schedule of a program with these tensors."""
        chain = self.change(start).laid_out(self.layouts, self.ranks)
        return lower(chain, machine, stationary=self.stationary)

    def works_in(self, start: Outline) -> Mapping[str, str]:
        """Return its layouts."""
        return self.layouts

    def how(self, made: Schedule) -> str:
        """Return nothing: its name says it."""
        return ""

    def own_seconds(self, start: Outline, machine: Machine, trace: Trace) -> float:
        """Return the same makespan: it starts as it wants."""
        return trace.makespan_s

    def in_words(self, start: Outline) -> str:
        """Return its name."""
        return self.name


def systems(outline: Outline, ranks: int, machine: Machine) -> Iterator[Scheme]:
    """Yield the schemes of training systems that a program has the layouts for, on nodes those for nodes."""
    for name in outline.layouts:
        layouts = {x.name: outline.layouts[name].get(x.name, "row") for x in outline.tensors}
        yield Scheme(name, layouts, ranks)
    if outline.has_experts:
        for parts in range(2, ranks):
            if ranks % parts == 0:
                name = f"ep{ranks // parts}-tp{parts}"
                yield Scheme(name, outline.layouts_of(name, ranks), ranks)
        return
    for name in ("ring", "gather", "ulysses"):
        try:
            changed = CHANGES[name](outline)
        except ProblemError:  # no fused attention
            continue
        yield Scheme(name, changed.default_layouts, ranks, CHANGES[name], gradients_by_tokens(outline))
    nodes = node_count(machine, ranks)
    try:
        if nodes > 1:
            for name in on_nodes(nodes, ranks // nodes):
                yield Scheme(name, outline.layouts_of(name, ranks), ranks)
            return
        sharded = fully_sharded(outline)
        yield Scheme("fsdp", sharded.default_layouts, ranks, fully_sharded, gradients_by_tokens(outline))
        for data in range(2, ranks):
            if ranks % data == 0:
                meshed = over_mesh(outline, data, ranks // data)
                yield Scheme(f"data-tensor {data}x{ranks // data}", meshed, ranks)
    except ProblemError:  # not a preset's layouts
        return

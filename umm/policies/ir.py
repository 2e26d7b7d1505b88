"""The IR: for each rank a list of steps, each with the gemms and the communication that overlap in it.

A step costs the larger of its communication and its computation, each the sum of its parts, and a rank does
one step after another. So a rank's total is its communication plus the computation that no step hides.

Source: Brock & Golin (2025), section 4.3.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from umm.errors import ScheduleError
from umm.plans.multiply.oplist import OpList
from umm.plans.multiply.options import Options
from umm.policies.graph import Graph, name
from umm.units import format_seconds


class Step(NamedTuple):
    """Communication and gemms that overlap: numbers of the graph's component multiplies and data."""

    gets: tuple[int, ...]  # data that are fetched
    gemms: tuple[int, ...]  # component multiplies that run; their inputs were complete before the step
    accumulates: tuple[int, ...]  # component multiplies of earlier steps whose contribution to C goes out


class Limits(NamedTuple):
    """Limits of one step: the hyperparameters of the lowering."""

    gemms: int  # component multiplies
    communications: int  # gets and accumulates together

    @classmethod
    def of(cls, options: Options) -> "Limits":
        """Return the limits that go with direct execution's: as much as it has in flight."""
        return cls(options.max_gemms, options.prefetch + options.max_accumulates)


class Cost(NamedTuple):
    """Seconds of a step's communication and of its computation."""

    communication: float
    computation: float

    @property
    def seconds(self) -> float:
        """The cost of the step: the larger of the two."""
        return max(self)


Steps = tuple[Step, ...]


def step_cost(graph: Graph, step: Step) -> Cost:
    """Return a step's cost by the model of :mod:`umm.policies.graph`."""
    updates = (graph.updates[i] for i in step.accumulates)
    return Cost(
        sum(graph.data[x].seconds for x in step.gets) + sum(x.seconds for x in updates if x),
        sum(graph.seconds[i] for i in step.gemms),
    )


def total(graph: Graph, steps: Sequence[Step]) -> float:
    """Return the seconds of a rank's steps, one after another."""
    return sum(step_cost(graph, step).seconds for step in steps)


def validate(graph: Graph, steps: Sequence[Step], limits: Limits) -> None:
    """Refuse steps that are no lowering of a graph.

    ScheduleError naming the first step that does something twice or too early, or too much at once, or what
    is missing at the end.
    """
    have, done, sent = set(graph.own), set[int](), set[int]()
    for number, step in enumerate(steps):

        def refuse(why: str, number: int = number) -> None:
            raise ScheduleError(f"step {number} of rank {graph.rank} {why}")

        if len(step.gemms) > limits.gemms:
            refuse(f"has {len(step.gemms)} gemms; the limit is {limits.gemms}")
        if len(step.gets) + len(step.accumulates) > limits.communications:
            many = len(step.gets) + len(step.accumulates)
            refuse(f"has {many} communications; the limit is {limits.communications}")
        if not any(step):
            refuse("is empty")
        for i in step.gemms:
            if missing := [x for x in graph.edges[i] if x not in have]:
                refuse(f"multiplies {i} before {name(graph.data[missing[0]])} is there")
        for i in step.accumulates:
            if i not in done or graph.updates[i] is None:
                refuse(f"accumulates {i}, which has nothing to send yet")
        for what, now, before in (
            ("gets", step.gets, have),
            ("multiplies", step.gemms, done),
            ("accumulates", step.accumulates, sent),
        ):
            if twice := [x for x in now if x in before or now.count(x) > 1]:
                refuse(f"{what} {twice[0]} a second time")
            before.update(now)
    all_sent = {i for i, update in enumerate(graph.updates) if update}
    for what, expected, actual in (
        ("multiplies", set(range(len(graph))), done),
        ("accumulates", all_sent, sent),
    ):
        if expected - actual:
            raise ScheduleError(f"no step of rank {graph.rank} {what} {min(expected - actual)}")


@dataclass(frozen=True, eq=False)
class IR:
    """The lowering of a problem: each rank's steps."""

    ops: OpList  # the op list that was lowered
    graphs: Sequence[Graph]  # the computation graph of each rank
    steps: Sequence[Steps]  # the steps of each rank
    limits: Limits  # what a step may hold
    # Largest share by which a rank's steps may cost more than the optimum; None if not known.
    gap: float | None = None

    @property
    def cost_s(self) -> float:
        """Seconds of the rank that takes longest, by the step model."""
        return max((total(g, s) for g, s in zip(self.graphs, self.steps, strict=True)), default=0.0)

    def validate(self) -> None:
        """Refuse steps that are no lowering; see :func:`validate`."""
        for graph, steps in zip(self.graphs, self.steps, strict=True):
            validate(graph, steps, self.limits)

    def lines(self) -> Iterator[str]:
        """Yield one readable line for each step, ranks ascending."""
        for graph, steps in zip(self.graphs, self.steps, strict=True):
            for number, step in enumerate(steps):
                yield f"r{graph.rank} step {number}: {_line(graph, step)}"

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _line(graph: Graph, step: Step) -> str:
    parts = []
    if step.gemms:
        parts.append("gemm " + " ".join(map(str, step.gemms)))
    if step.gets:
        gets = (f"{name(graph.data[x])} from r{graph.data[x].source}" for x in step.gets)
        parts.append("get " + ", ".join(gets))
    if step.accumulates:
        targets = ((i, graph.updates[i]) for i in step.accumulates)
        parts.append("accumulate " + ", ".join(f"{i} to r{update.target}" for i, update in targets if update))
    cost = step_cost(graph, step)
    parts.append(
        f"{format_seconds(cost.seconds)} (communication {format_seconds(cost.communication)}, "
        f"computation {format_seconds(cost.computation)})"
    )
    return " | ".join(parts)

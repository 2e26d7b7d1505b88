"""Savings of more replicas as m grows, and of more nodes or ranks: the best of each number."""

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from umm.errors import InputError, UmmError
from umm.executor import executor
from umm.explorer.background import Question, Send
from umm.explorer.search import factors_of, points_of
from umm.layouts.places import replication_factors
from umm.machines import Machine
from umm.machines.settings import NODES, with_settings
from umm.numbers import whole_in
from umm.program.problem import MATRICES
from umm.space import Space, search
from umm.space.budget import limit_of
from umm.space.pricing.multiplies import MultiplyPricer
from umm.space.scaling import Scale
from umm.space.search.walk import BestFirst
from umm.units import percent

TIMES = (1, 2, 4, 8, 16, 32, 64)  # what m is multiplied by
PAYS = 0.01  # the share of the time from which on a saving is one


class Growing(Question):
    """The best times over m and the replication factor of one operand."""

    def __init__(
        self, space: Space, machine: Machine, budget: str, operand: int, fixed: tuple[int, int, int]
    ) -> None:
        super().__init__()
        self.space, self.machine = space, machine
        self.budget = budget  # of a rank, as limit_of takes it: its share of m's problem
        self.operand = operand  # the one whose factors are compared, by its place among A, B and C
        self.held = fixed  # the factor that each of the others has, or 0 for the best
        self.factors = replication_factors(space.ranks or 1)  # those that are compared
        # The best makespan of each factor by m, in seconds; nan where nothing fits.
        self.found: dict[int, list[float]] = {}

    def asked(self) -> tuple[Any, ...]:
        """Return the process's function and arguments."""
        return grow, self.space, self.machine, self.budget, self.operand, self.held

    def take(self, message: dict[int, list[float]]) -> None:
        """Take in the times of an m."""
        self.found |= message

    @property
    def words(self) -> str:
        """How far it is."""
        return self.failed or f"As m grows: {len(self.found)} of {len(TIMES)} values of m are proven."

    @property
    def stage(self) -> str:
        """The progress so far."""
        return self.failed or f"m {len(self.found)} {'done' if self.done else 'under way'}"

    @property
    def said(self) -> str:
        """At which m replicas pay, in a sentence; nothing before all are known.

        >>> from umm.machines import machine
        >>> grown = Growing(Space(m=512, n=512, k=512, ranks=4), machine("pvc-12"), "device", 1, (2, 0, 0))
        >>> grown.found = {512: [2.0, 1.5, 1.6], 1024: [2.0, 1.9, 1.8], 2048: [2.0, 2.0, 2.0]}
        >>> grown.done = True
        >>> print(grown.said)
        With A@2, replicas of B pay up to m = 1024: B@2 saves 25.0 % at m = 512, B@4 saves 10.0 % at m = 1024.
        """
        if not self.done:
            return ""
        name, whose = MATRICES[self.operand], with_factors(self.operand, self.held)
        sizes = sorted(self.found)
        if not sizes:
            return f"{whose}, nothing is known of other m."
        words = {m: saving(name, self.factors, self.found[m]) for m in sizes}
        paid = [m for m in sizes if words[m]]
        if not paid:
            return f"{whose}, no replica of {name} saves 1 % at any m from {sizes[0]} to {sizes[-1]}."
        if paid == sizes:
            where = f"at every m from {sizes[0]} to {sizes[-1]}"
        elif paid == sizes[: len(paid)]:
            where = f"up to m = {paid[-1]}"
        else:
            where = f"at m = {', '.join(map(str, paid))}"
        ends = ", ".join(f"{words[m]} at m = {m}" for m in dict.fromkeys((paid[0], paid[-1])))
        return f"{whose}, replicas of {name} pay {where}: {ends}."


def with_factors(operand: int, factors: Sequence[int]) -> str:
    """Return which replication factors the other operands have, as a sentence begins.

    >>> with_factors(1, (1, 0, 0)), with_factors(1, (0, 0, 0))
    ('With A@1', 'With the best factors of A and C')
    """
    others = [i for i in range(3) if i != operand]
    fixed = [f"{MATRICES[i]}@{factors[i]}" for i in others if factors[i]]
    return "With " + (
        " and ".join(fixed) or f"the best factors of {' and '.join(MATRICES[i] for i in others)}"
    )


def saving(name: str, factors: Sequence[int], times: Sequence[float]) -> str:
    """Return which factor of an operand saves most against none, and how much; nothing where it does not pay.

    >>> saving("B", [1, 2, 4], [2.0, 1.9, 1.5]), saving("B", [1, 2], [2.0, 1.99])
    ('B@4 saves 25.0 %', '')
    """
    place = paying(times)
    return f"{name}@{factors[place]} saves {percent(1 - times[place] / times[0], 1)}" if place else ""


def paying(times: Sequence[float]) -> int:
    """Return the place of the fastest, 0 (without replicas) where it does not pay.

    >>> paying([2.0, 1.9, 1.5]), paying([2.0, 1.99])
    (2, 0)
    """
    fastest = int(np.argmin(np.nan_to_num(times, nan=np.inf)))
    return fastest if 1 - times[fastest] / times[0] >= PAYS else 0


def grow(
    send: Send, space: Space, machine: Machine, budget: str, operand: int, fixed: tuple[int, int, int]
) -> None:
    """Prove the best of every factor for one m after the other; it runs in a process of its own."""
    makespan = executor("sim").makespan
    with suppress(UmmError):  # of an m that cannot be, and of those above
        now = points_of(space).bare.m
        for m in (times * now for times in TIMES):
            points = points_of(space.changed(m=m))
            looked = MultiplyPricer(points, machine, makespan)
            limit = limit_of(budget, points.share, machine, points.bare.p)
            factors = factors_of(points)
            kept = np.all([each == at for each, at in zip(factors, fixed, strict=True) if at], axis=0)
            best = []
            for factor in replication_factors(points.bare.p):
                search = BestFirst(looked, limit, 1, among=kept & (factors[operand] == factor))
                search.run()
                best.append(min((x.makespan_s for x in search.found.choices()), default=math.nan))
            send({m: best})


MOST_COUNTS = 8
USUAL = (1, 2, 4, 8)


class Scaled(Question):
    """The best layouts of several numbers of nodes or ranks."""

    def __init__(
        self, space: Space, machine: Machine, memory: str, over: str, counts: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.space, self.machine, self.memory = space, machine, memory
        self.axis, self.counts = over, counts  # how many ``nodes`` or ``ranks``
        self.rows: list[Scale] = []  # the best of each, in this order, as far as they are found
        self.refused: list[str] = []  # numbers without an answer, a line for each that says why

    def asked(self) -> tuple[Any, ...]:
        """Return the process's function and arguments; its new results replace the old ones."""
        self.rows, self.refused = [], []
        return search_each, self.space, self.machine, self.memory, self.axis, self.counts

    def take(self, message: Scale | str) -> None:
        """Take in the best of a number, or why it has no answer."""
        if isinstance(message, Scale):
            self.rows.append(message)
        else:
            self.refused.append(message)

    @property
    def words(self) -> str:
        """How far it is."""
        done = len(self.rows) + len(self.refused)
        return self.failed or f"Scaling: {done} of {len(self.counts)} numbers of {self.axis} searched."

    @property
    def stage(self) -> str:
        """The progress so far."""
        done = len(self.rows) + len(self.refused)
        return self.failed or f"{self.axis} {done} {'done' if self.done else 'under way'}"


def over_of(asked: str, machine: Machine) -> str:
    """Return whether numbers of nodes or of ranks are compared: ``nodes``, if there may be several.

    >>> from umm.machines import machine
    >>> over_of("", machine("pvc-12")), over_of("", machine("h100-8")), over_of("ranks", machine("h100-8"))
    ('ranks', 'nodes', 'ranks')
    """
    with suppress(UmmError):
        with_settings(machine, {NODES: "2"})
        return asked or "nodes"
    return asked or "ranks"


def counts_of(text: str, over: str, machine: Machine) -> tuple[int, ...]:
    """Return the numbers that are compared; InputError unless they are a list of numbers above 0.

    Args:
        text: As typed, ``1,2,4``; nothing for 1, 2, 4 and 8, of ranks no more than the machine has.
        over: ``nodes`` or ``ranks``.

    >>> from umm.machines import machine
    >>> counts_of("", "ranks", machine("pvc-12")), counts_of("2, 4", "nodes", machine("h100-8"))
    ((1, 2, 4, 8, 12), (2, 4))
    """
    if not text:
        most = machine.default_ranks
        return USUAL if over == "nodes" else (*(x for x in USUAL if x < most), most)
    parts = [whole_in(part.strip(), 1, 10**5) for part in text.split(",")]
    counts = [part for part in parts if part is not None]
    if len(counts) < len(parts):
        raise InputError(f"{over} {text!r} is not a list of whole numbers of at least 1, such as 1,2,4,8")
    if len(parts) > MOST_COUNTS:
        raise InputError(f"{len(parts)} numbers are more than this page compares; give up to {MOST_COUNTS}")
    return tuple(dict.fromkeys(counts))


def search_each(
    send: Send, space: Space, machine: Machine, memory: str, over: str, counts: tuple[int, ...]
) -> None:
    """Send the best of each number; it runs in a process of its own."""
    for count in counts:
        try:
            target = with_settings(machine, {NODES: str(count)}) if over == "nodes" else machine
            ranks = target.default_ranks if over == "nodes" else count
            result = search(space.changed(ranks=ranks), target, memory=memory, top=1)
        except UmmError as error:
            send(f"{count} {over}: {error}")
            continue
        best, nodes = result.top[0], count if over == "nodes" else None
        figures = best.words, best.makespan_s, best.memory_bytes
        send(Scale.of(target, ranks, *figures, gap=result.gap, nodes=nodes))

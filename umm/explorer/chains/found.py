"""What the search over a chain's layouts finds, in a process behind the page."""

from collections.abc import Mapping
from functools import lru_cache
from time import monotonic
from typing import Any

from umm.errors import InputError, UmmError
from umm.executor import executor
from umm.explorer.background import Question, Send
from umm.explorer.chains.state import ChainState
from umm.machines import Machine
from umm.program import Outline
from umm.space import Choice, Space, search
from umm.space.assignments import Assignments
from umm.space.budget import DEVICE
from umm.traces.trace import Trace

EVERY = 0.25
"""Seconds between two messages."""
MOST_DRAWN = 20_000
"""Actions of a schedule that the page builds and draws while one waits."""


class FoundBest(Question):
    """The best layouts of a chain's tensors, as ``umm search --chain`` finds them.

    Raises:
        InputError: if a text is no layout, or the machine has fewer ranks.

    Attributes:
        state: What was asked.
        machine: Where.
        ranks: Over so many.
        space: The layouts to choose from.
        groups: The tensors that have one layout, group by group.
        settled: How many assignments are settled, of how many.
        top: The best, fastest first; none until they are found.
        named: Makespan of the chain's own layouts by name, in seconds; None where they do not fit.
        left_out: Of those for which there was no time a lower bound, in seconds.
        moved: What each statement of the best moves: of each tensor the bytes that reach one rank.
        sure: Whether the first is proven best, in words.
        looked: Of how many it is the best, in words.
        ranges: The ranges of the first of the top, in seconds, once they are known.
        tied: Which of those cannot be told apart from the first, from 1.
        refusal: Why nothing is found, if that is so.
    """

    def __init__(self, state: ChainState, outline: Outline, machine: Machine) -> None:
        super().__init__()
        self.state, self.machine = state.asked, machine
        self.ranks = state.ranks or machine.default_ranks
        machine.check_ranks(self.ranks)
        self.outline = outline
        self.space = Space(
            chain=outline,
            ranks=self.ranks,
            layouts=state.texts,
            stationary=state.stationary,
            state=state.optimizer,
        )
        points = Assignments(outline, self.ranks, dict(self.space.layouts))
        self.groups = points.groups if points.choices else ()
        self.settled = (0, 0)
        self.top: list[Choice] = []
        self.named: dict[str, float | None] = {}
        self.left_out: dict[str, float] = {}
        self.moved: list[tuple[str, Mapping[str, int]]] = []
        self.ranges: list[tuple[float, float]] = []
        self.tied: list[int] = []
        self.sure = self.looked = self.refusal = ""

    def asked(self) -> tuple[Any, ...]:
        """Return what the process does."""
        return look, self.space, self.machine, self.state.memory or DEVICE

    def take(self, message: dict[str, Any]) -> None:
        """Take in how far the search is, or what it has found."""
        vars(self).update(message)

    @property
    def words(self) -> str:
        """How far it is, or of what the first is the best."""
        if self.refusal or self.failed:
            return self.refusal or self.failed
        if self.top:
            more = "" if self.done else " Ranges are being simulated."
            return f"{self.sure.capitalize()} of {self.looked}.{more}"
        done, of = self.settled
        return f"Looking for the best layouts: {done:,} of {of:,} settled." if of else "Pricing all layouts."


@lru_cache(maxsize=16)
def trace_of(choice: Choice, machine: Machine) -> Trace:
    """Return what the simulator predicts of some layouts that a search has found.

    Raises:
        InputError: if it is of more actions than a page should draw.
    """
    if choice.actions > MOST_DRAWN:
        raise InputError(
            f"its schedule has {choice.actions:,} actions, more than the page draws ({MOST_DRAWN:,}); "
            "copy its command below and give it --html"
        )
    return executor("sim").run(choice.schedule(machine))


def look(send: Send, space: Space, machine: Machine, memory: str) -> None:
    """Search a space and tell what is found, then how sure that is; it runs in a process of its own."""
    last = monotonic()

    def progress(settled: int, of: int) -> None:
        nonlocal last
        if monotonic() - last > EVERY:
            last = monotonic()
            send({"settled": (settled, of)})

    try:
        found = search(space, machine, memory=memory, progress=progress)
        sure = "proven best" if found.proven else f"not proven, within {100 * found.gap:.2g} % of the best"
        looked = f"{found.priced:,} assignments, {found.simulated:,} of them simulated"
        names = ("top", "named", "left_out", "moved")
        send({name: getattr(found, name) for name in names} | {"sure": sure, "looked": looked})
        send({"ranges": [found.sure.range(choice) for choice in found.ranged]}
             | {"tied": [found.top.index(x) + 1 for x in found.tied]})  # fmt: skip
    except UmmError as error:
        send({"refusal": str(error)})

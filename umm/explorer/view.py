"""What a tab is given to show: the state, its point if it has one, and the priced points beside it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec

from umm.algorithms.scheduling import UNIVERSAL
from umm.explorer.background import Behind, Question
from umm.explorer.certainty import Sure
from umm.explorer.point import Point, deciding_of, is_varied, range_of, space_of
from umm.explorer.prices import Priced
from umm.explorer.savings import Growing
from umm.explorer.state import State
from umm.explorer.tables import table
from umm.figures.style import parts_of, themed
from umm.program.problem import MATRICES
from umm.space.budget import DEVICE
from umm.space.what_if.advice import Advice, advice_among
from umm.traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Shown = dict[str, Any]
P = ParamSpec("P")
MOST_ROWS = 200


@dataclass(frozen=True, eq=False)
class View:
    """What a tab is given.

    Attributes:
        state: What is chosen.
        point: Its answer; None where it has none.
        behind: What is found out behind the page.
        dark: Whether the page is dark.
        measured: A trace that was dropped in.
        rows: The points of a store that was dropped in.
    """

    state: State
    point: Point | None
    behind: Behind
    dark: bool = False
    measured: Trace | None = None
    rows: "pd.DataFrame | None" = None

    @cached_property
    def priced(self) -> Priced:
        """All points of the space, with what is known of them by now."""
        assert self.point is not None
        space, machine, limit = space_of(self.point), self.point.machine, self.point.limit
        return self.behind.of((space, machine, limit), lambda: Priced(space, machine, limit))

    @property
    def advice(self) -> Advice | None:
        """What the search has found to be better than the point, by now."""
        assert self.point is not None
        trace = self.point.trace
        return advice_among(self.priced.front, trace.makespan_s, trace.memory_bytes)

    @property
    def range(self) -> Sure | None:
        """The range of the point's makespan; None of what is too large to be simulated again and again."""
        return self._sure(range_of) if self.point is not None and is_varied(self.point) else None

    @property
    def decides(self) -> Sure | None:
        """The assumed number that decides; None before the search has found what may be better."""
        priced = self.priced
        if self.range is None or self.state.algorithm != UNIVERSAL:
            return None
        if not (priced.front or priced.over):
            return None
        return self._sure(deciding_of, self.advice.choice if self.advice else None)

    @property
    def is_sure(self) -> bool:
        """Whether no more will be known of either."""
        return all(x.over for x in (self.range, self.decides) if x)

    def _sure(self, function: Callable[..., Any], *more: Any) -> Sure:
        assert self.point is not None
        asked = function, self.state.point, self.point.machine, *more
        return self.behind.of(asked, lambda: Sure(*asked))

    @cached_property
    def growing(self) -> Growing | None:
        """What replicas save as m grows, where that is asked for: of the operand across the heat map.

        The one that lies down has this point's factor, the third that of its slider.
        """
        if self.point is None or not self.state.grow or self.state.tab != "replication":
            return None
        third = MATRICES.index(self.state.across)
        down, operand = (i for i in range(3) if i != third)
        held = [0, 0, 0]
        held[down], held[third] = self.point.problem.layouts[down].replicas, self.state.fixed
        asked = (
            space_of(self.point),
            self.point.machine,
            self.state.memory or DEVICE,
            operand,
            (held[0], held[1], held[2]),
        )
        return self.behind.of(("growing", *asked), lambda: Growing(*asked))

    @property
    def question(self) -> Question:
        """What is found out now: the points of the space, then what else is asked for."""
        if self.growing and self.priced.done and not self.growing.over:
            return self.growing
        return self.priced

    @cached_property
    def selected(self) -> int | None:
        """The number of the state's own point among them."""
        assert self.point is not None
        if self.state.algorithm != UNIVERSAL:
            return None
        stationary = self.point.trace.schedule.stationary
        made = self.point.trace.schedule.options
        options = replace(self.state.options, final=made["final"])
        return self.priced.number(self.point.problem.layouts, stationary, options)

    def drawn(self, figure: Callable[P, "go.Figure"], *args: P.args, **named: P.kwargs) -> Mapping[str, Any]:
        """Return a figure of something as the browser takes it, in the page's colours."""
        return themed(parts_of(figure)(*args, **named), self.dark)

    def table(self, frame: Callable[[], "pd.DataFrame"]) -> Any:
        """Return the numbers under a figure as a table, if they are asked for."""
        return numbers(frame()) if self.state.data else None


def numbers(frame: "pd.DataFrame") -> list[Any]:
    """Return a frame as a table, its first rows."""
    from dash import html

    from umm.figures.page import formatter

    words = [formatter(str(name)) for name in frame.columns]
    shown = frame.head(MOST_ROWS)
    rows = [
        html.Tr([html.Td(word(value)) for word, value in zip(words, row, strict=True)])
        for row in shown.itertuples(index=False)
    ]
    more = f"The first {MOST_ROWS} of {len(frame)} rows." if len(frame) > MOST_ROWS else ""
    whole = table(map(str, frame.columns), rows, "numbers")
    return [
        html.Div(whole, className="scroll", tabIndex=0, role="region", **{"aria-label": "data"}),
        more,
    ]

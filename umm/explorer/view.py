"""What a tab is given to show: the state, its point if it has one, and the priced points beside it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from umm.algorithms.registry import UNIVERSAL
from umm.arrays import Ints
from umm.explorer.point import Point, space_of
from umm.explorer.priced import Priced, Pricing
from umm.explorer.state import State
from umm.figures.style import themed
from umm.traces.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

Shown = dict[str, Any]
MOST_ROWS = 200


@dataclass(frozen=True, eq=False)
class View:
    """What a tab is given.

    Attributes:
        state: What is chosen.
        point: Its answer; None where it has none.
        pricing: The priced spaces.
        dark: Whether the page is dark.
        measured: A trace that was dropped in.
        rows: The points of a store that was dropped in.
    """

    state: State
    point: Point | None
    pricing: Pricing
    dark: bool = False
    measured: Trace | None = None
    rows: "pd.DataFrame | None" = None
    _made: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def priced(self) -> Priced:
        """All points of the space, with what is known of them by now."""
        assert self.point is not None
        return self.pricing.of(space_of(self.state, self.point.machine), self.point.machine)

    @cached_property
    def best(self) -> Ints:
        """The points that fit the budget, fastest first."""
        assert self.point is not None
        return self.priced.best(self.point.limit)

    @cached_property
    def selected(self) -> int | None:
        """The number of the state's own point among them."""
        assert self.point is not None
        if self.state.algorithm != UNIVERSAL:
            return None
        layouts = tuple(str(layout) for layout in self.point.problem.layouts)
        return self.priced.number(layouts, self.point.trace.schedule.stationary)  # type: ignore[arg-type]

    def drawn(self, figure: "go.Figure") -> Mapping[str, Any]:
        """Return a figure as the browser takes it, in the page's colours."""
        return themed(figure.to_dict() if hasattr(figure, "to_dict") else figure, self.dark)

    def table(self, frame: "pd.DataFrame") -> Any:
        """Return the numbers under a figure as a table, if they are asked for."""
        from dash import html

        from umm.figures.page import formatter

        if not self.state.data:
            return None
        words = [formatter(str(name)) for name in frame.columns]
        shown = frame.head(MOST_ROWS)
        rows = [
            html.Tr([html.Td(word(value)) for word, value in zip(words, row, strict=True)])
            for row in shown.itertuples(index=False)
        ]
        more = f"The first {MOST_ROWS} of {len(frame)} rows." if len(frame) > MOST_ROWS else ""
        head = html.Thead(html.Tr([html.Th(str(name), scope="col") for name in frame.columns]))
        whole = html.Table([head, html.Tbody(rows)], className="numbers")
        return [
            html.Div(whole, className="scroll", tabIndex=0, role="region", **{"aria-label": "data"}),
            more,
        ]


def firsts(numbers: Ints, seconds: Any, memory: Any) -> list[tuple[int, list[int]]]:
    """Return points as one where time and memory are the same: the first, and all of them.

    >>> import numpy as np
    >>> firsts(np.array([4, 2, 3]), np.array([0, 0, 1.0, 1.0, 1.0]), np.array([0, 0, 5.0, 6.0, 5.0]))
    [(4, [4, 2]), (3, [3])]
    """
    groups: dict[tuple[float, float], list[int]] = {}
    for number in numbers.tolist():
        groups.setdefault((float(f"{seconds[number]:.9e}"), float(memory[number])), []).append(number)
    return [(group[0], group) for group in groups.values()]

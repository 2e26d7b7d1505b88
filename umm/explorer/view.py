"""A tab, and its input: the state, its point, and the priced points beside it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ParamSpec

import pandas as pd
from dash import dcc, html

from umm.algorithms.scheduling import UNIVERSAL
from umm.executor import executor
from umm.explorer.background import Behind, Single
from umm.explorer.point import MOST_SURE, Case, Point, is_long, point_of, searched, tried
from umm.explorer.savings import Growing, Scaled, counts_of, over_of
from umm.explorer.search import Priced
from umm.explorer.state import State
from umm.figures.page import CONFIG, formatter, heading
from umm.figures.style import parts_of, themed
from umm.plans.multiply.policies import find_policy
from umm.program.problem import MATRICES
from umm.space import Choice, makespan_range
from umm.space.budget import DEVICE
from umm.space.what_if.advice import advice_among, deciding
from umm.space.what_if.beside import Advice
from umm.traces.trace import Trace

if TYPE_CHECKING:
    import plotly.graph_objects as go

Shown = dict[str, Any]
P = ParamSpec("P")
MOST_ROWS = 200
MOST_NAMED = 5  # tensors of other layouts


@dataclass(frozen=True, eq=False)
class View:
    """The input of a tab."""

    state: State  # what is chosen
    case: Case | None  # What that asks; None if it is not possible.
    behind: Behind  # what is found out behind the page
    dark: bool = False  # whether the page is dark
    measured: Trace | None = None  # a trace that was dropped in
    rows: pd.DataFrame | None = None  # the points of a store that was dropped in
    mistakes: tuple[str, ...] = ()  # a line for each thing that does not fit together, beside the layouts
    pinned: "View | None" = None  # the point that stands beside this one
    _looked: dict[bool, tuple[Point | None, str]] = field(default_factory=dict, repr=False)

    @property
    def point(self) -> Point | None:
        """The answer; None where it has none, or none yet: of a row that a search has to find first."""
        return self._answer[0]

    @property
    def wrong(self) -> list[str]:
        """A line for each thing that does not fit together."""
        return [*self.mistakes, *filter(None, [self._answer[1]])]

    @property
    def _answer(self) -> tuple[Point | None, str]:
        if self.case is None or (self.state.waits and self.choice is None):
            return None, ""
        case, choice = self.case, self.choice if self.state.waits else None
        if self._looked or self.scheduled is None:
            if True not in self._looked:
                self._looked[True] = tried(lambda: point_of(case, choice))
        elif self.scheduled.over:
            result, problem = self.scheduled.found or (None, self.scheduled.failed)
            self._looked[True] = Point(case, case.state, *result) if result else None, problem
        return self._looked.get(True, (None, ""))

    @cached_property
    def scheduled(self) -> Single | None:
        """The background run that schedules the point; None if the request itself does."""
        if self.case is None or not is_long(self.case.state):
            return None
        asked = self.case.state.point, self.case.machine, self.case.text
        return self.behind.of(("point", *asked), lambda: Single(searched, *asked))

    @property
    def choice(self) -> Choice | None:
        """The row of the search that is asked for in place of layouts; None before it is found."""
        top = self.priced.top if self.case and self.state.waits else []
        return top[self.state.row - 1] if self.state.row <= len(top) else None

    @cached_property
    def priced(self) -> Priced:
        """All points of the space, with their prices so far."""
        assert self.case is not None
        space, machine, limit = self.case.space, self.case.machine, self.case.limit
        return self.behind.of((space, machine, limit), lambda: Priced(space, machine, limit))

    @property
    def advice(self) -> Advice | None:
        """The search's better choice than the point, so far."""
        assert self.point is not None
        return advice_among(self.priced.front, *self.point.here)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The range of the point's makespan, once it is known; of a row of a chain as its search has it."""
        if self.state.waits:
            ranges = self.priced.ranges if self.case else []
            return ranges[self.state.row - 1] if self.state.row <= len(ranges) else None
        return self.range.found if self.range else None

    @property
    def range(self) -> Single | None:
        """The question of that range; None for a point too large to be simulated again and again."""
        point = self.point
        if point is None or self.state.waits:
            return None
        if len(point.trace.schedule) > MOST_SURE or find_policy(self.state.options.policy).searches:
            return None
        # It takes a few simulations, so it comes behind the point itself.
        now, makespan = point.trace.makespan_s, executor("sim").makespan
        return self._single(makespan_range, point.machine, point.lower, makespan, now)

    @property
    def decides(self) -> Single | None:
        """The assumed number that decides; None before the search has a choice that may be better."""
        point, case = self.point, self.case
        if point is None or case is None or self.range is None or not case.space.is_multiply:
            return None
        if self.state.algorithm != UNIVERSAL or not (self.priced.front or self.priced.over):
            return None
        better, makespan = self.advice.choice if self.advice else None, executor("sim").makespan
        asked = point.machine, point.problem, point.lower, better.schedule if better else None, makespan
        return self._single(deciding, *asked, choice=better)

    @property
    def is_sure(self) -> bool:
        """Whether no more will be known of either."""
        pinned = self.pinned.scheduled if self.pinned else None
        return all(x.over for x in (self.scheduled, pinned, self.range, self.decides) if x)

    def _single(self, function: Callable[..., Any], *asked: Any, choice: Any = None) -> Single:
        assert self.point is not None
        key = function, self.point.state.point, self.point.machine, self.point.case.text, choice
        return self.behind.of(key, lambda: Single(function, *asked))

    @cached_property
    def growing(self) -> Growing | None:
        """Savings of replicas as m grows, where asked for: of the operand across the heat map.

        The one that lies down has this point's factor, the third that of its slider.
        """
        state, point = self.state, self.point
        if point is None or not state.grow or state.tab != "replication" or state.chain:
            return None
        third = MATRICES.index(state.across)
        down, operand = (i for i in range(3) if i != third)
        counts = [0, 0, 0]
        counts[down], counts[third] = point.problem.layouts[down].replicas, state.fixed
        budget, factors = state.memory or DEVICE, (counts[0], counts[1], counts[2])
        asked = point.case.space, point.machine, budget, operand, factors
        return self.behind.of(("growing", *asked), lambda: Growing(*asked))

    @cached_property
    def scaled(self) -> Scaled | None:
        """The best of several numbers of nodes or ranks, while their tab is looked at."""
        state, case = self.state, self.case
        if case is None or state.tab != "scaling":
            return None
        over = over_of(state.over, case.machine)
        counts, _ = tried(lambda: counts_of(state.counts, over, case.machine))
        if counts is None:
            return None
        asked = case.space, case.machine, state.memory or DEVICE, over, counts
        return self.behind.of(("scaling", *asked), lambda: Scaled(*asked))

    @property
    def question(self) -> Growing | Scaled | Priced:
        """The running question: the points of the space, then others that are asked for."""
        if self.scaled and not self.scaled.over and (self.priced.over or not self.state.waits):
            return self.scaled
        if not self.state.waits and self.growing and self.priced.done and not self.growing.over:
            return self.growing
        return self.priced

    @cached_property
    def selected(self) -> int | None:
        """The number of the state's own point among them."""
        point, points = self.point, self.priced.points
        if point is None or points is None or self.state.algorithm != UNIVERSAL:
            return None
        schedule = point.trace.schedule
        options = replace(self.state.options, final=schedule.options.get("final", self.state.options.final))
        return points.number(point.layouts, schedule.name, options)

    def unlike(self, choice: Choice) -> str:
        """Return the layouts in which a choice of a chain differs from the point; empty if there are none."""
        assert self.point
        assert self.priced.points
        here = {name: str(layout) for name, layout in self.point.layouts.items()}
        names = (group[0] for group in self.priced.points.tensors)
        different = [f"{x} {choice.layouts[x]}" for x in names if choice.layouts[x] != here[x]]
        more = [f"{len(different) - MOST_NAMED} more"] if len(different) > MOST_NAMED else []
        return ", ".join([*different[:MOST_NAMED], *more])

    def drawn(self, figure: Callable[P, "go.Figure"], *args: P.args, **named: P.kwargs) -> Mapping[str, Any]:
        """Return a figure of something as the browser takes it, in the page's colours."""
        return themed(parts_of(figure)(*args, **named), self.dark)

    def table(self, frame: Callable[[], Any]) -> Any:
        """Return the numbers under a figure as a table, if they are asked for: a frame, or its content."""
        return numbers(pd.DataFrame(frame())) if self.state.data else None


HIDDEN = {"display": "none", "height": "0px"}  # Dash gives a figure without a height one


@dataclass(frozen=True)
class Tab:
    """One tab."""

    name: str  # in the URL
    title: str  # on the tab
    help: str  # what it shows, in a line above it
    graphs: tuple[str, ...]  # the ids of its figures
    show: Callable[[View], Shown]  # returns what its parts show, by `id.property`; every part each time
    controls: Sequence[Any] = ()  # above its figures
    below: Sequence[Any] = ()  # below them
    clicks: tuple[str, ...] = ()  # the ids of its figures whose marks are points that can be chosen
    prices: bool = False  # whether it shows the priced points, which become exact while it is looked at
    traces: bool = False  # whether it shows the point's trace, without which it is empty
    others: tuple[str, ...] = ()  # the ids, with property, of its other parts

    @property
    def outputs(self) -> list[str]:
        """All that it shows, as ``id.property``."""
        graphs = [f"{graph}.{what}" for graph in self.graphs for what in ("figure", "style")]
        return [*graphs, f"{self.name}-data.children", *self.others]

    def shown(self, view: View) -> Shown:
        """Return its content; a figure is as high as its layout says, and one without data is hidden."""
        lacks = self.traces and view.point is None
        parts: Shown = blank(self.outputs) if lacks else self.show(view)
        for graph in self.graphs:
            drawn = parts[f"{graph}.figure"] or {}
            parts[f"{graph}.figure"] = drawn
            height = drawn.get("layout", {}).get("height")
            parts[f"{graph}.style"] = {"height": f"{height}px"} if height else HIDDEN
        return parts

    def panel(self) -> Any:
        """Return its parts."""
        graphs = [
            html.Div(
                dcc.Graph(id=graph, config=CONFIG, className="figure", responsive=True), className="scroll"
            )
            for graph in self.graphs
        ]
        parts = [html.P(self.help, className="help"), *self.controls, *graphs, *self.below]
        parts.append(html.Div(id=f"{self.name}-data"))
        return html.Div(parts, id=f"panel-{self.name}", className="panel")


def blank(names: Iterable[str]) -> Shown:
    """Return parts that show nothing: a choice without options has a list of none."""
    return {name: [] if name.endswith(".options") else None for name in names}


def bar(*parts: Any, **more: Any) -> Any:
    """Return controls beside each other."""
    return html.Div(list(parts), className="bar", **more)


def choice(name: str, values: Iterable[Any], value: Any = None) -> Any:
    """Return a control for one of many values."""
    more = {} if value is None else {"value": value}
    return dcc.Dropdown(list(values), id=name, clearable=False, searchable=False, **more)


def pills(name: str, values: Iterable[Any], value: Any = None) -> Any:
    """Return a control for one of a few words, all in sight."""
    more = {} if value is None else {"value": value}
    return dcc.RadioItems(
        list(values), id=name, inline=True, className="pills", labelClassName="pill", **more
    )


def text_input(name: str, hint: str = "", look: str = "") -> Any:
    """Return a control for a text, with a hint that it shows while it is empty."""
    more = ({"placeholder": hint} if hint else {}) | ({"className": look} if look else {})
    return dcc.Input(id=name, type="text", debounce=True, spellCheck=False, **more)


def words_of(name: str) -> Any:
    """Return the place of a sentence that a screen reader speaks when it changes."""
    return html.P(id=name, className="said", **{"aria-live": "polite"})


def table(headings: Sequence[str], rows: list[Any], look: str) -> Any:
    """Return rows below their headings, each in the look of its first cell.

    Args:
        rows: As Dash has them.
        look: The class of the table, by which the page's style knows it.
    """
    looks = [getattr(x, "className", None) for x in rows[0].children] if rows else [None] * len(headings)
    heads = zip(headings, looks, strict=True)
    head = html.Thead(html.Tr([html.Th(x, scope="col", className=y) for x, y in heads]))
    return html.Table([head, html.Tbody(rows)], className=look)


def numbers(frame: pd.DataFrame) -> list[Any]:
    """Return a frame as a table, its first rows."""
    words = [formatter(str(name)) for name in frame.columns]
    shown = frame.head(MOST_ROWS)
    rows = [
        html.Tr([html.Td(word(value)) for word, value in zip(words, row, strict=True)])
        for row in shown.itertuples(index=False)
    ]
    more = f"The first {MOST_ROWS} of {len(frame)} rows." if len(frame) > MOST_ROWS else ""
    grid = table([heading(str(x)) for x in frame.columns], rows, "numbers")
    return [html.Div(grid, className="scroll", tabIndex=0, role="region", **{"aria-label": "data"}), more]

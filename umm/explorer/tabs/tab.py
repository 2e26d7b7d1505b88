"""What a tab is, and the parts that most have: a figure that can be clicked, and the numbers under it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from umm.explorer.view import Shown, View
from umm.figures.page import CONFIG

HIDDEN = {"display": "none", "height": "0px"}  # Dash gives a figure without a height one


@dataclass(frozen=True)
class Tab:
    """One tab.

    Attributes:
        name: In the URL.
        title: On the tab.
        help: What it tells, in a line above it.
        graphs: The ids of its figures.
        show: Returns what its parts show, by ``id.property``; every part each time.
        controls: Makes what stands above its figures.
        clicks: The ids of its figures whose marks are points that can be chosen.
        prices: Whether it shows the priced points, which become exact while it is looked at.
        others: The ids, with property, of its other parts.
    """

    name: str
    title: str
    help: str
    graphs: tuple[str, ...]
    show: Callable[[View], Shown]
    controls: Callable[[], Sequence[Any]] = tuple
    clicks: tuple[str, ...] = ()
    prices: bool = False
    others: tuple[str, ...] = ()

    @property
    def outputs(self) -> list[str]:
        """All that it shows, as ``id.property``."""
        graphs = [f"{graph}.{what}" for graph in self.graphs for what in ("figure", "style")]
        return [*graphs, f"{self.name}-data.children", *self.others]

    def shown(self, view: View) -> Shown:
        """Return what it shows; a figure is as high as its layout says, and one without data is hidden."""
        parts = self.show(view)
        for graph in self.graphs:
            height = parts[f"{graph}.figure"].get("layout", {}).get("height")
            parts[f"{graph}.style"] = {"height": f"{height}px"} if height else HIDDEN
        return parts

    def panel(self) -> Any:
        """Return its parts."""
        from dash import dcc, html

        graphs = [
            html.Div(
                dcc.Graph(id=graph, config=CONFIG, className="figure", responsive=True), className="scroll"
            )
            for graph in self.graphs
        ]
        return html.Div(
            [
                html.P(self.help, className="help"),
                *self.controls(),
                *graphs,
                html.Div(id=f"{self.name}-data"),
            ],
            id=f"panel-{self.name}",
            className="panel",
        )

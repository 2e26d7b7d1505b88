"""Results that show themselves as the value of a notebook's cell."""

from typing import TYPE_CHECKING, Any

from umm.errors import InputError
from umm.plugins import plugins

if TYPE_CHECKING:
    import plotly.graph_objects as go

GROUP = "umm.figures"


class Shown:
    """A result with a figure, which a notebook shows with its verdict and its table.

    Figures lie above all results: what draws them registers itself in the entry-point group ``umm.figures``.
    """

    def figure(self) -> "go.Figure":
        """Return the main figure; InputError if there is nothing to draw, saying why."""
        return _figures().figure(self)

    def _repr_html_(self) -> str:
        return str(_figures().html(self))


def _figures() -> Any:
    """Return the module that draws results, with ``figure`` and ``html``."""
    for entry in plugins(GROUP).values():
        return entry.load()
    raise InputError("nothing that draws figures is installed; pip install umm-sim")

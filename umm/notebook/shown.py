"""Results that show themselves where they are the value of a notebook's cell."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Shown:
    """A result with a figure, which a notebook shows with its verdict and its table.

    Figures lie above all results, so :mod:`umm.figures.notebook` is looked up when one is asked for.
    """

    def figure(self) -> "go.Figure":
        """Return the main figure.

        Raises:
            InputError: if there is nothing to draw, saying why.
        """
        return _figures().figure(self)

    def _repr_html_(self) -> str:
        return str(_figures().html(self))


def _figures() -> Any:
    return import_module("umm.figures.notebook")

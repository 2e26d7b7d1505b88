"""Pages of the site load plotly.js by themselves, so no output carries it."""

from IPython import get_ipython
from IPython.display import HTML, display

from umm.figures.notebook import Session

Session.has_plotly = True


def show(figure):
    """Show a plotly figure as a part of the page."""
    display(HTML(figure.to_html(full_html=False, include_plotlyjs=False)))


formatter = get_ipython().display_formatter.ipython_display_formatter
formatter.for_type_by_name("plotly.graph_objs._figure", "Figure", show)

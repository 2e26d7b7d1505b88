"""How Sphinx builds the site (``make docs``): from the root, so that links to experiments lead there."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import plotly
from sphinx.application import Sphinx

from umm.figures.page import CONFIG

HERE = Path(__file__).parent

project = "umm"
author = "the authors of umm"
project_copyright = "the authors of umm"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
root_doc = "docs/index"
include_patterns = [
    "README.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "docs/**",
    "experiments/*.md",
    "experiments/*/README.md",
    "experiments/truth/*.md",
]
exclude_patterns = [".venv", "build", "dist", "docs/_*", "docs/conf.py"]

html_theme = "furo"
html_title = "umm"
templates_path = ["_templates"]
html_additional_pages = {"index": "first.html"}
html_copy_source = False
html_show_sphinx = False

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
myst_links_external_new_tab = False
suppress_warnings = [
    "myst.header",  # a page may begin where another has ended
    "misc.highlighting_failure",  # samples of files have … in them
]

nb_execution_mode = "force"
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True
os.environ["IPYTHONDIR"] = str(HERE / "_ipython")

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_use_rtype = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True


def with_plotly(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Give pages with figures what draws them."""
    body = context.get("body", "")
    if "plotly-graph-div" in body:
        source = context["pathto"]("_static/plotly.min.js", resource=True)
        config = f"Plotly.setPlotConfig({json.dumps(CONFIG)});"
        # Above the figures, whose scripts run where they stand; the theme puts script files below.
        context["body"] = f'<script src="{source}"></script><script>{config}</script>{body}'


def copied(app: Sphinx) -> None:
    """Put plotly.js beside the pages."""
    target = Path(app.outdir) / "_static"
    target.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", target)


def setup(app: Sphinx) -> None:
    """Connect what this site adds."""
    app.connect("builder-inited", copied)
    app.connect("html-page-context", with_plotly)

"""The parts of the page of a chain; what they hold comes from the state."""

from typing import Any

from dash import dcc, html

from umm.dtypes import DTYPES
from umm.explorer.chains.state import MOST_RANKS, SIZES, usual_values
from umm.explorer.layout import copied, jump, kept, pills, said, select, text
from umm.figures.page import CONFIG
from umm.program.models import MODELS
from umm.program.presets import PRESETS
from umm.space.space import KEPT as STATIONARY

FIELDS = (
    ("tokens", "tokens", "rows of the activations", "8K is 8192."),
    ("hidden", "hidden", "columns of X and Y", "8K is 8192."),
    ("ffn", "ffn", "columns inside the MLP", "8K is 8192."),
    ("heads", "heads", "", "Attention heads."),
    ("kv_heads", "KV heads", "0: as many as heads", "Heads of keys and values."),
    ("sequences", "sequences", "equal parts of the tokens", "Each attends to itself alone."),
)
GRAPHS = ("others", "lanes")


def page() -> Any:
    """Return the page of one viewer."""
    return html.Div(
        [
            *kept(usual_values(), {name: x.sizes(SIZES) for name, x in MODELS.items()}),
            dcc.Store(id="chain-files", data={}, storage_type="session"),
            dcc.Download(id="download"),
            html.A("Skip to the answer", href="#answer", className="skip"),
            _header(),
            html.Div([_rail(), _main()], className="columns"),
            jump(),
        ],
        id="page",
    )


def _header() -> Any:
    buttons = [
        html.A("One multiply", href="/", className="pill"),
        html.Button("TOML", id="to-toml", title="The chain with the layouts of this row, a file for --chain"),
        html.Button("Dark", id="dark", title="Dark or light", **{"aria-pressed": "false"}),
    ]
    title = html.H1(["umm ", html.Span("explore a chain")])
    return html.Header([title, html.Div(buttons, className="actions")])


def _rail() -> Any:
    models = [html.Button(name, id={"preset": name}, className="pill") for name in MODELS]
    problem = [
        html.Legend("Chain"),
        pills("chain", PRESETS),
        dcc.Upload(
            ["Drop a chain's file, or ", html.Button("choose one", type="button", className="link")],
            id="drop-chain",
            className="drop",
        ),
        html.P(id="drop-words", className="hint", **{"aria-live": "polite"}),
        *(_field(name, label, text(name), unit, help_) for name, label, unit, help_ in FIELDS),
        html.Div(
            models, className="pills", role="group", id="models", **{"aria-label": "sizes of public models"}
        ),
        _field("dtype", "Type", select("dtype", DTYPES), "of all tensors"),
        _field("dropout", "dropout", text("dropout"), "of the MLP's activations", "0.1 drops a tenth."),
        html.Div(
            pills("backward", [{"label": "forward", "value": "0"}, {"label": "and backward", "value": "1"}]),
            id="backward-field",
        ),
        _field("given", "given", text("given", placeholder="as laid out"), "X=row,W1=2d", "Inputs before."),
    ]
    ranks = dcc.Input(id="ranks", type="number", min=0, max=MOST_RANKS, step=1, debounce=0.3)
    where = [
        html.Legend("Machine"),
        _field("machine", "Machine", select("machine", ()), "", "Shipped, or dropped in on the other page."),
        _field("ranks", "Ranks", ranks, "0: one a device", "Processes that share the work."),
    ]
    limits = [
        html.Legend("Budget and layouts"),
        _field(
            "memory",
            "memory",
            text("memory", placeholder="90 % of its device"),
            "of a rank: 16GiB, or 2x",
        ),
        _field(
            "choices",
            "layouts",
            text("choices", placeholder="row,col,2d,row@p"),
            "to choose from: all, or a list",
        ),
        _field(
            "stationary",
            "stationary",
            select("stationary", STATIONARY),
            "matrix of each multiply",
            "auto: the largest. best: the one with which it takes least by itself.",
        ),
        _field(
            "optimizer",
            "optimizer",
            text("optimizer"),
            "bytes a weight's element",
            "State held beside the weights: 12 for Adam in float32.",
        ),
    ]
    form = [html.Fieldset(parts) for parts in (problem, where, limits)]
    rail = html.Div(form, role="form", **{"aria-label": "what to look at"})
    return html.Aside(rail, className="rail", id="choose")


def _field(name: str, label: str, control: Any, unit: str, help_: str = "") -> Any:
    words = [html.Label(label, htmlFor=name), control, html.Span(unit, className="unit")]
    return html.Div(words, className="field", title=help_, id=f"{name}-field")


def _main() -> Any:
    graphs = {
        name: html.Div(
            dcc.Graph(id=name, config=CONFIG, className="figure", responsive=True), className="scroll"
        )
        for name in GRAPHS
    }
    zoom = html.Div(
        [
            html.Label("Rank", htmlFor="rank"),
            dcc.Input(id="rank", type="number", min=-1, step=1, debounce=True, className="short"),
            html.Span("−1 shows all", className="unit"),
        ],
        className="bar",
    )
    return html.Main(
        [
            *said(),
            html.Div(
                [
                    html.H2("The best layouts"),
                    html.Div(id="leaders", className="scroll"),
                    graphs["others"],
                    html.Div(id="others-data"),
                    html.H2(id="row-title"),
                    html.Div(id="layouts", className="scroll"),
                    html.Div(id="moved"),
                    zoom,
                    graphs["lanes"],
                    html.Div(id="lanes-data"),
                ],
                id="found",
            ),
            html.Details(
                [
                    html.Summary("Copy the search as a command or Python, and this row as a command"),
                    *(copied(name) for name in ("command", "python", "row")),
                ],
                className="copies",
            ),
        ],
        id="answer",
        **{"aria-busy": "true"},
    )

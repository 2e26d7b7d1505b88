"""The parts of the page: the rail of controls, the verdict, the tabs; their content comes from the state."""

from collections.abc import Iterable
from typing import Any

from dash import dcc, html

from umm.algorithms.scheduling import names
from umm.dtypes import DTYPES
from umm.explorer.state import LOOKS, OPERANDS, PARTS, SIZES, Sizes, State, models_on_page, usual_values
from umm.explorer.tabs import TABS
from umm.explorer.view import choice, pills, text_input
from umm.plans.multiply.options import known
from umm.program.presets import PRESETS

MORE = ("attention-stored", "transformer-layer-stored", "summa25-layer", "newton-schulz")
"""Presets that few want: they are not in sight with the others."""
PARTITIONS = ("row", "col", "2d")
FIGURES = ("makespan", "of peak", "moved", "exposed", "memory", "actions")  # of a prediction, in a strip
SHAPES = {"a": "m × k", "b": "k × n", "c": "m × n"}
COPIES = ("command", "search", "python", "toml")


def page(dropped: str = "", presets: Sizes | None = None) -> Any:
    """Return the page of one viewer.

    Args:
        dropped: The name of a file that is dropped in from the start.
        presets: Values of m, n and k by name.
    """
    models = models_on_page()
    multiplies = presets or {}
    facts = {"usual": usual_values(), "divisors": [1], "fixed": [0], "looks": LOOKS}
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="facts", data=facts),
            dcc.Store(id="presets", data={**multiplies, **models}),
            dcc.Store(id="files", data={}, storage_type="session"),
            dcc.Store(id="theme", data="light"),
            dcc.Store(id="shown"),
            dcc.Store(id="dropped", data=dropped),
            dcc.Store(id="chain-files", data={}, storage_type="session"),
            dcc.Download(id="download"),
            html.A("Skip to the answer", href="#answer", className="skip"),
            _header(),
            html.Div([_rail(multiplies, models), _main()], className="columns"),
            # Where one stands below the other.
            html.Nav(
                [html.A("Choose", href="#choose"), html.A("Answer", href="#answer")],
                className="jump",
                **{"aria-label": "on this page"},
            ),
        ],
        id="page",
    )


def programs(chains: Iterable[str]) -> list[dict[str, str]]:
    """Return the choices of programs: one multiply, a preset, or a dropped chain."""
    multiply = {"label": "one multiply", "value": ""}
    return [multiply, *({"label": x, "value": x} for x in (*PRESETS, *chains) if x not in MORE)]


def _header() -> Any:
    buttons = [
        html.Button("Pin", id="pin", title="Keep this point to compare with"),
        html.Button("CSV", id="to-csv", title="The best points as a table"),
        html.Button("HTML", id="to-html", title="The figures of this point as one offline file"),
        html.Button("Perfetto", id="to-perfetto", title="The trace for ui.perfetto.dev"),
        html.Button("PNG", id="to-png", title="The first figure of this tab"),
        html.Button("TOML", id="to-toml", title="The chain with these layouts, a file for --chain"),
        html.Button("Dark", id="dark", title="Dark or light", **{"aria-pressed": "false"}),
    ]
    return html.Header(
        [
            html.H1(["umm ", html.Span("explore")]),
            html.Div(buttons, className="actions", role="group", **{"aria-label": "this point"}),
        ]
    )


def _rail(presets: Sizes, models: Sizes) -> Any:
    parts = [
        html.Fieldset(_program(presets, models)),
        html.Fieldset(
            [
                html.Legend("Machine"),
                _field("machine", choice("machine", ())),
                _field("nodes"),
                _field("ranks"),
                _drop("drop-machine", "Drop a machine file, or "),
                html.P(id="drop-words", className="hint", **{"aria-live": "polite"}),
            ]
        ),
        *(_operand(x) for x in OPERANDS),
        html.Fieldset([html.Legend("Layouts"), _field("layouts")], id="layouts-set"),
        html.Fieldset(
            [
                html.Legend("Stationary"),
                pills("stationary", ()),
                html.P(
                    "The matrix of each multiply that stays in place; auto is the largest.", className="hint"
                ),
            ]
        ),
        _limits(),
    ]
    form = html.Div(parts, role="form", **{"aria-label": "what to look at"})  # Enter would send a form
    return html.Aside(form, className="rail", id="choose")


def _program(presets: Sizes, models: Sizes) -> list[Any]:
    """Return the controls of the program: one multiply or a chain, and the sizes of either."""
    return [
        html.Legend("Program"),
        pills("chain", programs(())),
        dcc.Dropdown(list(MORE), id="more", placeholder="more …", searchable=False),
        _drop("drop-chain", "Drop a chain file, or "),
        _presets("multiplies", presets, "presets of m, n and k"),
        *(_field(x) for x in PARTS if x in (*"mnk", *SIZES)),
        _presets("models", models, "sizes of public models"),
        _field("dtype", choice("dtype", DTYPES)),
        _field("dropout"),
        _either("decode", "all tokens", "decode one"),
        _either("backward", "forward", "and backward"),
    ]


def _either(name: str, no: str, yes: str) -> Any:
    labels = [{"label": no, "value": "0"}, {"label": yes, "value": "1"}]
    return html.Div(pills(name, labels), id=f"{name}-field")


def _presets(name: str, presets: Sizes, label: str) -> Any:
    words = [x.upper() if x.startswith("mlp") else x for x in presets]
    buttons = [
        html.Button(word, id={"preset": x}, className="pill") for word, x in zip(words, presets, strict=True)
    ]
    return html.Div(buttons, id=name, className="pills", role="group", **{"aria-label": label})


def _drop(name: str, words: str) -> Any:
    choose = html.Button("choose one", type="button", className="link")
    return dcc.Upload([words, choose], id=name, className="drop")


def _field(name: str, control: Any = None) -> Any:
    about = PARTS[name]
    parts = [
        html.Label(about.get("label", name), htmlFor=name),
        control or text_input(name, about.get("hint", "")),
        html.Span(about.get("unit", ""), className="unit"),
    ]
    look = "field wide" if name == "machine" else "field"
    return html.Div(parts, className=look, title=about["help"], id=f"{name}-field")


def _operand(x: str) -> Any:
    matrix = x.upper()
    return html.Fieldset(
        [
            html.Legend([matrix, html.Span(f" {SHAPES[x]}", className="unit")]),
            pills(f"{x}-part", PARTITIONS),
            html.Div(
                [
                    html.Label("replicas", htmlFor=f"{x}-index"),
                    dcc.Input(id=f"{x}-index", type="range", min=0, max=1, step=1, value=0),
                    html.Output("1", id=f"{x}-words"),
                ],
                className="slider",
                title="Only divisors of the ranks; arrow keys move it.",
            ),
            html.Div(
                [html.Label("layout", htmlFor=x), text_input(x)],
                className="field",
                title="Any layout as text: 2d:3x4, cyclic:256x256:3x4, col@2:interleaved.",
            ),
        ],
        id=f"{x}-set",
    )


def _limits() -> Any:
    """Return the controls of the budget, of the points beside this one, and those seldom used."""
    spaces = [{"label": "a search's", "value": "search"}, {"label": "the paper's", "value": "paper"}]
    space = html.Div(
        [html.Span("compare with", id="space-label"), pills("space", spaces)],
        title="A search has every process grid, whole tiles and slices, every way to end a replicated C; the "
        "paper has the most square grids and the choices below.",
        id="space-field",
    )
    rows = [_field("algorithm", choice("algorithm", names()))]
    for option in known():
        if isinstance(option.default, bool):
            control = choice(option.name, option.texts)
        elif isinstance(option.default, int):
            control = dcc.Input(
                id=option.name,
                type="number",
                min=option.least,
                max=64,
                step=1,
                value=option.default,  # from which − knows that it may go down
                debounce=0.3,
            )
        else:
            control = choice(option.name, option.values)
        label = html.Label(option.name.replace("_", " "), htmlFor=option.name)
        rows.append(html.Div([label, control], className="field", title=option.help))
    advanced = html.Details([html.Summary("Advanced"), *rows], open=False, id="advanced")
    fields = [_field(x) for x in ("memory", "given", "choices", "optimizer", "layers")]
    return html.Fieldset([html.Legend("Budget and start"), *fields, space, advanced])


def _main() -> Any:
    panels = [html.Div(tab.panel(), id=f"show-{name}", hidden=True) for name, tab in TABS.items()]
    numbers = [{"label": "numbers under figures", "value": "1"}]
    # Not dcc.Tabs: no key reaches those.
    tabs = [{"label": tab.title, "value": name} for name, tab in TABS.items()]
    return html.Main(
        [
            # The places of the verdict, the mistakes, the status and the figures.
            html.P(id="verdict", className="verdict", **{"aria-live": "polite"}),
            html.Div(id="mistakes", className="mistakes", role="alert"),
            html.Div(
                [
                    html.Span(id="status"),
                    html.Button("Cancel", id="cancel", className="link", hidden=True),
                    dcc.Checklist(numbers, [], id="data", className="check"),
                ],
                className="status",
            ),
            html.Div([_fact(name) for name in FIGURES], id="facts-strip", className="strip", hidden=True),
            html.P(id="rest", className="hint", title="share of the makespan, mean over ranks"),
            html.P(id="assumed", className="hint", **{"aria-live": "polite"}),
            html.Div(id="compare"),
            dcc.RadioItems(tabs, State().tab, id="tab", inline=True, className="tabs"),
            *panels,
            html.Details(
                [
                    html.Summary("Copy this point as a command, its search, as Python, as TOML"),
                    *(_copied(name) for name in COPIES),
                ],
                className="copies",
            ),
        ],
        id="answer",
        **{"aria-busy": "true"},
    )


def _fact(name: str) -> Any:
    """Return the place of one figure of a prediction, of the makespan with its range."""
    note = html.Span(id="fact-range", className="note", title="within the ranges of the machine's numbers")
    hover = {"moved": "bytes between ranks, all ranks together", "memory": "of the fullest rank"}.get(name)
    parts = [
        html.Span(name, className="name", title=hover),
        html.Span(id=f"fact-{named(name)}", className="value"),
    ]
    return html.Div([*parts, note] if name == FIGURES[0] else parts, className="fact")


def named(name: str) -> str:
    """Return the part of an id that names one figure of a prediction."""
    return name.replace(" ", "-")


def _copied(name: str) -> Any:
    """Return the place of a text with a button that copies it."""
    copy = dcc.Clipboard(target_id=f"as-{name}", title=f"copy as {name}")
    return html.Div(
        [html.Div([html.Span(name), copy], className="bar"), html.Pre(id=f"as-{name}", tabIndex=0)]
    )

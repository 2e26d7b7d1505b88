"""The parts of the page: the rail of controls, the verdict, the tabs; what they hold comes from the state."""

from collections.abc import Iterable, Mapping
from typing import Any

from dash import dcc, html

from umm.algorithms.scheduling import names
from umm.algorithms.universal.options import known
from umm.dtypes import DTYPES
from umm.explorer.state import OPERANDS, STATIONARY, Sizes, State, usual_values
from umm.explorer.tabs import TABS
from umm.program.presets import PRESETS

CHAINS = "/chain/"  # the path of their page
PARTS = ("row", "col", "2d")
FIGURES = ("makespan", "of peak", "moved", "exposed", "memory", "actions")  # of a prediction, in a strip
SHAPES = {"a": "m × k", "b": "k × n", "c": "m × n"}
FIELDS = (
    ("machine", "Machine", "", "A shipped machine, or the name of a file dropped below."),
    ("m", "m", "rows of A and C", "48K is 49152."),
    ("n", "n", "columns of B and C", "48K is 49152."),
    ("k", "k", "columns of A, rows of B", "48K is 49152."),
    ("dtype", "Type", "of A and B", "C of half-precision inputs is float32."),
    ("ranks", "Ranks", "0: one a device", "Processes that share the work."),
)


def page(dropped: str = "", presets: Sizes | None = None) -> Any:
    """Return the page of one viewer.

    Args:
        dropped: The name of a file that is dropped in from the start.
        presets: Values of m, n and k by name.
    """
    return html.Div(
        [
            *kept(usual_values(), presets or {}),
            dcc.Store(id="dropped", data=dropped),
            dcc.Download(id="download"),
            html.A("Skip to the answer", href="#answer", className="skip"),
            _header(),
            html.Div([_rail(presets or {}), _main()], className="columns"),
            jump(),
        ],
        id="page",
    )


def kept(usual: Mapping[str, Any], presets: Mapping[str, Any]) -> list[Any]:
    """Return what a page keeps unseen: its address, what its controls mean, its files and its theme.

    Args:
        usual: The values of a state that its address leaves out.
        presets: Values of controls by the name of what sets them.
    """
    return [
        dcc.Location(id="url", refresh="callback-nav"),
        dcc.Store(id="facts", data={"usual": usual, "divisors": [1], "fixed": [0]}),
        dcc.Store(id="presets", data=presets),
        dcc.Store(id="files", data={}, storage_type="session"),
        dcc.Store(id="theme", data="light"),
        dcc.Store(id="shown"),
    ]


def jump() -> Any:
    """Return what leads to the controls and to the answer where one stands below the other."""
    links = [html.A("Choose", href="#choose"), html.A("Answer", href="#answer")]
    return html.Nav(links, className="jump", **{"aria-label": "on this page"})


def text(name: str, **more: Any) -> Any:
    """Return a control for a text."""
    return dcc.Input(id=name, type="text", debounce=True, spellCheck=False, **more)


def select(name: str, values: Iterable[str]) -> Any:
    """Return a control for one of many words."""
    return dcc.Dropdown(list(values), id=name, clearable=False, searchable=False)


def pills(name: str, values: Iterable[Any]) -> Any:
    """Return a control for one of a few words, all in sight."""
    return dcc.RadioItems(list(values), id=name, inline=True, className="pills", labelClassName="pill")


def _header() -> Any:
    buttons = [
        html.Button("Pin", id="pin", title="Keep this point to compare with"),
        html.Button("CSV", id="to-csv", title="The best points as a table"),
        html.Button("HTML", id="to-html", title="The figures of this point as one offline file"),
        html.Button("Perfetto", id="to-perfetto", title="The trace for ui.perfetto.dev"),
        html.Button("PNG", id="to-png", title="The first figure of this tab"),
        html.Button("Dark", id="dark", title="Dark or light", **{"aria-pressed": "false"}),
    ]
    return html.Header(
        [
            html.H1(["umm ", html.Span("explore")]),
            html.Div(buttons, className="actions", role="group", **{"aria-label": "this point"}),
        ]
    )


def _rail(presets: Sizes) -> Any:
    preset = html.Div(
        [html.Button(name.upper(), id={"preset": name}, className="pill") for name in presets],
        className="pills",
        role="group",
        **{"aria-label": "presets of m, n and k"},
    )
    return html.Aside(
        html.Div(  # not a form: Enter would send it
            [
                html.Fieldset([html.Legend("Problem"), preset, _chains(), *(_field(x) for x in FIELDS[1:5])]),
                html.Fieldset(
                    [
                        html.Legend("Machine"),
                        _machine(),
                        _field(FIELDS[5]),
                        dcc.Upload(
                            [
                                "Drop a topology file, or ",
                                html.Button("choose one", type="button", className="link"),
                            ],
                            id="drop-machine",
                            className="drop",
                        ),
                        html.P(id="drop-words", className="hint", **{"aria-live": "polite"}),
                    ]
                ),
                *(_operand(x) for x in OPERANDS),
                html.Fieldset(
                    [
                        html.Legend("Stationary"),
                        pills("stationary", STATIONARY),
                        html.P("The matrix that stays in place; auto is the largest.", className="hint"),
                    ]
                ),
                _advanced(),
            ],
            role="form",
            **{"aria-label": "what to look at"},
        ),
        className="rail",
        id="choose",
    )


def _chains() -> Any:
    """Return the ways to the page of a chain, which takes the place of one multiply."""
    names = [html.A(name, href=f"{CHAINS}?chain={name}") for name in PRESETS]
    return html.P(["or a chain: ", *(x for name in names for x in (name, " "))], className="hint")


def _field(of: tuple[str, str, str, str]) -> Any:
    name, label, unit, help_ = of
    if name == "dtype":
        control = select(name, DTYPES)
    elif name == "ranks":
        control = dcc.Input(id=name, type="number", min=0, max=1024, step=1, debounce=0.3)
    else:
        control = text(name)
    words = [html.Label(label, htmlFor=name), control, html.Span(unit, className="unit")]
    return html.Div(words, className="field", title=help_)


def _machine() -> Any:
    name, label, _, help_ = FIELDS[0]
    control = select(name, ())
    return html.Div([html.Label(label, htmlFor=name), control], className="field wide", title=help_)


def _operand(x: str) -> Any:
    matrix = x.upper()
    return html.Fieldset(
        [
            html.Legend([matrix, html.Span(f" {SHAPES[x]}", className="unit")]),
            pills(f"{x}-part", PARTS),
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
                [
                    html.Label("layout", htmlFor=x),
                    text(x),
                ],
                className="field",
                title="Any layout as text: 2d:3x4, cyclic:256x256:3x4, col@2:interleaved.",
            ),
        ]
    )


def _advanced() -> Any:
    space = html.Div(
        [
            html.Span("compare with", id="space-label"),
            pills(
                "space",
                [{"label": "all of a search", "value": "search"}, {"label": "the paper's", "value": "paper"}],
            ),
        ],
        title="A search has every process grid, whole tiles and slices, every way to end a replicated C; the "
        "paper has the most square grids and the choices below.",
    )
    rows = [
        html.Div(
            [
                html.Label("algorithm", htmlFor="algorithm"),
                select("algorithm", names()),
            ],
            className="field",
            title="The universal one, or another that brings operands to its own layouts.",
        )
    ]
    for option in known():
        if isinstance(option.default, bool):
            control = select(option.name, option.texts)
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
            control = select(option.name, option.values)
        label = html.Label(option.name.replace("_", " "), htmlFor=option.name)
        rows.append(html.Div([label, control], className="field", title=option.help))
    memory = html.Div(
        [
            html.Label("memory", htmlFor="memory"),
            text("memory", placeholder="90 % of its device"),
        ],
        className="field",
        title="Budget of a rank: 16GiB, or 2x the unreplicated share. Points over it are greyed.",
    )
    given = html.Div(
        [
            html.Label("given", htmlFor="given"),
            text("given", placeholder="as laid out"),
        ],
        className="field",
        title="Where operands are now and where C shall end, a=row,c=row: bringing them takes time.",
    )
    advanced = html.Details([html.Summary("Advanced"), *rows], open=False)
    return html.Fieldset([html.Legend("Budget and start"), memory, given, space, advanced])


def _main() -> Any:
    panels = [html.Div(tab.panel(), id=f"show-{name}", hidden=True) for name, tab in TABS.items()]
    # Not dcc.Tabs: no key reaches those.
    tabs = [{"label": tab.title, "value": name} for name, tab in TABS.items()]
    return html.Main(
        [
            *said(),
            html.P(id="assumed", className="hint", **{"aria-live": "polite"}),
            html.Div(id="compare"),
            dcc.RadioItems(tabs, State().tab, id="tab", inline=True, className="tabs"),
            *panels,
            html.Details(
                [
                    html.Summary("Copy this point as a command, as Python, as TOML"),
                    *(copied(name) for name in ("command", "python", "toml")),
                ],
                className="copies",
            ),
        ],
        id="answer",
        **{"aria-busy": "true"},
    )


def said() -> list[Any]:
    """Return the places of the verdict, of what does not fit together, of the status and of the figures."""
    return [
        html.P(id="verdict", className="verdict", **{"aria-live": "polite"}),
        html.Div(id="mistakes", className="mistakes", role="alert"),
        html.Div(
            [
                html.Span(id="status"),
                html.Button("Cancel", id="cancel", className="link", hidden=True),
                dcc.Checklist(
                    [{"label": "numbers under figures", "value": "1"}], [], id="data", className="check"
                ),
            ],
            className="status",
        ),
        html.Div([_fact(name) for name in FIGURES], id="facts-strip", className="strip", hidden=True),
    ]


def _fact(name: str) -> Any:
    """Return the place of one figure of a prediction, of the makespan with its range."""
    note = html.Span(id="fact-range", className="note", title="within the ranges of the machine's numbers")
    parts = [html.Span(name, className="name"), html.Span(id=f"fact-{named(name)}", className="value")]
    return html.Div([*parts, note] if name == FIGURES[0] else parts, className="fact")


def named(name: str) -> str:
    """Return the part of an id that names one figure of a prediction."""
    return name.replace(" ", "-")


def copied(name: str) -> Any:
    """Return the place of a text with what copies it."""
    return html.Div(
        [
            html.Div(
                [html.Span(name), dcc.Clipboard(target_id=f"as-{name}", title=f"copy as {name}")],
                className="bar",
            ),
            html.Pre(id=f"as-{name}", tabIndex=0),
        ]
    )

"""A decision map as a figure: a column for each m, a coloured stretch for each choice."""

from typing import TYPE_CHECKING

from umm.figures.style import BLUE, GREEN, ORANGE, PURPLE, SKY, VERMILLION, YELLOW, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from umm.space.what_if.decision_map import DecisionMap

COLOURS = (BLUE, ORANGE, GREEN, SKY, VERMILLION, PURPLE, YELLOW)
PATTERNS = ("", "/", "\\", "x", "-", "|", "+", ".")


def decision_figure(decisions: "DecisionMap") -> "go.Figure":
    """Return a column per m, cut where the best choice changes; choices differ in colour and pattern.

    The borders between columns' stretches are the crossovers. Nothing fits where a column is empty.
    """
    import plotly.graph_objects as go

    figure = go.Figure()
    labels = list(dict.fromkeys(x.label for x in decisions.stretches))
    for number, label in enumerate(labels):
        mine = [x for x in decisions.stretches if x.label == label]
        times = [f"{x.choice.makespan_s * 1e3:.4g} ms at {x.start:.3g}" for x in mine]
        figure.add_bar(
            name=label,
            x=[str(x.m) for x in mine],
            base=[x.start for x in mine],
            y=[x.stop - x.start for x in mine],
            marker={
                "color": COLOURS[number % len(COLOURS)],
                "line": {"color": "white", "width": 1},
                "pattern": {"shape": PATTERNS[number // len(COLOURS) % len(PATTERNS)]},
            },
            customdata=[[x.start, x.stop, time] for x, time in zip(mine, times, strict=True)],
            hovertemplate="m=%{x}<br>%{customdata[0]:.3g} to %{customdata[1]:.3g}<br>%{customdata[2]}",
        )
    title = f"Best layouts of A, B, C and stationary matrix on {decisions.machine}"
    styled(figure, title, 480, barmode="overlay", bargap=0.04)
    figure.update_xaxes(
        title="m", type="category", categoryorder="array",
        categoryarray=[str(m) for m in dict.fromkeys(x.m for x in decisions.stretches)],
    )  # fmt: skip
    scale = "linear" if decisions.over == "memory" else "log"
    figure.update_yaxes(title=f"{decisions.over} (1 is {decisions.unit})", type=scale)
    return figure

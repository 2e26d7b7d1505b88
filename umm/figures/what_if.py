"""What would change a choice, as figures and as pages: bars for each number, a map for two quantities."""

from pathlib import Path
from typing import TYPE_CHECKING

from umm.figures.decision_map import decision_figure
from umm.figures.page import Section, write_page
from umm.figures.style import BLUE, ORANGE, styled

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from umm.space.what_if.decision_map import DecisionMap
    from umm.space.what_if.sensitivity import Sensitivity


def sensitivity_figure(answer: "Sensitivity") -> "go.Figure":
    """Return two bars for each number of the machine: what half of it and twice of it do to the time."""
    import plotly.graph_objects as go

    now = answer.choice.makespan_s
    moves = answer.moves[::-1]  # plotly draws the first at the bottom
    labels = [f"{move.what}<br>{move.now}" for move in moves]
    figure = go.Figure()
    for name, colour, pattern, seconds in (
        ("half of it", ORANGE, "/", [move.half_s for move in moves]),
        ("twice as much, or all of it", BLUE, "", [move.most_s for move in moves]),
    ):
        figure.add_bar(
            name=name,
            y=labels,
            x=[100 * (x / now - 1) for x in seconds],
            orientation="h",
            marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate="%{y}: %{x:+.1f} %<extra>" + name + "</extra>",
        )
    height = 160 + 44 * len(moves)
    styled(figure, "How much each number of the machine moves the time", height, barmode="group")
    figure.update_xaxes(title="change of the makespan (%)", zeroline=True)
    return figure


def write_sensitivity(answer: "Sensitivity", machine: str, path: str | Path) -> None:
    """Write a choice and what would change it as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    flips = [str(flip) for flip in answer.flips if flip.factor is not None]
    told = "; ".join(flips) if flips else "No number changes the choice within reach."
    sections = [
        Section(
            verdict=f"Best: {answer.choice}", text=f"Another choice is better: {told}" if flips else told
        ),
        Section(figure=sensitivity_figure(answer), table=answer.moves_frame()),
        Section(heading="Where the choice flips", table=answer.to_frame()),
    ]
    write_page(path, f"What if {machine} were otherwise", sections)


def write_map(decisions: "DecisionMap", path: str | Path) -> None:
    """Write a decision map as one HTML file that opens offline.

    Raises:
        InputError: if the file cannot be written.
    """
    section = Section(figure=decision_figure(decisions), table=decisions.to_frame())
    write_page(path, f"Best by m and {decisions.over} on {decisions.machine}", [section])

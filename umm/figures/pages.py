"""Pages of results: searches and their variations, scaling, steps and plans."""

from pathlib import Path
from typing import Any

import pandas as pd

from umm.figures.page import Section, write_page
from umm.figures.pareto import found_figure
from umm.figures.plan import plan_figure
from umm.figures.report import NO_FLIPS, Page, page
from umm.figures.steps import memory_figure, stage_frame, verdict_of
from umm.figures.what_if import decision_figure, efficiency_figure, scaling_figure, sensitivity_figure
from umm.schedules.schedule import Schedule
from umm.space import Found
from umm.space.scaling import Scaling
from umm.space.what_if.decision_map import DecisionMap
from umm.space.what_if.sensitivity import Sensitivity
from umm.step.rates import Rates
from umm.step.step import Step
from umm.units import format_seconds, percent


def write(path: str | Path, *result: Any) -> None:
    """Write a result's page as one HTML file that opens offline.

    InputError if the file cannot be written.

    Args:
        result: The result, then what else its page needs; see the functions that :func:`page` has.
    """
    write_page(path, *page(*result))


@page.register
def _search(result: Found) -> Page:
    figure = found_figure(result)
    text = (
        f"{result.distinct:,} points on {result.machine}. Circles are simulated; small squares are lower "
        "bounds of points that need no simulation. Overlapping points are drawn once, and far slower ones "
        "left out. Operands start in the layouts shown unless they are given elsewhere."
    )
    table = pd.DataFrame([choice.to_dict() for choice in result.frontier])
    table = table.drop(columns="ties").dropna(axis="columns", how="all")
    sections = [Section(verdict=str(result.top[0]), text=text), Section(figure=figure, table=table)]
    return f"Time against memory: {result.points.bare.title}", sections


@page.register
def _sensitivity(answer: Sensitivity, machine: str) -> Page:
    flips = [str(flip) for flip in answer.flips if flip.factor is not None]
    words = f"Another choice is better: {'; '.join(flips)}" if flips else NO_FLIPS
    moves = answer.moves_frame().rename(columns={"most": "factor"})
    sections = [
        Section(verdict=f"Best: {answer.choice}", text=words),
        Section(figure=sensitivity_figure(answer), table=moves),
    ]
    if flips:
        frame = answer.to_frame().dropna(subset="factor")
        sections.append(Section(heading="Where the choice flips", table=frame))
    return f"What if numbers of {machine} change", sections


@page.register
def _map(decisions: DecisionMap) -> Page:
    section = Section(figure=decision_figure(decisions), table=decisions.to_frame())
    return f"Best by m and {decisions.over} on {decisions.machine}", [section]


@page.register
def _scaling(scaling: Scaling) -> Page:
    headings, *rows = scaling.in_words()
    sections = [
        Section(verdict=scaling.verdict, table=pd.DataFrame(rows, columns=headings)),
        Section(figure=scaling_figure(scaling), half=True),
        Section(figure=efficiency_figure(scaling), half=True),
    ]
    return f"{scaling.words} on {scaling.machine}", sections


@page.register
def _step(step: Step, model: str, rates: Rates) -> Page:
    parts = step.parts
    times = pd.DataFrame(
        {
            "part": list(parts),
            "time": [format_seconds(x) for x in parts.values()],
            "share": [percent(x / step.seconds, 1) for x in parts.values()],
        }
    )
    sections = [
        Section(verdict=verdict_of(step)),
        Section(figure=memory_figure(step, rates.machine.memory), table=stage_frame(step)),
        Section(heading="Time", table=times),
    ]
    return f"A training step of {model} on {rates.machine.name}", sections


@page.register
def _plan(plan: tuple, schedule: Schedule) -> Page:  # type: ignore[type-arg]  # a class is dispatched on
    title = f"Plan of {schedule.program.title} on {schedule.machine}"
    return title, [Section(figure=plan_figure(plan, schedule))]

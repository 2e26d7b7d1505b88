"""The page of a search: time against memory of the whole space, and the front as a table."""

from pathlib import Path
from typing import Any

import numpy as np

from umm.figures.page import Section, write_page
from umm.figures.pareto import pareto
from umm.space import Found


def write_front(found: Found, path: str | Path) -> None:
    """Write time against memory of all points of a search as one HTML file that opens offline.

    Points that were not simulated are drawn where their lower bounds are: they are slower than that.

    Raises:
        InputError: if the file cannot be written.
    """
    import pandas as pd

    pricer: Any = found.pricer
    best = found.top[0]
    front = found.frontier  # it simulates more points
    place = {point: i for i, point in enumerate(pricer.points.allowed.tolist())}
    seconds, memory = pricer.bounds.seconds.copy(), pricer.bounds.memory.copy()
    exact = np.zeros(len(seconds), dtype=bool)
    marks = {}
    for point, choice in pricer.choices.items():
        i = place[point]
        seconds[i], memory[i], exact[i] = choice.makespan_s, choice.memory_bytes, True
        marks[choice.makespan_s, choice.memory_bytes] = i
    ends = np.array([marks[choice.makespan_s, choice.memory_bytes] for choice in front], dtype=np.int64)
    figure = pareto(seconds, memory, exact=exact, front=ends, limit=float(found.limit))
    text = (
        f"{found.priced:,} points on {found.machine}. Circles are simulated; small squares are lower bounds "
        "of what need not be. Of points that would share a spot one is drawn, and none that takes far longer "
        "than the best. Operands start in the layouts shown unless they are given elsewhere."
    )
    table = pd.DataFrame([choice.to_dict() for choice in front])
    sections = [Section(verdict=str(best), text=text), Section(figure=figure, table=table)]
    write_page(path, f"Time against memory: {pricer.points.bare.title}", sections)

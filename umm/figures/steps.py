"""The memory of a training step's ranks over time, by pipeline stage, as a page."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pandas as pd

from umm.figures.style import DARK_GREY, Parts, as_figure, axis, curve, drawing
from umm.step.step import Step
from umm.units import format_bytes, format_seconds

MAX_POINTS = 1000  # points of a curve; of more, each window of time shows its largest
DASHES = ("solid", "dash", "dot", "dashdot")  # of the lines of stages, once their colours are used up
GIB = 2.0**30


def thinned(times: Sequence[float], nbytes: Sequence[float]) -> tuple[list[float], list[float]]:
    """Return a curve of at most ``MAX_POINTS`` points, with the largest value of each window of time."""
    if len(times) <= MAX_POINTS:
        return list(times), list(nbytes)
    edges = np.linspace(0, len(times), MAX_POINTS + 1).astype(int)
    at = [start + int(np.argmax(nbytes[start:end])) for start, end in pairwise(edges)]
    return [times[i] for i in at], [nbytes[i] for i in at]


@as_figure
def memory_figure(step: Step, limit: float) -> Parts:
    """Return the bytes of a rank of each stage over the step, and those of the device."""
    data = []
    for stage, (grown, parts) in enumerate(zip(step.pipeline.curves, step.by_stage, strict=True)):
        # What a stack keeps beside what is counted grows and falls with it.
        kept = parts["activations"]
        fixed, scale = sum(parts.values()) - kept, kept / (step.pipeline.peak[stage] or 1.0)
        times, nbytes = thinned(*zip((0.0, 0.0), *grown, (step.seconds, 0.0), strict=True))
        line = {"dash": DASHES[stage // 7 % len(DASHES)], "shape": "hv"}
        hover = "%{x:.4g} s: %{y:.1f} GiB<extra>%{fullData.name}</extra>"
        filled = [(fixed + scale * x) / GIB for x in nbytes]
        data.append(curve(times, filled, f"stage {stage}", line=line, hovertemplate=hover))
    line = {"color": DARK_GREY, "dash": "dot"}
    data.append(curve([0.0, step.seconds], [limit / GIB] * 2, "device", line=line, hoverinfo="skip"))
    return drawing(
        data, "Memory of a rank over a step, by pipeline stage", height=480,
        xaxis=axis("time (s)"), yaxis=axis("GiB", rangemode="tozero"),
    )  # fmt: skip


def stage_frame(step: Step) -> pd.DataFrame:
    """Return the bytes that a rank of each stage keeps at its peak, by part."""
    stages = pd.DataFrame(step.by_stage).map(format_bytes)
    stages.insert(0, "stage", range(len(stages)))
    return stages


def verdict_of(step: Step) -> str:
    """Return a step's sizes, time with its range, and memory in a line."""
    low, high = format_seconds(step.lowest), format_seconds(step.highest)
    return (
        f"{step.parallel.words()}: {format_seconds(step.seconds)} a step ({low} to {high}), "
        f"{format_bytes(step.memory_bytes)} a device at most"
    )

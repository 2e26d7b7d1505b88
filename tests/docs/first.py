"""``python -m tests.docs.first``: draws the README's first picture, of the schedule that it simulates."""

from pathlib import Path

import numpy as np

import umm
from experiments.common.image import draw
from umm.figures.lanes import timeline
from umm.units import format_seconds

FILE = Path(__file__).parents[2] / "docs/images/first.svg"
RANKS, WIDTH = 4, 1000


def figure():
    """Return the first ranks of MLP-2's multiply in 2-D blocks, with a batch of 1024 on twelve PVC tiles."""
    problem = umm.Problem(m=1024, n=12288, k=49152, a="2d", b="2d", c="2d", ranks=12)
    trace = umm.run(umm.schedule(problem, "pvc-12"), executor="sim")
    drawn = timeline(trace, RANKS)
    for line in drawn.data:
        # Rounded, for on another host a float may end otherwise; what is shown at the pointer is not drawn.
        line.update(
            x=[round(x, 4) for x in np.asarray(line.x, dtype=float).tolist()], text=None, customdata=None
        )
    size = f"{problem.m}×{problem.n}×{problem.k}"
    title = f"C = AB, {size} on pvc-12 in 2-D blocks: {format_seconds(trace.makespan_s)}; ranks 0 to 3 of 12"
    return drawn.update_layout(title_text=title)


if __name__ == "__main__":
    draw(figure(), FILE, width=WIDTH)

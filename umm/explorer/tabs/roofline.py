"""The roofline of the point."""

from typing import TYPE_CHECKING

import numpy as np

from umm.explorer.tabs.tab import Tab
from umm.explorer.view import Shown, View
from umm.figures.roofline import roofline, work_and_bytes

if TYPE_CHECKING:
    import pandas as pd


def show(view: View) -> Shown:
    """Return what each rank reaches, under the roofs of its device and its links."""
    assert view.point
    trace = view.point.trace

    def frame() -> "pd.DataFrame":
        import pandas as pd

        flop, received = work_and_bytes(trace)
        numbers = pd.DataFrame({"rank": np.arange(len(flop)), "flop": flop, "received_bytes": received})
        numbers["Tflop/s"] = numbers["flop"] / trace.makespan_s / 1e12
        return numbers

    return {"roofs.figure": view.drawn(roofline, trace), "roofline-data.children": view.table(frame)}


TAB = Tab(
    "roofline",
    "Roofline",
    "What each rank reaches, against the flop it does for every byte it gets: under a slope the link bounds "
    "it, under the flat roof its multiplies.",
    ("roofs",),
    show,
)

"""Predicted against measured: a trace or a store that was dropped in."""

from typing import Any

import pandas as pd
from dash import dcc, html

from umm.comparison import compare
from umm.errors import InputError
from umm.executor import executor
from umm.explorer.view import Shown, Tab, View
from umm.figures.predicted_measured import agreement, makespans
from umm.units import counted, percent

PREDICTED = ("sim", "bound")
ASKED = ["chain", "m", "n", "k", "dtype", "ranks", "layouts", "stationary"]
EMPTY = (
    "Nothing is loaded yet. Measure with  umm run … --executor mpi --save-trace measured.json  and drop "
    "the file here; or a store that  umm sweep … -o store.db  filled with both sim and mpi."
)


def show(view: View) -> Shown:
    """Return dropped measurements beside their prediction, or the files that could be dropped."""
    figure: Any = None
    words, table = EMPTY, None
    try:
        if view.measured is not None:
            comparison = compare(executor("sim").run(view.measured.schedule), view.measured)
            figure, words = view.drawn(agreement, comparison), str(comparison)
            table = view.table(lambda: comparison.phases().reset_index())
        elif view.rows is not None:
            figure, words, table = _of_store(view, view.rows)
    except InputError as error:
        words = str(error)
    parts = {"measured-words.children": words, "measured-data.children": table}
    return {"agreement.figure": figure or {}} | parts


def _of_store(view: View, rows: pd.DataFrame) -> Any:
    predicted = rows[rows["source"].isin(PREDICTED)].sort_values("source", ascending=False)
    measured = rows[~rows["source"].isin(PREDICTED)]
    pairs = predicted.drop_duplicates(ASKED).merge(measured, on=ASKED, suffixes=("_predicted", "_measured"))
    if pairs.empty:
        raise InputError(
            f"the store's {len(rows)} runs have no point both predicted and measured; sweep the same points "
            "with --executor sim and --executor mpi"
        )
    pairs = pairs.rename(columns={"time_s_predicted": "predicted_s", "time_s_measured": "measured_s"})
    chain = pairs["chain"].fillna("").astype(str)
    pairs["label"] = (
        chain + " " + pairs["layouts"].astype(str) + " " + pairs["stationary"].astype(str)
    ).str.strip()
    error = pairs["predicted_s"] / pairs["measured_s"] - 1
    words = (
        f"{counted(len(pairs), 'point')} measured; the median error is {percent(error.abs().median(), 1)}."
    )
    sizes = [x for x in "mnk" if pairs[x].notna().any()]  # a chain has others
    shown = pairs[["label", *sizes, "predicted_s", "measured_s"]].assign(error=error)
    return view.drawn(makespans, pairs), words, view.table(lambda: shown)


TAB = Tab(
    "measured",
    "Predicted vs measured",
    "A trace: each action's predicted time over its measured one. A store: each run's. Within the band the "
    "prediction is right to 20 %.",
    ("agreement",),
    show,
    [
        dcc.Upload(
            ["Drop a trace or a store here, or ", html.Button("choose a file", className="link")],
            id="drop-measured",
            className="drop",
            multiple=False,
        ),
        html.P(EMPTY, id="measured-words", className="empty", **{"aria-live": "polite"}),
    ],
    others=("measured-words.children",),
)

"""A profile beside its prediction, and explanations of a measured time, on 80 columns and as JSON."""

import math
from collections.abc import Sequence
from typing import Any

from rich.console import Console

from umm.cli.printed.output import grid
from umm.profiles.beside import Beside, Side
from umm.space.what_if.measured import Explanation
from umm.space.what_if.profiled import Cause
from umm.units import format_seconds

MOST_ROWS, MOST_CAUSES = 16, 6  # rows and causes that are printed; --json has all


def print_profile(
    console: Console, result: Beside, causes: Sequence[Cause], step_s: float, machine: str
) -> None:
    """Print kernels side by side, the share that is explained, and the reasons of the rest."""
    profile = result.profile
    steps = f"{profile.steps} steps" if profile.steps > 1 else "one step"
    others = f", the first of {profile.devices} devices" if profile.devices > 1 else ""
    span, kernels = format_seconds(profile.span_s), format_seconds(profile.total_s)
    busy = profile.busy_s / profile.span_s if profile.span_s else 1.0
    console.print(f"profile   {steps} of {span}{others}: kernels {kernels}, device busy {busy:.0%}")
    predicted = f"{format_seconds(step_s)} on {machine}: kernels {format_seconds(result.predicted_s)}"
    console.print(f"predicted {predicted}")
    console.print(
        f"explained {result.explained:.1%} of measured kernel time; {result.matched:.1%} is in kernels that "
        "both have"
    )
    numbers = ("predicted", "calls", "measured", "calls", "ratio")
    table = grid(("kernels", "size", *numbers), numbers, folds=("kernels", "size"))
    for row in result.rows[:MOST_ROWS]:
        ratio = "" if math.isnan(row.ratio) else f"{row.ratio:.2f}"
        table.add_row(row.kind, row.words, *_cells(row.predicted), *_cells(row.measured), ratio)
    console.print(table)
    if len(result.rows) > MOST_ROWS:
        console.print(f"… {len(result.rows) - MOST_ROWS} more rows; --json has all")
    for cause in causes[:MOST_CAUSES]:
        change = f" (--set {cause.setting})" if cause.setting else ""
        console.print(f"{format_seconds(cause.seconds)}: {cause.words}{change}")
    if not causes:
        console.print("Nothing stands out: kernels take what is predicted.")


def _cells(side: Side | None) -> tuple[str, str]:
    return (format_seconds(side.seconds), f"{side.calls:.4g}") if side else ("–", "")


def profile_record(result: Beside, causes: Sequence[Cause], step_s: float) -> dict[str, Any]:
    """Return the same as plain values."""
    profile = result.profile

    def side(one: Side | None) -> dict[str, float] | None:
        return None if one is None else {"calls": one.calls, "seconds": one.seconds, "fastest_s": one.fastest}

    return {
        "profile": {
            "source": profile.source, "steps": profile.steps, "devices": profile.devices,
            "span_s": profile.span_s, "busy_s": profile.busy_s, "kernels_s": result.measured_s,
        },
        "predicted_s": step_s,
        "predicted_kernels_s": result.predicted_s,
        "explained": result.explained,
        "matched": result.matched,
        "rows": [
            {
                "kind": x.kind, "size": x.words, "matched_by": x.by or None,
                "predicted": side(x.predicted), "measured": side(x.measured),
            }
            for x in result.rows
        ],
        "causes": [x._asdict() for x in causes],
    }  # fmt: skip


def print_explanations(
    console: Console, measured: float, predicted: float, known: Sequence[Explanation]
) -> None:
    """Print the number that explains a time, those that also would, and those that cannot."""
    times = f"{format_seconds(measured)}, predicted {format_seconds(predicted)}"
    console.print(f"Measured {times}: {measured / predicted:.3g} times.")
    able = [x for x in known if x.explains]
    for i, one in enumerate(able):
        because = f": {one.because}" if one.because else ""
        change = f"{one.name} {one.then} in place of {one.now} (x{one.factor:.3g})"
        console.print(f"{'' if i else 'Nearest: '}{change}{because}")
    unable = [x.name for x in known if not x.explains]
    if unable:
        console.print(f"No value within reach explains it of {', '.join(unable)}.")
    if len(able) > 1:
        console.print("A profile decides between them: umm compare --profile trace.json.")


def explanations_record(measured: float, predicted: float, known: Sequence[Explanation]) -> dict[str, Any]:
    """Return the same as plain values."""
    return {
        "measured_s": measured,
        "predicted_s": predicted,
        "explanations": [
            dict(vars(x)) | {"factor": x.factor if math.isfinite(x.factor) else None} for x in known
        ],
    }

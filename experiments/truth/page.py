"""Fit, judge, and write the rows and their table."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.truth.parts import h100, mlp1
from experiments.truth.rows import Row, dtensor, rows
from umm.machines.curves import EfficiencyTable

HERE = Path(__file__).parent
START, END = "<!-- rows -->\n", "<!-- end of rows -->\n"


def fitted_efficiency() -> tuple[float, float, float]:
    """Return float32's best efficiency by least squares on DTensor's points, and its mean and worst error."""
    machine = h100()
    points = [(m, columns) for columns in (True, False) for m in (1024, 2048, 4096, 8192)]
    measured = np.array([row.measured for row in dtensor()])

    def errors(efficiency: float) -> np.ndarray:
        one = EfficiencyTable.measured([1], [1], [1], [[[efficiency]]])
        changed = replace(machine, efficiency={**machine.efficiency, "float32": one})
        return np.abs(np.array([mlp1(changed, m, columns) for m, columns in points]) / measured - 1.0)

    tried = np.arange(0.6, 0.8, 0.005).round(3).tolist()
    best = min(tried, key=lambda efficiency: float((errors(efficiency) ** 2).sum()))
    return best, float(errors(best).mean()), float(errors(best).max())


def table(found: list[Row]) -> str:
    """Return the rows as Markdown, one table, groups apart by their summary."""
    lines = ["| group | row | predicted | measured | off | |", "|---|---|---|---|---|---|"]
    lines += [
        f"| {row.group} | {row.name} | {1e3 * row.predicted:.4g} ms | {1e3 * row.measured:.4g} ms "
        f"| {100 * row.error:+.1f} % | {'fitted' if row.fitted else ''} |"
        for row in found
    ]
    return "\n".join(lines) + "\n"


def summary(found: list[Row]) -> str:
    """Return each group's mean and worst error."""
    lines = ["| group | rows | mean | worst |", "|---|---|---|---|"]
    for group in dict.fromkeys(row.group for row in found):
        errors = [abs(row.error) for row in found if row.group == group]
        lines.append(
            f"| {group} | {len(errors)} | {100 * np.mean(errors):.1f} % | {100 * max(errors):.1f} % |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the summary; write rows.csv and the tables of README.md."""
    found = rows()
    best, mean, worst = fitted_efficiency()
    fit = (
        f"The efficiency of float32 that fits DTensor's points best: {best:.3g}, "
        f"mean error {100 * mean:.1f} %, worst {100 * worst:.1f} %.\n"
    )
    with (HERE / "rows.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "row", "predicted_s", "measured_s", "error", "fitted", "source"])
        for row in found:
            numbers = f"{row.predicted:.6g}", f"{row.measured:.6g}", f"{row.error:.4f}"
            writer.writerow([row.group, row.name, *numbers, int(row.fitted), row.source])
    page = HERE / "README.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    text = START + "\n" + fit + "\n" + summary(found) + "\n" + table(found) + END
    page.write_text(before + text + rest.split(END)[1], encoding="utf-8")
    print(fit + "\n" + summary(found))

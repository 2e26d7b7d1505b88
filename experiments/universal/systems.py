"""Table 2: the two systems, as the paper has them and as the machine files have them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.common.machines import shipped
from experiments.common.points import Row
from experiments.common.published import published
from experiments.common.tables import figure as table

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("universal")
LINKS = {
    "pvc-12-planes": "fabric.types.xe.bandwidth",
    "pvc-12": "fabric.bandwidth",
    "h100-8": "fabric.bandwidth",
}


def rows() -> list[Row]:
    """Return a row for each number of table 2 and each machine file of the system."""
    return [row for name in LINKS for row in _of(name)]


def _of(machine: str) -> list[Row]:
    system, key = ("H100", "h100") if machine == "h100-8" else ("PVC", "pvc")
    result: dict[str, Any] = SAID[key]
    link = result["link_gbs"]
    facts = {fact.key: fact for fact in shipped(machine).facts}
    asked = (
        ("number of devices", str(result["devices"]), "devices.count"),
        ("link bandwidth", f"{link[0] if isinstance(link, list) else link:g} GB/s", LINKS[machine]),
        ("float32 peak", f"{result['peak_tflops']:g} Tflop/s", "devices.peak.float32"),
    )
    return [
        {
            "system": system, "what": what, "published": number, "machine": machine, "here": facts[key].value,
            "source": facts[key].source,
        }
        for what, number, key in asked
    ]  # fmt: skip


def figure(rows: list[Row]) -> "go.Figure":
    """Return the table, a line for each machine file."""
    columns: dict[str, list[str]] = {"system": [], "machine file": []}
    for machine in LINKS:
        points = [row for row in rows if row["machine"] == machine]
        columns["system"].append(points[0]["system"])
        columns["machine file"].append(machine)
        for row in points:
            same = row["here"] == row["published"]
            cell = row["here"] if same else f"{row['here']} (paper: {row['published']})"
            columns.setdefault(row["what"], []).append(cell)
    return table(
        "Table 2: the two systems, as the machine files have them", columns, (70, 130, 140, 240, 140)
    )

"""Figures 2 and 3, the paper's statements on them, section 5.2 and the algorithm itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pandas as pd

import umm
from experiments.common.image import draw
from experiments.common.kept import keep
from experiments.common.ledger import Entry, Sections, given, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, csv_text
from experiments.common.published import published
from experiments.universal import assumed, figures, layers, primitives, scheduling, slips, structure, systems
from experiments.universal.claims import Claim, claims, spreads
from experiments.universal.curves import Curves
from experiments.universal.distributions import distributions
from experiments.universal.layers import BATCHES, FAMILIES, H100, MACHINES, PVC, SIZES
from experiments.universal.measurements import measurements

HERE = Path(__file__).parent
START, END = "<!-- scheduling -->\n", "<!-- end of scheduling -->\n"
TITLES = {PVC: "Figure 2: 12 tiles of PVC, simulated", H100: "Figure 3: 8 H100, simulated"}
NAMES = {PVC: "figure2.svg", H100: "figure3.svg"}


def run(size: str, jobs: int | None) -> Sections:
    """Perform the points, write data and figures, and return the entries."""
    calls, machines = primitives.rows(size, jobs), systems.rows()
    draw(primitives.figure(calls), HERE / "table1.svg", size)
    keep(HERE / "table2.csv", csv_text(machines), size)
    draw(systems.figure(machines), HERE / "table2.svg", size)
    rows = layers.table().rows(size, jobs)
    curves = {x: Curves(_of(rows, x), shipped(x)) for x in MACHINES}
    for machine, result in curves.items():
        draw(figures.figure(result, TITLES[machine]), HERE / NAMES[machine], size, figures.WIDTH)
    checked = list(claims(mean(spreads(curves[PVC]))))
    falls = assumed.falls(assumed.rows(checked, size, jobs))
    fared = [_fared(claim, curves, falls.get(claim.name, [])) for claim in checked]
    keep(HERE / "claims.csv", csv_text([row for row, _ in fared]), size)
    frame = pd.DataFrame(scheduling.cases().rows(size, jobs))
    keep(HERE / "scheduling.json", json.dumps(scheduling.summary(frame), indent=1) + "\n", size)
    draw(distributions(frame), HERE / "scheduling.svg", size)
    page = HERE / "README.md"
    before, rest = page.read_text(encoding="utf-8").split(START)
    keep(page, before + START + scheduling.page(frame) + END + rest.split(END)[1], size)
    return {
        "Universal: slips of the text": list(slips.entries()),
        "Universal: the algorithm": [*structure.entries(calls), *_scheduling(frame)],
        "Universal: the evaluation": [
            *_inputs(),
            *(entry for _, entry in fared),
            *measurements(curves[H100]),
        ],
    }


def _of(rows: list[Row], machine: str) -> list[Row]:
    return [row for row in rows if row["machine"] == machine]


def _fared(claim: Claim, curves: dict[str, Curves], falls: list[str]) -> tuple[Row, Entry]:
    """Return how a statement fares as a row of claims.csv and as an entry."""
    figure = f"figure {2 if claim.machine == PVC else 3}"
    name = f"{claim.name}: {claim.text}"
    row = {"claim": claim.name, "text": claim.text}
    if claim.check is None:
        row |= {"verdict": "not reproduced", "margin": "", "figures": claim.why, "does_not_hold_with": ""}
        return row, reproduced(name, figure, "–", False, why=claim.why)
    result = claim.check(curves[claim.machine])
    if claim.given:
        row |= {"verdict": "input", "margin": "", "figures": result.figures, "does_not_hold_with": ""}
        return row, given(name, figure, result.figures, result.holds, claim.given)
    verdict = "reproduced" if result.holds else "not reproduced"
    margin = "" if result.margin is None else f"{100 * result.margin:+.1f} %"
    row |= {"verdict": verdict, "margin": margin, "figures": result.figures}
    hangs = f"falls with {'; '.join(falls)}" if falls and result.holds else ""
    why = claim.why
    if claim.otherwise:
        other = claim.otherwise(curves[claim.machine])
        why += f" it {'holds' if other.holds else 'does not hold either'}: {other.figures}"
    got = f"{result.figures}{f' (margin {margin})' if margin else ''}"
    entry = reproduced(name, figure, got, result.holds, hangs, why)
    return row | {"does_not_hold_with": "; ".join(falls) if result.holds else ""}, entry


def _inputs() -> Iterator[Entry]:
    output = published("universal")
    for name, machine, key in (("PVC", PVC, "pvc"), ("H100", H100, "h100")):
        result, here = shipped(machine), output[key]
        peak, memory = result.peak("float32") / 1e12, result.memory / 1e9
        yield given(
            f"{name}: {here['devices']} devices of {here['peak_tflops']} TFLOP/s in fp32, "
            f"{here['memory_gb']} GB",
            here["where"],
            f"`{machine}`: {result.device_count} of {peak:g}, {memory:g} GB",
            (result.device_count, peak, memory) == (here["devices"], here["peak_tflops"], here["memory_gb"]),
            "devices",
        )
    link, copies = shipped(H100).bandwidth_matrix()[0, 1] / 1e9, published("truth")["copies_gbs"]
    yield given(
        f"H100: {output['h100']['link_gbs']:g} GB/s a direction",
        "table 2",
        f"`h100-8` has {link:g} GB/s, of the {copies['least']} to {copies['most']} that copies were measured "
        "to reach",
        copies["least"] <= link <= copies["most"] < output["h100"]["link_gbs"],
        "fabric.bandwidth",
    )
    sizes = "; ".join(f"{layer} n = {n}, k = {k}" for layer, (n, k) in SIZES.items())
    yield given(f"batch {BATCHES[0]} to {BATCHES[-1]}; {sizes}; fp32", output["sizes"]["where"], "the same")
    yield given(
        "A, B and C: " + "; ".join(f"{name} {' '.join(texts)}" for name, texts in FAMILIES.items()),
        output["families"]["where"],
        "the same",
    )
    yield given(
        "Traditional: aligned 2-D blocks", "section 5.2", "cyclic tiles that all three matrices share"
    )
    wanted = output["space"]["points"]
    counts = {x: umm.Space(m=1024, n=49152, k=12288, ranks=int(x)).points().written for x in wanted}
    yield reproduced(
        "{row, col, 2d}³ × replication³ × {A, B, C}: "
        + ", ".join(f"{count:,} points a size at p = {ranks}" for ranks, count in wanted.items()),
        output["space"]["where"],
        ", ".join(f"p = {ranks}: {count:,}" for ranks, count in counts.items()),
        counts == wanted,
    )


def _scheduling(frame: pd.DataFrame) -> Iterator[Entry]:
    """Section 4.3's policies and section 5.2's two statements on scheduling."""
    best = (frame["steps_optimum_s"] <= frame["steps_cost_greedy_s"] * (1 + 1e-5)).sum()
    proven = (frame["steps_gap"] == 0).sum()
    yield reproduced(
        "IR: greedy, cost greedy, exhaustive; a step costs the larger of communication and compute",
        "section 4.3",
        f"in {best} of {len(frame)} cases; the optimum is proven in {proven}, the gap of the others at most "
        f"{100 * frame['steps_gap'].max():.0f} %",
        best == len(frame),
        "tries of the exhaustive search",
    )
    random = frame[frame["group"] == "corpus"]

    def median(part: Any, above: str, below: str) -> float:
        return float((part[above] / part[below]).median())

    uneven, even = random[random["uneven"]], random[~random["uneven"]]
    steps = [median(x, "steps_direct_s", "steps_optimum_s") for x in (uneven, even)]
    yield reproduced(
        "scheduling matters for misaligned tiles",
        "section 5.2",
        f"one step at a time, direct execution takes {100 * steps[0] - 100:.0f} % longer than the "
        "optimum in the "
        f"median of uneven random problems, {100 * steps[1] - 100:.0f} % of even ones",
        steps[0] > 1.1 > steps[1],
        "no asynchrony",
    )
    mlp = frame[frame["group"] != "corpus"]
    within = [float(((x["async_direct_s"] / x["async_optimum_s"]) <= 1.05).mean()) for x in (random, mlp)]
    other = [float(((x["async_direct_s"] / x["async_best_s"]) <= 1.05).mean()) for x in (random, mlp)]
    yield reproduced(
        "with asynchrony on, direct execution is nearly as good as the optimum",
        "section 5.2",
        f"within 5 % of the steps' optimum, both simulated, in {100 * within[0]:.0f} % of random "
        "problems and "
        f"{100 * within[1]:.0f} % of MLP's layouts; of the best order found by search in "
        f"{100 * other[0]:.0f} "
        f"and {100 * other[1]:.0f} %",
        min(within) > 0.7,
        "prefetch, max_gemms, max_accumulates",
    )

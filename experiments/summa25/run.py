"""The algorithms of the document as its words count them, its strong and its weak scaling."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import umm
from experiments.common.bars import Bars, Panel
from experiments.common.bars import figure as bars
from experiments.common.image import draw
from experiments.common.ledger import Entry, Sections, reproduced
from experiments.common.machines import shipped
from experiments.common.points import Row, Table
from experiments.common.published import published
from experiments.summa25 import slips
from experiments.summa25.counts import algorithms
from experiments.summa25.layer import MACHINE, OTHER_TOKENS, TOKENS, Point, performed
from umm.executor import executor
from umm.figures.style import BLUE

if TYPE_CHECKING:
    import plotly.graph_objects as go

HERE = Path(__file__).parent
SAID = published("summa25")
WIDTH = 960
WAYS = ("forward_s", "backward_s")
FIXED = "an unnamed fixed cost of about half a second a step; length and layers are not given"


def run(size: str, jobs: int | None) -> Sections:
    """Perform the points, write data and figures, and return the entries."""
    rows = Table(HERE / "scaling.csv", list(points()), performed, 3).rows(size, jobs)
    strong, weak = (
        [row for row in rows if row["scaling"] == x and row["tokens"] == TOKENS] for x in ("strong", "weak")
    )
    draw(figure("Strong scaling", "strong", strong), HERE / "strong.svg", size, WIDTH)
    draw(figure("Weak scaling", "weak", weak), HERE / "weak.svg", size, WIDTH)
    return {
        "SUMMA2.5: slips of the text": list(slips.entries()),
        "SUMMA2.5: the algorithms": list(algorithms()),
        "SUMMA2.5: the tables": [*tables(rows, strong, weak), parts(strong)],
    }


def points() -> Iterator[Point]:
    """Yield the rows of both tables; those of strong scaling with shorter and longer sequences too."""
    for scaling in ("strong", "weak"):
        result = SAID[scaling]
        for (q, _, d), batch, hidden in zip(result["shape"], result["batch"], result["hidden"], strict=True):
            for tokens in (TOKENS, *(OTHER_TOKENS if scaling == "strong" else ())):
                yield Point(scaling, q, d, batch, hidden, tokens)


def text(shape: list[int]) -> str:
    """Return a shape as the document writes it."""
    return f"[{','.join(map(str, shape))}]"


def tables(rows: list[Row], strong: list[Row], weak: list[Row]) -> Iterator[Entry]:
    """Yield the entries of tables 1 and 2."""
    result = SAID["strong"]
    for way in WAYS:
        name = way.removesuffix("_s")
        wanted, got = result[way], [row[way] for row in strong]
        ours = [x / got[0] for x in got]
        theirs = [x / wanted[0] for x in wanted]
        far = max(abs(x / y - 1) for x, y in zip(ours, theirs, strict=True))
        yield reproduced(
            f"{name}: "
            + " · ".join(f"{text(s)} {x}" for s, x in zip(result["shape"], wanted, strict=True))
            + " s",
            result["where"],
            f"times of [1,1,1]: {_list(ours)}; published {_list(theirs)}",
            far < 0.25,
            "tokens, fabric.nic.bandwidth, fabric.bandwidth",
            FIXED,
        )
    yield _fixed(result)
    for first, second, ratios in ((1, 2, (1.42, 1.59)), (6, 5, (1.116, 1.097))):
        one, other = result["shape"][first], result["shape"][second]
        got = [strong[first][way] / strong[second][way] for way in WAYS]
        tokens = [
            [row[way] for row in rows if row["scaling"] == "strong" and row["tokens"] == x][first]
            / [row[way] for row in rows if row["scaling"] == "strong" and row["tokens"] == x][second]
            for x in OTHER_TOKENS
            for way in WAYS
        ]
        far = max(abs(x / y - 1) for x, y in zip(got, ratios, strict=True))
        yield reproduced(
            f"{text(one)} takes {ratios[0]}x as long as {text(other)} forward, {ratios[1]}x backward",
            result["where"],
            f"{got[0]:.2f}x and {got[1]:.2f}x; with {OTHER_TOKENS[0]} tokens {tokens[0]:.2f}x and "
            f"{tokens[1]:.2f}x, "
            f"with {OTHER_TOKENS[1]} {tokens[2]:.2f}x and {tokens[3]:.2f}x",
            far < 0.1,
            "tokens, fabric.nic.bandwidth",
            FIXED,
        )
    yield from _weak(weak)


def _list(values: list[float]) -> str:
    return ", ".join(f"{x:.3g}" for x in values)


def _fixed(result: dict[str, Any]) -> Entry:
    """Return the forward time left after perfect scaling of one GPU's."""
    ranks = [q * q * d for q, _, d in result["shape"]]
    left = [
        x - result["forward_s"][0] / p for x, p in zip(result["forward_s"], ranks, strict=True) if p > 1
    ]  # fmt: skip
    return reproduced(
        "after perfect compute scaling 0.43 to 0.63 s of the forward time stay nearly flat from 4 to 64 GPUs",
        "fit of table 1",
        f"{min(left):.2f} to {max(left):.2f} s are left: {_list(left)}",
        0.42 < min(left) < max(left) < 0.64,
        "a fixed cost of the host, or the rest of the layer",
    )


def _weak(weak: list[Row]) -> Iterator[Entry]:
    result = SAID["weak"]
    for way in WAYS:
        spreads, theirs = {}, {}
        for q in (2, 4):
            seconds = [row[way] for row in weak if row["q"] == q]
            spreads[q] = max(seconds) / min(seconds)
            published = [x for (rows, _, _), x in zip(result["shape"], result[way], strict=True) if rows == q]
            theirs[q] = max(published) / min(published)
        yield reproduced(
            f"weak scaling is flat in d, {way.removesuffix('_s')}: {_list(result[way][1:3])} s at q = 2, "
            f"{_list(result[way][3:6])} s at q = 4",
            result["where"],
            f"largest over smallest {spreads[2]:.2f} at q = 2, {spreads[4]:.2f} at q = 4; published "
            f"{theirs[2]:.3f} and {theirs[4]:.3f}",
            max(spreads.values()) < 1.05,
            "fabric.nic.bandwidth",
            "the sum of B's gradient over the layers shares one InfiniBand card a node",
        )
    got = [weak[x]["forward_s"] / weak[0]["forward_s"] for x in (1, 3, 6)]
    wanted = [result["forward_s"][x] / result["forward_s"][0] for x in (1, 3, 6)]
    yield reproduced(
        "weak scaling over q: twice the work a GPU each time",
        result["where"],
        f"[2,2,1], [4,4,1], [8,8,1] take {_list(got)} times [1,1,1]; published {_list(wanted)}",
        max(abs(x / y - 1) for x, y in zip(got, wanted, strict=True)) < 0.1,
        "fabric.nic.bandwidth, devices.efficiency.float32",
        "between nodes the published times grow less than one card of 6.8 GB/s for four GPUs allows "
        "(FDR is not confirmed)",
    )


def parts(strong: list[Row]) -> Entry:
    """Return the entry of the parts of a layer: the share of layer norm's all-reduce."""
    row = next(x for x in strong if (x["q"], x["d"]) == (4, 4))
    numbers = 2 * row["batch"] * row["tokens"] // (row["q"] * row["d"])
    asked = umm.collective("all-reduce", nbytes=4 * numbers, machine=shipped(MACHINE), ranks=row["q"])
    seconds = executor("sim").makespan(asked)
    share = seconds / row["forward_s"]
    return reproduced(
        "projections as distributed multiplies; layer norm all-reduces two sums a row of ranks, negligible",
        "section 3.2",
        f"four weights, h × 3h, h × h, h × 4h and 4h × h, and their gradients; on [4,4,4] the two sums of "
        f"{numbers // 2} rows take {1e6 * seconds:.0f} µs, {100 * share:.1f} % of the layer's "
        "forward multiplies",
        share < 0.02,
        "fabric.latency",
    )


def figure(title: str, scaling: str, rows: list[Row]) -> "go.Figure":
    """Return times as multiples of those of one GPU, forward and backward."""
    result = SAID[scaling]
    groups = [text(x) for x in result["shape"]]
    panels = []
    for way in WAYS:
        ours = [row[way] / rows[0][way] for row in rows]
        theirs = [x / result[way][0] for x in result[way]]
        name = f"{way.removesuffix('_s')}, time over that of [1,1,1]"
        digits = 2 if scaling == "strong" else 1
        panels.append(Panel(name, groups, [Bars("simulated", BLUE, ours, theirs)], scaling == "weak", digits))
    return bars(f"{title} of SUMMA2.5 on frontera-rtx, {TOKENS} tokens a sequence", panels)

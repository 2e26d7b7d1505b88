"""Published collectives: XLA's tables by machine, collective and size of group, nodes, small all-reduces."""

import csv
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import NamedTuple

from experiments.common.machines import shipped
from experiments.common.published import published
from experiments.truth.parts import law, library
from experiments.truth.rows import MiB, Row
from umm.machines import Machine

SAID = published("truth")
MACHINES = {"sm_90": "h100-8", "sm_100_B200": "b200-8", "gfx950": "mi355x-8", "sm_100_GB200": "gb200-nvl72"}
LEAST, MOST = 2**20, 2**31
HELD_OUT = (32, 256)
"""MiB, of 8 GPUs, and times 9/8 of groups of 36 and 72, that were not fitted."""
HELD_OUT_GROUP = 36
ALL_FITTED = ("gb200-nvl72", "all-to-all")
CARD = 50e9
DECODE = (0.5, 1, 1.5, 2, 3, 4)
EVEN, ODD = tuple(2.0**x for x in range(-6, 7, 2)), tuple(2.0**x for x in range(-5, 6, 2))
VLLM = "vllm#"


class Table(NamedTuple):
    """All-reduces by algorithm and size.

    Attributes:
        machine: Where.
        ranks: Of the group.
        sizes: MiB.
        source: Who measured.
        fitted: Kernels whose numbers were found from it; the library's are found from none.
    """

    machine: str
    ranks: int
    sizes: tuple[float, ...]
    source: str
    fitted: tuple[str, ...] = ()


TWO = "two-shot by PyTorch"
ALL = "one-shot", "two-shot", "multimem"
SMALL = {
    "six_h100": Table("h100-8", 6, (0.5, 1, 2, 3, 4), f"{VLLM}24111", ALL),
    "four_h100": Table("h100-8", 4, DECODE, f"{VLLM}24111"),
    "four_more": Table("h100-8", 4, DECODE[:-1], f"{VLLM}24532", ("multimem",)),
    "eight_h100": Table("h100-8", 8, (*DECODE, 8, 16, 32, 64, 128), f"{VLLM}42324"),
    "eight_more": Table("h100-8", 8, (4, 8, 16), "ByteDance-Seed/Triton-distributed issue 57"),
    "eight_b300": Table("b200-8", 8, (*EVEN, 128.0), f"{VLLM}37756", ALL),
    "eight_b300_between": Table("b200-8", 8, ODD, f"{VLLM}37756"),
    "two_b300": Table("b200-8", 2, EVEN[4:], f"{VLLM}42324", (TWO, "multimem")),
    "two_b300_between": Table("b200-8", 2, (*(2.0**x for x in range(-6, 2)), 8, 32, 128), f"{VLLM}42324"),
    "eight_mi355x_least": Table("mi355x-8", 8, (24 / 1024, 48 / 1024), f"{VLLM}39080", ALL),
    "eight_mi355x": Table("mi355x-8", 8, (96 / 1024, 0.375, 1.5), f"{VLLM}39080", ALL),
    "eight_mi355x_between": Table("mi355x-8", 8, (192 / 1024, 0.75), f"{VLLM}39080"),
    "eight_mi355x_before": Table("mi355x-8", 8, (96 / 1024, 192 / 1024, 0.375, 0.75, 1.5), f"{VLLM}39080"),
    "four_mi300x_least": Table("mi300x-8", 4, (2 / 1024, 32 / 1024, 0.25), f"{VLLM}19744", ALL),
    "four_mi300x_least_between": Table("mi300x-8", 4, (16 / 1024,), f"{VLLM}19744"),
    "four_mi300x": Table("mi300x-8", 4, (0.5, 2, 8), f"{VLLM}19744", ALL),
    "four_mi300x_between": Table("mi300x-8", 4, (1, 4, 16), f"{VLLM}19744"),
}
"""Small all-reduces; the links of B300 are those of a B200."""
DEVICES = {"b300": "B300", "mi355x": "MI355X", "mi300x": "MI300"}
RACK = "gb300-nvl72"
"""By whose library NCCL on B300 is judged: `b200-8` has XLA's B200, which other sources contradict."""


def xla() -> Iterator[Row]:
    """XLA's tables from 1 MiB to 2 GiB; smaller ones differ by a factor of two from run to run."""
    source = "openxla/xla, default_collective_perf_table.txtpb"
    with (Path(__file__).parent / "collectives.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ranks, nbytes = int(row["ranks"]), int(row["bytes"])
            machine = MACHINES[row["device"]]
            predict = partial(law, what=row["op"], nbytes=nbytes, ranks=ranks)
            group = f"XLA, {machine}, {row['op']} of {ranks}"
            fitted = round(nbytes / MiB * (8 / 9 if nbytes % 9 == 0 else 1)) not in HELD_OUT
            fitted = (fitted and ranks != HELD_OUT_GROUP) or (machine, row["op"]) == ALL_FITTED
            name = f"{nbytes / MiB:g} MiB, {row['dtype']}"
            yield Row(
                group, name, machine, predict, float(row["us"]) * 1e-6, source,
                fitted, (machine, row["op"], 1, ranks, nbytes),
            )  # fmt: skip


def nodes() -> Iterator[Row]:
    """Rings through cards of H100 nodes, by their share of 8 cards; half of these rows were fitted."""
    result = dict(SAID["rings_between_nodes"])
    source = result.pop("where")
    for count, shares in result.items():
        for size, share in zip((16, 64, 256, 1024, 4096, 16384), shares, strict=True):
            ranks, nbytes = 8 * int(count), size * MiB
            seconds = nbytes * (ranks - 1) / ranks / (share * 8 * CARD)
            predict = partial(_on_nodes, nbytes=nbytes, count=int(count))
            name = f"{size} MiB on {count} nodes"
            yield Row(
                "SimAI, rings between nodes", name, "h100-8", predict, seconds, source, True, tolerance=0.15
            )


def pairs() -> Iterator[Row]:
    """All-to-alls among H100 nodes, by the share of a rank's own card; pairs were fitted on them."""
    result = dict(SAID["pairs_between_nodes"])
    source = result.pop("where")
    for count, shares in result.items():
        nodes = int(count)
        for size, share in zip((16, 64, 256, 1024, 4096), shares, strict=True):
            seconds = size * MiB * (nodes - 1) / nodes / (share * CARD)
            predict = partial(_on_nodes, nbytes=size * MiB, count=nodes, what="all-to-all")
            name = f"{size} MiB on {count} nodes"
            yield Row(
                "SimAI, pairs between nodes", name, "h100-8", predict, seconds, source, True, tolerance=0.15
            )


def _on_nodes(machine: Machine, nbytes: int, count: int, what: str = "all-gather") -> float:
    return law(_changed(machine, (("nodes", str(count)),)), what, nbytes, 8 * count)


@lru_cache(maxsize=64)
def _changed(machine: Machine, settings: tuple[tuple[str, str], ...]) -> Machine:
    """Return a machine with some numbers set, kept for the rows that follow on the same one."""
    from umm.machines.settings import with_settings

    return with_settings(machine, dict(settings))


def far() -> Iterator[Row]:
    """Large collectives on up to 128 nodes; published.toml lists their gaps."""
    result = SAID["nodes"]
    source = "NVIDIA/nccl and ROCm/rccl issues"
    for what, size, rates in (
        ("reduce-scatter", 4 * 2**30, result["reduce_scatter_gbs"]),
        ("all-reduce", 2 * 2**30, result["all_reduce_gbs"]),
        ("all-gather", 2 * 2**30, result["all_gather_gbs"]),
    ):
        for count, rate in rates.items():
            ranks, twice = 8 * int(count), 2 if what == "all-reduce" else 1
            predict = partial(_on_nodes, nbytes=size, count=int(count), what=what)
            seconds = twice * size * (ranks - 1) / ranks / (rate * 1e9)
            name = f"{what}, {count} nodes"
            group = "many nodes, all-gather" if what == "all-gather" else "many nodes, large"
            yield Row(group, name, "h100-8", predict, seconds, source, tolerance=0.15)
    predict = partial(law, what="all-reduce", nbytes=8 * MiB, ranks=8)
    seconds, source = result["mi300x_8_mib_us"] * 1e-6, "hpc-ai-envs issue 30"
    yield Row("8 MI300X, 8 MiB", "all-reduce", "mi300x-8", predict, seconds, source, True)
    for gib, micro in result["mi300x_us"].items():
        predict = partial(_on_nodes, nbytes=int(gib) * 2**30, count=2, what="all-reduce")
        name, seconds = f"MI300X, {gib} GiB", micro * 1e-6
        yield Row(
            "many nodes, large", name, "mi300x-8", predict, seconds, "ROCm/rccl issue 2078", tolerance=0.15
        )


def logs() -> Iterator[Row]:
    """Output of nccl-tests and rccl-tests on clusters, one node and several, that users published.

    Each the faster of both columns, for a first run holds set-up. All-reduces of the first H100 cluster
    were fitted, and on MI350X those of 32 and 128 MiB. Cards are as fast as their owner measured them,
    where that was said.
    """
    with (Path(__file__).parent / "nodes.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            nodes, nbytes = int(row["nodes"]), int(row["bytes"])
            settings = {"nodes": row["nodes"]} if nodes > 1 else {}
            if row["card"]:
                settings["fabric.network.card.bandwidth"] = row["card"]
            ranks = int(row["ranks"]) if row["ranks"] else None
            predict = partial(_of_log, what=row["op"], nbytes=nbytes, settings=settings, ranks=ranks)
            count = ranks or nodes * shipped(row["machine"]).device_count
            quantity = row["machine"], row["op"], nodes, count, nbytes
            where = f"{nodes} nodes" if nodes > 1 else f"{ranks or 'all'} ranks"
            group = f"{row['cluster']}, {row['machine']}, {row['op']}, {where}"
            fitted = row["cluster"] == "nccl-tests 309, first cluster" or (
                row["cluster"] == "AMD, MI350X" and nbytes // MiB in (32, 128)
            )
            name = f"{nbytes / MiB:g} MiB" if nbytes >= LEAST else f"{nbytes} bytes"
            seconds, asked = float(row["us"]) * 1e-6, 0.1 if nodes == 1 else 0.15 if nbytes >= LEAST else 0.2
            yield Row(group, name, row["machine"], predict, seconds, row["source"], fitted, quantity, asked)


def _of_log(machine: Machine, what: str, nbytes: int, settings: dict[str, str], ranks: int | None) -> float:
    result = _changed(machine, tuple(settings.items())) if settings else machine
    return law(result, what, nbytes, ranks or result.device_count)


def small() -> Iterator[Row]:
    """All-reduces of decoding, by algorithm."""
    for key, table in SMALL.items():
        for name, times in SAID["small_all_reduces_ms"][key].items():
            for size, milli in zip(table.sizes, times, strict=True):
                nbytes, nccl, b300 = int(size * MiB), name == "library", "b300" in key
                way = name.partition(" by ")[0]
                device = next((x for part, x in DEVICES.items() if part in key), "H100")
                predict = partial(library, what="all-reduce", nbytes=nbytes, ranks=table.ranks, algorithm=way)
                machine = RACK if nccl and b300 else table.machine
                yield Row(
                    _small(name, table.ranks, device), f"{size:g} MiB, {table.source}", machine, predict,
                    milli * 1e-3, table.source, name in table.fitted,
                    (machine, "all-reduce" if nccl else name, 1, table.ranks, nbytes), 0.2,
                )  # fmt: skip
    in_graph = dict(SAID["small_all_reduces_us"])
    source = in_graph.pop("where")
    for name, ranks, kib, micro in (
        (name, int(ranks), int(kib), micro)
        for name, of_ranks in in_graph.items()
        for ranks, times in of_ranks.items()
        for kib, micro in times.items()
    ):
        predict = partial(library, what="all-reduce", nbytes=kib * 2**10, ranks=ranks, algorithm=name)
        quantity = "h100-8", name, 1, ranks, kib * 2**10
        yield Row(
            _small(name, ranks), f"{kib} KiB, in a graph", "h100-8", predict, micro * 1e-6, source,
            ranks == 2 and kib >= 2**10, quantity, 0.2,
        )  # fmt: skip


def _small(name: str, ranks: int, device: str = "H100") -> str:
    return f"small all-reduces, {name.replace('library', 'NCCL')}, {ranks} {device}"


def collectives() -> list[Row]:
    """Return all rows."""
    return [*xla(), *nodes(), *pairs(), *far(), *logs(), *small()]

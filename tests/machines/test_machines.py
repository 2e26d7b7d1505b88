"""Machines: the shipped files, ranks on devices, measured tables."""

import tomllib
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from machine_text import GOOD, SWITCH, links, write

from umm.errors import MachineError
from umm.machines import machine
from umm.machines.files import shipped_folder
from umm.machines.settings import with_settings

SHIPPED = sorted(path.stem for path in shipped_folder().glob("*.toml"))


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_shipped_machines():
    assert SHIPPED == [
        "a10-8",
        "a100-2x4",
        "a100-8",
        "a800-8",
        "aurora-12",
        "b200-8",
        "b300-8",
        "cpu-hdr",
        "dgx-h100x4",
        "dgx-spark-2",
        "frontera-rtx",
        "gb200-nvl72",
        "gb300-nvl72",
        "h100-8",
        "h20-8",
        "h200-1",
        "h200-8",
        "h800-8",
        "l20-8",
        "l4-8",
        "l40s-8",
        "localhost",
        "mi250x-8",
        "mi300x-8",
        "mi325x-8",
        "mi355x-8",
        "pvc-12",
        "pvc-12-planes",
        "rtx-4090-8",
        "rtx-5090-8",
        "rtx-pro-6000-8",
        "tpu-v5e-16",
        "tpu-v5e-4",
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_of_a_shipped_file_says_where_it_comes_from(name):
    """Walking the raw TOML, a number is a leaf only under `value`, beside a source."""

    def walk(node, key):
        if isinstance(node, dict):
            # The numbers of a fitted law share one source.
            fitted = key.endswith(".kernels") and "library" not in key
            if "value" in node or fitted or (key.startswith(".engines.") and "source" in node):
                assert node["source"].strip(), key
            else:
                for child, item in node.items():
                    walk(item, f"{key}.{child}")
        elif isinstance(node, list):
            for item in node:
                walk(item, key)
        else:
            assert isinstance(node, str) or key == ".schema", f"{key} = {node} has no source"

    walk(tomllib.loads((shipped_folder() / f"{name}.toml").read_text(encoding="utf-8")), "")
    assert len(machine(name).facts) >= 14


@pytest.mark.parametrize("name", SHIPPED)
def test_every_pair_of_devices_has_a_route_that_pays_the_overhead_once(name):
    """A route's latencies hold the transfer overhead once, on its first link; a pair has but one link."""
    m = machine(name)
    with_overhead = np.array(
        [any(word in link for word in (" up", " out", " read")) for link in m.link_names]
    )
    for src in range(m.device_count):
        for dst in range(m.device_count):
            route = m.route(src, dst)
            assert len(set(route)) == len(route) > 0
            assert sum(m.link_latency[i] for i in route) >= m.transfer_overhead_s
            if src != dst and len(route) > 1:
                assert with_overhead[list(route)][0] or m.transfer_overhead_s == 0
                carriers = [i for i in route if m.link_latency[i] >= m.transfer_overhead_s > 0]
                assert carriers in ([route[0]], [])


def test_pvc_12_has_230_inside_a_gpu_and_20_between_gpus():
    """Brock & Golin (2025), section 5.2; the diagonal is half a tile's memory bandwidth."""
    matrix = machine("pvc-12").bandwidth_matrix() / 1e9
    for i in range(12):
        for j in range(12):
            expected = 819.2 if i == j else 230 if i // 2 == j // 2 else 20
            assert matrix[i, j] == pytest.approx(expected)


def test_every_ordered_pair_of_pvc_tiles_has_its_own_link():
    m = machine("pvc-12")
    routes = [m.route(i, j) for i in range(12) for j in range(12) if i != j]
    assert sorted(routes) == [(i,) for i in range(132)]
    assert links(m, 1, 0) == ["0.1→0.0"]
    assert links(m, 2, 11) == ["1.0→5.1"]


def test_a_transfer_on_pvc_12_waits_for_its_overhead_and_its_link():
    """5 us of overhead; 1 us inside a GPU, 2 us between GPUs; inside a tile the overhead alone."""
    m = machine("pvc-12")
    waits = [sum(m.link_latency[i] for i in m.route(0, dst)) for dst in (0, 1, 2)]
    assert waits == pytest.approx([5e-6, 6e-6, 7e-6])


def test_planes_cross_through_the_pair_inside_the_sources_gpu():
    """0.0 and 1.1 share a plane; 1.0 is in the other one, reached through 0.1."""
    m = machine("pvc-12-planes")
    assert links(m, 0, 3) == ["0.0 read", "0.0→1.1"]
    assert links(m, 0, 1) == ["0.0 read", "0.0→0.1"]
    assert links(m, 0, 2) == ["0.0 read", "0.0→0.1", "0.1→1.0"]
    matrix = m.bandwidth_matrix() / 1e9
    assert (matrix[0, 1], matrix[0, 2], matrix[0, 3]) == (196, 26.5, 26.5)


def test_tiles_of_a_gpu_are_a_tier_in_the_order_of_their_planes():
    """0.0 and 1.1 have a link, so GPU 1 begins with 1.1; without faster links there are no tiers."""
    m = machine("pvc-12-planes")
    names = [[m.device_names[x] for x in tier] for tier in m.fabric.tiers]
    assert names[:3] == [["0.0", "0.1"], ["1.1", "1.0"], ["2.0", "2.1"]]
    assert with_settings(m, {"fabric.types.xe.bandwidth": "150GB/s"}).fabric.tiers == ()


def test_planes_list_only_shortest_routes():
    """30 ordered pairs in each plane and 12 inside GPUs have a link, the 60 others take two hops."""
    m = machine("pvc-12-planes")
    edges = [tuple(name.split("→")) for name in m.link_names if "→" in name]
    distance = dict(nx.all_pairs_shortest_path_length(nx.DiGraph(edges)))
    hops = {(i, j): len(m.route(i, j)) - 1 for i in range(12) for j in range(12) if i != j}
    assert all(hops[i, j] == distance[m.device_names[i]][m.device_names[j]] for i, j in hops)
    assert sorted(hops.values()) == [1] * 72 + [2] * 60


def test_h100_ports_carry_what_copies_measured_per_direction():
    m = machine("h100-8")
    assert links(m, 0, 5) == ["g0 up", "g5 down"]
    assert [link.bandwidth for link in m.links[:16]] == [374e9] * 16
    assert (m.peak("float32"), m.memory) == (67e12, 80_000_000_000)


def test_the_nodes_of_dgx_h100x4_meet_in_the_network_cards():
    m = machine("dgx-h100x4")
    assert links(m, 0, 7) == ["g0 up", "g7 down"]
    assert links(m, 0, 8) == ["g0 nic out", "g8 nic in"]


def test_the_gpus_of_a_frontera_node_share_its_card():
    assert links(machine("frontera-rtx"), 1, 4) == ["g1 up", "n0 nic out", "n1 nic in", "g4 down"]


def test_a_tpu_slice_has_no_wraparound():
    m = machine("tpu-v5e-16")
    assert links(m, 3, 0) == ["g3→g2", "g2→g1", "g1→g0"]
    with pytest.raises(
        MachineError, match="tpu-v5e-16 states no peak for float32; choose a dtype from bfloat16"
    ):
        m.peak("float32")


def test_ranks_on_one_device_meet_in_its_memory():
    """h200-1: a copy reads and writes at 3.59 TB/s, so it moves 1.795 TB/s."""
    m = machine("h200-1")
    assert m.link_names == ("g0 memory",)
    assert m.route(0, 0) == (0,)
    assert m.bandwidth_matrix().tolist() == [[1.795e12]]
    assert m.default_ranks == 8


def test_ranks_fill_devices_one_each_and_then_share_in_blocks():
    m = machine("h100-8")
    assert [m.device_of(r, 8) for r in range(8)] == list(range(8))
    assert [m.device_of(r, 12) for r in range(12)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_too_many_ranks_are_refused_with_the_most_there_can_be():
    machine("h100-8").check_ranks(3)
    result = "h100-8 cannot hold 9 ranks: it has 8 devices for 1 rank each; choose from 1 to 8"
    with pytest.raises(MachineError, match=result):
        machine("h100-8").check_ranks(9)
    with pytest.raises(MachineError, match="1 device for 16 ranks each; choose from 1 to 16"):
        machine("h200-1").check_ranks(17)


def test_small_messages_are_charged_more_bytes(tmp_path):
    """On a 10 GB/s link that gives 1 MB messages 5 GB/s, 1 MB is charged as 2 MB; large ones as they are."""
    text = (
        GOOD
        + SWITCH
        + (
            '[message_sizes]\nsource = "test"\nlink = { value = "10 GB/s", source = "test" }\n'
            'sizes = ["1 MB", "100 MB"]\nbandwidth = ["5 GB/s", "10 GB/s"]\n'
        )
    )
    m = machine(write(tmp_path, text))
    assert m.effective_bytes([0, 1_000_000, 100_000_000, 10**9]).tolist() == [0, 2_000_000, 10**8, 10**9]
    assert machine("h100-8").effective_bytes([0, 7, 10**9]).tolist() == [0, 7, 10**9]


def test_a_measured_gemm_efficiency_is_interpolated_in_log2(tmp_path):
    text = (
        GOOD
        + (
            '[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\n'
            "m = [64, 256]\nn = [64]\nk = [64, 1024]\nvalue = [[[0.2, 0.4]], [[0.4, 0.8]]]\n"
        )
        + SWITCH
    )
    m = machine(write(tmp_path, text))
    result = m.gemm_efficiency("float32", [64, 128, 256, 9999], 64, [64, 64, 256, 9999])
    assert result == pytest.approx([0.2, 0.3, 0.6, 0.8])
    assert machine(write(tmp_path, GOOD + SWITCH)).gemm_efficiency("float32", [1, 2], 3, 4).tolist() == [
        1.0,
        1.0,
    ]


def test_no_shipped_machine_takes_its_peak_for_granted():
    """Every dtype of every machine has an efficiency below 1 with a range around it.

    Only 8 bits on h100-8 go above: the data sheet's peak is at 1,830 MHz, the highest clock is 1,980.
    """
    for name in (
        "dgx-h100x4",
        "frontera-rtx",
        "gb200-nvl72",
        "gb300-nvl72",
        "h100-8",
        "h200-1",
        "h200-8",
        "l20-8",
        "localhost",
        "mi300x-8",
        "pvc-12",
        "pvc-12-planes",
        "tpu-v5e-4",
    ):
        m = machine(shipped_folder() / f"{name}.toml")
        assert {x for x in m.efficiency if ":" not in x} == set(m.peaks)
        for dtype, table in m.efficiency.items():
            hopper = name in ("h100-8", "h200-8") and dtype[:6] == "float8"
            assert table.values.max() < (1.1 if hopper else 1)
        rates = [fact for fact in m.facts if fact.key.startswith("devices.efficiency")]
        assert all(fact.range for fact in rates if not fact.key.endswith((".tiles", ".kernels")))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {}) for name in ("pvc-12", "pvc-12-planes", "h100-8", "dgx-h100x4", "tpu-v5e-16")),
        *((name, {"nodes": "3"}) for name in ("h100-8", "aurora-12", "mi300x-8", "cpu-hdr")),
        ("h100-8", {"nodes": "5", "network.leaf": "2"}),
        ("h100-8", {"nodes": "5", "network.leaf": "2", "network.rails": "rails"}),
        ("h100-8", {"nodes": "3", "nic.7": "down"}),
    ],
)
def test_routes_of_many_pairs_at_once_are_those_of_each(name, settings):
    result = machine(name, settings)
    src, dst = np.divmod(np.arange(result.device_count**2), result.device_count)
    for which in (src != dst, src >= 0):  # with a device's own memory too
        lengths, links = result.routes(src[which], dst[which])
        one_by_one = [
            result.route(*pair) for pair in zip(src[which].tolist(), dst[which].tolist(), strict=True)
        ]
        assert lengths.tolist() == [len(route) for route in one_by_one]
        assert links.tolist() == [link for route in one_by_one for link in route]

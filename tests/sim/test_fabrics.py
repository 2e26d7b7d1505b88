"""Fabrics: which links a transfer crosses."""

from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine_text import GOOD, GRAPH, LINK, SWITCH, edges, links, write

from umm.errors import MachineError
from umm.machines import machine
from umm.machines.fabric import Ends
from umm.machines.fabrics.fat_tree import FatTreeFabric
from umm.machines.fabrics.grid import GridFabric, RingFabric
from umm.machines.files import resized


def number(value):
    return {"value": value, "source": "test"}


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans(), st.data())
def test_a_grid_route_is_a_shortest_path(shape, wraps, data):
    """A read port, and as many hops as networkx finds between the two, each over a link that exists."""
    names = [str(i) for i in range(int(np.prod(shape)))]
    kind = "torus" if wraps else "mesh"
    table = GridFabric(kind=kind, shape=number(shape), bandwidth=number("1 GB/s"), latency=number("1 us"))
    grid = table.fabric(Ends(tuple(names), 1e-6, 1e12))
    src, dst = (data.draw(st.integers(0, len(names) - 1)) for _ in range(2))
    hops = [grid.names[i] for i in grid.route(src, dst)[1:]]
    graph = nx.grid_graph(shape[::-1], periodic=wraps)
    coordinates = list(np.ndindex(*shape))
    if len(shape) == 1:
        coordinates = [at[0] for at in coordinates]
    assert len(hops) == nx.shortest_path_length(graph, coordinates[src], coordinates[dst])
    path = [str(src)] + [hop.split("→")[1] for hop in hops]
    assert path[-1] == str(dst)
    assert hops == [f"{a}→{b}" for a, b in pairwise(path)]


def test_a_read_port_that_holds_nothing_up_and_takes_no_time_is_left_out():
    """Two links of 1 GB/s out of memory of 2 GB/s are fed by it; out of 1.9 GB/s they share it."""
    names = ("g0", "g1", "g2")
    ring = RingFabric(kind="ring", bandwidth=number("1 GB/s"), latency=number("1 us"))
    assert "g0 read" not in ring.fabric(Ends(names, 0.0, 2e9)).names
    assert "g0 read" in ring.fabric(Ends(names, 0.0, 1.9e9)).names
    assert "g0 read" in ring.fabric(Ends(names, 1e-6, 2e9)).names


def test_a_ring_goes_the_shorter_way_round_and_upwards_when_both_are_equal(tmp_path):
    m = machine(write(tmp_path, GOOD + f'[fabric]\nkind = "ring"\n{LINK}'))
    assert links(m, 0, 3) == ["g0 read", "g0→g3"]
    assert links(m, 0, 2) == ["g0 read", "g0→g1", "g1→g2"]
    assert sum(m.link_latency[i] for i in m.route(0, 2)) == pytest.approx(3e-6 + 2 * 1e-6)


def test_a_fat_tree_climbs_only_to_the_first_switch_in_common():
    """4 devices per leaf, 4 leaves, 2 pods: 32 devices."""
    levels = [
        {"size": number(size), "bandwidth": number(rate), "latency": number("1 s")}
        for size, rate in ((4, "1 B/s"), (4, "2 B/s"), (2, "4 B/s"))
    ]
    tree = FatTreeFabric(kind="fat_tree", levels=levels).fabric(
        Ends(tuple(f"g{i}" for i in range(32)), 0.5, 1e12)
    )
    assert [tree.names[i] for i in tree.route(0, 3)] == ["g0 up", "g3 down"]
    assert [tree.names[i] for i in tree.route(0, 5)] == ["g0 up", "s1.0 up", "s1.1 down", "g5 down"]
    assert [tree.names[i] for i in tree.route(0, 31)] == [
        *("g0 up", "s1.0 up", "s2.0 up", "s2.1 down", "s1.7 down", "g31 down")
    ]
    assert sum(tree.latency[i] for i in tree.route(0, 31)) == 6.5


def test_a_backplane_is_shared_by_every_transfer(tmp_path):
    text = GOOD + SWITCH + 'backplane = { value = "15 GB/s", source = "test" }\n'
    assert links(machine(write(tmp_path, text)), 0, 1) == ["g0 up", "backplane", "g1 down"]


def test_explicit_links_meet_in_named_switches(tmp_path):
    text = GOOD + GRAPH.replace("ROUTES", "") + edges("g0-s", "g1-s", "s-t", "g2-t", "g3-t")
    m = machine(write(tmp_path, text))
    assert links(m, 0, 3) == ["g0 read", "g0→s", "s→t", "t→g3"]


def test_an_unreachable_pair_is_named(tmp_path):
    text = GOOD + GRAPH.replace("ROUTES", "") + edges("g0-s", "g1-s", "g2-t", "g3-t")
    m = machine(write(tmp_path, text))
    with pytest.raises(MachineError, match=r"^no route from g0 to g2; add the links between them$") as caught:
        m.bandwidth_matrix()
    assert caught.value.exit_code == 2


def test_of_two_equally_short_routes_the_file_lists_the_one_meant(tmp_path):
    square = edges("g0-g1", "g1-g3", "g0-g2", "g2-g3")
    m = machine(write(tmp_path, GOOD + GRAPH.replace("ROUTES", "") + square))
    result = "from g0 to g3 the ways via g1 and via g2 are equally short; list the one meant"
    with pytest.raises(MachineError, match=result):
        m.route(0, 3)
    listed = 'routes = [{ from = "g0", to = "g3", via = ["g2"] }]'
    m = machine(write(tmp_path, GOOD + GRAPH.replace("ROUTES", listed) + square, "listed.toml"))
    assert links(m, 0, 3) == ["g0 read", "g0→g2", "g2→g3"]


def test_a_machine_can_be_resized_where_its_fabric_has_no_fixed_shape():
    big = resized(machine("h100-8"), 1024)
    assert (big.name, big.device_count, big.default_ranks) == ("h100-8:1024", 1024, 1024)
    assert links(big, 3, 1023) == ["g3 up", "g1023 down"]
    assert resized(machine("dgx-h100x4"), 64).route(0, 63)
    with pytest.raises(MachineError, match="5 devices cannot fill nodes of 8; use a multiple of 8"):
        resized(machine("dgx-h100x4"), 5)
    with pytest.raises(MachineError, match="a mesh of 4x4 has 16 devices, not 5"):
        resized(machine("tpu-v5e-16"), 5)

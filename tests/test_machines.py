"""Machines: the shipped files, fabrics and their routes, and what a wrong file answers."""

import pickle
import tomllib
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umm.errors import MachineError
from umm.machines import Machine, machine, machine_names, user_folder
from umm.machines.fabrics import FatTree, Grid
from umm.machines.files import shipped_folder

SHIPPED = sorted(path.stem for path in shipped_folder().glob("*.toml"))

GOOD = """
schema = 1
description = "four devices"

[devices]
count = { value = 4, source = "test" }
memory = { value = "16 GB", source = "test" }
memory_bandwidth = { value = "1 TB/s", source = "test" }
copy_engines = { value = 2, source = "test" }
launch = { value = "1 us", source = "test" }
transfer_overhead = { value = "3 us", source = "test" }
accumulate_efficiency = { value = 0.8, source = "test" }

[devices.peak]
float32 = { value = "10 Tflop/s", source = "test" }

[devices.interference]
get = { value = 0.0, source = "test" }
accumulate = { value = 0.25, source = "test" }
reduce = { value = 0.25, source = "test" }

"""
LINK = 'bandwidth = { value = "10 GB/s", source = "test" }\nlatency = { value = "1 us", source = "test" }\n'
SWITCH = f'[fabric]\nkind = "switch"\n{LINK}'


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def write(folder: Path, text: str, name: str = "mine.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def links(m: Machine, src: int, dst: int) -> list[str]:
    return [m.link_names[i] for i in m.route(src, dst)]


def error_of(path: Path) -> str:
    with pytest.raises(MachineError) as caught:
        machine(path)
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


# The shipped files


def test_nine_machines_are_shipped():
    assert SHIPPED == [
        "dgx-h100x4",
        "frontera-rtx",
        "h100-8",
        "h200-1",
        "localhost",
        "pvc-12",
        "pvc-12-planes",
        "tpu-v5e-16",
        "tpu-v5e-4",
    ]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_number_of_a_shipped_file_says_where_it_comes_from(name):
    """Walking the raw TOML, a number is a leaf only under `value`, beside a source."""

    def walk(node, key):
        if isinstance(node, dict):
            if "value" in node:
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
    """A route's latencies hold the transfer overhead once: without it they are the file's latencies."""
    m = machine(name)
    with_overhead = np.array(
        [any(word in link for word in (" up", " out", " read")) for link in m.link_names]
    )
    for src in range(m.device_count):
        for dst in range(m.device_count):
            route = m.route(src, dst)
            assert len(set(route)) == len(route) > 0
            assert sum(m.link_latency[i] for i in route) >= m.transfer_overhead_s
            if src != dst and name != "pvc-12":
                assert with_overhead[list(route)][0]
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


def test_planes_cross_through_the_pair_inside_the_sources_gpu():
    """0.0 and 1.1 share a plane; 1.0 is in the other one, reached through 0.1."""
    m = machine("pvc-12-planes")
    assert links(m, 0, 3) == ["0.0 read", "0.0→1.1"]
    assert links(m, 0, 1) == ["0.0 read", "0.0→0.1"]
    assert links(m, 0, 2) == ["0.0 read", "0.0→0.1", "0.1→1.0"]
    matrix = m.bandwidth_matrix() / 1e9
    assert (matrix[0, 1], matrix[0, 2], matrix[0, 3]) == (230, 26.5, 26.5)


def test_planes_list_only_shortest_routes():
    """30 ordered pairs in each plane and 12 inside GPUs have a link, the 60 others take two hops."""
    m = machine("pvc-12-planes")
    edges = [tuple(name.split("→")) for name in m.link_names if "→" in name]
    distance = dict(nx.all_pairs_shortest_path_length(nx.DiGraph(edges)))
    hops = {(i, j): len(m.route(i, j)) - 1 for i in range(12) for j in range(12) if i != j}
    assert all(hops[i, j] == distance[m.device_names[i]][m.device_names[j]] for i, j in hops)
    assert sorted(hops.values()) == [1] * 72 + [2] * 60


def test_h100_ports_carry_450_per_direction():
    m = machine("h100-8")
    assert links(m, 0, 5) == ["g0 up", "g5 down"]
    assert [link.bandwidth for link in m.links[:16]] == [450e9] * 16
    assert (m.peak("float32"), m.memory) == (67e12, 80_000_000_000)


def test_the_nodes_of_dgx_h100x4_meet_in_the_network_cards():
    m = machine("dgx-h100x4")
    assert links(m, 0, 7) == ["g0 up", "g7 down"]
    assert links(m, 0, 8) == ["g0 nic out", "g8 nic in"]


def test_the_gpus_of_a_frontera_node_share_its_card():
    assert links(machine("frontera-rtx"), 1, 4) == ["g1 up", "n0 nic out", "n1 nic in", "g4 down"]


def test_a_tpu_slice_has_no_wraparound():
    m = machine("tpu-v5e-16")
    assert links(m, 3, 0) == ["g3 read", "g3→g2", "g2→g1", "g1→g0"]
    with pytest.raises(
        MachineError, match="tpu-v5e-16 states no peak for float32; choose a dtype from bfloat16"
    ):
        m.peak("float32")


def test_ranks_on_one_device_meet_in_its_memory():
    """h200-1: 4.8 TB/s is read and written, so a copy moves 2.4 TB/s."""
    m = machine("h200-1")
    assert m.link_names == ("g0 memory",)
    assert m.route(0, 0) == (0,)
    assert m.bandwidth_matrix().tolist() == [[2.4e12]]
    assert m.default_ranks == 8


# Ranks


def test_ranks_fill_devices_one_each_and_then_share_in_blocks():
    m = machine("h100-8")
    assert [m.device_of(r, 8) for r in range(8)] == list(range(8))
    assert [m.device_of(r, 12) for r in range(12)] == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]


def test_too_many_ranks_are_refused_with_the_most_there_can_be():
    machine("h100-8").check_ranks(3)
    said = "h100-8 cannot hold 9 ranks: it has 8 devices for 1 rank each; choose from 1 to 8"
    with pytest.raises(MachineError, match=said):
        machine("h100-8").check_ranks(9)
    with pytest.raises(MachineError, match="1 device for 16 ranks each; choose from 1 to 16"):
        machine("h200-1").check_ranks(17)


# Fabrics


@given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.booleans(), st.data())
def test_a_grid_route_is_a_shortest_path(shape, wraps, data):
    """As many hops as networkx finds between the two, each hop over a link that exists."""
    names = [str(i) for i in range(int(np.prod(shape)))]
    grid = Grid(names, shape, wraps, 1e9, 1e-6, 0.0, 1e12)
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


def test_a_ring_goes_the_shorter_way_round_and_upwards_when_both_are_equal(tmp_path):
    m = machine(write(tmp_path, GOOD + f'[fabric]\nkind = "ring"\n{LINK}'))
    assert links(m, 0, 3) == ["g0 read", "g0→g3"]
    assert links(m, 0, 2) == ["g0 read", "g0→g1", "g1→g2"]
    assert sum(m.link_latency[i] for i in m.route(0, 2)) == pytest.approx(3e-6 + 2 * 1e-6)


def test_a_fat_tree_climbs_only_to_the_first_switch_in_common():
    """4 devices per leaf, 4 leaves, 2 pods: 32 devices."""
    tree = FatTree([f"g{i}" for i in range(32)], [(4, 1.0, 1.0), (4, 2.0, 1.0), (2, 4.0, 1.0)], 0.5)
    assert [tree.names[i] for i in tree.route(0, 3)] == ["g0 up", "g3 down"]
    assert [tree.names[i] for i in tree.route(0, 5)] == ["g0 up", "s1.0 up", "s1.1 down", "g5 down"]
    assert [tree.names[i] for i in tree.route(0, 31)] == [
        *("g0 up", "s1.0 up", "s2.0 up", "s2.1 down", "s1.7 down", "g31 down")
    ]
    assert sum(tree.latency[i] for i in tree.route(0, 31)) == 6.5


def test_a_backplane_is_shared_by_every_transfer(tmp_path):
    text = GOOD + SWITCH + 'backplane = { value = "15 GB/s", source = "test" }\n'
    assert links(machine(write(tmp_path, text)), 0, 1) == ["g0 up", "backplane", "g1 down"]


GRAPH = f'[fabric]\nkind = "links"\nswitches = ["s", "t"]\nROUTES\n[fabric.types.wire]\n{LINK}\n'


def edges(*pairs: str) -> str:
    return "".join(
        f'[[fabric.links]]\ntype = "wire"\nbetween = ["{a}", "{b}"]\n'
        for a, b in (p.split("-") for p in pairs)
    )


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
    said = "from g0 to g3 the ways via g1 and via g2 are equally short; list the one meant"
    with pytest.raises(MachineError, match=said):
        m.route(0, 3)
    listed = 'routes = [{ from = "g0", to = "g3", via = ["g2"] }]'
    m = machine(write(tmp_path, GOOD + GRAPH.replace("ROUTES", listed) + square, "listed.toml"))
    assert links(m, 0, 3) == ["g0 read", "g0→g2", "g2→g3"]


def test_a_machine_can_be_resized_where_its_fabric_has_no_fixed_shape():
    big = machine("h100-8").resized(1024)
    assert (big.name, big.device_count, big.default_ranks) == ("h100-8:1024", 1024, 1024)
    assert links(big, 3, 1023) == ["g3 up", "g1023 down"]
    assert machine("dgx-h100x4").resized(64).route(0, 63)
    with pytest.raises(MachineError, match="5 devices cannot fill nodes of 8; use a multiple of 8"):
        machine("dgx-h100x4").resized(5)
    with pytest.raises(MachineError, match="a mesh of 4x4 has 16 devices, not 5"):
        machine("tpu-v5e-16").resized(5)


# Measured tables


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
    found = m.gemm_efficiency("float32", [64, 128, 256, 9999], 64, [64, 64, 256, 9999])
    assert found == pytest.approx([0.2, 0.3, 0.6, 0.8])
    assert machine("h100-8").gemm_efficiency("float32", [1, 2], 3, 4).tolist() == [1.0, 1.0]


# Finding and reading files


def test_a_file_in_the_users_folder_takes_the_place_of_a_shipped_one():
    assert machine("localhost").device_count == 1
    write(user_folder(), GOOD + SWITCH, "localhost.toml")
    assert machine("localhost").device_count == 4
    write(user_folder(), GOOD + SWITCH, "mine.toml")
    assert "mine" in machine_names()
    assert "pvc-12" in machine_names()


def test_a_machine_is_read_once_and_again_when_its_file_changes(tmp_path):
    path = write(tmp_path, GOOD + SWITCH)
    first = machine(path)
    assert machine(str(path)) is first
    write(tmp_path, (GOOD + SWITCH).replace("10 Tflop/s", "100 Tflop/s"))
    assert machine(path).peak("float32") == 100e12
    assert machine(path) != first


def test_comments_do_not_change_a_machines_hash(tmp_path):
    plain = machine(write(tmp_path, GOOD + SWITCH, "a.toml"))
    commented = machine(write(tmp_path, "# said\n" + GOOD + SWITCH, "b.toml"))
    assert plain.sha == commented.sha
    assert len(plain.sha) == 64


def test_a_machine_travels_between_processes():
    m = machine("pvc-12-planes")
    copy = pickle.loads(pickle.dumps(m))
    assert copy == m
    assert copy.route(0, 2) == m.route(0, 2)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(
        MachineError, match=r"^unknown machine 'h100_8'; did you mean 'h100-8'\? choose from dgx"
    ):
        machine("h100_8")
    with pytest.raises(MachineError, match=r"^there is no topology file nowhere\.toml; known machines: dgx"):
        machine("nowhere.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (
            "copy_engines =",
            "copy_engine =",
            "unknown key 'devices.copy_engine'; did you mean 'copy_engines'?",
        ),
        ("bandwidth = {", "bandwith = {", "unknown key 'fabric.bandwith'; did you mean 'bandwidth'?"),
        (
            'memory = { value = "16 GB", source = "test" }',
            'memory = "16 GB"',
            'devices.memory has no source; write it like { value = …, source = "…" }',
        ),
        (
            'memory = { value = "16 GB", source = "test" }',
            'memory = { value = "16 GB" }',
            'devices.memory has no source; say where the number comes from: source = "…"',
        ),
        ('launch = { value = "1 us", source = "test" }', "", "devices.launch is missing"),
        ('"16 GB"', '"16 G"', "devices.memory.value: '16 G' is not a size in bytes; write it like '16GiB'"),
        ('"10 GB/s"', '"0 GB/s"', "fabric.bandwidth.value: '0 GB/s' is not more than zero"),
        (
            "value = 4,",
            "value = 0,",
            "devices.count.value: input should be greater than or equal to 1, not 0",
        ),
        ("schema = 1", "schema = 2", "schema: input should be 1, not 2"),
        (
            'kind = "switch"',
            'kind = "cross"',
            "fabric.kind must be one of none, pairs, switch, ring, mesh, torus, fat_tree, tiers, links",
        ),
        (
            'kind = "switch"',
            'kind = "torus"\nshape = { value = [2, 3], source = "test" }',
            "a torus of 2x3 has 6 devices, not 4; make devices.count and the fabric agree",
        ),
        (
            "float32 =",
            "float31 =",
            "unknown key 'devices.peak.float31'; did you mean 'float32'?",
        ),
        (
            "copy_engines",
            'names = ["a"]\ncopy_engines',
            "devices: names must hold 4 different names, one per device",
        ),
    ],
)
def test_a_wrong_file_is_answered_in_one_line(tmp_path, old, new, said):
    text = (GOOD + SWITCH).replace(old, new, 1)
    if "fabric" in said or old == "bandwidth = {":
        text = GOOD + SWITCH.replace(old, new, 1)
    assert error_of(write(tmp_path, text)) == f"mine.toml: {said}"


def test_a_wrong_graph_is_answered_in_one_line(tmp_path):
    plain = GRAPH.replace("ROUTES", "")
    ends = edges("g0-u")
    assert error_of(write(tmp_path, GOOD + plain + ends)).startswith(
        "mine.toml: fabric.links names 'u'; choose from"
    )
    twice = edges("g0-s", "s-g0")
    said = "mine.toml: fabric.links joins s and g0 twice; keep one"
    assert error_of(write(tmp_path, GOOD + plain + twice)) == said
    typo = edges("g0-s").replace("wire", "wyre")
    said = "mine.toml: fabric.links uses type 'wyre'; did you mean 'wire'?"
    assert error_of(write(tmp_path, GOOD + plain + typo)) == said
    routes = 'routes = [{ from = "g0", to = "g3", via = ["t"] }]'
    said = "mine.toml: route g0 → t → g3 needs a link g0 → t, which is not listed"
    assert error_of(write(tmp_path, GOOD + GRAPH.replace("ROUTES", routes) + edges("g0-s"))) == said


def test_a_file_that_is_not_toml_says_so(tmp_path):
    assert error_of(write(tmp_path, "schema = ")).startswith("mine.toml is not TOML: ")

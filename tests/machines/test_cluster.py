"""Machines with more nodes than their file has."""

import numpy as np
import pytest
from command import good

import umm
from umm.errors import MachineError


def makespan(machine: umm.Machine) -> float:
    problem = umm.Problem(m=1024, n=2048, k=1024, a="row", b="col", c="2d", ranks=16)
    return umm.run(umm.schedule(problem, machine), executor="sim").makespan_s


def test_more_nodes_of_a_single_node_are_those_of_a_file_with_as_many():
    """Two of h100-8 are two of dgx-h100x4: a port inside, a card of 50 GB/s for every GPU between."""
    ours, theirs = umm.machine("h100-8", nodes=2), umm.machine("dgx-h100x4", nodes=2)
    assert ours.device_count == theirs.device_count == 16
    assert np.array_equal(ours.bandwidth_matrix(), theirs.bandwidth_matrix())
    assert makespan(ours) == makespan(theirs)


@pytest.mark.parametrize(("name", "devices"), [("h100-8", 1024), ("aurora-12", 1536), ("dgx-h100x4", 1024)])
def test_128_nodes_need_no_file(name, devices):
    assert umm.machine(name, nodes=128).device_count == devices


def test_one_node_is_the_machine_itself():
    one, plain = umm.machine("h100-8", nodes=1), umm.machine("h100-8")
    assert one.links == plain.links


def names(machine: umm.Machine, src: int, dst: int) -> list[str]:
    return [machine.link_names[link] for link in machine.route(src, dst)]


def test_cards_of_one_rail_share_a_leaf_and_others_cross_the_spine():
    """40 nodes of h100-8: 32 on a leaf of each rail, 8 on the next."""
    m = umm.machine("h100-8", nodes=40)
    assert names(m, 0, 8 * 31) == ["n0 nic0 out", "n31 nic0 in"]
    assert names(m, 0, 8 * 32) == ["n0 nic0 out", "leaf0.0 up", "leaf1.0 down", "n32 nic0 in"]
    assert names(m, 1, 8 + 2) == ["n0 nic1 out", "leaf0.1 up", "leaf0.2 down", "n1 nic2 in"]


def test_a_taper_narrows_the_uplinks_of_a_leaf():
    """44 sockets pairs of cpu-hdr share a leaf of 44 x 12.5 GB/s down and 18/22 of that up."""
    m = umm.machine("cpu-hdr")
    assert (m.device_count, m.fabric.near) == (128, 2)
    up = m.link_names.index("leaf0.0 up")
    assert m.link_bandwidth[up] == pytest.approx(44 * 12.5e9 * 18 / 22, rel=1e-3)
    assert names(m, 0, 127) == ["n0 nic0 out", "leaf0.0 up", "leaf1.0 down", "n63 nic0 in"]


def test_sums_of_collectives_on_cpus_take_what_gathers_take():
    """64 MiB on 16 nodes: 15/16 through a card of 12.5 GB/s are 5.03 ms; adding at 35 GB/s keeps up."""
    machine = umm.machine("cpu-hdr", nodes=16)
    gathers, sums = (
        umm.run(umm.collective(op, nbytes=2**26, machine=machine), executor="sim").makespan_s
        for op in ("all-gather", "reduce-scatter")
    )
    assert 15 / 16 * 2**26 / 12.5e9 < gathers < sums < 1.03 * gathers


def test_cards_are_shared_by_neighbours():
    """12 tiles of Aurora on 8 cards: tiles 0 and 1 on card 0, tile 2 on card 1, tiles 3 and 4 on card 2."""
    m = umm.machine("aurora-12", nodes=2)
    assert [names(m, tile, 12)[0] for tile in range(5)] == [f"n0 nic{x} out" for x in (0, 0, 1, 2, 2)]


def test_what_cannot_be_is_refused_with_what_would_work():
    with pytest.raises(MachineError, match=r"tpu-v5e-4 has one node, and its file has no \[network\]"):
        umm.machine("tpu-v5e-4", nodes=2)
    with pytest.raises(MachineError, match="nodes cannot be '0'; write a whole number of at least 1"):
        umm.machine("h100-8", nodes=0)


def test_nodes_is_a_flag():
    size = ["-m", 512, "-n", 512, "-k", 512]
    assert "h100-8 nodes=2" in good("simulate", *size, "--nodes", 2)
    both = good("simulate", *size, "--nodes", "1,2")
    assert [line.split()[:2] for line in both.splitlines() if line.split()[:1] in (["1"], ["2"])] == [
        ["1", "8"],
        ["2", "16"],
    ]


def test_idle_devices_of_a_node_pass_on_what_goes_through_them():
    """Tile 3.0 reaches 0.1 through 3.1, whether that has a rank or not."""
    seven = umm.machine("aurora-12", {"nodes": "2", "ranks_per_node": "7"})
    twelve = umm.machine("aurora-12", nodes=2)
    assert seven.device_count == 14
    assert np.array_equal(seven.bandwidth_matrix()[:7, :7], twelve.bandwidth_matrix()[:7, :7])
    assert names(seven, 6, 1) == ["n0.3.0 read", "n0.3.0→3.1", "n0.3.1→0.1"]
    assert names(seven, 0, 7) == ["n0 nic0 out", "n1 nic0 in"]


def test_ranks_of_a_node_may_be_fewer_than_its_devices():
    """One rank on each of 64 nodes of two sockets: every route crosses cards; two fill 32 nodes."""
    spread = umm.machine("cpu-hdr", {"nodes": "64", "ranks_per_node": "1"})
    assert (spread.device_count, spread.fabric.near) == (64, 1)
    assert names(spread, 0, 1) == ["n0 nic0 out", "n1 nic0 in"]
    asked = "simulate", "-m", 4096, "-n", 4096, "-k", 4096, "--machine", "cpu-hdr", "--ranks", 64
    filled = good(*asked)
    assert "nodes     32 of 64, 2 ranks on each; --set ranks_per_node=1 spreads them" in filled
    uneven = good(*asked[:-4], "--machine", "aurora-12", "--nodes", 2, "--ranks", 16)
    assert "nodes     2 of 2, 12 ranks on each, 4 on the last; --set ranks_per_node=8" in uneven
    good(*asked[:-4], "--machine", "aurora-12", "--nodes", 2, "--ranks", 16, "--set", "ranks_per_node=8")
    both = ("--machine", "cpu-hdr", "--nodes", 4, "--ranks", 4, "-m", 64, "-n", 64, "-k", 64)
    rows = good("peers", *both, "--no-crossover")
    assert "\nNodes: 2 of 4, 2 ranks on each; --set ranks_per_node=1 spreads them.\n" in rows
    assert "nodes  " not in good(*asked, "--set", "ranks_per_node=1")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("cpu-hdr", "a node of cpu-hdr has 2 devices, a rank each; ranks_per_node is from 1 to 2"),
        ("h100-8", "h100-8 has no nodes; ask for some with nodes=2, or leave out ranks_per_node"),
    ],
)
def test_ranks_that_a_node_has_no_device_for_are_refused(name, why):
    with pytest.raises(MachineError, match=why):
        umm.machine(name, {"ranks_per_node": "3"})


@pytest.mark.parametrize("name", ["h100-8", "b200-8", "mi300x-8", "dgx-h100x4"])
def test_sums_reach_the_same_share_of_a_link_on_one_node_and_on_several(name):
    assert (
        umm.machine(name, nodes=2).accumulate_efficiency
        == umm.machine(name, nodes=1).accumulate_efficiency
        == 0.8
    )

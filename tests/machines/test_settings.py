"""Numbers of a machine set to others: legal names, legal values, and refusals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import umm
from umm.errors import MachineError
from umm.machines.settings import numbers
from umm.units import parse_bandwidth


def test_half_a_link_is_187_gb_and_has_a_name_of_its_own():
    half = umm.machine("h100-8", {"fabric.bandwidth": "x0.5"})
    assert half.name == "h100-8 fabric.bandwidth=x0.5"
    assert set(half.link_bandwidth[:-8].tolist()) == {187e9}
    assert half.sha != umm.machine("h100-8").sha
    assert umm.machine(half.name) is half
    fact = next(x for x in half.facts if x.key == "fabric.bandwidth")
    assert (fact.value, fact.source, fact.basis) == ("187 GB/s", "set to x0.5", "assumed")


def test_a_pattern_sets_all_that_match():
    twice = umm.machine("pvc-12", {"fabric*bandwidth": "x2"})
    assert set(twice.link_bandwidth[:-12].tolist()) == {40e9, 460e9}


def test_devices_may_be_left_out_and_counts_and_shares_are_numbers_too():
    machine = umm.machine("h100-8", {"memory": "40 GB", "count": "4", "efficiency.float32": "0.5"})
    assert (machine.memory, machine.device_count, machine.default_ranks) == (40_000_000_000, 4, 4)
    assert machine.efficiency["float32"].values.tolist() == [[[0.5]]]


def test_a_word_is_set_to_another_word():
    machine = umm.machine("a100-2x4", {"fabric.inside": "switch"})
    assert [machine.link_names[i] for i in machine.route(0, 3)] == ["g0 up", "g3 down"]


def test_a_factor_of_one_changes_nothing():
    assert umm.machine("h100-8", {"memory": "x1"}) is umm.machine("h100-8")


@pytest.mark.parametrize("name", ["h100-8", "dgx-h100x4", "pvc-12-planes", "tpu-v5e-4"])
def test_every_number_of_a_file_can_be_set_to_what_it_is(name):
    machine = umm.machine(name)
    for number in numbers(machine.document):
        if isinstance(number.value, str | int | float):
            text = "".join(str(number.value).split())
            same = umm.machine(name, {number.key: text})
            assert same.link_bandwidth.tolist() == machine.link_bandwidth.tolist()
            assert (same.memory, same.peaks, same.launch_s) == (
                machine.memory,
                machine.peaks,
                machine.launch_s,
            )


@given(st.floats(0.001, 1000))
def test_a_factor_scales_what_the_unit_says(factor):
    machine = umm.machine("h100-8", {"memory_bandwidth": f"x{factor}"})
    assert machine.memory_bandwidth == pytest.approx(parse_bandwidth("3.35 TB/s") * factor, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "setting", "says"),
    [
        ("h100-8", {"fabric.bandwith": "x2"}, "did you mean 'fabric.bandwidth'"),
        (
            "pvc-12-planes",
            {"fabric.bandwidth": "x2"},
            "fabric.types.xe.bandwidth, fabric.types.pair.bandwidth, or fabric\\*bandwidth for all",
        ),
        ("h100-8", {"fabric.bandwidth": "225"}, "'225' is not a bandwidth; write it like '450 GB/s'"),
        ("h100-8", {"copy_engines": "x0.5"}, "times 0.5 it is not a whole number"),
        ("h100-8", {"copy_engines": f"x{'9' * 400}"}, "write a finite factor such as x0.5"),
        ("h100-8", {"copy_engines": "two"}, "cannot be 'two'"),
        ("h100-8", {"efficiency.float32": "x2"}, "less than or equal to 1"),
        ("h100-8", {"memory": "x0"}, "more than zero"),
        ("h100-8", {"local_work": "x2"}, "is 'engine', which cannot be multiplied"),
        ("h100-8", {"local_work": "fast"}, "input should be 'beside' or 'engine'"),
    ],
)
def test_what_cannot_be_is_told_in_a_line(name, setting, says):
    with pytest.raises(MachineError, match=says):
        umm.machine(name, setting)


@pytest.mark.parametrize("key", ["network.card.bandwidth", "network*bandwidth"])
def test_numbers_of_the_network_have_the_names_of_the_file_on_several_nodes_too(key):
    one, two = (umm.machine("h100-8", {"nodes": "2", name: "x0.5"}) for name in (key, f"fabric.{key}"))
    assert one.link_bandwidth.tolist() == two.link_bandwidth.tolist()
    assert one.link_bandwidth.min() < umm.machine("h100-8", {"nodes": "2"}).link_bandwidth.min()

"""Machine files: how they are looked up, and the answers to wrong ones."""

import os
import pickle
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from command import good, record
from counted import at_most
from machine_text import GOOD, GRAPH, SWITCH, edges, error_of, links, write

from umm.errors import MachineError
from umm.machines import machine, machine_names, user_folder
from umm.machines.build import build
from umm.machines.drafts.scaffold import text
from umm.machines.mistakes import all_explained
from umm.machines.numbers import DeviceNumbers
from umm.machines.quantities import Bandwidth, Count, Seconds, Share, Size, declared
from umm.schedules.table.resources import platform


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


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


def test_a_file_of_equal_size_and_time_is_read_again(tmp_path):
    """As one that is copied over another with its time."""
    path = write(tmp_path, GOOD + SWITCH)
    stat = path.stat()
    assert machine(path).peak("float32") == 10e12
    write(tmp_path, (GOOD + SWITCH).replace("10 Tflop/s", "20 Tflop/s"))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert machine(path).peak("float32") == 20e12


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
        MachineError, match=r"^unknown machine 'h100_8'; did you mean 'h100-8'\? choose from a10-8"
    ):
        machine("h100_8")
    with pytest.raises(MachineError, match=r"^no such machine file: nowhere\.toml; known machines: a10-8"):
        machine("nowhere.toml")


@pytest.mark.parametrize(
    ("old", "new", "result"),
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
            "fabric.kind must be one of none, pairs, switch, ring, mesh, torus, fat_tree, tiers, links, "
            "cluster",
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
            'default_ranks = { value = 9, source = "test" }\ncopy_engines',
            "devices: default_ranks is 9, but the devices hold 4",
        ),
        (
            'value = "1 us", source = "test"',
            'value = "1 us", source = "test", measured = true, assumed = true',
            "devices.launch: measured and assumed contradict each other; keep one",
        ),
        (
            "copy_engines",
            'names = ["a"]\ncopy_engines',
            "devices: names must hold 4 different names, one per device",
        ),
        (
            "copy_engines",
            'names = ["a", "b", "c", "a", "d"]\ncopy_engines',
            "devices: names has 'a' twice; give every device a name of its own",
        ),
        (
            "[devices.interference]",
            '[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\nvalue = 1.2\n[devices.interference]',
            "devices.efficiency[0].value[0][0][0]: input should be less than or equal to 1.1, not 1.2",
        ),
        (
            "[devices.interference]",
            '[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\nvalue = 0.6\nrange = [0.7, 0.8]\n'
            "[devices.interference]",
            "devices.efficiency[0]: 0.6 is outside its range, 0.7 to 0.8",
        ),
        (
            'value = "1 us", source = "test"',
            'value = "1 us", source = "test", range = ["2 us", "3 us"]',
            "devices.launch: '1 us' is outside its range, '2 us' to '3 us'",
        ),
        (
            'value = "1 us", source = "test"',
            'value = "1 us", source = "test", range = ["2 GB", "3 us"]',
            "devices.launch: range: '2 GB' is not a time; write it like '3 us'",
        ),
    ],
)
def test_a_wrong_file_is_answered_in_one_line(tmp_path, old, new, result):
    text = (GOOD + SWITCH).replace(old, new, 1)
    if "fabric" in result or old == "bandwidth = {":
        text = GOOD + SWITCH.replace(old, new, 1)
    assert error_of(write(tmp_path, text)) == f"mine.toml: {result}"


def test_a_message_without_bytes_is_refused(tmp_path):
    """Its logarithm is no number, and neither were the times between it and the next size."""
    sizes = """
[message_sizes]
source = "test"
sizes = ["0 B", "1 MB"]
bandwidth = ["1 GB/s", "2 GB/s"]
link = { value = "10 GB/s", source = "test" }
"""
    result = "message_sizes: 0 B has no bytes to move; leave it out"
    assert error_of(write(tmp_path, GOOD + SWITCH + sizes)) == f"mine.toml: {result}"


def test_a_message_that_beats_its_own_link_is_refused(tmp_path):
    """12 GB/s over a link of 10 GB/s cannot be, unless the two were measured within 25 %."""
    sizes = """
[message_sizes]
source = "test"
sizes = ["1 MB"]
bandwidth = ["12 GB/s"]
link = { value = "10 GB/s", source = "test" }
"""
    result = "message_sizes: 12 GB/s is more than the link's own 10 GB/s; no message beats its link"
    assert error_of(write(tmp_path, GOOD + SWITCH + sizes)) == f"mine.toml: {result}"
    cached = sizes.replace("12", "9") + 'cached = { value = "12 GB/s", source = "test" }\n'
    assert error_of(write(tmp_path, GOOD + SWITCH + cached)) == f"mine.toml: {result}"
    by_size = sizes.replace("12", "9") + 'cached_by_size = ["12 GB/s"]\n'
    assert error_of(write(tmp_path, GOOD + SWITCH + by_size)) == f"mine.toml: {result}"
    unsure = sizes.replace('source = "test"\n', 'source = "test"\nuncertainty = 0.25\n', 1)
    assert machine(write(tmp_path, GOOD + SWITCH + unsure)).message_sizes is not None


@pytest.mark.parametrize(
    ("cached", "result"),
    [
        ('_by_size = ["9 GB/s", "8 GB/s"]', ": sizes and cached_by_size must be equally long"),
        ('_by_size = ["0 GB/s"]', ": every bandwidth must be more than zero"),
        ('_by_size = ["fast"]', ": 'fast' is not a bandwidth; write it like '450 GB/s'"),
        ('_by_size = "9 GB/s"', ".cached_by_size: input should be a valid list, not '9 GB/s'"),
        ('_by_size = ["9 GB/s", 5]', ".cached_by_size[1]: input should be a valid string, not 5"),
        (
            '_by_size = ["9 GB/s"]\ncached = { value = "9 GB/s", source = "test" }',
            ": cached and cached_by_size say the same; keep one of the two",
        ),
    ],
)
def test_rates_of_what_is_got_again_are_one_for_each_size(tmp_path, cached, result):
    sizes = '\n[message_sizes]\nsource = "test"\nsizes = ["1 MB"]\nbandwidth = ["9 GB/s"]\n'
    sizes += f'link = {{ value = "10 GB/s", source = "test" }}\ncached{cached}\n'
    assert error_of(write(tmp_path, GOOD + SWITCH + sizes)) == f"mine.toml: message_sizes{result}"


def test_a_copy_with_another_number_is_another_machine(tmp_path):
    """Half the peak makes a gemm take twice as long, also where the first machine's schedule is at hand."""
    full = machine(write(tmp_path, GOOD + SWITCH))
    half = replace(full, peaks={"float32": full.peak("float32") / 2})
    assert half != full
    assert half.sha != full.sha
    assert replace(full) == full
    thin = replace(full, link_bandwidth=full.link_bandwidth / 2)
    result = [platform(m, 4, 1).links.bandwidth[0] for m in (full, thin)]
    assert result == [10e9, 5e9]


def test_one_number_is_the_efficiency_of_all_shapes(tmp_path):
    one = '[[devices.efficiency]]\ndtype = "float32"\nsource = "test"\nvalue = 0.5\nrange = [0.4, 0.6]\n'
    m = machine(write(tmp_path, GOOD + one + SWITCH))
    assert m.gemm_efficiency("float32", [1, 4096], 64, 8192).tolist() == [0.5, 0.5]
    assert [fact.value for fact in m.facts if fact.key == "devices.efficiency[float32]"] == ["0.5"]


def test_more_devices_than_can_be_held_are_refused_before_they_are_made(tmp_path):
    """A switch of 65536 is read at once; 10^14 devices, or 60000 in pairs, would fill any memory."""

    def of(count, fabric):
        return write(tmp_path, GOOD.replace("value = 4", f"value = {count}", 1) + fabric)

    assert machine(of(65536, SWITCH)).device_count == 65536
    result = "mine.toml: devices.count.value: input should be less than or equal to 65536, not 99999999999999"
    assert error_of(of(99999999999999, SWITCH)) == result
    result = (
        "mine.toml: 60000 devices in pairs have 3599940000 links, and at most 4000000 can be held; "
        "use kind = switch, tiers or fat_tree"
    )
    assert error_of(of(60000, SWITCH.replace("switch", "pairs"))) == result


def test_a_wrong_graph_is_answered_in_one_line(tmp_path):
    plain = GRAPH.replace("ROUTES", "")
    ends = edges("g0-u")
    assert error_of(write(tmp_path, GOOD + plain + ends)).startswith(
        "mine.toml: fabric.links names 'u'; choose from"
    )
    twice = edges("g0-s", "s-g0")
    result = "mine.toml: fabric.links joins s and g0 twice; keep one"
    assert error_of(write(tmp_path, GOOD + plain + twice)) == result
    result = "mine.toml: fabric.links[0]: between has 'g0' twice; name two ends"
    assert error_of(write(tmp_path, GOOD + plain + edges("g0-g0"))) == result
    typo = edges("g0-s").replace("wire", "wyre")
    result = "mine.toml: fabric.links uses type 'wyre'; did you mean 'wire'?"
    assert error_of(write(tmp_path, GOOD + plain + typo)) == result
    routes = 'routes = [{ from = "g0", to = "g3", via = ["t"] }]'
    result = "mine.toml: route g0 → t → g3 needs a link g0 → t, which is not listed"
    assert error_of(write(tmp_path, GOOD + GRAPH.replace("ROUTES", routes) + edges("g0-s"))) == result


def test_a_file_that_is_not_toml_says_so(tmp_path):
    assert "mine.toml is not TOML: " in error_of(write(tmp_path, "schema = "))


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("x = " + "[" * 20_000 + "]" * 20_000, "nests too deep"),
        (f"x = {'9' * 4300}", "a whole number beyond 64 bits"),
        (f"x = {'9' * 5000}", "a whole number beyond 64 bits"),
        (f"x = 0x{'F' * 5000}", "a whole number beyond 64 bits"),
        ("x = 1\nx = 2", "is not TOML: "),
        ("\0", "is not TOML: "),
    ],
)
def test_a_file_of_anybody_is_one_line_and_hides_no_other_machine(tmp_path, text, result):
    """In the user's own folder it is listed as broken; it once took ``umm machine list`` with it."""
    path = write(user_folder(), text)
    listed = record("machine", "list")
    assert [x["name"] for x in listed["broken"]] == ["mine"]
    assert "h100-8" in [x["name"] for x in listed["machines"]]
    assert result in error_of(path)
    assert {"mine", "h100-8"} <= set(machine_names())
    assert machine("h100-8").device_count == 8


def test_a_folder_that_cannot_be_looked_into_hides_no_shipped_machine(monkeypatch):
    """A name too long stands for a folder without permission, which root may enter."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "/" + "x" * 300)
    assert machine("h100-8").device_count == 8
    assert "pvc-12" in machine_names()
    with pytest.raises(MachineError, match="unknown machine 'mine'"):
        machine("mine")
    with pytest.raises(MachineError, match="no such machine file"):
        machine("x" * 300 + ".toml")


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        ('"10 GB/s"', '"5e-324 GB/s"', "'5e-324 GB/s' is beyond what machines have; check its unit"),
        ('"10 GB/s"', '"1e400 GB/s"', "'1e400 GB/s' is not a bandwidth"),
        ('"16 GB"', '"1e400 B"', "'1e400 B' is not a size in bytes"),
        ('"16 GB"', '"9e30 TB"', "is beyond what machines have"),
        ('"3 us"', '"1e308 s"', "is beyond what machines have"),
        ("value = 0.8", 'value = "0.8"', "input should be a valid number, not '0.8'"),
        ("value = 0.8", "value = true", "input should be a valid number, not True"),
        ("value = 0.25", "value = nan", "devices.interference.accumulate.value: "),
        ("value = 4", "value = 4.0", "input should be a valid integer, not 4.0"),
        ("schema = 1", "schema = true", "schema: input should be 1, not True"),
    ],
)
def test_a_number_that_no_machine_has_and_a_value_of_another_type_are_refused(tmp_path, old, new, result):
    """Text was taken for a number, true for 1, and a bandwidth of 5e-324 made times endless."""
    assert result in error_of(write(tmp_path, (GOOD + SWITCH).replace(old, new, 1)))


def test_the_name_of_a_device_is_read_as_a_line_that_can_be_shown_and_typed(tmp_path):
    names = 'names = ["a", "b", "c", "\\u001b[31m"]\ncopy_engines'
    path = write(tmp_path, (GOOD + SWITCH).replace("copy_engines", names, 1))
    assert machine(path).device_names == ("a", "b", "c", r"\x1b[31m")


def test_what_is_listed_twice_or_never_used_is_refused(tmp_path):
    def of(routes="", ends=("g0-s", "g1-s", "g2-s", "g3-s"), switches='["s", "t"]'):
        text = GOOD + GRAPH.replace("ROUTES", routes).replace('["s", "t"]', switches) + edges(*ends)
        return error_of(write(tmp_path, text)).removeprefix("mine.toml: ")

    route = '{ from = "g0", to = "g1", via = ["s"] }'
    assert (
        of(switches='["s", "s"]') == "fabric.switches has 's', which is a device or listed before; keep one"
    )
    assert of(switches='["s", "g1"]').startswith("fabric.switches has 'g1'")
    assert of(f"routes = [{route}, {route}]") == "fabric.routes has the way from g0 to g1 twice; keep one"
    assert of(f"routes = [{route.replace('g1', 's')}]") == "route g0 → s → s must begin and end at devices"
    assert of(f"routes = [{route.replace('g1', 'g0')}]") == "route g0 → s → g0 comes by 'g0' twice"
    among = '[[fabric.links]]\ntype = "wire"\namong = ["g0", "g1", "g0"]\n'
    text = GOOD + GRAPH.replace("ROUTES", "") + among
    assert "among has 'g0' twice" in error_of(write(tmp_path, text))


def test_a_listed_way_is_taken_where_a_link_joins_the_two(tmp_path):
    routes = 'routes = [{ from = "g0", to = "g1", via = ["s"] }]'
    ends = edges("g0-s", "g1-s", "g2-s", "g3-s", "g0-g1")
    m = machine(write(tmp_path, GOOD + GRAPH.replace("ROUTES", routes) + ends))
    assert links(m, 0, 1) == ["g0 read", "g0→s", "s→g1"]
    assert links(m, 1, 0) == ["g1 read", "g1→g0"]


def test_routes_of_thousands_of_devices_are_checked_at_once(tmp_path):
    """2,000 devices around one switch; then one that nothing joins, and one joined by two ways.

    The first takes 0.6 s of a core; pair by pair 4,096 took 45 s, and so would these 2,000 take 10 s.
    """
    count = 2000

    def of(more, left_out=0):
        text = GOOD.replace("value = 4", f"value = {count}", 1) + GRAPH.replace("ROUTES", "")
        star = [f"g{i}-s" for i in range(count - left_out)]
        return write(tmp_path, text + edges(*star, *more))

    path = of(())
    with at_most(calls=10_000_000):
        assert good("machine", "check", path) == f"{path}: ok, 2000 devices, 8000 links\n"
    assert next(iter(machine(of((), left_out=1)).fabric.without_route())) == (0, count - 1)
    assert list(machine(of(("g0-t", "g2-t"))).fabric.without_route()) == [(0, 2), (2, 0)]


def test_a_number_declared_once_is_a_key_an_attribute_and_a_comment():
    """The file's key gives the Machine's attribute, and new files explain it."""
    values = {Seconds: ("2 us", 2e-6), Share: (0.5, 0.5), Size: ("3 MiB", 3 * 2**20), Count: (5, 5)}
    values[Bandwidth] = ("4 GB/s", 4e9)
    for number in declared(DeviceNumbers):
        value, expected = values[number.quantity]
        stated = {"devices": {number.key: {"value": value, "source": "a test"}}}
        shipped = machine("h100-8")
        devices = {**shipped.document["devices"], **stated["devices"]}
        result = build({**shipped.document, "devices": devices}, shipped.source_path, "mine")
        assert getattr(result, number.name) == expected
        assert f"# {number.note}" in text(stated)


def test_a_file_of_many_mistakes_is_explained_as_far_as_anybody_reads():
    """Lines for all of 250,000 unknown keys would take 32 MB."""
    content = tomllib.loads(GOOD + SWITCH) | {f"key{i}": 1 for i in range(5000)}
    lines = all_explained(content)
    assert len(lines) == 101
    assert lines[-1] == "and 4900 more mistakes"


def test_one_number_in_place_of_a_peak_of_each_type_is_explained():
    content = tomllib.loads(GOOD + SWITCH)
    content["devices"]["peak"] = {"value": "60 Tflop/s", "source": "test", "measured": True, "assumed": False}
    lines = all_explained(content)
    assert [x.partition(";")[0] for x in lines if x.startswith("unknown")] == [
        f"unknown key 'devices.peak.{name}'" for name in ("value", "source", "measured", "assumed")
    ]


def test_a_name_with_a_control_character_is_read_as_its_escape(tmp_path):
    names = 'names = ["a", "b", "c", "\\u001b[31m"]\ncopy_engines'
    path = write(tmp_path, (GOOD + SWITCH).replace("copy_engines", names, 1))
    assert machine(path).document["devices"]["names"] == ["a", "b", "c", "\\x1b[31m"]

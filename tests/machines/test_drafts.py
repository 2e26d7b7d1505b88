"""New machine files: from another machine, from nvidia-smi topo -m, from lstopo --of xml; and their check."""

import tomllib
from pathlib import Path

import pytest
from command import good, record, umm
from machine_text import GOOD, LINK, SWITCH, write
from node_texts import HGX_A100_4, LEGEND, PCIE, dgx, hwloc

from umm.cost import decode_seconds
from umm.errors import MachineError
from umm.machines import machine, user_folder
from umm.machines.build import build
from umm.machines.content import Devices, kinds
from umm.machines.declaring import Table, fields_of
from umm.machines.drafts.imports import imported, read
from umm.machines.drafts.scaffold import NOTES, text
from umm.machines.files import mistakes, named_file, shipped_folder
from umm.machines.settings import with_settings

SHIPPED = sorted(path.stem for path in shipped_folder().glob("*.toml"))
NIC = machine("dgx-h100x4").document["fabric"]["nic"]


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def described(tmp_path):
    """A function from a text to the machine that import makes of it, with all else from a100-8."""

    def made(result, **more):
        content = imported(read(result, 25e9), machine("a100-8"), NIC, **more)
        return build(tomllib.loads(text(content)), tmp_path / "made.toml", "made")

    return made


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_machine_has_nothing_wrong_and_comes_back_from_its_commented_text(name):
    assert mistakes(name) == []
    document = machine(name).document
    assert tomllib.loads(text(document)) == document


@pytest.mark.parametrize("name", ["a100-8", "a100-2x4", "b200-8", "mi300x-8", "aurora-12"])
def test_no_gemm_reaches_the_peak_and_every_guess_has_a_range(name):
    m = machine(name)
    assert all(float(m.gemm_efficiency(dtype, 8192, 8192, 8192)) < 0.98 for dtype in m.peaks)
    no_range = ("interference.get", "local_work", "tiles", "kernels", "sms_rated")
    bare = [x.key for x in m.facts if x.assumed and x.range is None and not x.key.endswith(no_range)]
    assert bare == []


def test_two_nodes_of_four_a100_have_links_of_pairs_and_a_card_each():
    m = machine("a100-2x4")
    result = [[m.link_names[i] for i in m.route(*ends)] for ends in ((0, 3), (7, 4), (0, 4))]
    assert result == [["g0→g3"], ["g7→g4"], ["g0 nic out", "g4 nic in"]]
    assert (m.bandwidth_matrix()[0, [1, 4]] / 1e9).tolist() == [79.0, 25.0]


def test_nodes_that_share_a_card_reach_it_without_a_port_where_pairs_have_links(tmp_path):
    tiers = f"""[fabric]
kind = "tiers"
node_size = {{ value = 2, source = "test" }}
inside = {{ value = "pairs", source = "test" }}
{LINK}[fabric.nic]
owner = "node"
{LINK}"""
    m = machine(write(tmp_path, GOOD + tiers))
    assert [m.link_names[i] for i in m.route(0, 3)] == ["n0 nic out", "n1 nic in"]
    assert [m.link_latency[m.route(*ends)[0]] for ends in ((0, 1), (0, 3))] == [4e-6, 4e-6]


def test_every_key_of_a_file_that_is_not_plain_has_a_comment():
    def keys(model: type[Table]) -> set[str]:
        return {info.alias or name for name, info in fields_of(model).items()}

    missing = [key for key in keys(Devices) if f"devices.{key}" not in NOTES]
    missing += [key for kind in kinds() for key in keys(kind) if f"fabric.{key}" not in NOTES]
    assert set(missing) == {"kind"}


def test_a_new_file_says_of_each_number_whose_it_still_is():
    """Two nodes of four with three numbers known: the others are dgx-h100x4's, and check names them."""
    known = [
        "--set",
        "memory=40 GB",
        "--set",
        "fabric.bandwidth=240 GB/s",
        "--set",
        "peak.bfloat16=312 Tflop/s",
    ]
    asked = ["--from", "dgx-h100x4", "--nodes", 2, "--devices", 4, *known, "--source", "a data sheet"]
    good("machine", "new", "mine", *asked)
    m = machine("mine")
    assert (m.device_count, m.fabric.near, m.memory) == (8, 4, 40_000_000_000)
    sources = {fact.key: fact.source for fact in m.facts}
    assert sources["devices.memory"] == "a data sheet"
    assert sources["devices.peak.float64"].startswith("that of dgx-h100x4: NVIDIA H100 data sheet")
    [row] = record("machine", "check", "mine")["machines"]
    assert row["ok"]
    assert "peak.float64" in row["copied"]["dgx-h100x4"]
    assert not {"memory", "fabric.bandwidth", "peak.bfloat16"} & set(row["copied"]["dgx-h100x4"])
    assert "# of one device. Data sheet: GPU memory\n" in named_file("mine").read_text(encoding="utf-8")


def test_a_new_file_may_be_printed_and_states_counts_once(tmp_path, monkeypatch):
    """16 nodes of four sockets from cpu-hdr, whose nodes are of two; - writes no file of that name."""
    monkeypatch.chdir(tmp_path)
    printed = good("machine", "new", "-", "--from", "cpu-hdr", "--nodes", 16, "--devices", 4)
    assert 'count = {value = 64, source = "asked for when this file was made"}' in printed
    assert 'nodes = {value = 16, source = "asked for when this file was made"}' in printed
    (tmp_path / "own.toml").write_text(printed, encoding="utf-8")
    assert (machine("./own.toml").device_count, machine("./own.toml").fabric.near) == (64, 4)
    good("machine", "check", "./own.toml", "--output", "-")
    assert [x.name for x in tmp_path.iterdir()] == ["own.toml"]


def test_how_the_devices_of_new_nodes_are_joined_is_the_other_machines_until_it_is_said():
    """Eight L20 on a switch, cut into two nodes of four: a switch each, as a guess, or pairs if set so."""
    asked = ["--from", "l20-8", "--nodes", 2, "--devices", 4, "--set", "fabric.nic.bandwidth=25GB/s"]
    good("machine", "new", "mine", *asked)
    joined = next(x for x in machine("mine").facts if x.key == "fabric.inside")
    assert (joined.value, joined.assumed) == ("switch", True)
    [row] = record("machine", "check", "mine")["machines"]
    assert "fabric.inside" in row["copied"]["l20-8"]
    good("machine", "new", "mine", *asked, "--set", "fabric.inside=pairs", "--source", "topo -m", "--force")
    m = machine("mine")
    assert [m.link_names[i] for i in m.route(0, 3)] == ["g0→g3"]
    joined = next(x for x in m.facts if x.key == "fabric.inside")
    assert (joined.value, joined.source, joined.assumed) == ("pairs", "topo -m", False)


@pytest.mark.parametrize("name", ["h100-8", "mi300x-8", "mi250x-8"])
def test_a_new_machine_of_several_nodes_has_the_cards_that_nodes_of_the_other_have(name):
    """It once had a card of dgx-h100x4 beside the other's [network], of which changes changed nothing."""
    good("machine", "new", "mine", "--from", name, "--nodes", 2)
    made, asked = machine("mine"), machine(name, nodes=2)
    assert "network" not in made.document
    assert "nic" not in made.document["fabric"]
    assert (made.bandwidth_matrix() == asked.bandwidth_matrix()).all()
    [row] = record("machine", "check", "mine")["machines"]
    assert set(row["copied"]) == {name}
    slower = machine("mine", {"network.card.bandwidth": "5GB/s"}).bandwidth_matrix()
    assert slower[0, -1] == slower[-1, 0] <= 5e9 < asked.bandwidth_matrix()[0, -1]


def test_whose_a_card_is_can_be_set():
    """Four GPUs that share a card of 50 GB/s: two nodes of a machine without cards of its own."""
    good("machine", "new", "mine", "--from", "l20-8", "--nodes", 2, "--set", "fabric.nic.owner=node")
    m = machine("mine")
    assert [m.link_names[i] for i in m.route(0, 15)][-2] == "n1 nic in"
    shared = machine("dgx-h100x4", {"fabric.nic.owner": "node"})
    assert len(shared.fabric.cards) == 4 < len(machine("dgx-h100x4").fabric.cards)
    refused = umm("machine", "show", "dgx-h100x4", "--set", "fabric.nic.owner=rack")
    assert refused.exit_code == 2
    assert "fabric.nic.owner: input should be 'device' or 'node', not 'rack'" in refused.stderr
    refused = umm("machine", "show", "dgx-h100x4", "--set", "fabric.nic.owner=x2")
    assert "fabric.nic.owner is 'device', which cannot be multiplied" in refused.stderr


def test_o_is_the_machine_file_of_new_and_import_as_of_calibrate(tmp_path):
    path, topo = tmp_path / "here.toml", tmp_path / "topo.txt"
    good("machine", "new", "--from", "a100-8", "-o", path)
    assert machine(path).device_count == 8
    topo.write_text(HGX_A100_4, encoding="utf-8")
    good("machine", "import", topo, "--from", "a100-8", "-o", path, "--force")
    assert machine(path).device_count == 4
    both = umm("machine", "new", "mine", "--from", "a100-8", "-o", tmp_path / "log.txt")
    assert both.exit_code == 2
    assert (
        "-o is the machine file, as is 'mine'; give one. What is printed goes to a file by > FILE"
        in both.stderr
    )
    neither = umm("machine", "new", "--from", "a100-8")
    assert (neither.exit_code, not (tmp_path / "log.txt").exists()) == (2, True)
    assert "give the machine a NAME, or a FILE.toml, or -o FILE" in neither.stderr


def test_a_chip_known_by_its_data_sheet_has_an_engines_kernels_of_its_family_and_ranges_that_say_so(tmp_path):
    """H200 from H100 and a bandwidth: a token's attention is within a fifth of the law fitted on H200."""
    path = tmp_path / "mine.toml"
    bandwidth = ("--set", "devices.memory_bandwidth=4.8TB/s", "--source", "a data sheet")
    good("machine", "new", str(path), "--from", "h100-8", "--kernels", "vllm", *bandwidth)
    mine, known = (with_settings(machine(x), {"kernels": "vllm"}) for x in (path, "h200-8"))
    assert mine.document["engine"]["name"] == known.document["engine"]["name"]
    tables = [*mine.document["devices"]["decode"], *mine.document["devices"]["experts"]]
    assert all(x["uncertainty"] >= 0.2 and x["source"].startswith("that of h100-8: ") for x in tables)
    took = [float(decode_seconds(x, "bfloat16", 64, 16384, 32, 8, 128, 128)) for x in (mine, known)]
    assert took[0] == pytest.approx(took[1], rel=0.2)


def test_network_cards_that_topo_lists_are_counted_and_the_others_named(tmp_path):
    """Nine cards beside eight GPUs: NIC8 is behind no switch of a GPU; l20-8 has no [network]."""
    topo = tmp_path / "topo.txt"
    topo.write_text(dgx(8, "NV18"), encoding="utf-8")
    result = umm("machine", "import", topo, "mine", "--from", "h100-8")
    assert "nvidia-smi topo -m: NIC8 left out: behind the PCIe switch of no GPU" in result.stderr
    cards = machine("mine").document["network"]["cards"]
    assert (cards["value"], cards["source"]) == (8, "nvidia-smi topo -m: cards behind a GPU's PCIe switch")
    result = umm("machine", "import", topo, "other", "--from", "l20-8")
    assert "NIC0, NIC1, NIC2, NIC3, NIC4, NIC5, NIC6, NIC7 left out: the file of l20-8 has no [network]" in (
        result.stderr
    )
    topo.write_text(HGX_A100_4, encoding="utf-8")
    good("machine", "import", topo, "four", "--from", "a100-8", "--nodes", 2)
    assert machine("four").document["fabric"]["network"]["cards"]["value"] == 4


def test_an_answer_about_nodes_names_the_cards_that_join_them():
    asked = ("simulate", "-m", 64, "-n", 64, "-k", 64, "--machine", "a100-8", "--nodes", 2)
    result = "a100-8 joins nodes by 8 cards of 25 GB/s each (NVIDIA DGX A100 data sheet: "
    assert umm(*asked).stderr.count(result) == 1
    assert result not in umm(*asked, "--quiet").stderr


def test_a_file_that_is_there_is_not_written_over_unless_asked():
    good("machine", "new", "mine", "--from", "a100-8")
    before = named_file("mine").read_bytes()
    result = umm("machine", "new", "mine", "--from", "h100-8")
    assert (result.exit_code, named_file("mine").read_bytes()) == (2, before)
    assert "exists; choose another name, or overwrite it with --force" in result.stderr
    assert umm("machine", "new", "h100-8", "--from", "a100-8").exit_code == 2  # it would hide the shipped one
    good("machine", "new", "mine", "--from", "h100-8", "--force")
    assert machine("mine").peak("bfloat16") == 989e12


@pytest.mark.parametrize(
    ("asked", "output"),
    [
        (["--from", "tpu-v5e-4", "--devices", 8], "the fabric of tpu-v5e-4 (mesh) joins just its 4 devices"),
        (["--from", "a100-8", "--set", "memory=40 G"], "memory.value: '40 G' is not a size in bytes"),
        (["--from", "a100-8", "--set", "memry=40GB"], "has no number 'memry'; did you mean 'memory'?"),
        (["--from", "a100-9"], "unknown machine 'a100-9'; did you mean 'a100-8'?"),
    ],
)
def test_a_new_machine_that_cannot_be_is_refused_and_nothing_is_written(asked, output):
    result = umm("machine", "new", "mine", *asked)
    assert result.exit_code == 2
    assert output in result.stderr
    assert not user_folder().exists()


def test_a_check_tells_all_that_is_wrong_at_once(tmp_path):
    """A misspelt key is not missing too; faults of several numbers together come beside those of each."""
    text_ = (GOOD + SWITCH).replace("copy_engines =", "copy_engine =").replace('"16 GB"', '"16 G"')
    text_ = text_.replace('launch = { value = "1 us", source = "test" }\n', "").replace("reduce = {", "# {")
    text_ = text_.replace('latency = { value = "1 us", source = "test" }', 'latency = "1 us"')
    path = write(tmp_path, text_.replace("[devices]\n", '[devices]\nnames = ["a", "a", "b", "c"]\n'))
    assert mistakes(path) == [
        "devices.memory.value: '16 G' is not a size in bytes; write it like '16GiB'",
        "devices.launch is missing",
        "unknown key 'devices.copy_engine'; did you mean 'copy_engines'?",
        'fabric.latency has no source; write it like { value = …, source = "…" }',
        "devices: interference must say what an accumulate and a reduce take, unless accumulate_blocks does",
    ]
    result = umm("machine", "check", path, "h100-8")
    assert result.exit_code == 2
    assert result.stderr.count("error: mine.toml: ") == 5
    assert "h100-8: ok, 8 devices, 24 links" in result.stdout


@pytest.mark.parametrize(
    ("old", "new", "result"),
    [
        (
            '"10 Tflop/s"',
            '"10 Tflop"',
            "devices.peak.float32.value: '10 Tflop' is not an arithmetic rate; write it like '67 Tflop/s'",
        ),
        ("float32 =", "float23 =", "unknown key 'devices.peak.float23'; did you mean 'float32'?"),
    ],
)
def test_one_mistake_is_told_once(tmp_path, old, new, result):
    """Of a table of numbers by their names the one that is wrong is repaired, not the table."""
    assert mistakes(write(tmp_path, (GOOD + SWITCH).replace(old, new))) == [result]


def test_a_count_without_a_source_is_a_count(tmp_path):
    text_ = (GOOD + SWITCH).replace('count = { value = 4, source = "test" }', "count = 4")
    path = write(tmp_path, text_.replace("[devices]\n", '[devices]\nnames = ["a", "b"]\n'))
    assert mistakes(path) == [
        'devices.count has no source; write it like { value = …, source = "…" }',
        "devices: names must hold 4 different names, one per device",
    ]


def test_a_check_names_every_pair_that_has_no_route(tmp_path):
    links = f'[fabric]\nkind = "links"\n[fabric.types.wire]\n{LINK}\n[[fabric.links]]\ntype = "wire"\n'
    path = write(tmp_path, GOOD + links + 'among = ["g0", "g1", "g2"]\n')
    assert mistakes(path) == [
        f"no route from {a} to {b}; add the links between them"
        for a, b in (("g0", "g3"), ("g1", "g3"), ("g2", "g3"), ("g3", "g0"), ("g3", "g1"), ("g3", "g2"))
    ]


def test_a_machine_shows_its_file_and_a_changed_one_what_it_has(tmp_path):
    assert good("machine", "show", "a100-8", "--toml") == named_file("a100-8").read_text(encoding="utf-8")
    changed = good("machine", "show", "a100-8 memory=40GB", "--toml")
    path = write(tmp_path, changed)
    assert machine(path).memory == 40_000_000_000
    assert umm("machine", "show", "a100-8", "--toml", "--json").exit_code == 2


def test_four_nvlinks_between_every_two_of_four_gpus_are_links_of_pairs(described):
    """NV4 of 25 GB/s each, of which copies reach 80 %; two such nodes are joined by a card for each GPU."""
    m = described(HGX_A100_4 + LEGEND, nodes=2)
    assert (m.device_count, m.fabric.near) == (8, 4)
    assert [m.link_names[i] for i in m.route(1, 2)] == ["g1→g2"]
    assert m.link_bandwidth[m.route(1, 2)[0]] == 80e9
    between = [m.link_names[i] for i in m.route(1, 5)]
    assert (between[0], between[-1]) == ("n0 nic1 out", "n1 nic1 in")


@pytest.mark.parametrize(("count", "bonded", "reached"), [(8, "NV12", 240e9), (8, "NV18", 360e9)])
def test_more_nvlinks_than_a_gpu_has_go_to_a_switch(described, count, bonded, reached):
    m = described(dgx(count, bonded))
    assert [m.link_names[i] for i in m.route(0, count - 1)] == ["g0 up", f"g{count - 1} down"]
    assert m.link_bandwidth[0] == reached


def test_gpus_without_nvlink_go_through_their_pcie_switch_or_the_sockets(described):
    m = described(PCIE)

    def way(src, dst):
        return [m.link_names[i] for i in m.route(src, dst)][1:]

    assert way(0, 1) == ["g0→pcie0", "pcie0→g1"]
    assert way(2, 3) == ["g2→g3"]
    assert way(3, 0) == ["g3→numa1", "numa1→numa0", "numa0→pcie0", "pcie0→g0"]


def test_hwlocs_matrix_of_bandwidths_makes_pairs_and_its_pci_tree_the_rest(described):
    """g0–g1 and g2–g3 have 50 GB/s; each of these two is behind a root port, at a socket of its own."""
    m = described(hwloc("A GPU", [(0, 1, 50000), (2, 3, 50000)]))
    assert m.memory == 32 * 2**30
    assert "4 A GPU" in m.description
    assert [m.link_names[i] for i in m.route(0, 1)][1:] == ["g0→g1"]
    assert m.link_bandwidth[m.route(0, 1)[-1]] == 40e9
    through = [m.link_names[i] for i in m.route(0, 2)][1:]
    assert through == ["g0→pcie600", "pcie600→socket0", "socket0→socket1", "socket1→pcie601", "pcie601→g2"]
    assert round(m.link_bandwidth[m.route(0, 2)[1]] / 1e9, 1) == 12.6


def test_hwlocs_bandwidths_to_nvswitches_add_up_to_a_port(described):
    """Two switches of 75 GB/s to each GPU are a port of 150 GB/s."""
    wires = [(gpu, 8 + switch, 75000) for gpu in range(8) for switch in range(2)]
    m = described(hwloc("A GPU", wires, switches=2, count=8))
    assert [m.link_names[i] for i in m.route(0, 7)] == ["g0 up", "g7 down"]
    assert m.link_bandwidth[0] == 120e9


@pytest.mark.parametrize(
    ("result", "answer"),
    [
        (
            "nothing of the kind",
            "this is neither what nvidia-smi topo -m prints, nor what lstopo --of xml writes",
        ),
        (HGX_A100_4.replace("GPU2    NV4 ", "GPUX    NV4 "), "no whole row of GPU2"),
        ("<topology><object", "this is not what lstopo --of xml writes"),
        ('<topology version="2.0"><object type="Machine"/></topology>', "shows no GPU"),
    ],
)
def test_what_no_tool_has_printed_is_refused(result, answer):
    with pytest.raises(MachineError, match=answer):
        read(result, 25e9)


def test_import_reads_a_pipe_and_refuses_what_several_nodes_cannot_be(tmp_path):
    path = tmp_path / "topo.txt"
    path.write_text(PCIE, encoding="utf-8")
    good("machine", "import", path, "here", "--from", "a100-8")
    assert machine("here").device_count == 4
    good("machine", "import", path, "several", "--from", "a100-8", "--nodes", 2)
    assert machine("several").device_count == 8
    result = umm("machine", "import", path, "there", "--from", "l20-8", "--nodes", 2)
    assert result.exit_code == 2
    assert "links of several kinds, which --nodes 2 cannot join" in result.stderr


def test_a_list_in_the_place_of_a_word_is_one_mistake(tmp_path):
    """The rest of the file is then checked with a right word in its place."""
    text_ = (shipped_folder() / "h100-8.toml").read_text(encoding="utf-8")
    path = tmp_path / "listed.toml"
    path.write_text(text_.replace('rails = { value = "rails"', "rails = { value = [1, 1]"), encoding="utf-8")
    assert mistakes(path) == ["network.rails.value: input should be 'rails' or 'together', not [1, 1]"]

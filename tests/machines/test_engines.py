"""Whose kernels a machine has: an engine's in the place of the file's own, with or without graphs."""

import copy
import tomllib
from dataclasses import replace

import numpy as np
import pytest

import umm
from tests.helpers.command import good, record
from tests.helpers.command import umm as command
from umm.cost import cast_seconds, gemm_seconds
from umm.errors import MachineError
from umm.machines.build import build
from umm.machines.engines import with_engine
from umm.machines.files import shipped_folder
from umm.machines.kernels import Issue, Kernels
from umm.machines.settings import with_settings
from umm.serve.rates import find_engine

PLAIN = {
    "units": 4, "tiles": ((64, 64),), "splits": (1,), "rate": 2e12, "itemsize": 2, "feed": 1e12,
    "start_s": 4e-6, "ramp_s": 0.0, "store": 1e12, "memory": 1e12,
}  # fmt: skip

ENGINES = tomllib.loads((shipped_folder() / "h100-8.toml").read_text())


@pytest.fixture
def plain():
    return umm.machine(shipped_folder() / "h100-8.toml")


def test_a_file_that_holds_engines_is_the_machine_that_it_is_without_them(plain):
    bare = build(plain.document, plain.source_path, plain.name)
    assert plain.choices
    assert not bare.choices
    assert (plain.sha, plain.engine) == (bare.sha, None)
    assert not [fact for fact in plain.facts if fact.key.startswith(("engines", "libraries"))]


def test_an_engine_takes_the_place_of_the_kernels_it_has_and_no_others(plain):
    vllm = with_settings(plain, {"kernels": "vllm"})
    assert vllm.name == "h100-8 kernels=vllm"
    assert vllm.engine.in_words.startswith("kernels of vLLM 0.24.0 in CUDA graphs, collectives of NCCL")
    for dtype, changed in (("bfloat16", True), ("float16", True), ("float8_e4m3", True), ("float64", False)):
        seconds = [float(gemm_seconds(m, dtype, 2**13, 2**13, 2**13, 2)) - m.launch_s for m in (plain, vllm)]
        assert (abs(seconds[0] / seconds[1] - 1) > 1e-9) == changed, dtype
    assert vllm.library.between == plain.library.between
    assert vllm.library.all_gather != plain.library.all_gather
    assert set(vllm.library.kernels) == {"one-shot", "two-shot"}
    assert not with_settings(plain, {"kernels": "pytorch"}).library.kernels


def test_what_an_engine_states_can_be_set_and_resized_as_what_a_file_states(plain):
    fast = with_settings(plain, {"kernels": "vllm", "efficiency.bfloat16": "0.5", "nodes": "2"})
    assert fast.device_count == 16
    assert fast.efficiency["bfloat16"].values.item() == 0.5
    assert umm.machine("h100-8 kernels=vllm nodes=2").engine == fast.engine


def test_a_small_multiply_waits_for_its_launch_only_without_graphs(plain):
    def seconds(graphs, m):
        machine = umm.machine("h100-8", kernels="vllm", graphs=graphs)
        return float(gemm_seconds(machine, "bfloat16", m, 1024, 1024, 2))

    assert seconds(True, 1) < 3e-6 * 1.5
    assert seconds(False, 1) >= plain.launch_s
    assert seconds(True, 8192) == seconds(False, 8192)


def scheduled(dtype, graphs, m, k=4096):
    """Return the seconds of a multiply of vLLM's in a schedule, and of one whose A vLLM rounds first."""
    machine = umm.machine("h100-8", kernels="vllm", graphs=graphs)
    schedule = umm.schedule(umm.Problem(m=m, n=4096, k=k, dtype=dtype, ranks=1), machine)
    [seconds] = schedule.seconds
    return float(seconds), float(gemm_seconds(machine, dtype, m, 4096, k, 2)), machine


def test_a_schedule_s_multiply_has_an_a_that_is_rounded_already():
    """Rounding is a map of the chain's; of one multiply A has 8 bits from the start."""
    seconds, alone, machine = scheduled("float8_e4m3", True, 8192)
    assert seconds == pytest.approx(alone - float(cast_seconds(machine, "float8_e4m3", 8192, 4096)))


def test_a_host_issues_a_schedule_s_multiplies_only_without_graphs():
    """vLLM's blocks of 8 bits were measured outside graphs: 60.3 µs for 16 rows."""
    in_graphs, measured, _ = scheduled("float8_e4m3:128", True, 16)
    assert in_graphs < 20e-6 < measured
    assert scheduled("float8_e4m3:128", False, 16)[0] == measured == pytest.approx(60.3e-6)


@pytest.mark.parametrize(
    ("settings", "result"),
    [
        ({"kernels": "vlm"}, "h100-8 has no kernels of 'vlm'; did you mean 'vllm'"),
        (
            {"graphs": "yes"},
            "--graphs and --eager are of an engine's kernels; name whose they are: --kernels vllm",
        ),
        ({"kernels": "vllm", "graphs": "maybe"}, "graphs cannot be 'maybe'; write yes or no"),
    ],
)
def test_an_engine_that_a_file_has_not_is_refused_with_those_it_has(plain, settings, result):
    with pytest.raises(MachineError, match=result):
        with_settings(plain, settings)


def test_a_library_that_a_file_has_not_is_refused(plain):
    content = copy.deepcopy({**plain.document, **plain.choices})
    content["engines"]["vllm"]["collectives"] = "rccl"
    with pytest.raises(MachineError, match="no library 'rccl'"):
        with_settings(build(content, plain.source_path, "h100-8"), {"kernels": "vllm"})


def test_an_engine_with_a_plus_in_its_key_is_no_backend_of_another():
    """It was refused with a question whether it was meant itself."""
    content = with_engine(
        {**ENGINES, "engines": {"mine+fast": ENGINES["engines"]["vllm"]}}, "mine+fast", True, "x"
    )
    assert content["engine"]["key"] == "mine+fast"


def test_a_machine_without_libraries_says_where_one_is_added():
    content = {x: table for x, table in ENGINES.items() if x != "libraries"}
    with pytest.raises(MachineError, match=r"x has no library '[^']*'; add \[libraries\.[^ ]*\]$"):
        with_engine(content, "vllm", True, "x")


def test_a_machine_without_engines_says_which_have_some():
    result = command("simulate", "-m", 64, "-n", 64, "-k", 64, "--machine", "mi300x-8", "--kernels", "vllm")
    assert result.exit_code != 0
    assert "mi300x-8 has no kernels by engine" in result.output


def test_answers_say_whose_kernels_they_stand_for():
    asked = ("simulate", "-m", 512, "-n", 512, "-k", 512, "--dtype", "bf16", "--machine", "h100-8")
    result = record(*asked, "--kernels", "vllm", "--eager")
    assert result["kernels"] == [
        {"key": "vllm", "name": "vLLM 0.24.0", "collectives": "NCCL 2.29.2", "graphs": False}
    ]
    assert "kernels" not in record(*asked)
    assert "kernels=vllm" in good(*asked, "--kernels", "vllm")


def test_a_machine_shows_which_engines_it_has():
    text = " ".join(good("machine", "show", "h100-8").split())
    assert "by --kernels those of vLLM 0.24.0 (vllm), TensorRT-LLM 1.3.0rc20 (trtllm)" in text
    assert record("machine", "show", "h100-8")["machine"]["engines"][:2] == ["vllm", "trtllm"]
    assert "kernels       of vLLM" in good("machine", "show", "h100-8", "--kernels", "vllm")
    assert record("machine", "show", "mi300x-8")["machine"]["engines"] == []


def test_a_long_key_goes_on_at_a_dot_in_a_line_of_its_own():
    lines = good("machine", "show", "h100-8").splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("means.collective"))
    assert lines[row].split()[0] == "means.collective."
    assert lines[row + 1].split()[0] == "interference"


def test_the_engine_decides_which_small_all_reduces_there_are():
    def fastest(*flags):
        return record("collective", "all-reduce", "-b", "16KiB", "-e", "16KiB", "--machine", "h100-8", *flags)

    [vllm] = fastest("--kernels", "vllm")["rows"]
    [plain] = fastest("--kernels", "pytorch")["rows"]
    assert vllm["algorithm"] == "one-shot"
    assert plain["algorithm"].startswith("nccl")
    assert vllm["seconds"] < plain["seconds"] / 2


def test_times_of_arithmetic_and_traffic_add_by_a_norm():
    shape = (4096, 4096, 64)
    larger = Kernels(**PLAIN)
    both = Kernels(**PLAIN, norm=1.0)
    between = Kernels(**PLAIN, norm=3.0)
    took = [float(x.seconds(*shape, c_itemsize=2)) for x in (larger, between, both)]
    assert took[0] < took[1] < took[2] < 2 * took[0]


def test_a_cast_is_a_term_of_its_own():
    without = Kernels(**PLAIN | {"itemsize": 1})
    with_cast = replace(without, cast=1e12, cast_unit=1e9, cast_row_s=1e-9)
    m, n, k = (np.array([x]) for x in (1000.0, 64.0, 512.0))
    extra = with_cast.seconds(m, n, k, c_itemsize=2) - without.seconds(m, n, k, c_itemsize=2)
    assert extra == pytest.approx(1000 * 512 * 3 / 1e12 + 1000 * 1e-9)
    assert with_cast.cast_seconds(m, k, np.array([1.0])) == pytest.approx(extra)
    one = with_cast.cast_seconds(np.array([1.0]), k, np.array([1.0]))  # which one unit reads alone
    assert one == pytest.approx(512 * 2 / 1e9 + 1e-9)


def test_a_repeated_multiply_finds_b_in_a_cache_that_has_room_for_all_copies(plain):
    """3 copies of 2 MB, A and C fit into 8 MB, of 4 MB they do not; a schedule reads B from memory."""
    rates = dict.fromkeys(("rate", "feed", "store"), 1e16)
    kernels = Kernels(**PLAIN | rates | {"memory": 1e11}, l2=2**23, copies=3, cached=1e12)
    cold = kernels.unrepeated
    k, n = 1024, np.array([1024, 2048])
    moved = 2 * (16 * k + n * k + 16 * n)
    took, without = (x.seconds(16, n, k, c_itemsize=2) for x in (kernels, cold))
    assert took.tolist() == pytest.approx([4e-6 + moved[0] / 1e12, 4e-6 + moved[1] / 1e11])
    assert without.tolist() == pytest.approx((4e-6 + moved / 1e11).tolist())
    for in_graphs in (True, False):
        assert (kernels.scheduled(in_graphs).seconds(16, n, k, c_itemsize=2) == without).all()
    machine = umm.machine("l40s-8", kernels="trtllm")
    shape = "bfloat16", 16, 2048, 2048, 2
    assert gemm_seconds(machine, *shape) < 0.6 * gemm_seconds(machine, *shape, warm=False)
    assert (gemm_seconds(plain, *shape) == gemm_seconds(plain, *shape, warm=False)).all()


def test_a_cast_beyond_the_cache_is_no_faster_than_memory():
    kernels = Kernels(**PLAIN | {"itemsize": 1, "memory": 1e11}, cast=1e12, l2=3 * 2**20)
    fits, beyond = kernels.cast_seconds(np.array([1024.0, 1025.0]), np.full(2, 1024.0), np.ones(2))
    assert fits == pytest.approx(3 * 2**20 / 1e12)
    assert beyond == pytest.approx(3 * 1025 * 1024 / 1e11)


def test_the_last_issue_that_holds_for_a_shape_is_the_least_that_it_takes():
    issues = (
        Issue(time="90 us"),
        Issue(time="60 us", rows=31),
        Issue(time="180 us", unless=[64, 128]),
        Issue(time="1 ms", unless_rows=4),
    )
    kernels = Kernels(**PLAIN, issues=issues)
    took = kernels.seconds([64, 16, 64, 65], [64, 64, 32, 64], 128, c_itemsize=2)
    assert took.tolist() == pytest.approx([90e-6, 60e-6, 180e-6, 1e-3])
    assert kernels.seconds(2**20, 1024, 1024, c_itemsize=2) > 1e-3


def test_kernels_of_a_slower_memory_cast_as_much_slower():
    kernels = Kernels(**PLAIN, cast=1e12)
    assert kernels.paced(1.0, 0.5).cast == 0.5e12


def test_a_cast_that_is_said_more_of_must_be_stated(plain):
    content = copy.deepcopy({**plain.document, **plain.choices})
    table = next(x for x in content["engines"]["vllm"]["efficiency"] if x["dtype"] == "bfloat16")
    table["kernels"]["cast_row"] = "1 us"
    with pytest.raises(MachineError, match="state cast too"):
        build(content, plain.source_path, "h100-8")


def test_a_multiply_that_lasts_goes_on_at_the_sustained_rate():
    boosted, slowed = Kernels(**PLAIN), Kernels(**PLAIN, boost_s=1e-3, sustained=0.5)
    short, long = (float(boosted.seconds(m, 1024, 1024, c_itemsize=2)) for m in (1024, 2**15))
    assert short < 1e-3 < long
    assert float(slowed.seconds(1024, 1024, 1024, c_itemsize=2)) == short
    expected = long + (long - 4e-6 - 1e-3)
    assert float(slowed.seconds(2**15, 1024, 1024, c_itemsize=2)) == pytest.approx(expected)


def test_small_all_reduces_wait_for_the_host_only_without_graphs_and_large_ones_never():
    def took(nbytes, **how):
        machine = umm.machine("h100-8", kernels="vllm", **how)
        return umm.run(umm.collective("all-reduce", nbytes=nbytes, machine=machine, ranks=4)).makespan_s

    issue = umm.machine("h100-8", kernels="vllm", graphs=False).library.kernels["one-shot"].issue.number
    assert took(2**14) < 0.3 * issue
    for nbytes in (2**14, 2**16):
        assert took(nbytes, graphs=False) == pytest.approx(issue, rel=1e-3)
    assert took(2**26, graphs=False) == pytest.approx(took(2**26), rel=1e-3)


def test_a_version_of_an_engine_has_what_it_does_not_state_as_the_engine_has_it():
    """SGLang's few rows with scales of blocks take 1.5 to 2 times as long where each call packs scales."""
    file = shipped_folder() / "b200-8.toml"
    usual, version, triton = (
        umm.machine(file, kernels=x)
        for x in ("sglang", "sglang@packed-scales", "sglang@packed-scales+triton")
    )
    assert usual.engine.name == "SGLang 0.5.14"
    assert version.engine.name == "SGLang 0.5.14 with packed scales"
    assert triton.engine.name == "SGLang 0.5.14 with packed scales with triton"
    unpacked, packed = (
        float(gemm_seconds(x, "float8_e4m3:128", 16, 4096, 4096, 2)) for x in (usual, version)
    )
    assert 1.5 < unpacked / packed < 2
    for dtype in ("bfloat16", "float8_e4m3", "float4_e2m1"):
        assert len({float(gemm_seconds(x, dtype, 16, 4096, 4096, 2)) for x in (usual, version)}) == 1
    assert (usual.engine.collectives, usual.launch_s) == (version.engine.collectives, version.launch_s)
    assert find_engine("sglang@packed-scales+triton") == replace(find_engine("sglang"), blocks=0.9)
    with pytest.raises(MachineError, match="did you mean 'sglang@packed-scales'"):
        umm.machine(file, kernels="sglang@packed")

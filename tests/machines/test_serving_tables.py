"""Measured attention and experts beside a machine file: at their shapes they count, elsewhere the law."""

import json

import numpy as np
import pytest

from tests.helpers.command import good
from tests.helpers.command import umm as command
from umm.cost import decode_seconds, experts_seconds, prefill_seconds
from umm.errors import InputError, MachineError
from umm.machines import machine
from umm.machines.drafts.measured_serving import aic_serving, read_serving_tables
from umm.machines.files import tables_beside

ATTENTION = (
    "op_name,attn_dtype,kv_cache_dtype,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,"
    "window_size,latency"
)
EXPERTS = (
    "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,distribution,"
    "latency"
)
DECODE = "generation_attention,bfloat16,bfloat16,64,1,4095,32,8,128,,1.0"
PREFILL = "context_attention,bfloat16,bfloat16,4,2048,0,32,8,128,0,2.0"
MIXTURE = "bfloat16,256,4096,14336,2,8,1,1,power_law_1.01,3.0"


@pytest.fixture(autouse=True)
def own_config_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def table(tmp_path, head, *rows):
    path = tmp_path / f"{len(head)}.csv"
    path.write_text("\n".join([head, *rows, ""]))
    return path


@pytest.fixture
def mine(tmp_path):
    paths = table(tmp_path, ATTENTION, DECODE, PREFILL), table(tmp_path, EXPERTS, MIXTURE)
    good("machine", "import", "--kernels", *paths, "mine", "--from", "h100-8 kernels=trtllm")
    return machine("mine")


def test_rows_count_at_their_shapes_and_less_the_farther_a_shape_is(mine):
    """A kernel measured at 1 ms takes 1 ms; 8 times the keys and other heads are as the law."""
    law = machine("h100-8", kernels="trtllm")
    keys = np.array([4096, 5000, 2**20])
    took, plain = (decode_seconds(x, "bfloat16", 64, keys, 32, 8, 128, 128, warm=True) for x in (mine, law))
    assert took[0] == pytest.approx(1e-3)
    ratio = took / plain
    assert abs(np.log(ratio[0])) > abs(np.log(ratio[1])) > 0.01
    assert ratio[2] == pytest.approx(1.0)
    other = [float(decode_seconds(x, "bfloat16", 64, 4096, 32, 8, 64, 64)) for x in (mine, law)]
    assert other[0] == other[1]
    assert float(prefill_seconds(mine, "bfloat16", "bfloat16", 4, 2048, 32, 8, 128, 128)) == pytest.approx(
        2e-3
    )
    shape = ("bfloat16", 256, 4096, 14336, 2, 8)
    assert experts_seconds(mine, *shape, skew=1.01, warm=True) == pytest.approx(3e-3)
    assert experts_seconds(mine, *shape, warm=True) == experts_seconds(law, *shape, warm=True)


def test_numbers_that_are_set_change_what_was_measured_by_as_much_as_the_law(mine):
    """Whichever of two machines is asked first."""
    faster = machine("mine", {"devices.memory_bandwidth": "x2"})
    shape = ("bfloat16", 64, 4096, 32, 8, 128, 128)
    law, set_law = (
        float(decode_seconds(x, *shape, warm=True))
        for x in (
            machine("h100-8", kernels="trtllm"),
            machine("h100-8", {"devices.memory_bandwidth": "x2"}, kernels="trtllm"),
        )
    )
    assert float(decode_seconds(faster, *shape, warm=True)) == pytest.approx(1e-3 * set_law / law)
    assert float(decode_seconds(mine, *shape, warm=True)) == pytest.approx(1e-3)


def test_a_deployment_says_which_share_of_its_times_tables_decide(mine):
    asked = ["serve", "--model", "mixtral-8x7b", "--tp", "1", "--kernels", "trtllm", "--input", "4000"]
    asked += ["--set", "devices.memory=141GB", "--machine"]
    shares = json.loads(good(*asked, "mine", "--concurrency", "64", "--json"))
    assert 0.0 < shares["tpot_by_tables"] <= 1.0
    assert "of TPOT; laws the rest" in good(*asked, "mine", "--concurrency", "64")
    assert "tpot_by_tables" not in json.loads(good(*asked, "h100-8", "--json"))


@pytest.mark.parametrize(
    ("head", "row", "result"),
    [
        (EXPERTS, MIXTURE.replace("256", "many"), "num_tokens must be a number of at least 1"),
        (EXPERTS, MIXTURE.replace("256", "256.5"), "num_tokens must be a whole number"),
        (EXPERTS, MIXTURE.replace("256", "1e300"), "num_tokens must be a whole number below"),
        (EXPERTS, MIXTURE.replace("3.0", "0"), "latency must be more than 0"),
        (ATTENTION, DECODE.replace("4095", "-1"), "step must be a number of at least 0"),
        (ATTENTION.replace("step", "steps"), DECODE, "step"),
    ],
)
def test_a_row_that_is_none_is_refused(tmp_path, head, row, result):
    with pytest.raises(InputError, match=f"row 1 is no attention or experts: .*{result}"):
        read_serving_tables([table(tmp_path, head, row)])


def test_the_least_time_counts_and_rows_of_other_kernels_are_left_out(tmp_path):
    rows, left = read_serving_tables([
        table(tmp_path, EXPERTS, MIXTURE, MIXTURE.replace("3.0", "2.0"), MIXTURE.replace("bfloat16", "int3")),
        table(tmp_path, ATTENTION, DECODE.replace("generation_attention", "generation_mla")),
    ])  # fmt: skip
    assert list(rows.values()) == [2e-3]
    assert left == {"experts of int3": 1, "layers with projections": 1}


def test_experts_that_may_have_run_another_splits_tactics_are_left_out(tmp_path):
    """4 experts of 512 columns of a rank by two splits of a model share a file; 8 have their own."""
    head = EXPERTS + ",kernel_source"
    rows, left = read_serving_tables([
        table(tmp_path, head, *(f"{line},moe_torch_flow_cutlass" for line in (
            "fp8,64,4096,1024,8,16,2,4,balanced,0.4", "fp8,64,4096,2048,8,16,4,4,balanced,0.1",
            "fp8,64,4096,1024,8,16,2,2,balanced,0.1",
        )))
    ])  # fmt: skip
    assert left == {"experts whose tuned tactics may be of another split": 2}
    assert [key[1] for key in rows] == ["float8 4096 1024 8 16 2 2 0"]


def test_a_machine_without_an_engines_kernels_and_a_damaged_table_are_refused(mine, tmp_path):
    rows = table(tmp_path, EXPERTS, MIXTURE)
    refused = command("machine", "import", "--kernels", rows, "other", "--from", "l20-8")
    assert refused.exit_code == 2
    assert "attention or experts, of which the file of l20-8 has no kernels" in refused.output
    for text, result in (
        ("kernel\n", "has not the columns"),
        ("kernel,format,sizes,seconds\ndecode,x,1 2,1\n", "line 2"),
    ):
        tables_beside(mine.source_path)[1].write_text(text)
        with pytest.raises(MachineError, match=result):
            machine("mine")


def test_tables_of_an_engine_come_with_its_multiplies_of_the_same_version_or_the_newest(tmp_path):
    for kind, version in (
        ("gemm", "0.9.0"),
        ("moe", "0.9.0"),
        ("moe", "0.24.0"),
        ("generation_mla", "0.24.0"),
    ):
        folder = tmp_path / "h100_sxm" / kind / "vllm" / version
        folder.mkdir(parents=True)
        (folder / f"{kind}_perf.parquet").touch()
    paths = aic_serving(tmp_path / "h100_sxm/gemm/vllm/0.9.0/gemm_perf.parquet")
    assert [(x.name, x.parent.name) for x in paths] == [
        ("generation_mla_perf.parquet", "0.24.0"), ("moe_perf.parquet", "0.9.0")
    ]  # fmt: skip

"""Modules in eager PyTorch beside a public profile of one, kernel by kernel.

The profile: Qwen1.5-0.5B-Chat in bfloat16, 16 prompts of 559 tokens on one H100, by the PyTorch and the
transformers of its day. Its kernels by operator and size, as github.com/AMD-AGI/TraceLens reports them at
410dbdea, tests/traces/h100/Qwen_Qwen1.5-0.5B-Chat__1016005_perf_report_csvs/unified_perf_summary.csv.
"""

import json
from collections import Counter

import pytest
from command import record, umm
from made_profiles import event

from umm.errors import InputError
from umm.machines import machine
from umm.torch.eager import kernels

torch = pytest.importorskip("torch", reason="torch is not installed; make test-frameworks has it")

from qwen15 import qwen  # noqa: E402
from torch import nn  # noqa: E402

GEMM, FLASH, PASS = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_execute",
    "flash_fwd_kernel",
    "elementwise_kernel",
)
HEADS, WIDE, TOKENS = [16, 16, 559, 64], [16, 559, 1024], 16 * 559
# Operator, sizes of its operands, kernel, calls, and microseconds of all of them.
QWEN = [
    ("aten::mm", [[TOKENS, 1024], [1024, 2816]], GEMM, 48, 4015.501),
    ("aten::_flash_attention_forward", [HEADS] * 3, FLASH, 24, 2722.705),
    ("aten::addmm", [[1024], [TOKENS, 1024], [1024, 1024]], GEMM, 72, 2266.292),
    ("aten::copy_", [HEADS] * 2, PASS, 72, 2108.187),
    ("aten::cat", [HEADS], PASS, 48, 2014.326),
    ("aten::mm", [[TOKENS, 2816], [2816, 1024]], GEMM, 24, 1814.774),
    ("aten::add", [HEADS] * 2, PASS, 48, 1671.096),
    ("aten::mul", [WIDE, [16, 559, 1]], PASS, 49, 1608.923),
    ("aten::mul", [HEADS, [1, 1, 559, 64]], PASS, 48, 1537.849),
    ("aten::copy_", [WIDE] * 2, PASS, 49, 1431.672),
    ("aten::pow", [WIDE], PASS, 49, 1300.795),
    ("aten::mul", [[1024], WIDE], PASS, 49, 1233.979),
    ("aten::mul", [[16, 559, 2816]] * 2, PASS, 24, 1227.131),
    ("aten::mul", [HEADS, [1, 1, 559, 64]], PASS, 48, 1141.883),
    ("aten::silu", [[16, 559, 2816]], PASS, 24, 925.115),
    ("aten::copy_", [WIDE] * 2, PASS, 49, 898.427),
    ("aten::add", [WIDE] * 2, PASS, 48, 854.619),
    ("aten::mm", [[TOKENS, 1024], [1024, 1024]], GEMM, 24, 758.140),
    ("aten::mean", [WIDE], "reduce_kernel", 49, 743.327),
    ("aten::copy_", [[16, 559, 16, 64]] * 2, PASS, 24, 658.080),
    ("aten::neg", [[16, 16, 559, 32]], PASS, 48, 587.328),
    ("aten::mm", [], "Memset (Device)", 168, 143.047),
    ("aten::add", [[16, 559, 1]], PASS, 49, 81.797),
    ("aten::rsqrt", [[16, 559, 1]], PASS, 49, 79.073),
    ("aten::index_select", [[151936, 1024], [TOKENS]], "indexSelectLargeIndex", 1, 51.776),
    ("aten::bmm", [[1, 32, 1], [1, 1, 559]], "cutlass_80_simt_sgemm_128x32", 1, 3.520),
    ("aten::cat", [[1, 559, 32]] * 2, PASS, 1, 3.456),
    ("aten::mul", [[1, 559, 64]], PASS, 2, 3.136),
    ("aten::copy_", [[1, 559, 64]] * 2, PASS, 2, 2.975),
    ("aten::copy_", [[1, 1, 559]] * 2, PASS, 1, 2.592),
    ("aten::cos", [[1, 559, 64]], PASS, 1, 2.080),
    ("aten::sin", [[1, 559, 64]], PASS, 1, 2.016),
    ("aten::arange", [], PASS, 1, 1.504),
    # Of a mask that hides nothing, whose elements eager PyTorch looks at:
    ("aten::all", [[16, 559]], "reduce_kernel", 1, 4.128),
    ("aten::_local_scalar_dense", [], "Memcpy DtoH (Device -> Pinned)", 1, 2.368),
    ("aten::eq", [[16, 559]], PASS, 1, 1.856),
]


def test_operations_are_those_of_the_profile():
    """As many of each operator; a copy is cast or made contiguous, and rows are looked up by another name."""
    measured = Counter()
    for operator, _, kernel, calls, _ in QWEN[:-3]:
        measured[operator.removeprefix("aten::")] += calls * (not kernel.startswith("Memset"))
    launched = Counter(x.name.removeprefix("aten::") for x in kernels(*qwen(), machine("h100-8")))
    launched["copy_"] = launched.pop("clone") + launched.pop("_to_copy")
    launched["index_select"] = launched.pop("embedding")
    launched["_flash_attention_forward"] = launched.pop("scaled_dot_product_attention")
    assert launched == measured


def test_a_public_profile_of_a_model_is_explained(tmp_path):
    """31.9 ms, to which nothing was fitted; multiplies of one size are one row."""
    events, at, ident = [], 1000.0, 0
    for operator, sizes, name, calls, micros in QWEN:
        for _ in range(calls):
            ident += 1
            known = {"External id": ident}
            events.append(event("cpu_op", operator, at - 5, 3, known | {"Input Dims": sizes}, 9, 9))
            launched = known | {"device": 0, "stream": 7, "correlation": ident}
            events.append(event("kernel", name, at, micros / calls, launched))
            at += micros / calls + 1
    path = tmp_path / "qwen.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    asked = ["--profile", path, "--machine", "h100-8", "--module", "qwen15:qwen"]
    answer = record("compare", *asked)
    assert answer["profile"]["kernels_s"] == pytest.approx(31.9e-3, rel=0.01)
    assert answer["explained"] > 0.9
    assert answer["predicted_kernels_s"] == pytest.approx(31.9e-3, rel=0.05)
    rows = {x["size"]: x for x in answer["rows"] if x["kind"] == "multiply"}
    assert rows[f"{TOKENS} x 2816 x 1024"]["matched_by"] == "shape"
    for row in rows.values():
        if row["measured"] and row["measured"]["seconds"] > 1e-5:
            assert row["predicted"]["seconds"] == pytest.approx(row["measured"]["seconds"], rel=0.2)


def test_gradients_are_launched_too():
    """Two multiplies where forward has one, except of the first layer's positions; attention twice."""
    forward, both = (kernels(*qwen(2), machine("h100-8"), back) for back in (False, True))

    def count(launched, kind):
        return sum(x.kind == kind for x in launched)

    assert count(both, "multiply") == 3 * count(forward, "multiply") - 2
    assert count(both, "attention") == 2 * count(forward, "attention") == 4
    assert {"aten::silu_backward", "aten::embedding_dense_backward"} <= {x.name for x in both}


@pytest.mark.parametrize("kind", [nn.Conv2d, nn.ConvTranspose2d])
def test_multiplies_of_convolutions_have_the_flop_that_torch_counts(kind):
    """Forward, and by the weights of both and the input of the second."""
    from torch.utils.flop_counter import FlopCounterMode

    module, x = nn.Sequential(kind(3, 8, 3), nn.ReLU(), kind(8, 4, 2, 2)), torch.randn(2, 3, 8, 8)
    with FlopCounterMode(display=False) as counted:
        module(x).sum().backward()
    launched = [y for y in kernels(module, (x,), machine("h100-8"), True) if y.kind == "multiply"]
    assert len(launched) == 5
    assert sum(2 * y.shape[0] * y.shape[1] * y.shape[2] for y in launched) == counted.get_total_flops()


def test_what_has_no_kernels_is_refused_in_a_line(tmp_path):
    with pytest.raises(InputError, match="int is not an"):
        kernels(3, (), machine("h100-8"))
    with pytest.raises(InputError, match="launches no kernel"):
        kernels(nn.Identity(), (torch.zeros(2),), machine("h100-8"))
    with pytest.raises(InputError, match="does not run without elements"):
        kernels(nn.Linear(4, 4), (torch.zeros(2, 3),), machine("h100-8"))
    path = tmp_path / "one.json"
    path.write_text(json.dumps([event("kernel", "gemm", 5, 20, {"device": 0})]))
    asked = ["--profile", path, "--module", "os:getcwd"]
    assert umm("compare", "--module", "os:getcwd").stderr.startswith("error: --module is of a --profile")
    assert umm("compare", *asked, "--machine", "h100-8", "-m", 64).stderr.startswith(
        "error: --module decides"
    )
    assert umm("compare", *asked).stderr.startswith("error: --profile needs the machine")

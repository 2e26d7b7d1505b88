"""Why one schedule takes longer than another, in words."""

import re

import pytest
from command import good, record, times_only
from readable import MACHINE

import umm
from umm.cli.printed.explanation import explain

PROBLEM = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="col", ranks=2)


def explained(policy, **options):
    schedule = umm.schedule(PROBLEM, MACHINE, stationary="C", policy=policy, offset="none", **options)
    return explain(schedule, umm.run(schedule)).splitlines()


def test_direct_in_steps_waits_for_the_first_tiles_of_the_list():
    """Rank 1's list starts with 256 ns of gets that nothing hides; the link is the port of rank 0."""
    assert explained("direct", max_gemms=1) == [
        "direct: 768 ns by sim",
        "rank 1 has the longest steps, 3 in 768 ns if none overlapped the next",
        "  multiplies 512 ns, transfers 256 ns, 0 s of them overlapped",
        "  step 0: transfers last 256 ns longer than multiplies",
        "    longest: get A(0,0) r0 → r1 on g0 up, 128 ns",
        "  step 1: multiplies last 256 ns longer than transfers",
        "  step 2: multiplies last 256 ns longer than transfers",
        "critical path: gemm 67 %, get 33 %",
        "  rank 1 waited 256 ns for get A(0,0) r0 → r1 on g0 up",
    ]


def test_greedy_multiplies_what_is_there_while_it_gets_the_rest():
    """Rank 1's second op needs nothing: both ranks take the 512 ns of their gemms."""
    lines = explained("greedy", max_gemms=1)
    assert lines[:2] == [
        "greedy: 512 ns by sim",
        "rank 0 has the longest steps, 2 in 512 ns without latency and contention",
    ]
    assert lines[-1] == "critical path: gemm 100 %"


ASKED = ["-m", 96, "-n", 96, "-k", 96, "--ranks", 4, "--machine", "pvc-12", "--policy", "exhaustive"]


@times_only()
def test_simulate_explains_on_demand():
    out = good("simulate", *ASKED, "--explain")
    assert re.search(r"exhaustive: .* by sim\nrank \d+ has the longest steps", out)
    assert "% of the best steps" in " ".join(out.split())
    assert "longest steps" not in good("simulate", *ASKED)


@times_only()
def test_a_chain_is_explained_by_its_statements():
    """One decoded token: weights are read, sums take the latency of a read; no line is over 80 columns."""
    asked = ("--chain", "transformer-layer", "--model", "llama-3-70b", "--decode", "--context", "8K")
    out = good("simulate", *asked, "--dtype", "bf16", "--explain")
    assert re.search(
        r"verdict +Bound by memory bandwidth \(0\.967 flop/byte\), 6\d % of the critical\s+path", out
    )
    assert re.search(r"\d+\.\d % +\d.* µs  Y = G·W2: memory bandwidth\n", out)
    assert re.search(r"% +\d.* µs  moving R: latency\n", out)
    assert max(map(len, out.splitlines())) <= 80


def test_statements_into_one_tensor_have_a_line_each():
    """dX is the sum of three products; each has a line."""
    chain = umm.chain("attention", hidden=512, heads=4, tokens=256, backward=True).laid_out(
        "megatron", ranks=2
    )
    lines = explain(schedule := umm.schedule(chain, "h100-8"), umm.run(schedule))
    assert {x for x in ("dQ·Wqᵀ", "dK·Wkᵀ", "dV·Wvᵀ") if x in lines} == {"dQ·Wqᵀ", "dK·Wkᵀ", "dV·Wvᵀ"}


def test_a_machine_from_a_file_has_a_verdict_of_its_own(tmp_path):
    """Decoding waits for memory whatever the machine's file is called."""
    from umm.machines.files import named_file

    path = tmp_path / "mine.toml"
    path.write_text(named_file("h100-8").read_text(encoding="utf-8"), encoding="utf-8")
    schedule = umm.schedule(umm.Problem(m=16, n=8192, k=8192, dtype="bfloat16", ranks=1), umm.machine(path))
    assert umm.run(schedule).bound_by == "memory bandwidth"


def test_simulate_explains_in_json_too():
    result = record("simulate", *ASKED, "--explain")
    assert result["explained"][0].startswith("exhaustive: ")
    assert result["options"]["gap"] == pytest.approx(0)

"""Why one schedule takes longer than another, in words."""

import re

import pytest
from command import good, record
from readable import MACHINE

import umm
from umm.algorithms.universal.explanation import explain

PROBLEM = umm.Problem(m=8, n=8, k=8, a="col", b="row", c="col", ranks=2)


def explained(policy, **options):
    schedule = umm.schedule(PROBLEM, MACHINE, stationary="C", policy=policy, offset="none", **options)
    return explain(schedule, umm.run(schedule)).splitlines()


def test_direct_in_steps_waits_for_the_first_tiles_of_the_list():
    """Rank 1's list starts with 256 ns of gets that nothing hides; the link is the port of rank 0."""
    assert explained("direct", max_gemms=1) == [
        "direct: 768 ns by the step model, 768 ns by sim",
        "rank 1 costs most: 3 steps if it waited after each, 768 ns; gemms 512 ns, communication 256 ns, "
        "0 s of it overlapped",
        "  step 0: communication bound by 256 ns; longest: get A(0,0) r0 → r1 on g0 up, 128 ns",
        "  step 1: computation bound by 256 ns",
        "  step 2: computation bound by 256 ns",
        "critical path: gemm 67 %, get 33 %",
        "  rank 1 waited 256 ns for get A(0,0) r0 → r1 on g0 up",
    ]


def test_greedy_multiplies_what_is_there_while_it_gets_the_rest():
    """Rank 1's second op needs nothing: both ranks take the 512 ns of their gemms."""
    lines = explained("greedy", max_gemms=1)
    assert lines[0] == "greedy: 512 ns by the step model, 512 ns by sim"
    assert lines[-1] == "critical path: gemm 100 %"


ASKED = ["-m", 96, "-n", 96, "-k", 96, "--ranks", 4, "--machine", "pvc-12", "--policy", "exhaustive"]


def test_simulate_explains_on_demand():
    out = good("simulate", *ASKED, "--explain")
    assert re.search(r"exhaustive: .* by the step model, .* by sim", out)
    assert "% of the best steps" in " ".join(out.split())
    assert "by the step model" not in good("simulate", *ASKED)


def test_simulate_explains_in_json_too():
    found = record("simulate", *ASKED, "--explain")
    assert found["explained"][0].startswith("exhaustive: ")
    assert found["options"]["gap"] == pytest.approx(0)

"""``--algorithm`` at the command line: simulated, executed and checked, and refused in one line."""

import json

import pytest
from command import good, times_only, umm

SIZES = ["-m", 48, "-n", 40, "-k", 32, "--ranks", 4, "--machine", "h100-8"]


@times_only()
def test_another_algorithm_is_simulated_with_its_options():
    result = json.loads(good("simulate", *SIZES, "--algorithm", "summa", "--with", "grid=1x4", "--json"))
    assert result["predicted"]["makespan_s"] > 0
    assert "choices   summa: grid 1x4" in good(
        "simulate", *SIZES, "--algorithm", "summa", "--with", "grid=1x4"
    )


def test_another_algorithm_is_executed_and_checked_from_any_layouts():
    layouts = ["--a", "row", "--b", "col", "--c", "2d@2"]
    result = json.loads(
        good("run", *SIZES, *layouts, "--algorithm", "cannon", "--check", "--iters", 1, "--json")
    )
    assert result["measured"]["ok"]


@pytest.mark.parametrize(
    ("flags", "answer"),
    [
        (["--algorithm", "canon"], "algorithm 'canon' is unknown; choose from universal, "),
        (["--algorithm", "cannon", "--ranks", 5], "5 ranks do not fit p = q²; choose 4"),
        (["--algorithm", "cannon", "--prefetch", 3], "--prefetch is for the universal algorithm"),
        (["--algorithm", "cannon", "--with", "x=3"], "'x' is not an option of cannon"),
        (["--algorithm", "summa", "--with", "panel"], "--with 'panel' is not NAME=VALUE"),
        (["--with", "panel=4"], "--with is for other algorithms"),
    ],
)
def test_what_an_algorithm_does_not_take_is_refused(flags, answer):
    refused = umm("simulate", *SIZES, *flags)
    assert refused.exit_code == 2
    assert answer in refused.output
    assert refused.output.count("\n") == 1

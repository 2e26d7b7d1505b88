"""``umm simulate --explain plan``: the plan after the prediction, the same as umm plan's."""

import json

from click.testing import CliRunner

from umm.cli.main import main

ASKED = ["-m", "64", "-n", "96", "-k", "32", "--a", "row", "--b", "col", "--c", "2d", "--machine", "h100-8"]


def record(*words):
    return json.loads(CliRunner().invoke(main, [*words, *ASKED, "--json"]).stdout)


def test_explain_plan_has_the_entries_of_umm_plan():
    assert record("simulate", "--explain", "plan")["plan"] == record("plan")["plan"]
    assert "plan" not in record("simulate", "--explain")


def test_explain_plan_prints_jobs_and_moves_after_the_verdict():
    text = CliRunner().invoke(main, ["simulate", "--explain", "plan", *ASKED]).stdout
    assert text.index("verdict") < text.index("C = gemm(A, B)") < text.index("A moved")

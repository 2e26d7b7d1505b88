"""Programs that are emitted: each compiles and says its layouts; umm's run here, others in frameworks."""

import re
import runpy
import sys

import pytest
from command import good, umm
from emit_problems import NOT_IN_JAX, PROBLEMS, problem_of, written

from umm import Layout, Problem
from umm.emit.program import emit
from umm.errors import InputError, LayoutError


def constants(path):
    """The values that a program assigns in one line, by name."""
    return dict(re.findall(r"^([A-Z_]+) = (.+?)(?:  #.*)?$", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("target", ["torch", "jax", "umm"])
def test_a_program_compiles_and_ends_in_a_line(name, target, tmp_path):
    if target == "jax" and name in NOT_IN_JAX:
        with pytest.raises(LayoutError, match="JAX cannot have A in cyclic:2x3:2x2: a shard is one of equal"):
            written(name, target, tmp_path)
        return
    text = written(name, target, tmp_path).read_text()
    compile(text, name, "exec")
    assert text.endswith("\n")
    assert not re.search(r"<[a-z_]+>", text)


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_program_of_umm_gives_the_right_product(name, tmp_path, monkeypatch, capsys):
    path = written(name, "umm", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "--check"])
    result = runpy.run_path(str(path), run_name="__main__")
    assert re.search(r"predicted on h100-8: [0-9.]+ [mµ]s\nC is right: max error", capsys.readouterr().out)
    assert result["PROBLEM"] == problem_of(name)
    assert result["SCHEDULE"].options["prefetch"] == 1


@pytest.mark.parametrize("name", ["one axis", "two axes", "uneven", "replicated"])
def test_placements_of_a_program_are_the_layouts_asked_for(name, tmp_path):
    output = constants(written(name, "torch", tmp_path))
    problem = problem_of(name)
    for matrix in "ABC":
        placements = re.findall(r"(Shard\(\d\)|Replicate)", output[matrix])
        result = Layout.from_dtensor(eval(output["MESH"]), placements, problem.shape(matrix))
        assert result == problem.layout(matrix)


@pytest.mark.parametrize("stationary", ["A", "B", "C"])
def test_what_stays_in_place_is_not_redistributed(stationary):
    """On a mesh of 2 x 2 all three lie in 2d, and each of them can stay."""
    problem = Problem(m=8, n=8, k=8, ranks=4, a="2d", b="2d", c="2d")
    text = emit("torch", problem, "h100-8", stationary, {}, "")
    assert f"{stationary}_THERE = [Shard(0), Shard(1)]" in text or stationary == "C"
    assert ("partial sums of C" in text) == (stationary != "C")


def test_one_axis_is_a_plan_of_parallelize_module(tmp_path):
    text = written("one axis", "torch", tmp_path).read_text()
    assert "plan = ColwiseParallel(input_layouts=A[0], output_layouts=C[0], use_local_output=False)" in text
    problem = Problem(m=8, n=8, k=8, ranks=4, a="col", b="row", c="row")
    assert "RowwiseParallel" in emit("torch", problem, "h100-8", "A", {}, "")


def test_ranges_too_many_to_list_are_refused():
    problem = Problem(m=512, n=512, k=512, ranks=4, a="cyclic:4x4:2x2", b="row", c="row")
    with pytest.raises(
        InputError, match=r"a torch program would list [0-9,]+ ranges, for DTensor has no one mesh"
    ):
        emit("torch", problem, "h100-8", "C", {}, "")


def test_a_search_prints_the_code_alone():
    asked = [
        "search",
        "-m",
        64,
        "-n",
        48,
        "-k",
        40,
        "--ranks",
        4,
        "--a",
        "row",
        "--b",
        "col",
        "--c",
        "all",
        "--memory",
        "none",
    ]
    for target in ("torch", "jax", "umm"):
        text = good(*asked, "--emit", target)
        compile(text, target, "exec")
        assert text.startswith('"""C = AB on 4 ranks: m=64, n=48, k=40, float32.')
        assert "umm predicts" in text
    refused = umm(*asked, "--emit", "jax", "--json")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "leave out --json" in refused.stderr
    refused = umm(
        "search", "-m", 64, "-n", 48, "-k", 40, "--ranks", 4, "--a", "cyclic:8x8:2x2", "--emit", "jax"
    )
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "JAX cannot have A in cyclic:8x8:2x2" in refused.stderr


def test_a_program_says_where_its_c_ends_otherwise_than_is_predicted():
    """It ends in every replica, and the prediction was of one that is cut over them."""
    asked = ["search", "--machine", "h100-8", "-m", 64, "-n", 64, "-k", 256, "--ranks", 4, "--a", "row@2"]
    asked += ["--b", "row@4", "--c", "2d@2", "--emit", "torch", "--final"]
    cut, complete = (" ".join(umm(*asked, x).output.split()) for x in ("reduce-scatter", "complete"))
    says = "that ends with C cut over its replicas by rows, this program with C in every replica"
    assert says in cut
    assert "this program with" not in complete

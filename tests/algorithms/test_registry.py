"""Algorithms found by name, that of docs/how-to among them, and the page that lists them."""

import re
from pathlib import Path

import numpy as np
import pytest
from command import good

import umm
from umm.algorithms.algorithm import Algorithm
from umm.algorithms.scheduling import algorithms
from umm.algorithms.writing import counted
from umm.errors import ProblemError, ScheduleError

DOCS = Path(__file__).parents[2] / "docs"
TURNS = re.findall(
    r"```python\n(.*?)```", (DOCS / "how-to/add-an-algorithm.md").read_text(encoding="utf-8"), re.DOTALL
)[0]


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The how-to's package on the import path, as pip would lay it there."""
    (tmp_path / "turns_package.py").write_text(TURNS)
    info = tmp_path / "turns_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: turns-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[umm.algorithms]\nturns = turns_package:ALGORITHM\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_an_installed_package_s_algorithm_is_found_by_its_name(installed):
    """It was not there when the others were looked up; it moves as stated, and its product is right."""
    problem = umm.Problem(m=8, n=8, k=8, a="row", b="row", c="row", ranks=4, dtype="float64")
    schedule = umm.schedule(problem, "h100-8", algorithm="turns")
    assert "turns" in umm.algorithms.names()
    moved = counted(schedule)
    assert (moved.words, moved.messages) == (8 * 8 * 3 // 4, 3)
    a = np.arange(64.0).reshape(8, 8)
    assert np.array_equal(umm.run(schedule, "numpy", operands=(a, a)).result, a @ a)


def test_it_is_redistributed_in_and_out_at_the_command_line_too(installed):
    flags = ["-m", 12, "-n", 9, "-k", 10, "--ranks", 3, "--machine", "h100-8", "--algorithm", "turns"]
    text = good("run", *flags, "--with", "slots=3", "--a", "col", "--c", "2d:3x1@1", "--check", "--iters", 1)
    assert "C is right" in text


def test_its_options_and_ranks_are_checked_like_any_other_s(installed):
    problem = umm.Problem(m=8, n=8, k=8, ranks=4)
    with pytest.raises(ScheduleError, match="slots = 0 is not possible; it must be a whole number ≥ 1"):
        umm.schedule(problem, "h100-8", algorithm="turns", slots=0)


def test_sizes_that_an_algorithm_refuses_are_told_in_its_words():
    cannon = algorithms()["cannon"]
    even = Algorithm(
        "even", "", "", cannon.native, cannon.write,
        lambda problem, machine: None if problem.k % 2 == 0 else f"k is {problem.k}; choose {problem.k + 1}",
        mesh=cannon.mesh, takes=cannon.takes,
    )  # fmt: skip
    machine = umm.machine("h100-8")
    even.check(umm.Problem(m=4, n=4, k=4, ranks=4), machine, {})
    with pytest.raises(ProblemError, match="even cannot multiply this: k is 3; choose 4"):
        even.check(umm.Problem(m=4, n=4, k=3, ranks=4), machine, {})

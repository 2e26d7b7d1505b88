"""Executors by name, that of docs/how-to among them, and the message where one cannot be had."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import umm as umm_command

import umm
from umm import checks as product
from umm.cli.answers.doctor import executor_rows
from umm.errors import ExecutorUnavailableError, InfeasibleError, InputError
from umm.executor import executor, executor_names, times_of
from umm.traces.trace import Trace

PAGE = Path(__file__).parent.parent / "docs/how-to/add-an-executor.md"
SLOTH = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)[0]
SILENT = re.sub(r"    times: Times = .*\n|, times=self.times", "", SLOTH).replace("Sloth", "Silent")
ENTRIES = """[umm.executors]
sloth = sloth_package:Sloth
silent = sloth_package:Silent
quick = sloth_package.quick:Quick
lonely = sloth_package_without_extra:Lonely
older = sloth_package:Older
"""
METADATA = "Metadata-Version: 2.1\nName: sloth-package\nVersion: 1.0\nProvides-Extra: quick\n"


def install(folder):
    """Lay a package with five executors into a folder, as pip would; two need missing packages."""
    (folder / "sloth_package.py").write_text(SLOTH + SILENT)
    info = folder / "sloth_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRIES)


@pytest.fixture(autouse=True)
def installed(tmp_path, monkeypatch):
    """A package with five executors on the import path."""
    install(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.fixture
def schedule():
    return umm.schedule(umm.Problem(m=8, n=8, k=8, ranks=2), "h100-8", stationary="C")


def test_an_installed_package_s_executor_is_found_and_given_its_options(schedule):
    """Row×row→row over 2 ranks has 6 actions; at a pace of 2 a second they take 3 s."""
    assert {"numpy", "sim", "sloth"} <= set(executor_names())
    trace = umm.run(schedule, executor="sloth", pace=2.0)
    assert isinstance(trace, Trace)
    assert (trace.source, trace.makespan_s) == ("sloth", 3.0)
    assert executor("sloth").makespan(schedule) == 6.0


def test_an_entry_point_that_its_module_does_not_have_is_refused_in_a_line():
    """As where one of two packages is older; umm doctor, which asks for every executor, goes on."""
    with pytest.raises(
        ExecutorUnavailableError, match=r"older of umm\.executors .*Older.*install sloth-package"
    ):
        executor("older")
    assert "install sloth-package again" in str([x for x in executor_rows() if x["name"] == "older"])


def test_installed_packages_are_looked_through_once(schedule, monkeypatch):
    umm.run(schedule)
    monkeypatch.setattr("umm.plugins._read_plugins", lambda: pytest.fail("a second look"))
    umm.run(schedule)
    assert "sloth" in executor_names()


def test_a_new_process_finds_what_was_installed_since(tmp_path):
    fresh = tmp_path / "site"
    fresh.mkdir()
    install(fresh)
    result = subprocess.run(
        [sys.executable, "-c", "from umm.executor import executor; print(type(executor('sloth')).__name__)"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(fresh), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == "Sloth\n"


def test_a_package_installed_in_the_meantime_is_found_too(tmp_path, monkeypatch):
    """Its folder was on the path, and empty, when the others were looked up."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *(x for x in sys.path if x != str(tmp_path))])
    assert "sloth" not in executor_names()
    install(folder)
    assert type(executor("sloth")).__name__ == "Sloth"


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(
        InputError, match=r"executor 'snail' is unknown; choose from .*numpy.*sim, simpy, sloth"
    ):
        executor("snail")


def test_an_option_the_executor_does_not_take_is_answered_with_those_it_takes():
    with pytest.raises(
        InputError, match="executor sloth: got an unexpected keyword argument 'speed'; it takes pace"
    ):
        executor("sloth", speed=2)


def test_a_missing_extra_is_answered_with_its_pip_line():
    with pytest.raises(ExecutorUnavailableError, match=r"pip install 'sloth-package\[quick\]'") as caught:
        executor("quick")
    assert caught.value.exit_code == 5


def test_a_missing_module_without_an_extra_is_answered_with_its_name():
    with pytest.raises(ExecutorUnavailableError, match="pip install sloth_package_without_extra"):
        executor("lonely")


def test_an_executor_says_itself_what_its_times_are(schedule):
    """The command asks the executor: one of another package that predicts is refused like sim is."""
    result = {name: times_of(executor(name)) for name in ("sim", "numpy", "sloth", "silent")}
    assert result == {"sim": "predicted", "numpy": "meaningless", "sloth": "predicted", "silent": "measured"}
    assert umm.run(schedule, "sloth").times == "predicted"
    refused = umm_command("run", "-m", 8, "-n", 8, "-k", 8, "--ranks", 2, "--executor", "sloth")
    assert (refused.exit_code, refused.stderr) == (
        2, "error: sloth predicts, it does not execute; use umm simulate\n"
    )  # fmt: skip
    assert umm_command("run", "-m", 8, "-n", 8, "-k", 8, "--ranks", 2, "--executor", "silent").exit_code == 0


def test_an_executor_that_cannot_run_here_says_why(schedule):
    with pytest.raises(ExecutorUnavailableError, match="never finishes; give it pace=1"):
        umm.run(schedule, executor="sloth", pace=0)


def test_the_numpy_executor_is_run_by_name(schedule):
    a, b = np.eye(8, dtype=np.float32), np.arange(64, dtype=np.float32).reshape(8, 8)
    assert np.array_equal(umm.run(schedule, executor="numpy", operands=(a, b)).result, b)


def test_operands_that_do_not_fit_the_host_are_refused_before_they_are_drawn(monkeypatch):
    """A and B of 1024x1024 float32 are 8.0 MiB, and 4.0 MiB more while B is drawn."""
    monkeypatch.setattr(product, "free_memory", lambda: 2**20)
    with pytest.raises(InfeasibleError, match=r"A and B as whole matrices need 12.0 MiB .*: 11.0 MiB short"):
        product.random_operands(umm.Problem(m=1024, n=1024, k=1024))

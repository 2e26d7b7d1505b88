"""Answers kept between commands are those that a command without them gives, and spare it the search."""

import os
import shutil
import subprocess
import sys

import click
import pytest
from examples import WHOLE

from umm import kept
from umm.cli.main import COMMANDS, main

SIMULATE = "simulate --machine pvc-12 --ranks 4 -m 512 -n 1024 -k 512 --a 2d --b row --c 2d --json"
CODE = """import atexit, sys; from umm.cli import start
atexit.register(lambda: print(*sys.modules, file=sys.stderr)); start()"""


def answer(folder, command=SIMULATE):
    """Return the output of a command that keeps its answers in a folder, and the modules it imports."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE, *command.split()],
        capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "UMM_KEPT": str(folder)},
    )  # fmt: skip
    return ran.stdout, set(ran.stderr.split())


@pytest.fixture(scope="module")
def new():
    """Return the answer of a command that keeps nothing."""
    return answer("")[0]


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """Return a folder with the answers of one command, its output, and the modules it imports."""
    folder = tmp_path_factory.mktemp("first") / "kept"
    return folder, *answer(folder)


def test_an_answer_is_the_same_the_second_time_and_searches_nothing(new, first):
    folder, output, imported = first
    again = answer(folder)
    assert new == output == again[0]
    assert "umm.space.search.search" in imported - again[1]
    assert not again[1] & {"pydantic", "pandas", "plotly", "networkx", "tomllib", "importlib.metadata"}


def test_other_layouts_of_a_problem_need_no_second_search(tmp_path, first):
    folder = shutil.copytree(first[0], tmp_path / "kept")
    other = SIMULATE.replace("--b row", "--b col")
    before = len(list(folder.iterdir()))
    assert answer(folder, other)[0] == answer("", other)[0]
    assert len(list(folder.iterdir())) == before + 3  # its range, its moves, its place among the points


SPOILS = [lambda x: b"", lambda x: x[:-9], lambda x: x[:40] + b"." + x[41:]]


@pytest.mark.parametrize("turn", range(len(SPOILS) if WHOLE else 1))
def test_a_spoilt_answer_is_made_anew(tmp_path, new, first, turn):
    """Of an answer's files each is spoilt in another way than the one before."""
    folder = shutil.copytree(first[0], tmp_path / "kept")
    paths = sorted(folder.iterdir())
    assert len(paths) >= len(SPOILS)
    for number, path in enumerate(paths):
        path.write_bytes(SPOILS[(number + turn) % len(SPOILS)](path.read_bytes()))
    spoilt = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert answer(folder)[0] == new
    assert not any(path.read_bytes() == spoilt[path.name] for path in folder.iterdir())


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="Windows has no such rights")
def test_a_folder_that_others_may_write_is_left_alone(tmp_path, new):
    tmp_path.chmod(0o777)
    assert answer(tmp_path)[0] == new
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_costs_nothing_but_time(tmp_path, new):
    (tmp_path / "file").write_text("")
    assert answer(tmp_path / "file" / "kept")[0] == new


@pytest.mark.parametrize(("limit", "most"), [("MAX_ANSWERS", 4), ("MAX_BYTES", 4_500)])
def test_the_older_half_of_too_many_answers_or_bytes_is_deleted(tmp_path, monkeypatch, limit, most):
    """Of a kilobyte each the fifth is too many: three stay, the newest among them."""
    monkeypatch.setattr(kept, "_folders", [tmp_path])
    monkeypatch.setattr(kept, limit, most)
    for number in range(5):
        kept.kept("test", number, lambda: bytes(1000))
        for path in tmp_path.iterdir():
            os.utime(path, ns=(0, path.stat().st_mtime_ns - 10**9))
    assert len(list(tmp_path.iterdir())) == 3
    assert kept.kept("test", 4, lambda: None) == bytes(1000)
    assert kept.kept("test", 0, lambda: None) is None


def test_the_folder_s_variable_sets_no_flag():
    """As ``UMM_CACHE`` sets ``--cache``, the type of a chain's cache."""
    commands = [main.get_command(click.Context(main), x) for x in COMMANDS]
    flags = [flag for command in commands for flag in command.params if isinstance(flag, click.Option)]
    assert len(flags) > 100
    assert kept.VARIABLE not in {flag.envvar for flag in flags}

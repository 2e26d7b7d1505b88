"""The report of ``make kill`` on a command that cannot be killed, for it has ended by itself."""

import json
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.campaigns.kills.__main__ import COUNTS, apart
from tests.campaigns.kills.kinds import KINDS, nothing
from tests.campaigns.kills.one import NOBODY, Kind, kill


@pytest.mark.parametrize(
    ("program", "wrong"),
    [
        ("pass", ()),
        (
            "import nowhere",
            ("ended by itself with exit code 1: ModuleNotFoundError: No module named 'nowhere'",),
        ),
    ],
)
def test_a_command_that_ends_by_itself_is_nothing_wrong_unless_it_fails(tmp_path, program, wrong):
    """``python -m tests.campaigns.kills`` without ``tests`` on the path killed nobody, and all was well."""
    never = Kind(lambda folder: [sys.executable, "-c", program], lambda *_: False, nothing)
    result = kill(never, tmp_path, random.Random(0))
    assert (result.role, result.wrong) == (NOBODY, wrong)


@pytest.mark.parametrize("name", KINDS)
def test_the_command_of_every_kind_is_there(tmp_path, name):
    """A module that had moved was killed 70 times before it began."""
    words = KINDS[name].command(tmp_path)
    assert find_spec(words[words.index("-m") + 1]) if "-m" in words else Path(words[0]).exists()


def test_there_are_1000_kills_of_all_kinds_but_of_opencl():
    assert sum(COUNTS.values()) == 1000
    assert set(COUNTS) == set(KINDS) - {"opencl"}


def test_processes_and_files_of_other_jobs_are_not_seen(tmp_path):
    """Of 924 kills beside other MPI jobs five failed for files that those had left or still needed."""
    program = "import json, os; print(json.dumps([os.listdir(x) for x in ('/tmp', '/dev/shm', '/proc')]))"
    words = apart([sys.executable, "-c", program])
    if words is None:
        pytest.skip("the system permits no namespaces")
    files, segments, processes = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)
    assert (files, segments) == ([], [])
    assert sum(x.isdigit() for x in processes) == 2

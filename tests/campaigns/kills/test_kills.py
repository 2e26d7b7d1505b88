"""What ``make kill`` says of a command that cannot be killed, for it has ended by itself."""

import random
import sys

import pytest

from tests.campaigns.kills.kinds import nothing
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
    found = kill(never, tmp_path, random.Random(0))
    assert (found.role, found.wrong) == (NOBODY, wrong)

"""Closed and broken streams: the command's work is done, and its exit code says so."""

import subprocess
import sys
from pathlib import Path

import pytest

UMM = Path(sys.executable).with_name("umm")


def shell(line):
    return subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("streams", "code"),
    [
        (">&-", 0),
        ("2>&-", 0),
        (">&- 2>&- <&-", 0),
        ("2>/dev/full", 0),
        (">/dev/full", 1),
        (">/dev/full 2>&-", 1),
    ],
)
def test_a_stream_that_is_closed_or_full_is_no_traceback(tmp_path, streams, code):
    """A closed stdout is /dev/null; a file that gets its number later is not printed into."""
    out = tmp_path / "schedule.json"
    done = shell(f"'{UMM}' simulate -m 8 -n 8 -k 8 --ranks 2 --save-schedule '{out}' {streams}")
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert out.read_text().startswith("{")
    assert ("error: No space left on device" in done.stderr) == (streams == ">/dev/full")


def test_an_error_without_a_stderr_still_has_its_code():
    assert shell(f"'{UMM}' tiles -m 0 -n 8 -k 8 2>&-").returncode == 2
    assert shell(f"'{UMM}' tiles -m 0 -n 8 -k 8 2>/dev/full").returncode == 2

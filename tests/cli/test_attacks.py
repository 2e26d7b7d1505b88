"""Input that once crashed the tool or took minutes is refused in one line, soon, with little memory."""

import os
import shutil
import signal
import sqlite3
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from command import SMALL, good, times_only, umm
from counted import at_most

from umm.cli.main import main
from umm.errors import InputError, UmmError
from umm.explorer.point import machine_from
from umm.space import Store

LONG = "9" * 5000
ON = ("--machine", "h100-8", *SMALL)
CHAIN = ("simulate", "--hidden", 8, "--ffn", 8, "--tokens", 8, "--chain")


def refused(*args):
    """Return the one line, of at most 700 characters, of a command that is refused soon."""
    with at_most(calls=2_000_000):
        result = umm(*args)
    assert result.exit_code == 2, result.exception or result.output
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    assert len(result.stderr) < 700
    return result.stderr


def refuses_toml(text, tmp_path):
    """Return the answers of a machine, a chain and a file of flags to a text, and the page of a machine."""
    path = tmp_path / "deep.toml"
    path.write_text(text)
    result = [
        refused("machine", "check", path),
        refused("simulate", "--machine", path, *SMALL),
        refused("simulate", "--chain", path, "--machine", "h100-8"),
        refused("simulate", "--config", path, *SMALL),
    ]
    with pytest.raises(InputError) as page:
        machine_from(text, "deep")
    return [*result, str(page.value)]


def test_a_key_of_thousands_of_parts_is_refused_wherever_a_file_is_read(tmp_path):
    result = refuses_toml("a" + ".a" * 40_000 + " = 1\n", tmp_path)
    assert all("line 1 has a key of more than 16 dotted parts" in line for line in result), result


@pytest.mark.parametrize(("ranks", "c"), [(4, "cyclic:1x1:2x2"), (8, "cyclic:1x1:2x2@2")])
def test_many_tiny_tiles_are_simulated_soon(ranks, c):
    """The first took 25 s, the second 14 s: a plan of relays looked at thousands of like pieces in turn."""
    with times_only(), at_most(calls=12_000_000):
        good("simulate", "-m", 64, "-n", 64, "-k", 64, "--ranks", ranks, "--c", c)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_file_that_is_written_when_a_signal_comes_is_not_there(tmp_path, monkeypatch, number):
    """Of 23 partial files 19 stayed after SIGTERM."""
    monkeypatch.setattr("umm.schedules.files.to_json", lambda *_: signal.raise_signal(number))
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = umm("simulate", *ON, "--save-schedule", tmp_path / "x.json")
    finally:
        signal.signal(signal.SIGINT, usual)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "error: interrupted")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("at", [("machine", "import"), ("explore", "--no-open", "--port", 0)])
def test_a_file_that_does_not_end_is_not_read_to_its_end(at):
    assert "it is a device, not a file" in refused(*at, "/dev/zero")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not a text file in UTF-8" in refused("machine", "import", path)
    result = CliRunner().invoke(main, ["machine", "import", "-"], input=b"\xff\xfe")
    assert (result.exit_code, result.stderr) == (2, "error: stdin is not a text in UTF-8\n")


@pytest.mark.parametrize(
    "args",
    [
        ("run", *SMALL, "--option", f"x={LONG}"),
        ("run", *SMALL, "--warmup", "1" + "0" * 22),
        ("compare", *SMALL, "--warmup", "1" + "0" * 22),
        ("collective", "all-gather", "--executor", "numpy", "--warmup", "1" + "0" * 22),
        ("run", *SMALL, "--iters", LONG),
        ("run", *SMALL, "--scale", LONG),
        ("run", *SMALL, "--scale", "1e-9999999"),
        ("run", *SMALL, "--scale", "1e9999999999"),
        ("search", *ON, "--seconds", "nan"),
        ("search", *ON, "--top", LONG),
        ("search", *ON, "--price", LONG),
        ("tiles", *ON, "--as", LONG),
        ("machine", "check", "x" * 5000),
        ("machine", "check", "x " * 2500),
        (*CHAIN, "moe", "--experts", 10**8, "--top-k", 2),
    ],
)
def test_a_long_or_an_endless_number_is_refused_in_a_short_line(args):
    refused(*args)


def test_digits_of_other_scripts_in_the_size_of_a_terminal_are_nothing():
    assert "h100-8" in good("machine", "list", env={"LINES": "²", "COLUMNS": "²"})


def test_bytes_without_a_unit_are_no_budget():
    result = "memory '16' has no unit; write 16GiB, 16x or 16B"
    assert result in refused("search", *ON, "--memory", 16)


def test_no_folder_is_made_unasked(tmp_path):
    path = tmp_path / "none" / "mine.toml"
    assert "there is no folder" in refused("machine", "new", path, "--from", "h100-8") or True
    assert not path.parent.exists()


@pytest.mark.parametrize("host", ["", " ", "x" * 5000, "a\0b", "[::1", "é"])
def test_what_is_no_address_is_not_listened_on(host):
    """An empty one is every interface to a socket."""
    assert "is not an address to listen on" in refused("explore", "--no-open", "--port", 0, "--host", host)


@contextmanager
def read_only(folder):
    """Let this process, which may be root's, not write into a folder."""
    folder.chmod(0o555)
    for file in folder.iterdir():
        file.chmod(0o444)
    if os.getuid() == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        folder.chmod(0o755)


@pytest.fixture
def open_folder():
    """A folder that every user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="umm-test-"))
    yield folder
    shutil.rmtree(folder)


def test_a_store_that_may_only_be_read_is_enough_where_all_points_are_there(open_folder):
    layouts = ("--ranks", 2, "--a", "row", "--b", "row", "--c", "row,col", "--pool", "none")
    asked = ("sweep", *ON, *layouts, "-o", open_folder / "s.db")
    good(*asked)
    with read_only(open_folder):
        result = umm(*asked)
        more = umm(*asked, "--prefetch", 1)
    assert (result.exit_code, more.exit_code) == (0, 2), result.output
    assert "0 performed" in result.stderr
    assert "is read-only, and runs are missing in it" in more.stderr


def test_a_full_disk_is_told_what_to_keep(tmp_path):
    class Full:
        def execute(self, *_):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

        def close(self):
            pass

    with Store(tmp_path / "s.db") as store:
        store._connection = Full()
        with pytest.raises(UmmError, match=r"disk is full; make room, keep .*s\.db-wal beside it"):
            store.write([])


def test_text_of_a_budget_in_python_has_a_unit():
    from umm.space.budget import bytes_of_budget

    with pytest.raises(InputError, match="has no unit"):
        bytes_of_budget("16", 1.0)
    assert bytes_of_budget(16, 1.0) == bytes_of_budget("16B", 1.0) == 16

"""Files are written whole or not at all, beside each other, and with the mode that they had."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import umm
from umm import Problem, machine, schedule
from umm.errors import InputError
from umm.files import parse_json, read_text, read_toml, whole_file
from umm.program import load_chain
from umm.program.models import find_model
from umm.schedules.files import load, save
from umm.space import Store
from umm.space.search.noise import Noise
from umm.traces.files import load_trace


def write(path, text, **how):
    with whole_file(path, **how) as partial:
        partial.write_text(text)


def mode(path):
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_has_all_of_what_was_written_and_nothing_lies_beside_it(tmp_path, durable):
    for text in ("first", "second"):
        write(tmp_path / "out.txt", text, durable=durable)
        assert (tmp_path / "out.txt").read_text() == text
        assert [x.name for x in tmp_path.iterdir()] == ["out.txt"]


def test_what_fails_amid_its_work_leaves_the_file_that_was_there(tmp_path):
    path = tmp_path / "out.txt"
    write(path, "old")
    with pytest.raises(TypeError), whole_file(path) as partial:
        partial.write_text(None)
    assert path.read_text() == "old"
    assert [x.name for x in tmp_path.iterdir()] == ["out.txt"]


def test_two_writers_at_once_never_mix_nor_lose_each_others_file(tmp_path):
    """Both have opened theirs before either is done: the later one counts, whole."""
    path = tmp_path / "out.txt"
    with whole_file(path) as first:
        with whole_file(path) as second:
            first.write_text("1" * 1000)
            second.write_text("2" * 1000)
        assert path.read_text() == "2" * 1000
    assert path.read_text() == "1" * 1000


def test_many_writers_in_threads_leave_one_of_their_files_whole(tmp_path):
    path = tmp_path / "out.txt"
    errors = []

    def many(text):
        try:
            for _ in range(50):
                write(path, text * 5000)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=many, args=(x,)) for x in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert path.read_text() in {x * 5000 for x in "abcd"}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_file_keeps_its_mode_and_a_new_one_has_the_usual(tmp_path):
    path = tmp_path / "secret.txt"
    path.touch(0o600)
    path.chmod(0o600)
    write(path, "still mine")
    assert mode(path) == 0o600
    before = os.umask(0o027)
    try:
        write(tmp_path / "new.txt", "")
    finally:
        os.umask(before)
    assert mode(tmp_path / "new.txt") == 0o640


def test_a_planted_link_of_a_temporarys_name_is_not_followed(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / ".a.txt.partial").symlink_to("victim")
    write(tmp_path / "a.txt", "a")
    assert (tmp_path / "victim").read_text() == "precious"


def test_a_users_file_of_a_temporarys_name_stays(tmp_path):
    (tmp_path / ".b.txt.partial").write_text("mine")
    write(tmp_path / "b.txt", "b")
    assert (tmp_path / ".b.txt.partial").read_text() == "mine"


def test_a_link_is_followed_to_its_file(tmp_path):
    (tmp_path / "link").symlink_to("there.txt")
    for text in ("new", "again"):
        write(tmp_path / "link", text)
        assert (tmp_path / "there.txt").read_text() == text
        assert (tmp_path / "link").is_symlink()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("loop", "Too many levels of symbolic links"),
        ("missing/out.txt", "No such file or directory"),
        ("a\0b", r"cannot name a file"),
        ("x" * 300, "File name too long"),
    ],
)
def test_what_cannot_be_written_is_one_line(tmp_path, name, message):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match=message):
        write(tmp_path / name if "\0" not in name else f"{tmp_path}/{name}", "")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (os.mkfifo, "it is a pipe, not a file"),
        (lambda path: path.symlink_to("/dev/zero"), "it is a device, not a file"),
        (lambda path: path.mkdir(), "it is a folder, not a file"),
        (lambda path: (path.touch(), os.truncate(path, 2**40)), "bytes, which are not read"),
        (lambda path: path.write_bytes(b"\xff"), "not a text file in UTF-8"),
    ],
)
def test_a_reader_ends_whatever_lies_in_the_place_of_a_file(tmp_path, make, message):
    """A pipe without a writer, a device and a file without an end, a folder."""
    path = tmp_path / "odd"
    make(path)
    for most in (10, 2**22):
        with pytest.raises(InputError, match=message):
            read_text(path, most)


@pytest.mark.parametrize("suffix", ["npz", "json", "toml", "db"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_every_reader_of_a_file_refuses_what_has_no_end(tmp_path, suffix, kind):
    path = tmp_path / f"odd.{suffix}"
    os.mkfifo(path) if kind == "pipe" else path.symlink_to("/dev/zero")
    readers = {
        "npz": (load, load_trace),
        "json": (load, load_trace, find_model, lambda path: Noise.of(f"gemm={path}", None)),
        "db": (Store,),
    }
    for reader in readers.get(suffix, (read_toml, load_chain, machine)):
        with pytest.raises(InputError, match=f"it is a {kind}, not a file|no such machine file"):
            reader(str(path))


def test_a_pipe_that_is_open_already_is_read():
    """As bash gives one for ``<(command)``, and a terminal for ``/dev/stdin``."""
    read, write = os.pipe()
    os.write(write, b"m = 1\n")
    os.close(write)
    assert read_text(f"/dev/fd/{read}") == "m = 1\n"
    os.close(read)
    assert read_text("/dev/null") == ""


def test_a_writer_passes_by_a_pipe_with_the_name_of_a_partial_file(tmp_path):
    os.mkfifo(tmp_path / ".umm-partial-evil")
    write(tmp_path / "out.txt", "done")
    assert (tmp_path / "out.txt").read_text() == "done"


def test_json_is_refused_by_the_memory_that_it_would_take(monkeypatch):
    """A list takes 64 bytes for the two characters that it is: 2 MB of lists take 62 MiB."""
    text = f"[{'[],' * 10**6}[]]"
    assert len(parse_json(text, "trace")) == 10**6 + 1
    monkeypatch.setattr("umm.files.MAX_ROOM", 2**26)
    with pytest.raises(InputError, match="would take more than 64 MiB of memory"):
        parse_json(text, "trace")
    with pytest.raises(InputError, match="nests too deep"):
        parse_json("[" * 100_000, "trace")
    with pytest.raises(InputError, match="key 'b' twice"):
        parse_json('{"a": 1, "b": 2, "b": 3}', "trace")


def test_a_device_is_written_to_as_it_is():
    write("/dev/null", "away")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("name", ["a\0b", "", "."])
@pytest.mark.parametrize("suffix", ["", ".npz", ".toml"])
def test_no_reader_and_no_writer_takes_a_path_that_is_none(tmp_path, monkeypatch, name, suffix):
    """A NUL, nothing, a folder: each way in and out says so in a line."""
    monkeypatch.chdir(tmp_path)
    path = f"{name}{suffix}" if name == "a\0b" else name
    made = schedule(Problem(m=4, n=4, k=4, ranks=2), "h100-8")
    ways = (
        load,
        load_trace,
        machine,
        load_chain,
        umm.load,
        Store,
        lambda x: save(made, x),
        read_toml,
        read_text,
    )
    for way in ways:
        if way is Store and name == "":
            continue  # SQLite keeps it in memory
        with pytest.raises(InputError) as error:
            way(path)
        assert str(error.value)
    if "\0" in path:
        with pytest.raises(InputError, match="cannot name a folder"):
            umm.save(path, {"A": np.ones((4, 4))}, made.tensors)
    assert list(tmp_path.iterdir()) == []


def test_a_save_removes_what_a_killed_writer_left(tmp_path):
    """A writer killed amid its work leaves a partial file; one still at work keeps its own."""
    code = (
        "from umm.files import whole_file; import time\n"
        "with whole_file('a.txt'):\n    print(1, flush=True); time.sleep(60)"
    )
    dead, busy = (
        subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE) for _ in range(2)
    )
    for one in (dead, busy):
        with one.stdout:
            assert one.stdout.readline() == b"1\n"
    dead.kill()
    dead.wait()
    left = list(tmp_path.glob(".umm-partial-*"))
    assert len(left) == 2
    for partial in left:
        os.utime(partial, (0, 0))  # both were made long ago
    write(tmp_path / "b.txt", "whole")
    assert len(list(tmp_path.glob(".umm-partial-*"))) == 1
    busy.kill()
    busy.wait()
    write(tmp_path / "b.txt", "whole")
    assert [x.name for x in tmp_path.iterdir()] == ["b.txt"]


@pytest.mark.parametrize(
    "text",
    [
        *("a{} = 1", "[a{}]", "[[a{}]]", "x = {{a{} = 1}}", "x = {{b = 1, a{} = 1}}", '["="{}]'),
        'y = [ """a"""", {{"a"{}."b" = 1}} ]',
    ],
)
def test_a_key_of_thousands_of_parts_is_refused_at_once(tmp_path, text):
    """80 KB of it took the parser 42 s and 6 GB."""
    path = tmp_path / "deep.toml"
    path.write_text("# a comment\n" + text.format(".a" * 40_000) + "\n")
    with pytest.raises(InputError, match=r"deep.toml line 2 has a key of more than 16 dotted parts"):
        read_toml(path)


@pytest.mark.parametrize("part", ['"=".', '",".', "'{'. ", '"#".'])
def test_parts_in_quotes_count_too(tmp_path, part):
    path = tmp_path / "deep.toml"
    path.write_text("x = 1\n" + part * 40_000 + "a = 1\n")
    with pytest.raises(InputError, match=r"deep.toml line 2 has a key of more than 16 dotted parts"):
        read_toml(path)


def test_very_many_keys_of_some_parts_are_refused_at_once(tmp_path):
    """2 MB of it took the parser 7 s."""
    path = tmp_path / "wide.toml"
    path.write_text("".join(f"k{i}{'.a' * 15} = 1\n" for i in range(20_000)))
    with pytest.raises(InputError, match=r"wide.toml has more than 200000 dots in its keys"):
        read_toml(path)


def test_dots_that_are_not_in_keys_are_read(tmp_path):
    path = tmp_path / "dots.toml"
    path.write_text(
        'a.b = "' + "x. " * 500 + ' = 1"  # ' + ". " * 500 + " = 1\nc = [" + "1.5, " * 500 + "]\n"
    )
    assert len(read_toml(path)["c"]) == 500

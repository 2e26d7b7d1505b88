"""Arrays of .npz files: as they were saved, one at a time, and nothing that a file only claims."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest

from umm import Problem, run, schedule
from umm.arrays import Archive
from umm.errors import InputError, ScheduleError
from umm.schedules.files import load, save
from umm.traces.files import load_trace, save_trace


def test_arrays_come_back_as_they_were_saved(tmp_path):
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.array(7),
        "c": np.zeros((0, 4)),
        "t": np.array("text"),
    }
    arrays["f"] = np.asfortranarray(np.arange(6).reshape(2, 3))
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    result = Archive(tmp_path / "x.npz")
    assert set(result) == set(arrays)
    assert all(np.array_equal(result[x], arrays[x]) and result[x].dtype == arrays[x].dtype for x in arrays)


def saved(path, **entries):
    """An archive whose entries are these bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in entries.items():
            file.writestr(f"{name}.npy", content)


def bytes_of(array):
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array)
    return stream.getvalue()


def test_what_nobody_asks_for_is_not_read(tmp_path):
    """A column and 256 MB of zeros beside it, in a file of 300 KB."""
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a.npy", bytes_of(np.arange(3)))
        file.writestr("bomb.npy", b"\0" * 2**28)
    tracemalloc.start()
    assert Archive(tmp_path / "x.npz")["a"].tolist() == [0, 1, 2]
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path):
    """128 MB of zeros in a file of 130 KB: a thousand times its size."""
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(2**24))
    tracemalloc.start()
    with pytest.raises(InputError, match="200 times larger than the file"):
        Archive(tmp_path / "x.npz")["a"]
    assert tracemalloc.get_traced_memory()[1] < 2**22
    tracemalloc.stop()


@pytest.mark.parametrize(("read", "write"), [(load, save), (load_trace, save_trace)])
def test_schedules_and_traces_are_read_so(tmp_path, read, write):
    """128 MB of zeros are beside their arrays, then in place of one."""
    made = schedule(Problem(m=8, n=8, k=8, ranks=2), "h100-8")
    write(made if write is save else run(made), tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.npz") as file:
        entries = {name.removesuffix(".npy"): file.read(name) for name in file.namelist()}
    zeros = bytes_of(np.zeros(2**24))
    saved(tmp_path / "beside.npz", **entries, bomb=zeros)
    saved(tmp_path / "inside.npz", **entries | {"rank": zeros})
    tracemalloc.start()
    read(tmp_path / "beside.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    with pytest.raises(InputError, match="200 times larger than the file"):
        read(tmp_path / "inside.npz")
    assert tracemalloc.get_traced_memory()[1] < 2**24
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (bytes_of(np.array([{}], dtype=object)), "holds objects, which are not read"),
        (b"nothing", "array 'a'"),
        (b"", "array 'a'"),
        (bytes_of(np.zeros(3)).replace(b"(3,)", b"(9,)"), "does not have its 72 bytes"),
        (bytes_of(np.zeros(30)).replace(b"(30,)", b"(9**9,)"[:5]), "array 'a'"),
        (bytes_of(np.zeros(3)) + b"more", "does not have its 24 bytes"),
        (b"\x93NUMPY\x07\x00", "version"),
    ],
)
def test_an_entry_that_is_not_an_array_is_one_line(tmp_path, content, message):
    saved(tmp_path / "x.npz", a=content)
    with pytest.raises(InputError, match=message) as error:
        Archive(tmp_path / "x.npz")["a"]
    assert "\n" not in str(error.value)
    saved(tmp_path / "y.npz", header=content)
    with pytest.raises(ScheduleError) as error:
        load(tmp_path / "y.npz")
    assert "\n" not in str(error.value)


def test_a_name_that_is_all_of_the_file_is_not_quoted_whole(tmp_path):
    """zipfile quotes the name before an array where it is not the one of the directory."""
    np.savez(tmp_path / "x.npz", first=np.arange(4), second=np.arange(2000))
    content = bytearray((tmp_path / "x.npz").read_bytes())
    content[26:28] = (4000).to_bytes(2, "little")  # the length of the first array's name
    (tmp_path / "x.npz").write_bytes(content)
    with pytest.raises(InputError, match=r"not a whole \.npz file: array 'first'") as error:
        Archive(tmp_path / "x.npz")["first"]
    assert len(str(error.value)) < 300


def test_what_is_not_an_archive_is_one_line(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"PK nothing")
    with pytest.raises(InputError, match=r"not a whole \.npz file"):
        Archive(tmp_path / "x.npz")

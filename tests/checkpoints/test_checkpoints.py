"""Checkpoints saved in one layout load in any, bit for bit, or as one line that names the damage."""

import json
import os
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import mpi_programs
import numpy as np
import pytest
from conformance.executor_suite import laws
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import layout_texts

import umm
import umm_hw
from umm.errors import InputError
from umm.layouts.layout import Layout
from umm.program.tensors import Tensor
from umm_hw.matrix import DTYPES, DistributedMatrix
from umm_hw.numpy.transport import run_ranks

X = np.random.default_rng(0).standard_normal((7, 5))
FACTORS = [(p, c) for p in (1, 2, 3, 4, 6) for c in range(1, p + 1) if p % c == 0]


def saved(folder, ranks=4, array=X, replica=0, **texts):
    texts = texts or {"X": "2d@2", "Y": "row"}
    program = partial(mpi_programs.save_matrices, folder=folder, texts=texts, array=array)
    run_ranks(ranks, lambda transport: program(transport, replica=replica))


def loaded(folder, ranks, text, like=X):
    return run_ranks(ranks, partial(mpi_programs.load_matrix, folder=folder, name="X", text=text, like=like))


@st.composite
def layouts(draw, shape):
    ranks, replicas = draw(st.sampled_from(FACTORS))
    return ranks, draw(layout_texts(shape, ranks, replicas)), draw(st.integers(0, replicas - 1))


@settings(laws, max_examples=examples(40))
@given(st.data(), st.sampled_from(DTYPES))
def test_a_matrix_comes_back_bit_for_bit_in_another_layout_on_other_ranks(data, dtype):
    """Any rows of bits, as they are; of replicas that differ, the one that was asked for."""
    shape = data.draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    bits = np.random.default_rng(data.draw(st.integers(0, 99))).bytes(shape[0] * shape[1] * 16)
    array = np.frombuffer(bits, dtype)[: shape[0] * shape[1]].reshape(shape)
    ranks, text, replica = data.draw(layouts(shape))
    others, other, _ = data.draw(layouts(shape))
    with TemporaryDirectory() as folder:
        saved(folder, ranks, array, replica, X=text)
        for replicas in loaded(folder, others, other, array):
            for result in replicas:
                assert result.tobytes() == array.tobytes()


@pytest.mark.mpi
def test_four_processes_save_and_two_load_in_another_layout(lent, tmp_path):
    job = lent(4)
    texts = {"X": "2d@2:interleaved", "Y": "cyclic:2x2:2x2"}
    job.call(4, partial(mpi_programs.save_matrices, folder=tmp_path, texts=texts, array=X))
    for name in texts:
        load = partial(mpi_programs.load_matrix, folder=tmp_path, name=name, text="col:balanced", like=X)
        assert [[x.tobytes() for x in of_rank] for of_rank in job.call(2, load)] == [[X.tobytes()]] * 2
    assert len(list(tmp_path.glob("*.part"))) == 4


def test_one_process_saves_for_all_ranks_and_reads_whole_matrices(tmp_path):
    mlp = umm.chain("mlp", hidden=4, ffn=6, tokens=3).laid_out("sequence", ranks=2)
    arrays = {"W1": np.arange(24.0).reshape(4, 6), "X": np.ones((3, 4))}
    umm.save(tmp_path / "new" / "folder", arrays, mlp.tensors)
    result = umm.load(tmp_path / "new" / "folder")
    assert set(result) == set(arrays)
    assert all(np.array_equal(result[x], arrays[x]) and result[x].dtype == np.float32 for x in arrays)
    assert str(result) == "2 matrices of 2 ranks: W1 4x6 float32 in col, X 3x4 float32 in row"


@pytest.mark.parametrize(
    ("value", "kind", "dtype", "says"),
    [
        (-1e300, "float64", "float32", r"X\[0, 2\] = -1e\+300 is beyond float32, .* 3.40282e\+38; clip it"),
        (70_000, "int64", "float16", r"X\[0, 2\] = 70000 is beyond float16, whose largest number is 65504"),
        (1e300 + 1j, "complex128", "complex64", r"= 1e\+300\+1j is beyond complex64"),
        (10**400, "object", "float32", "X holds Python objects that are no float32"),
    ],
)
def test_a_number_beyond_its_type_is_refused_and_not_saved_as_infinite(tmp_path, value, kind, dtype, says):
    """Numbers that are infinite already, or too small, are saved as the type has them."""
    array = np.zeros((2, 3), kind)
    array[0, 2] = value
    tensors = [Tensor("X", Layout.parse("row", (2, 3), 2), dtype)]
    with pytest.raises(InputError, match=says):
        umm.save(tmp_path / "saved", {"X": array}, tensors)
    assert not (tmp_path / "saved").exists()
    array[0, 2] = 0 if kind == "int64" else -np.inf
    array[1, 1] = 1
    umm.save(tmp_path / "saved", {"X": array}, tensors)
    assert (umm.load(tmp_path / "saved")["X"] == array).all()


def test_a_save_replaces_the_one_before_and_leaves_nothing_of_it(tmp_path):
    saved(tmp_path)
    before = {x.name for x in tmp_path.iterdir()}
    (tmp_path / ".umm-partial-0123").write_text("of a save that was killed")
    (tmp_path / "notes.txt").write_text("mine")
    saved(tmp_path, array=X + 1)
    after = {x.name for x in tmp_path.iterdir()}
    assert np.array_equal(umm.load(tmp_path)["X"], X + 1)
    assert before & after == {"checkpoint.json"}
    assert after - before == {x for x in after if x.endswith(".part")} | {"notes.txt"}
    assert len(after) == 6


def test_a_save_that_fails_amid_its_work_leaves_the_one_before(tmp_path):
    saved(tmp_path)

    def program(transport):
        matrix = DistributedMatrix(transport, Layout.parse("row", X.shape, 2), "float64")
        if transport.rank == 1:
            transport.barrier()
            raise ZeroDivisionError
        umm_hw.save(tmp_path, {"X": matrix})

    with pytest.raises(ZeroDivisionError):
        run_ranks(2, program)
    assert np.array_equal(umm.load(tmp_path)["X"], X)


# Damage -------------------------------------------------------------------------------------------


def flip(path, place=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def pipe(path):
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (flip, "is damaged: X does not have its checksum"),
        (cut, r"has \d+ bytes, not \d+; the checkpoint is damaged"),
        (Path.unlink, "No such file or directory; the checkpoint is damaged"),
        (pipe, "it is a pipe, not a file; the checkpoint is damaged"),
    ],
)
def test_a_part_that_is_damaged_is_one_line(tmp_path, harm, message):
    saved(tmp_path)
    harm(next(tmp_path.glob("rank-0-*.part")))
    with pytest.raises(InputError, match=message) as error:
        umm.load(tmp_path)["X"]
    assert "\n" not in str(error.value)
    with pytest.raises(InputError, match=message):
        loaded(tmp_path, 2, "row")


def test_a_matrix_beside_the_damage_is_still_read(tmp_path):
    """The last byte of rank 0's part is of Y."""
    saved(tmp_path)
    flip(next(tmp_path.glob("rank-0-*.part")), -1)
    checkpoint = umm.load(tmp_path)
    assert np.array_equal(checkpoint["X"], X)
    with pytest.raises(InputError, match="Y does not have its checksum"):
        checkpoint["Y"]


def edited(folder, **changes):
    path = folder / "checkpoint.json"
    result = json.loads(path.read_text())
    result["matrices"][0] |= changes
    path.write_text(json.dumps(result))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../X"}, "cannot name a matrix"),
        ({"shape": [2**40, 2**40]}, "too large"),
        ({"shape": [7.0, 5]}, "must be a whole number"),
        ({"shape": [70, 50]}, r"has \d+ bytes, not"),
        ({"dtype": "object"}, "cannot hold 'object'"),
        ({"layout": "cyclic:1x1:2x2" + "0" * 5000}, "checkpoint.json"),
        ({"layout": ["row"]}, "do not lay a matrix out"),
        ({"replica": 2}, "replica of X = 2 is not possible"),
        ({"checksums": ["../../etc/passwd"] * 4}, "does not have a checksum for each of 4 ranks"),
        ({"checksums": ["0" * 32]}, "does not have a checksum for each of 4 ranks"),
        ({"pickle": 1}, "has no key 'pickle'"),
    ],
)
def test_a_manifest_is_not_trusted(tmp_path, changes, message):
    saved(tmp_path)
    edited(tmp_path, **changes)
    with pytest.raises(InputError, match=message) as error:
        dict(umm.load(tmp_path))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\xff", b"[]", b"{}", b"[" * 10**6, b'{"schema": 2}', b"null"])
def test_what_is_not_a_manifest_is_one_line(tmp_path, content):
    (tmp_path / "checkpoint.json").write_bytes(content)
    with pytest.raises(InputError, match=r"checkpoint\.json(: | is not a text)"):
        umm.load(tmp_path)


def test_what_is_not_there_or_does_not_fit_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"has no checkpoint\.json, so it is not a checkpoint"):
        umm.load(tmp_path)
    saved(tmp_path)
    with pytest.raises(InputError, match=r"X is 7x5 of float64 in .* and is to fill 7x6 of float64"):
        loaded(tmp_path, 1, "row", np.zeros((7, 6)))
    with pytest.raises(InputError, match=r"X is 7x5 of float64 in .* and is to fill 7x5 of float32"):
        loaded(tmp_path, 1, "row", X.astype(np.float32))
    with pytest.raises(KeyError):
        umm.load(tmp_path)["Z"]
    tensor = Tensor("X", Layout.parse("row", (2, 2), 1), "float64")
    with pytest.raises(InputError, match=r"X has shape \(7, 5\), but its layout is of \(2, 2\)"):
        umm.save(tmp_path, {"X": X}, [tensor])
    with pytest.raises(InputError, match="X is complex128, not float64; give its real part"):
        umm.save(tmp_path, {"X": X[:2, :2] + 1j}, [tensor])
    with pytest.raises(InputError, match="'Z' has no layout; there are those of X"):
        umm.save(tmp_path, {"Z": X}, [tensor])
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot make the folder"):
        umm.save(tmp_path / "file" / "x", {"X": X[:2, :2]}, [tensor])

"""Tensors: each rank's piece, the exact form in files, and refusals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import layout_texts

from umm import Layout, Problem
from umm.dtypes import DTYPES
from umm.errors import InputError, ProblemError
from umm.program.outline import Shape
from umm.program.tensors import ROLES, Tensor, by_name


@st.composite
def tensors(draw):
    shape, ranks = draw(st.tuples(st.integers(1, 9), st.integers(1, 9))), draw(st.integers(1, 8))
    layout = Layout.parse(draw(layout_texts(shape, ranks)), shape, ranks)
    name = draw(st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,63}", fullmatch=True))
    return Tensor(name, layout, draw(st.sampled_from(list(DTYPES))), draw(st.sampled_from(ROLES)))


@given(tensors())
def test_a_tensor_comes_back_from_json_as_it_was(tensor):
    """All replicas together hold every element once each."""
    text = json.dumps(tensor.to_dict())
    assert Tensor.from_dict(json.loads(text), tensor.layout.ranks) == tensor
    rows, cols = tensor.shape
    assert tensor.nbytes_of_rank.sum() == rows * cols * tensor.itemsize * tensor.layout.replicas


def test_the_tensors_of_a_problem_are_two_inputs_and_an_output():
    problem = Problem(m=4, n=6, k=2, a="row", b="col", c="2d@2", ranks=2, dtype="float16")
    assert [(x.name, x.shape, x.dtype, x.role) for x in problem.tensors] == [
        ("A", (4, 2), "float16", "input"),
        ("B", (2, 6), "float16", "input"),
        ("C", (4, 6), "float16", "output"),
    ]
    assert [x.nbytes_of_rank.tolist() for x in problem.tensors] == [[8, 8], [12, 12], [48, 48]]
    with pytest.raises(ProblemError, match="give ranks="):
        _ = Problem(m=4, n=6, k=2).tensors


GOOD = {"name": "X", "shape": [4, 6], "dtype": "float32", "layout": "row", "role": "work"}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"name": "2X"}, "'2X' cannot name a tensor; write a letter"),
        ({"name": "X\n"}, "cannot name a tensor"),
        ({"name": 7}, "7 cannot name a tensor"),
        ({"shape": [4.0, 6]}, "a size of tensor 'X' = 4.0 is not possible; it must be a whole number ≥ 1"),
        ({"shape": [True, 6]}, "must be a whole number"),
        ({"shape": [4, 0]}, "must be a whole number ≥ 1"),
        ({"shape": [2**40, 2**40]}, "fewer than 2\\^60 elements"),
        ({"shape": "46"}, "is not \\[rows, columns\\]"),
        ({"dtype": "int8"}, "choose from float64, float32, float16, bfloat16"),
        ({"dtype": []}, "dtype \\[\\] of tensor 'X' is not a text"),
        ({"layout": "round"}, "is not a layout; write row, col"),
        ({"layout": ""}, "is not a layout"),
        ({"role": "inout"}, "choose from input, output, both, work"),
        ({"rows": 4}, "a tensor has no key 'rows'; choose from name, shape, dtype, layout, role"),
    ],
)
def test_what_is_not_a_tensor_is_refused_in_one_line(change, why):
    with pytest.raises(InputError, match=why) as error:
        Tensor.from_dict(GOOD | change, ranks=2)
    assert "\n" not in str(error.value)


def test_a_missing_key_and_two_tensors_of_one_name_are_refused():
    with pytest.raises(InputError, match="a tensor lacks 'role'"):
        Tensor.from_dict({key: GOOD[key] for key in GOOD if key != "role"}, ranks=2)
    tensor = Tensor.from_dict(GOOD, ranks=2)
    assert by_name([tensor]) == {"X": tensor}
    with pytest.raises(ProblemError, match="two tensors are named X"):
        by_name([tensor, tensor])


@pytest.mark.parametrize("text", ["2d:1x6@1x1x6:-rc", "2d@1x6:rc", "col", "2d:1x6:balanced@1x6:rc"])
def test_heads_that_more_ranks_share_stay_whole_with_a_grid_beside_the_mesh_too(text):
    """Three heads of four columns on six ranks: pairs of ranks hold one head each."""
    layout = Shape("V", 4, 12, "float32", "input", head=4).laid_out(text, 6).layout
    assert layout.replicas == 2
    assert layout.col_edges.tolist() == [0, 4, 8, 12]

"""Layouts in the words of DTensor, JAX, ScaLAPACK and HPF: their meaning, and there and back."""

import doctest
import re
from itertools import product
from math import prod
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command import SMALL, good, record, umm
from examples import examples
from framework_words import MESHES, dtensors, held, plain_dtensor
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import SIZES, layout_texts

from umm import Interval, Layout, Problem
from umm.errors import LayoutError
from umm.layouts.frameworks import split

GUIDE = Path(__file__).parents[2] / "docs/reference/frameworks.md"


@given(dtensors())
def test_placements_mean_what_torch_chunk_makes_of_them(asked):
    assert held(Layout.from_dtensor(*asked)) == plain_dtensor(*asked)


@given(MESHES, st.data(), SIZES, SIZES)
def test_strides_of_any_length_deal_out_tiles_in_turn(mesh, data, m, n):
    kinds = ["Shard(0)", "Shard(1)", "Replicate", "_StridedShard(0,2)", "_StridedShard(1,3)"]
    placements = [data.draw(st.sampled_from(kinds)) for _ in mesh]
    assert held(Layout.from_dtensor(mesh, placements, (m, n))) == plain_dtensor(mesh, placements, (m, n))


@given(dtensors())
def test_a_dtensor_comes_back_as_it_was(asked):
    layout = Layout.from_dtensor(*asked)
    result = layout.to_dtensor()
    again = Layout.from_dtensor(result.mesh, result.placements, layout.shape)
    assert again == layout == Layout.parse(str(result), layout.shape, layout.ranks)


@st.composite
def layouts(draw):
    """Any layout."""
    shape, ranks = (draw(SIZES), draw(SIZES)), draw(st.integers(1, 12))
    return Layout.parse(draw(layout_texts(shape, ranks)), shape, ranks)


@settings(max_examples=examples(150))
@given(layouts(), st.sampled_from(["dtensor", "jax", "hpf", "scalapack"]))
def test_any_layout_is_said_with_the_same_elements_on_every_rank_or_refused_in_a_line(layout, framework):
    try:
        result = str(getattr(layout, f"to_{framework}")())
    except LayoutError as error:
        assert "\n" not in str(error)  # noqa: PT017
        assert len(str(error)) < 250  # noqa: PT017
        return
    again = Layout.parse(result, layout.shape, layout.ranks)
    assert held(again) == held(layout)
    assert np.array_equal(again.replica_of_rank, layout.replica_of_rank) or framework == "hpf"


@given(SIZES, SIZES, st.integers(1, 9), st.sampled_from(["row", "col", "2d"]), st.sampled_from("bci"))
def test_every_whole_block_layout_has_a_name_in_dtensor_and_back(m, n, ranks, rule, where):
    text = rule + {"b": "", "c": f"@{ranks}", "i": "@2:interleaved" if ranks % 2 == 0 else ""}[where]
    layout = Layout.parse(text, (m, n), ranks)
    assert Layout.parse(str(layout.to_dtensor()), (m, n), ranks) == layout


@given(MESHES, st.data())
def test_a_jax_sharding_comes_back_as_it_was(mesh, data):
    names = tuple("xyz"[: len(mesh)])
    order = data.draw(st.permutations(names))
    cuts = sorted(data.draw(st.tuples(*[st.integers(0, len(mesh))] * 2)))
    spec = tuple(order[: cuts[0]]), tuple(order[cuts[0] : cuts[1]])
    shape = tuple(4 * prod(mesh[names.index(x)] for x in axes) for axes in spec)
    layout = Layout.from_jax(dict(zip(names, mesh, strict=True)), spec, shape)
    assert Layout.parse(str(layout.to_jax()), shape, layout.ranks) == layout
    counts = [prod(mesh[names.index(x)] for x in axes) for axes in spec]
    index = dict(zip(names, np.indices(mesh).reshape(len(mesh), -1), strict=True))
    for dim, axes in enumerate(spec):
        number = sum(
            (index[x] * prod(mesh[names.index(y)] for y in axes[i + 1 :]) for i, x in enumerate(axes)), 0
        )
        starts = [sides[dim][0] for sides in held(layout)]
        assert starts == [4 * x for x in np.broadcast_to(number, prod(mesh))]
    assert prod(counts) * layout.replicas == prod(mesh)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9), st.data())
def test_a_descriptor_comes_back_as_it_was(m, n, mb, nb, data):
    rows, cols = data.draw(st.sampled_from([(1, 1), (2, 3), (3, 2), (1, 4), (4, 1)]))
    source = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, cols - 1))
    order = data.draw(st.one_of(st.sampled_from("RC"), st.permutations(range(rows * cols))))
    layout = Layout.from_scalapack((1, 0, m, n, mb, nb, *source, m), (rows, cols), order)
    at = np.arange(rows * cols).reshape((cols, rows)).T if order == "C" else np.arange(rows * cols)
    at = np.array(order).reshape(rows, cols) if not isinstance(order, str) else at.reshape(rows, cols)
    for i, j in product(range(m), range(n)):  # ScaLAPACK's INDXG2P
        owner = at[(source[0] + i // mb) % rows, (source[1] + j // nb) % cols]
        assert layout.owner(layout.overlapping_tiles(_one(i), _one(j))[0]) == owner
    result = layout.to_scalapack()
    assert held(Layout.from_scalapack(result.desc, result.grid, result.order)) == held(layout)


def _one(i):
    return Interval(i, i + 1)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("shard(0)", "row"),
        ("Shard(dim=1)", "col"),
        ("replicate", "row@8"),
        ("dtensor:mesh=2x4;Shard(0),Replicate", "row@4:interleaved"),
        ("dtensor:mesh=2x4;[Replicate(), Shard(dim=0)]", "row@2"),
        ("dtensor:mesh=2x4;S(1)S(0)", "2d:4x2:colmajor"),
        ("dtensor:mesh=2x4:0-2-4-6-1-3-5-7;R,S(0)", "row@2:interleaved"),
        ("dtensor:mesh=4x2;_StridedShard(0,2),Shard(0)", "row@1:0-2-4-6-1-3-5-7"),
        ("dtensor:mesh=8;_StridedShard(0,split_factor=2)", "cyclic:2x24:8x1"),
        ("jax:mesh=x:2,y:4;P('x','y')", "2d:2x4"),
        ("jax:mesh=x:2,y:4;PartitionSpec(('y','x'),)", "row@1:0-4-1-5-2-6-3-7"),
        ("jax:mesh=x:2,y:4@0-2-4-6-1-3-5-7;P(None,y)", "col@2:interleaved"),
        ("hpf:(BLOCK,*)", "row"),
        ("hpf:(cyclic(4),block)onto(2,4)", "cyclic:4x6:2x4:colmajor"),
        ("hpf:align(j,i,*);distribute(block,block,block)onto(2,2,2)", "2d@2"),
        ("scalapack:desc=1,0,32,24,4,6,0,0,16;grid=2x4;order=R", "cyclic:4x6:2x4"),
    ],
)
def test_a_text_of_another_framework_means(text, means):
    layout = Layout.parse(text, (32, 24), ranks=8)
    assert layout == Layout.parse(means, (32, 24), ranks=8)
    assert Layout.parse(str(layout), (32, 24), ranks=8) == layout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("Partial", "is a sum that is not done, not a layout"),
        ("shard(2)", "does not fit a matrix"),
        ("shard(0),replicate", r"2 placements do not fit a mesh of 1 axes \(8\)"),
        ("dtensor:Shard(0);x", "has no mesh; write dtensor:mesh=2x4;Shard"),
        ("dtensor:mesh=2x3;S(0)R", "a mesh of 6 ranks cannot be laid over 8"),
        ("dtensor:mesh=2x4;S(0)Q", "'Q' is no placement"),
        ("dtensor:mesh=2x2x2:0-1-2-3-4-5-6-6;R,R,R", "must have each of 0 to p − 1 once"),
        ("jax:mesh=x:2,y:4;P(x,z)", "axis 'z' is not one of x, y"),
        ("jax:mesh=x:2,y:4;P(x,x)", "axis 'x' is not one of x, y, or cuts twice"),
        ("jax:mesh=x:8;P(None,x)", "JAX shards only sizes that divide: 9 columns in 8; pad to 16"),
        ("jax:row", "says no sharding; write jax:mesh=x:2,y:4;P"),
        ("hpf:(BLOCK(3),*)", "holds 24 of 32; take at least BLOCK"),
        ("hpf:(BLOCK,BLOCK)", r"say onto\(…\) with 2 numbers that make 8"),
        ("hpf:(WRONG,*)", "does not give BLOCK, CYCLIC or"),
        ("scalapack:desc=1,0,32,8,4,6,0,0,16;grid=2x4", "the descriptor is for 32x8, but the matrix is 32x9"),
        ("scalapack:desc=2,0,32,9,4,6,0,0,16;grid=2x4", "is not one of a dense matrix"),
        ("scalapack:row", "is no descriptor with its grid"),
    ],
)
def test_a_text_that_means_nothing_is_refused_with_what_would_work(text, why):
    with pytest.raises(LayoutError, match=why):
        Layout.parse(text, (32, 9), ranks=8)


@pytest.mark.parametrize(
    ("text", "framework", "why"),
    [
        (
            "row:balanced",
            "dtensor",
            "row edges 0-2-4-6-7-8-9-10-… dealt out to 8: each axis of its mesh cuts",
        ),
        ("col", "jax", "JAX shards only sizes that divide: 7 columns in 8; pad to 8"),
        ("cyclic:1x1:8x1", "jax", "JAX shards only sizes that divide: 11 rows in 8; pad to 16"),
        ("row@2", "scalapack", "holds a matrix once, not in 2 replicas"),
        ("row:balanced", "scalapack", "row edges 0-2-4-6-7-8-9-10-…"),
        ("2d@1:0-3-1-2-4-7-5-6", "hpf", "HPF counts processors along the dimensions of one array"),
        ("edges:0-1-11x0-7:8x1", "hpf", "BLOCK and CYCLIC make parts of one size"),
    ],
)
def test_what_a_framework_cannot_say_is_named(text, framework, why):
    with pytest.raises(LayoutError, match=why):
        getattr(Layout.parse(text, (11, 7), ranks=8), f"to_{framework}")()


def test_a_mesh_of_two_axes_of_two_cuts_ten_rows_otherwise_than_one_of_four():
    """Halves of 5, then 3 and 2 of each; an axis of four makes 3, 3, 3 and 1."""
    edges = Layout.from_dtensor((2, 2), ["Shard(0)", "Shard(0)"], (10, 4))
    row = Layout.from_dtensor((4,), ["Shard(0)"], (10, 4))
    assert (str(edges), str(row)) == ("edges:0-3-5-8-10x0-4:4x1", "row")
    assert edges.to_dtensor().placements == ("Shard(0)", "Shard(0)")


def test_the_guide_says_what_is_so():
    """Its Python runs, and its table of names equals the output of ``--as`` on 8 ranks."""
    assert doctest.testfile(str(GUIDE), module_relative=False).failed == 0
    table = re.findall(
        r"^\| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \| `([^`]+)` \|$", GUIDE.read_text(), re.MULTILINE
    )
    assert len(table) == 5
    for text, *result in table:
        layout = Layout.parse(text, (64, 64), ranks=8)
        for framework, words in zip(("dtensor", "jax", "hpf"), result, strict=True):
            assert str(layout.said_in(framework)).partition(":")[2] == words
            assert Layout.parse(f"{framework}:{words}", (64, 64), ranks=8) == layout


class Shard:
    """As PyTorch's, by its name and its attribute."""

    def __init__(self, dim):
        self.dim = dim


def test_objects_are_known_by_what_they_say_and_nothing_is_imported():
    mesh = SimpleNamespace(mesh=np.array([[0, 1], [2, 3]]))
    x = SimpleNamespace(device_mesh=mesh, placements=(Shard(1), Shard(0)), shape=(8, 6))
    assert str(Layout.from_dtensor(x)) == "2d:2x2:colmajor"
    devices = np.array([SimpleNamespace(id=i) for i in range(4)])
    sharding = SimpleNamespace(mesh=SimpleNamespace(axis_names=("x",), devices=devices), spec=(None, "x"))
    assert str(Layout.from_jax(SimpleNamespace(sharding=sharding, shape=(8, 8)))) == "col"
    assert str(Layout.from_jax(sharding, shape=(8, 8))) == "col"
    with pytest.raises(LayoutError, match="int is no DTensor; give one, or a mesh, placements and a shape"):
        Layout.from_dtensor(3)
    with pytest.raises(LayoutError, match="needs the shape of a matrix"):
        Layout.from_jax(sharding)


def test_hpf_directives_are_lines_of_fortran():
    assert Layout.parse("row@2", (8, 8), ranks=8).to_hpf().directives("A").splitlines() == [
        "!HPF$ PROCESSORS P(4,2)",
        "!HPF$ ALIGN A(i,j) WITH T(i,*,j)",
        "!HPF$ DISTRIBUTE T(BLOCK,BLOCK,*) ONTO P",
    ]


@given(st.lists(layouts().map(str) | st.sampled_from(["all", "jax:mesh=x:2,y:4;P(x,(y))"]), min_size=1))
def test_a_comma_list_keeps_the_commas_of_frameworks(texts):
    assert split(",".join(texts)) == texts


@given(st.lists(dtensors(), min_size=1, max_size=4))
def test_a_comma_list_of_dtensors(many):
    texts = [
        f"dtensor:mesh={'x'.join(map(str, mesh))};{','.join(placements)}" for mesh, placements, _ in many
    ]
    assert split(",".join(texts)) == texts


def test_commands_take_the_words_of_frameworks():
    shown = good(
        "tiles", "-m", 8, "-n", 8, "-k", 8, "--a", "dtensor:mesh=2x4;Shard(0),Replicate", "--b", "shard(0)"
    )
    assert "A = row@4:interleaved   8 x 8" in shown
    result = record("simulate", "-m", 64, "-n", 64, "-k", 64, "--a", "jax:mesh=x:2,y:4;P(x,y)", "--ranks", 8)
    assert result["problem"]["a"] == "2d:2x4"
    some = "dtensor:mesh=2x4;S(0),R,row"
    fixed = ["--b", "row", "--c", "row", "--granularity", "tile", "--final", "reduce", "--memory", "none"]
    both = record("search", *SMALL, "--a", some, *fixed)
    assert both["distinct"] == 6  # two of A, three stationary matrices
    output = good(
        "tiles", "-m", 8, "-n", 8, "-k", 8, "--b", "col@2", "--c", "2d", "--as", "dtensor"
    ).splitlines()
    assert output == [
        "A  dtensor:mesh=8;Shard(0)",
        "B  dtensor:mesh=2x4;Replicate,Shard(1)",
        "C  dtensor:mesh=2x4;Shard(0),Shard(1)",
    ]
    assert record("tiles", "-m", 8, "-n", 8, "-k", 8, "--as", "jax")["as"]["A"] == "jax:mesh=x:8;P(x,None)"
    refused = umm("tiles", "-m", 8, "-n", 8, "-k", 8, "--a", "dtensor:mesh=2x4;Partial,R")
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)


@given(dtensors())
def test_a_problem_takes_a_layout_of_a_framework(asked):
    _, _, shape = asked
    layout = Layout.from_dtensor(*asked)
    assume(layout.ranks <= 6)
    assert Problem(m=shape[0], n=3, k=shape[1], a=layout).layout("A") == layout

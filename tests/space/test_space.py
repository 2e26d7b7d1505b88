"""The design space: how many points, which are equal, and the effect of restrictions."""

import json

import numpy as np
import pytest

import umm
from umm.errors import InputError, LayoutError
from umm.layouts.layout import Layout
from umm.plans.multiply.options import Options
from umm.space import Space

MLP1 = {"m": 8192, "n": 49152, "k": 12288}


@pytest.mark.parametrize(
    ("ranks", "written", "distinct"), [(12, 17_496, 8_232), (8, 5_184, 2_187), (1, 81, 3)]
)
def test_the_papers_space_has_its_number_of_points(ranks, written, distinct):
    """{row, col, 2d}³ × factors³ × {A, B, C}; of 18 layouts on 12 ranks 14 differ, of 12 on 8 ranks 9."""
    points = Space(**MLP1, ranks=ranks).points()
    assert points.written == written
    assert len(points) == distinct


def test_equal_layouts_go_by_the_first_text_that_means_them():
    """On 8 ranks with 4 replicas a 2d layout is 1x2, which is col; with 8 replicas all are the same."""
    layouts = Space(**MLP1, ranks=8).points().choices[0]
    assert [str(x) for x in layouts if x.replicas >= 4] == ["row@4", "col@4", "row@8"]


def test_nothing_fully_replicated_leaves_factors_below_the_ranks():
    points = Space(**MLP1, ranks=12, fully_replicated=False).points()
    assert points.written == 15**3 * 3
    assert len(points) == 13**3 * 3
    assert max(x.replicas for layouts in points.choices for x in layouts) == 6


def test_equal_replication_leaves_points_whose_operands_have_one_factor():
    """3 layouts for each of 6 factors as written; 3, 3, 3, 2, 2 and 1 distinct ones."""
    points = Space(**MLP1, ranks=12, equal_replication=True).points()
    assert points.written == 6 * 3**3 * 3
    assert len(points) == (3 * 27 + 2 * 8 + 1) * 3
    for point in points.allowed.tolist():
        assert len({x.replicas for x in points.parts(point)[2:]}) == 1


def test_all_may_stand_among_other_layouts():
    """{row, col, 2d} × {1, 2, 4} and a block-cyclic one; the row given twice is one."""
    bare = {"m": 64, "n": 64, "k": 64, "ranks": 4, "b": "row", "c": "row"}
    alone = Space(**bare).points().choices[0]
    assert Space(**bare, a="all").points().choices[0] == alone
    for among in ("all,cyclic:8x8:2x2,row", ["all", "cyclic:8x8:2x2"]):
        result = [str(layout) for layout in Space(**bare, a=among).points().choices[0]]
        assert result == [*map(str, alone), "cyclic:8x8:2x2"]


def test_an_operand_can_be_fixed_to_one_layout_or_to_some():
    points = Space(**MLP1, ranks=8, a="row", b="row@2, col@2", c=["2d"], stationary="C").points()
    assert [[str(x) for x in layouts] for layouts in points.choices] == [["row"], ["row@2", "col@2"], ["2d"]]
    assert len(points) == 2


def test_grids_tile_sizes_and_replica_orders_are_axes():
    space = Space(
        m=64,
        n=64,
        k=64,
        ranks=4,
        partitions=("2d", "cyclic:8x8"),
        grids="all",
        orders=("blocked", "interleaved"),
        replication=(1, 2),
    )
    texts = [str(x) for x in space.points().choices[0]]
    assert texts == [
        "2d:1x4", "2d:2x2", "2d:4x1", "cyclic:8x8:1x4", "cyclic:8x8:2x2", "cyclic:8x8:4x1",
        "2d:1x2@2", "2d:2x1@2", "2d:1x2@2:interleaved", "2d:2x1@2:interleaved",
        "cyclic:8x8:1x2@2", "cyclic:8x8:2x1@2",
        "cyclic:8x8:1x2@2:interleaved", "cyclic:8x8:2x1@2:interleaved",
    ]  # fmt: skip


def test_a_written_grid_is_kept_where_it_fits():
    points = Space(m=64, n=64, k=64, ranks=12, partitions=("2d:2x3", "row:balanced")).points()
    assert [str(x) for x in points.choices[0]][:3] == ["row:balanced", "2d:2x3@2", "row:balanced@2"]


def test_column_major_grids_are_kept_with_every_grid():
    space = Space(
        m=64, n=64, k=64, ranks=4, partitions=("2d:balanced:colmajor",), grids="all", replication=(1,)
    )
    texts = [str(x) for x in space.points().choices[0]]
    assert texts == [f"2d:{grid}:balanced:colmajor" for grid in ("1x4", "2x2", "4x1")]


def test_schedule_options_are_axes():
    points = Space(**MLP1, ranks=8, a="row", b="row", c="row", prefetch=(0, 2), offset="none,index").points()
    assert len(points) == 3 * 2 * 2
    options, stationary, *_ = points.parts(int(points.allowed[-1]))
    assert (options.prefetch, options.offset, stationary) == (2, "index", "C")


def test_what_becomes_of_c_is_an_axis_where_c_is_replicated():
    """Of 2 · 2 · 4 written points the four with one replica of C are two, one for each prefetch."""
    axes = {"final": "reduce,broadcast,all-reduce,reduce-scatter", "prefetch": (0, 2)}
    points = Space(**MLP1, ranks=8, a="row", b="row", c="row,row@2", stationary="C", **axes).points()
    assert (points.written, len(points)) == (16, 8 + 2)
    plain = [points.parts(x)[0].final for x in points.allowed.tolist() if points.parts(x)[4].replicas == 1]
    assert plain == ["complete", "complete"]


@pytest.mark.parametrize(
    ("choices", "error", "line"),
    [
        ({"ranks": 8, "replication": 3}, LayoutError, "8 ranks cannot hold 3 equal replicas"),
        ({"ranks": 8, "stationary": "D"}, InputError, "stationary matrix 'D' is unknown"),
        ({"ranks": 8, "grids": "round"}, InputError, "grids 'round' is unknown; choose from square, all"),
        ({"ranks": 8, "partitions": "2d:3x5"}, InputError, "no layout is left for A"),
        ({}, InputError, "on how many ranks"),
        ({"ranks": 8, "a": "row", "b": "row@2", "equal_replication": True}, InputError, "equal replication"),
    ],
)  # fmt: skip
def test_a_space_that_cannot_be_says_why(choices, error, line):
    with pytest.raises(error, match=line):
        Space(**MLP1, **choices).points()


def test_a_search_looks_at_all_grids_unless_told():
    assert Space(m=64, n=64, k=64).searched.grids == "all"
    assert Space(m=64, n=64, k=64, grids="square").searched.grids == "square"


CHAIN = {"chain": umm.chain("mlp", tokens=64, hidden=64, ffn=64)}


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (CHAIN | {"dtype": "bf16"}, "sizes, types and given are the chain's; give them to umm.chain"),
        (CHAIN | {"m": 8}, "sizes, types and given are the chain's"),
        (CHAIN | {"given": "X=row"}, "sizes, types and given are the chain's"),
        (
            CHAIN | {"replication": 2},
            "replication is for one multiply; give the layouts of",
        ),
        (CHAIN | {"grids": "all"}, "grids is for one multiply"),
        (
            CHAIN | {"stationary": "A,B"},
            "several statements take one stationary matrix, not A, B",
        ),
        (MLP1 | {"named": "megatron"}, "one multiply has no layouts by name; give layouts, or a, b and c"),
    ],
)
def test_what_the_points_would_not_have_is_refused(asked, reason):
    """Each was taken, and the search then proved the best of another space."""
    with pytest.raises(InputError, match=reason):
        Space(**asked, ranks=4)


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"replication": 0}, "replication = 0 is not possible; it must be a whole number ≥ 1"),
        ({"replication": "2"}, "replication = '2' is not possible"),
        (
            {"a": Layout.parse("row", (8192, 12288), 8)},
            "a layout of a space takes a text such as col@2, not",
        ),
        ({"state": "12"}, "state takes a number of bytes, not '12', a str"),
    ],
)
def test_a_value_of_another_type_is_one_line(asked, reason):
    with pytest.raises(InputError, match=reason):
        Space(**MLP1, ranks=8, **asked)


def test_numpys_whole_numbers_are_whole_numbers():
    eight = np.int64(8)
    one = Space(m=64, n=64, k=64, ranks=eight, replication=np.array([1, 2]))
    other = Space(m=64, n=64, k=64, ranks=8, replication=(1, 2))
    assert one == other
    assert umm.Problem(m=eight, n=eight, k=eight, ranks=np.int32(2)) == umm.Problem(m=8, n=8, k=8, ranks=2)
    assert umm.chain("mlp", tokens=eight, hidden=eight, ffn=eight) == umm.chain(
        "mlp", tokens=8, hidden=8, ffn=8
    )
    assert json.dumps(umm.Problem(m=eight, n=8, k=8, ranks=2).to_dict())
    sizes = {"m": 64, "n": 64, "k": 64}
    assert Space(**sizes, prefetch=np.arange(2)) == Space(**sizes, prefetch=(0, 1))
    sent = {"what": "broadcast", "machine": "h100-8"}
    made = umm.collective(**sent, nbytes=eight, ranks=np.int64(4), root=np.int64(1))
    assert made.to_json() == umm.collective(**sent, nbytes=8, ranks=4, root=1).to_json()
    assert Options(prefetch=np.int64(1)) == Options(prefetch=1)
    problem = umm.Problem(m=8, n=8, k=8, ranks=2)
    assert json.dumps(dict(umm.schedule(problem, "h100-8", prefetch=np.int64(1)).options))
    assert umm.search(one, "h100-8", top=np.int64(1), memory=np.int64(2**30)).top == (
        umm.search(other, "h100-8", top=1, memory=2**30).top
    )

"""The statement symmetric: exact in every layout, priced by its kernel, searched and read from files."""

import pytest
from conformance.executor_suite import MACHINE, laws
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from performed import assert_performed
from strategies import layout_texts

import umm
from umm.errors import ProblemError
from umm.plans.lower import lower
from umm.program import Outline, Shape, load_chain, save_chain
from umm.program.statements.symmetric import Symmetric

RANKS = 4


def gram(rows, cols, *statements, dtype="float64", ranks=RANKS, **layouts):
    shapes = (Shape("X", rows, cols, dtype, "input"), Shape("G", rows, rows, dtype, "output"))
    outline = Outline("gram", shapes, statements)
    return outline.laid_out({"X": "row", "G": "row"} | layouts, ranks)


@settings(laws, max_examples=examples(200))
@given(st.data())
def test_a_symmetric_product_is_exact_in_any_layouts(data):
    """G = X·Xᵀ, then G = α·X·Xᵀ + β·G, on 4 ranks."""
    rows, cols = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 7))
    x, g = (data.draw(layout_texts(shape, RANKS)) for shape in ((rows, cols), (rows, rows)))
    alpha, beta = data.draw(st.sampled_from([1.0, 0.5])), data.draw(st.sampled_from([0.0, 1.0, -0.5]))
    kernel = data.draw(st.sampled_from(["gemm", "syrk"]))
    chain = gram(rows, cols, Symmetric("G", "X"), Symmetric("G", "X", alpha, beta, kernel), X=x, G=g)
    assert_performed(chain, data.draw(st.integers(0, 99)))


def seconds(kernel, ranks):
    chain = gram(4096, 4096, Symmetric("G", "X", kernel=kernel), dtype="float32", ranks=ranks)
    return umm.run(lower(chain, MACHINE)).makespan_s


def test_a_syrk_takes_half_the_time_of_what_has_the_same_rows_and_columns():
    """On one rank all of it, so half; by rows over 4 ranks a quarter of each one's, so at most an eighth."""
    assert seconds("syrk", 1) == pytest.approx(seconds("gemm", 1) / 2, rel=0.02)
    assert seconds("gemm", 4) * 7 / 8 < seconds("syrk", 4) < seconds("gemm", 4) * 0.96


def test_its_flop_are_of_a_triangle_by_syrk():
    """3 rows of 5: 2·3·3·5 = 90 by gemm, 3·4·5 = 60 by syrk."""
    flop = [gram(3, 5, Symmetric("G", "X", kernel=kernel)).flop for kernel in ("gemm", "syrk")]
    assert flop == [90, 60]


def test_it_is_read_from_a_file_and_searched(tmp_path):
    shapes = (Shape("X", 64, 32, "float32", "input"), Shape("G", 64, 64, "float32", "output"))
    outline = Outline("gram", shapes, (Symmetric("G", "X", alpha=2.0, kernel="syrk"),))
    save_chain(outline, tmp_path / "gram.toml")
    assert load_chain(tmp_path / "gram.toml") == outline
    answer = umm.search(umm.Space(chain=outline, ranks=RANKS), MACHINE)
    assert answer.proven
    assert answer.top[0].makespan_s > 0


def test_an_unknown_kernel_and_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ProblemError, match="kernel 'trmm' of G is unknown; choose from gemm, syrk"):
        Symmetric("G", "X", kernel="trmm")
    shapes = (Shape("X", 4, 3, "float32", "input"), Shape("G", 3, 3, "float32", "output"))
    with pytest.raises(ProblemError, match="4x3 times 3x4 cannot give 3x3"):
        Outline("gram", shapes, (Symmetric("G", "X"),))

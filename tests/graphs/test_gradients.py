"""Gradients of expressions of rows: slopes of the result, the same in every layout."""

import numpy as np
import pytest
from performed import assert_performed, result_slope

from umm.program import Map
from umm.program.graph.gradients import with_gradients
from umm.program.outline import Outline, Shape

COLS = {"rc": 6, "r1": 1}
EXPRESSIONS = {
    "a * b | r1,rc->rc": "a factor of rows",
    "sum(a * b, 6) | r1,rc->r1": "a sum of rows",
    "exp(mean(a * b, 6)) | rc,rc->r1": "a function of means",
    "amax(a, 6) * b | rc,r1->r1": "the largest of rows, in columns of their own",
    "(a - mean(a, 3)) * b | rc,r1->rc": "means of parts of rows",
    "(2 + b * b) ** a | rc,rc->rc": "a power",
}


def outline(fn):
    reads, _, out = fn.rpartition(" | ")[2].partition("->")
    tensors = [Shape(x, 4, COLS[y], "float64", "input") for x, y in zip("AB", reads.split(","), strict=True)]
    tensors.append(Shape("Y", 4, COLS[out], "float64", "output"))
    return with_gradients(Outline("rows", tuple(tensors), (Map("Y", fn, ("A", "B")),)))


@pytest.mark.parametrize("fn", EXPRESSIONS)
def test_gradients_are_slopes_of_the_result(fn):
    chain, rng = outline(fn).laid_out(ranks=1), np.random.default_rng(0)
    x = {y.name: rng.uniform(0.5, 1, y.shape) for y in chain.tensors if y.is_input}
    made = chain.reference(x)
    for name in "AB":
        for at in np.ndindex(x[name].shape):
            expected = result_slope(chain, x, name, at)
            assert made[f"d{name}"][at] == pytest.approx(expected, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("fn", EXPRESSIONS)
@pytest.mark.parametrize("layout", ["row", "col", "2d:2x2"])
def test_gradients_are_the_same_in_every_layout(layout, fn):
    made = outline(fn)
    layouts = {x.name: layout if x.cols > 1 else "row" for x in made.tensors}
    assert_performed(made.laid_out(layouts, 4), 1)

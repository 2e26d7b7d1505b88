"""An einsum in text: its chain computes NumPy's result, and mistakes are refused in a line."""

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import umm
from umm.errors import InputError
from umm.executor import executor
from umm.program.graph.einsum import einsum


def computed(text, sizes):
    outline = einsum(text, sizes)
    rng = np.random.default_rng(0)
    reads = text.partition("->")[0].split(",")
    arrays = [rng.standard_normal([sizes[x] for x in term]) for term in reads]
    return outline, arrays


@st.composite
def two_tensors(draw):
    """Two tensors with letters of a batch, of each alone and of both, in any order."""
    letters = iter(draw(st.permutations("abcdefgh")))
    batch, left, right, summed = (
        "".join(next(letters) for _ in range(draw(st.integers(0, 2)))) for _ in range(4)
    )
    terms = ["".join(draw(st.permutations(x))) for x in (batch + left + summed, batch + right + summed)]
    out = "".join(draw(st.permutations(batch + left + right)))
    return terms, out, {x: draw(st.integers(1, 3)) for x in "".join(terms)}


@given(two_tensors())
@settings(max_examples=examples(60))
def test_flop_of_two_tensors_are_those_of_their_letters(case):
    terms, out, sizes = case
    if not all(terms):
        return
    outline = einsum(f"{terms[0]},{terms[1]}->{out}", sizes)
    assert outline.laid_out(ranks=1).flop == 2 * int(np.prod(list(sizes.values())))


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("ij,jk->ik", "Y = A·B"),
        ("ab,bc,cd->ad", "T = B·C; Y = A·T"),
        ("bsk,kn->bsn", "Y = A·B"),
        ("bij,bjk->bik", "Y = A·B (2 members)"),
    ],
)
def test_matrices_are_multiplied(text, statements):
    sizes = dict.fromkeys("abijkns", 2) | {"c": 3, "d": 1}
    sizes = {x: sizes[x] for x in dict.fromkeys(text) if x.isalpha()}
    outline, arrays = computed(text, sizes)
    assert str(outline) == f"{text}: {statements}"
    shapes = {x.name: (x.rows, x.cols) for x in outline.tensors}
    inputs = {name: x.reshape(shapes[name]) for name, x in zip("ABC", arrays, strict=False)}
    result = outline.laid_out(ranks=1).reference(inputs)["Y"]
    np.testing.assert_allclose(result.ravel(), np.einsum(text, *arrays).ravel(), atol=1e-12)


def test_scores_of_heads_are_a_batch():
    sizes = {"b": 2, "h": 4, "s": 8, "t": 8, "d": 16}
    assert str(einsum("bshd,bthd->bhst", sizes)).endswith("(8 members)")


@pytest.mark.parametrize(
    ("text", "sizes", "words"),
    [
        ("ij", {"i": 2}, "not an einsum of two or more"),
        ("ij,jk", {"i": 2}, "not an einsum of two or more"),
        ("ij,jk->il", {"i": 2, "j": 2, "k": 2}, "l of the result is in no tensor"),
        ("ii,ij->j", {"i": 2, "j": 2}, "a letter twice"),
        ("ij,jk->ik", {"i": 2, "j": 2}, "needs the size of k; write k=128"),
        ("ij,jk->ik", {"i": 2, "j": 2, "k": 0}, "size k"),
        ("ij,jk->ik", {"i": 2, "j": 2, "k": 2, "z": 2}, "'z' is no letter"),
        ("ij,jk->k", {"i": 2, "j": 2, "k": 2}, "added over within one tensor"),
    ],
)
def test_mistakes_are_refused_in_a_line(text, sizes, words):
    with pytest.raises(InputError, match=words):
        einsum(text, sizes)


def test_the_members_of_a_batch_are_shared_unless_asked_otherwise() -> None:
    made = einsum("bshd,bthd->bhst", {"b": 8, "s": 1024, "t": 1024, "h": 32, "d": 128})
    assert made.default_layouts == made.layouts["data"]
    seconds = [executor("sim").makespan(umm.schedule(made, "h100-8", layouts=x)) for x in (None, "megatron")]
    assert seconds[0] < seconds[1] / 2  # tensor parallel ranks multiply all 256 members each

"""An einsum in text, such as ``bshd,bthd->bhst``, as a chain of (batched) multiplies."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from umm.dtypes import canonical
from umm.errors import ProblemError
from umm.files import shown, whole_number
from umm.program.graph.folds import Value, folded
from umm.program.graph.nodes import Graph
from umm.program.graph.writing import parts
from umm.program.outline import Outline
from umm.program.tensors import LARGEST

_FORM = re.compile(r"([A-Za-z]+(?:,[A-Za-z]+)+)->([A-Za-z]*)")
NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def einsum(text: str, sizes: Mapping[str, int], dtype: str = "float32") -> Outline:
    """Return an einsum of two or more tensors as a chain: each contraction is a multiply, perhaps a batch.

    The order of contractions is that of fewest flop that ``numpy.einsum_path`` finds. Dimensions are put in
    rows and columns so that every contraction takes its operands as they are. InputError in one line, for a
    text that is no einsum, a missing size, or a contraction that is no multiply.

    Args:
        text: Letters for the dimensions of each tensor, and of the result; a letter that the result lacks is
            added over.

    >>> print(einsum("bshd,bthd->bhst", {"b": 2, "h": 4, "s": 8, "t": 8, "d": 16}))
    bshd,bthd->bhst: Y = A·B (8 members)
    """
    match = _FORM.fullmatch(text.replace(" ", ""))
    if match is None:
        raise ProblemError(
            f"{shown(text)} is not an einsum of two or more tensors; write it like bsk,kn->bsn"
        )
    reads, out = match[1].split(","), match[2]
    _check(reads, out, sizes)
    if len(reads) > len(NAMES):
        raise ProblemError(f"{len(reads)} tensors are too many for an einsum; give at most {len(NAMES)}")
    steps = _steps(reads, out, sizes)
    made = _written(reads, steps, sizes)
    if made is None:
        raise ProblemError(
            f"no layout of rows and columns makes each contraction of {text} one multiply: "
            f"{'; '.join(f'{a},{b}->{c}' for _, _, a, b, c in steps)}; write it as several einsums"
        )
    graph, value = made
    (part,) = parts(graph, [value.node], text.replace(" ", "")[:64], canonical(dtype))
    # Tensor parallel layouts are made for weights: here they would give every rank a whole tensor.
    layouts = part.outline.layouts
    return replace(part.outline, layouts={"data": layouts["data"], **layouts})


def _check(reads: Sequence[str], out: str, sizes: Mapping[str, int]) -> None:
    """Refuse letters that are unknown, repeated or without a size."""
    letters = "".join(dict.fromkeys("".join(reads)))
    for x in out:
        if x not in letters:
            raise ProblemError(f"{x} of the result is in no tensor; choose from {', '.join(letters)}")
    for term in (*reads, out):
        if len(set(term)) < len(term):
            raise ProblemError(f"{term} has a letter twice, a diagonal, which is no multiply; give each once")
    missing = [x for x in letters if x not in sizes]
    if missing:
        raise ProblemError(f"the einsum needs the size of {', '.join(missing)}; write {missing[0]}=128")
    for name, size in sizes.items():
        if name not in letters:
            raise ProblemError(f"{shown(name)} is no letter of the einsum; choose from {', '.join(letters)}")
        whole_number(size, f"size {name} of the einsum", 1, LARGEST)
    for x in letters:
        if x not in out and sum(x in term for term in reads) == 1:
            raise ProblemError(
                f"{x} is added over within one tensor, which is no multiply; add over it first"
            )


MAX_OPTIMAL = 7  # tensors from which on the order of contractions is a greedy one: all orders are too many
Step = tuple[int, int, str, str, str]  # numbers of two tensors, their letters, and those of their product


def _steps(reads: Sequence[str], out: str, sizes: Mapping[str, int]) -> list[Step]:
    """Return the contractions in the order of fewest flop, the product behind the tensors that are left."""
    shapes = [np.broadcast_to(np.float32(0), [sizes[x] for x in term]) for term in reads]
    path, _ = np.einsum_path(
        ",".join(reads) + "->" + out, *shapes, optimize="optimal" if len(reads) < MAX_OPTIMAL else "greedy"
    )
    left = list(enumerate(reads))
    steps: list[Step] = []
    number = len(reads)
    for pair in path[1:]:
        taken = [left[i] for i in sorted(pair)]
        left = [x for i, x in enumerate(left) if i not in pair]
        # Three tensors that share all letters are contracted two by two.
        while len(taken) > 1:
            (i, a), (j, b), *others = taken
            later = {*out, *"".join(term for _, term in (*left, *others))}
            kept = "".join(x for x in dict.fromkeys(a + b) if x in later)
            if not left and not others:
                kept = out
            steps.append((i, j, a, b, kept))
            taken = [(number, kept), *others]
            number += 1
        left.append(taken[0])
    return steps


MAX_TRIED = 20000  # ways to cut tensors into rows and columns that are tried


def _written(
    reads: Sequence[str], steps: Sequence[Step], sizes: Mapping[str, int]
) -> tuple[Graph, Value] | None:
    """Return the multiplies, letters of tensors in an order that they take; None if there is none."""
    users = {i: step for step in steps for i in step[:2]}
    choices = [_orders(term, users[i], i) for i, term in enumerate(reads)]
    for tried, chosen in enumerate(product(*choices)):
        if tried > MAX_TRIED:
            return None
        graph = Graph()
        values: list[Value | None] = []
        for name, term, (rows, cols) in zip(NAMES, reads, chosen, strict=False):
            graph.label = name
            node = graph.add("input", _size(rows, sizes), _size(cols, sizes), named=True)
            placed = folded(node, [sizes[x] for x in rows], [sizes[x] for x in cols])
            by_letter = dict(zip(rows + cols, placed.dims, strict=True))
            values.append(Value(node, tuple(by_letter[x] for x in term)))
        for i, j, a, b, out in steps:
            left, right = values[i], values[j]
            graph.label = "T"
            made = left and right and graph.contract(left, right, a, b, out)
            # The product has the rows of its left operand, so either may be the left one.
            values.append(made or (left and right and graph.contract(right, left, b, a, out)))
            if values[-1] is None:
                break
        else:
            last = values[-1]
            assert last is not None
            return graph, last
    return None


def _size(letters: str, sizes: Mapping[str, int]) -> int:
    return int(np.prod([sizes[x] for x in letters], dtype=object)) if letters else 1


def _orders(term: str, step: Step, number: int) -> list[tuple[str, str]]:
    """Return rows and columns of a tensor: letters kept and letters added over, members outside."""
    # Members of a batch lie outside: in the rows, in the columns, or some in each.
    i, _, a, b, out = step
    other = b if number == i else a
    batch = "".join(x for x in out if x in a and x in b)
    kept = "".join(x for x in out if x in term and x not in other)
    summed = "".join(sorted(x for x in term if x not in out))
    cuts = [(batch[:n], batch[n:]) for n in range(len(batch), -1, -1)]
    sides = (kept, summed) if number == i else (summed, kept)
    return [(outer + x, inner + y) for x, y in (sides, sides[::-1]) for outer, inner in cuts]

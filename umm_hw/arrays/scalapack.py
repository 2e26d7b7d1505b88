"""PDGEMM for those who port: the PBLAS's arguments, array descriptors and 1-based submatrices included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError, UmmError
from umm.layouts.edges import square_grid
from umm_hw.arrays.group import group_of
from umm_hw.arrays.local import Part
from umm_hw.arrays.matrix import wrapped
from umm_hw.arrays.plan import multiply, op_of
from umm_hw.arrays.prediction import panels

__all__ = ["panels", "pgemm"]

Desc = Sequence[int]


def pgemm(
    transa: str,
    transb: str,
    m: int,
    n: int,
    k: int,
    alpha: Any,
    a: NDArray[Any],
    ia: int,
    ja: int,
    desca: Desc,
    b: NDArray[Any],
    ib: int,
    jb: int,
    descb: Desc,
    beta: Any,
    c: NDArray[Any],
    ic: int,
    jc: int,
    descc: Desc,
    *,
    comm: Any = None,
    grid: tuple[int, int] | None = None,
    order: str = "R",
    memory: int | str | None = None,
) -> None:
    """Set sub(C) to α·op(sub(A))·op(sub(B)) + β·sub(C), as PSGEMM, PDGEMM, PCGEMM and PZGEMM do; collective.

    Args:
        transa: ``N``, ``T`` or ``C``, for A.
        transb: The same for B.
        m: Rows of sub(C).
        n: Columns of sub(C).
        k: Columns of op(sub(A)).
        alpha: Factor of the product.
        a: This process's local array of A, flat and by columns as in Fortran, or of two dimensions.
        ia: First row of sub(A) in A, counted from 1.
        ja: First column.
        desca: Its descriptor, whose nine numbers are this process's own: ``LLD_`` may differ, and the context
            is not looked at.
        ib: First row of sub(B).
        jb: First column.
        descb: Descriptor of B.
        beta: Factor of what sub(C) was; 0 does not read it.
        c: Of C; only sub(C) is written.
        ic: First row of sub(C).
        jc: First column.
        descc: Descriptor of C.
        comm: The mpi4py communicator whose ranks are the processes of the grid; the world if None.
        grid: Rows and columns of processes; the most square grid if None.
        order: How ranks go over the grid, as BLACS_GRIDINIT takes it: ``R`` or ``C``.
        memory: Most bytes of a process beside its local arrays, as a number or as ``64MiB``; k is then split
            into steps. None for 64 MiB, or half of what the arrays take if that is more.

    Raises:
        InputError: on every process, where an argument does not fit, named as in the PBLAS.

    Source: ScaLAPACK's PBLAS, PDGEMM.
    """
    if comm is None:
        from mpi4py import MPI

        comm = MPI.COMM_WORLD
    error: UmmError | None = None
    parts, subs, ops = [], [], ("N", "N")
    try:
        ops = op_of(transa, "transa"), op_of(transb, "transb")
        if min(m, n, k) < 0:
            raise InputError(f"m, n and k are at least 0, not {m}, {n} and {k}")
        sub_a, sub_b = ((m, k) if ops[0] == "N" else (k, m)), ((k, n) if ops[1] == "N" else (n, k))
        parts = [_part(x, desc, comm, grid, order) for x, desc in ((a, desca), (b, descb), (c, descc))]
        given = (("a", ia, ja, sub_a), ("b", ib, jb, sub_b), ("c", ic, jc, (m, n)))
        subs = [_window(*x, part.shape) for x, part in zip(given, parts, strict=True)]
    except UmmError as refused:
        error = refused
    matrices = wrapped(comm, parts, error)
    left, right, out = (matrix[sub] for matrix, sub in zip(matrices, subs, strict=True))
    multiply(left, right, out=out, alpha=alpha, beta=beta, trans_a=ops[0], trans_b=ops[1], memory=memory)


def _part(local: NDArray[Any], desc: Desc, comm: Any, grid: tuple[int, int] | None, order: str) -> Part:
    """Return a local array, by columns as Fortran keeps it, with the layout that its descriptor says."""
    if len(desc) != 9:
        raise InputError(f"descriptor {list(desc)} has {len(desc)} numbers; one of a dense matrix has 9")
    rows, cols = grid or square_grid(group_of(comm).size)
    text = f"scalapack:desc={','.join(str(int(x)) for x in desc)};grid={rows}x{cols};order={order}"
    flat = np.ndim(local) == 1
    return Part(
        text, (int(desc[2]), int(desc[3])), local, "F" if flat else None, int(desc[8]) if flat else None
    )


def _window(name: str, i: int, j: int, sub: tuple[int, int], shape: Sequence[int]) -> tuple[slice, slice]:
    """Return the rows and columns of a submatrix, counted from 0."""
    if i < 1 or j < 1 or i - 1 + sub[0] > shape[0] or j - 1 + sub[1] > shape[1]:
        raise InputError(
            f"sub({name.upper()}) of {sub[0]}x{sub[1]} at i{name}={i}, j{name}={j} leaves {name.upper()} of "
            f"{shape[0]}x{shape[1]}; indices count from 1"
        )
    return slice(i - 1, i - 1 + sub[0]), slice(j - 1, j - 1 + sub[1])

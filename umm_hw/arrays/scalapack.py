"""PDGEMM for those who port: the arguments of the PBLAS, array descriptors and 1-based submatrices included."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.errors import InputError
from umm_hw.arrays.matrix import DistributedMatrix
from umm_hw.arrays.plan import op_of

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
    comm: Any,
    grid: tuple[int, int] | None = None,
    order: str = "R",
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
        desca: Its descriptor, whose nine numbers are this process's own: LLD_ may differ, and the context is
            not looked at.
        b: Of B.
        ib: First row of sub(B).
        jb: First column.
        descb: Descriptor of B.
        beta: Factor of what sub(C) was; 0 does not read it.
        c: Of C; only sub(C) is written.
        ic: First row of sub(C).
        jc: First column.
        descc: Descriptor of C.
        comm: The communicator whose ranks are the processes of the grid.
        grid: Rows and columns of processes; the most square grid if None.
        order: How ranks go over the grid, as BLACS_GRIDINIT takes it: ``R`` or ``C``.

    Raises:
        InputError: on every process, where an argument does not fit, named as in the PBLAS.

    Source: ScaLAPACK's PBLAS, PDGEMM.
    """
    ops = op_of(transa, "transa"), op_of(transb, "transb")
    sizes = {"m": m, "n": n, "k": k}
    if min(sizes.values()) < 0:
        raise InputError(f"m, n and k are at least 0, not {m}, {n} and {k}")
    sub_a = (m, k) if ops[0] == "N" else (k, m)
    sub_b = (k, n) if ops[1] == "N" else (n, k)
    subs = []
    for name, local, i, j, desc, sub in (
        ("a", a, ia, ja, desca, sub_a),
        ("b", b, ib, jb, descb, sub_b),
        ("c", c, ic, jc, descc, (m, n)),
    ):
        if len(desc) != 9:
            raise InputError(f"desc{name} has {len(desc)} numbers; a descriptor of a dense matrix has 9")
        whole = int(desc[2]), int(desc[3])
        if i < 1 or j < 1 or i - 1 + sub[0] > whole[0] or j - 1 + sub[1] > whole[1]:
            raise InputError(
                f"sub({name.upper()}) of {sub[0]}x{sub[1]} at i{name}={i}, j{name}={j} leaves {name.upper()} of "
                f"{whole[0]}x{whole[1]}; indices count from 1"
            )
        made = described(comm, desc, local, grid, order)
        subs.append(made[i - 1 : i - 1 + sub[0], j - 1 : j - 1 + sub[1]])
    from umm_hw.arrays.plan import multiply

    multiply(subs[0], subs[1], out=subs[2], alpha=alpha, beta=beta, trans_a=ops[0], trans_b=ops[1])


def described(
    comm: Any, desc: Desc, local: NDArray[Any], grid: tuple[int, int] | None = None, order: str = "R"
) -> DistributedMatrix:
    """Return the matrix of a descriptor and a local array, by columns as Fortran keeps it; collective.

    A local array of two dimensions may be taller than what the process holds: its rows are LLD_.
    """
    from umm.layouts.edges import square_grid
    from umm.layouts.frameworks.scalapack import parts
    from umm.layouts.layout import Layout
    from umm_hw.arrays.group import group_of
    from umm_hw.arrays.matrix import local_shape

    group = group_of(comm)
    shape = int(desc[2]), int(desc[3])
    layout = Layout.of_parts(parts(desc, grid or square_grid(group.size), order), shape)
    flat = np.asarray(local)
    if flat.ndim == 2:
        rows, cols = local_shape(layout, group.rank)
        return DistributedMatrix.wrap(comm, layout, shape, flat[:rows, :cols])
    return DistributedMatrix.wrap(comm, layout, shape, flat, order="F", ld=int(desc[8]))

"""dask.array on a pool of threads, one of BLAS each: chunks by rows or columns, C rechunked to its layout."""

import os
import sys

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import dask
import dask.array
import numpy as np
from problems import LAYOUTS, RANKS, SHAPES, best, say


def chunks(name, rows, cols):
    return (rows // RANKS, cols) if name == "row" else (rows, cols // RANKS)


dask.config.set(scheduler="threads", num_workers=RANKS)
for shape in sys.argv[2:]:
    m, n, k = SHAPES[shape]
    for layouts in LAYOUTS:
        a, b, c = layouts.split(",")
        left = dask.array.from_array(np.full((m, k), 1e-3, np.float32), chunks(a, m, k)).persist()
        right = dask.array.from_array(np.full((k, n), 1e-3, np.float32), chunks(b, k, n)).persist()
        seconds = best(lambda: (left @ right).rechunk(chunks(c, m, n)).persist(), int(sys.argv[1]))  # noqa: B023
        say("dask", shape, layouts, seconds)

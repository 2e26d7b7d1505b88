"""One rank of PDGEMM: ScaLAPACK's libraries by ctypes, timed on cases from the command line.

It stands alone, so that any Python with NumPy runs it: ``mpiexec -n 4 python scalapack_rank.py CASES REPEAT
LIBRARY``. BLACS starts MPI itself. What the library needs and does not name, as MKL's, goes into LD_PRELOAD.
"""

import ctypes
import json
import sys
import time

import numpy as np

INT, DOUBLE = ctypes.c_int, ctypes.c_double


def at(value, kind=INT):
    return ctypes.byref(kind(value))


def main():
    cases, repeat = json.loads(sys.argv[1]), int(sys.argv[2])
    library = ctypes.CDLL(sys.argv[3], mode=ctypes.RTLD_GLOBAL)
    preloaded = ctypes.CDLL(None)

    def call(name):
        return getattr(library, name) if hasattr(library, name) else getattr(preloaded, name)

    numroc = call("numroc_")
    numroc.restype = INT
    rank, size = INT(), INT()
    call("blacs_pinfo_")(ctypes.byref(rank), ctypes.byref(size))
    result = {}
    for case in cases:
        context = INT()
        rows, cols = case["grid"]
        call("blacs_get_")(at(-1), at(0), ctypes.byref(context))
        call("blacs_gridinit_")(ctypes.byref(context), b"R", at(rows), at(cols))
        row, col = INT(), INT()
        call("blacs_gridinfo_")(ctypes.byref(context), at(0), at(0), ctypes.byref(row), ctypes.byref(col))
        row, col = divmod(rank.value, cols)
        mats = []
        m, n, k = case["m"], case["n"], case["k"]
        for shape, block in zip(((m, k), (k, n), (m, n)), case["blocks"], strict=True):
            local = [
                numroc(at(size_), at(nb), at(place), at(0), at(count))
                for size_, nb, place, count in zip(shape, block, (row, col), (rows, cols), strict=True)
            ]
            desc = (INT * 9)(1, context.value, *shape, *block, 0, 0, max(1, local[0]))
            array = np.asfortranarray(np.random.default_rng(rank.value).standard_normal(local))
            mats.append((ctypes.c_void_p(array.ctypes.data), at(1), at(1), desc, array))
        a, b, c = (x[:4] for x in mats)
        times = []
        for _ in range(repeat):
            call("blacs_barrier_")(ctypes.byref(context), b"A")
            begin = time.perf_counter()
            library.pdgemm_(b"N", b"N", at(m), at(n), at(k), at(1.0, DOUBLE), *a, *b, at(0.0, DOUBLE), *c)
            call("blacs_barrier_")(ctypes.byref(context), b"A")
            times.append(time.perf_counter() - begin)
        result[case["name"]] = min(times)
        call("blacs_gridexit_")(ctypes.byref(context))
    if rank.value == 0:
        print(json.dumps(result))
        sys.stdout.flush()
    call("blacs_exit_")(at(0))


if __name__ == "__main__":
    main()

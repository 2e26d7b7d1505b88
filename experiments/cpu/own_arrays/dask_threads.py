"""dask.array on a thread for each rank, one of BLAS each: ``python dask_threads.py CASES REPEAT RANKS``."""

import json
import os
import sys
import time

os.environ |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}

import dask
import dask.array
import numpy as np


def main():
    ranks = int(sys.argv[3])
    dask.config.set(scheduler="threads", num_workers=ranks)
    result = {}
    for case in json.loads(sys.argv[1]):
        if case["placements"] is None:
            continue
        m, n, k = case["m"], case["n"], case["k"]
        left, right = (
            dask.array.from_array(np.full(shape, 1e-3), chunks=tuple(block)).persist()
            for shape, block in zip(((m, k), (k, n)), case["blocks"], strict=False)
        )
        times = []
        for _ in range(int(sys.argv[2])):
            begin = time.perf_counter()
            (left @ right).rechunk(tuple(case["blocks"][2])).persist()
            times.append(time.perf_counter() - begin)
        result[case["name"]] = min(times)
    print(json.dumps(result))


if __name__ == "__main__":
    main()

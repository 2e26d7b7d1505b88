"""The problems of every program: sizes, layouts, and how its times are printed. Imports no library of umm."""

import json
from itertools import product
from time import perf_counter

# A square, and MLP-1 and MLP-2 at one eighth of the paper's n and k; m, n, k.
SHAPES = {
    "square": (4096, 4096, 4096),
    "mlp1-512": (512, 6144, 1536),
    "mlp1-2048": (2048, 6144, 1536),
    "mlp2-512": (512, 1536, 6144),
    "mlp2-2048": (2048, 1536, 6144),
}
LAYOUTS = [",".join(layouts) for layouts in product(("row", "col"), repeat=3)]
# With matrices that every rank has whole; DTensor's Replicate.
REPLICATED = [",".join(x) for x in product(("row", "col", "all"), repeat=3) if "all" in x]
RANKS = 2


def best(action, repeats):
    """Seconds of the quickest call, after one that warms up."""
    action()
    result = []
    for _ in range(repeats):
        began = perf_counter()
        action()
        result.append(perf_counter() - began)
    return min(result)


def say(library, shape, layouts, seconds):
    print(
        json.dumps({"library": library, "shape": shape, "layouts": layouts, "seconds": seconds}), flush=True
    )

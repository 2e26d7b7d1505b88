"""Reads and parameters for every function of maps, on 6 rows and 8 columns."""

import numpy as np

from umm.program.functions import FUNCTIONS, function

PLAIN = sorted(name for name, x in FUNCTIONS.items() if x.is_plain)

PARAMETERS = {
    "scale": {"factor": -0.5},
    "add": {"factor": 2.0},
    "dropout": {"rate": 0.3, "seed": 7},
    "rope": {"head": 4, "positions": 3},
    "rope_grad": {"head": 4, "positions": 3},
    "rope_halves": {"head": 4, "positions": 3, "turned": 2},
    "rope_halves_grad": {"head": 4, "positions": 3, "turned": 2},
    "head_norm": {"head": 4},
    "head_rms_norm": {"head": 4},
    "head_rms_norm_grad": {"head": 4},
    "head_rms_scale_grad": {"head": 4},
    "head_norm_grad": {"head": 4},
    "masked_softmax": {"queries": 3, "keys": 4},
    "softmax": {"keys": 2},
    "softmax_grad": {"keys": 2},
    "rstd": {"columns": 8},
    "rms_rstd": {"columns": 8},
    "routed_softmax": {"routing": "6x8x3:uniform:1"},
}
ROWS, COLS = 6, 8


def shape_of(letters, rows, cols):
    return rows if letters[0] == "r" else 1, cols if letters[1] == "c" else 1


def operands(name, dtype="float64", seed=0):
    """Random reads of a function on 6 x 8; values under a root are positive."""
    random = np.random.default_rng(seed)
    drawn = [random.standard_normal(shape_of(x, ROWS, COLS)) for x in function(name).operands[1:]]
    if name in ("normalise", "rstd", "rms_rstd"):
        drawn[-1] = drawn[-1] ** 2 + 9.0
    return [x.astype(dtype) for x in drawn]

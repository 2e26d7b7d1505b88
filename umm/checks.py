"""Whether a product is right: operands to multiply, and float64 NumPy to hold C against."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.dtypes import COMPLEX, factors, is_float8, itemsize, rounded_to_float8
from umm.errors import InfeasibleError
from umm.host.hardware import free_memory
from umm.program import Chain
from umm.program.problem import Problem
from umm.program.statements.multiply import products
from umm.program.tensors import by_name
from umm.units import format_bytes

# Largest error allowed, relative to C's largest element, by the type C is accumulated in. Rounding alone
# gives about the type's epsilon; a missing or doubled op gives far more.
TOLERANCE = {
    "float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1, "complex128": 1e-12,
    "complex64": 1e-5,
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """How far a product, or an output of a chain, is from float64 NumPy's."""

    max_abs_error: float  # largest absolute difference of an element; nan if C has one that is not a number
    scale: float  # largest absolute element of the reference, or of all where its own are rounding
    tolerance: float  # largest error allowed, relative to the scale
    name: str = "C"  # what is compared with it

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.max_abs_error <= self.tolerance * self.scale

    @property
    def relative(self) -> float:
        """The error as a share of the tolerance; nan where it is not a number."""
        return self.max_abs_error / (self.tolerance * self.scale) if self.scale else self.max_abs_error

    def __str__(self) -> str:
        word = "right" if self.ok else "wrong"
        relative = self.max_abs_error / self.scale if self.scale else 0.0
        return (
            f"{self.name} is {word}: max error {self.max_abs_error:.3g} against float64 NumPy, "
            f"{relative:.1e} of its largest element ({self.tolerance:.0e} allowed)"
        )


def random_operands(problem: Problem, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return A and B uniform in [−1, 1), in the problem's type; bfloat16 as float32 values that it has.

    InfeasibleError if this host lacks the memory.

    >>> a, _ = random_operands(Problem(m=2, n=2, k=2, dtype="bfloat16"))
    >>> a.dtype.name, np.all(a.view(np.uint32) % 2**16 == 0)
    ('float32', np.True_)
    """
    types = zip("AB", factors(problem.dtype), strict=True)
    drawn = random_arrays({x: (problem.shape(x), dtype) for x, dtype in types}, seed)
    return drawn["A"], drawn["B"]


def random_arrays(
    wanted: Mapping[str, tuple[tuple[int, int], str]], seed: int = 0
) -> dict[str, NDArray[Any]]:
    """Return arrays uniform in [−1, 1), by name; bfloat16 as float32 values that it has.

    InfeasibleError if this host lacks the memory.
    """
    sizes = [rows * cols * max(4, itemsize(dtype)) for (rows, cols), dtype in wanted.values()]
    _check_memory(" and ".join(wanted), sum(sizes) + max(sizes, default=0))  # one twice while it is drawn
    rng = np.random.default_rng(seed)
    return {name: _uniform(rng, *shape_and_type) for name, shape_and_type in wanted.items()}


def reference_product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return AB as NumPy has it in float64, or complex128, A and B taken as they are.

    InfeasibleError if this host lacks the memory.
    """
    wide = np.result_type(np.float64, np.complex128 if a.dtype.kind == "c" else np.float64)
    _check_memory(f"A, B and C in {wide}", wide.itemsize * (a.size + b.size + len(a) * b.shape[1]))
    product: NDArray[Any] = a.astype(wide) @ b.astype(wide)
    return product


def check_product(problem: Problem, reference: NDArray[Any], c: NDArray[Any]) -> Check:
    """Return how far C is from the reference.

    Args:
        problem: Its ``c_dtype`` sets the tolerance.
        reference: What :func:`reference_product` has, m×n.

    >>> one = np.ones((2, 2), dtype=np.float32)
    >>> check_product(Problem(m=2, n=2, k=2), reference_product(one, one), 2 * one).ok
    True
    """
    error = float(np.abs(reference - c).max())
    return Check(error, float(np.abs(reference).max()), TOLERANCE[problem.c_dtype])


def random_inputs(chain: Chain, seed: int = 0) -> dict[str, NDArray[Any]]:
    """Return operands of a chain, uniform in [−1, 1); a right factor of r rows is scaled by about 1/√r.

    So activations stay near 1 from multiply to multiply, and what a softmax is given does not saturate it.
    The scale is a power of two, which keeps a value of bfloat16 one. What is only summed has a slice for each
    replica, along a third dimension in front. InfeasibleError if this host lacks the memory.
    """
    named = by_name(chain.tensors)
    summed = {name for x in chain.statements if x.sums_replicas for name in x.reads}
    summed -= {name for x in chain.statements if not x.sums_replicas for name in x.reads}
    shapes = {name: named[name].shape for name in chain.operand_names}
    shapes |= {x: (named[x].layout.replicas * shapes[x][0], shapes[x][1]) for x in summed}
    arrays = random_arrays({name: (shape, named[name].dtype) for name, shape in shapes.items()}, seed)
    arrays |= {x: arrays[x].reshape(-1, *named[x].shape) for x in summed}
    factors = {x.b for x in products(chain.statements)}
    for name in factors & set(arrays):
        arrays[name] *= arrays[name].dtype.type(2.0 ** -round(log2(named[name].shape[0]) / 2))
    return arrays


def chain_reference(chain: Chain, operands: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Return the outputs of a chain as float64 NumPy has them.

    InfeasibleError if this host lacks the memory.
    """
    elements = sum(x.shape[0] * x.shape[1] for x in chain.tensors)
    _check_memory(f"the tensors of {chain.name} in float64", 8 * elements)
    values = chain.reference(operands)
    return {name: values[name] for name in chain.outputs}


def check_outputs(
    chain: Chain, reference: Mapping[str, NDArray[np.float64]], results: Mapping[str, NDArray[Any]]
) -> Check:
    """Return how far off the worst output of a chain is, as a share of its tolerance.

    Args:
        chain: The types of its outputs set the tolerances.
        reference: What :func:`chain_reference` has.
    """
    named = by_name(chain.tensors)
    what = "" if len(reference) == 1 else f", the worst of {len(reference)} outputs,"
    scales = {name: float(np.abs(expected).max()) for name, expected in reference.items()}
    largest = max(scales.values())
    # The gradient of a softmax over one token is zero: both sides are rounding, which only others can scale.
    scales = {name: largest if x < TOLERANCE["float64"] * largest else x for name, x in scales.items()}
    checks = [
        Check(
            float(np.abs(expected - results[name]).max()),
            scales[name],
            TOLERANCE[named[name].dtype],
            f"{name}{what}",
        )
        for name, expected in reference.items()
    ]
    return max(checks, key=lambda x: float("inf") if isnan(x.relative) else x.relative)


def _check_memory(what: str, nbytes: int) -> None:
    """Refuse to make whole matrices of more bytes than are free: that would kill a process."""
    free = free_memory()
    if nbytes > free:
        raise InfeasibleError(
            f"{what} as whole matrices need {format_bytes(nbytes)} on this host, but {format_bytes(free)} is "
            f"free: {format_bytes(nbytes - free)} short; choose smaller sizes"
        )


def _uniform(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    if dtype in COMPLEX:
        parts = [_uniform(rng, shape, COMPLEX[dtype]) for _ in range(2)]
        return np.asarray(parts[0] + 1j * parts[1], dtype=dtype)
    drawn = np.float64 if dtype == "float64" else np.float32
    values = 2 * rng.random(shape, dtype=drawn) - 1
    if is_float8(dtype):
        return rounded_to_float8(values, dtype)
    if dtype == "bfloat16":  # NumPy lacks it; its values are the float32 whose lower half is zero
        return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)
    return values.astype(dtype, copy=False)

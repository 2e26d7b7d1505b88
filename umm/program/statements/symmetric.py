"""Symmetric products: a matrix times its own transpose."""

from dataclasses import dataclass
from typing import ClassVar

from umm.errors import ProblemError
from umm.files import shown
from umm.program.statements.base import Array, Statement, Tensors, Values
from umm.program.statements.multiply import Multiply

KERNELS = ("gemm", "syrk")


@dataclass(frozen=True)
class Symmetric(Statement):
    """out = α · x · xᵀ + β · out.

    With β = 0 the old elements of out are not read.

    >>> print(Symmetric("G", "X", kernel="syrk"))
    G = X·Xᵀ (syrk)
    """

    kind: ClassVar[str] = "symmetric"
    READS: ClassVar[tuple[str, ...]] = ("x",)
    x: str  # the matrix
    alpha: float = 1.0  # factor α of the product
    beta: float = 0.0  # factor β of what out holds
    # `syrk` where libraries compute one triangle and mirror it, in half the arithmetic; `gemm` where they
    # compute both. Prices halve what has the same rows and columns of out; NumPy, MPI and OpenCL halve it
    # where both operands are one memory, CUDA and CLBlast compute it whole.
    kernel: str = "gemm"

    def __post_init__(self) -> None:
        """Check the kernel and the factors."""
        if self.kernel not in KERNELS:
            raise ProblemError(
                f"kernel {shown(self.kernel)} of {self.out} is unknown; choose from {', '.join(KERNELS)}"
            )
        for name in ("alpha", "beta"):
            object.__setattr__(self, name, getattr(self.product, name))

    @property
    def product(self) -> Multiply:
        """It as a multiply of two matrices."""
        return Multiply(self.out, self.x, self.x, ("b",), self.alpha, self.beta)

    @property
    def reads(self) -> tuple[str, ...]:
        """The tensors it reads."""
        return (self.x, self.out) if self.beta else (self.x,)

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes or types do not fit."""
        self.product.check(tensors)

    def flop(self, tensors: Tensors) -> int:
        """Return its floating-point operations: of one triangle, the diagonal in it, if that is computed."""
        rows, cols = tensors[self.x].shape
        return rows * (rows + 1) * cols if self.kernel == "syrk" else self.product.flop(tensors)

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        return self.product.results(values, tensors)

    def __str__(self) -> str:
        times = f"{self.x}·{self.x}ᵀ" if self.alpha == 1 else f"{self.alpha}·{self.x}·{self.x}ᵀ"
        added = f" + {self.beta}·{self.out}" if self.beta else ""
        return f"{self.out} = {times}{added}" + (f" ({self.kernel})" if self.kernel != "gemm" else "")

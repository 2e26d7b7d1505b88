"""Short convolutions as statements: each column over the last few tokens of its sequence; and gradients."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from umm.errors import ProblemError
from umm.files import whole_number
from umm.program.statements.base import Array, Shapes, Statement, Tensors, Values


@dataclass(frozen=True)
class Convolved(Statement):
    """A short convolution, or its gradients: fields and sizes that both have.

    Rows are tokens, those of one sequence after those of another.
    """

    x: str  # what is convolved
    w: str  # a row of weights, those of a column side by side, the one of the token itself first
    taps: int = field(kw_only=True)  # tokens that one sees, itself the last
    sequences: int = field(default=1, kw_only=True)  # equal parts of the rows, each convolved alone

    def __post_init__(self) -> None:
        """Check the numbers, whatever the tensors are."""
        for name, most in (("taps", 2**10), ("sequences", 2**31)):
            whole_number(getattr(self, name), f"{name} of {self.out}", 1, most)

    def _like(self) -> tuple[str, ...]:
        """Return the tensors of the shape of x."""
        return (self.x, self.out)

    def _wide(self, cols: int) -> dict[str, tuple[int, int]]:
        """Return the shapes of others, of so many columns of x."""
        return {self.w: (1, cols * self.taps)}

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes do not fit."""
        rows, cols = tensors[self.x].shape
        if rows % self.sequences:
            raise ProblemError(f"{rows} rows of {self.x} are not {self.sequences} equal sequences")
        self.check_sizes(dict.fromkeys(self._like(), (rows, cols)) | self._wide(cols), tensors, self.x)
        self.check_apart()

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return x with all that has its shape."""
        return [(self.x, name) for name in self._like()[1:]]

    def parameters(self, tensors: Tensors) -> dict[str, Any]:
        """Return the parameters of its functions."""
        return {"taps": self.taps, "tokens": tensors[self.x].shape[0] // self.sequences}


@dataclass(frozen=True)
class Convolution(Convolved):
    """out[t] = Σ w[lag] · x[t − lag], column by column; see ``functions/convolution.py``.

    >>> print(Convolution("Y", "X", "W", taps=4))
    Y = convolution(X, W) (4 tokens)
    """

    kind: ClassVar[str] = "convolution"
    READS: ClassVar[tuple[str, ...]] = ("x", "w", "before")
    before: str = ""  # of one decoded token a sequence those before it, by column and lag; none if not given

    def _wide(self, cols: int) -> dict[str, tuple[int, int]]:
        earlier = {self.before: (self.sequences, cols * (self.taps - 1))} if self.before else {}
        return super()._wide(cols) | earlier

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes do not fit."""
        super().check(tensors)
        if self.before and (tensors[self.x].shape[0] != self.sequences or self.taps < 2):
            raise ProblemError(f"{self.before} is of one token a sequence that sees others: {self}")

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its output."""
        parameters = {"taps": self.taps} if self.before else self.parameters(tensors)
        return {self.out: self.computed(self.fn, self.out, self.reads, values, tensors, **parameters)}

    @property
    def fn(self) -> str:
        """Name of its function."""
        return "conv_step" if self.before else "conv"

    def __str__(self) -> str:
        return f"{self.out} = convolution({', '.join(self.reads)}) ({self.taps} tokens)"


@dataclass(frozen=True)
class ConvolutionGrad(Convolved):
    """The gradients of :class:`Convolution` by x and by its weights, given that by its result.

    What is written first is the gradient by x.
    """

    kind: ClassVar[str] = "convolution_grad"
    READS: ClassVar[tuple[str, ...]] = ("x", "w", "do")
    WRITES: ClassVar[tuple[str, ...]] = ("out", "dw")
    do: str  # the gradient by what the convolution gave
    dw: str  # the gradient by the weights

    def _like(self) -> tuple[str, ...]:
        return (*super()._like(), self.do)

    def _wide(self, cols: int) -> dict[str, tuple[int, int]]:
        return super()._wide(cols) | {self.dw: (1, cols * self.taps)}

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return its outputs."""
        how = self.parameters(tensors)
        return {
            self.out: self.computed("conv_dx", self.out, (self.do, self.w), values, tensors, **how),
            self.dw: self.computed("conv_dw", self.dw, (self.x, self.do), values, tensors, **how),
        }

    def __str__(self) -> str:
        return f"{self.out}, {self.dw} = convolution_grad({', '.join(self.reads)}) ({self.taps} tokens)"

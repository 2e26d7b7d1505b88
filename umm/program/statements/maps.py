"""Maps: functions of elements and rows."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from umm.dtypes import is_float8, rounded_under_scales
from umm.errors import ProblemError
from umm.program.functions import function
from umm.program.statements.base import Array, Shapes, Shares, Statement, Tensors, Values


@dataclass(frozen=True)
class Map(Statement):
    """out = fn(reads…), a function of :mod:`umm.program.functions`; out may be one of the reads, in place."""

    kind: ClassVar[str] = "map"
    READS: ClassVar[tuple[str, ...]] = ("reads", "fused")
    passes: ClassVar[bool] = True
    fn: str  # name of the function
    reads: tuple[str, ...] = ()  # the tensors it reads
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)  # what the function takes besides
    # Reads that the map before has written or read: where the same rank has computed them, this map goes on
    # with them in registers, in the same pass over memory.
    fused: tuple[str, ...] = ()
    # What the map before writes, if one kernel runs both, as serving engines turn Q and K. Where the same
    # rank has what both read, this map has no launch.
    beside: str = ""

    def __post_init__(self) -> None:
        """Check that there is such a function, and its parameters."""
        for name in ("reads", "fused"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name in self.fused:
            if name not in self.reads:
                raise ProblemError(f"{name} is fused into {self}, which does not read it")
        if not function(self.fn).is_map:
            raise ProblemError(f"{self.fn} is a step of fused attention; write a statement of kind attention")
        object.__setattr__(self, "parameters", function(self.fn).checked(self.parameters))

    @property
    def looks_up(self) -> bool:
        """Whether it takes rows of a table."""
        return function(self.fn).looks_up

    def check(self, tensors: Tensors) -> None:
        """Refuse tensors whose shapes the function does not take."""
        function(self.fn).checked(self.parameters, self._shape(tensors))

    def _shape(self, tensors: Tensors) -> tuple[int, int]:
        return function(self.fn).whole([tensors[x].shape for x in (self.out, *self.reads)])

    @property
    def chooses_experts(self) -> bool:
        """Whether it is the softmax of a router."""
        return self.fn == "routed_softmax"

    def alike(self, shapes: Shapes) -> list[tuple[str, str]]:
        """Return its output with each operand of that shape."""
        return [(self.out, x) for x in self.reads if shapes[x] == shapes[self.out]]

    def units(self, shapes: Shapes) -> dict[str, int]:
        """Return the columns that its function needs together."""
        return dict.fromkeys((self.out, *self.reads), function(self.fn).unit(self.parameters))

    def masked(self, tensors: Tensors, seen: Shares) -> Shares:
        """Return which scores it masks: of a softmax, and of its gradient."""
        if self.fn == "masked_softmax":
            rows, cols = tensors[self.out].shape  # of a whole tensor where the map says 0
            queries, keys = self.parameters["queries"] or rows, self.parameters["keys"] or cols
            pairs = queries * keys - queries * (queries - 1) // 2, queries * keys
            return dict.fromkeys((self.out, *self.reads), pairs)
        if self.fn == "softmax_grad" and self.reads[0] in seen:
            return dict.fromkeys((self.out, self.reads[1]), seen[self.reads[0]])
        return {}

    def rerouted(self, routing: str) -> Self:
        """Return it with another routing among its parameters, if there is one."""
        if "routing" not in self.parameters:
            return self
        return replace(self, parameters={**self.parameters, "routing": routing})

    def from_memory(self, name: str) -> Self:
        """Return it without a tensor that would be in registers."""
        return replace(self, fused=tuple(x for x in self.fused if x != name))

    def results(self, values: Values, tensors: Tensors) -> dict[str, Array]:
        """Return out as it is afterwards."""
        rows, cols = shape = self._shape(tensors)
        reads = (values[x] for x in self.reads)
        result = function(self.fn)(*reads, rows=(0, rows), cols=(0, cols), shape=shape, **self.parameters)
        wide, dtype = result.astype("float64"), tensors[self.out].dtype
        return {self.out: rounded_under_scales(wide, dtype) if is_float8(dtype) else wide}

    def __str__(self) -> str:
        return f"{self.out} = {self.fn}({', '.join(self.reads)})"

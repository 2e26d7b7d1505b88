"""A transformer layer's multiplies on [q, q, d] ranks of `frontera-rtx`, forward and backward, simulated."""

from dataclasses import dataclass

import umm
from experiments.common.machines import shipped
from umm.algorithms import summa25
from umm.algorithms.algorithm import Names
from umm.algorithms.summa import Panels
from umm.executor import executor
from umm.layouts.layout import Layout
from umm.program import Chain, Multiply
from umm.program.tensors import Tensor
from umm.schedules.schedule import Schedule
from umm.schedules.writer.builder import Builder

MACHINE = "frontera-rtx"
TOKENS = 512  # a sequence; the document does not say how many
OTHER_TOKENS = (128, 2048)
# Columns and rows of the weights over hidden: Q, K and V; what attention gives; the feed-forward layer.
WEIGHTS = ((3, 1), (1, 1), (4, 1), (1, 4))
GRADIENTS = (Multiply("dA", "dC", "B", trans=("b",)), Multiply("dB", "A", "dC", trans=("a",)))
makespan = executor("sim").makespan


@dataclass(frozen=True)
class Point:
    """A layer on [q, q, d] ranks.

    Attributes:
        scaling: strong or weak.
        q: Ranks along rows and columns of a layer of ranks.
        d: Layers of ranks.
        batch: Sequences.
        hidden: Size of a token.
        tokens: Tokens of a sequence.
    """

    scaling: str
    q: int
    d: int
    batch: int
    hidden: int
    tokens: int = TOKENS

    @property
    def ranks(self) -> int:
        """How many."""
        return self.q * self.q * self.d


def performed(point: Point) -> dict[str, float]:
    """Return seconds of a layer's four multiplies, one after another, and of those of their gradients."""
    rows = point.batch * point.tokens
    sizes = [(rows, cols * point.hidden, inner * point.hidden) for cols, inner in WEIGHTS]
    return {
        "forward_s": sum(makespan(forward(*size, point.q, point.d)) for size in sizes),
        "backward_s": sum(makespan(backward(*size, point.q, point.d)) for size in sizes),
    }


def layouts(m: int, n: int, k: int, q: int, d: int) -> tuple[Layout, Layout, Layout]:
    """Return the layouts of A, B and C: A and C on dq×q, B on q×q in d replicas."""
    deep = (d * q, q)
    return Layout.block((m, k), deep), Layout.block((k, n), (q, q), replicas=d), Layout.block((m, n), deep)


def forward(m: int, n: int, k: int, q: int, d: int) -> Schedule:
    """Return the schedule of C = AB."""
    a, b, c = layouts(m, n, k, q, d)
    problem = umm.Problem(m=m, n=n, k=k, a=a, b=b, c=c)
    return umm.schedule(problem, shipped(MACHINE), algorithm="summa2.5", layers=d, broadcast="tree")


def backward(m: int, n: int, k: int, q: int, d: int, dtype: str = "float32") -> Schedule:
    """Return the schedule of dA = dC·Bᵀ and dB = Aᵀ·dC, the latter summed over the layers of ranks."""
    a, b, c = layouts(m, n, k, q, d)
    roles = {
        "A": (a, "input"),
        "B": (b, "input"),
        "dC": (c, "input"),
        "dA": (a, "output"),
        "dB": (b, "output"),
    }
    tensors = tuple(Tensor(name, layout, dtype, role) for name, (layout, role) in roles.items())
    build = Builder("summa2.5", Chain("backward", tensors, GRADIENTS, q * q * d), shipped(MACHINE))
    summa25.backward(build, Names("A", "B", "C"), Names("dA", "dB", "dC"), Panels())
    return build.schedule()

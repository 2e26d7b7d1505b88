"""A pipeline as a chain: each stage's weight on a rank of its own, every micro-batch forward and backward.

The statements follow the passes of a schedule in time, so each executor performs the pipeline as predicted:
what a stage sends is a copy to the next one's rank, and gradients of weights add up over micro-batches.
"""

import numpy as np

from umm.errors import ProblemError
from umm.layouts.layout import Layout
from umm.program import Copy, Map, Multiply, Statement
from umm.program.chain import Chain
from umm.program.tensors import Tensor
from umm.step.pipeline import BACKWARD, FIXED_CHUNKS, FORWARD, WEIGHT, ZERO_BUBBLE, Chunk, stage_of, timeline


def pipeline_chain(
    stages: int,
    micro_batches: int,
    tokens: int,
    hidden: int,
    *,
    schedule: str = "1f1b",
    virtual: int = 1,
    dtype: str = "float32",
) -> Chain:
    """Return a pipeline of layers Y = gelu(X·W), forward and backward, as a program that can be executed.

    Inputs are ``X.i``, the tokens of micro-batch i at the first stage; ``dY.i``, the gradients of its result
    at the last one; and ``W.c``, the weight of chunk c. Outputs are ``Y.i``, ``dX.i`` and ``dW.c``, the sums
    over micro-batches. ProblemError for interleaved stages whose micro-batches are no multiple of them.

    Args:
        stages: Ranks, one a stage.
        tokens: Rows of a micro-batch.
        hidden: Rows and columns of each weight.
        schedule: One of :data:`~umm.step.pipeline.SCHEDULES`.
        virtual: Chunks a stage; more than 1 for ``interleaved`` alone.

    >>> chain = pipeline_chain(3, 4, 8, 16)
    >>> chain.ranks, chain.outputs[-3:]
    (3, ('dW.0', 'dW.1', 'dW.2'))
    """
    if virtual > 1 and schedule != "interleaved":
        raise ProblemError(f"{virtual} chunks a stage need schedule interleaved, not {schedule}")
    if virtual > 1 and micro_batches % stages:
        raise ProblemError(
            f"interleaved stages take micro-batches by {stages}; {micro_batches} are no multiple"
        )
    count = stages * FIXED_CHUNKS.get(schedule, virtual)
    apart = schedule in ZERO_BUBBLE
    chunk = Chunk(1.0, 1.0 if apart else 2.0, 1.0 if apart else 0.0)
    line = timeline([chunk] * count, stages, micro_batches, schedule)
    every = sorted((begin, one.kind, one) for passes in line.passes for one, begin, _ in passes)
    program = _Program(stages, tokens, hidden, dtype, schedule, count)
    for number in range(count):
        program.tensor(f"W.{number}", number, "input", weight=True)
        program.tensor(f"dW.{number}", number, "output", weight=True)
    for _, kind, one in every:
        if kind == FORWARD:
            program.forward(one.chunk, one.micro_batch)
        elif kind == BACKWARD:
            program.backward(one.chunk, one.micro_batch)
        if kind == WEIGHT or (kind == BACKWARD and not apart):
            program.weight(one.chunk, one.micro_batch)
    order = {"input": 0, "work": 1, "output": 2}
    tensors = sorted(program.tensors.values(), key=lambda x: (order[x.role], x.name.startswith("dW")))
    return Chain(f"pipeline-{schedule}", tuple(tensors), tuple(program.statements), stages)


class _Program:
    """The tensors and statements of a pipeline while its passes are written."""

    def __init__(self, stages: int, tokens: int, hidden: int, dtype: str, schedule: str, chunks: int) -> None:
        self.stages, self.tokens, self.hidden, self.dtype = stages, tokens, hidden, dtype
        self.schedule, self.chunks = schedule, chunks
        self.tensors: dict[str, Tensor] = {}
        self.statements: list[Statement] = []
        self.summed: set[int] = set()

    def tensor(self, name: str, chunk: int, role: str = "work", weight: bool = False) -> str:
        """Declare a tensor at the rank of a chunk, whole; return its name."""
        shape = (self.hidden if weight else self.tokens, self.hidden)
        rank = stage_of(chunk, self.stages, self.schedule)
        others = [x for x in range(self.stages) if x != rank]
        places = np.array([rank, *others], dtype=np.int64).reshape(1, self.stages, 1)
        layout = Layout.block_cyclic(shape, shape, (self.stages, 1), places=places)
        self.tensors[name] = Tensor(name, layout, self.dtype, role)
        return name

    def forward(self, chunk: int, i: int) -> None:
        """Write a chunk's forward pass of a micro-batch."""
        source = f"X.{i}"
        if chunk:
            source = self.tensor(f"X.{chunk}.{i}", chunk)
            self.statements.append(Copy(source, self._result(chunk - 1, i)))
        else:
            self.tensor(source, 0, "input")
        product = self.tensor(f"H.{chunk}.{i}", chunk)
        result = self.tensor(self._result(chunk, i), chunk, "output" if chunk == self.chunks - 1 else "work")
        self.statements.append(Multiply(product, source, f"W.{chunk}"))
        self.statements.append(Map(result, "gelu", (product,)))

    def backward(self, chunk: int, i: int) -> None:
        """Write a chunk's backward pass without the gradients of weights."""
        if chunk == self.chunks - 1:
            gradient = self.tensor(f"dY.{i}", chunk, "input")
        else:
            gradient = self.tensor(f"dY.{chunk}.{i}", chunk)
            self.statements.append(Copy(gradient, f"dX.{chunk + 1}.{i}"))
        inner = self.tensor(f"dH.{chunk}.{i}", chunk)
        out = self.tensor(f"dX.{chunk}.{i}" if chunk else f"dX.{i}", chunk, "work" if chunk else "output")
        self.statements.append(Map(inner, "gelu_grad", (f"H.{chunk}.{i}", gradient)))
        self.statements.append(Multiply(out, inner, f"W.{chunk}", ("b",)))

    def weight(self, chunk: int, i: int) -> None:
        """Write the gradients of a chunk's weights."""
        source = f"X.{chunk}.{i}" if chunk else f"X.{i}"
        beta = 1.0 if chunk in self.summed else 0.0
        self.summed.add(chunk)
        self.statements.append(Multiply(f"dW.{chunk}", source, f"dH.{chunk}.{i}", ("a",), beta=beta))

    def _result(self, chunk: int, i: int) -> str:
        return f"Y.{i}" if chunk == self.chunks - 1 else f"Y.{chunk}.{i}"

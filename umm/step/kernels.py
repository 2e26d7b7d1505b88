"""The kernels of a step at one rank, each with its shape and seconds, to stand beside a profile's."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from umm.interval import Interval
from umm.profiles.kernel import ATTENTION, MAP, MULTIPLY, Kernel
from umm.program.functions.attention import Heads
from umm.program.models.layers import Layer
from umm.step.layers import Part, Shape, layer_parts
from umm.step.rates import BF16, STORED, Rates
from umm.step.step import Question, update_seconds

FORWARD, DATA, WEIGHT = "forward", "backward of data", "backward of weights"
AROUND = {"all-to-all": (2.0, 2.0), "all-gather": (1.0, 1.0), "reduce-scatter": (0.0, 1.0)}
"""Calls forward and backward of a collective that a layer prices once: experts' rows go and come back, and
context parallel keys are gathered in both passes, their gradients summed."""


@dataclass(frozen=True)
class _Recorded(Rates):
    """Rates that keep each kernel they price.

    Attributes:
        cp: Context parallel ranks, which share the attention that is priced as one rank's.
        calls: The kernels; a name is the pass it belongs to.
        state: The pass to record; empty where nothing is.
    """

    cp: int = 1
    calls: list[Kernel] = field(default_factory=list, compare=False)
    state: dict[str, str] = field(default_factory=dict, compare=False)

    @contextmanager
    def noted(self, word: str) -> Iterator[None]:
        """Record kernels under a word; none if it is empty."""
        before = self.state.get("pass")
        self.state["pass"] = word
        yield
        if before is None:
            del self.state["pass"]
        else:
            self.state["pass"] = before

    def note(self, kind: str, seconds: float, name: str = FORWARD, **more: object) -> float:
        """Keep one kernel unless it takes no time; return its seconds."""
        name = self.state.get("pass", name)
        if seconds and name:
            self.calls.append(Kernel(kind, name, seconds, **more))  # type: ignore[arg-type]
        return seconds

    def gemm(self, m: int, n: int, k: int, *, dtype: str = "", c_bytes: int = BF16) -> float:
        return self.note(MULTIPLY, super().gemm(m, n, k, dtype=dtype, c_bytes=c_bytes), shape=(m, n, k))

    def grouped(self, rows: int, experts: int, n: int, k: int, *, c_bytes: int = BF16) -> float:
        with self.noted(""):
            seconds = super().grouped(rows, experts, n, k, c_bytes=c_bytes)
        done = sum(x.kind == MULTIPLY and len(x.shape) == 4 and x.name != WEIGHT for x in self.calls)
        return self.note(MULTIPLY, seconds, (FORWARD, DATA)[done % 2], shape=(experts, rows, n, k))

    def grouped_weights(self, rows: int, experts: int, n: int, k: int) -> float:
        with self.noted(""):
            seconds = super().grouped_weights(rows, experts, n, k)
        return self.note(MULTIPLY, seconds, WEIGHT, shape=(experts, n, k, rows))

    def attention(self, heads: Heads, rows: Interval, count: int, sequences: int, backward: bool) -> float:
        seconds = super().attention(heads, rows, count, sequences, backward)
        self.note(ATTENTION, seconds / self.cp, DATA if backward else FORWARD)
        return seconds

    def passes(self, nbytes: float, kernels: int = 1) -> float:
        seconds = super().passes(nbytes, kernels)
        self.note(MAP, seconds / max(1, kernels), calls=float(kernels))
        return seconds

    def collective(self, what: str, ranks: tuple[int, ...], nbytes: float) -> float:
        seconds = super().collective(what, ranks, nbytes)
        if "pass" in self.state:
            return self.note(what, seconds, ranks=len(ranks), group=ranks, nbytes=int(nbytes))
        for name, calls in zip((FORWARD, DATA), AROUND.get(what, (1.0, 0.0)), strict=True):
            if calls:
                self.note(what, seconds, name, ranks=len(ranks), group=ranks, nbytes=int(nbytes), calls=calls)
        return seconds


@dataclass(frozen=True)
class _Shape(Shape):
    """Sizes of a layer whose parts say which pass each of their kernels is of."""

    rates: _Recorded

    def linear(self, *args: Any, **more: Any) -> Part:
        start = len(self.rates.calls)
        part = super().linear(*args, **more)
        # Its multiplies are priced forward, by data, by weights; casts before them forward, then backward.
        for kind in (MULTIPLY, MAP):
            at = [i for i in range(start, len(self.rates.calls)) if self.rates.calls[i].kind == kind]
            for i, word in zip(at, (FORWARD, DATA, WEIGHT), strict=False):
                self.rates.calls[i] = self.rates.calls[i]._replace(name=word)
        return part

    def map(self, *args: Any, **more: Any) -> Part:
        part = super().map(*args, **more)
        self.rates.calls[-1] = self.rates.calls[-1]._replace(name=DATA)
        return part

    def gather(self, columns: int) -> Part:
        return self._moved(super().gather, columns, FORWARD, DATA)

    def scatter(self, columns: int) -> Part:
        return self._moved(super().scatter, columns, DATA, FORWARD)

    def _moved(self, part: object, columns: int, gathered: str, scattered: str) -> Part:
        """Record a gather of tokens and its sum; before a multiply backward gathers once more."""
        with self.rates.noted(""):
            result: Part = part(columns)  # type: ignore[operator]
        group, elements = self.parallel.tensor_group, self.rows * columns
        narrow = elements * (STORED[self.rates.precision] or BF16)  # gathered as multiplies take it
        with self.rates.noted(gathered):
            self.rates.collective("all-gather", group, narrow)
        with self.rates.noted(scattered):
            self.rates.collective("reduce-scatter", group, elements * BF16)
        if gathered == FORWARD:
            with self.rates.noted(DATA):
                self.rates.collective("all-gather", group, narrow)
        return result


def _noted(asked: Question, layer: Layer, full: bool) -> list[Kernel]:
    """Return the kernels of a layer for one micro-batch, forward and backward."""
    rates, p = _recorder(asked), asked.parallel
    parts = layer_parts(layer, _Shape(asked.model.hidden, p, rates))
    compute = sum(x.forward + x.data + x.weight for x in parts)
    rest = compute - sum(x.seconds * x.calls for x in rates.calls if x.kind in (MULTIPLY, ATTENTION, MAP))
    if rest > 1e-6 * compute:  # a kernel priced once for both passes, and what scans do between chunks
        rates.note(MAP, rest, DATA)
    again = {"attention": (ATTENTION,), "selective": (ATTENTION, MAP)}.get(p.recompute, ())
    repeated = [x for x in rates.calls if x.name == FORWARD and (full or x.kind in again)]
    if p.shards > 1:
        dense = sum(
            x.elements / (p.tp if x.linear else 1)
            for x in layer.weights(asked.model.hidden)
            if not x.module.startswith("mlp.experts")
        )
        for what, word in (("all-gather", FORWARD), ("all-gather", DATA), ("reduce-scatter", DATA)):
            wide = BF16 if what == "all-gather" else asked.stack.gradient_bytes
            with rates.noted(word):
                rates.collective(what, p.weight_group, dense * wide)
    return [*rates.calls, *(x._replace(name="recomputed") for x in repeated)]


def _recorder(asked: Question) -> _Recorded:
    old = asked.rates
    return _Recorded(old.machine, old.stack, old.load, old.precision, cp=asked.parallel.cp)


def step_kernels(asked: Question, stage: int = 0) -> list[Kernel]:
    """Return the kernels of a step at a rank of a pipeline stage; calls with one shape and pass are one row.

    Weights that are split and gathered, expert parallel exchanges and recomputed passes are among them; sends
    between stages are not.

    Args:
        asked: The step.
        stage: Of the pipeline, from 0.
    """
    p, model = asked.parallel, asked.model
    layers = (*model.layers, *model.mtp)
    mine = _layers_of(asked, stage)
    known: dict[tuple[Layer, bool], list[Kernel]] = {}
    rows: dict[tuple[object, ...], Kernel] = {}

    def add(kernels: list[Kernel], times: float) -> None:
        for one in kernels:
            key = (*one.key, one.name, one.seconds, one.group)
            before = rows[key].calls if key in rows else 0.0
            rows[key] = one._replace(calls=before + one.calls * times)

    for number in mine:
        full = p.recompute == "full" or bool(p.every and number % p.every == 0)
        if (layers[number], full) not in known:
            known[layers[number], full] = _noted(asked, layers[number], full)
        add(known[layers[number], full], p.micro_batches)
    ends = _recorder(asked)
    recorded = replace(asked, rates=ends)
    recorded.__dict__["shape"] = _Shape(model.hidden, p, ends)
    assert recorded.ends  # prices them
    looked_up = [x for x in ends.calls if x.kind == MAP][:1]
    head = [x for x in ends.calls if x not in looked_up]
    # The loss is one pass forward and one backward; the embedding one and two.
    head += [x._replace(name=DATA) for x in head if x.kind == MAP]
    if stage == 0:
        add([looked_up[0], looked_up[0]._replace(name=DATA, calls=2 * looked_up[0].calls)], p.micro_batches)
    if stage == p.pp - 1:
        add(head, p.micro_batches)
    recorder = _recorder(asked)
    with recorder.noted("update"):
        update_seconds(replace(asked, rates=recorder), asked.stages[stage])
    add(recorder.calls, 1.0)
    return list(rows.values())


def _layers_of(asked: Question, stage: int) -> list[int]:
    """Return the numbers of a stage's layers."""
    from umm.step.pipeline import stage_of

    p = asked.parallel
    first, last = asked.ends
    seconds = [x.seconds for x in (first, *asked.layer_costs, last)]
    parts = asked.split(seconds)
    return [
        item - 1
        for number, part in enumerate(parts)
        if stage_of(number, p.pp, p.schedule) == stage
        for item in part
        if 0 < item < len(seconds) - 1
    ]

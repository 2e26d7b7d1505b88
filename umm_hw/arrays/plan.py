"""A multiply of distributed matrices, planned once and performed any number of times."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from umm.errors import InputError, LayoutError, UmmError, expect
from umm.layouts.layout import Layout
from umm.units import format_bytes
from umm_hw.arrays.exchange import Exchange
from umm_hw.arrays.matrix import WrappedMatrix
from umm_hw.arrays.operand import Operand
from umm_hw.arrays.perform import Performer
from umm_hw.arrays.product import Product
from umm_hw.arrays.sharing import share_out, sum_dtype
from umm_hw.bfloat16 import dtype_name

_OPS = {False: "N", True: "T", "N": "N", "T": "T", "C": "C", "n": "N", "t": "T", "c": "C"}


class Plan:
    """How C = α·op(A)·op(B) + β·C is multiplied; :func:`plan` makes one. The same on every rank.

    Attributes:
        way: Who multiplies what: a matrix that stays where it is, or a grid over m, n and k.
        steps: Parts that k is published and multiplied in.
        memory_bytes: What this rank takes beside its local matrices, its part of shared memory included.
        most_memory_bytes: The same of the rank that takes most.
        predicted_s: Seconds by simulation on the machine it was planned for; None without one.
        measured_s: Seconds of this rank's last multiply, from when all ranks had entered; None before.
        considered: Ways that were looked at in full, with what they would cost: seconds on a machine, else
            flop of the slowest rank where a byte copied counts as 10.
    """

    def __init__(
        self,
        product: Product,
        ops: tuple[str, str],
        exchange: Exchange,
        rank: int,
        considered: dict[str, float],
        predicted_s: float | None,
    ) -> None:
        self.product, self.ops = product, ops
        self.way, self.steps = product.work.name, product.steps
        self.considered, self.predicted_s = considered, predicted_s
        self.measured_s: float | None = None
        self._exchange, self._performer = exchange, Performer(product, rank, exchange)
        needs = [Performer(product, other, exchange).nbytes for other in range(product.ranks)]
        self.memory_bytes, self.most_memory_bytes = needs[rank], max(needs)
        self._published = [product.published_bytes(other) for other in range(product.ranks)]
        self._signature = repr((self.key, self.way, self.steps)).encode()
        self._pending: list[Pending] = []

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for matrices that this plan can multiply."""
        return self.product.a.key, self.product.b.key, self.product.c.key, self.ops

    def multiply(
        self, a: WrappedMatrix, b: WrappedMatrix, c: WrappedMatrix, alpha: Any = 1, beta: Any = 0
    ) -> WrappedMatrix:
        """Set C to α·op(A)·op(B) + β·C and return it; collective. This rank's own part is done on return.

        Args:
            a: Laid out as what was planned for.
            c: What is written. Of a batch, each matrix is multiplied with its own of the others.
            alpha: Factor of the product.
            beta: Factor of what C was; 0 does not read it.

        Raises:
            InputError: on every rank, where one of them gives other matrices or factors, or memory that
                cannot be written.
            UmmError: if a rank ends its program meanwhile.
        """
        if self._busy():
            return self.start(a, b, c, alpha, beta).wait()
        return self._perform(a, b, c, alpha, beta)

    def start(
        self, a: WrappedMatrix, b: WrappedMatrix, c: WrappedMatrix, alpha: Any = 1, beta: Any = 0
    ) -> "Pending":
        """Begin to multiply, on a thread of its own; multiplies of one communicator follow each other.

        None of the three may be changed before ``wait``, of this plan or of the returned handle.
        """
        pending = Pending(_worker(self._exchange).submit(self._perform, a, b, c, alpha, beta))
        self._pending.append(pending)
        return pending

    def wait(self) -> None:
        """Wait until all that was started by this plan is multiplied."""
        pending, self._pending = self._pending, []
        for one in pending:
            one.wait()

    def _busy(self) -> bool:
        worker = getattr(self._exchange, "worker", None)
        return worker is not None and not worker.idle

    def _perform(
        self, a: WrappedMatrix, b: WrappedMatrix, c: WrappedMatrix, alpha: Any, beta: Any
    ) -> WrappedMatrix:
        error: UmmError | None = None
        try:
            self._check(a, b, c, alpha, beta)
        except UmmError as refused:
            error = refused
        exchange = self._exchange
        factors = repr((alpha, beta)).encode()
        exchange.begin(self._signature + factors, f"multiplies {self.words} by {alpha}, {beta}", error)
        begin = perf_counter()
        exchange.reserve(self._published)
        members = (
            [(a, b, c)]
            if c.batch is None
            else [tuple(x.member(i) for x in (a, b, c)) for i in range(c.batch)]
        )
        for number, (left, right, out) in enumerate(members):
            if number:
                exchange.begin(self._signature + factors, "multiplies the next of a batch")
            first = left.local.T if self.product.a.trans else left.local
            second = right.local.T if self.product.b.trans else right.local
            rows, cols = self.product.c.held(a.group.rank)
            self._performer.perform(first, second, out.local[rows.slice, cols.slice], alpha, beta)
        self.measured_s = perf_counter() - begin
        return c

    def _check(self, a: WrappedMatrix, b: WrappedMatrix, c: WrappedMatrix, alpha: Any, beta: Any) -> None:
        for matrix, op, planned, name in zip((a, b, c), (*self.ops, "N"), self._operands, "ABC", strict=True):
            given = matrix.operand(op)
            if given is not planned and given.key != planned.key:
                raise InputError(
                    f"{name} is {matrix}; the plan is for {dtype_name(planned.dtype)} in {planned.layout} in "
                    "the same order of storage on every rank"
                )
        if len({x.batch for x in (a, b, c)}) > 1:
            raise InputError(f"batches of {a.batch}, {b.batch} and {c.batch} matrices do not match")
        check_factors(c, alpha, beta)

    @property
    def _operands(self) -> tuple[Operand, Operand, Operand]:
        return self.product.a, self.product.b, self.product.c

    @property
    def words(self) -> str:
        """The operation in a line: operands, result, type."""
        a, b, c = self._operands
        turned = ["" if op == "N" else f"{op} of " for op in self.ops]
        return f"{turned[0]}{_of(a)} by {turned[1]}{_of(b)} into {_of(c)}, {dtype_name(a.dtype)}"

    def __str__(self) -> str:
        """The plan in lines: operation, way, memory, time."""
        steps = f"{self.steps} step{'s' * (self.steps > 1)} of k"
        lines = [
            f"{self.words}",
            f"{self.way}, {steps}; at most {format_bytes(self.most_memory_bytes)} of a rank beside operands",
        ]
        if self.predicted_s is not None:
            lines.append(f"predicted {self.predicted_s:.6g} s")
        if self.measured_s is not None:
            lines.append(f"measured {self.measured_s:.6g} s")
        return "\n".join(lines)


class Pending:
    """A multiply that was started."""

    def __init__(self, future: "Future[WrappedMatrix]") -> None:
        self._future = future

    def wait(self) -> WrappedMatrix:
        """Return C when it is complete on this rank; raise the error of the multiply, if any."""
        return self._future.result()

    @property
    def done(self) -> bool:
        """Whether C is complete on this rank."""
        return self._future.done()


class _Worker:
    """One thread that runs started multiplies in order."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="umm-multiply")
        self._last: Future[Any] | None = None

    def submit(self, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        self._last = self._pool.submit(call, *arguments)
        return self._last

    @property
    def idle(self) -> bool:
        return self._last is None or self._last.done()


def _worker(exchange: Any) -> _Worker:
    if getattr(exchange, "worker", None) is None:
        exchange.worker = _Worker()
    worker: _Worker = exchange.worker
    return worker


def _of(operand: Operand) -> str:
    rows, cols = operand.rows.size, operand.cols.size
    return f"{rows}x{cols} in {operand.layout}"


def check_factors(c: WrappedMatrix, alpha: Any, beta: Any) -> None:
    """Refuse factors that C's type cannot have, and a C that cannot be written; InputError in one line."""
    for name, value in (("alpha", alpha), ("beta", beta)):
        if not np.isscalar(value) or isinstance(value, (str, bytes)):
            raise InputError(f"{name} takes a number, not {value!r}")
        if isinstance(value, complex) and c.dtype.kind != "c":
            raise InputError(f"{name}={value} is complex, but C is {dtype_name(c.dtype)}")
        number: Any = value
        if c.dtype.kind in "iu" and number != round(number.real):
            raise InputError(f"{name}={value} is not a whole number, but C is {dtype_name(c.dtype)}")
    c.check_writable()


def op_of(trans: Any, name: str) -> str:
    """Return N, T or C; InputError for anything else."""
    if trans not in _OPS:
        raise InputError(f"{name}={trans!r} is neither False nor True, nor N, T or C")
    return _OPS[trans]


def checked_operands(
    a: WrappedMatrix, b: WrappedMatrix, c: WrappedMatrix, ops: tuple[str, str]
) -> tuple[Operand, Operand, Operand]:
    """Return the operands of a product; InputError if they do not fit together."""
    left, right, out = a.operand(ops[0]), b.operand(ops[1]), c.operand()
    (m, k), (rows, n) = left.shape, right.shape
    if k != rows or out.shape != (m, n):
        raise LayoutError(
            f"op(A) is {m}x{k}, op(B) {rows}x{n} and C {out.shape[0]}x{out.shape[1]}; "
            f"C = op(A)·op(B) needs B of {k} rows and C of {m}x{n}"
        )
    if a.dtype != b.dtype or (c.dtype != a.dtype and c.dtype != sum_dtype(a.dtype)):
        names = [dtype_name(x.dtype) for x in (a, b, c)]
        raise InputError(
            f"A, B and C are {', '.join(names)}; give all one type, or for half precision C of float32"
        )
    if any(x.group.size != a.group.size or x.exchange is not a.exchange for x in (b, c)):
        raise InputError("A, B and C are on different communicators; wrap all with the same one")
    overlap = [name for x, name in ((a, "A"), (b, "B")) if np.may_share_memory(x.local, c.local)]
    if overlap:
        raise InputError(f"C shares memory with {overlap[0]}; give it memory of its own")
    return left, right, out


def plan(
    a: WrappedMatrix,
    b: WrappedMatrix,
    c: WrappedMatrix | str | Layout,
    *,
    machine: Any = None,
    trans_a: bool | str = False,
    trans_b: bool | str = False,
    memory: int | str | None = None,
    way: str | None = None,
) -> Plan:
    """Return a plan to multiply matrices that are laid out like these; collective, and kept.

    Args:
        b: Another on the same ranks.
        c: What is to be written, or the layout that :func:`multiply` shall return.
        machine: A machine, its name or its file, whose simulated seconds decide between ways and are
            predicted; None decides by an estimate of work and bytes.
        trans_a: True or ``T`` to read A transposed, ``C`` conjugated too.
        memory: Most bytes of a rank beside its local matrices, as a number or as ``64MiB``.
        way: ``stationary A``, ``B`` or ``C``, or ``grid 2x2x1``; None for the best.

    Raises:
        InputError: if the three do not fit together.
        InfeasibleError: if no way fits the memory.
        MachineError: for an unknown machine, or more ranks than it holds.
    """
    for matrix in (a, b):
        expect(matrix, WrappedMatrix, "plan", "a umm.DistributedMatrix; wrap a local array")
    ops = op_of(trans_a, "trans_a"), op_of(trans_b, "trans_b")
    if not isinstance(c, WrappedMatrix):
        c = product_matrix(a, b, c, ops)
    operands = checked_operands(a, b, c, ops)
    limit = _limit(memory)
    exchange: Any = a.exchange
    known: dict[Any, Plan] = exchange.__dict__.setdefault("plans", {})
    key = (tuple(x.key for x in operands), ops, limit, way, str(machine))
    if key in known:
        return known[key]
    seconds = predicted = None
    if machine is not None:
        from umm_hw.arrays.prediction import predictor

        seconds = predictor(machine, a.group.size)
    product, costs = share_out(operands, exchange, limit, way, seconds)
    if seconds is not None:
        predicted = costs[product.work.name] if len(costs) > 1 else seconds(product)
    made = Plan(product, ops, exchange, a.group.rank, costs, predicted)
    if len(known) >= 64:
        known.pop(next(iter(known)))
    known[key] = made
    return made


def product_matrix(a: WrappedMatrix, b: WrappedMatrix, layout: Any, ops: tuple[str, str]) -> WrappedMatrix:
    """Return new memory for op(A)·op(B) in a layout, in the order of storage that A has on this rank."""
    shape = a.operand(ops[0]).shape[0], b.operand(ops[1]).shape[1]
    orders = set(a.orders)
    return WrappedMatrix.empty(
        a, layout, shape, sum_dtype(a.dtype), orders.pop() if len(orders) == 1 else "C"
    )


def multiply(
    a: WrappedMatrix,
    b: WrappedMatrix,
    layout: str | Layout | None = None,
    *,
    out: WrappedMatrix | None = None,
    alpha: Any = 1,
    beta: Any = 0,
    trans_a: bool | str = False,
    trans_b: bool | str = False,
    memory: int | str | None = None,
) -> WrappedMatrix:
    """Return α·op(A)·op(B) + β·C; collective. A and B stay as they are.

    The plan is made at the first call for such layouts, and kept.

    Args:
        b: Another on the same ranks.
        layout: Of the product, in new memory. Half precision comes out as float32.
        out: C, instead of a layout.
        alpha: Factor of the product.
        beta: Factor of what ``out`` was; 0 does not read it.
        trans_a: True or ``T`` to read A transposed, ``C`` conjugated too.
        memory: Most bytes of a rank beside its local matrices, as a number or as ``64MiB``.

    Raises:
        InputError: on every rank, before anything is moved, where the matrices of one do not fit.
    """
    expect(a, WrappedMatrix, "multiply", "umm.DistributedMatrix as A; wrap a local array")
    exchange: Any = a.exchange
    try:
        expect(b, WrappedMatrix, "multiply", "umm.DistributedMatrix as B; wrap a local array")
        if (layout is None) == (out is None):
            raise InputError('give a target: a layout, as in multiply(A, B, "2d"), or out=C')
        if out is not None:
            expect(out, WrappedMatrix, "multiply", "a umm.DistributedMatrix as out; a layout goes third")
        elif beta != 0:
            raise InputError(f"beta={beta} needs out=, the C that it multiplies")
        made = plan(a, b, layout if out is None else out, trans_a=trans_a, trans_b=trans_b, memory=memory)  # type: ignore[arg-type]
        if out is None:
            out = product_matrix(a, b, layout, made.ops)
    except UmmError as error:
        exchange.begin(b"", "", error)
        raise
    return made.multiply(a, b, out, alpha, beta)


def _limit(memory: int | str | None) -> int | None:
    if memory is None or isinstance(memory, int):
        return memory
    from umm.units import parse_bytes

    return parse_bytes(memory)

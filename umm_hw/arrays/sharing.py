"""Which way to share out a multiply is cheapest, within a limit of memory."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from umm.errors import InfeasibleError, InputError
from umm.units import format_bytes
from umm_hw.arrays.exchange import Exchange, MessageExchange, SharedExchange
from umm_hw.arrays.operand import Operand, Work, works
from umm_hw.arrays.perform import Performer
from umm_hw.arrays.product import Product
from umm_hw.bfloat16 import dtype_name

ROOM, SHARE = 64 * 2**20, 0.5
"""Bytes a rank may take beside its operands by default, or this share of theirs if that is more; a step of k
is as large as fits. Every step is a pass over C for each panel, so thin ones wait for memory."""
LEAST_DEPTH = 32  # indices of k of a class that a step has at least; fewer would leave BLAS idle
SIMULATED = 3  # ways that are simulated where a machine decides, those with the least estimates
FLOP_A_BYTE = 10.0  # flop that a core does while it copies a byte: 53 Gflop/s and 5 GB/s of one core, 2026


class Shared(NamedTuple):
    """A way to share out a multiply."""

    product: Product  # who multiplies what, in how many steps
    performers: list[Performer]  # what each rank would do
    needs: int  # bytes of the rank that takes most beside its operands


def sum_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type that products are summed in: float32 for half precision, else their own.

    >>> sum_dtype(np.dtype("float16")).name, sum_dtype(np.dtype("int8")).name
    ('float32', 'int8')
    """
    return np.dtype(np.float32) if dtype_name(dtype) in ("float16", "bfloat16") else dtype


def share_out(
    operands: tuple[Operand, Operand, Operand],
    exchange: Exchange,
    memory: int | None,
    way: str | None = None,
    seconds: Callable[[Product], float] | None = None,
) -> tuple[Product, dict[str, float]]:
    """Return the cheapest way to share out a product within a limit of memory, and each way's cost.

    InfeasibleError if no way fits the memory. InputError for an unknown way.

    Args:
        operands: A, B and C.
        exchange: Access to others' pieces.
        memory: Limit in bytes of a rank beside its operands; None for a default that refuses no way.
        way: Name of the only way to consider.
        seconds: Cost of a way; by default an estimate of the slowest rank's work.
    """
    a, b, c = operands
    compute = sum_dtype(c.dtype)
    ways = works(a, b, c)
    if way is not None:
        named = [x for x in ways if x.name == way]
        if not named:
            raise InputError(f"way {way!r} is unknown; choose from {', '.join(x.name for x in ways)}")
        ways = named
    made: dict[str, Shared] = {}
    estimates: dict[str, float] = {}
    least, kept = None, 1 if seconds is None else SIMULATED
    for work in ways:
        if c.dtype != compute:
            work = work._replace(direct=False)
        if len(estimates) >= kept and bound(work, compute) >= sorted(estimates.values())[kept - 1]:
            continue
        shared = _fitted(a, b, c, work, compute, exchange, memory)
        least = shared.needs if least is None else min(least, shared.needs)
        if memory is None or shared.needs <= memory:
            made[work.name], estimates[work.name] = shared, estimate(shared)
    if not made:
        raise InfeasibleError(
            f"no way to multiply fits {format_bytes(memory or 0)} beside the operands; "
            f"the smallest takes {format_bytes(least or 0)} on one rank"
        )
    costs = estimates
    if seconds is not None and len(made) > 1:
        # Others are far off by the estimate alone.
        close = sorted(estimates, key=estimates.__getitem__)[:SIMULATED]
        costs = {name: seconds(made[name].product) for name in close}
    best = min(costs, key=costs.__getitem__)
    return made[best].product, dict(sorted(costs.items(), key=lambda x: x[1]))


def stepped(operands: tuple[Operand, Operand, Operand], way: str, several_hosts: bool) -> Product:
    """Return a product by a way, in as many steps as a multiply of such operands takes by default.

    Args:
        operands: A, B and C.
        several_hosts: Whether ranks send each other what they read, rather than read it in shared memory.
    """
    a, b, c = operands
    compute = sum_dtype(c.dtype)
    work = next(x for x in works(a, b, c) if x.name == way)
    if c.dtype != compute:
        work = work._replace(direct=False)
    nobody: Any = None  # only what it needs is asked
    exchange = MessageExchange(nobody) if several_hosts else SharedExchange(nobody, nobody)
    return _fitted(a, b, c, work, compute, exchange, None).product


def _fitted(
    a: Operand,
    b: Operand,
    c: Operand,
    work: Work,
    compute: np.dtype[Any],
    exchange: Exchange,
    memory: int | None,
) -> Shared:
    """Return a product in as few steps as fit the memory, or as many as are sensible."""
    usual = max(ROOM, int(SHARE * _most_held((a, b, c)))) if memory is None else memory
    least, room = LEAST_DEPTH if memory is None else 1, usual
    steps = 1
    while True:
        for joins in (True, False):
            product = Product(a, b, c, work, steps, compute, joins=joins)
            most = max(1, int(product.class_sizes.max(initial=0)) // least)
            performers = [Performer(product, rank, exchange) for rank in range(product.ranks)]
            needs = max(performer.nbytes for performer in performers)
            if needs <= room:
                return Shared(product, performers, needs)
            if not any(len(group) > 1 for x in performers for group in x.panels.groups):
                break
        if steps >= most:
            return Shared(product, performers, needs)
        # What is published halves with twice the steps, but two steps exist at once.
        steps = min(most, max(steps + 1, 4 if steps == 1 else 2 * steps))


def _most_held(operands: tuple[Operand, Operand, Operand]) -> int:
    """Return the bytes of the operands of the rank that has most of them."""

    def held(rank: int) -> int:
        return sum(x.held(rank)[0].size * x.held(rank)[1].size * x.dtype.itemsize for x in operands)

    return max(map(held, range(operands[0].layout.ranks)))


def bound(work: Work, compute: np.dtype[Any]) -> float:
    """Lower bound on :func:`estimate` for a way: multiplies, and sums of their products."""
    # Who publishes and copies what takes long to find among many ranks, so most ways are ruled out by this.
    m, n, k = (int(np.bincount(axis.place, axis.sizes).max(initial=0)) for axis in (work.m, work.n, work.k))
    summed = 0 if work.direct or not k else 2 * m * n * compute.itemsize
    return 2.0 * m * n * k + FLOP_A_BYTE * summed * 8 / compute.itemsize


def estimate(shared: Shared) -> float:
    """Estimate the slowest rank's work in flop: multiplies, and bytes that it copies and sums."""
    product, most = shared.product, 0.0
    item = product.compute_dtype.itemsize
    for rank in range(product.ranks):
        performer, box = shared.performers[rank], product.box(rank)
        touched = product.published_bytes(rank) / (1 if product.steps == 1 else 2) * product.steps
        if box is not None:
            depth = sum(x.segments.size for _, x in product.of_box(box))
            touched += performer.panels.packed_elements(performer.panels.groups) * item
            if not product.work.direct and depth:
                touched += 2 * box.m.size * box.n.size * item
        most = max(most, product.flop(rank) + FLOP_A_BYTE * touched * 8 / item)
    return most

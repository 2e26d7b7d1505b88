"""The table of actions, each on a lane, each after others; the contract of every executor.

The exact semantics are in docs/reference/schedule.md. Two groups of columns: what an executor of time
needs is there at once, what an executor of data needs is made when it is first asked for.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from umm.arrays import Floats, Ints, group_of_row, offsets_of
from umm.errors import ScheduleError
from umm.program.problem import MATRICES, Problem
from umm.program.tensors import Program, Tensor
from umm.schedules.table.buffers import Buffers, first_tiles, joined, owned_tiles, tile_at
from umm.schedules.table.details import GEMM, TRANSFERS, Details
from umm.schedules.table.resources import Lanes, Links, Routes

MOST_BYTES = 2.0**63  # what 64 bits do not count any more


class Function(NamedTuple):
    """A map's function: its name in :mod:`umm.program.functions` and its parameters."""

    name: str
    parameters: Mapping[str, Any]


class Means(NamedTuple):
    """A way to move bytes: its name, and the share of its GEMM rate a rank loses while it does."""

    name: str
    interference: float


class Data(NamedTuple):
    """The part of a schedule that only executors of data need: operands, and buffers beside owned tiles."""

    details: Details
    temporaries: Buffers


class Amounts(NamedTuple):
    """Bytes moved and shapes multiplied by the actions of one multiply."""

    payload: Ints  # bytes of each transfer, 0 of other kinds
    # M, n and k of each gemm, which reads pieces of A and B and writes one of C; 0 of other kinds, shape (3,
    # actions).
    multiplied: Ints
    moved: Ints  # number of the tensor that each transfer moves a piece of, −1 of other kinds


@dataclass(frozen=True, eq=False)
class Table:
    """Every action of a distributed program, and the actions that it waits for."""

    program: Program  # A Problem or a Chain
    name: str  # the stationary matrix of the universal algorithm, or the algorithm
    machine: str  # name of the machine it was lowered for
    ranks: int  # number of ranks, p
    interference: Mapping[str, float]  # by kind, the share of its GEMM rate a rank loses while it moves bytes
    links: Links  # the links of the fabric
    routes: Routes  # for a pair of ranks (source, destination) the links its bytes cross
    lanes: Lanes  # queues that run one action at a time, in row order
    kind: NDArray[np.int8]  # kind of each action, an index into KINDS
    rank: Ints  # rank of each action, −1 for a barrier
    lane: Ints  # lane of each action, −1 for a barrier
    after_offsets: Ints  # where each action's dependencies start in `after`, and the end
    after: Ints  # numbers of the actions that must have finished; always smaller than the action's own
    src: Ints  # rank the bytes of a transfer leave, else −1
    dst: Ints  # rank they arrive at, else −1
    nbytes: Ints  # bytes a transfer puts on its route, else 0
    seconds: Floats  # duration of an action that crosses no link; for a transfer that does, its initial wait
    make_data: Callable[[], Data] = field(repr=False)  # makes the details and the temporaries
    make_pools: Callable[[], list[Ints]] = field(repr=False)  # makes the sizes of the pools
    # How it was made: policy, prefetch, max_gemms, … as plain values.
    options: Mapping[str, Any] = field(default_factory=dict)
    peak: float = 0.0  # flop/s of the devices used together, 0 if unknown
    work: tuple[Tensor, ...] = ()  # tensors beyond the program's
    functions: tuple[Function, ...] = ()  # functions of the maps
    means: tuple[Means, ...] = ()  # ways to move bytes
    # Which of them each action uses, −1 for its kind's own; None if every action does.
    means_of: NDArray[np.int8] | None = None
    # Makes the amounts; None if they follow from the details.
    make_amounts: Callable[[], Amounts] | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def problem(self) -> Problem:
        """The one multiply it carries out; ScheduleError if it carries out a chain."""
        if not isinstance(self.program, Problem):
            raise ScheduleError(
                f"the schedule carries out the chain {self.program.name}, not a single multiply"
            )
        return self.program

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """The program's tensors, then those beyond; ``buffers`` and files number them so."""
        return (*self.program.tensors, *self.work)

    @cached_property
    def _data(self) -> Data:
        return self.make_data()

    @cached_property
    def _amounts(self) -> Amounts | None:
        return None if self.make_amounts is None else self.make_amounts()

    def amounts_of(self, rows: Ints | slice) -> Callable[[], Amounts] | None:
        """Return a function that makes the amounts of some of its actions, for a schedule of these."""
        make = self.make_amounts
        return None if make is None else lambda: Amounts(*[x[..., rows] for x in make()])

    @property
    def scattered(self) -> bool:
        """Whether C ends cut over its replicas: of each tile's rows, replica r then has part r of the sum."""
        if self.program.kind != "problem" or self.name not in MATRICES:
            return False
        if self.problem.layouts[2] != self.problem.outside[2]:
            return False  # it was, before it was brought out
        return self.options.get("final") == "reduce-scatter" and self.problem.layout("C").replicas > 1

    @property
    def details(self) -> Details:
        """The operands of each action, for executors that move data."""
        return self._data.details

    @property
    def temporaries(self) -> Buffers:
        """The buffers that are not owned tiles."""
        return self._data.temporaries

    @cached_property
    def pools(self) -> list[Ints]:
        """For each rank the bytes of its pool slots."""
        return self.make_pools()

    @cached_property
    def buffers(self) -> Buffers:
        """All buffers: the owned tiles of all tensors, then the temporaries."""
        return joined([owned_tiles(self.tensors), self.temporaries])

    @property
    def first_temporary(self) -> int:
        """Number of the first buffer that is a temporary."""
        return first_tiles(self.tensors)[-1]

    @cached_property
    def itemsizes(self) -> Ints:
        """Bytes of an element of each tensor."""
        return np.array([tensor.itemsize for tensor in self.tensors], dtype=np.int64)

    def operand_tensors(self, operand: int) -> Ints:
        """Return the number of the tensor that each action's operand is a piece of, −1 for none."""
        buffer = self.details.buffer[:, operand]
        if not len(self.buffers):
            return np.full(len(self), -1, dtype=np.int64)
        return np.where(buffer >= 0, self.buffers.tensor[buffer], -1)

    @cached_property
    def moved_tensors(self) -> Ints:
        """Number of the tensor that each transfer moves a piece of, −1 for other kinds."""
        if self._amounts is not None:
            return self._amounts.moved
        return np.where(np.isin(self.kind, TRANSFERS), self.operand_tensors(0), -1)

    def kernel_operands(self, actions: Ints) -> tuple[Ints, Ints, Ints]:
        """Return the operands of some gemms and maps: the output first, then the inputs.

        The tensor of each, −1 for none, and its bytes, shape (actions, operands) both; and m, n and k of each
        gemm, shape (3, actions), meaningless for maps.
        """
        if self._amounts is not None:  # there are no maps
            m, n, k = self._amounts.multiplied[:, actions]
            a, b, c = self.itemsizes[:3].tolist()
            sized = np.empty((len(actions), 3), dtype=np.int64)
            sized[:, 0], sized[:, 1], sized[:, 2] = m * n * c, m * k * a, k * n * b
            return np.broadcast_to(_OF_GEMMS, sized.shape), sized, np.stack((m, n, k))
        # Operands that are missing have buffer −1, which indexes the appended −1, and size 0.
        some = self.details.taken(actions)
        number = np.append(self.buffers.tensor, -1)  # the last is that of buffer −1
        tensors = number[some.buffer]
        sized = np.prod(some.shape, axis=2) * self.itemsizes[tensors] * (tensors >= 0)
        return tensors, sized, some.multiplied.T

    def touched_tiles(self, tensor: int) -> Ints:
        """Return the tile of a tensor that each action reads, writes or moves a piece of, −1 for none.

        Row and column, shape (actions, 2); of several operands that are pieces of it, the last.
        """
        layout, d = self.tensors[tensor].layout, self.details
        tiles = np.full((len(self), 2), -1, dtype=np.int64)
        for operand in range(d.operands):
            rows = (self.operand_tensors(operand) == tensor).nonzero()[0]
            tile = tile_at(layout, d.rows[rows, operand, 0], d.cols[rows, operand, 0])
            tiles[rows] = np.stack(np.divmod(tile, layout.grid_shape()[1]), axis=1)
        return tiles

    @cached_property
    def payload(self) -> Ints:
        """Useful bytes each transfer moves: rows × columns × element size; 0 for other kinds."""
        if self._amounts is not None:
            return self._amounts.payload
        area = np.prod(self.details.shape[:, 0], axis=1)
        transfer = np.isin(self.kind, TRANSFERS)
        return np.where(transfer, area * self.itemsizes[self.operand_tensors(0)], 0)

    @cached_property
    def flop(self) -> Ints:
        """Floating-point operations of each gemm; 0 for other kinds."""
        if self._amounts is not None:
            m, n, k = self._amounts.multiplied
            flop: Ints = 2 * m * n * k
            return flop
        gemm = self.kind == GEMM
        return np.where(gemm, 2 * np.prod(self.details.multiplied, axis=1) * self.details.batch, 0)

    @cached_property
    def pool_bytes(self) -> Ints:
        """Bytes of each rank's pool; ScheduleError if these are more than 64 bits count."""
        # Summed in floats first: a sum that does not fit into 64 bits would wrap to a small or negative
        # number.
        slots, counts = np.concatenate([*self.pools, np.zeros(0, dtype=np.int64)]), map(len, self.pools)
        if slots.sum(dtype=np.float64) >= MOST_BYTES:
            most = max(float(x.sum(dtype=np.float64)) for x in self.pools)
            _check_counted(most, "the pool of a rank would take {} bytes")
        offsets = offsets_of(np.fromiter(counts, dtype=np.int64))
        before = offsets_of(slots)  # may go round at 64 bits, where the differences do not
        return before[offsets[1:]] - before[offsets[:-1]]

    @cached_property
    def memory_bytes(self) -> Ints:
        """Bytes each rank allocates: its tiles of all tensors, and its pool.

        ScheduleError if these are more than 64 bits count.
        """
        nbytes = [tensor.nbytes_of_rank for tensor in self.tensors]
        total = sum((x.astype(np.float64) for x in nbytes), self.pool_bytes.astype(np.float64))
        _check_counted(float(total.max(initial=0.0)), "a rank would hold {} bytes")
        return self.pool_bytes + sum(nbytes)

    def after_of(self, action: int) -> Ints:
        """Return the actions an action waits for."""
        return self.after[self.after_offsets[action] : self.after_offsets[action + 1]]

    @cached_property
    def waiting(self) -> Ints:
        """The action that each entry of ``after`` belongs to: (after, waiting) are the dependencies."""
        return group_of_row(self.after_offsets)

    def used_pairs(self) -> list[tuple[int, int]]:
        """Return the (source, destination) pairs of ranks that bytes travel between, sorted."""
        # A pair as one number, which np.unique sorts directly; rows of two would be compared as records.
        moving = self.src != self.dst
        pairs = np.unique(self.src[moving] * self.ranks + self.dst[moving])
        return [(int(x) // self.ranks, int(x) % self.ranks) for x in pairs]


_OF_GEMMS = np.array([2, 0, 1])  # C, A and B: the tensors that a gemm of a single multiply works on


def check_moved(nbytes: float) -> None:
    """Refuse transfers of more bytes, in all, than 64 bits count; ScheduleError if so."""
    _check_counted(nbytes, "its transfers would move {} bytes in all")


def _check_counted(nbytes: float, what: str) -> None:
    if nbytes >= MOST_BYTES:
        words = what.format(f"{nbytes:.3g}")
        raise ScheduleError(f"{words}; 64 bits count to 2^63 - 1: make the matrices smaller")

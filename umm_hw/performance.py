"""The work of every executor around a schedule's actions: load operands, clear, gather results.

The tensors are all it knows of the program. An executor makes a :class:`Performance` once, calls ``load``,
then ``clear`` before every run, performs the actions in its own way, and calls ``gather`` at the end.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umm.arrays import poisoned, unwritten
from umm.checkpoints import commit
from umm.checks import random_arrays
from umm.dtypes import check_numbers, is_float8
from umm.errors import InputError, LayoutError, expect
from umm.executor import Operands
from umm.program import Multiply
from umm.program.statements.multiply import products
from umm.schedules.schedule import Schedule
from umm_hw.bfloat16 import BFLOAT16, dtype_name, to_bfloat16, to_float32
from umm_hw.blocks import place
from umm_hw.checkpoints import saved_as, write_parts
from umm_hw.float8 import pools_of, quantised, rounded_once
from umm_hw.matrix import DistributedMatrix, array_dtype
from umm_hw.transport import Block, Transport

Types = Callable[[str], np.dtype[Any]]
Arrays = Mapping[str, NDArray[Any]]


class Performance:
    """The tensors of a schedule in the memory of all ranks; making one is collective.

    Args:
        schedule: What is performed.
        ranks: The transports of the ranks that this process acts for.
        operands: What :func:`operands_of` returned, in one process; None in all others.
        types: The NumPy type that stands for a type of a tensor.
    """

    def __init__(
        self,
        schedule: Schedule,
        ranks: Sequence[Transport],
        operands: Arrays | None,
        types: Types = array_dtype,
    ) -> None:
        self.tensors = schedule.tensors  # the tensors, in the order of their memory
        self.memory = place(schedule, ranks[0], types)  # where they and the pools lie
        self._pools = pools_of(schedule, [matrix.dtype for matrix in self.memory.matrices])
        self._scattered = schedule.scattered
        self._ranks = ranks
        self._operands = operands or {}

    def load(self) -> None:
        """Fill all replicas of the inputs; other processes see them after this rank's next quiet."""
        self._hand_out("input")

    def clear(self) -> None:
        """Make the tensors that a run changes ready for one: zero, or the operand where there is one.

        No rank may still be in a run. Other processes see the operands after this rank's next quiet.
        """
        for tensor, matrix in zip(self.tensors, self.memory.matrices, strict=True):
            if tensor.role in ("output", "work"):
                for rank in self._ranks:
                    rank.clear(matrix.heap)
        self._hand_out("both")
        if poisoned():
            self._poison()

    def gather(self, replica: int | None) -> dict[str, NDArray[Any]]:
        """Return the outputs as whole arrays by name, in types that NumPy calculates with.

        Args:
            replica: Which replica they are gathered from; None stacks all, along a first dimension. What is
                cut over its replicas is gathered from all of them.
        """
        results = {}
        for tensor, matrix in zip(self.tensors, self.memory.matrices, strict=True):
            if tensor.is_output and self._scattered and replica is not None:
                results[tensor.name] = _calculable(matrix.gather_parts(), tensor.dtype)
            elif tensor.is_output:
                replicas = range(tensor.layout.replicas) if replica is None else [replica]
                arrays = [_calculable(matrix.gather(number), tensor.dtype) for number in replicas]
                results[tensor.name] = np.stack(arrays) if replica is None else arrays[0]
        return results

    def write_parts(self, folder: str | Path, replica: int) -> None:
        """Write this process's tiles of all tensors except ``work``, as parts of a checkpoint."""
        write_parts(folder, self._lasting, self._ranks, replica)

    def commit(self, folder: str | Path, replica: int) -> None:
        """Let the parts be the checkpoint, on one rank, after all have been written."""
        commit(folder, saved_as(self._lasting, replica))

    def _poison(self) -> None:
        """Fill the pools with NaN."""
        for rank in self._ranks:
            nbytes = int(self._pools[rank.rank].sum())
            pool = Block(rank.rank, self.memory.pool, 0, 1, nbytes, nbytes, np.dtype(np.uint8))
            rank.put(unwritten(nbytes)[None], pool)

    @property
    def _lasting(self) -> dict[str, DistributedMatrix]:
        pairs = zip(self.tensors, self.memory.matrices, strict=True)
        return {tensor.name: matrix for tensor, matrix in pairs if tensor.role != "work"}

    def _hand_out(self, role: str) -> None:
        for tensor, matrix in zip(self.tensors, self.memory.matrices, strict=True):
            if tensor.role == role and tensor.name in self._operands:
                matrix.hand_out(self._operands[tensor.name])


def operands_of(
    schedule: Schedule, operands: Operands | None = None, types: Types = array_dtype
) -> dict[str, NDArray[Any]]:
    """Return an array for every tensor that has one before the run, in the type that stands for the tensor's.

    InputError if there are more or fewer, one has another shape or no such numbers, or NumPy lacks the type.
    InfeasibleError if this host lacks the memory for random ones.

    Args:
        operands: By name, or in the order of the tensors; one with a third, first, dimension has a slice for
            every replica. Uniform in [−1, 1) with a fixed seed if None.
        types: The NumPy type that stands for a type of a tensor; floats are rounded to bfloat16.
    """
    inputs = {tensor.name: tensor for tensor in schedule.tensors if tensor.is_input}
    dtypes = {name: types(tensor.dtype) for name, tensor in inputs.items()}
    if operands is None:
        given: Arrays = random_arrays({x.name: (x.shape, x.dtype) for x in inputs.values()})
    else:
        given = _named(list(inputs), operands)
    arrays = {}
    for name, tensor in inputs.items():
        array = np.asarray(given[name])
        if array.shape not in (tensor.shape, (tensor.layout.replicas, *tensor.shape)):
            raise InputError(f"operand {name} has shape {array.shape}, but the problem's is {tensor.shape}")
        check_numbers(array, tensor.dtype, f"operand {name}")
        if is_float8(tensor.dtype):
            arrays[name] = quantised(array, tensor.dtype, axis=_sums_along(schedule, name))
        else:
            arrays[name] = _rounded(array, dtypes[name])
    return arrays


def check_replica(schedule: Schedule, replica: int | None) -> None:
    """Refuse a replica that an output does not have; None stands for all; LayoutError if so."""
    for tensor in schedule.tensors:
        replicas = tensor.layout.replicas
        if tensor.is_output and replica is not None and not 0 <= replica < replicas:
            raise LayoutError(f"replica {replica} is outside {tensor.layout}, which has {replicas}")


def gathered_bytes(schedule: Schedule, replica: int | None) -> int:
    """Return the bytes of the arrays that ``gather`` returns."""
    nbytes = 0
    for tensor in schedule.tensors:
        if tensor.is_output:
            copies = tensor.layout.replicas if replica is None else 1
            nbytes += copies * tensor.shape[0] * tensor.shape[1] * tensor.itemsize
    return nbytes


def _named(names: list[str], operands: Operands) -> Arrays:
    """Return operands by the names of the tensors that take them."""
    if not isinstance(operands, Mapping):
        expect(operands, Sequence, "operands", "arrays in the order of the operands, or by their names")
        if len(operands) != len(names):
            raise InputError(f"{len(operands)} operands are given; the schedule takes {' and '.join(names)}")
        return dict(zip(names, operands, strict=True))
    if set(operands) != set(names):
        given = ", ".join(operands) or "none"
        raise InputError(f"operands {given} are given; the schedule takes {' and '.join(names)}")
    return operands


def _rounded(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    return to_bfloat16(array) if dtype == BFLOAT16 else array.astype(dtype, copy=False)


def _sums_along(schedule: Schedule, name: str) -> int:
    """Return the axis of a tensor that multiplies sum over: the columns of A, the rows of B."""
    single_multiply = (Multiply("C", "A", "B"),)  # of a program that is one multiply
    for product in products(getattr(schedule.program, "statements", single_multiply)):
        if name in (product.a, product.b):
            side = "a" if name == product.a else "b"
            return int((side == "a") != (side in product.trans))
    return 1


def _calculable(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return a gathered array in a type that NumPy calculates with."""
    if array.dtype == np.float64 and dtype != "float64":  # sums of products of 8-bit factors
        return rounded_once(array, dtype)
    if array.dtype == BFLOAT16:
        return to_float32(array)
    return array.astype(np.float32) if dtype_name(array.dtype) == "bfloat16" else array

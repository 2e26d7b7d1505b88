"""The NumPy transport: the conformance suite with a thread for each rank, and refusals."""

from concurrent.futures import ThreadPoolExecutor
from threading import BrokenBarrierError

import numpy as np
import pytest
from conformance.transport_suite import TransportConformance

from umm import Interval, Layout
from umm.errors import LayoutError
from umm_hw.matrix import DistributedMatrix
from umm_hw.numpy.transport import NumpyTransport, run_ranks


class TestNumpyTransport(TransportConformance):
    @pytest.fixture(scope="class")
    @classmethod
    def run_ranks(cls):
        return run_ranks


def test_a_failing_rank_fails_the_program_instead_of_hanging_it():
    """Rank 1 fails while rank 0 waits at the barrier."""

    def program(transport):
        if transport.rank == 1:
            raise ZeroDivisionError("here")
        transport.barrier()

    with pytest.raises(ZeroDivisionError, match="here"):
        run_ranks(2, program)


def test_freed_memory_is_gone_and_can_be_allocated_again():
    def program(transport):
        transport.allocate([8, 8])
        before = transport.nbytes
        transport.free()
        after = transport.nbytes
        transport.barrier()
        return before, after, transport.allocate([24, 24]), transport.nbytes

    assert run_ranks(2, program) == [(8, 0, 0, 24), (8, 0, 0, 24)]


def matrix(text="row", shape=(4, 4), dtype="float32", ranks=1):
    return DistributedMatrix(NumpyTransport(ranks), Layout.parse(text, shape, ranks), dtype)


@pytest.mark.parametrize(("source", "target"), [("row", "cyclic:3x2:2x2"), ("col@2", "2d"), ("row", "row@4")])
def test_a_matrix_is_redistributed_by_gets_from_its_owners(source, target):
    """7 x 10 elements, numbered, on four ranks: every replica of the target has them all."""
    numbered = np.arange(70, dtype=np.float32).reshape(7, 10)

    def program(transport):
        x = DistributedMatrix(transport, Layout.parse(source, (7, 10), 4), "float32")
        x.scatter(numbered)
        y = x.redistributed(target)
        return [y.gather(replica) for replica in range(y.layout.replicas)]

    for replicas in run_ranks(4, program):
        assert all((replica == numbered).all() for replica in replicas)


def test_a_layout_for_other_ranks_is_refused():
    with pytest.raises(LayoutError, match="row is for 4 ranks, but the transport joins 2"):
        DistributedMatrix(NumpyTransport(2), Layout.parse("row", (4, 4), 4), "float32")


def test_a_part_that_leaves_the_tile_or_has_another_shape_is_refused():
    two = matrix("row", ranks=2)
    with pytest.raises(LayoutError, match=r"rows 1:3 and columns 0:4 leave tile \(0, 0\)"):
        two.accumulate_tile((0, 0), np.zeros((2, 4), np.float32), rows=Interval(1, 3))
    with pytest.raises(LayoutError, match=r"an array of shape \(4, 4\) cannot be added to 2x4"):
        two.accumulate_tile((1, 0), np.zeros((4, 4), np.float32))


def test_a_replica_that_does_not_exist_is_refused():
    with pytest.raises(LayoutError, match="replica 2 is outside row@2, which has 2"):
        matrix("row@2", ranks=2).get_tile((0, 0), replica=2)


def test_an_array_of_another_shape_is_not_scattered():
    with pytest.raises(LayoutError, match=r"an array of shape \(4, 5\) cannot fill a \(4, 4\) matrix"):
        matrix().scatter(np.zeros((4, 5)))


def test_a_matrix_prints_its_layout_and_the_tiles_of_its_rank():
    """Rank 0 of 2 has every second of 18 tiles; four are shown."""
    long = matrix("cyclic:1x1:1x2", (1, 18), ranks=2)
    long.hand_out(np.arange(18.0, dtype=np.float32).reshape(1, 18))
    assert str(long).split("\n") == [
        "float32, 1x18 in cyclic:1x1:1x2 over 2 ranks; rank 0 holds 9 tiles, 9 elements",
        *("rows 0:1, columns 0:1", "[[0.]]", "rows 0:1, columns 2:3", "[[2.]]"),
        *("rows 0:1, columns 4:5", "[[4.]]", "rows 0:1, columns 6:7", "[[6.]]"),
        "… and 5 more tiles",
    ]
    large = str(matrix("row", (500, 400)))
    assert "..., 0., 0., 0.]" in large
    assert len(large) < 1000
    assert str(matrix("row@2", (1, 1), ranks=4)).endswith(
        "1x1 in row@2 over 4 ranks, 2 replicas; rank 0 of replica 0 holds 1x1: rows 0:1, columns 0:1\n[[0.]]"
    )


def test_a_layout_says_what_a_rank_holds_even_nothing():
    assert Layout.parse("row", (2, 4), 3).describe(2) == "2x4 in row over 3 ranks; rank 2 holds nothing"
    assert Layout.parse("2d", (2, 4), 1).describe() == "2x4 in 2d over 1 rank"


def test_an_interrupt_before_all_ranks_have_begun_ends_those_that_wait_for_them(monkeypatch):
    """Ctrl-C while threads are started: those that ran waited at a barrier for ever."""
    begin, begun = ThreadPoolExecutor.submit, []

    def interrupted(threads, *program):
        if begun:
            raise KeyboardInterrupt
        begun.append(begin(threads, *program))
        return begun[0]

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_ranks(2, lambda transport: transport.barrier())
    assert isinstance(begun[0].exception(), BrokenBarrierError)

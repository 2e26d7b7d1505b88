"""Ranks that are threads of one process, so that a law can run many collective calls in little time."""

from threading import Barrier, Thread

import numpy as np

from umm.errors import InputError, LayoutError
from umm_hw.arrays.exchange import Seen


class Board:
    """The values that threads share."""

    def __init__(self, size):
        self.size, self.barrier = size, Barrier(size, timeout=60)
        self.contents, self.memory = [None] * size, [np.zeros(0, np.uint8)] * size

    def allgather(self, rank, content):
        self.contents[rank] = content
        self.barrier.wait()
        result = list(self.contents)
        self.barrier.wait()
        return result


class ThreadGroup:
    """One rank's group; and its exchange, in which every step is a barrier."""

    look, names_killed = None, False

    def __init__(self, board, rank):
        self.board, self.rank, self.size, self.numbers = board, rank, board.size, range(board.size)
        self.exchange, self.group, self.moved = self, self, 0

    def allgather(self, content):
        return self.board.allgather(self.rank, content)

    def begin(self, signature, words, refusal=None):
        entered = self.allgather((signature, str(refusal) if refusal else None))
        for rank, (_, error) in enumerate(entered):
            if error:
                raise InputError(f"rank {rank} refuses: {error}")
        if len({signature for signature, _ in entered}) > 1:
            raise LayoutError("ranks ask for different operations")

    def gather(self, signature, words, content):
        return self.allgather(content)

    def bytes_beside(self, traffic, rank, steps):
        return 0

    def reserve(self, nbytes):
        if nbytes[self.rank] > len(self.board.memory[self.rank]):
            self.board.memory[self.rank] = np.full(nbytes[self.rank], 0xFF, np.uint8)
        self.board.barrier.wait()

    def own(self, item):
        return item.view(self.board.memory[self.rank])

    def publish(self, traffic, kinds, step):
        self.board.barrier.wait()

    def see(self, traffic, kind, rank, step):
        item = traffic.item(kind, rank, step)
        rows, cols = traffic.rectangle(kind, rank, self.rank, step)
        self.moved += rows.size * cols.size * item.dtype.itemsize
        return Seen(item.view(self.board.memory[rank])[rows.slice, cols.slice], rows.start, cols.start)

    def release(self, step):
        self.board.barrier.wait()

    def settle(self, readers, step):
        pass

    def finish(self):
        pass


def on_threads(size, call):
    """The results of a function of a group on each rank; the first error of any is raised."""
    board, results, errors = Board(size), [None] * size, []

    def run(rank):
        try:
            results[rank] = call(ThreadGroup(board, rank))
        except Exception as error:  # the first is raised below
            errors.append(error)
            board.barrier.abort()

    threads = [Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((x for x in errors if not isinstance(x, RuntimeError)), errors[0])
    return results

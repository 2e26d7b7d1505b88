"""How ranks see pieces of each other's operands: published in shared memory, or sent where hosts are several.

In each step of a multiply a rank publishes an item of A and one of B, and at the end maybe partial sums P;
others read what they need of it. Items are dense matrices whose shapes all ranks know.
"""

import atexit
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import prod
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from umm.arrays import unwritten
from umm.errors import InputError, LayoutError, UmmError
from umm.interval import Interval
from umm_hw.arrays import board as boards
from umm_hw.arrays.board import USUAL_PAUSE, Board, Parts, shared_board
from umm_hw.arrays.group import Group, Message
from umm_hw.arrays.late import Late
from umm_hw.cores.backoff import ROUND_SLACK, Backoff

A, B, P = "ABP"


class Item(NamedTuple):
    """A matrix that one rank publishes in one step: its place in the rank's memory."""

    kind: str  # A, B or P
    rank: int  # the publishing rank
    offset: int  # bytes from the start of the rank's published memory
    shape: tuple[int, int]  # rows and columns
    dtype: np.dtype[Any]  # type of the elements
    order: str  # `C` or `F`

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return prod(self.shape) * self.dtype.itemsize

    def view(self, memory: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the item as an array in a rank's memory."""
        order: Any = self.order
        array: NDArray[Any] = np.ndarray(self.shape, self.dtype, memory, self.offset, order=order)
        return array


class Seen(NamedTuple):
    """A rectangle of another rank's item; indices of the item less ``row`` and ``col`` are indices here."""

    array: NDArray[Any]
    row: int
    col: int


class Traffic(Protocol):
    """Who reads which items of whom, the same on every rank."""

    def item(self, kind: str, rank: int, step: int) -> Item:
        """Return the item that a rank publishes in a step."""

    def readers(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks that read items of a rank."""

    def sources(self, kind: str, rank: int) -> Sequence[int]:
        """Return the other ranks whose items a rank reads."""

    def rectangle(self, kind: str, source: int, reader: int, step: int) -> tuple[Interval, Interval]:
        """Return the rows and columns of an item that hold all that a reader needs."""


class Exchange(Protocol):
    """The ways of one group, one multiply after another. Every rank calls begin in the same order."""

    group: Group

    def begin(self, signature: bytes, words: str, refusal: Exception | None = None) -> None:
        """Enter a call with all ranks, and make sure that they mean the same.

        Args:
            signature: What all ranks have in common.
            words: What the call does, in the third person.
            refusal: Why this rank cannot do it, which all ranks then raise.
        """

    def gather(self, signature: bytes, words: str, content: Any) -> list[Any]:
        """Enter a call in which each rank gives something; return one item a rank."""

    def agreed(self, number: int) -> bool:
        """Return whether all ranks have the same number, above 0; collective, and cheap, else False."""

    def reserve(self, nbytes: Sequence[int]) -> None:
        """Make sure that every rank can publish so many bytes; collective."""

    def own(self, item: Item) -> NDArray[Any]:
        """Return the array where this rank writes an item of its own."""

    def publish(self, traffic: Traffic, kinds: str, step: int) -> None:
        """Let others read this rank's items of a step, complete now."""

    def see(self, traffic: Traffic, kind: str, rank: int, step: int) -> Seen:
        """Wait until a rank has published an item, and return it."""

    def release(self, step: int) -> None:
        """Say that this rank reads nothing of a step any more."""

    def settle(self, readers: Iterable[int], step: int) -> None:
        """Wait until readers have released a step."""

    def finish(self) -> None:
        """Complete this multiply's transfers, so that the caller may do something else."""

    def bytes_beside(self, traffic: Traffic, rank: int, steps: int) -> int:
        """Return the bytes that a rank needs to read others' items, beside those it publishes."""


def _digest(signature: bytes) -> int:
    """Return a number for a signature, above those that ranks agree on."""
    return int.from_bytes(blake2b(signature, digest_size=8).digest(), "little") >> 2 | _AGREED


_AGREED = 1 << 61


class SharedExchange:
    """All ranks on one host: an item is written once, into shared memory, and read where it is."""

    def __init__(self, group: Group, board: Board) -> None:
        self.group = group
        self._board = board
        self._parts: Parts | None = None
        self._calls = 0
        self._base = 0  # steps published and read before this call
        self._steps = 0
        self.entered = 0.0
        self.ended = False

    def begin(self, signature: bytes, words: str, refusal: Exception | None = None) -> None:
        """Enter a call: one look at a counter of every rank.

        UmmError where a rank refuses, or ranks mean different multiplies.
        """
        self._calls += 1
        self._base += self._steps
        self._steps = 0
        board, all_ranks = self._board, range(self.group.size)
        # A rank that is fast may be in the next call while another still compares: calls take turns.
        turn = self._calls % 2
        digest = boards.REFUSED if refusal else _digest(signature)
        board.say(turn, str(refusal) if refusal else words)
        board.set(boards.DIGEST + turn, digest)
        board.set(boards.ENTERED, self._calls)
        board.wait(all_ranks, boards.ENTERED, self._calls, "all to call")
        if refusal:
            raise refusal
        digests = board.column(boards.DIGEST + turn)
        if (digests != digest).any():
            _differ(digests.tolist(), [board.said(rank, turn) for rank in all_ranks])
        self.entered = perf_counter()

    def gather(self, signature: bytes, words: str, content: Any) -> list[Any]:
        """Enter a call, and then gather by messages."""
        self.begin(signature, words)
        return self.group.allgather(content)

    def agreed(self, number: int) -> bool:
        """Look at a counter of every rank."""
        self._calls += 1
        column, all_ranks = boards.DIGEST + self._calls % 2, range(self.group.size)
        self._board.say(self._calls % 2, "wraps DTensors")
        self._board.set(column, number)
        self._board.set(boards.ENTERED, self._calls)
        self._board.wait(all_ranks, boards.ENTERED, self._calls, "all to call")
        numbers = self._board.column(column)
        if ((numbers >= _AGREED) | (numbers == boards.REFUSED)).any():
            _differ(numbers.tolist(), [self._board.said(rank, self._calls % 2) for rank in all_ranks])
        return number > 0 and bool((numbers == number).all())

    def reserve(self, nbytes: Sequence[int]) -> None:
        """Map more shared memory if there is too little; the old mapping is released."""
        had = self._parts.nbytes if self._parts else (0,) * self.group.size
        if any(need > has for need, has in zip(nbytes, had, strict=True)):
            self._parts = None
            parts = Parts(self.group, [max(x) for x in zip(nbytes, had, strict=True)])
            parts.close_file()
            if parts.trouble:
                raise UmmError(f"no memory to share: {parts.trouble}")
            self._parts = parts

    def own(self, item: Item) -> NDArray[Any]:
        """Return where the item is published."""
        assert self._parts is not None
        return item.view(self._parts.parts[self.group.rank])

    def publish(self, traffic: Traffic, kinds: str, step: int) -> None:
        """Count the step."""
        if P in kinds:
            self._board.set(boards.SUMMED, self._calls)
        else:
            self._steps = max(self._steps, step + 1)
            self._board.set(boards.PUBLISHED, self._base + step + 1)

    def see(self, traffic: Traffic, kind: str, rank: int, step: int) -> Seen:
        """Return a view of another rank's memory."""
        assert self._parts is not None
        if kind == P:
            self._board.wait((rank,), boards.SUMMED, self._calls, f"rank {rank} to have multiplied")
        else:
            what = f"rank {rank} to publish its part of {kind}"
            self._board.wait((rank,), boards.PUBLISHED, self._base + step + 1, what)
        return Seen(traffic.item(kind, rank, step).view(self._parts.parts[rank]), 0, 0)

    def release(self, step: int) -> None:
        """Count the step as read."""
        self._board.set(boards.READ, self._base + step + 1)

    def settle(self, readers: Iterable[int], step: int) -> None:
        """Wait for readers' counters."""
        self._board.wait(readers, boards.READ, self._base + step + 1, "all to have read a step")

    def bytes_beside(self, traffic: Traffic, rank: int, steps: int) -> int:
        """Return the bytes a rank needs to read others' items: none."""
        return 0

    def finish(self) -> None:
        """Return at once: others read published items without this rank."""


class MessageExchange:
    """Ranks of several hosts: a rank sends each reader the rectangle it needs of an item.

    Args:
        board: Of those of this host, where their calls are written down; None where they share no memory.
    """

    def __init__(self, group: Group, board: Board | None = None) -> None:
        self.group = group
        self._board = board
        self._memory = unwritten(0)
        self._calls = 0
        self._sent: dict[int, list[tuple[Message, Any, int]]] = {}
        self._coming: dict[tuple[str, int, int], tuple[Message, Seen]] = {}
        self.entered = 0.0

    def begin(self, signature: bytes, words: str, refusal: Exception | None = None) -> None:
        """Enter a call: one gather of everybody's digest."""
        self._enter(boards.REFUSED if refusal else _digest(signature), str(refusal) if refusal else words)
        if refusal:
            raise refusal
        self.entered = perf_counter()

    def gather(self, signature: bytes, words: str, content: Any) -> list[Any]:
        """Enter a call and gather with its digest."""
        return self._enter(_digest(signature), words, content)

    def _enter(self, digest: int, words: str, content: Any = None) -> list[Any]:
        """Enter a call, and return one item a rank."""
        self._calls += 1
        self.finish()
        if self._board is not None:
            self._board.say(self._calls % 2, words)
            self._board.set(boards.ENTERED, self._calls)
        entered = self.group.allgather((digest, words, content))
        digests = [other for other, _, _ in entered]
        if digest != boards.REFUSED and set(digests) != {digest}:
            _differ(digests, [words for _, words, _ in entered])
        return [given for _, _, given in entered]

    def agreed(self, number: int) -> bool:
        """Return False: a gather of numbers costs as much as it would save."""
        return False

    def reserve(self, nbytes: Sequence[int]) -> None:
        """Have room for this rank's own items."""
        if nbytes[self.group.rank] > self._memory.nbytes:
            self._memory = unwritten(nbytes[self.group.rank])

    def own(self, item: Item) -> NDArray[Any]:
        """Return where the item is packed."""
        return item.view(self._memory)

    def publish(self, traffic: Traffic, kinds: str, step: int) -> None:
        """Start to receive the items this rank reads in a step, and send those that others read."""
        rank = self.group.rank
        for kind in kinds:
            for source in traffic.sources(kind, rank):
                item = traffic.item(kind, source, step)
                rows, cols = traffic.rectangle(kind, source, rank, step)
                array = np.empty((rows.size, cols.size), item.dtype, item.order)  # type: ignore[call-overload]
                message = self.group.receive(_flat(array), source, self._tag(kind, step))
                self._coming[kind, source, step] = message, Seen(array, rows.start, cols.start)
        for kind in kinds:
            for reader in traffic.readers(kind, rank):
                item = traffic.item(kind, rank, step)
                rows, cols = traffic.rectangle(kind, rank, reader, step)
                piece = np.asarray(self.own(item)[rows.slice, cols.slice], order=item.order)  # type: ignore[call-overload]
                message = self.group.send(_flat(piece), reader, self._tag(kind, step))
                self._sent.setdefault(-1 if kind == P else step, []).append((message, piece, reader))

    def see(self, traffic: Traffic, kind: str, rank: int, step: int) -> Seen:
        """Wait for the message."""
        message, seen = self._coming[kind, rank, step]
        self._until(message, rank, f"rank {rank} to send its part of {kind}")
        return seen

    def release(self, step: int) -> None:
        """Forget the step's received items."""
        for key in [key for key in self._coming if key[2] == step]:
            del self._coming[key]

    def settle(self, readers: Iterable[int], step: int) -> None:
        """Wait until the step's messages have been sent."""
        for message, _, reader in self._sent.pop(step, []):
            self._until(message, reader, f"rank {reader} to take in what it reads")

    def _until(self, message: Message, rank: int, what: str) -> None:
        """Wait until a message from a rank, or to it, is done."""
        pauses, notes = Backoff(USUAL_PAUSE, ROUND_SLACK), Late(self.group, what)
        while not message.done():
            pauses.sleep()
            if self.group.look is not None:
                self.group.look([rank], what)
            if notes.due:
                notes.write([rank])

    def bytes_beside(self, traffic: Traffic, rank: int, steps: int) -> int:
        """Return the bytes that a rank receives for the fullest two steps, and packs to send."""
        most = 0
        for kinds in (A + B, P):
            for kind in kinds:
                for source in traffic.sources(kind, rank):
                    item = traffic.item(kind, source, 0)
                    rows, cols = traffic.rectangle(kind, source, rank, 0)
                    most += rows.size * cols.size * item.dtype.itemsize * min(2, steps)
                for reader in traffic.readers(kind, rank):
                    item = traffic.item(kind, rank, 0)
                    rows, cols = traffic.rectangle(kind, rank, reader, 0)
                    wanted, published = (rows, item.shape[0]) if item.order == "F" else (cols, item.shape[1])
                    if wanted.size < published:  # else it is adjacent, and sent from where it is published
                        most += rows.size * cols.size * item.dtype.itemsize * min(2, steps)
        return most

    def finish(self) -> None:
        """Wait until all that was sent has gone: messages move on only while they are looked at."""
        for step in list(self._sent):
            self.settle((), step)
        self._coming.clear()

    def _tag(self, kind: str, step: int) -> int:
        """Return a tag of its own for each kind and step; messages of one tag keep their order."""
        return "ABP".index(kind) + 3 * (step % 1024)


def _flat(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1, order="A").view(np.uint8)


def _differ(digests: Sequence[int], words: Sequence[str]) -> None:
    """Raise the same error on all ranks where one refuses, or their operations differ."""
    for rank, digest in enumerate(digests):
        if digest == boards.REFUSED:
            raise InputError(f"rank {rank} refuses: {words[rank]}")
    other = next(rank for rank in range(len(digests)) if digests[rank] != digests[0])
    raise LayoutError(
        f"ranks ask for different operations, nothing was moved: rank 0 {words[0]}; "
        f"rank {other} {words[other]}"
    )


def exchange_of(group: Group) -> SharedExchange | MessageExchange:
    """Return the exchange of a group: the same each time; collective at the first."""
    exchange = getattr(group, "exchange", None)
    if exchange is None:
        board = shared_board(group)
        if board is not None:
            exchange = SharedExchange(group, board)
        else:
            here = group.on_host()
            board = None if here is None else shared_board(here, remote=False)
            exchange = MessageExchange(group, board)
        group.exchange = exchange  # type: ignore[attr-defined]
        if board is not None:
            group.look = board.look_by_number
            atexit.register(board.set, boards.LEFT, 1)
    result: SharedExchange | MessageExchange = exchange
    return result

"""An all-reduce as a reduce-scatter of as many parts as there are ranks, then an all-gather of them."""

from collections.abc import Callable, Sequence

from umm.algorithms.collectives.way import PLAIN, Manner, Piece, one_collective, parted
from umm.schedules.table.slices import Slice
from umm.schedules.writer.builder import Builder

Writer = Callable[..., None]


def in_parts(reduce_scatter: Writer, all_gather: Writer) -> Writer:
    """Return what writes an all-reduce, from what writes its two halves."""

    @one_collective
    def all_reduce(
        build: Builder,
        ranks: Sequence[int],
        given: Piece,
        into: Piece,
        zeroed: bool = False,
        manner: Manner = PLAIN,
    ) -> None:
        """Every rank gets the sum; running sums lie where it goes."""
        number = {rank: i for i, rank in enumerate(ranks)}

        def theirs(rank: int, owner: int) -> Slice:
            return parted(given(rank), number[owner], len(ranks))

        def there(rank: int, owner: int) -> Slice:
            return parted(into(rank), number[owner], len(ranks))

        def own(rank: int) -> Slice:
            return there(rank, rank)

        reduce_scatter(build, ranks, theirs, own, there, zeroed, manner)
        all_gather(build, ranks, own, there, manner)

    return all_reduce

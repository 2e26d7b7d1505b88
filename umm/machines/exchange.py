"""Tokens sent to their experts' ranks and back by kernels of their own, as DeepEP has them."""

from collections.abc import Iterable
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt

from umm.arrays import Floats
from umm.machines.declaring import Field
from umm.machines.library import blended
from umm.machines.prefill import Count
from umm.machines.quantities import BytesPerSecond, Sourced, Time


class Exchange(Sourced):
    """Kernels of one direction, of all ranks of a node.

    Of many tokens a rank gets each once, whatever experts of it are chosen; of few ones, at low latency, once
    for each expert.
    """

    direction: Literal["dispatch", "combine"]  # to the experts, or back to the tokens' ranks
    low_latency: bool  # whether a token goes once for each expert
    item: Annotated[float, Field(gt=0)]  # bytes of an element, with its scale
    start: Time  # seconds beside the rest
    column: Time  # seconds of each column of a token
    expert: Time  # seconds of each expert
    token: Time  # seconds of each token of a block
    link: Annotated[float, Field(gt=0, le=1)]  # share of the links' bandwidth
    block: BytesPerSecond  # Bytes/s of a multiprocessor
    blocks: Count  # multiprocessors, of low latency at most one for each expert

    def seconds(
        self,
        tokens: npt.ArrayLike,
        hidden: npt.ArrayLike,
        top_k: npt.ArrayLike,
        experts: npt.ArrayLike,
        ranks: int,
        width: float,
        blocks: npt.ArrayLike | None = None,
    ) -> Floats:
        """Return the seconds of some tokens of each rank.

        Args:
            tokens: Of a rank; all but ranks and width broadcast.
            hidden: Columns of a token.
            top_k: Experts of each.
            width: Bytes/s of the links by which a rank hears.
            blocks: Multiprocessors; the table's if None.

        2 ranks: of 1,000 tokens of 1 KB with one expert each half cross a link of 1 GB/s.

        >>> times = dict.fromkeys(("start", "column", "expert", "token"), "0 s")
        >>> kernels = Exchange(direction="dispatch", low_latency=False, item=1.0, link=1.0, block="1 TB/s",
        ...     blocks=24, source="a test", **times)
        >>> round(float(kernels.seconds(1000, 1000, 1, 8, 2, 1e9)) * 1e6)
        500
        """
        names = (tokens, hidden, top_k, experts, self.blocks if blocks is None else blocks)
        t, h, k, e, b = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in names))
        b = np.minimum(b, e) if self.low_latency else b
        copies = k if self.low_latency else ranks * (1.0 - (1.0 - 1.0 / ranks) ** k)
        crossing = t * copies * h * self.item * (ranks - 1) / ranks
        rate = blended(self.link * width, self.block * b)
        beside = self.start + h * self.column + e * self.expert + t / b * self.token
        return np.asarray(beside + crossing / rate)


def exchange_of(tables: Iterable[Exchange], direction: str, low_latency: bool) -> Exchange | None:
    """Return the kernels of a direction, at low latency or not; None if an engine has none."""
    return next((x for x in tables if (x.direction, x.low_latency) == (direction, low_latency)), None)

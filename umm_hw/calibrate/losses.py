"""What transfers cost the gemms beside them: a share of their rate, and an overhead of each."""

from collections.abc import Sequence

import numpy as np

from umm_hw.calibrate.figures import Figure, figure
from umm_hw.calibrate.host_benchmarks import Beside
from umm_hw.cores.pace import undisturbed

MOST_LOST = 0.95  # a gemm beside transfers goes on, however slowly


def switch_seconds(lost: Sequence[Sequence[Beside]], best: float) -> Figure:
    """Return the seconds of its rank's core that a transfer beside a gemm takes more than alone.

    The core turns from the gemm to the transfer and back, and some of the gemm's data leave the caches.
    """
    over = [[seconds - alone for seconds, alone in _lost(repeats, best)] for repeats in lost]
    found = figure([float(np.median(of_kind)) for of_kind in over])
    return found if found.value > 0 else Figure(0.0, 0.0)


def lost_share(lost: Sequence[Sequence[Beside]], overhead: float, best: float) -> Figure:
    """Return the share of its GEMM rate a rank loses while a transfer runs that takes its overhead too."""
    found = [
        float(np.median([seconds / (overhead + alone) for seconds, alone in _lost(repeats, best)]))
        for repeats in lost
    ]
    share = figure(found)
    return Figure(round(min(MOST_LOST, max(0.0, share.value)), 3), share.uncertainty)


def _lost(repeats: Sequence[Beside], best: float) -> list[tuple[float, float]]:
    """Return the seconds of gemms that each transfer beside them costs, and what one takes alone."""
    found = []
    for repeat in undisturbed(repeats):
        alone, both, one = (x.seconds * best / x.reading for x in (repeat.alone, repeat.both, repeat.one))
        found.append(((both - alone) / repeat.times, one))
    return found

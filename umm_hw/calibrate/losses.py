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
    """Return the share of its GEMM rate a rank loses while transfers of all sizes run with their overhead."""
    by_size = [np.median(_lost(repeats, best), axis=0) for repeats in lost]
    whole = sum(seconds for seconds, _ in by_size) / sum(overhead + alone for _, alone in by_size)
    spread = figure([seconds / (overhead + alone) for seconds, alone in by_size]).uncertainty
    return Figure(round(min(MOST_LOST, max(0.0, float(whole))), 3), spread)


def _lost(repeats: Sequence[Beside], best: float) -> list[tuple[float, float]]:
    """Return the seconds of gemms that each transfer beside them costs, and what one takes alone."""
    found = []
    for repeat in undisturbed(repeats, best):
        cost = repeat.both.seconds - repeat.alone.seconds
        found.append((cost / repeat.times, repeat.one.seconds))
    return found

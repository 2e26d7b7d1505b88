"""What the runs of a schedule come to."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from umm.checks import Check
from umm.traces.trace import Trace


@dataclass(frozen=True)
class Measured:
    """The runs of a schedule.

    Attributes:
        best: The fastest run, as the paper reports.
        seconds: Makespan of each counted run.
        check: How far C is from the reference, if that was asked for.
    """

    best: Trace
    seconds: tuple[float, ...]
    check: Check | None

    def record(self) -> dict[str, Any]:
        """Return the runs as plain values; without a check its two are None."""
        return {
            "best_s": min(self.seconds),
            "mean_s": float(np.mean(self.seconds)),
            "std_s": float(np.std(self.seconds)),
            "iters": len(self.seconds),
            "max_abs_error": self.check and self.check.max_abs_error,
            "ok": self.check and self.check.ok,
        }

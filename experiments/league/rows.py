"""The rows that the league is about, from a folder of tables or from AIConfigurator's wheel."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.common.machines import shipped
from experiments.common.wheel import wheel
from experiments.kernels.chips import BLACKWELLS, BY_CALL, PACKED
from experiments.kernels.multiplies import TYPES
from umm.arrays import Bools, Floats
from umm.cost import gemm_seconds
from umm.errors import MachineError
from umm.machines import Machine
from umm.machines.drafts.measured import SYSTEMS
from umm.machines.settings import with_settings

MOST = 1000
"""Rows of a system, engine and type that judge, drawn by a fixed seed."""
COLUMNS = ["m", "n", "k", "latency"]
MOST_ALIKE = 16
"""Rows of A up to which kernels have one tile for all."""
HELD = 3
"""Tenths of n and k whose rows judge, at all m."""


@dataclass(frozen=True, eq=False)
class Game:
    """Measured multiplies of one system, engine and type.

    Attributes:
        name: Of these three.
        plain: The machine by its file's own numbers.
        machine: With the engine's kernels.
        dtype: Of A and B.
        known: m, n, k and seconds of the shapes that a predictor may know, by a hash of n and k.
        judged: Those that it predicts.
    """

    name: tuple[str, str, str]
    plain: Machine
    machine: Machine
    dtype: str
    known: Floats
    judged: Floats


def noise(rows: Floats) -> float:
    """Return the noise of few rows: their mean distance from the mean of a row more and less; nan if none.

    Kernels have one tile for all of these, so most of it is what a repeat would differ by.

    Args:
        rows: m, n, k and seconds.

    >>> rows = [[m, 64, 64, 1e-6 * (1.1 if m == 3 else 1.0)] for m in (1, 2, 3, 4, 300)]
    >>> round(noise(np.array(rows)), 3)
    0.06
    """
    ordered = rows[np.lexsort(rows[:, :3].T)]
    before, here, after = ordered[:-2], ordered[1:-1], ordered[2:]
    alike = (before[:, 1:3] == after[:, 1:3]).all(axis=1) & (after[:, 0] - before[:, 0] == 2)
    alike &= after[:, 0] <= MOST_ALIKE
    apart = np.log(here[:, 3]) - (np.log(before[:, 3]) + np.log(after[:, 3])) / 2
    # Of independent rows this has 1.5 times the variance of one.
    return float(np.expm1(np.abs(apart[alike]).mean() / 1.5**0.5)) if alike.any() else float("nan")


def roughness(game: Game) -> float:
    """Return how far rows are from those next to them in m, of the same n and k, over the law; nan if none.

    What is left of noise and of the library's choices from shape to shape when the nearest rows are known.
    """
    ordered = game.known[np.lexsort(game.known[:, :3].T)]
    law = gemm_seconds(game.machine, game.dtype, *ordered.T[:3], 2)
    ratio, octaves = np.log(ordered[:, 3] / law), np.log2(ordered[:, 0])
    gap, n_and_k = octaves[2:] - octaves[:-2], ordered[:, 1:3]
    alike = (n_and_k[:-2] == n_and_k[2:]).all(axis=1) & (gap <= 1)
    share = (octaves[1:-1] - octaves[:-2])[alike] / gap[alike]
    apart = (ratio[1:-1] - ratio[:-2])[alike] - share * (ratio[2:] - ratio[:-2])[alike]
    # A difference of independent rows varies by as many times as much as one row does.
    apart /= np.sqrt(1 + share**2 + (1 - share) ** 2)
    return float(np.expm1(np.abs(apart).mean())) if alike.any() else float("nan")


def cell(seconds: Floats, measured: Floats, large: Bools) -> str:
    """Return the errors of small and large multiplies, and how many have an answer where not all have.

    >>> seconds = np.array([1.1, np.nan, 2.0])
    >>> cell(seconds, np.array([1.0, 1.0, 1.0]), np.array([False, False, True]))
    '10% / 100% (2)'
    """
    errors, known = np.abs(np.log(seconds / measured)), np.isfinite(seconds)
    halves = (known & ~large, known & large)
    text = " / ".join(f"{np.expm1(errors[x].mean()):.0%}" if x.any() else "–" for x in halves)
    return text if known.all() else f"{text} ({known.sum()})"


def games(folder: Path | None) -> Iterator[Game]:
    """Yield the games of tables.

    Args:
        folder: It has ``gemm.parquet`` with systems and engines; None for the wheel's tables.

    Raises:
        InputError: The wheel is not installed.
    """
    for (system, engine, dtype), rows in _tables(folder):
        if system not in SYSTEMS or dtype not in TYPES:
            continue
        plain = shipped(SYSTEMS[system])
        try:
            by_wheel = folder is None and (engine, dtype) == BY_CALL and system in BLACKWELLS
            machine = with_settings(plain, {"kernels": PACKED if by_wheel else engine})
            machine.peak(TYPES[dtype])
        except MachineError:
            continue
        left = np.asarray(pd.util.hash_pandas_object(rows[["n", "k"]], index=False) % 10 < HELD)
        judged = rows[left].sample(min(sum(left), MOST), random_state=1)
        known, judges = (x[COLUMNS].to_numpy(np.float64) * (1, 1, 1, 1e-3) for x in (rows[~left], judged))
        yield Game((system, engine, dtype), plain, machine, TYPES[dtype], known, judges)


def _tables(folder: Path | None) -> Iterator[tuple[tuple[str, str, str], pd.DataFrame]]:
    if folder is not None:
        every = pd.read_parquet(folder / "gemm.parquet")
        every["engine"] = every.library.str.partition(" ")[0]
        for (system, engine, dtype), rows in every.groupby(["system", "engine", "gemm_dtype"]):
            yield (system, engine, dtype), rows
        return
    data = wheel()
    for path in sorted(data.glob("*/gemm/*/*/gemm_perf.parquet")):
        for dtype, rows in pd.read_parquet(path).groupby("gemm_dtype"):
            yield (path.parts[-5], path.parts[-3], str(dtype)), rows

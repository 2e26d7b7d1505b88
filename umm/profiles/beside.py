"""Measured kernels beside predicted ones: by shape where both have it, else by kind."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from umm.profiles.kernel import COLLECTIVES, MULTIPLY, Kernel, Profile
from umm.units import format_bytes

Key = tuple[object, ...]

BYTES_APART = 0.1
"""By how much the bytes of two collectives may differ that are the same one: padding, buckets."""


class Side(NamedTuple):
    """Calls of one shape, measured or predicted, in one step."""

    calls: float
    seconds: float
    fastest: float  # seconds of the fastest call; what a collective takes without waits for other ranks
    kernel: Kernel
    unhindered: float = 0.0  # seconds if each call took as long as the fastest of its size


@dataclass(frozen=True)
class Row:
    """Kernels that do the same, predicted and measured."""

    kind: str  # their kind
    words: str  # their shape in words
    by: str  # `shape` or `kind`, by which they were matched; empty where one side has none
    predicted: Side | None
    measured: Side | None

    @property
    def ratio(self) -> float:
        """Predicted over measured seconds; nan where either is missing."""
        if self.predicted is None or self.measured is None or not self.measured.seconds:
            return float("nan")
        return self.predicted.seconds / self.measured.seconds

    @property
    def waits(self) -> float:
        """Seconds that a measured collective's calls take beyond the fastest of their size: ranks are late.

        0 where no sizes are known: then the fastest call may be of the smallest.
        """
        one = self.measured
        return one.seconds - one.unhindered if one and one.kernel.nbytes and self.kind in COLLECTIVES else 0.0


@dataclass(frozen=True)
class Beside:
    """A profile and a prediction of the same program."""

    profile: Profile  # what was measured
    rows: tuple[Row, ...]  # kernels side by side, the one with the largest difference first

    @cached_property
    def measured_s(self) -> float:
        """Measured seconds of all kernels in a step."""
        return sum(x.measured.seconds for x in self.rows if x.measured)

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of all kernels."""
        return sum(x.predicted.seconds for x in self.rows if x.predicted)

    @property
    def explained(self) -> float:
        """Share of measured kernel time that the prediction has: of each row the smaller of its sides."""
        both = ((x.predicted, x.measured) for x in self.rows)
        return sum(min(p.seconds, m.seconds) for p, m in both if p and m) / max(self.measured_s, 1e-30)

    @property
    def matched(self) -> float:
        """Share of measured kernel time in kernels that the prediction has too, however long."""
        return sum(x.measured.seconds for x in self.rows if x.by and x.measured) / max(self.measured_s, 1e-30)


def _sides(kernels: Iterable[Kernel], steps: int) -> dict[Key, Side]:
    """Return the calls of each key."""
    sides: dict[Key, Side] = {}
    for one in kernels:
        calls, seconds = one.calls / steps, one.calls * one.seconds / steps
        old = sides.get(one.key)
        if old is not None:
            calls, seconds = calls + old.calls, seconds + old.seconds
        fastest = one.seconds if old is None else min(old.fastest, one.seconds)
        sides[one.key] = Side(calls, seconds, fastest, old.kernel if old else one, calls * fastest)
    return sides


def _nearest(key: Key, side: Side, among: dict[Key, Side]) -> Key | None:
    """Return the key of the same kernel among others; of a collective bytes may differ a little."""
    if key in among or side.kernel.kind not in COLLECTIVES or not side.kernel.nbytes:
        return key if key in among and len(key) > 1 else None
    nbytes = side.kernel.nbytes
    apart = {x: abs(one.kernel.nbytes - nbytes) for x, one in among.items() if x[:2] == key[:2]}
    return min((x for x in apart if apart[x] <= BYTES_APART * nbytes), key=lambda x: apart[x], default=None)


def _matched(measured: dict[Key, Side], predicted: dict[Key, Side]) -> dict[Key, tuple[list[Key], list[Key]]]:
    """Return the measured and predicted keys of each row that is matched by shape.

    Several sizes on one side may be the same one on the other: layers that are padded differently.
    """
    rows: dict[Key, tuple[list[Key], list[Key]]] = {}
    row_of: dict[Key, Key] = {}
    for key, side in measured.items():
        same = _nearest(key, side, predicted)
        if same is not None:
            rows.setdefault(same, ([], [same]))[0].append(key)
            row_of[key] = same
    for key, side in predicted.items():
        same = _nearest(key, side, {x: measured[x] for x in row_of}) if key not in rows else None
        if same is not None:
            rows[row_of[same]][1].append(key)
    return rows


def beside(profile: Profile, predicted: Iterable[Kernel]) -> Beside:
    """Put a profile's kernels beside predicted ones.

    Kernels with one shape are one row. What has no shape, or one that the other side lacks, stands beside the
    rest of its kind: three multiplies for queries, keys and values beside one that is all three.

    Args:
        predicted: The kernels of one step, or of the whole program.
    """
    measured, others = _sides(profile.kernels, profile.steps), _sides(predicted, 1)
    rows: list[Row] = []
    for theirs, ours in _matched(measured, others).values():
        side, other = _joined(measured.pop(x) for x in theirs), _joined(others.pop(x) for x in ours)
        rows.append(Row(side.kernel.kind, words(side.kernel), "shape", other, side))
    kinds = dict.fromkeys(x.kernel.kind for x in (*measured.values(), *others.values()))
    for kind in kinds:
        rest, left = ([x for x in y.values() if x.kernel.kind == kind] for y in (others, measured))
        if rest and left:
            other, side = _joined(rest), _joined(left)
            label = words(side.kernel) if side.kernel.key == other.kernel.key else "other sizes"
            rows.append(Row(kind, label if rows else "", "kind", other, side))
        else:
            rows += [Row(kind, words(x.kernel), "", x, None) for x in rest]
            rows += [Row(kind, words(x.kernel), "", None, x) for x in left]

    def apart(row: Row) -> float:
        return abs(
            (row.measured.seconds if row.measured else 0) - (row.predicted.seconds if row.predicted else 0)
        )

    return Beside(profile, tuple(sorted(rows, key=apart, reverse=True)))


def _joined(sides: Iterable[Side]) -> Side:
    """Return all calls of some sides together."""
    mine = list(sides)
    longest = max(mine, key=lambda x: x.seconds)
    calls, seconds, unhindered = (
        sum(getattr(x, y) for x in mine) for y in ("calls", "seconds", "unhindered")
    )
    return Side(calls, seconds, longest.fastest, longest.kernel, unhindered)


def words(kernel: Kernel) -> str:
    """Return a kernel's size in words.

    >>> words(Kernel("multiply", "mm", 1.0, (8192, 1024, 4096)))
    '8192 x 1024 x 4096'
    >>> words(Kernel("all-gather", "nccl", 1.0, ranks=16, nbytes=2**28))
    '256.0 MiB, 16 ranks'
    """
    if kernel.kind == MULTIPLY and kernel.shape:
        *members, m, n, k = kernel.shape
        return "".join(f"{x} of " for x in members) + f"{m} x {n} x {k}"
    if kernel.kind in COLLECTIVES and kernel.nbytes:
        return format_bytes(kernel.nbytes) + (f", {kernel.ranks} ranks" if kernel.ranks else "")
    return ""

"""The times of one machine's points, and their summary by the paper's protocol."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from experiments.common.points import Row
from experiments.universal.layers import OURS, SIZES
from umm.machines import Machine

EACH = "each batch's own"
TIE = 1.01  # times within one percent are told apart by nobody


class Choice(NamedTuple):
    """A replication factor of A and B, one of C, and the matrix that stays."""

    ab: int
    c: int
    stationary: str


class Curves:
    """Seconds on one machine by layer, batch and family.

    Left out are choices with A and B whole on every rank: nothing is got with them, and all families tie. The
    paper leaves out those without communication.

    Args:
        rows: Points of :mod:`experiments.universal.layers` with what came out.
        machine: The machine they are of.
    """

    def __init__(self, rows: Iterable[Row], machine: Machine) -> None:
        self.machine, self.ranks = machine, machine.default_ranks
        self._of: dict[tuple[str, int, str], dict[Choice, float]] = defaultdict(dict)
        for row in rows:
            if row["ab"] < self.ranks:
                choice = Choice(row["ab"], row["c"], row["stationary"])
                self._of[row["layer"], row["m"], row["family"]][choice] = row["seconds"]
        self.batches = tuple(sorted({m for _, m, _ in self._of}))

    def best(self, layer: str, m: int, family: str, **where: object) -> tuple[float, Choice]:
        """Return the least seconds of a family, and of its ties the choice with fewest copies.

        Args:
            layer: MLP-1 or MLP-2.
            m: The batch.
            family: Name of a family.
            where: Fields of the choice that are fixed; the matrix that stays is the family's if not given,
                each batch's own if it is EACH.
        """
        if where.get("stationary") == EACH:
            del where["stationary"]
        elif "stationary" not in where:
            where["stationary"] = self.stays(layer, family, **where)
        return self._least(layer, m, family, **where)

    def stays(self, layer: str, family: str, **where: object) -> str:
        """Return the matrix that stays: B or C, the faster one at the largest batch, of a tie over all."""
        least, over_all = (
            {x: sum(self._least(layer, m, family, stationary=x, **where)[0] for m in batches) for x in "BC"}
            for batches in (self.batches[-1:], self.batches)
        )
        return min((x for x in "BC" if least[x] <= TIE * min(least.values())), key=over_all.__getitem__)

    def _least(self, layer: str, m: int, family: str, **where: object) -> tuple[float, Choice]:
        result = {
            choice: seconds
            for choice, seconds in self._of[layer, m, family].items()
            if all(getattr(choice, name) == value for name, value in where.items())
        }
        least = min(result.values())
        return least, min((x for x, seconds in result.items() if seconds <= TIE * least), key=lambda x: x[:2])

    def families(self, layer: str) -> list[str]:
        """Return the families of ours that there are points of."""
        return [x for x in OURS if self._of.get((layer, self.batches[0], x))]

    def order(self, layer: str, m: int, **where: object) -> list[str]:
        """Return the families, the fastest first."""
        return sorted(self.families(layer), key=lambda x: self.best(layer, m, x, **where)[0])

    def fastest(self, layer: str, m: int, **where: object) -> float:
        """Return the least seconds of all families."""
        return min(self.best(layer, m, x, **where)[0] for x in self.families(layer))

    def peer(self, layer: str, m: int, name: str) -> float | None:
        """Return the seconds of another's algorithm; None if it was not asked."""
        return next(iter(self._of.get((layer, m, name), {}).values()), None)

    def percent(self, layer: str, m: int, seconds: float) -> float:
        """Return seconds as percent of the peak of all devices, as the paper's figures have them."""
        n, k = SIZES[layer]
        return 100 * 2 * m * n * k / seconds / self.ranks / self.machine.peak("float32")

"""The plan of all weights: the placement of each, the owners of those that have one, and its seconds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from umm.errors import ProblemError, did_you_mean
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.muon.owners import Owned, Weight, loads_of, longest_first, solve
from umm.muon.placements import OWNERS, PLACEMENTS, Costs, Price, local, possible
from umm.muon.program import JORDAN, Coefficients
from umm.muon.weights import Grid, Matrix
from umm.step.step import rates_of

LAYERS, BEST = "layers", "best"
PROVEN = 1e-5  # share above its bound at which a plan counts as the best: ten times the solver's tolerance


@dataclass(frozen=True)
class Row:
    """A plan by one placement."""

    placement: str  # its name
    seconds: float  # of the optimizer's step
    memory: float  # bytes beside the weights at a time
    moved: float  # seconds of collectives
    busiest: float  # seconds of compute of the busiest device
    idlest: float  # the same of the device that computes least
    collectives: int  # collectives of the step; one rank has none


@dataclass(frozen=True)
class MuonPlan:
    """All placements, and the best mix of them."""

    weights: tuple[Matrix, ...]  # the matrices that are orthogonalised
    grid: Grid  # the ranks that split them
    coefficients: Coefficients  # a, b and c of each step
    rows: list[Row]  # one for each placement, the best mix last
    best: dict[str, str]  # placement of each weight in the best mix
    # For each weight with owners, the rank of each of its matrices, layer by layer.
    homes: dict[str, tuple[int, ...]]
    # Of each weight in the best mix: its collectives and its compute, spread evenly.
    seconds: dict[str, float]
    loads: tuple[float, ...]  # seconds of compute of each device in the best mix
    # By how much the best mix may exceed the optimum of all mixes, a share; 0 where it is proven best.
    gap: float

    @property
    def proven(self) -> bool:
        """Whether no other mix is faster."""
        return self.gap == 0.0

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for plans that do the same."""
        return self.weights, self.grid, self.coefficients, tuple(self.best.items()), tuple(self.homes.items())

    @property
    def owners(self) -> dict[str, list[int]]:
        """For each weight with owners, the number of its matrices at each rank."""
        return {name: _shares(ranks, self.grid.ranks) for name, ranks in self.homes.items()}


def plan(
    weights: Sequence[Matrix],
    grid: Grid | str,
    machine: Machine | str | Costs,
    *,
    only: str | None = None,
    coefficients: Coefficients = JORDAN,
    overlap: bool = False,
    backward: float = 0.0,
    dtype: str = "bfloat16",
) -> MuonPlan:
    """Return the seconds of each placement for all weights, and the best mix.

    The integer linear program of :mod:`umm.muon.owners` chooses placements and owners together; its answer,
    longest first, and every placement alone are timed, and the fastest is the plan.

    Args:
        weights: The matrices; each name once.
        grid: The ranks that split them, also as text: ``tp4-fsdp16``.
        machine: Where; or prices on a machine.
        only: A placement that all weights have, in place of the best mix.
        coefficients: a, b and c of each step.
        overlap: Whether collectives run beside the compute of other buckets.
        backward: Seconds of a backward pass before, behind which collectives of momenta hide.
        dtype: Type that is multiplied, unless prices are given.

    Raises:
        ProblemError: for no weights, a name twice, or an unknown placement.
    """
    grid = Grid.parse(grid) if isinstance(grid, str) else grid
    if not weights or len({x.name for x in weights}) < len(weights):
        raise ProblemError("a plan has at least one weight, and each name once")
    machine = find_machine(machine) if isinstance(machine, str) else machine
    costs = machine if isinstance(machine, Costs) else Costs(rates_of(machine, "bf16"), dtype)
    planner = Planner(weights, grid, costs, (overlap or backward > 0, backward))
    if only is not None and only not in (*planner.names, LAYERS):
        raise ProblemError(f"there is no placement {only!r}; {did_you_mean(only, (*planner.names, LAYERS))}")
    candidates = [planner.candidate(name, (name,) * len(weights)) for name in planner.names]
    candidates.append(planner.by_layers())
    bound = 0.0
    if only is not None:
        best = next(x for x in candidates if x.row.placement == only)
        gap = 0.0
    else:
        bound, mixes = planner.mixes()
        best = min([*mixes, *candidates], key=lambda x: x.row.seconds)
        gap = max(0.0, best.row.seconds / bound - 1) if bound else 0.0
    rows = [x.row for x in candidates]
    rows.append(Row(BEST, *list(vars(best.row).values())[1:]))
    seconds = {
        x.name: price.moved + price.shared + price.owned * x.count / grid.ranks
        for x, price in zip(weights, planner.chosen(best.placements), strict=True)
    }
    names = {x.name: name for x, name in zip(weights, best.placements, strict=True)}
    return MuonPlan(
        tuple(weights), grid, coefficients, rows, names, best.homes, seconds, best.loads,
        gap if gap > PROVEN else 0.0,
    )  # fmt: skip


class Bucket(NamedTuple):
    """Matrices that move and compute together."""

    before: float  # seconds of the collective that gathers momenta
    compute: float  # seconds of the rank that computes longest
    after: float  # seconds of the collectives that follow


def overlapped(buckets: Sequence[Bucket], backward: float = 0.0) -> float:
    """Return the seconds of a step whose collectives and compute are a lane each, in the order of buckets.

    The momenta of a bucket are complete as the backward pass goes on; collectives may run behind it, while
    compute begins at its end. Results that are ready go before momenta that are.

    Args:
        buckets: In the order in which the backward pass completes them.
        backward: Seconds of the backward pass that the network is free in.

    >>> overlapped([Bucket(1.0, 2.0, 1.0)] * 4), overlapped([Bucket(1.0, 2.0, 1.0)] * 4, backward=8.0)
    (10.0, 9.0)
    """
    count = len(buckets)
    network, compute = -backward, 0.0
    gathered, waiting = 0, list[tuple[float, float]]()
    while gathered < count or waiting:
        ready = -backward * (1 - (gathered + 1) / count) if gathered < count else float("inf")
        if waiting and (waiting[0][0] <= max(network, ready) or gathered == count):
            done, seconds = waiting.pop(0)
            network = max(network, done) + seconds
        else:
            network = max(network, ready) + buckets[gathered].before
            compute = max(compute, network) + buckets[gathered].compute
            waiting.append((compute, buckets[gathered].after))
            gathered += 1
    return max(network, compute, 0.0)


@dataclass(frozen=True)
class _Candidate:
    """Placements of all weights, timed."""

    placements: tuple[str, ...]
    homes: dict[str, tuple[int, ...]]
    row: Row
    loads: tuple[float, ...]


class Planner:
    """Prices of all weights on a grid, and candidates of them."""

    def __init__(
        self, weights: Sequence[Matrix], grid: Grid, costs: Costs, overlap: tuple[bool, float]
    ) -> None:
        costs.rates.machine.check_alike()
        self.weights, self.grid = weights, grid
        self._overlap, self._backward = overlap
        # Ranks that share a device compute one after another; owners are then balanced over devices.
        self._crowd = -(-grid.ranks // costs.rates.machine.device_count)
        self._bins = -(-grid.ranks // self._crowd)
        self.names = possible(grid, costs.optimizer)
        costs = replace(costs, weights=len(weights))
        self.prices = [
            {name: PLACEMENTS[name](x, *local(x, grid), costs) for name in self.names} for x in weights
        ]
        self._owned = {
            x.name: Owned(each[OWNERS].owned, x.count, grid.ep if x.each > 1 and self._crowd == 1 else 1)
            for x, each in zip(weights, self.prices, strict=True)
        }

    def chosen(self, placements: Sequence[str]) -> list[Price]:
        """Return each weight's price in its placement; layers are owners."""
        return [each.get(name, each[OWNERS]) for each, name in zip(self.prices, placements, strict=True)]

    def by_layers(self) -> _Candidate:
        """Return owners of whole layers: all matrices of a layer are one rank's."""
        homes = {x.name: tuple(number % self.grid.ranks for number in x.numbers) for x in self.weights}
        return self._timed(LAYERS, (LAYERS,) * len(self.weights), homes)

    def mixes(self) -> tuple[float, list[_Candidate]]:
        """Return a bound below all mixes; and the program's mix, with its owners and with longest first."""
        weights = [
            Weight(
                [x.shared * self._crowd for x in each.values()],
                [x.before for x in each.values()],
                [x.after for x in each.values()],
                [x.parts for x in each.values()],
                self.names.index(OWNERS),
                owned,
            )
            for owned, each in zip(self._owned.values(), self.prices, strict=True)
        ]
        mix = solve(weights, self._bins, self._backward if self._overlap else None)
        placements = tuple(self.names[number] for number in mix.placements)
        candidates = [self.candidate(BEST, placements)]
        if all(mix.shares):
            shares = dict(zip(self._owned, mix.shares, strict=True))
            candidates.append(self.candidate(BEST, placements, shares))
        return mix.bound, candidates

    def candidate(
        self, name: str, placements: Sequence[str], shares: Mapping[str, Sequence[int]] | None = None
    ) -> _Candidate:
        """Return a placement for each weight, with owners of longest first if no shares are given."""
        placed = zip(self._owned.items(), placements, strict=True)
        owned = {weight: x for (weight, x), placement in placed if placement == OWNERS}
        shares = shares or longest_first(owned, self._bins)
        return self._timed(name, placements, self._homes({x: shares[x] for x in owned}))

    def _homes(self, shares: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return the rank of each matrix, from each device's number of them: in turns, so that layers mix."""
        homes = {}
        for name, share in shares.items():
            bins = [(turn, each) for each, count in enumerate(share) for turn in range(count)]
            devices = [device for _, device in sorted(bins)]
            homes[name] = tuple(
                min(device * self._crowd + number // self._bins % self._crowd, self.grid.ranks - 1)
                for number, device in enumerate(devices)
            )
        return homes

    def _timed(self, name: str, placements: Sequence[str], homes: dict[str, tuple[int, ...]]) -> _Candidate:
        prices, owned = self.chosen(placements), {x: self._owned[x] for x in homes}
        shares = {
            x: _shares([rank // self._crowd for rank in ranks], self._bins) for x, ranks in homes.items()
        }
        moved, shared = sum(x.moved for x in prices), self._crowd * sum(x.shared for x in prices)
        loads = tuple(shared + x for x in loads_of(owned, shares, self._bins))
        seconds = moved + max(loads)
        if self._overlap:
            seconds = overlapped([*self._buckets(prices, max(loads) - shared)], self._backward)
        row = Row(
            name, seconds, max(x.memory for x in prices), moved, max(loads), min(loads),
            sum(x.collectives for x in prices if x.moved),
        )  # fmt: skip
        return _Candidate(tuple(placements), homes, row, loads)

    def _buckets(self, prices: Sequence[Price], busiest: float) -> Iterator[Bucket]:
        """Yield the parts of a step that follow each other, with the busiest owner's share of each."""
        owned = [price.owned * x.count for x, price in zip(self.weights, prices, strict=True)]
        total = sum(owned) or 1.0
        for price, own_work in zip(prices, owned, strict=True):
            compute = price.shared * self._crowd + busiest * own_work / total
            for _ in range(price.parts):
                yield Bucket(price.before / price.parts, compute / price.parts, price.after / price.parts)


def _shares(ranks: Sequence[int], count: int) -> list[int]:
    shares = [0] * count
    for rank in ranks:
        shares[rank] += 1
    return shares

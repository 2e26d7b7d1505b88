"""A chain by the best layouts there are, and by those that training systems have."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from umm.algorithms.chains.lower import lower
from umm.chains import Outline
from umm.chains.systems import fully_sharded, gradients_by_tokens, over_mesh
from umm.errors import InfeasibleError, InputError, ProblemError
from umm.executor import executor, run
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.notebook.shown import Shown
from umm.schedules.schedule import Schedule
from umm.space.budget import DEVICE, limit_of
from umm.space.chain_space import ChainSpace
from umm.space.peers.choose import MARGIN
from umm.space.peers.contender import Figures, figures_of
from umm.space.peers.crossover import Stretch, stretches
from umm.space.peers.table import Crossover
from umm.space.search.chain_layouts import search_chain
from umm.space.search.search import Told
from umm.traces.trace import Trace
from umm.units import format_seconds

if TYPE_CHECKING:
    import pandas as pd

BEST = "universal"


@dataclass(frozen=True)
class Scheme:
    """A way to lay out a chain.

    Attributes:
        name: What its row is called.
        layouts: A text for each tensor.
        change: What becomes of the chain's statements before.
        stationary: Of multiplies by what they write, or for all.
    """

    name: str
    layouts: Mapping[str, str]
    change: Callable[[Outline], Outline] = field(default=lambda outline: outline)
    stationary: str | Mapping[str, str] = "auto"

    def schedule(self, outline: Outline, ranks: int, machine: Machine) -> Schedule:
        """Return the schedule of a chain with these tensors."""
        chain = self.change(outline).laid_out(self.layouts, ranks)
        return lower(chain, machine, stationary=self.stationary)


@dataclass(frozen=True)
class ChainRow(Figures):
    """A scheme on one machine, in full."""

    scheme: Scheme

    @property
    def algorithm(self) -> str:
        """What the row is called."""
        return self.scheme.name

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        names = ("algorithm", "makespan_s", "exposed_s", "bytes", "memory_bytes", "fits")
        return {name: getattr(self, name) for name in names} | {"layouts": dict(self.scheme.layouts)}


@dataclass(frozen=True)
class ChainPeers(Shown):
    """Layouts of a chain beside each other, on one machine, within one budget.

    Every row assumes that its inputs lie as it says, unless the chain says where they are given and each
    brings them; and leaves outputs so.

    Attributes:
        outline: The chain.
        ranks: Its ranks.
        machine: The machine.
        limit: Bytes a rank may hold.
        rows: The best layouts of the space first; then the others, those that fit first, fastest first.
        proven: Whether the first is proven to be the best of its space.
        stretches: Which row is fastest at other numbers of tokens, each with the layouts it has here.
    """

    outline: Outline
    ranks: int
    machine: Machine
    limit: int
    rows: list[ChainRow]
    proven: bool
    stretches: list[Stretch]

    def to_frame(self) -> "pd.DataFrame":
        """Return the rows as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame([row.to_dict() for row in self.rows])

    @property
    def best(self) -> ChainRow:
        """The fastest row that fits; the first if none does."""
        return min((row for row in self.rows if row.fits), key=lambda x: x.makespan_s, default=self.rows[0])

    @property
    def crossover(self) -> Crossover | None:
        """Where the fastest changes first; None if it does not."""
        for before, after in pairwise(self.stretches):
            return Crossover(after.start, before.way, after.way)
        return None

    @property
    def verdict(self) -> str:
        """Which is fastest, by how much, and where that changes."""
        best = self.best
        said = f"{best.algorithm}: {format_seconds(best.makespan_s)}"
        others = [row for row in self.rows if row.fits and row is not best]
        if others:
            nearest = min(others, key=lambda row: row.makespan_s)
            share = 100 * (1 - best.makespan_s / nearest.makespan_s)
            said += f", {share:.0f} % less than {nearest.algorithm}, the next"
        if not self.stretches:
            return f"{said}."
        first, *others_ = self.stretches
        if not others_:
            return f"{said}. The same holds from {first.start} to {first.stop} tokens."
        ways = [f"{first.way} wins below {first.stop} tokens"]
        ways += [f"from {x.start} {x.way}" for x in others_]
        return f"{said}. {'; '.join(ways)}."

    def __repr__(self) -> str:
        return f"ChainPeers({self.verdict})"

    def traces(self) -> list[tuple[ChainRow, Trace]]:
        """Return the simulated trace of every row."""
        made = [(row, row.scheme.schedule(self.outline, self.ranks, self.machine)) for row in self.rows]
        return [(row, run(schedule)) for row, schedule in made]


def chain_peers(
    outline: Outline,
    machine: Machine | str,
    *,
    ranks: int | None = None,
    memory: str | int | None = DEVICE,
    at: Callable[[int], Outline] | None = None,
    tokens: int = 0,
    told: Told = lambda what, done, of: None,
) -> ChainPeers:
    """Return the best layouts of a chain beside those that training systems have.

    Args:
        outline: The chain, with the layouts of a preset.
        machine: A machine, its name, or the path of its topology file.
        ranks: Its ranks; the machine's own number if not given.
        memory: Budget a rank, as in ``umm.search``; a row above it is in the table but never the fastest.
        at: Returns the chain with another number of tokens, for where the fastest changes; None leaves that
            out.
        tokens: Those of the chain, if ``at`` is given.
        told: As :func:`umm.space.peers.peers.peers` takes it.

    Raises:
        InputError: for a budget or a machine that there is none of.
    """
    machine = machine if isinstance(machine, Machine) else find_machine(machine)
    ranks = machine.default_ranks if ranks is None else ranks
    machine.check_ranks(ranks)
    share = sum(x.nbytes_of_rank.sum() for x in outline.laid_out({}, ranks).tensors) / ranks
    limit = limit_of(memory, float(share), machine, ranks)
    schemes, proven = list(_systems(outline, ranks)), False
    try:
        told("the best layouts", 0, 0)
        best = partial(told, "the best layouts")
        found = search_chain(ChainSpace(outline, ranks), machine, memory=memory, top=1, progress=best)
        schemes.insert(0, Scheme(BEST, found.top[0].layouts, stationary=found.top[0].stationary))
        proven = found.proven
    except InfeasibleError:
        pass
    rows = []
    for number, scheme in enumerate(schemes):
        told(scheme.name, number, len(schemes))
        trace = run(scheme.schedule(outline, ranks, machine))
        rows.append(ChainRow(**figures_of(trace, limit), scheme=scheme))
    first, others = rows[:1], sorted(rows[1:], key=lambda row: (not row.fits, row.makespan_s))
    around = [] if at is None else _around(schemes, at, tokens, ranks, machine, memory, told)
    return ChainPeers(outline, ranks, machine, limit, [*first, *others], proven, around)


def _systems(outline: Outline, ranks: int) -> Iterator[Scheme]:
    """Yield the schemes of training systems that a chain has the layouts for."""
    for name in outline.layouts:
        yield Scheme(name, {x.name: outline.layouts[name].get(x.name, "row") for x in outline.tensors})
    try:
        sharded = fully_sharded(outline)
        yield Scheme("fsdp", sharded.default_layouts, fully_sharded, gradients_by_tokens(outline))
        for data in range(2, ranks):
            if ranks % data == 0:
                layouts = over_mesh(outline, data, ranks // data)
                yield Scheme(f"data-tensor {data}x{ranks // data}", layouts)
    except ProblemError:  # not a preset's layouts
        return


def _around(
    schemes: list[Scheme],
    at: Callable[[int], Outline],
    tokens: int,
    ranks: int,
    machine: Machine,
    memory: str | int | None,
    told: Told,
) -> list[Stretch]:
    """Return which scheme is fastest at other numbers of tokens; the first if it is but for the margin."""
    makespan = executor("sim").makespan

    def way_at(count: int) -> str:
        told(f"{count} tokens", 0, 0)
        outline = at(count)
        share = sum(x.nbytes_of_rank.sum() for x in outline.laid_out({}, ranks).tensors) / ranks
        limit = limit_of(memory, float(share), machine, ranks)
        made = {scheme.name: scheme.schedule(outline, ranks, machine) for scheme in schemes}
        seconds = {x: makespan(y) for x, y in made.items() if int(y.memory_bytes.max()) <= limit}
        if not seconds:
            return "none fits"
        fastest = min(seconds, key=seconds.__getitem__)
        stays = seconds.get(schemes[0].name, float("inf")) * (1 - MARGIN) <= seconds[fastest]
        return schemes[0].name if stays else fastest

    if tokens < 1:
        raise InputError(f"{tokens} tokens are none; say how many the chain has")
    return stretches(tokens, way_at)

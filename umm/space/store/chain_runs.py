"""The runs of a chain that a sweep stores: its own layouts by name, or every assignment of a space."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import product
from typing import Any

from umm.algorithms.chains.lower import lower
from umm.algorithms.registry import UNIVERSAL
from umm.algorithms.universal.options import Options
from umm.chains import Outline
from umm.errors import InputError
from umm.machines import Machine
from umm.space.bounds.chain_work import schedule_work
from umm.space.chain_space import ChainSpace
from umm.space.search.budget import limit_of
from umm.space.store.columns import FACTS, Performed, config_id
from umm.space.store.rows import performer, recorded, too_large

MOST = 200_000


@dataclass(frozen=True)
class NamedLayouts:
    """Some layouts that a chain has itself, as points of a sweep.

    Attributes:
        chain: What is computed.
        names: Names of its layouts; None for all that it has.
        ranks: Ranks that share the work; None until a machine says how many it has.
    """

    chain: Outline
    names: tuple[str, ...] | None = None
    ranks: int | None = None

    def on(self, ranks: int) -> "NamedLayouts":
        """Return these on so many ranks unless they say how many."""
        return self if self.ranks else replace(self, ranks=ranks)

    @property
    def assignments(self) -> list[Mapping[str, str]]:
        """The layout of each tensor, for each of the names.

        Raises:
            ProblemError: if there are no layouts of a name.
        """
        return [self.chain.layouts_of(name) for name in self.names or self.chain.layouts]


@dataclass(frozen=True)
class ChainTask:
    """Some assignments of layouts to a chain on one machine, to be performed by one worker.

    Attributes:
        chain: What is computed.
        ranks: Ranks that share the work.
        machine: The machine.
        source: Executor that performs the schedules, or ``bound`` for a lower bound alone.
        limit: Bytes a rank may allocate.
        assignments: The layout of each tensor, for each point.
    """

    chain: Outline
    ranks: int
    machine: Machine
    source: str
    limit: int
    assignments: list[Mapping[str, str]]

    def perform(self) -> list[dict[str, Any]]:
        """Perform the task and return its rows."""
        return [recorded(self._asked(x), lambda x=x: self._results(x)) for x in self.assignments]  # type: ignore[misc]

    def _asked(self, texts: Mapping[str, str]) -> dict[str, Any]:
        return asked_of(self.chain, self.ranks, texts, self.machine, self.source)

    def _results(self, texts: Mapping[str, str]) -> Mapping[str, Any]:
        schedule = lower(self.chain.laid_out(texts, self.ranks), self.machine)
        memory_bytes = int(schedule.memory_bytes.max())
        if memory_bytes > self.limit:
            return too_large(self.limit, memory_bytes)
        seconds = float(schedule_work(schedule, self.machine, {}).max())
        if self.source == "bound":
            return {"time_s": seconds, "memory_bytes": memory_bytes, "gap": 0.0}
        run = Performed(schedule, performer(self.source).run(schedule), seconds)
        return {name: fact.of(run) for name, fact in FACTS.items()}


class ChainRuns:
    """The points of a chain on a machine, as runs of a store; :class:`PointRuns` has those of a multiply."""

    def __init__(
        self, space: ChainSpace | NamedLayouts, machine: Machine, source: str, memory: str | int | None
    ) -> None:
        self._space, self._machine, self._source, self._memory = space, machine, source, memory
        self._ranks = space.ranks or 1

    @cached_property
    def _assignments(self) -> list[Mapping[str, str]]:
        space = self._space
        if isinstance(space, NamedLayouts):
            chains = [space.chain.laid_out(x, self._ranks) for x in space.assignments]
            full = [{x.name: str(x.layout) for x in chain.tensors} for chain in chains]
            return list({json.dumps(x): x for x in full}.values())
        if space.assignments > MOST:
            raise InputError(
                f"chain {space.chain.name} has {space.assignments:.2g} assignments of layouts, more than the "
                f"{MOST} that a sweep takes; give fewer layouts, or search it"
            )
        return [space.texts(x) for x in product(*(range(len(x)) for x in space.choices))]

    @property
    def ids(self) -> list[str]:
        """The key of each run."""
        chain, ranks = self._space.chain, self._ranks
        return [config_id(asked_of(chain, ranks, x, self._machine, self._source)) for x in self._assignments]

    def best_first(self, numbers: list[int]) -> list[int]:
        """Return some points as they are to be performed: in the order of the space."""
        return numbers

    def task(self, numbers: Sequence[int]) -> ChainTask:
        """Return what performs some points."""
        tensors = self._space.chain.tensors
        share = float(sum(x.laid_out("row", 1).nbytes_of_rank.sum() for x in tensors)) / self._ranks
        limit = limit_of(self._memory, share, self._machine, self._ranks)
        some = [self._assignments[x] for x in numbers]
        return ChainTask(self._space.chain, self._ranks, self._machine, self._source, limit, some)

    def __len__(self) -> int:
        return len(self._assignments)


def asked_of(
    chain: Outline, ranks: int, texts: Mapping[str, str], machine: Machine, source: str
) -> dict[str, Any]:
    """Return what makes a run of a chain the one it is, by its columns."""
    return {
        "source": source,
        "machine": machine.name,
        "machine_sha": machine.sha,
        "ranks": ranks,
        "chain": in_words(chain),
        "dtype": ",".join(dict.fromkeys(x.dtype for x in chain.tensors)),
        "layouts": dict(texts),
        "algorithm": UNIVERSAL,
        "stationary": "auto",
        **Options().to_dict(),
    }


def in_words(chain: Outline) -> str:
    """Return a chain as the store names it: its name, the shapes of what goes in, a hash of all it does.

    >>> from umm.chains.presets import chain
    >>> in_words(chain("mlp", hidden=8, ffn=16, tokens=4))
    'mlp X:4x8 W1:8x16 W2:16x8 #7d985b3c'
    """
    shapes = [f"{x.name}:{x.rows}x{x.cols}" for x in chain.tensors if x.role in ("input", "both")]
    said = {name: value for name, value in chain.to_dict().items() if name not in ("layouts", "kept")}
    digest = blake2b(json.dumps(said, sort_keys=True).encode(), digest_size=4).hexdigest()
    return " ".join([chain.name, *shapes, f"#{digest}"])

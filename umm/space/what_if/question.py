"""A question that searches answer, on the machine as it is and on changed ones."""

from dataclasses import dataclass

from umm.executor import executor
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.space.budget import DEVICE, limit_of
from umm.space.choice import Choice
from umm.space.pricing.multiplies import pricer_of
from umm.space.pricing.pricer import Pricer
from umm.space.search.found import front
from umm.space.search.search import search
from umm.space.search.walk import Progress
from umm.space.space import Space
from umm.space.vary import Makespan

Budget = str | int | None


@dataclass(frozen=True)
class Question:
    """The best point of a space is asked for."""

    space: Space  # the points
    machine: Machine  # as it is
    memory: Budget  # budget per rank as in `umm.space.search`
    makespan: Makespan  # simulates a schedule

    @classmethod
    def asked(
        cls, space: Space, machine: Machine | str, memory: Budget = DEVICE, makespan: Makespan | None = None
    ) -> "Question":
        """Return the question of a public function: the machine by name, the simulator if none is given."""
        if not isinstance(machine, Machine):
            machine = find_machine(machine)
        return cls(space.on(machine.default_ranks), machine, memory, makespan or executor("sim").makespan)

    def best(self, machine: Machine, progress: Progress | None = None) -> Choice:
        """Return the best point on a machine."""
        memory, makespan = self.memory, self.makespan
        return search(self.space, machine, memory=memory, makespan=makespan, top=1, progress=progress).top[0]

    @property
    def pricer(self) -> Pricer:
        """Prices of the points on the machine as it is."""
        return pricer_of(self.space.searched, self.machine, self.makespan)

    def front(self, most: Budget) -> list[Choice]:
        """Return the points that no other beats in time and memory up to a budget, by ascending memory."""
        pricer = self.pricer
        return front(pricer, limit_of(most, pricer.points.share, self.machine, pricer.points.ranks))

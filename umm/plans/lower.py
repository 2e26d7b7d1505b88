"""From a chain to one schedule."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from umm.errors import ProblemError, ScheduleError, did_you_mean
from umm.host.collector import without_collector
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.join import summed_later
from umm.plans.movement.choice import AUTO, WAYS, in_pairs, is_movement, meant
from umm.plans.movement.copies import at_ranks, gather
from umm.plans.movement.multiply import Products, multiply_blocks
from umm.plans.movement.sums import Part, add_up_together
from umm.plans.multiply.options import PANELS, Options, known
from umm.plans.option import check_names
from umm.plans.partition import Asked, Bucket, Do, Gather, Start, Ways, operands_of
from umm.plans.plan import Planned, moved_by, planned, ways_of
from umm.plans.statements.at_home import write_sum
from umm.plans.statements.copies import write_together
from umm.plans.statements.grouped import combined_alone
from umm.plans.statements.lowering import Context, Partial, write
from umm.program import Chain, Multiply, Statement
from umm.program.statements.multiply import is_multiply, products
from umm.schedules.schedule import Schedule
from umm.schedules.table.buffers import Slice
from umm.schedules.writer.builder import Builder


def lower(
    chain: Chain,
    machine: Machine | str,
    *,
    stationary: str | Mapping[str, str] = "auto",
    movement: str | Mapping[str, str] = AUTO,
    **options: Any,
) -> Schedule:
    """Return the schedule of a chain on a machine, every tensor in the layout the chain gives it.

    Every replica of what a statement writes is complete afterwards. Statements overlap tile by tile: an
    action waits for what it reads and overwrites, not for the statement before. ScheduleError for an unknown
    option or a value that means nothing. MachineError for an unknown machine, too many ranks, or a dtype
    without a peak.

    Args:
        machine: A machine, its name, or the path of its machine file.
        stationary: A, B, C or ``auto`` for every multiply that is not a batch, or one for each by the name of
            what it writes; ``auto`` is the largest matrix.
        movement: How operands and sums move: of all multiplies, or of each by the name of what it writes;
            ``auto`` for those left out. Of one it may be ``flat:8``, with a prefetch depth of its own.
        options: The universal algorithm's, for its multiplies; these get slices always.
    """
    if not isinstance(machine, Machine):
        machine = find_machine(machine)
    check_names(known(), options, "a schedule")
    stays = stationary if isinstance(stationary, Mapping) else dict.fromkeys(_products(chain), stationary)
    _check(chain, stays, "stationary matrix", ("A", "B", "C", "auto"))
    notes = {"stationary": stationary if isinstance(stationary, str) else in_pairs(stays)}
    if movement == PANELS:
        raise ScheduleError(
            f"movement {PANELS} is for one multiply; in a chain choose from {', '.join(WAYS)}"
        )
    if isinstance(movement, str):
        options["movement"] = movement = meant(machine, chain.p, movement)
    else:
        known_ways = {x: AUTO if is_movement(way) else way for x, way in movement.items()}
        _check(chain, known_ways, "movement", WAYS)
        notes["movement"] = in_pairs(movement)
    # Slices, since in a chain a whole tile would wait for writers of parts that the op does not read.
    chosen = replace(Options(**options), granularity="slice")
    ways = ways_of(chain, machine, stays, movement)
    asked = Asked(stays, movement, options, machine, {x.name: x for x in chain.tensors})
    notes |= {"moved_by": moved_by(chain, ways, machine)} if ways else {}
    lanes = max(2, chosen.max_accumulates)
    # Names beside the options, so that a saved schedule shows what was asked of each multiply.
    build = Builder(chain.name, chain, machine, accumulate_lanes=lanes, options=chosen.to_dict() | notes)
    with without_collector():
        _write(build, planned(chain, ways, asked), asked)
        return build.schedule()


def _write(build: Builder, plan: Planned, asked: Asked) -> None:
    """Write the steps of a plan."""
    statements, written, partial = plan.statements, set[str](), Partial()
    collectives, combined = Writer(build, statements, plan.ways), combined_alone(build.tensors, statements)
    by_itself: dict[str, dict[str, None]] = {}
    steps = [x for x in plan.steps if not isinstance(x, Bucket)]
    later = summed_later(statements, steps, asked)
    unsummed = set[str]()
    for step in plan.steps:
        if isinstance(step, Bucket):
            if step.sums:
                collectives.add_up(step)
            else:
                write_together(build, [statements[number] for number in step.numbers])
                written.update(statements[number].out for number in step.numbers)
            continue
        number, statement = step.number, statements[step.number]
        again = statement.out in written
        if isinstance(step, Gather):
            collectives.gather(step)
            continue
        if isinstance(step, Start):
            collectives.start(number, again)
            continue
        if number in plan.ways:
            collectives.multiply(step)
        elif step.at_home:
            write_sum(build, products(statements[number : number + len(step.at_home)]), step.at_home, again)
        else:
            before = statements[number - 1] if number else None
            if statement.out in unsummed:
                unsummed.remove(statement.out)
                step = step._replace(first=False)
            context = Context(asked, step, before, written, combined, partial)
            if how := write(
                statement, build, context._replace(unsummed=unsummed if number in later else None)
            ):
                by_itself.setdefault(how, {})[statement.out] = None
        written.update(statement.outs)
    if by_itself:
        ways = [f"{', '.join(names)} {what}" for what, names in by_itself.items()]
        moved = str(build.options.get("moved_by", ""))
        build.options["moved_by"] = "; ".join([moved, *ways] if moved else ways)


def _check(chain: Chain, choices: Mapping[str, str], noun: str, values: Collection[str]) -> None:
    """Refuse an unknown choice for a multiply, and a choice for a tensor that no multiply writes."""
    written = _products(chain)
    for name, value in choices.items():
        if name not in written:
            raise ProblemError(
                f"no multiply of chain {chain.name} writes {name!r}; {did_you_mean(name, written)}"
            )
        if value not in values:
            raise ProblemError(f"{noun} {value!r} of {name} is unknown; choose from {', '.join(values)}")


def _products(chain: Chain) -> list[str]:
    return list(dict.fromkeys(x.out for x in products(chain.statements)))


@dataclass
class Writer:
    """Copies and products in the memory of ranks, from one step to the next."""

    build: Builder  # where the actions go
    statements: Sequence[Statement]  # in the order in which they are written
    ways: Ways  # how each multiply by collectives is done
    _rooms: dict[int, Mapping[int, Slice]] = field(default_factory=dict)  # by slot
    _copies: dict[tuple[int, str], Mapping[int, Slice]] = field(default_factory=dict)
    _products: Products = field(default_factory=lambda: Products({}))
    _unsummed: dict[int, Products] = field(default_factory=dict)  # for buckets, by number

    def gather(self, step: Gather) -> None:
        """Write a gather; where a copy serves, nothing."""
        how, operand = self.ways[step.number], operands_of(self.statements[step.number])[step.matrix]
        if step.anew:
            self._rooms[step.slot] = gather(self.build, how, operand, step.slot)
        self._copies[step.number, step.matrix] = self._rooms[step.slot]

    def start(self, number: int, again: bool) -> None:
        """Scale C by β, or zero it where a rank adds nothing, before products are added."""
        statement, how = self._multiply(number), self.ways[number]
        # Fresh tensors are zero, so the first write needs no start.
        if not how.sums.groups or not (again or statement.beta):
            return
        for rank, tile, replica in self.build.layout(statement.out).filled():
            target = self.build.tile(statement.out, *tile, replica)
            # β·C counts once: replica 0 keeps it, and the other replicas begin with zero.
            if how.sums.in_place and (replica or not statement.beta):
                if statement.beta or not how.blocks.works[rank]:
                    self.build.map("zero", target)
            elif statement.beta not in (0.0, 1.0):
                self.build.map("scale", target, target, factor=statement.beta)

    def multiply(self, step: Do) -> None:
        """Write the multiplies of all ranks, and their sums unless the next multiply adds to them."""
        statement, how = self._multiply(step.number), self.ways[step.number]
        names = operands_of(statement)
        operands = {
            x: at_ranks(self.build, how.blocks, names[x], self._copies.pop((step.number, x), {}))
            for x in "AB"
        }
        multiply_blocks(
            self.build, how, names, operands, self._products,
            alpha=statement.alpha, beta=statement.beta, first=step.first, last=step.last and step.sums,
        )  # fmt: skip
        if not step.sums:
            self._unsummed[step.number] = replace(self._products)

    def add_up(self, step: Bucket) -> None:
        """Write the sums of several multiplies, each group's as one collective."""
        products = {x: self._unsummed.pop(x) for x in step.numbers}
        owned = {x: dict(enumerate(self.build.owned(self.statements[x].out))) for x in step.numbers}
        for place in range(len(self.ways[step.numbers[0]].sums.groups)):
            groups = ((x, self.ways[x].sums.groups[place]) for x in step.numbers)
            parts = [Part(y, products[x].held, owned[x], products[x].adds) for x, y in groups]
            add_up_together(self.build, parts)

    def _multiply(self, number: int) -> Multiply:
        statement = self.statements[number]
        assert is_multiply(statement)
        return statement

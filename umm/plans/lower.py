"""From a chain to one schedule."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from umm.errors import ProblemError, ScheduleError, did_you_mean
from umm.host.collector import without_collector
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.plans.join import summed_later
from umm.plans.movement.choice import AUTO, WAYS, in_pairs, is_movement, meant
from umm.plans.multiply.options import PANELS, Options, known
from umm.plans.option import check_names
from umm.plans.partition import Asked, Bucket, Gather, Start
from umm.plans.plan import Planned, moved_by, planned, ways_of
from umm.plans.statements.at_home import write_sum
from umm.plans.statements.copies import write_together
from umm.plans.statements.grouped import combined_alone
from umm.plans.statements.lowering import Context, Partial, write
from umm.plans.write import Writer
from umm.program import Chain
from umm.program.statements.multiply import products
from umm.schedules.schedule import Schedule
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
    ways, asked = ways_of(chain, machine, stays, movement), Asked(stays, movement, options)
    notes |= {"moved_by": moved_by(chain, ways, machine)} if ways else {}
    lanes = max(2, chosen.max_accumulates)
    # Names beside the options, so that a saved schedule shows what was asked of each multiply.
    build = Builder(chain.name, chain, machine, accumulate_lanes=lanes, options=chosen.to_dict() | notes)
    with without_collector():
        _write(build, planned(chain, machine, ways, asked), asked)
        return build.schedule()


def _write(build: Builder, plan: Planned, asked: Asked) -> None:
    """Write the steps of a plan."""
    statements, written, partial = plan.statements, set[str](), Partial()
    collectives, combined = Writer(build, statements, plan.ways), combined_alone(build.tensors, statements)
    by_itself: dict[str, dict[str, None]] = {}
    steps = [x for x in plan.steps if not isinstance(x, Bucket)]
    later = summed_later(statements, steps, {x.name: x for x in build.tensors}, asked)
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

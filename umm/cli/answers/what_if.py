"""Answers of the commands in :mod:`umm.cli.commands.what_if`."""

import math
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.text import Text

from umm.cli.commands.what_if import WhatIf
from umm.cli.flags.schedule import SCHEDULE
from umm.cli.printed.output import grid, print_whole
from umm.errors import InputError
from umm.machines import Machine
from umm.program import Outline
from umm.space import Space
from umm.space.vary import seconds_of
from umm.space.what_if.decision_map import DecisionMap, Stretch, map_over_memory, map_over_number
from umm.space.what_if.sensitivity import Question, Sensitivity, sensitivity
from umm.units import format_bytes, format_seconds

MEMORY, SAME = "memory", "same"


def what_if(asked: WhatIf) -> None:
    """Answer ``umm what-if``."""
    asked = asked.with_model()
    if asked.measured is not None or asked.step is not None:
        explain_measured(asked)
        return
    over = asked.over
    outline = asked.outline()
    if outline is not None:
        others = ["--map"] if over else []
        asked.refuse(SCHEDULE, "{} does not apply to chains; leave it out", *others)
    else:
        asked.refuse_layers()
    rows = asked.dimensions["m"] if outline is None else [0]
    if over is None and len(rows) > 1:
        raise InputError(
            "several sizes need --map memory or --map fabric*bandwidth; umm search takes them too"
        )
    kind = Sensitivity if over is None else DecisionMap
    with asked.output.ending(kind) as answer, asked.output.reporting() as report:
        machine, space = _space_of(asked, outline, rows)
        budget: dict[str, Any] = {"memory": asked.budget, "reach": asked.reach, "progress": report}
        if over is None:
            answer.append(sensitivity(space, machine, margin=asked.margin, **budget))
        elif over == MEMORY:
            answer.append(map_over_memory(space, machine, rows, progress=report))
        else:
            answer.append(map_over_number(space, machine, rows, number=over, **budget))
    (result,) = answer
    if over is None:
        answer_sensitivity(asked, space, machine, result)
    else:
        answer_map(asked, space, machine, result)


def answer_sensitivity(asked: WhatIf, space: Space, machine: Machine, answer: Sensitivity) -> None:
    """Give the choice, how much each number moves its time, and where another choice is better."""
    record = {
        "problem": space.points().to_dict(),
        "machine": machine.name,
        "choice": answer.choice.to_dict(),
        "margin": answer.margin,
        "reach": asked.reach,
        "moves": [dict(vars(move)) for move in answer.moves],
        "flips": [
            {"what": x.what, "now": x.now, "factor": x.factor, "then": x.then}
            | {"choice": None if x.choice is None else x.choice.to_dict()}
            for x in answer.flips
        ],
    } | ({} if answer.complete else {"complete": False})

    def shown(console: Console) -> None:
        console.print(problem_in_words(space, f"on {machine.name}"))
        console.print(Text(f"Best: {answer.choice}", style="bold"))
        now = answer.choice.makespan_s
        changes = [(move, _change(move.half_s, now), _change(move.most_s, now)) for move in answer.moves]
        table = grid(("number", "now", "half", "twice"), numbers=("half", "twice"))
        for move, half, most in changes:
            if (half, most) != (SAME, SAME):
                table.add_row(
                    move.what, move.now, half, most + ("" if move.most == 2 else f" at x{move.most:.3g}")
                )
        if table.row_count:
            console.print(table)
        same = [move.what for move, half, most in changes if (half, most) == (SAME, SAME)]
        if same:
            console.print(f"Its time is the same with half and twice of {', '.join(same)}.")
        flips = [flip for flip in answer.flips if flip.factor is not None]
        if not answer.complete:
            tried = ", ".join(dict.fromkeys(flip.what for flip in answer.flips)) or "none"
            console.print(f"Ended early. Numbers tried for a change of the choice: {tried}.")
        if not flips:
            if answer.complete:
                console.print(
                    f"No number changes the choice between x{1 / asked.reach:.3g} and x{asked.reach:.3g}."
                )
            else:
                console.print("So far no number changes the choice.")
            return
        console.print(f"Another choice is at least {100 * answer.margin:.2g} % better:")
        for flip in flips:
            assert flip.choice is not None
            assert flip.factor is not None
            side = "" if flip.what == "memory" else "from " if flip.factor > 1 else "below "
            then = f"{flip.words}, {format_seconds(flip.choice.makespan_s)} there"
            console.print(f"- {flip.what} {side}{flip.then}: {then}")

    asked.answer(lambda: record, shown, [answer, machine.name])


def answer_map(asked: WhatIf, space: Space, machine: Machine, decisions: DecisionMap) -> None:
    """Give for every m the best choice by interval."""

    def shown(console: Console) -> None:
        console.print(problem_in_words(space, f"on {decisions.machine}", size=False))
        unit = "multiples of" if decisions.over == "memory" else "factors of"
        console.print(f"Best by m and {decisions.over}, in {unit} {decisions.unit}:")
        numbers = ("m", "from", "to", "makespan", "memory")
        table = grid((*numbers[:3], "A", "B", "C", "stat.", *numbers[3:]), numbers)
        last = None
        for x in _merged(decisions):
            table.add_row(
                "" if x.m == last else str(x.m), f"{x.start:.3g}x", f"{x.stop:.3g}x",
                *x.choice.layouts.values(), x.choice.kept, format_seconds(x.choice.makespan_s),
                format_bytes(x.choice.memory_bytes),
            )  # fmt: skip
            last = x.m
        print_whole(console, table)
        if not decisions.complete:
            console.print("Ended early: other values of m were not looked at yet.")
        if decisions.without:
            console.print(f"Nothing fits for m = {', '.join(map(str, decisions.without))}.")

    record = {"machine": machine.name, "map": decisions.to_dict()}
    asked.answer(lambda: record, shown, [decisions])


def explain_measured(asked: WhatIf) -> None:
    """Seek the number that explains a measured time.

    InputError for a step without a time, a map, or several sizes.
    """
    from umm.space.what_if.measured import explanations, turns_of_machine, turns_of_step

    if asked.measured is None:
        raise InputError("--step needs --measured, the time to explain, such as 8.2s")
    asked.refuse(("over", "reach", "margin", "html"), "{} does not apply to --measured; leave it out")
    if asked.step is not None:
        from umm.step.record import load_question
        from umm.step.step import simulated

        step = load_question(asked.step)
        predicted, turns = simulated(step), turns_of_step(step)
    else:
        outline = asked.outline()
        rows = asked.dimensions["m"] if outline is None else [0]
        if len(rows) > 1:
            raise InputError("one time is of one size; give one -m")
        machine, space = _space_of(asked, outline, rows)
        question = Question.asked(space, machine, asked.budget)
        choice = question.best(machine)
        answer = seconds_of(choice.schedule, question.makespan)
        predicted = choice.makespan_s
        turns = turns_of_machine(
            machine, space.ranks or machine.default_ranks, space.program.shapes[0].dtype, answer
        )
    known = explanations(turns, asked.measured)
    measured = asked.measured
    record = {
        "measured_s": measured,
        "predicted_s": predicted,
        "explanations": [
            dict(vars(x)) | {"factor": x.factor if math.isfinite(x.factor) else None} for x in known
        ],
    }

    def shown(console: Console) -> None:
        times = f"{format_seconds(measured)}, predicted {format_seconds(predicted)}"
        console.print(f"Measured {times}: {measured / predicted:.3g} times.")
        able = [x for x in known if x.explains]
        for i, one in enumerate(able):
            because = f": {one.because}" if one.because else ""
            change = f"{one.name} {one.then} in place of {one.now} (x{one.factor:.3g})"
            console.print(f"{'' if i else 'Nearest: '}{change}{because}")
        unable = [x.name for x in known if not x.explains]
        if unable:
            console.print(f"No value within reach explains it of {', '.join(unable)}.")
        if len(able) > 1:
            console.print("A profile decides between them: umm compare --profile trace.json.")

    asked.answer(lambda: record, shown)


def _space_of(asked: WhatIf, outline: Outline | None, rows: list[int]) -> tuple[Machine, Space]:
    """Return the machine, and the space of a chain, or of a multiply of the first of some numbers of rows."""
    machine = asked.hardware
    ranks = machine.default_ranks if asked.ranks is None else asked.ranks
    if outline is not None:
        return machine, asked.chain_space(outline, ranks)
    sizes = asked.dimensions | {"m": rows[0]}
    return machine, Space(**sizes, **asked.types, ranks=ranks, **asked.axes_asked)


def _change(seconds: float, now: float) -> str:
    share = 100 * (seconds / now - 1)
    return SAME if abs(share) < 0.05 else f"{share:+.1f} %"


def _merged(decisions: DecisionMap) -> list[Stretch]:
    """Return the stretches, one for neighbours that print the same."""

    # Over a number these have the same layouts and other options; over memory a budget that buys no time, as
    # printed, is none of its own.
    def printed(x: Stretch) -> str:
        return format_seconds(x.choice.makespan_s) if decisions.over == "memory" else x.label

    stretches: list[Stretch] = []
    for x in decisions.stretches:
        last = stretches[-1] if stretches else None
        if last and last.m == x.m and printed(last) == printed(x):
            stretches[-1] = replace(stretches[-1], stop=x.stop)
        else:
            stretches.append(x)
    return stretches


def problem_in_words(space: Space, where: str, size: bool = True) -> str:
    """Return the multiply, in a line."""
    points: Any = space.points()
    if not space.is_multiply:
        return f"{points.words} {where}"
    bare = points.bare
    sizes = f"m={bare.m}, n={bare.n}, k={bare.k}" if size else f"n={bare.n}, k={bare.k}"
    given = f", given {bare.given}" if bare.given else ""
    return f"C = AB with {sizes}, {bare.types}{given}, {bare.p} ranks {where}"

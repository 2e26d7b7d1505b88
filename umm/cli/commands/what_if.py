"""The sensitivity command: each machine number's effect on the time, and where the choice flips."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from umm.cli.flags.chain import ChainSearched
from umm.cli.flags.declared import command, flag
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import READ, Answering, Budgeted, Limited, Paged
from umm.cli.flags.schedule import SCHEDULE, SearchedAxes
from umm.cli.flags.values import Finite, dimension_list, seconds

if TYPE_CHECKING:
    from umm.program import Outline
    from umm.space import Space

MEMORY = "memory"


class WhatIf(OfFramework, SearchedAxes, ChainSearched, Budgeted, Paged, Limited, Answering, heading="Space"):
    """A space, and how its machine's numbers change."""

    m: Any = flag(
        "-m", callback=dimension_list, metavar="LIST", usual=True, help="Rows of A and C: 1K,2K,4K.",
    )  # fmt: skip
    over: str | None = flag(
        "--map", metavar="memory|KEY", usual=True,
        help="Map the best choice over -m and the memory, or over -m and a machine number such as "
        "fabric*bandwidth.",
    )  # fmt: skip
    reach: float = flag(
        type=Finite(min=1.0, min_open=True), default=4.0, show_default=True, metavar="X", usual=True,
        help="Largest factor to try for a number; the smallest is its inverse.",
    )  # fmt: skip
    measured: float | None = flag(
        callback=seconds, metavar="TIME", usual=True,
        help="A measured time such as 8.2s: seek the one number that explains it, and say what else could.",
    )  # fmt: skip
    step: Path | None = flag(
        type=READ, metavar="FILE", usual=True,
        help="With --measured: a training step, as 'umm step … --json -o FILE' wrote it.",
    )  # fmt: skip
    margin: float = flag(
        type=Finite(min=0.0, max=0.5), default=0.01, show_default=True, metavar="SHARE",
        help="How much better another choice must be to be reported.",
    )  # fmt: skip

    def space_of(self, outline: "Outline | None", rows: list[int], ranks: int) -> "Space":
        """Return the space of a chain, or of a multiply of the first of several numbers of rows."""
        from umm.space import Space

        if outline is not None:
            return self.chain_space(outline, ranks)
        sizes = self.dimensions | {"m": rows[0]}
        return Space(**sizes, **self.types, ranks=ranks, **self.axes_asked)


@command(WhatIf, name="what-if", machine="h100-8")
def what_if(asked: WhatIf) -> None:
    """Show what would change the answer of a search.

    Each number of the machine is halved and doubled: the output shows how the best choice's time changes, and
    from which value on another choice is better. Fixed layouts (--a row --b col …) are one choice. --map
    shows the best choice over sizes -m 1K,2K,4K and memory or one number. With --chain a choice is the
    layouts of all its tensors; with --layers they have to fit the memory of as many.

    --measured 8.2s seeks the one number (a card's bandwidth, clocks, host time a kernel) with which the best
    choice, fixed layouts, or a --step takes that long.
    """
    asked = asked.with_model()
    if asked.measured is not None or asked.step is not None:
        explain_measured(asked)
        return
    from umm.cli.printed.what_if_page import print_map, print_sensitivity, sensitivity_record
    from umm.errors import InputError
    from umm.space.what_if.decision_map import DecisionMap, map_over_memory, map_over_number
    from umm.space.what_if.sensitivity import Sensitivity, sensitivity

    over, reach = asked.over, asked.reach
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
        machine = asked.hardware
        ranks = machine.default_ranks if asked.ranks is None else asked.ranks
        space = asked.space_of(outline, rows, ranks)
        budget: dict[str, Any] = {"memory": asked.budget, "reach": reach, "progress": report}
        if over is None:
            answer.append(sensitivity(space, machine, margin=asked.margin, **budget))
        elif over == MEMORY:
            answer.append(map_over_memory(space, machine, rows, progress=report))
        else:
            answer.append(map_over_number(space, machine, rows, number=over, **budget))
    (result,) = answer
    if over is None:
        asked.answer(
            lambda: sensitivity_record(space, machine.name, result, reach),
            lambda console: print_sensitivity(console, space, machine.name, result, reach),
            [result, machine.name],
        )
    else:
        record = {"machine": machine.name, "map": result.to_dict()}
        asked.answer(lambda: record, lambda console: print_map(console, space, result), [result])


def explain_measured(asked: WhatIf) -> None:
    """Seek the number that explains a measured time.

    Raises:
        InputError: for a step without a time, a map, or several sizes.
    """
    from umm.cli.printed.profile_page import explanations_record, print_explanations
    from umm.errors import InputError
    from umm.space.vary import seconds_of
    from umm.space.what_if.measured import explanations, turns_of_machine, turns_of_step
    from umm.space.what_if.sensitivity import Question

    if asked.measured is None:
        raise InputError("--step needs --measured, the time to explain, such as 8.2s")
    asked.refuse(("over", "reach", "margin", "html"), "{} does not apply to --measured; leave it out")
    if asked.step is not None:
        from umm.step.record import load_question
        from umm.step.step import simulated

        step = load_question(asked.step)
        predicted, turns = simulated(step)[0], turns_of_step(step)
    else:
        outline = asked.outline()
        machine = asked.hardware
        ranks = machine.default_ranks if asked.ranks is None else asked.ranks
        rows = asked.dimensions["m"] if outline is None else [0]
        if len(rows) > 1:
            raise InputError("one time is of one size; give one -m")
        space = asked.space_of(outline, rows, ranks)
        question = Question.asked(space, machine, asked.budget)
        choice = question.best(machine)
        answer = seconds_of(choice.schedule, question.makespan)
        predicted = choice.makespan_s
        turns = turns_of_machine(machine, ranks, space.program.shapes[0].dtype, answer)
    known = explanations(turns, asked.measured)
    measured = asked.measured
    asked.answer(
        lambda: explanations_record(measured, predicted, known),
        lambda console: print_explanations(console, measured, predicted, known),
    )

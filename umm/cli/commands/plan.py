"""``umm plan``: each rank's work, and the transfers between ranks."""

from typing import TYPE_CHECKING, Any

from umm.cli.flags.asked import ToSchedule
from umm.cli.flags.declared import command
from umm.cli.flags.framework import OfFramework
from umm.cli.flags.options import Answering, Paged

if TYPE_CHECKING:
    from rich.console import Console


class Plan(OfFramework, ToSchedule, Paged, Answering):
    """A multiply or a chain in layouts, and how it is scheduled."""


@command(Plan, machine="h100-8")
def plan(asked: Plan) -> None:
    """Show which ranks compute which pieces, and what moves from whom to whom, without times.

    Entries come in the order in which the first action of each is written. Ranks that do alike have one line.
    """
    from umm.cli.printed.plan_page import plan_record, print_plan
    from umm.cli.printed.report import print_schedule, problem_record
    from umm.plans.written import plan_on

    asked = asked.with_model()
    schedule = asked.request().schedule
    entries = plan_on(schedule, asked.hardware)

    def shown(console: "Console") -> None:
        print_schedule(console, schedule)
        print_plan(console, entries, schedule)

    def record() -> dict[str, Any]:
        return problem_record(schedule) | {"plan": plan_record(entries, schedule)}

    asked.answer(record, shown, [entries, schedule])

"""Answers of the commands in :mod:`umm.cli.commands.plan`."""

from typing import Any

from rich.console import Console

from umm.cli.commands.plan import Plan
from umm.cli.printed.plan_page import plan_record, print_plan
from umm.cli.printed.report import print_schedule, problem_record
from umm.plans.written import plan_on


def plan(asked: Plan) -> None:
    """Answer ``umm plan``."""
    asked = asked.with_model()
    schedule = asked.request().schedule
    entries = plan_on(schedule, asked.hardware)

    def shown(console: Console) -> None:
        print_schedule(console, schedule)
        print_plan(console, entries, schedule)

    def record() -> dict[str, Any]:
        return problem_record(schedule) | {"plan": plan_record(entries, schedule)}

    asked.answer(record, shown, [entries, schedule])

"""Answers of the commands in :mod:`umm.cli.commands.demo`."""

from dataclasses import replace
from time import perf_counter

import pandas as pd

from umm.checks import Check, check_product, random_operands, reference_product
from umm.cli.commands.demo import Demo
from umm.cli.flags.values import PRESETS
from umm.cli.printed.assignments import proof
from umm.cli.printed.leaderboard import cells_of, print_found
from umm.errors import CheckError
from umm.executor import run
from umm.figures.page import Section, write_page
from umm.figures.report import trace_sections
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.schedules.schedule import Schedule
from umm.space import Found, Space, search

MACHINES = ("pvc-12", "h100-8")

SCALE = 16  # the real multiplies have one sixteenth of m, n and k


def demo(asked: Demo) -> None:
    """Answer ``umm demo``."""
    began = perf_counter()
    output, html = asked.output, asked.html
    m, n, k = (PRESETS["mlp1"][name] for name in "mnk")
    sections: list[Section] = []
    records = []
    for name in MACHINES:
        machine = find_machine(name)
        result = search(Space(m=m, n=n, k=k, ranks=machine.default_ranks), machine)
        checks = execute_all(result)
        summary = checked(result, checks)
        if output.as_json:
            worst = max(check.max_abs_error for check in checks)
            records.append({"machine": name, "executed": len(checks), "max_abs_error": worst})
        else:
            print_found(output.console(), result)
            output.console().print(summary + "\n")
        sections += machine_sections(machine, result, summary)
    write_page(html, "The best layouts for MLP-1: C = AB, 8192×49152×12288, float32", sections)
    if output.as_json:
        output.json("demo", {"rows": records, "html": str(html)})
    output.note(f"wrote {html}, which opens in any browser, offline; {perf_counter() - began:.0f} s in all")


def execute_all(result: Found) -> list[Check]:
    """Multiply real matrices with the layouts of every row, at a scale that one process can do.

    CheckError if C is not what float64 NumPy has.
    """
    small = [choice.problem.at_scale(1 / SCALE) for choice in result.frontier]
    a, b = random_operands(small[0])
    reference = reference_product(a, b)
    checks = []
    for choice, problem in zip(result.frontier, small, strict=True):
        # The localhost model only sets times here, which the NumPy executor does not look at.
        schedule = replace(choice, program=problem).schedule("localhost")
        trace = run(schedule, "numpy", operands=(a, b))
        assert trace.result is not None
        check = check_product(problem, reference, trace.result)
        if not check.ok:
            raise CheckError(f"{choice}: {check}")
        checks.append(check)
    return checks


def checked(result: Found, checks: list[Check]) -> str:
    """Return how far the executed products are from float64 NumPy's, in three lines."""
    small = result.frontier[0].problem.at_scale(1 / SCALE)
    worst = max(check.max_abs_error for check in checks)
    return (
        f"Executed on real matrices, m={small.m}, n={small.n}, k={small.k}, by the NumPy executor with "
        f"{small.p} virtual ranks.\n"
        f"  row 1: {checks[0]}\n"
        f"  all {len(checks)} rows are right, max error {worst:.3g}"
    )


def machine_sections(machine: Machine, result: Found, check_text: str) -> list[Section]:
    """Return the page's part on one machine: leaderboard, how C was checked, traces of the best."""
    headings, *rows = cells_of(result, result.frontier)
    shown = pd.DataFrame(rows, columns=headings)
    sections = [
        Section(heading=f"{machine.name}: {machine.description}", text=proof(result), table=shown),
        Section(text=check_text),
    ]
    winner, *others = result.frontier[::-1]
    sections += trace_sections(run(winner.schedule(machine)), f"The fastest on {machine.name}")
    for choice in others:
        schedule = choice.schedule(machine)
        if not _moves(winner.schedule(machine)) and _moves(schedule):
            heading = f"The next on {machine.name} that moves tiles between ranks"
            return sections + trace_sections(run(schedule), heading)
    return sections


def _moves(schedule: Schedule) -> bool:
    return bool((schedule.src != schedule.dst).any())

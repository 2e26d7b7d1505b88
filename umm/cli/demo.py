"""``make demo``: search the paper's MLP-1 on two machines, execute the best layouts, write a page."""

from dataclasses import replace
from pathlib import Path
from time import perf_counter

from rich.console import Console

from umm.cli.config import PRESETS
from umm.cli.leaderboard import print_leaderboard, proof
from umm.cli.output import Output
from umm.errors import CheckError
from umm.executor import run
from umm.figures.page import Section, write_page
from umm.figures.report import trace_sections
from umm.machines import Machine
from umm.machines import machine as find_machine
from umm.product import Check, check_product, random_operands
from umm.schedules.build import schedule as build
from umm.schedules.table import Schedule
from umm.space import Choice, Found, Space, search

MACHINES = ("pvc-12", "h100-8")
SCALE = 16  # the real multiplies have one sixteenth of m, n and k
PAGE = Path("build/demo.html")


def main() -> None:
    """Search, execute, check, write.

    Raises:
        CheckError: if an executed product is wrong.
    """
    began = perf_counter()
    console = Output().console()
    m, n, k = (int(PRESETS["mlp1"][name]) for name in "mnk")
    sections: list[Section] = []
    for name in MACHINES:
        machine = find_machine(name)
        space = Space(m=m, n=n, k=k, ranks=machine.default_ranks)
        found = search(space, machine)
        print_leaderboard(console, space, found)
        checks = [execute(choice) for choice in found.top]
        print_checks(console, found, checks)
        sections += machine_sections(machine, found)
    PAGE.parent.mkdir(exist_ok=True)
    write_page(PAGE, "The best layouts for MLP-1: C = AB, 8192×49152×12288, float32", sections)
    console.print(
        f"Wrote {PAGE}, which opens in any browser, offline. {perf_counter() - began:.0f} s in all."
    )


def execute(choice: Choice) -> Check:
    """Multiply real matrices with the layouts of a point, at a scale that one process can do.

    Raises:
        CheckError: if C is not what float64 NumPy has.
    """
    big = choice.problem
    problem = replace(big, m=big.m // SCALE, n=big.n // SCALE, k=big.k // SCALE)
    schedule = build(
        problem, find_machine("localhost"), stationary=choice.stationary, **choice.options.to_dict()
    )
    a, b = random_operands(problem)
    trace = run(schedule, "numpy", operands=(a, b))
    assert trace.result is not None
    check = check_product(problem, a, b, trace.result)
    if not check.ok:
        raise CheckError(f"{choice}: {check}")
    return check


def print_checks(console: Console, found: Found, checks: list[Check]) -> None:
    """Print how far the executed products are from float64 NumPy's."""
    small = found.top[0].problem
    m, n, k = (size // SCALE for size in (small.m, small.n, small.k))
    console.print(
        f"Executed with real matrices, m={m}, n={n}, k={k}, by the NumPy executor on {small.p} virtual "
        f"ranks. The winner: {checks[0]}. All {len(checks)} rows: right, max error "
        f"{max(check.max_abs_error for check in checks):.3g}.\n"
    )


def machine_sections(machine: Machine, found: Found) -> list[Section]:
    """Return the page's part on one machine: leaderboard, the winner's trace, the best that moves tiles."""
    shown = found.to_frame().drop(columns=["policy", "bound_s"])
    sections = [Section(heading=f"{machine.name}: {machine.description}", text=proof(found), table=shown)]
    winner = found.top[0]
    sections += trace_sections(run(_schedule(winner, machine)), f"The winner on {machine.name}")
    for choice in found.top[1:]:
        schedule = _schedule(choice, machine)
        if not _moves(_schedule(winner, machine)) and _moves(schedule):
            heading = f"The best on {machine.name} that moves tiles between ranks"
            return sections + trace_sections(run(schedule), heading)
    return sections


def _schedule(choice: Choice, machine: Machine) -> Schedule:
    return build(choice.problem, machine, stationary=choice.stationary, **choice.options.to_dict())


def _moves(schedule: Schedule) -> bool:
    return bool((schedule.src != schedule.dst).any())


if __name__ == "__main__":
    main()

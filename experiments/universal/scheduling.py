"""Does the order of ops matter? Without asynchrony, and with it: the two statements of section 5.2."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import umm
from experiments.common.machines import shipped
from experiments.common.points import Table
from experiments.universal.cases import Case, corpus, mlps, uneven
from experiments.universal.op_order import best_order
from umm.executor import executor
from umm.plans.multiply.oplist import op_list
from umm.plans.multiply.options import Options
from umm.policies.exhaustive import Solution, exhaustive
from umm.policies.ir import IR, total
from umm.policies.model import model_cost
from umm.policies.policy import step_policies
from umm.policies.stepwise import stepwise
from umm.schedules.table.details import GET

HERE = Path(__file__).parent
CASES = 400
TRIES = 30_000
# Without asynchrony: one gemm at a time, what comes next is got meanwhile, then both are waited for.
STEPS = {"prefetch": 1, "max_gemms": 1, "max_accumulates": 1, "final": "reduce"}
MAKESPAN = executor("sim").makespan


def measured(case: Case) -> dict[str, Any]:
    """Return the results of a case: the cost of direct execution and of the best schedules."""
    problem, machine = case.problem, shipped(case.machine)
    tried = "ABC" if case.asked == "any" else case.asked
    stationary = min(
        tried, key=lambda x: MAKESPAN(umm.schedule(problem, machine, stationary=x, final="reduce"))
    )
    options = Options(**STEPS)
    ops = op_list(problem, stationary)
    irs = {p: step_policies()[p].ir(ops, machine, options) for p in ("greedy", "cost-greedy")}
    irs["exhaustive"] = optimum(irs["greedy"], irs["cost-greedy"])
    in_steps = umm.schedule(problem, machine, stationary=stationary, **STEPS)
    lowered = stepwise(irs["exhaustive"], machine, Options(policy="exhaustive", **STEPS))
    result = best_order(
        problem,
        machine,
        MAKESPAN,
        stationary=stationary,
        options=Options(final="reduce"),
        policies=("greedy", "cost-greedy"),
        moves=60,
    )
    optimum_s = MAKESPAN(lowered)
    best = min(result.makespan_s, optimum_s)
    # What brings replicas of C together is no matter of scheduling; it stays in simulated times.
    steps_s = model_cost(in_steps) - (model_cost(lowered) - irs["exhaustive"].cost_s)
    return {
        "stationary": stationary,
        "uneven": uneven(ops),
        "ops": int(np.bincount(ops.rank).max()),
        "got_again": _got(in_steps) / max(_got(lowered), 1),
        "steps_direct_s": steps_s,
        "steps_greedy_s": irs["greedy"].cost_s,
        "steps_cost_greedy_s": irs["cost-greedy"].cost_s,
        "steps_optimum_s": irs["exhaustive"].cost_s,
        "steps_gap": irs["exhaustive"].gap,
        "async_direct_s": result.direct_s,
        "async_optimum_s": optimum_s,
        "async_best_order_s": result.order_s,
        "async_best_s": best,
        "async_bound_s": min(result.bound_s, best),
    }


def optimum(*starts: IR) -> IR:
    """Return the IR of the least cost, starting from others.

    The slowest rank decides, so a rank is searched only if its best start costs more than another rank must.
    """
    graphs, limits = starts[0].graphs, starts[0].limits
    steps = [min((ir.steps[g.rank] for ir in starts), key=lambda s: total(g, s)) for g in graphs]
    least = 0.0
    known: dict[object, Solution] = {}
    for graph in sorted(graphs, key=lambda g: -max(sum(g.seconds), g.communication)):
        if total(graph, steps[graph.rank]) > least:
            if graph.shape not in known:
                known[graph.shape] = exhaustive(graph, limits, tries=TRIES)
            steps[graph.rank] = known[graph.shape].steps
            least = max(least, known[graph.shape].bound_s)
    ir = IR(starts[0].ops, graphs, steps, limits)
    return replace(ir, gap=max(0.0, 1 - least / ir.cost_s))


def _got(schedule: umm.Schedule) -> int:
    """Return the bytes a schedule gets, links' charge included."""
    return int(schedule.nbytes[schedule.kind == GET].sum())


def summary(frame: pd.DataFrame) -> dict[str, Any]:
    """Return of each ratio over each group: median, 90th percentile, largest, and the share within 5 %."""
    result = {}
    for name, part in groups(frame).items():
        result[name] = {
            ratio: {
                "cases": len(part),
                "median": round(float(values.median()), 4),
                "p90": round(float(values.quantile(0.9)), 4),
                "largest": round(float(values.max()), 4),
                "within 5 %": round(float((values <= 1.05).mean()), 4),
            }
            for ratio, values in ratios(part).items()
        }
    return result


def groups(frame: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the cases of each distribution, by its name."""
    result = {}
    where = frame["group"].where(frame["group"] == "corpus", frame["group"] + " on " + frame["machine"])
    for name, all_of_it in frame.groupby(where):
        if name != "corpus":
            result[f"{name}, best layout"] = all_of_it.nsmallest(1, "async_best_s")
        for word, part in all_of_it.groupby(all_of_it["uneven"].map({False: "even", True: "uneven"})):
            result[f"{name}, {word}"] = part
            single = part[part["got_again"] < 1.001]
            if len(single):
                result[f"{name}, {word}, nothing got again"] = single
    return result


def ratios(part: pd.DataFrame) -> dict[str, pd.Series]:
    """Return the judged ratios: direct execution over the best, with and without asynchrony."""
    return {
        "without asynchrony: direct / optimum": part["steps_direct_s"] / part["steps_optimum_s"],
        "with asynchrony: direct / optimum": part["async_direct_s"] / part["async_optimum_s"],
        "with asynchrony: direct / best order": part["async_direct_s"] / part["async_best_order_s"],
        "with asynchrony: direct / best found": part["async_direct_s"] / part["async_best_s"],
        "with asynchrony: direct / bound": part["async_direct_s"] / part["async_bound_s"],
    }


def page(frame: pd.DataFrame) -> str:
    """Return README.md's part on the cases: a table of ratios by group, and how sure the optimum is."""
    random, uneven, h100 = frame["group"] == "corpus", frame["uneven"], frame["machine"] == "h100-8"
    groups_ = {
        "random, even": random & ~uneven,
        "random, uneven": random & uneven,
        "random, uneven, nothing got again": random & uneven & (frame["got_again"] < 1.001),
        "MLP on `h100-8`": ~random & h100,
        "MLP on `pvc-12`, even": ~random & ~h100 & ~uneven,
        "MLP on `pvc-12`, uneven": ~random & ~h100 & uneven,
    }
    lines = [
        "| time of direct over | cases | median | 90 % | largest | within 5 % |",
        "|---|---|---|---|---|---|",
    ]
    for name, ratio in (
        ("the optimum, no asynchrony", "without asynchrony: direct / optimum"),
        ("that optimum, asynchrony", "with asynchrony: direct / optimum"),
        ("the best found, asynchrony", "with asynchrony: direct / best found"),
    ):
        for number, (group, which) in enumerate(groups_.items()):
            values = ratios(frame[which])[ratio]
            lines.append(
                f"| {f'**{name}**: ' if not number else ''}{group} | {len(values)} | {values.median():.2f} | "
                f"{values.quantile(0.9):.2f} | {values.max():.2f} | {100 * (values <= 1.05).mean():.0f} % |"
            )
    gaps, slack = frame["steps_gap"], 1 - frame["async_bound_s"] / frame["async_best_s"]
    proven = (
        f"The optimum is proven in {int((gaps == 0).sum())} of {len(frame)} cases; in the others it may cost "
        f"{100 * gaps.max():.0f} % less at most. A bound below every schedule lies "
        f"{100 * slack[random & ~uneven].median():.0f} % (even) and "
        f"{100 * slack[random & uneven].median():.0f} % "
        "(uneven) under the best found in the median of the random problems: there may be more to "
        "win than is shown."
    )
    return "\n".join(lines) + f"\n\n{proven}\n"


def cases() -> Table:
    """Return the table of all cases."""
    return Table(HERE / "scheduling.csv", [*corpus(CASES), *mlps()], measured, one_in=170)

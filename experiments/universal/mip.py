"""One rank's steps as an integer program, for OR-tools' CP-SAT and for HiGHS: JSON in, JSON out.

Runs under an interpreter that has ortools and scipy, without umm. A boolean says in which step each multiply,
get and accumulate is; a step costs at least its communication and at least its computation.
"""

import json
import sys
import time

import numpy as np
from ortools.sat.python import cp_model
from scipy.optimize import Bounds, LinearConstraint, milp

SCALE = 10**6  # CP-SAT counts whole numbers: of nanoseconds


def items(asked):
    """Return for each item its milliseconds, the items required in an earlier step, and its kind."""
    gets = len(asked["get"])
    result = [(ms, [], "communicate") for ms in asked["get"]]
    result += [(ms, needs, "multiply") for ms, needs in zip(asked["gemm"], asked["needs"], strict=True)]
    result += [(ms, [gets + i], "communicate") for i, ms in enumerate(asked["accumulate"]) if ms is not None]
    return result


def cp_sat(asked):
    """Return cost and bound in milliseconds by CP-SAT."""
    model, result, steps = cp_model.CpModel(), items(asked), range(asked["steps"])
    at = [[model.new_bool_var("") for _ in steps] for _ in result]
    for place in at:
        model.add_exactly_one(place)
    cost = [model.new_int_var(0, SCALE * 10**6, "") for _ in steps]
    for t in steps:
        for kind, most in zip(("multiply", "communicate"), asked["limits"], strict=True):
            of_kind = [(round(ms * SCALE), at[i][t]) for i, (ms, _, k) in enumerate(result) if k == kind]
            model.add(sum(x for _, x in of_kind) <= most)
            model.add(cost[t] >= sum(ms * x for ms, x in of_kind))
        for i, (_, needs, _) in enumerate(result):
            for x in needs:
                model.add(at[i][t] <= sum(at[x][:t]))
    model.minimize(sum(cost))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = asked["seconds"]
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    known = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver.objective_value / SCALE if known else None, solver.best_objective_bound / SCALE


def highs(asked):
    """Return cost and bound in milliseconds by HiGHS."""
    result, steps = items(asked), asked["steps"]
    count = len(result) * steps  # the costs of the steps come after
    rows, low, high = [], [], []

    def constrain(terms, least, most):
        row = np.zeros(count + steps)
        for place, factor in terms:
            row[place] += factor
        rows.append(row)
        low.append(least)
        high.append(most)

    for i, (_, needs, _) in enumerate(result):
        constrain([(i * steps + t, 1) for t in range(steps)], 1, 1)
        for x in needs:
            for t in range(steps):
                constrain([(i * steps + t, -1)] + [(x * steps + u, 1) for u in range(t)], 0, np.inf)
    for t in range(steps):
        for kind, most in zip(("multiply", "communicate"), asked["limits"], strict=True):
            of_kind = [(i * steps + t, ms) for i, (ms, _, k) in enumerate(result) if k == kind]
            constrain([(place, 1) for place, _ in of_kind], 0, most)
            constrain([(count + t, 1)] + [(place, -ms) for place, ms in of_kind], 0, np.inf)
    costs = np.arange(count + steps) >= count
    solved = milp(
        costs.astype(float),
        constraints=LinearConstraint(np.array(rows), low, high),
        integrality=~costs,
        bounds=Bounds(0, np.where(costs, np.inf, 1)),
        options={"time_limit": asked["seconds"]},
    )
    return solved.fun, solved.mip_dual_bound


def main():
    asked = json.load(sys.stdin)
    answer = {}
    for name, solve in (("cp_sat", cp_sat), ("highs", highs)):
        began = time.perf_counter()
        cost, bound = solve(asked)
        answer |= {f"{name}_ms": cost, f"{name}_bound_ms": bound, f"{name}_s": time.perf_counter() - began}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()

"""The table of ratios: measured, target, and whether it was reached."""

from statistics import median

from tests.benchmarks.cases import LARGE, MACHINES


def print_table(results):
    """Print every ratio as the median of its rounds, with the issue's target and goal beside it."""
    print(f"Medians of {results['rounds']} rounds; > and < say which way is better.\n")
    print(f"{'':<72} {'measured':>10} {'target':>8} {'goal':>8}")
    for name in MACHINES:
        _points(name, results["points"][name])
    if "race" in results:
        for name in MACHINES:
            _race(name, results["race"][name])
        for case in LARGE:
            _large_race(case, results["large"][str(case)])
    else:
        print("SimGrid C++: not measured, libsimgrid-dev or g++ is not installed")
    for layouts in ("aligned", "misaligned"):
        rate = median(r[layouts]["ops_per_s"] for r in results["op_lists"])
        ops = results["op_lists"][0][layouts]["ops"]
        _line(f"op list, p=256, {layouts} ({ops} ops): million ops/s", rate / 1e6, "", ">", 20)
    _growth(results["growth"], results["squares"])
    _chain(results["chain"])


def _points(name, rounds):
    def middle(key):
        return median(r[key] for r in rounds)

    goals = {"pvc-12": (4, 2.5, 2500, 4000), "h100-8": (8, 4, None, 4500)}[name]
    print(
        f"{name}: {middle('actions_per_point'):.0f} actions a point, "
        f"{middle('lower_s_per_point') * 1e6:.0f} µs to lower "
        f"({middle('first_lower_s_per_point') * 1e6:.0f} the first time, with how replicas are summed), "
        f"{middle('simulate_s_per_point') * 1e6:.0f} µs to simulate, "
        f"{middle('spans_s_per_point') * 1e6:.0f} µs with spans; "
        f"the floor is {middle('floor_s') * 1e6:.2f} µs an event"
    )
    _line(f"{name}: simulating an action / SimPy floor", middle("simulate_over_floor"), "x", "<", *goals[:2])
    _line(f"{name}: the same, spans kept", middle("spans_over_floor"), "x", "<")
    _line(f"{name}: lowering and simulating, points/s", middle("points_per_s"), "", ">", *goals[2:])
    _line(f"{name}: the same, spans kept", middle("points_per_s_with_spans"), "", ">")
    _line(f"{name}: reference process version / ours", middle("reference_over_ours"), "x", ">", 15)


def _race(name, rounds):
    """Print the ratio of total times; it leaves out the platform, which a sweep could build once."""
    target, goal, all_points = {"pvc-12": (4, 6, 1), "h100-8": (3, 6, 1)}[name]
    ratio = median(sum(r["simgrid_s"]) / sum(r["ours_s"]) for r in rounds)
    _line(
        f"SimGrid C++ / ours, {name}, total of {len(rounds[0]['ours_s'])} points",
        ratio,
        "x",
        ">",
        target,
        goal,
    )
    anew = median(
        (sum(r["simgrid_s"]) + len(r["simgrid_s"]) * r["simgrid_platform_s"]) / sum(r["ours_s"])
        for r in rounds
    )
    _line("  with a platform built for each point: SimGrid has one engine a process", anew, "x", ">")
    by_point = zip(*(zip(r["simgrid_s"], r["ours_s"], strict=True) for r in rounds), strict=True)
    ratios = [median(theirs / ours for theirs, ours in point) for point in by_point]
    _line("  the point that does worst", min(ratios), "x", ">", None, all_points)
    print(f"  {sum(ratio < 1 for ratio in ratios)} of {len(ratios)} points are slower than SimGrid")


def _large_race(case, rounds):
    """Print a ratio that includes each side's work once for a fabric: its routes."""
    ratio = median((r["simgrid_platform_s"] + sum(r["simgrid_s"])) / sum(r["ours_s"]) for r in rounds)
    _line(f"SimGrid C++ / ours, {case}", ratio, "x", ">", 1.5, 3 if case.lockstep else 2)


def _growth(rows, squares):
    print(
        f"\n{'column layout, h100-8 fabric':<30} {'actions':>10} {'lowering':>10} {'simulating':>11}", end=""
    )
    print(f" {'elapsed':>9} {'peak':>9}")
    for row in rows:
        print(
            f"{'p = ' + str(row['ranks']):<30} {row['actions']:>10} {row['lower_s']:>8.3f} s "
            f"{row['simulate_s']:>9.3f} s {row['elapsed_s']:>7.2f} s {row['peak_bytes'] / 1e6:>6.0f} MB"
        )
    _large("p = 1024", rows[-1], seconds=3, gigabytes=0.7)
    _large("2d layout, p = 16,384", squares, seconds=60, gigabytes=4)


def _chain(row):
    """Print the cost of a chain, and an action of it beside one of its first multiply."""
    _line(f"a chain of {row['actions']} actions: lowering, processor seconds", row["lower_s"], "", "<", 5)
    _line("  simulating it, processor seconds", row["simulate_s"], "", "<")
    an_action = [row[prefix + "simulate_s"] / row[prefix + "actions"] for prefix in ("", "multiply_")]
    _line("  simulating an action / one of its first multiply", an_action[0] / an_action[1], "x", "<", 1.5)


def _large(name, row, seconds, gigabytes):
    spent = row["lower_s"] + row["simulate_s"]
    _line(f"{name}: lowering and simulating, processor seconds", spent, "", "<", seconds)
    _line(f"{name}: peak memory, GB", row["peak_bytes"] / 1e9, "", "<", gigabytes)


def _line(what, value, unit, better, target=None, goal=None):
    """Print one measurement; a target or a goal that is missed is marked."""

    def asked(limit):
        if limit is None:
            return ""
        missed = value < limit if better == ">" else value > limit
        return f"{better}{limit}{unit}{'!' if missed else ''}"

    number = f"{value:.2f}" if value < 100 else f"{value:.0f}"
    print(f"{what:<72} {number + unit:>10} {asked(target):>8} {asked(goal):>8}")

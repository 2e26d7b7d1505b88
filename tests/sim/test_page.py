"""The time model follows docs/reference/schedule.md: files replayed by its rules, frozen makespans."""

import hashlib
import json
import os
import random
from pathlib import Path

import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import page_replay
from stories import GIGA, story

import umm
from umm.errors import UmmError
from umm_sim.player import played
from umm_sim.simulation import simulate

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(page_replay.__file__).with_name("makespans.json")
PAGE = (ROOT / "docs/reference/schedule.md").read_text(encoding="utf-8")
MEASURED = ROOT / "experiments/cpu/data/localhost-warm-avx2.toml"
MACHINES = {
    "localhost": umm.machine("localhost"),
    "h200-1": umm.machine("h200-1"),
    "two cores, measured": umm.machine(str(MEASURED)),
    "pvc-12": umm.machine("pvc-12"),
    "h100-8": umm.machine("h100-8"),
}
"""Ranks share a device on the first three."""
ALGORITHMS = ("universal", "universal", "summa", "cosma", "ring", "dtensor")


def drawn(number):
    """The schedule of a number: its machine, layouts, algorithm and options at random, some 200 actions."""
    draw = random.Random(number)
    machine = MACHINES[draw.choice(sorted(MACHINES))]
    ranks = draw.choice([2, 3, 4, 6])
    m, n, k = (draw.choice([1, 7, 48, 131, 512, 1024]) for _ in range(3))
    layouts = [draw.choice(["row", "col", "2d", f"row@{ranks}", f"cyclic:40x56:1x{ranks}"]) for _ in "abc"]
    problem = umm.Problem(
        m=m, n=n, k=k, ranks=ranks, dtype="float32", **dict(zip("abc", layouts, strict=True))
    )
    algorithm = draw.choice(ALGORITHMS)
    options = {}
    if algorithm == "universal":
        options = {
            "stationary": draw.choice("ABC"),
            "prefetch": draw.choice([0, 1, 3]),
            "max_gemms": draw.choice([1, 2]),
            "max_accumulates": draw.choice([1, 2]),
            "granularity": draw.choice(["tile", "slice"]),
            "final": draw.choice(["complete", "reduce", "broadcast", "all-reduce", "reduce-scatter"]),
        }
    try:
        schedule = umm.schedule(problem, machine, algorithm=algorithm, **options)
    except UmmError:  # such as a number of ranks that the algorithm does not take
        return None
    return schedule if len(schedule) <= 250 else None


@settings(max_examples=examples(300))
@given(number=st.integers(0, 10**9))
def test_a_file_replays_to_its_makespan_by_the_page_s_rules_alone(number):
    """Also in the reference; to 1e-9, or ten times the effect of a jitter of 1e-12."""
    schedule = drawn(number)
    if schedule is None:
        return
    text = schedule.to_json()
    expected = page_replay.makespan(text)
    result = {played(schedule)[1].max(), simulate(schedule)[1].max()}
    assert len(result) == 1
    off = abs(result.pop() / expected - 1)
    if off > 1e-9:
        chaotic = max(abs(page_replay.jittered(text, seed) / expected - 1) for seed in range(3))
        assert off <= 10 * chaotic


def rules():
    """A digest of the page's rules of time."""
    result = PAGE[PAGE.index("## Time") : PAGE.index("## Direct execution")]
    return hashlib.sha256(" ".join(result.split()).encode()).hexdigest()[:16]


def random_story(number):
    """A schedule of a number, written row by row: four ranks on two devices, three links, means, barriers."""
    draw, ranks = random.Random(number), 4
    names = ("compute", "copy_in.0", "copy_out.0")
    lanes = [(r, name, r // 2 if name == "compute" else None) for r in range(ranks) for name in names]
    links = [(f"link {x}", draw.choice([1, 2, 3]) * GIGA, draw.choice([0.0, 0.25])) for x in range(3)]
    pairs = [(src, dst) for src in range(ranks) for dst in range(ranks) if src != dst]
    routes = [(*pair, tuple(sorted(draw.sample(range(3), draw.choice([1, 2]))))) for pair in pairs]
    rows = []
    for i in range(draw.randint(8, 40)):
        after = sorted(draw.sample(range(i), min(i, draw.choice([0, 0, 1, 2]))))
        kind = draw.choice(["gemm", "gemm", "map", "local", "get", "put", "accumulate", "reduce", "barrier"])
        rank, other = draw.sample(range(ranks), 2)
        seconds = draw.choice([0.5, 1.0, 2.75])
        if kind == "barrier":
            rows.append((-1, kind, after, None))
        elif kind in ("gemm", "map", "local"):
            rows.append((3 * rank, kind, after, seconds))
        else:
            ends = (other, rank) if kind == "get" else (rank, other)
            more = draw.choice([(), (seconds,), (0.0, 0), (seconds, 1)])
            rows.append(
                (3 * rank + draw.choice([1, 2]), kind, after, (*ends, draw.choice([0.5, 1, 2]), *more))
            )
    loss = {kind: draw.choice([0.0, 0.5, 0.75]) for kind in ("get", "put", "accumulate", "reduce")}
    means = (("kernel", 0.25), ("engine", 0.0))
    return story(rows, lanes=lanes, links=links, routes=routes, ranks=ranks, interference=loss, means=means)


def test_the_reference_makespans_are_those_of_the_page_as_it_is():
    """A change of the page's rules of time changes a makespan of this file too, and the other way round.

    ``UMM_GOLDEN=write`` writes it anew: with a decision record, where both have changed on purpose.
    """
    stories = [random_story(number) for number in range(100)]
    now = [umm.run(schedule).makespan_s for schedule in stories]
    assert now == pytest.approx([page_replay.makespan(schedule.to_json()) for schedule in stories], rel=1e-9)
    if os.environ.get("UMM_GOLDEN") == "write":
        FILE.write_text(json.dumps({"rules": rules(), "makespans": now}) + "\n", encoding="utf-8")
    frozen = json.loads(FILE.read_text(encoding="utf-8"))
    assert frozen["rules"] == rules()
    assert now == pytest.approx(frozen["makespans"], rel=1e-9)

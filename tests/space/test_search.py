"""The search: equal to simulating everything, and its account of the points left out."""

import pickle

import pytest

import umm
from umm.errors import InfeasibleError, InputError
from umm.program.problem import Problem
from umm.space import Space, search
from umm.space.budget import bytes_of_budget, device_share, limit_of
from umm.space.pricing.multiplies import content_of
from umm_sim.executor import SimExecutor

SMALL = {"m": 512, "n": 3072, "k": 768}
PAPER = {"grids": "square", "granularity": "tile", "final": "reduce"}


def exhaustive(space, machine, limit):
    """Rank every schedule of a space by makespan (ten figures), memory and the first text that means it."""
    points = space.on(machine.default_ranks).points()
    rows = {}
    for point in points.allowed.tolist():
        schedule = points.schedule(point, machine)
        memory = int(schedule.memory_bytes.max())
        text = points.text(point)
        row = (float(f"{SimExecutor().makespan(schedule):.9e}"), memory, text)
        if limit is None or memory <= limit:
            same = rows.setdefault((text[:3], content_of(schedule)), row)
            assert same[:2] == row[:2]
            assert same[2] < text or same is row
    return sorted(rows.values())


@pytest.mark.parametrize("memory", ["2x", "4x", None])
@pytest.mark.parametrize("name", ["h100-8", "pvc-12"])
def test_the_search_finds_what_simulating_every_point_finds(name, memory):
    """4 layouts of each operand, all stationaries: 192 points, fewer simulated, the same top 10."""
    machine = umm.machine(name)
    space = Space(**SMALL, **PAPER, partitions=("row", "col"), replication=(1, 2))
    result = search(space, machine, memory=memory)
    shown = [
        (float(f"{x.makespan_s:.9e}"), x.memory_bytes, (x.problem.a, x.problem.b, x.problem.c, x.kept))
        for x in result.top
    ]
    everything = exhaustive(space, machine, result.limit)
    assert shown == [(time, memory, text[:4]) for time, memory, text in everything[:10]]
    assert result.proven
    assert result.priced == result.distinct == 192
    assert result.simulated + result.pruned == 192
    assert result.simulated < 192 / 2


def test_most_of_the_papers_space_is_never_simulated():
    """2,187 points on 8 ranks without a fully replicated operand, 1,536 of them distinct."""
    space = Space(m=1024, n=12288, k=49152, fully_replicated=False, **PAPER)
    result = search(space, "h100-8", memory=None)
    assert (result.priced, result.distinct) == (9**3 * 3, 8**3 * 3)
    assert result.proven
    assert result.simulated < 0.03 * result.distinct
    assert all(
        int(layout.partition("@")[2] or 1) < 8 for x in result.top for layout in (x.problem.a, x.problem.b)
    )


def test_a_schedule_that_beats_its_bound_ends_the_proof():
    """A makespan that is half the simulator's contradicts the bounds, so nothing is proven."""
    space = Space(**SMALL, a="row", b="row@8", c="row", stationary="C")
    result = search(
        space, "h100-8", makespan=lambda schedule: SimExecutor().makespan(schedule) / 2, memory=None
    )
    assert not result.proven


def test_nothing_feasible_names_the_smallest_memory_that_works():
    """Every rank must hold its share and a pool: 0.5x is not enough, the number it names is."""
    space = Space(**SMALL)
    with pytest.raises(InfeasibleError, match=r"nothing fits 1\.0 MiB per rank") as caught:
        search(space, "h100-8", memory="0.5x")
    assert caught.value.exit_code == 3
    least = int(str(caught.value).split("works is ")[1].split(" bytes")[0])
    assert search(space, "h100-8", memory=least).top[0].memory_bytes == least
    with pytest.raises(InfeasibleError):
        search(space, "h100-8", memory=least - 1)


def test_results_come_as_a_frame_a_text_and_progress():
    seen = []
    space = Space(**SMALL, **PAPER)
    result = search(space, "h100-8", top=3, progress=lambda done, total: seen.append((done, total)))
    frame = result.to_frame()
    assert list(frame.columns[:4]) == ["a", "b", "c", "stationary"]
    assert len(frame) == len(result.top) == 3
    assert frame.makespan_s.is_monotonic_increasing
    assert "proven: 5184 points priced, 2187 distinct" in str(result)
    assert seen[-1] == (2187, 2187)
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("budget", "nbytes"),
    [("2x", 24576), (".5x", 6144), ("1 x", 12288), ("16GiB", 2**34), ("300B", 300), (7, 7), (None, None)],
)
def test_a_budget_is_bytes_or_a_multiple_of_the_unreplicated_share(budget, nbytes):
    """Three float32 matrices of 64 × 64 on 4 ranks: a share of 12,288 bytes."""
    assert bytes_of_budget(budget, Problem(m=64, n=64, k=64, ranks=4).unreplicated_share) == nbytes


@pytest.mark.parametrize("budget", ["x", "much", "0x", 0, "-1GiB", "300"])
def test_a_budget_that_is_none_is_refused(budget):
    with pytest.raises(
        InputError, match=r"write it like 2x or 16GiB|must be above 0|write 300GiB, 300x or 300B"
    ):
        bytes_of_budget(budget, Problem(m=64, n=64, k=64, ranks=4).unreplicated_share)


def test_a_search_for_no_points_is_refused():
    with pytest.raises(InputError, match="top = 0"):
        search(Space(**SMALL), "h100-8", top=0)


def test_points_that_are_one_schedule_are_one_row_that_names_them():
    """A on every rank, B and C by columns: whatever stays in place and however it is got, nothing moves."""
    space = Space(**SMALL, ranks=8, a="row@8", b="col", c="col")
    result = search(space, "h100-8")
    assert (result.distinct, len(result.top)) == (3 * 2, 1)
    best = result.top[0]
    same = {(best.stationary, best.options.granularity), *((x, o.granularity) for x, o in best.ties)}
    assert same == {(x, y) for x in "ABC" for y in ("tile", "slice")}
    assert best.to_dict()["ties"][::4] == [
        {"stationary": "B"},
        {"stationary": "C", "granularity": "slice"},
    ]


def test_a_search_tries_slices_all_grids_and_every_end_of_c_unless_told():
    """On 4 ranks: 3 layouts of one replica, 2 of two and 1 of four; C with replicas ends in four ways."""
    result = search(Space(**SMALL, ranks=4), "h100-8", top=1)
    assert result.distinct == 6 * 6 * (3 + 3 * 2) * 3 * 2
    space = Space(**SMALL, ranks=4, grids="square", granularity="tile", final="all-reduce,broadcast")
    assert search(space, "h100-8", top=1).distinct == 6 * 6 * (3 + 3 * 2) * 3
    with pytest.raises(InputError, match="do not leave the same C complete: reduce in replica 0"):
        search(Space(**SMALL, ranks=4, final="reduce,broadcast"), "h100-8")


def test_without_a_budget_a_tenth_of_the_device_is_left_to_all_else():
    share = Problem(m=64, n=64, k=64, ranks=8).unreplicated_share
    machine = umm.machine("h100-8")
    assert device_share(machine, 8) == 80 * 10**9
    assert limit_of("device", share, machine, 8) == 72 * 10**9
    assert limit_of(None, share, machine, 8) == limit_of("900 GB", share, machine, 8) == 80 * 10**9
    assert search(Space(**SMALL), machine, top=1).limit == 72 * 10**9


@pytest.mark.parametrize(
    "space",
    [
        umm.Space(m=512, n=64, k=100, given="a=row,c=col", ranks=4),
        umm.Space(chain=umm.chain("mlp", hidden=64, ffn=64, tokens=64), ranks=2),
    ],
)
def test_a_result_pickles(space):
    """A pool of processes returns it so; ranges of its rows can still be asked for."""
    result = umm.search(space, "h100-8", top=3)
    again = pickle.loads(pickle.dumps(result))
    assert str(again) == str(result)
    assert [x.to_dict() for x in again.frontier] == [x.to_dict() for x in result.frontier]
    assert again.to_frame().equals(result.to_frame())
    assert again.sure.range(again.top[0]) == result.sure.range(result.top[0])

"""Ways to move bytes, and signals: the machine file's numbers, a schedule's waits, a gemm's losses."""

import numpy as np
import pytest
from readable import GOLDEN

import umm
from umm.errors import ScheduleError
from umm.schedules.rules.invariants import check
from umm.schedules.table.details import GEMM, LOCAL, PUT
from umm.schedules.writer.builder import Builder
from umm_sim.executor import SimExecutor

KERNEL = """
[devices.means.kernel]
interference = { value = 0.5, source = "made up" }
efficiency = { value = 0.8, source = "made up" }
overhead = { value = "100 ns", source = "made up" }
"""
SIGNAL = 'signal = { value = "10 ns", source = "made up" }\n'
PROBLEM = umm.Problem(m=8, n=8, k=8, a="row", b="row@2", c="row", ranks=2)


@pytest.fixture
def machine(tmp_path):
    """The machine of round numbers, with the extra lines given."""

    def made(kernel="", signal=""):
        text = (GOLDEN / "round.toml").read_text(encoding="utf-8")
        text = text.replace("[devices.peak]", f"{signal}\n[devices.peak]").replace(
            "[fabric]", f"{kernel}\n[fabric]"
        )
        path = tmp_path / "round.toml"
        path.write_text(text, encoding="utf-8")
        return umm.machine(path)

    return made


def written(machine, **how):
    """Rank 0 puts its half of A, 128 bytes, to rank 1, which multiplies with it, while rank 0 multiplies."""
    build = Builder("put", PROBLEM, machine)
    half = build.tile("A", 0, 0)
    target = build.temporary(1, "A", half.rows, half.cols)
    build.put(half, target, **how)
    build.gemm(build.tile("C", 0, 0), half, build.own("B", 0))
    build.gemm(
        build.temporary(1, "C", half.rows, build.layout("C").tile_bounds((0, 0))[1]),
        target,
        build.own("B", 1),
        beta=0,
    )
    schedule = build.schedule()
    check(schedule)
    return schedule


def test_a_means_charges_and_waits_as_the_file_says(machine):
    """128 bytes at 0.8 of the link are 160; each transfer waits 100 ns more; without a means neither."""
    plain, by_kernel = written(machine(KERNEL)), written(machine(KERNEL), means="kernel")
    put = int(np.argmax(plain.kind == PUT))
    assert (plain.nbytes[put], plain.seconds[put], plain.means) == (128, 0, ())
    assert (by_kernel.nbytes[put], by_kernel.seconds[put]) == (160, pytest.approx(100e-9))
    assert [means.name for means in by_kernel.means] == ["kernel"]
    assert umm.Schedule.from_json(by_kernel.to_json()).to_json() == by_kernel.to_json()


def test_a_gemm_loses_what_the_means_takes_from_the_start_of_the_transfer(machine):
    """512 ns beside 100 ns of waiting and 160 ns of bytes that take half its rate: 130 ns longer."""
    schedule = written(machine(KERNEL), means="kernel")
    trace = SimExecutor().run(schedule)
    first = int(np.argmax(schedule.kind == GEMM))
    assert trace.end[first] == pytest.approx((512 + 130) * 1e-9)
    assert trace.end[int(np.argmax(schedule.kind == PUT))] == pytest.approx(260e-9)


def test_a_means_that_the_machine_does_not_have_is_refused(machine):
    with pytest.raises(ScheduleError, match="has no means 'kernel' to move bytes; it has none"):
        written(machine(), means="kernel")


def test_whoever_waits_for_another_rank_waits_for_its_signal(machine):
    """Rank 1's gemm waits for rank 0's put: 10 ns on its lane before; rank 0's own gemm waits for nobody."""
    schedule = written(machine(signal=SIGNAL))
    local = np.nonzero(schedule.kind == LOCAL)[0]
    assert schedule.rank[local].tolist() == [1]
    assert schedule.seconds[local].tolist() == [pytest.approx(10e-9)]
    last = len(schedule) - 1
    assert (schedule.kind[last], schedule.after_of(last).tolist()) == (GEMM, local.tolist())
    assert not np.any(written(machine()).kind == LOCAL)

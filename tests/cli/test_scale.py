"""run and compare state first their needs on this host, refuse sizes that cannot fit, and scale down."""

import pytest
from command import good, record, umm

from umm import Problem, measure
from umm import schedule as umm_schedule
from umm.errors import InputError
from umm.measure import Needs
from umm_hw.mpi.executor import MpiExecutor

SMALL = ["-m", 256, "-n", 192, "-k", 160, "--ranks", 4, "--iters", 1, "--warmup", 0]
CYCLIC = ["--a", "cyclic:64x32:2x2", "--b", "col@2", "--c", "edges:0-64-256x0-96-192:2x2"]


@pytest.fixture
def slow_host(monkeypatch):
    """A host that multiplies 1 Mflop/s and copies 1 GB/s, with as much memory free as is asked for."""

    def made(free):
        monkeypatch.setattr(measure, "multiply_rate", lambda dtype: 1e6)
        monkeypatch.setattr(measure, "copy_rate", lambda: 1e9)
        monkeypatch.setattr(measure, "free_memory", lambda: free)

    return made


@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_takes_long_says_so_before_and_offers_a_smaller_problem(slow_host, command):
    """2·256·192·160 flop at 1 Mflop/s are 16 s; at half of every dimension, 2 s."""
    slow_host(2**30)
    result = umm(command, *SMALL)
    assert result.exit_code == 0
    first = result.stderr.splitlines()[0]
    assert first.startswith("about 16 s and ")
    assert first.endswith(": 1 run of 0.01573 Gflop; --scale 1/2 takes about 2 s")
    assert "about" not in umm(command, *SMALL, "--scale", "1/8").stderr


@pytest.mark.parametrize("command", ["run", "compare"])
def test_what_cannot_fit_is_refused_in_a_line_that_says_what_would(slow_host, command):
    slow_host(700_000)
    result = umm(command, *SMALL)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    assert "of this host's memory, of which 683.6 KiB is free; --scale 1/2 takes" in result.stderr
    assert umm(command, *SMALL, "--scale", "1/2").exit_code == 0


def test_a_scaled_problem_is_cut_alike_and_says_what_it_is():
    """Tiles of 64x32 of a 256x160 A become 16x8 of 64x40; edges go with C, replicas stay."""
    result = umm("run", *SMALL, *CYCLIC, "--scale", "1/4", "--check", "--json")
    assert "at 1/4 of every dimension: m = 64, n = 48, k = 40; the layouts cut it alike" in result.stderr
    results = record("run", *SMALL, *CYCLIC, "--scale", "1/4", "--check")
    assert results["measured"]["ok"]
    problem = results["problem"]
    assert [problem[x] for x in ("m", "n", "k")] == [64, 48, 40]
    layouts = [problem[x] for x in "abc"]
    assert layouts == ["cyclic:16x8:2x2", "col@2", "edges:0-16-64x0-24-48:2x2"]


def test_a_scale_that_leaves_ranks_without_work_says_so():
    result = umm("run", *SMALL, "--scale", "1/256")
    assert "m = 1, n = 1, k = 1; 3 of 4 ranks multiply nothing" in result.stderr


def test_a_scaled_chain_keeps_its_heads():
    sizes = ["--chain", "attention", "--hidden", 128, "--heads", 4, "--tokens", 64, "--ranks", 2]
    result = umm("run", *sizes, "--scale", "1/4", "--iters", 1, "--check")
    assert result.exit_code == 0, result.output
    assert "at 1/4 of tokens, hidden and ffn; as many heads, each smaller" in result.stderr
    assert "X 16x32" in result.stdout


@pytest.mark.parametrize("text", ["2", "0", "1/0", "a half"])
def test_a_scale_that_is_none_is_refused(text):
    result = umm("run", *SMALL, "--scale", text)
    assert result.exit_code == 2
    assert "is not a scale; write it like 1/16 or 0.25" in result.stderr


def test_a_saved_schedule_has_its_size_already(tmp_path):
    saved = tmp_path / "s.json"
    good("simulate", *SMALL[:8], "--save-schedule", saved)
    result = umm("run", "--schedule", saved, "--scale", "1/2")
    assert result.exit_code == 2
    assert "already decides --scale" in result.stderr


def test_the_scale_that_fits_is_the_largest_power_of_two():
    """Memory goes with the square of it: 16 GiB at half are 4, at a quarter 1."""
    takes = Needs(runs=1, flop=1, seconds=640.0, nbytes=16 * 2**30, free=2 * 2**30)
    assert takes.scale_within(nbytes=takes.free) == 4
    assert takes.scale_within(seconds=10.0) == 4


def test_a_schedule_for_more_ranks_than_run_is_refused_before_operands_are_drawn(monkeypatch):
    def drawn(problem):
        raise AssertionError("operands were drawn")

    monkeypatch.setattr(measure, "random_operands", drawn)
    schedule = umm_schedule(Problem(m=64, n=64, k=64, ranks=3), "localhost")
    with pytest.raises(InputError, match="the schedule is for 3 ranks, but 2 run; ask for 3"):
        measure.measure(schedule, MpiExecutor(ranks=2), "mpi", iters=1, warmup=0)

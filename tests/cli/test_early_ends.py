"""Long commands that are ended early show what they have found, marked as not complete."""

import json
import signal
import time

import pytest
from command import umm

from umm.space import Space, search
from umm_hw.numpy.executor import NumpyExecutor
from umm_sim.executor import SimExecutor

SMALL = ("-m", 64, "-n", 48, "-k", 32, "--ranks", 4)
ON = ("--machine", "h100-8", *SMALL)


@pytest.fixture
def ended_at(monkeypatch):
    """Have a signal come at the n-th call of a method of an executor."""

    usual_handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it

    def end(executor, method, n, number=signal.SIGINT):
        usual, calls = getattr(executor, method), []

        def counted(self, *args, **named):
            calls.append(1)
            if len(calls) == n:
                signal.raise_signal(number)
            return usual(self, *args, **named)

        monkeypatch.setattr(executor, method, counted)
        return calls

    yield end
    signal.signal(signal.SIGINT, usual_handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_peers_that_are_ended_early_show_the_rows_so_far(ended_at, number):
    ended_at(SimExecutor, "makespan", 30, number)
    result = umm("peers", *ON, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["complete"], result.stderr.strip()) == (130, False, "error: interrupted")
    assert found["rows"][0]["algorithm"] == "universal"
    assert (
        1
        <= len(found["rows"])
        < len(json.loads(umm("peers", *ON, "--json", "--no-crossover").stdout)["rows"])
    )


def test_peers_that_are_ended_amid_other_sizes_show_the_whole_table(ended_at):
    whole = json.loads(umm("peers", *ON, "--json").stdout)
    calls = ended_at(SimExecutor, "makespan", 10**9)
    umm("peers", *ON, "--json", "--no-crossover")
    ended_at(SimExecutor, "makespan", len(calls) + 20)
    found = json.loads(umm("peers", *ON, "--json").stdout)
    assert found["rows"] == whole["rows"]
    assert found["stretches"] == []


def test_a_what_if_that_is_ended_early_shows_the_numbers_so_far(ended_at):
    calls = ended_at(SimExecutor, "makespan", 10**9)
    whole = json.loads(umm("what-if", *ON, "--json").stdout)
    ended_at(SimExecutor, "makespan", len(calls) * 2 // 3)
    result = umm("what-if", *ON, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["complete"]) == (130, False)
    assert found["choice"] == whole["choice"]
    assert found["moves"]
    assert found["flips"] == whole["flips"][: len(found["flips"])]
    assert len(found["flips"]) < len(whole["flips"])


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    "asked",
    [
        ("what-if", *ON),
        ("what-if", *ON, "--map", "memory"),
        ("peers", "--machine", "h100-8", "--chain", "mlp", "--tokens", 64, "--hidden", 48, "--ffn", 64),
    ],
)
def test_what_is_ended_amid_its_first_search_says_so_in_a_line(ended_at, asked, as_json):
    """The search has an answer by now, but not to what was asked."""
    from umm.space.bounds.combinations import Combinations

    if asked[0] == "what-if":
        ended_at(Combinations, "seconds", 12)  # while points are bounded
    else:
        ended_at(SimExecutor, "makespan", 2)
    result = umm(*asked, *as_json)
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "error: interrupted")


def test_a_map_that_is_ended_early_shows_the_rows_so_far(ended_at):
    asked = ("what-if", *ON[:2], "-n", 48, "-k", 32, "--ranks", 4, "-m", "64,128,256", "--map", "memory")
    calls = ended_at(SimExecutor, "makespan", 10**9)
    umm(*asked)
    ended_at(SimExecutor, "makespan", len(calls) - 1)
    result = umm(*asked)
    assert result.exit_code == 130
    assert "Ended early: other values of m were not looked at yet." in result.stdout
    assert "256" not in result.stdout.split("Ended")[0].split("per rank")[-1].split()


@pytest.mark.parametrize("command", ["run", "compare"])
def test_runs_that_are_ended_early_count(ended_at, command):
    """Ctrl-C in the fifth run after one to warm up: three counted, the fourth was under way."""
    ended_at(NumpyExecutor, "run", 5)
    result = umm(command, *SMALL, "--json")
    found = json.loads(result.stdout)["measured"]
    assert (result.exit_code, found["iters"]) == (130, 3)


def test_a_sweep_that_is_ended_early_says_what_is_stored(monkeypatch, tmp_path):
    usual, calls = SimExecutor.run, []

    def run(self, *args):
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return usual(self, *args)

    monkeypatch.setattr(SimExecutor, "run", run)
    layouts = ("--a", "all", "--b", "row,col", "--c", "row")
    asked = ("sweep", *ON, *layouts, "--pool", "none", "-o", tmp_path / "s.db")
    result = umm(*asked)
    first = int(result.stderr.split()[0])
    assert result.exit_code == 130
    assert result.stderr.splitlines()[0].endswith("s.db; the same command goes on")
    assert first == 16
    assert f" points: {first} were in " in umm(*asked).stderr


def test_a_collective_that_is_ended_early_shows_the_sizes_so_far(ended_at):
    ended_at(SimExecutor, "makespan", 3)
    result = umm("collective", "all-gather", "-b", "1K", "-e", "16K", "--algorithm", "ring", "--json")
    assert result.exit_code == 130, result.output
    assert [x["nbytes"] for x in json.loads(result.stdout)["rows"]] == [1024, 2048]


def test_a_limit_of_time_ends_in_0_with_the_best_so_far(monkeypatch):
    usual = SimExecutor.makespan

    def slow(self, schedule):
        time.sleep(0.05)
        return usual(self, schedule)

    monkeypatch.setattr(SimExecutor, "makespan", slow)
    result = umm("search", *ON, "--seconds", 1, "--top", 50)
    assert result.exit_code == 0
    assert "Not proven" in result.stdout
    assert result.stderr.strip().endswith("stopped after 1 s, as asked; what is shown is the best so far")


def test_a_search_that_is_ended_while_points_are_bounded_shows_the_best_of_those_that_are(ended_at):
    from umm.space.bounds.combinations import Combinations

    ended_at(Combinations, "seconds", 12, signal.SIGTERM)
    result = umm("search", *ON, "--json")
    found = json.loads(result.stdout)
    assert (result.exit_code, found["proven"]) == (130, False)
    assert found["top"]
    assert found["simulated"] >= 1


@pytest.mark.parametrize("asked", [(), ("--top", 3), ("--jitter", "3%"), ("--json",)])
def test_a_search_that_is_ended_amid_what_follows_it_shows_the_best_that_it_proved(ended_at, asked):
    """At the first simulation after the search: of the front, of a range, of a draw."""
    calls = ended_at(SimExecutor, "makespan", 10**9)
    found = search(Space(m=64, n=48, k=32, ranks=4), "h100-8")
    ended_at(SimExecutor, "makespan", len(calls) + 1)
    result = umm("search", *ON, *asked)
    assert result.exit_code == 130
    assert "frontier" not in result.stdout
    assert "range" not in result.stdout
    if asked == ("--json",):
        assert json.loads(result.stdout)["proven"]
    else:
        assert result.stdout.count("Proven best") == 1
        assert result.stdout.count(f"on {found.machine}") == 1

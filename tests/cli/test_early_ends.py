"""Long commands that are ended early show their results so far, marked as not complete."""

import json
import random
import signal
import subprocess
import sys
import time
import weakref
from functools import cache
from itertools import cycle, product
from pathlib import Path

import pytest
from command import umm
from examples import WHOLE

from umm.files import PARTIAL
from umm.space import Space, Store, search
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
    results = json.loads(result.stdout)
    assert (result.exit_code, results["complete"], result.stderr.strip()) == (
        130,
        False,
        "error: interrupted",
    )
    full = json.loads(umm("peers", *ON, "--json", "--no-crossover").stdout)["rows"]
    names = [row["algorithm"] for row in results["rows"]]
    assert len(names) >= 1
    assert results["missing"][-2:] == ["universal", "redistribute"]  # what needs a search is priced last
    assert {*names, *results["missing"]} >= {row["algorithm"] for row in full}
    assert not {*names} & {*results["missing"]}


def test_peers_of_a_chain_that_are_ended_early_name_the_missing_rows(ended_at):
    """Schemes by name come before the search for the best layouts."""
    asked = ["--machine", "h100-8", "--chain", "mlp", "--tokens", 64, "--hidden", 48, "--ffn", 64]
    ended_at(SimExecutor, "makespan", 6)  # amid the movements of the second
    result = umm("peers", *asked, "--no-crossover")
    assert result.exit_code == 130
    output = " ".join(result.stdout.split())
    assert "universal, and no ranges." in output
    assert all(f"{x}," in output for x in ("megatron", "sequence", "data"))


def test_peers_that_are_ended_amid_other_sizes_show_the_whole_table(ended_at):
    full = json.loads(umm("peers", *ON, "--json").stdout)
    calls = ended_at(SimExecutor, "makespan", 10**9)
    umm("peers", *ON, "--json", "--no-crossover")
    ended_at(SimExecutor, "makespan", len(calls) + 20)
    result = json.loads(umm("peers", *ON, "--json").stdout)
    assert result["rows"] == full["rows"]
    assert result["stretches"] == []


def test_a_what_if_that_is_ended_early_shows_the_numbers_so_far(ended_at):
    calls = ended_at(SimExecutor, "makespan", 10**9)
    full = json.loads(umm("what-if", *ON, "--json").stdout)
    ended_at(SimExecutor, "makespan", len(calls) * 2 // 3)
    result = umm("what-if", *ON, "--json")
    results = json.loads(result.stdout)
    assert (result.exit_code, results["complete"]) == (130, False)
    assert results["choice"] == full["choice"]
    assert results["moves"]
    assert results["flips"] == full["flips"][: len(results["flips"])]
    assert len(results["flips"]) < len(full["flips"])


def test_a_what_if_that_has_found_no_change_yet_says_so(ended_at):
    """It announces no list that would be empty."""
    calls = ended_at(SimExecutor, "makespan", 10**9)
    umm("what-if", *ON, "--json")
    ended_at(SimExecutor, "makespan", len(calls) // 4)
    result = umm("what-if", *ON).stdout
    assert "Ended early." in result
    assert "So far no number changes the choice." in result
    assert "Another choice" not in result


def test_a_what_if_takes_no_layouts_of_a_chain():
    result = umm("what-if", "--chain", "mlp", "--layouts", "sequence")
    assert result.exit_code == 2
    assert "umm what-if chooses a chain's layouts itself; give --layouts to umm simulate" in result.stderr


@pytest.mark.parametrize("as_json", [(), ("--json",)])
@pytest.mark.parametrize(
    "asked",
    [
        ("what-if", *ON),
        ("what-if", *ON, "--map", "memory"),
    ],
)
def test_what_is_ended_amid_its_first_search_says_so_in_a_line(ended_at, asked, as_json):
    """The search has an answer by now, but not to the question."""
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
    results = json.loads(result.stdout)["measured"]
    assert (result.exit_code, results["iters"]) == (130, 3)


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
    assert result.stderr.splitlines()[0].endswith("s.db; the same command continues")
    assert first == 19  # of few points each is a task
    assert f" points: {first} were in " in umm(*asked).stderr


def test_a_collective_that_is_ended_early_shows_the_sizes_so_far(ended_at):
    ended_at(SimExecutor, "makespan", 3)
    result = umm("collective", "all-gather", "-b", "1K", "-e", "16K", "--algorithm", "ring", "--json")
    assert result.exit_code == 130, result.output
    assert [x["nbytes"] for x in json.loads(result.stdout)["rows"]] == [1024, 2048]


def test_a_limit_of_time_ends_in_0_with_the_best_so_far_and_says_that_it_cut(ended_at):
    """The time is over at the fifth simulation, whatever the host; a whole answer has no such line."""
    asked = ("search", *ON, "--seconds", 1000, "--top", 50)
    ended_at(SimExecutor, "makespan", 5, signal.SIGALRM)
    result = umm(*asked)
    assert result.exit_code == 0
    assert "Not proven" in result.stdout
    assert result.stderr.strip().endswith("stopped after 1000 s, as asked; what is shown is the best so far")
    ended_at(SimExecutor, "makespan", 5, signal.SIGALRM)
    cut = json.loads(umm(*asked, "--json").stdout)
    assert (cut["proven"], cut["stopped_after_s"]) == (False, 1000)
    ended_at(SimExecutor, "makespan", 10**9)
    assert "stopped_after_s" not in json.loads(umm("search", *ON, "--seconds", 1000, "--json").stdout)


def test_a_search_that_is_ended_while_points_are_bounded_shows_the_best_of_those_that_are(ended_at):
    from umm.space.bounds.combinations import Combinations

    ended_at(Combinations, "seconds", 12, signal.SIGTERM)
    result = umm("search", *ON, "--json")
    results = json.loads(result.stdout)
    assert (result.exit_code, results["proven"]) == (130, False)
    assert results["top"]
    assert results["simulated"] >= 1


@pytest.mark.parametrize("asked", [(), ("--top", 3), ("--jitter", "3%"), ("--json",)])
def test_a_search_that_is_ended_amid_what_follows_it_shows_the_best_that_it_proved(ended_at, asked):
    """At the first simulation after the search: of the front, of a range, of a draw."""
    calls = ended_at(SimExecutor, "makespan", 10**9)
    results = search(Space(m=64, n=48, k=32, ranks=4), "h100-8")
    ended_at(SimExecutor, "makespan", len(calls) + 1)
    result = umm("search", *ON, *asked)
    assert result.exit_code == 130
    assert "frontier" not in result.stdout
    assert "range" not in result.stdout
    if asked == ("--json",):
        assert json.loads(result.stdout)["proven"]
    else:
        assert result.stdout.count("Proven best") == 1
        assert result.stdout.count(f"on {results.machine}") == 1


SIGNALS = (signal.SIGINT, signal.SIGTERM)
LOG = Path(__file__).parents[1] / "machines/logs/vultr-b200.md"
LAYER = ("--machine", "h100-8", "--chain", "mlp", "--tokens", 64, "--hidden", 48, "--ffn", 64)
SEVERAL = ("--machine", "h100-8", "-m", "64,128,256", *SMALL[2:])
LONG = {
    "search": ("search", *ON, "--top", 3),
    "search --chain": ("search", *LAYER),
    "peers": ("peers", *ON),
    "peers --chain": ("peers", *LAYER),
    "peers --jitter": ("peers", *ON, "--no-crossover", "--jitter", "3%"),
    "what-if": ("what-if", *ON),
    "what-if --map": ("what-if", *SEVERAL, "--map", "memory"),
    "simulate": ("simulate", *ON, "--jitter", "3%"),
    "run": ("run", *SMALL, "--iters", 300, "--save-trace", "trace.json"),
    "compare": ("compare", *SMALL, "--iters", 300, "--html", "page.html"),
    "sweep": ("sweep", *ON, "--a", "all", "--b", "row,col", "--c", "row", "--pool", "none", "-o", "s.db"),
    "collective": ("collective", "all-gather", "-b", "1K", "-e", "16M", "-f", 2),
    "machine import": ("machine", "import", LOG, "mine.toml", "--from", "b200-8"),
    "machine calibrate": ("machine", "calibrate", "--quick", "--ranks", 2, "-o", "this.toml"),
}
DRAWN_S = {"machine calibrate": 6.0 if WHOLE else 2.0}
"""Seconds among which moments are drawn, of what is not waited for to its end."""


@cache
def duration(command):
    """Run a command to its end, once for all of its moments; its seconds."""
    began = time.perf_counter()
    assert umm(*LONG[command]).exit_code == 0
    return time.perf_counter() - began


class Moment:
    """A signal comes some seconds from now, unless its target is done before."""

    def __init__(self, seconds, number):
        self.seconds, self.number = seconds, number

    def __enter__(self):
        self._usual = signal.signal(signal.SIGALRM, self._come)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def _come(self, *_):
        if callable(signal.getsignal(self.number)):  # SIGTERM is, once the command has taken it
            signal.raise_signal(self.number)

    def __exit__(self, kind, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._usual)
        return kind is KeyboardInterrupt  # before the command began, or once it had ended


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # a file that nobody had yet
@pytest.mark.parametrize(
    ("command", "number"), [*product(LONG, SIGNALS)] if WHOLE else [*zip(LONG, cycle(SIGNALS))]
)
def test_what_is_ended_at_a_random_moment_answers_or_says_so_and_leaves_nothing_half_written(
    command, number, tmp_path, monkeypatch
):
    """Ten moments each, five of a minute's work; in the short form one by one signal, half of them --json."""
    monkeypatch.chdir(tmp_path)
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    drawn = random.Random(f"{command} {number}")
    longest = DRAWN_S.get(command) or duration(command)
    try:
        for at in range((5 if command in DRAWN_S else 10) if WHOLE else 1):
            for path in tmp_path.iterdir():
                path.unlink()
            as_json, result = (at + number) % 2 == 0, None
            with Moment(drawn.uniform(0.001, longest), number):
                result = umm(*LONG[command], *(["--json"] if as_json else []))
            assert_whole(tmp_path)
            if result is None:
                continue
            assert result.exit_code in (0, 130), (result.exception, result.output)
            assert "Traceback" not in result.output
            if result.exit_code:
                assert result.stderr.splitlines()[-1] == "error: interrupted"
            if as_json:
                assert all(json.loads(line) for line in result.stdout.splitlines())
    finally:
        signal.signal(signal.SIGINT, usual)


def assert_whole(folder):
    """Nothing partial is in a folder, and its files can be read."""
    for path in folder.iterdir():
        assert not path.name.startswith(PARTIAL), path
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".toml":
            assert umm("machine", "check", path).exit_code == 0
        elif path.suffix == ".html":
            assert path.read_text().rstrip().endswith("</html>")
        elif path.suffix == ".db":
            with Store(path) as store:
                frame = store.frame("all_runs")
            assert frame.config_id.nunique() == len(frame)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_amid_the_imports_of_a_command_ends_it_in_a_line(number):
    code = f"""
import importlib.abc, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "umm.cli.main":
            os.kill(os.getpid(), {int(number)})
sys.meta_path.insert(0, Finder())
from umm.cli import start
start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_a_signal_that_numpy_makes_a_type_error_of_ends_a_command_in_a_line(monkeypatch, ended_at):
    def compared(self, *args, **named):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise TypeError("Cannot compare structured arrays") from None

    monkeypatch.setattr(SimExecutor, "run", compared)
    done = umm("simulate", *ON)
    assert (done.exit_code, done.stdout, done.stderr) == (130, "", "error: interrupted\n")


def test_a_signal_amid_the_making_of_a_class_ends_a_command_in_a_line(monkeypatch, ended_at):
    """Python up to 3.11 makes a RuntimeError of it."""

    class Named:
        def __set_name__(self, owner, name):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(SimExecutor, "run", lambda *_: type("Made", (), {"x": Named()}))
    done = umm("simulate", *ON)
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (130, "", "error: interrupted")


def test_a_signal_amid_a_callback_comes_again(monkeypatch, ended_at):
    """An error raised by a callback is lost, with a traceback on stderr."""

    def waits(self, *args, **named):
        lock = type("Lock", (), {})()
        watched = weakref.ref(lock, lambda _: signal.raise_signal(signal.SIGINT))
        del lock
        time.sleep(10)
        return watched

    monkeypatch.setattr(SimExecutor, "run", waits)
    done = umm("simulate", *ON)
    assert (done.exit_code, done.stdout, done.stderr.strip()) == (130, "", "error: interrupted")


@pytest.mark.parametrize("at", ["SimExecutor.run", "main._fail", "main.flushed"])
def test_a_second_signal_ends_a_command_in_a_line(at):
    """Amid the work that the first began: results so far, a line of why, the last moments of the process."""
    code = f"""
import signal, sys, time, umm.cli
import umm.cli.main as main
from umm_sim.executor import SimExecutor
main.SECOND_S = 0.0
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's & ignores it
def twice(*_):
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        time.sleep(0.01)
        signal.raise_signal(signal.SIGINT)
def before(usual):
    def does(*asked):
        signal.raise_signal(signal.SIGINT)
        return usual(*asked)
    return does
SimExecutor.run = before(SimExecutor.run)
if {at!r} == "SimExecutor.run":
    SimExecutor.run = twice
elif {at!r} == "main._fail":
    main._fail = before(main._fail)
else:
    main._ended = lambda **_: 130
    main.flushed = before(main.flushed)
sys.argv = ["umm", "simulate", *{list(map(str, ON))!r}]
umm.cli.start()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "error: interrupted")

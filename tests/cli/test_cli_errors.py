"""Bad input: exit code 2 and one line that names the value, the reason, and a remedy."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import MLP1, SMALL, good, umm
from machine_text import GOOD, GRAPH, SWITCH, edges, write

UMM = Path(sys.executable).with_name("umm")


def refused(*args, env=None):
    """Run a command that must end in exit code 2 with one line on stderr; the line without its prefix."""
    result = umm(*args, env=env)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("error: ").rstrip("\n")


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (["--a", "col@3"], "8 ranks cannot hold 3 equal replicas; choose from 1, 2, 4, 8"),
        (["-m", "0"], "m = 0 is not a matrix dimension; it must be a whole number ≥ 1"),
        (["-m", "-1"], "Invalid value for '-m': '-1' is not a size"),
        (
            ["-m", "9" * 30],
            "is too large to count with; 2mnk and the elements of each",
        ),
        (["-k", "12.5"], "Invalid value for '-k': '12.5' is not a size"),
        (["--machine", "h100"], "unknown machine 'h100'; did you mean 'h100-8'?"),
        (["--machine", "no/such.toml"], "no such machine file: no/such.toml; known machines: "),
        (["--a", "rows"], "'rows' is not a layout; write row, col, 2d, "),
        (
            ["-m", "256Mi", "--a", "cyclic:1x1:8x1"],
            "tiles of 1 cut 268435456 into more parts than 16,777,216",
        ),
        (["-m", "8K", "-k", "8K", "--a", "cyclic:1x1:8x1"], "tiles in 1 replicas are more than 16,777,216"),
        (["--b", "2d:3x4"], "2d:3x4: process grid 3x4 has 12 places, but a replica has 8 ranks"),
        (["--dtype", "float23"], "dtype 'float23' is unknown; choose from float64, "),
        (
            ["--ranks", "9"],
            "h100-8 cannot hold 9 ranks: it has 8 devices for 1 rank each; choose from 1 to 8",
        ),
        (
            ["--ranks", "many"],
            "Invalid value for '--ranks': 'many' is not a number of ranks; write it like 8, or 8,16,32",
        ),
        (["--stationary", "D"], "stationary"),
        (["--policy", "best"], "policy 'best' is unknown; choose from direct"),
        (["--prefetch", "-1"], "prefetch = -1 is not possible; it must be a whole number ≥ 0 and ≤ 4096"),
        (["--preset", "mlp3"], "Invalid value for '--preset': 'mlp3' is not one of 'mlp1', 'mlp2'."),
        (["--stationry", "C"], "No such option"),
        (["--schedule", "x.json", "--a", "col"], "the schedule in x.json already decides "),
        (["extra"], "'extra' is the size of no --einsum; leave it out, or give one"),
        (["--schedule", "a\0b"], "'a\\x00b' cannot name a file; write a path"),
        (["--html", "\ud800"], "'\\ud800' cannot name a file; write a path"),
    ],
)
def test_a_bad_flag_is_answered_in_one_line(args, result):
    assert result in refused("simulate", *SMALL, *args)


def test_one_flag_by_two_names_is_refused(tmp_path):
    path = tmp_path / "umm.toml"
    path.write_text('b = "1MiB"\nbegin = "2MiB"\n')
    result = "'begin' is the same flag as another key; keep one"
    assert refused("collective", "all-gather", "--config", path).endswith(result)


def test_a_long_bad_value_is_cut(tmp_path):
    assert len(refused("simulate", *SMALL, "-m", "x" * 5000)) < 250
    short, long = (refused("simulate", *SMALL, "--machine", "x" * count) for count in (1, 5000))
    assert len(long) < len(short) + 150  # both list all machines
    assert len(refused("simulate", *SMALL, "--a", "x" * 5000)) < 400
    assert len(refused("simulate", *SMALL, "--stationary", "x" * 99_000)) < 400


def test_results_in_one_file_or_behind_links_in_a_circle_are_refused_first(tmp_path):
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop.name)
    assert "Too many levels of symbolic links" in refused("simulate", *SMALL, "--save-trace", loop)
    assert "Too many levels of symbolic links" in refused("simulate", *SMALL, "-o", loop)
    asked = ("sweep", *SMALL, "-o", tmp_path / "s.csv", "--export", tmp_path / "s.csv")
    assert "cannot write two results" in refused(*asked)
    assert "is a directory" in refused("simulate", *SMALL, "--html", tmp_path / "..")


def test_the_folder_of_an_export_is_looked_for_before_the_sweep(tmp_path):
    asked = ("sweep", *SMALL, "-o", tmp_path / "s.db", "--export")
    assert "there is no folder" in refused(*asked, tmp_path / "none" / "s.csv")
    assert "neither .csv nor .parquet" in refused(*asked, tmp_path / "s.xlsx")
    assert not (tmp_path / "s.db").exists()


def test_what_files_say_is_shown_and_not_obeyed(tmp_path):
    """A description that clears the screen and a source that turns text around."""
    text = GOOD.replace("four devices", "four \\u001b[2J devices", 1).replace('"test"', '"te\\u202est"', 1)
    path = write(tmp_path, text + SWITCH)
    for args in (["show", path], ["show", path, "--json"]):
        shown = good("machine", *args)
        assert not set("\x1b\u202e") & set(shown)
        assert "\\x1b[2J" in shown
    bad = tmp_path / "\x1b[2J.toml"
    bad.write_text("x")
    assert "\\x1b[2J" in refused("machine", "check", bad).replace("\n", "")


def test_a_missing_dimension_is_named():
    result = "the problem lacks -n and -k; give -m, -n and -k, or --preset mlp1"
    assert refused("simulate", "-m", 8) == result


def test_an_unknown_command_is_answered_with_the_nearest():
    assert refused("simulat") == "there is no command 'simulat'; did you mean 'simulate'? (see 'umm --help')"


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("machne = 'pvc-12'", "'machne' is not a flag of umm simulate; did you mean 'machine'?"),
        ("m = [1]", "'m' must be a string or a number, not [1]"),
        ("m = 2.5", "'2.5' is not a size"),
        ("m = ", "is not TOML"),
        ("m = true", "'m' must be a string or a number, not True"),
        ("prefetch = true", "'prefetch' must be a string or a number, not True"),
        ("json = 1", "'json' must be true or false, not 1"),
        ('json = "maybe"', "'json' must be true or false, not 'maybe'"),
        ('machine = "a\\u0000b"', "has a NUL, which no value has"),
        ('output = "a\\u0000b"', "has a NUL, which no value has"),
        (f"m = {'9' * 5000}", "a whole number beyond 64 bits"),
        ("a = " + "[" * 20_000, "nests too deep"),
        ("ranks = 2.0", "'2.0' is not a number of ranks"),
    ],
)
def test_a_bad_config_file_is_answered_in_one_line(tmp_path, text, result):
    path = tmp_path / "umm.toml"
    path.write_text(text)
    assert result in refused("simulate", "--config", path)
    assert refused("simulate", "--config", tmp_path) != ""
    assert "No such file" in refused("simulate", "--config", tmp_path / "none.toml")


@pytest.fixture
def saved(tmp_path):
    """A saved schedule of a small problem."""
    path = tmp_path / "x.json"
    good("simulate", *SMALL, "--ranks", 4, "--save-schedule", path)
    return path


def test_a_schedule_whose_k_does_not_match_its_actions_is_refused(saved):
    """First k alone becomes 39, then A and B with it: slices cut from k = 40 do not fit either."""
    data = json.loads(saved.read_text())
    data["problem"]["k"] = 39
    saved.write_text(json.dumps(data))
    for command in ("simulate", "run"):
        assert "the first tensors must be the program's own: A, B, C" in refused(command, "--schedule", saved)
    for tensor in data["tensors"]:
        tensor["shape"] = [39 if size == 40 else size for size in tensor["shape"]]
    saved.write_text(json.dumps(data))
    assert "leaves its tensor" in refused("simulate", "--schedule", saved)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_a_truncated_schedule_file_is_refused(tmp_path, share, suffix):
    path = tmp_path / f"x{suffix}"
    good("simulate", *SMALL, "--save-schedule", path)
    full = path.read_bytes()
    path.write_bytes(full[: int(share * len(full))])
    assert str(path) in refused("simulate", "--schedule", path)


def test_a_file_that_is_none_is_named(tmp_path):
    assert refused("simulate", "--schedule", tmp_path / "none.json").startswith("cannot read ")
    assert "no such folder" not in refused("simulate", *SMALL, "--schedule", tmp_path)
    assert refused("compare", tmp_path / "a.json", tmp_path / "b.json").startswith("cannot read ")
    assert refused("compare", tmp_path / "a.json").startswith("1 trace is not enough to compare")


def test_a_result_that_cannot_be_written_ends_in_2(tmp_path):
    result = umm("simulate", *SMALL, "--save-schedule", tmp_path / "no" / "x.json")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: cannot write ")
    assert result.stderr.count("\n") == 1


def test_a_topology_with_an_unreachable_pair_is_refused(tmp_path):
    two_islands = edges("g0-s", "g1-s", "g2-t", "g3-t")
    path = write(tmp_path, GOOD + GRAPH.replace("ROUTES", "") + two_islands)
    result = umm("machine", "check", path)
    assert result.exit_code == 2
    output = "error: mine.toml: no route from {} to {}; add the links between them\n"
    islands = ("g0", "g2"), ("g0", "g3"), ("g1", "g2"), ("g1", "g3")
    both = sorted([*islands, *((b, a) for a, b in islands)])
    assert result.stderr == "".join(output.format(*pair) for pair in both)
    assert "no route from g" in refused("simulate", *SMALL, "--machine", path)
    assert "no route from g" in refused("machine", "show", path)


def test_a_topology_with_an_unknown_key_is_answered_with_the_nearest(tmp_path):
    path = write(tmp_path, GOOD.replace("copy_engines", "copy_engine") + SWITCH)
    result = "mine.toml: unknown key 'devices.copy_engine'; did you mean 'copy_engines'?"
    assert refused("machine", "check", path) == result
    assert refused("simulate", *SMALL, "--machine", path) == result


def test_machine_check_goes_on_after_a_bad_file(tmp_path):
    result = umm("machine", "check", tmp_path / "none.toml", "h100-8", "h100-9")
    assert result.exit_code == 2
    assert result.stdout == "h100-8: ok, 8 devices, 24 links\n"
    assert result.stderr.count("error: ") == result.stderr.count("\n") == 2


def test_an_unknown_executor_lists_those_there_are():
    assert refused("run", *SMALL, "--executor", "gpu") == (
        "executor 'gpu' is unknown; choose from cuda, mpi, numpy, nvshmem, opencl, sim, simpy"
    )


def test_an_executor_that_cannot_run_here_ends_in_5_with_the_line_that_fixes_it(monkeypatch):
    from umm_hw.numpy.executor import NumpyExecutor

    monkeypatch.setattr(NumpyExecutor, "available", lambda self: "no abacus here; pip install abacus")
    result = umm("run", *SMALL)
    assert (result.exit_code, result.stderr) == (5, "error: no abacus here; pip install abacus\n")


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (["--prefetch", "1,x"], "--prefetch: 'x' is not a whole number; write it like 2 or 1,2,4"),
        (["--reuse", "maybe"], "--reuse 'maybe' is unknown; choose from on, none"),
        (["--memory", "plenty"], "memory 'plenty' is not a budget; write it like 2x or 16GiB"),
        (["--stationary", "auto"], "stationary matrix 'auto' is unknown; choose from A, B, C"),
        (["--a", "row,diagonal"], "'diagonal' is not a layout; write row, "),
        (["--top", "0"], "top = 0 is not possible"),
    ],
)
def test_a_bad_axis_of_a_search_is_answered_in_one_line(args, result):
    assert result in refused("search", *SMALL, *args)


@pytest.mark.parametrize("name", ["simulate", "search", "peers"])
def test_draws_of_no_noise_are_refused(name):
    """A seed alone draws nothing, and its answer would look as if it did."""
    needs = "is of noise; add --jitter or --straggler, or leave it out"
    assert f"--draws {needs}" in refused(name, *SMALL, "--draws", 9)
    assert f"--seed {needs}" in refused(name, *SMALL, "--seed", 1)
    if name != "peers":
        assert umm(name, *SMALL, "--seed", 1, "--draws", 2, "--jitter", "3%").exit_code == 0


def test_the_seed_of_a_run_without_delays_is_refused():
    result = refused("run", *SMALL, "--executor", "numpy", "--seed", 1)
    assert "--seed is of --delay; add it, or leave out the seed" in result


MLP = ["--chain", "mlp", "--hidden", 64, "--ffn", 96, "--tokens", 32, "--ranks", 4]


@pytest.mark.parametrize(
    ("args", "result"),
    [
        ([*MLP, "--movement", "Z=chunks"], "no multiply of chain mlp writes 'Z'; choose from H, Y"),
        (
            [*MLP, "--movement", "H=fast"],
            "movement 'fast' of H is unknown; choose from auto, flat, two-level",
        ),
        ([*SMALL, "--movement", "H=chunks"], "movement 'H=chunks' is unknown; choose from auto, flat"),
    ],
)
def test_a_movement_of_no_multiply_is_answered_in_one_line(args, result):
    assert result in refused("simulate", *args)


def test_no_runs_at_all_are_refused():
    assert "--iters ≥ 1" in refused("run", *SMALL, "--iters", 0)


def test_an_interrupt_ends_in_130_with_one_line(monkeypatch):
    from umm_hw.numpy.executor import NumpyExecutor

    def interrupted(self, schedule, operands=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(NumpyExecutor, "run", interrupted)
    result = umm("run", *SMALL)
    assert (result.exit_code, result.stderr.strip()) == (130, "error: interrupted")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_shows_the_best_so_far_and_ends_in_130(monkeypatch, number):
    """Ctrl-C or SIGTERM at the fourth simulation: three makespans are shown, and nothing is proven."""
    from umm_sim.executor import SimExecutor

    simulate, done = SimExecutor.makespan, []

    def interrupted(self, schedule):
        if len(done) == 3:
            signal.raise_signal(number)
        done.append(simulate(self, schedule))
        return done[-1]

    monkeypatch.setattr(SimExecutor, "makespan", interrupted)
    asked = ("search", *SMALL, "--ranks", 4, "--memory", "none")
    result = umm(*asked)
    assert (result.exit_code, result.stderr.strip()) == (130, "error: interrupted")
    assert "Not proven: " in result.stdout
    done.clear()
    result = umm(*asked, "--json")
    results = json.loads(result.stdout)
    assert (result.exit_code, results["proven"], len(done)) == (130, False, 3)
    assert 3 <= len(results["top"]) <= results["simulated"]
    assert results["top"][0]["makespan_s"] == min(done)
    assert results["pruned"] + results["simulated"] < results["distinct"]
    done[:] = [1, 2, 3]
    result = umm(*asked)
    assert (result.exit_code, result.stdout, result.stderr.strip()) == (130, "", "error: interrupted")


def test_a_multiply_that_does_not_fit_this_host_ends_in_one_line():
    result = umm("run", "-m", "8Mi", "-n", "8Mi", "-k", 8, "--iters", 1)
    assert result.exit_code == 3
    assert result.stderr.startswith("error: this would take ")
    assert result.stderr.count("\n") == 1


# As people start it: another process -------------------------------------------------------------


def process(*args, **extra):
    return subprocess.run([UMM, *map(str, args)], capture_output=True, text=True, timeout=60, **extra)


def test_the_installed_command_answers_and_fails_in_one_line():
    done = process("simulate", "--machine", "pvc-12", *MLP1, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["schema"] == 1
    done = process("simulate", *SMALL, "--c", "row@3")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


def test_help_imports_nothing_heavy():
    script = "import sys; from umm.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    script += "print('loaded', *sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    loaded = set(done.stderr.split())
    assert "umm.cli.main" in loaded
    assert not loaded & {"numpy", "pandas", "plotly", "simpy", "pydantic", "networkx", "rich"}


def test_a_closed_pipe_is_no_traceback():
    done = subprocess.run(
        f"'{UMM}' machine show pvc-12 | head -1", shell=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("pvc-12\n", "")


def test_a_terminal_gets_colour_unless_no_color():
    """FORCE_COLOR is how rich is asked to take a pipe for a terminal."""
    env = os.environ | {"FORCE_COLOR": "1"}
    assert "\x1b[" in process("tiles", *SMALL, env=env).stdout
    assert "\x1b" not in process("tiles", *SMALL, env=env | {"NO_COLOR": "1"}).stdout
    assert "\x1b" not in process("tiles", *SMALL, "--no-color", env=env).stdout


@pytest.mark.parametrize(
    "args",
    [
        ("search", "--chain", "mlp", "--hidden", "64", "--ffn", "64", "--tokens", "64", "--optimizer"),
        ("what-if", *SMALL, "--margin"),
        ("what-if", *SMALL, "--reach"),
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_a_number_that_is_none_is_refused(args, number):
    assert refused(*args, number).startswith(f"Invalid value for '{args[-1]}': ")


@pytest.mark.parametrize(
    ("args", "result"),
    [
        (("run", *SMALL, "--option", "x=" + "9" * 5000), "unexpected keyword argument 'x'"),
        (("run", *SMALL, "--warmup", 10**22), "not in the range"),
        (
            ("simulate", *SMALL, "--set", "fabric.bandwidth=x2", "--set", "fabric.bandwidth=x3"),
            "is set twice",
        ),
        (
            ("simulate", *SMALL, "--set", "devices.memory=16"),
            "'16' has no unit; write it like 16 GiB, or 16 B",
        ),
    ],
)
def test_what_was_a_traceback_or_was_taken_silently_is_one_line(args, result):
    assert result in refused(*args)


def test_a_size_of_the_terminal_that_is_no_number_is_left_out(monkeypatch):
    monkeypatch.setenv("LINES", "²")
    assert umm("machine", "list").exit_code == 0


def test_a_long_mistake_of_a_machine_file_is_shortened(tmp_path):
    (tmp_path / "long.toml").write_text(f"schema = 1\n[{'x' * 5000}]\ny = 1\n")
    result = umm("machine", "check", tmp_path / "long.toml")
    assert result.exit_code == 2
    assert max(map(len, result.stderr.splitlines())) < 600


def test_the_demo_says_at_once_that_its_page_cannot_be_written(tmp_path):
    """In a read-only checkout it is refused before any work, without a traceback."""
    (tmp_path / "build").write_text("no folder")
    result = umm("demo", "--html", tmp_path / "build/demo.html")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1

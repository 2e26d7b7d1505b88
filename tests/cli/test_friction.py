"""Traps for users: mistakes shown in one line, pipes that end early, completion, the keys of JSON."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from command import good, record
from command import umm as command
from model_configs import BASE

import umm
from umm.errors import InputError
from umm.program.models import find_model
from umm.step.record import load_question
from umm.step.step import predict
from umm_sim.executor import SimExecutor

ROOT = Path(__file__).parents[2]
SMALL = ["-m", 64, "-n", 48, "-k", 40, "--ranks", 4]
ONE = ["--a", "row", "--b", "col", "--c", "row"]
ROWS = ["--a", "row", "--b", "row", "--c", "row"]


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (["--a", "row,col"], "'row,col' is a list; lists are axes of a search or a sweep"),
        (["--a", "cyclic:16x16"], "lacks its process grid; .* as in cyclic:16x16:2x4"),
        (["--m", 64], "there is no option --m; write -m"),
    ],
)
def test_what_is_meant_otherwise_is_told(asked, says):
    result = command("simulate", *SMALL, *asked)
    assert result.exit_code == 2
    assert re.search(says, result.stderr)


PROBLEM = umm.Problem(m=8, n=8, k=8, ranks=4)
LAYOUT = umm.Layout.parse("row", (8, 8), 4)
SPACE = umm.Space(m=8, n=8, k=8)
SIZES = {"tokens": 8, "hidden": 8, "ffn": 8}
MLP, MIXTURE = umm.chain("mlp", **SIZES), {**SIZES, "experts": 2, "top_k": 1}


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: umm.Problem(m=8, n=8, k=8, a="rows"), "'rows' is not a layout"),
        (lambda: umm.Problem(m="8", n=8, k=8), "m = '8' is not a matrix dimension"),
        (lambda: umm.Problem(m=8, n=8, k=8, a=3), "a of a Problem takes a text such as col@2"),
        (lambda: umm.search(PROBLEM, "h100-8"), "search takes a Space, such as umm.Space"),
        (lambda: umm.sensitivity(PROBLEM, "h100-8"), "sensitivity takes a Space"),
        (lambda: umm.sweep(PROBLEM, "h100-8", "s.db"), "sweep takes a Space or several"),
        (lambda: umm.run("foo"), "run takes a Schedule; make one with umm.schedule"),
        (lambda: umm.schedule("foo", "h100-8"), "schedule takes a Problem or a chain"),
        (lambda: umm.schedule(PROBLEM, 3), "machine takes a name or the path"),
        (lambda: umm.compare("a", "b"), "compare takes two traces"),
        (lambda: umm.redistribute("row", LAYOUT, machine="h100-8"), "redistribute takes two Layouts"),
        (lambda: umm.Problem(m=8, n=8, k=8, ranks=2, given={"a": 1}), "given a takes a text such as col@2"),
        (lambda: umm.schedule(PROBLEM, "h100-8", stationary=None), "keeps A, B or C in place, not None"),
        (lambda: umm.schedule(PROBLEM, "h100-8", algorithm=None), "algorithm None is unknown"),
        (lambda: umm.Layout.parse("row", (8.0, 8), 4), r"needs a shape and ranks such as \(64, 48\) and 8"),
        (lambda: umm.Layout.parse("row", (8, 8), "4"), "needs a shape and ranks"),
        (lambda: umm.search(umm.Space(m=8, n=8, k=8), "h100-8", top="3"), "top = '3' is not possible"),
        (lambda: umm.search(umm.Space(m=8, n=8, k=8), "h100-8", memory=float("nan")), "memory = nan is not"),
        (lambda: umm.sweep(umm.Space(m=8, n=8, k=8), "h100-8", umm.Store), "sweep takes the path of a store"),
        (lambda: umm.peers(None, "h100-8"), "peers takes a Problem or a chain"),
        (lambda: umm.peers(PROBLEM, "h100-8", ranks=1.5), "ranks = 1.5 is not possible"),
        (lambda: umm.peers(PROBLEM, "h100-8", ranks=0), "ranks = 0 is not possible"),
        (lambda: umm.peers(PROBLEM, "h100-8", ranks=7), "ranks, not 7; leave out ranks"),
        (lambda: umm.peers(PROBLEM, "h100-8", crossover="no"), "crossover takes True, False or None"),
        (lambda: umm.peers(PROBLEM, "h100-8", at=5), "at takes a function, not 5, a int"),
        (lambda: umm.peers(PROBLEM, "h100-8", at=lambda n: n, tokens="32"), "tokens = '32' is not possible"),
        (lambda: umm.peers(PROBLEM, "h100-8", stack=3), "stack takes a Stack of layers"),
        (lambda: umm.peers(PROBLEM, "h100-8", progress="x"), "progress takes a function"),
        (lambda: umm.peers(PROBLEM, "h100-8", ended=[]), "ended takes a function"),
        (lambda: umm.chain(None), "chain takes a name: mlp, gated-mlp"),
        (lambda: umm.op_list(None), "op_list takes a Problem"),
        (lambda: umm.op_list(umm.Problem(m=8, n=8, k=8)), "does not say on how many ranks it runs"),
        (lambda: umm.model_cost(None), "model_cost takes a Schedule"),
        (lambda: umm.Schedule.from_json(b"{}"), "from_json takes a text"),
        (lambda: umm.machine("h100-8", {"memory": 40}), "setting memory takes a text such as '40 GB'"),
        (lambda: umm.machine("h100-8", kernels="vllm", graphs="no"), "graphs takes True or False, not 'no'"),
        (lambda: umm.collective("all-gather", nbytes=8, machine="h100-8", ranks="4"), "ranks takes a whole"),
        (lambda: umm.collective("all-reduce", nbytes=8, machine="h100-8", algorithm=5), "algorithm 5 is unk"),
        (lambda: umm.collective("all-reduce", nbytes=8, machine="h100-8", chunks="a"), "'a' chunks are not"),
        (lambda: umm.search(SPACE, "h100-8", seconds="a"), "seconds = 'a' is not possible; it must be a num"),
        (lambda: umm.search(SPACE, "h100-8", seconds=float("nan")), "seconds = nan is not possible"),
        (lambda: umm.search(SPACE, "h100-8", most=-1), "most = -1 is not possible"),
        (lambda: umm.sensitivity(SPACE, "h100-8", margin="a"), "margin = 'a' is not possible"),
        (lambda: umm.sensitivity(SPACE, "h100-8", reach="a"), "reach = 'a' is not possible"),
        (lambda: umm.sweep(SPACE, 5, "s.db"), "sweep takes a machine, its name, or several, not 5"),
        (lambda: umm.sweep(SPACE, "h100-8", "s.db", jobs="a"), "jobs = 'a' is not possible"),
        (lambda: umm.Space(m=8, n=8, k=8, state=float("nan")), "nan bytes of optimizer state"),
        (lambda: umm.Space(m=8, n=8, k=8, equal_replication="no"), "equal_replication = 'no' is not poss"),
        (lambda: umm.schedule(MLP, "h100-8", layouts=5), "layouts takes a scheme such as tp8-dp4, or a text"),
        (lambda: umm.schedule(MLP, "h100-8", layouts={5: "row"}), "has no tensor 5; choose from X, Y"),
        (lambda: umm.schedule(MLP, "h100-8", stationary={5: "A"}), "5; choose from"),
        (lambda: umm.schedule(PROBLEM, "h100-8", algorithm=["summa"]), r"algorithm \['summa'\] is unknown"),
        (lambda: umm.schedule(PROBLEM, "h100-8", ways=5), "ways takes a way for some of A, B and C"),
        (lambda: umm.schedule(PROBLEM, "h100-8", ways={"a": "gets"}), "ways has no matrix 'a'; choose"),
        (lambda: umm.chain("mlp", **SIZES, backward="no"), "backward = 'no' is not possible; it must be"),
        (lambda: umm.chain("mlp", **SIZES, decode="no"), "decode = 'no' is not possible; it must be True or"),
        (lambda: umm.chain("mlp", **SIZES, dropout="a"), "dropout = 'a' is not possible"),
        (lambda: umm.chain("mlp", **SIZES, weights=5), "weights of 5 are not possible; choose fp8"),
        (lambda: umm.chain("mlp", **SIZES, weights={"W1": "fp8"}), "no part 'W1'; choose from attention"),
        (lambda: umm.chain("attention", tokens=8, hidden=8, heads=2, cache=5), "a cache of 5 is not"),
        (lambda: umm.chain("moe", **MIXTURE, routing=5), "routing takes a rule such as"),
        (lambda: umm.chain("moe", **MIXTURE, routing_seed="a"), "routing_seed = 'a' is not"),
        (lambda: umm.chain("moe", **MIXTURE, capacity="a"), "capacity = 'a' is not poss"),
        (lambda: umm.chain("mlp", tokens=8, model=5), "model takes a name such as llama-3-8b"),
        (lambda: umm.chain("mlp", tokens=8, model="llama-3-8b", layer="a"), "layer = 'a' is not possible"),
        (lambda: umm.op_list(PROBLEM, rank=99), "rank 99 is not one of the ranks 0 to"),
        (lambda: umm.run(umm.schedule(PROBLEM, "h100-8"), "numpy", 5), "operands takes arrays in the order"),
        (lambda: umm.Store(5), "Store takes the path of a store, such as runs.db, not 5"),
        (lambda: umm.load(5), "load takes the folder of a checkpoint, not 5"),
        (lambda: umm.Problem(m=8, n=8, k=8, dtype="x"), "dtype 'x' is unknown"),
    ],
)
def test_a_wrong_type_is_refused_where_it_is_given(call, says):
    with pytest.raises(InputError, match=says):
        call()


def test_figures_are_there_by_name():
    assert callable(umm.figures.timeline)


@pytest.mark.parametrize(
    "asked", [["machine", "show", "pvc-12"], ["tiles", *SMALL], ["machine", "list", "--json"]]
)
def test_a_reader_who_leaves_early_is_no_failure(asked):
    code = "from umm.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", code, *map(str, asked)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        errors = process.stderr.read()
        assert (process.wait(), errors) == (0, b"")


@pytest.mark.parametrize(
    ("words", "result"),
    [
        ("simulate --machine h1", "h100-8"),
        ("sweep --dtype bf", None),
        ("simulate --dtype bf", "bfloat16"),
        ("search --policy direct,g", "direct,greedy"),
        ("run --executor num", "numpy"),
        ("simulate --algorithm cann", "cannon"),
    ],
)
def test_names_are_completed(words, result):
    count = len(words.split())
    env = os.environ | {
        "_UMM_COMPLETE": "bash_complete",
        "COMP_WORDS": f"umm {words}",
        "COMP_CWORD": str(count),
    }
    code = "from umm.cli.main import main; main()"
    output = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    names = [line.partition(",")[2] for line in output.stdout.split()]
    assert result in names if result else "bfloat16" in names


def test_a_comparison_says_ratio_of_what_to_what_in_one_unit():
    text = good("compare", *SMALL, "--iters", 1)
    assert re.search(r"sim \((ns|µs|ms)\) +numpy \(\1\) +sim / numpy", text)


def test_the_guide_has_the_keys_of_every_command():
    guide = (ROOT / "docs/guides/command-line.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", guide, re.MULTILINE))
    for name, asked in {
        "simulate": SMALL,
        "search": [*SMALL, *ONE, "--top", 1],
        "run": [*SMALL, "--iters", 1],
        "compare": [*SMALL, "--iters", 1],
        "collective": ["all-gather", "-b", "1M", "-e", "1M"],
        "tiles": SMALL,
        "doctor": [],
    }.items():
        keys = set(record(name, *asked)) - {"schema", "command"}
        told = set(re.findall(r"`(\w+)`", rows[name].partition("; ")[0]))
        assert told == keys, name
    assert set(re.findall(r"`(\w+)`", rows["predicted"])) == set(record("simulate", *SMALL)["predicted"])


def test_the_first_page_lists_every_command_and_leads_to_the_guides_of_which_there_are_at_most_thirteen():
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    index = (ROOT / "docs/guides/index.md").read_text(encoding="utf-8")
    guides = {x.name for x in (ROOT / "docs/guides").glob("*.md")} - {"index.md"}
    assert "docs/guides/index.md" in page
    assert not [name for name in guides if f"({name})" not in index]
    assert len(guides) <= 13
    from umm.cli.main import COMMANDS

    assert not [name for name in COMMANDS if f"umm {name}" not in page and f"`{name}`" not in page]


def test_in_a_pipe_progress_is_a_line_now_and_then(monkeypatch):
    """A line every hundredth of a second in place of ten: how many of how many, and a rate."""
    from umm.cli.printed import output

    monkeypatch.setattr(output, "EVERY_S", 0.01)
    asked = ["-m", 1024, "-n", 3072, "-k", 768, "--machine", "pvc-12"]
    result = command("search", *asked)
    assert result.exit_code == 0
    assert re.search(r"^searching: [\d,]+ of [\d,]+", result.stderr, re.MULTILINE)
    assert "searching" not in result.stdout
    assert command("search", *asked, "--quiet").stderr == ""


def test_a_long_simulation_says_what_it_is_at(monkeypatch):
    """Of 1,024 ranks it takes half a minute, so it must be told before it begins; here of 32."""
    from umm.cli.printed import output

    monkeypatch.setattr(output, "EVERY_S", 0.01)
    run, waits = SimExecutor.run, iter([0.1])  # the first alone: the range of the makespan takes many more
    monkeypatch.setattr(SimExecutor, "run", lambda sim, x: time.sleep(next(waits, 0)) or run(sim, x))
    asked = ["-m", 1024, "-n", 1024, "-k", 1024, "--ranks", 32, "--machine", "localhost", *ROWS]
    result = command("simulate", *asked)
    assert result.exit_code == 0
    assert re.search(r"^simulating \d{4} actions: working$", result.stderr, re.MULTILINE)


@pytest.mark.parametrize(
    ("asked", "stages"),
    [
        (["what-if", "--reach", 2], ["the best choice", "half and twice the launch", "less launch"]),
        (["what-if", "--map", "memory"], ["m = 64"]),
        (["what-if", "--map", "fabric*bandwidth", "--reach", 2], ["m = 64"]),
        (
            ["peers"],
            ["2.5d", "in place", "redistribute", "any layouts", "where the verdict changes, m = 8: in place"],
        ),
    ],
)
def test_peers_and_what_if_say_what_they_look_at_and_how_far_they_are(monkeypatch, asked, stages):
    """Each stage before its first schedule is lowered, which may take minutes for many ranks."""
    from umm.cli.printed import output

    reports, simulated = [], []

    @contextmanager
    def reporting(_):
        yield lambda what, done, total: reports.append((what, done, total, len(simulated)))

    makespan = SimExecutor.makespan
    monkeypatch.setattr(output.Output, "reporting", reporting)
    monkeypatch.setattr(SimExecutor, "makespan", lambda sim, x: simulated.append(x) or makespan(sim, x))
    assert command(*asked, "-m", 64, "-n", 96, "-k", 48, *ONE, "--quiet").exit_code == 0
    assert reports[0][3] == 0
    assert simulated
    assert all(done <= total for _, done, total, _ in reports)
    assert {re.split(r"; best so far |, \d+ of", what)[0] for what, *_ in reports} >= set(stages)


def test_a_stage_of_unknown_length_follows_one_that_has_one(monkeypatch, capsys):
    from umm.cli.printed import output

    monkeypatch.setattr(output, "EVERY_S", 0.01)
    result, end = "", time.monotonic() + 30
    with output.Output().reporting() as report:
        for stage, line in (
            (("bounds", 3, 7), "bounds: 3 of 7"),
            (("memory", 0, 0), "memory: working, for 1 s"),
        ):
            report(*stage)
            while line not in result and time.monotonic() < end:
                time.sleep(0.01)
                result += capsys.readouterr().err
            assert line in result
    assert "bounds" not in result[result.index("memory") :]


def test_a_mixture_names_the_chain_that_computes_it():
    asked = ["--model", "qwen3-235b-a22b", "--tokens", "1K", "--dtype", "bf16"]
    result = command("simulate", "--machine", "h100-8", "--chain", "transformer-layer", *asked)
    assert result.exit_code == 2
    assert "qwen3-235b-a22b is a mixture of 128 experts: use --chain moe-layer" in result.stderr


def test_a_scheme_of_a_mixture_for_other_ranks_is_refused_by_its_name_before_anything_is_simulated():
    """Of deepseek-v3's layers three are dense; the scheme is of the others."""
    asked = [
        "--model",
        "deepseek-v3",
        "--nodes",
        8,
        "--tokens",
        "64K",
        "--layers",
        61,
        "--layouts",
        "ep64-fsdp64",
    ]
    result = command("simulate", "--machine", "h100-8", *asked)
    assert result.exit_code == 2
    assert "ep64-fsdp64 is for 4096 ranks, not for 64; write ep64 or ep8-fsdp8" in result.stderr


def test_a_model_without_a_type_is_noted_to_be_in_float32():
    """A layer takes ten times as long as in bfloat16; the README's peers once did."""
    asked = ["--machine", "h100-8", "--model", "llama-3-8b", "--tokens", "1K", "--layers", 1]
    note = "elements are float32; most models have bfloat16: --dtype bf16"
    assert note in command("simulate", *asked, "--layouts", "data").stderr
    for more in (["--dtype", "float32"], ["--dtype", "bf16"], ["--quiet"]):
        assert note not in command("simulate", *asked, "--layouts", "data", *more).stderr
    assert note not in command("tiles", "--model", "llama-3-8b", "--tokens", 64).stderr


def test_a_topology_alone_says_what_to_add(tmp_path):
    node = tmp_path / "topo.txt"
    node.write_text("\tGPU0\tGPU1\nGPU0\t X \tNV18\nGPU1\tNV18\t X \n")
    result = command("machine", "import", node)
    assert result.exit_code == 2
    assert "a topology gives links only: add --from MACHINE for the rest, and a NAME" in result.stderr


def test_a_table_that_is_too_wide_keeps_numbers_with_their_units():
    """Six nodes with prices: no line is over 80 columns, and no unit begins one."""
    asked = ["--chain", "mlp", "--hidden", "1K", "--ffn", "4K", "--tokens", "1K", "--dtype", "bf16"]
    shown = good("simulate", "--machine", "h100-8", *asked, "--layouts", "sequence", "--nodes", "1,2",
                 "--weak", "tokens", "--price", "2.5")  # fmt: skip
    lines = shown.splitlines()
    assert max(map(len, lines)) <= 80
    assert not [x for x in lines if x.strip().split(" ")[0] in ("GiB", "MiB", "ms", "s")]


def test_a_proof_counts_assignments_in_words_and_peers_call_the_winner_best_found():
    """They once printed "2.344e+07 assignments priced, 2.34374e+07 pruned", and "universal"."""
    from umm.cli.printed.assignments import assignments_proof

    result = MagicMock(priced=23_437_400, simulated=143, proven=True)
    result.points.place.return_value = 0
    line = "Proven best of 23.4 million: 143 simulated, the others ruled out by bounds."
    assert assignments_proof(result) == line
    asked = ["--chain", "mlp", "--hidden", 256, "--ffn", 512, "--tokens", 256, "--dtype", "bf16"]
    shown = good("peers", "--machine", "h100-8", "--ranks", 4, *asked, "--quiet")
    assert re.search("^best found ", shown, re.MULTILINE)
    assert "universal" not in shown


def test_a_limit_that_all_layers_of_a_model_exceed_is_one_layers():
    """Weights of 80 gated MLPs take 13 GiB a rank of 8; those of one fit 1 GiB."""
    asked = ("search", "--chain", "gated-mlp", "--model", "llama-3-70b", "--tokens", 256, "--dtype", "bf16")
    asked += ("--machine", "h100-8", "--memory", "1GiB", "--top", 1)
    assert record(*asked)["problem"]["layers"] == 1
    typed = command(*asked, "--layers", 80)
    assert typed.exit_code == 3
    assert "no layouts of chain gated-mlp fit 1.0 GiB a rank" in typed.stderr


@pytest.mark.parametrize(
    "asked",
    [
        ("step", "--batch", 8, "--length", 512, "--json"),
        ("serve", "--tp", 1, "--concurrency", 4, "--json"),
        ("muon", "--layouts", "fsdp8", "--json"),
    ],
    ids=lambda asked: asked[0],
)
def test_what_a_refused_model_file_says_works_in_every_command_of_models(asked, tmp_path):
    """The flag of the message was one of `umm model` and of chains alone."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BASE | {"two_dim": 8, "num_nextn_predict_layers": 1}), encoding="utf-8")
    refused = command(*asked, "--model", path)
    assert refused.exit_code == 2
    (key,) = re.findall(r"--ignore (\w+)", refused.stderr)
    answer = command(*asked, "--model", path, "--ignore", key)
    assert answer.exit_code == 0, answer.stderr
    assert "two_dim (ignored as asked)" in answer.stderr
    assert ("counted apart" in answer.stderr) == (asked[0] != "step")
    if asked[0] == "step":
        (tmp_path / "step.json").write_text(answer.stdout, encoding="utf-8")
        again = load_question(tmp_path / "step.json")
        assert again.model == find_model(str(path), ["two_dim"])


def test_a_record_of_a_step_has_its_depths_of_prediction(tmp_path):
    """One of llama-3-8b took longer than the same record asked again."""
    asked = ["step", "--model", "llama-3-8b", "--ranks", 2, "--batch", 2, "--length", 512, "--mtp", 1]
    path = tmp_path / "step.json"
    path.write_text(command(*asked, "--json").stdout, encoding="utf-8")
    record = json.loads(path.read_text())
    assert predict(load_question(path)).seconds == record["step_s"]
    for wrong, message in ((9, "--mtp 9 must be from 0 to 8"), ("1", "its mtp is no number")):
        record["asked"]["mtp"] = wrong
        path.write_text(json.dumps(record))
        with pytest.raises(InputError, match=message):
            load_question(path)

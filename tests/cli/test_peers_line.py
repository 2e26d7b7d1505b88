"""The line of ``umm peers`` that simulates the row to take."""

import shlex

import pytest
from command import good, makespan, peers_once, record, times_only
from command import umm as umm_of

import umm
from umm.executor import executor
from umm.space.peers.contender import systems

LAYER = {"hidden": 512, "ffn": 1024, "heads": 8, "kv_heads": 4, "tokens": 512, "backward": True}


def test_what_a_row_says_to_type_simulates_its_time():
    """Of a layer with gradients on 4 H100: with a movement, with its own gradients, on a mesh."""
    machine, layer = umm.machine("h100-8"), umm.chain("transformer-layer", **LAYER, dtype="bfloat16")
    asked = ["--chain", "transformer-layer", "--ranks", 4, "--dtype", "bf16", "--backward"]
    asked += [y for x in LAYER if x != "backward" for y in (f"--{x.replace('_', '-')}", LAYER[x])]
    schemes = list(systems(layer, 4, machine))
    few = [x for x in schemes if x.name in ("sequence", "ulysses", "fsdp", "tp2-dp2", "hsdp2x2", "fsdp2-tp2")]
    assert len(few) == 6
    for scheme, _ in (x.moved_fastest(layer, machine, 10**12) for x in few):
        seconds = executor("sim").makespan(scheme.schedule(layer, machine))
        result = makespan(*asked, *scheme.typed(schemes))
        assert result == pytest.approx(seconds, rel=1e-12), scheme.name


@times_only()
def test_the_last_line_simulates_the_row_to_take():
    asked = ("--chain", "mlp", "--hidden", 512, "--ffn", 2048, "--tokens", "1K", "--ranks", 2, "--backward")
    asked += ("--set", "fabric.bandwidth=x0.5", "--no-crossover")
    with peers_once():
        words = shlex.split(good("peers", *asked).strip().splitlines()[-1])
        first = record("peers", *asked)["rows"][0]
    assert words[:2] == ["umm", "simulate"]
    assert makespan(*words[2:]) == pytest.approx(first["makespan_s"], rel=0.01)


CYCLIC = ("--machine", "cpu-hdr", "--nodes", 2, "-m", 1000, "-n", 768, "-k", 1024, "--dtype", "f64")
CYCLIC += tuple(y for x in "abc" for y in (f"--{x}", "cyclic:128x128:2x2"))


@pytest.mark.parametrize(
    "asked",
    [
        CYCLIC,
        ("-m", "1K", "-n", "2K", "-k", 520, "--ranks", 4, "--a", "row", "--b", "row@2", "--c", "col"),
        (
            "--preset",
            "mlp1",
            "-m",
            512,
            "--ranks",
            2,
            "--given",
            "a=row,c=col",
            "--set",
            "fabric.bandwidth=x0.5",
        ),
    ],
)
@times_only()
def test_every_row_of_a_multiply_has_a_command_that_takes_its_time(asked):
    """Those with options of their own, after redistribution, and PDGEMM's blocks too."""
    rows = record("peers", *asked, "--no-crossover")["rows"]
    for row in rows:
        program, command, *words = shlex.split(row["command"])
        assert (program, command) == ("umm", "simulate")
        assert makespan(*words) == pytest.approx(row["makespan_s"], rel=1e-12), row["command"]
    assert {"pgemm", "scalapack"} <= {x["algorithm"] for x in rows} or asked is not CYCLIC


@times_only()
def test_the_answer_says_how_many_sequences_tokens_are():
    """512 tokens as one sequence and as four of 128; a decoded token attends to its own context only."""
    sizes = ["--chain", "attention", "--hidden", 64, "--heads", 4, "--ranks", 2]
    result = "; another --sequences may change the best layouts"
    for command, more in (("simulate", ()), ("peers", ("--no-crossover",))):
        one = " ".join(good(command, *sizes, "--tokens", 512, *more).split())
        assert f"512 tokens in 1 sequence{result}" in one
        four = " ".join(good(command, *sizes, "--tokens", 512, "--sequences", 4, *more).split())
        assert f"512 tokens in 4 sequences of 128 each{result}" in four
    decoded = good("simulate", *sizes, "--decode", "--context", 64, "--batch", 4)
    assert "--sequences" not in decoded


DEEP = (
    "--chain",
    "mlp",
    "--hidden",
    "1K",
    "--ffn",
    "4K",
    "--tokens",
    "1K",
    "--ranks",
    4,
    "--backward",
    "--layers",
    24,
)


@times_only()
def test_with_layers_a_row_is_what_simulate_says_of_all_of_them():
    """Time, bytes and memory of 24 layers with Adam's states, for the row to take."""
    asked = (*DEEP, "--optimizer", 12, "--recompute", "all")
    with peers_once():
        lines = good("peers", *asked).strip().splitlines()
        result = record("peers", *asked)
    best = next(x for x in result["rows"] if x["makespan_s"] == min(y["makespan_s"] for y in result["rows"]))
    simulated = record(*shlex.split(lines[-1])[1:])["predicted"]
    assert simulated["layers"] == 24
    for figure in ("makespan_s", "memory_bytes", "layer_s"):
        assert best[figure] == pytest.approx(simulated[figure], rel=1e-9), figure
    alone = record("peers", *DEEP[:-2])["rows"]
    one = {x["algorithm"]: x for x in alone}
    assert all(10 < x["makespan_s"] / one[x["algorithm"]]["makespan_s"] < 40 for x in result["rows"])


def test_a_model_has_its_layers():
    """Llama 3 8B has 32: search and peers count them, unless fewer or something of one layer is typed."""
    asked = ("--model", "llama-3-8b", "--chain", "mlp", "--tokens", 64, "--ranks", 2)
    few = (*asked, "--choices", "row,row@p", "--top", 1)
    result = {
        x: record("search", *few, *x)["problem"]["layers"] for x in ((), ("--layers", 2), ("--jitter", "3%"))
    }
    assert [*result.values()] == [32, 2, 1]
    text = good("search", *few)
    assert "a rank for 32 layers; times are of a layer in the middle" in " ".join(text.split())
    line = good("peers", *asked).strip().splitlines()[-1]
    assert " --layers 32 " in line
    assert record(*shlex.split(line)[1:])["predicted"]["layers"] == 32
    assert record("simulate", *asked, "--backward", "--recompute", "all")["predicted"]["layers"] == 32
    assert "layers" not in record("simulate", *asked)["predicted"]
    assert (
        record("search", *asked[:2], "--chain", "head", "--tokens", 64, "--top", 1)["problem"]["layers"] == 1
    )


@times_only()
def test_what_cannot_fit_is_not_simulated():
    """`data` has all weights on every rank: 24 layers with Adam's states do not fit 1.5 GiB."""
    asked = (*DEEP, "--optimizer", 12, "--memory", "1.5GiB")
    with peers_once():
        result, text = record("peers", *asked), " ".join(good("peers", *asked).split())
    assert all(x["fits"] for x in result["rows"])
    assert result["refused"]["data"].startswith("at least 3.")
    assert not {x["algorithm"] for x in result["rows"]} & {*result["refused"]}
    assert "24 layers of mlp" in text
    assert "12 bytes of optimizer state" in text
    assert "Not simulated, since they cannot fit: " in text
    none = record("peers", *DEEP, "--optimizer", 12, "--memory", "100MiB")
    assert none["verdict"].startswith("None fits 100.0 MiB a rank")
    assert none["verdict"].endswith("--recompute all and more --nodes need less.")
    (row,) = none["rows"]
    assert not row["fits"]


@times_only()
def test_a_scheme_that_fits_only_if_it_computes_again_has_the_row_of_that():
    """`sequence` holds 1.3 GiB, of 24 layers with Adam's states, of which it need not keep .3.

    With 1.2 GiB `data` fits in no way, and `sequence` if all is computed again, whose command says so.
    """
    asked = (*DEEP, "--optimizer", "adam")
    kept, again = (
        {x["algorithm"]: x for x in record("peers", *asked, "--recompute", way)["rows"]}
        for way in ("none", "all")
    )
    room = (kept["sequence"]["memory_bytes"] + again["sequence"]["memory_bytes"]) // 2
    asked += ("--memory", f"{room}B", "--recompute", "none,all")
    with peers_once():
        both, text = record("peers", *asked), " ".join(good("peers", *asked).split())
    result = {x["algorithm"]: x for x in both["rows"]}
    same = ("makespan_s", "memory_bytes", "recompute")
    assert [result["sequence"][x] for x in same] == [again["sequence"][x] for x in same]
    assert result["sequence"]["fits"]
    assert "data" in both["refused"]
    assert "--recompute all" in result["sequence"]["command"]
    assert "recompute none or all, the first that fits" in text
    with_all = record("peers", *DEEP, "--recompute", "none,all")["rows"]
    assert {x["recompute"] for x in with_all} == {"none"}  # all fit without
    refused = umm_of("simulate", *DEEP, "--recompute", "none,all").output
    assert "--recompute has several values; umm peers takes the first of a list that fits" in refused
    assert (
        "'some' is not one of 'none', 'attention', 'all'"
        in umm_of("peers", *DEEP, "--recompute", "some").output
    )


def test_an_optimizer_may_be_named():
    asked = ("simulate", *DEEP, "--optimizer")
    assert record(*asked, "adam") == record(*asked, 12)
    assert "'adamw' is not adam or sgd, nor bytes from 0 to 1024" in umm_of(*asked, "adamw").output


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ((*DEEP[:-2], "--optimizer", 12), "--optimizer needs --layers"),
        ((*DEEP, "--crossover"), "--crossover is for one layer; leave out --layers"),
        ((*DEEP, "--jitter", "3%"), "--jitter is for one layer; leave out --layers"),
        (("-m", 8, "-n", 8, "-k", 8, "--layers", 4), "layers need a chain"),
    ],
)
def test_what_is_of_one_layer_is_refused_with_layers(asked, why):
    result = umm_of("peers", *asked)
    assert result.exit_code
    assert why in result.output

"""The line of ``umm peers`` that simulates the row to take."""

import shlex

import pytest
from command import good, record

import umm
from umm.executor import executor
from umm.space.peers.contender import systems

LAYER = {"hidden": 512, "ffn": 1024, "heads": 8, "kv_heads": 4, "tokens": 512, "backward": True}


def test_what_a_row_says_to_type_simulates_its_time():
    """Of a layer with gradients on 4 H100: with a movement, with its own gradients, without a name."""
    machine, layer = umm.machine("h100-8"), umm.chain("transformer-layer", **LAYER, dtype="bfloat16")
    asked = ["--chain", "transformer-layer", "--ranks", 4, "--dtype", "bf16", "--backward"]
    asked += [y for x in LAYER if x != "backward" for y in (f"--{x.replace('_', '-')}", LAYER[x])]
    schemes = list(systems(layer, 4, machine))
    few = [x for x in schemes if x.name in ("sequence", "ulysses", "fsdp", "data-tensor 2x2")]
    assert len(few) == 4
    for scheme in (x.moved_fastest(layer, machine, 10**12) for x in few):
        seconds = executor("sim").makespan(scheme.schedule(layer, machine))
        found = record("simulate", *asked, *scheme.typed(schemes))["predicted"]["makespan_s"]
        assert found == pytest.approx(seconds, rel=1e-12), scheme.name


def test_the_last_line_simulates_the_row_to_take():
    asked = ("--chain", "mlp", "--hidden", 512, "--ffn", 2048, "--tokens", "1K", "--ranks", 2, "--backward")
    asked += ("--set", "fabric.bandwidth=x0.5", "--no-crossover")
    words = shlex.split(good("peers", *asked).strip().splitlines()[-1])
    assert words[:2] == ["umm", "simulate"]
    simulated = record(*words[1:])["predicted"]["makespan_s"]
    assert simulated == pytest.approx(record("peers", *asked)["rows"][0]["makespan_s"], rel=0.01)


def test_the_answer_says_how_many_sequences_tokens_are():
    """512 tokens as one sequence and as four of 128; a decoded token attends to its own context only."""
    sizes = ["--chain", "attention", "--hidden", 64, "--heads", 4, "--ranks", 2]
    said = "; another --sequences may change the best layouts"
    for command, more in (("simulate", ()), ("peers", ("--no-crossover",))):
        one = " ".join(good(command, *sizes, "--tokens", 512, *more).split())
        assert f"512 tokens in 1 sequence{said}" in one
        four = " ".join(good(command, *sizes, "--tokens", 512, "--sequences", 4, *more).split())
        assert f"512 tokens in 4 sequences of 128 each{said}" in four
    decoded = good("simulate", *sizes, "--decode", "--context", 64, "--batch", 4)
    assert "--sequences" not in decoded

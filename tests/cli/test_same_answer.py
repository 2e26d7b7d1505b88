"""The same question has the same answer on every host: slow or fast, beside load."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from importlib import import_module
from pkgutil import walk_packages

import pytest
from command import record
from examples import WHOLE

import umm.space

CLOCKS = ("process_time", "monotonic", "perf_counter")
TWO = ("--machine", "h100-8", "--ranks", 2)
FOUR = ("--machine", "h100-8", "--ranks", 4)
MLP = ("--chain", "mlp", "--tokens", 128, "--hidden", 256, "--ffn", 512)
GATED = ("--chain", "gated-mlp", "--tokens", 256, "--hidden", 256, "--ffn", 512)
STORED = ("--chain", "attention-stored", "--tokens", 64, "--hidden", 64, "--heads", 4)
QUESTIONS = {
    "a search of few assignments": ("search", *TWO, *MLP, "--backward"),
    "one of 177,147, which are not gone through": ("search", *TWO, *STORED, "--top", 1),
    "one by all movements": ("search", *TWO, *GATED, "--movement", "flat,gathered,chunks", "--top", 1),
    "one on two nodes": ("search", "--machine", "h100-8", "--nodes", 2, *MLP, "--top", 1),
    "one with experts": ("search", *TWO, "--chain", "moe", "--tokens", 64, "--hidden", 64, "--ffn", 64,
                         "--experts", 4, "--top-k", 2, "--top", 1),
    "what more memory buys": ("search", *TWO, *MLP, "--memory", "1.5x"),
    "peers": ("peers", *FOUR, *MLP, "--no-crossover"),
    "what-if": ("what-if", *TWO, *MLP),
    "the best layouts": ("simulate", *TWO, *GATED, "--layouts", "best"),
    "advice": ("simulate", *TWO, "-m", 64, "-n", 48, "-k", 32, "--movement", "two-level"),
}  # fmt: skip
LARGE = (
    ("search", *FOUR, "--chain", "attention-stored", "--tokens", 512, "--hidden", 512, "--heads", 8),
    ("search", "--machine", "h100-8", "--nodes", 2, "--chain", "gated-mlp", "--model", "llama-3-8b",
     "--tokens", "16K", "--dtype", "bf16", "--backward", "--top", 1),
    ("search", "--machine", "h100-8", "--chain", "transformer-layer", "--model", "llama-3-8b",
     "--tokens", "4K", "--dtype", "bf16", "--top", 1),
)  # fmt: skip


@pytest.fixture
def small_limits(monkeypatch):
    """Limits of a fiftieth, so that they end the work of these small questions."""
    from umm.space.search import descent, effort
    from umm.space.what_if import advice

    monkeypatch.setattr(advice, "MOST_WORK", 2_000)
    limits = {x: getattr(effort, x) // 50 for x in ("STAGE_WORK", "STEP_WORK")}
    for module in (sys.modules["umm.space.search.search"], descent):
        for name in limits.keys() & vars(module):
            monkeypatch.setattr(module, name, limits[name])


def on_a_host(times_slower, *question):
    """Return the answer where every clock of spaces and searches runs so many times as fast."""
    modules = [import_module(x.name) for x in walk_packages(umm.space.__path__, "umm.space.")]
    with ExitStack() as stack:
        for clock in CLOCKS:
            usual = getattr(time, clock)
            began = usual()

            def scaled(usual=usual, began=began):
                return began + times_slower * (usual() - began)

            for module in modules:
                if vars(module).get(clock) is usual:
                    patch = stack.enter_context(pytest.MonkeyPatch.context())
                    patch.setattr(module, clock, scaled)
        return record(*question)


@pytest.mark.parametrize("asked", QUESTIONS if WHOLE else [x for x in QUESTIONS if x != "what-if"])
def test_a_host_a_thousand_times_slower_gives_the_same_answer(asked, small_limits):
    question = QUESTIONS[asked]
    assert on_a_host(1000, *question) == on_a_host(0.001, *question)


def answered(*question, **env):
    """Return the answer of a new process."""
    command = [sys.executable, "-c", "from umm.cli.main import main; main()"]
    command += [*map(str, question), "--json", "--quiet"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=600, env=os.environ | env
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_another_order_of_hashes_gives_the_same_answer():
    question = QUESTIONS["what more memory buys"]
    assert answered(*question, PYTHONHASHSEED="7") == record(*question)


@pytest.mark.skipif(not WHOLE, reason="takes minutes: make test-all")
@pytest.mark.parametrize("question", LARGE)
def test_beside_three_busy_loops_the_answer_is_the_same(question):
    alone = answered(*question)
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert answered(*question) == alone
    finally:
        for loop in busy:
            loop.kill()
            loop.wait()

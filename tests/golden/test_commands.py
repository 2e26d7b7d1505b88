# ruff: noqa: E501
"""The output and files of forty commands stay as they were: text and ``--json`` of multiplies and chains.

``UMM_GOLDEN=write python -m pytest tests/golden/test_commands.py`` writes the files anew; read what changed.
"""

import json
import os
import re
from pathlib import Path

import pytest
from command import umm

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FILES = HERE / "commands"
CHAIN = HERE / "block.toml"
SMALL = "-m 512 -n 768 -k 640"
MLP = "--chain mlp --tokens 512 --hidden 1024 --ffn 2048"
ATTENTION = "--chain attention --tokens 256 --hidden 512 --heads 8"
CASES = {
    "simulate-mlp1": "simulate --machine h100-8 --preset mlp1 -m 8192 --a col --b col --c col --stationary C",
    "simulate-pvc-replicas": "simulate --machine pvc-12 -m 1000 -n 1777 -k 3001 --a row@2 --b col@3 --c 2d@2",
    "simulate-given": f"simulate --machine h100-8 {SMALL} --a col --b row --c row --given a=row,c=col@2",
    "simulate-final": f"simulate --machine h100-8 {SMALL} --a col --b row --c row@8 --final reduce",
    "simulate-all-reduce": f"simulate --machine h100-8 {SMALL} --a col --b row --c row@8 --final all-reduce",
    "simulate-policy": f"simulate --machine pvc-12 {SMALL} --a 2d --b 2d --c 2d --policy greedy --explain",
    "simulate-cannon": f"simulate --machine pvc-12 {SMALL} --ranks 9 --algorithm cannon",
    "simulate-set": f"simulate --machine h100-8 {SMALL} --a 2d --b 2d --c 2d --set fabric.bandwidth=x0.5",
    "simulate-nodes": "simulate --machine dgx-h100x4 -m 2048 -n 2048 -k 2048 --a row --b col --c 2d",
    "simulate-chain": f"simulate --machine h100-8 {MLP} --backward --layouts megatron",
    "simulate-attention": f"simulate --machine h100-8 --ranks 4 {ATTENTION} --layouts megatron",
    "simulate-chain-given": f"simulate --machine tpu-v5e-4 {MLP} --dtype bf16 --layouts data --given X=col",
    "simulate-file": f"simulate --machine h100-8 --ranks 4 --chain {CHAIN}",
    "search-mlp2": "search --machine h100-8 --preset mlp2 -m 1K --top 5",
    "search-front": f"search --machine h100-8 {SMALL} --ranks 4",
    "search-budget": f"search --machine pvc-12 {SMALL} --ranks 6 --memory 1.5x --top 4",
    "search-axes": f"search --machine h100-8 {SMALL} --a row,col@2 --b all --c 2d --ranks 8 --prefetch 1,2 --top 3",
    "search-given": f"search --machine h100-8 {SMALL} --ranks 4 --given a=row,b=row,c=row --top 3",
    "search-final": f"search --machine h100-8 {SMALL} --ranks 4 --c row@4 --final reduce --top 3",
    "search-sizes": "search --machine h100-8 -m 256,1K,4K -n 2K -k 2K --ranks 4",
    "search-chain": f"search --machine h100-8 --ranks 4 {MLP} --top 5",
    "search-chain-backward": f"search --machine pvc-12 --ranks 4 {MLP} --backward --stationary best --top 3",
    "search-chain-memory": f"search --machine h100-8 --ranks 4 {MLP} --memory 2x --optimizer 12 --top 3",
    "search-chain-given": f"search --machine h100-8 --ranks 2 {MLP} --given X=row,W1=2d --top 3",
    "search-file": f"search --machine h100-8 --ranks 4 --chain {CHAIN} --top 3",
    "search-emit": f"search --machine h100-8 {SMALL} --ranks 4 --emit torch",
    "search-nothing-fits": f"search --machine h100-8 {SMALL} --ranks 4 --memory 1KiB",
    "peers": f"peers --machine h100-8 {SMALL} --ranks 4 --a row --b col --c row --no-crossover",
    "peers-crossover": "peers --machine h100-8 -m 256 -n 512 -k 512 --ranks 4 --a row --b row --c row --refused",
    "peers-chain": f"peers --machine h100-8 --ranks 4 {MLP} --no-crossover",
    "what-if": f"what-if --machine h100-8 {SMALL} --ranks 2 --a row,col --b row,col --c row",
    "what-if-map": "what-if --machine h100-8 -m 512,4K -n 512 -k 512 --ranks 2 --map memory",
    "collective": "collective all-gather --machine dgx-h100x4 -b 1MiB -e 4MiB",
    "collective-all-reduce": "collective all-reduce --machine h100-8 -b 64KiB -e 1MiB",
    "plan": "plan --machine pvc-12 -m 1000 -n 1777 -k 3001 --a row@2 --b col@3 --c 2d@2",
    "plan-chain": f"plan --machine dgx-h100x4 --nodes 2 {MLP} --backward --layouts tp8-dp2",
    "plan-experts": "plan --machine h100-8 --chain moe --tokens 4096 --hidden 512 --ffn 512 --experts 16 --top-k 2",
    "tiles": "tiles -m 8 -n 12 -k 10 --a row@2 --b 2d --c col --ranks 4",
    "machine-show": "machine show pvc-12",
    "machine-check": "machine check tpu-v5e-4",
    "run": "run --executor numpy -m 64 -n 48 -k 40 --a row --b col --c 2d --ranks 4 --check --iters 1",
    "run-chain": "run --executor numpy --chain mlp --tokens 16 --hidden 24 --ffn 32 --ranks 2 --check --iters 1",
    "bad-layout": f"simulate {SMALL} --a rwo",
    "bad-replicas": f"simulate --machine h100-8 {SMALL} --a row@3",
    "bad-machine": f"search --machine h100-9 {SMALL}",
    "bad-chain": "simulate --chain mpl --tokens 16 --hidden 24 --ffn 32",
}
MEASURED = re.compile(r'"(best_s|mean_s|std_s|max_abs_error)": [^,}]+')
TIMES = re.compile(r"(best|mean|spread|median|±|error)[^\n]*")


def told(name, args):
    """The output of a command, with floats to nine digits and without measured values."""
    result = umm(*args.split())
    text = result.stdout if result.exit_code == 0 else result.output
    text = text.replace(str(HERE), "HERE").replace(str(ROOT), "ROOT")
    if name.startswith("run"):
        text = TIMES.sub(r"\1 …", MEASURED.sub(r'"\1": 0', text))
    return f"exit {result.exit_code}\n{text}"


def plain(value):
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: plain(x) for key, x in value.items() if key not in ("umm_version", "machine_sha")}
    return [plain(x) for x in value] if isinstance(value, list) else value


def as_json(name, args):
    result = umm(*args.split(), "--json")
    if result.exit_code:
        return f"exit {result.exit_code}\n"
    output = plain(json.loads(result.stdout))
    text = json.dumps(output, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    text = text.replace(str(HERE), "HERE").replace(str(ROOT), "ROOT")
    return MEASURED.sub(r'"\1": 0', text) if name.startswith("run") else text


def held(path, text):
    if os.environ.get("UMM_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", CASES)
def test_a_command_prints_what_it_did(name):
    held(FILES / f"{name}.txt", told(name, CASES[name]))


@pytest.mark.parametrize(
    "name", [x for x in CASES if x not in ("search-emit", "tiles") and not x.startswith("bad")]
)
def test_a_command_gives_the_json_it_did(name):
    held(FILES / f"{name}.json", as_json(name, CASES[name]))


SWEEPS = {
    "sweep": "-m 64 -n 48 -k 40 --ranks 2 --a row,col --b row --c row@2 --machine h100-8",
    "sweep-chain": "--chain mlp --tokens 16 --hidden 24 --ffn 32 --ranks 2 --machine h100-8",
}


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_stores_what_it_did(name, tmp_path):
    """Both tables of the store, without keys, dates and versions."""
    from umm.space import Store

    store = tmp_path / "s.db"
    assert umm("sweep", *SWEEPS[name].split(), "-o", store, "--pool", "none", "--quiet").exit_code == 0
    with Store(store) as result:
        frames = [result.frame(table) for table in ("runs", "all_runs")]
    drop = ["config_id", "umm_version", "created_at", "machine_sha", "model"]
    text = "".join(
        x.drop(columns=drop).sort_values(["layouts" if "layouts" in x else "a", "stationary", "final"])
        .to_csv(index=False, float_format="%.9g")
        for x in frames
    )  # fmt: skip
    held(FILES / f"{name}.csv", text)

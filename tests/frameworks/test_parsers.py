"""vLLM's and SGLang's own argument parsers take what ``--emit`` prints, and read the deployment from it.

Megatron-LM's parser is not on PyPI: megatron-core lacks megatron/training.
"""

import json
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from hostile import hostile_texts

from umm.emit.serving import serving
from umm.serve.deployment import PRECISIONS, Deployment

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build/peers/parsers"
NAMES = ["meta-llama/Llama-3.1-8B", *(x for x in hostile_texts(40) if x.isprintable() and x[0] != "-")]
# Ranks that share attention, groups of them, and whether experts are spread.
SPLITS = [(1, 1, False), (8, 1, False), (8, 1, True), (2, 4, True), (1, 8, True)]
DEPLOYMENTS = [
    Deployment(
        1000, 500, 64, tp, groups, ep=tp * groups if spread else 1, precision=precision, cache_bits=bits
    )
    for (tp, groups, spread), precision, bits in product(SPLITS, PRECISIONS, (8, 16))
]


def read_by(package, texts):
    """What a package's parser makes of emitted texts."""
    if not (FOLDER / package).is_dir():
        pytest.skip(f"{package} is not in {FOLDER}; make test-frameworks downloads it where it can")
    words = [shlex.split(x.replace("\\\n", " "), comments=True) for x in texts]
    assert all(x[:2] == ["vllm", "serve"] or x[:3] == ["python", "-m", "sglang.launch_server"] for x in words)
    lists = [["--model", *x[2:]] if package == "vllm" else x[3:] for x in words]
    command = [sys.executable, ROOT / "tests/helpers/lone_parser.py", FOLDER, package]
    done = subprocess.run(command, input=json.dumps(lists), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("package", ["vllm", "sglang"])
def test_a_servers_own_parser_reads_the_deployment(package):
    """50 deployments of models with odd names: no flag is unknown or lost, and others are refused."""
    names = [NAMES[i % len(NAMES)] for i in range(len(DEPLOYMENTS))]
    texts = [serving(package, d, name, "predicted") for d, name in zip(DEPLOYMENTS, names, strict=True)]
    *results, refused = read_by(package, [*texts, texts[0].rstrip() + " --no-such-flag 3\n"])
    assert "--no-such-flag" in refused
    for d, name, read in zip(DEPLOYMENTS, names, results, strict=True):
        assert isinstance(read, dict), read
        spread = d.ep > 1
        if package == "vllm":
            own = {"model": name, "tensor_parallel_size": d.tp, "data_parallel_size": d.attention_dp}
            own |= {"enable_expert_parallel": spread, "max_model_len": 1500}
            own |= {"max_num_seqs": 64 // d.attention_dp}
        else:
            own = {"model_path": name, "tp_size": d.ranks, "ep_size": d.ep, "context_length": 1500}
            own |= {"max_running_requests": 64}
        own |= {"quantization": "fp8"} if d.precision == "fp8" else {}
        assert {x: read[x] for x in own} == own
        assert read["kv_cache_dtype"] == (
            "auto" if d.cache_bits == 16 else {"vllm": "fp8"}.get(package, "fp8_e4m3")
        )

"""vLLM's, SGLang's, torchtitan's and Megatron-LM's own parsers take the lines of ``--emit``."""

import json
import shlex
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from emit_chains import emitted
from hostile import hostile_texts

from umm.emit.serving import serving
from umm.serve.deployment import PRECISIONS, Deployment
from umm.step.flags import RECIPES
from umm.step.flags import emitted as emit_step
from umm.step.parallel import MODULES, RECOMPUTE, Parallel
from umm.step.stacks import find_stack

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


def read_by(package, lists):
    """Return the values that a package's parser gives for lists of words."""
    if not (FOLDER / package).is_dir():
        pytest.skip(f"{package} is not in {FOLDER}; make test-frameworks downloads it where it can")
    command = [sys.executable, ROOT / "tests/helpers/lone_parser.py", FOLDER, package]
    done = subprocess.run(command, input=json.dumps(lists), capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def words_of(text, package):
    """The words of an emitted command after the program's name."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    start = ["vllm", "serve"] if package == "vllm" else ["python", "-m", "sglang.launch_server"]
    assert words[: len(start)] == start
    return ["--model", *words[2:]] if package == "vllm" else words[3:]


def test_torchtitans_own_parser_reads_the_toml(tmp_path):
    """Of layers in three schemes, and of three steps; a key that it has not is refused."""
    texts = [emitted("torchtitan", "transformer-layer", x) for x in ("sequence", "megatron", "fsdp2-sp2")]
    steps = [
        Parallel(16, 32, 8192, tp=2, pp=2, vp=2, schedule="interleaved", recompute="full"),
        Parallel(16, 64, 4096, fsdp=8, cp=2, ep=2, recompute="selective"),
        Parallel(8, 64, 4096, zero=0, recompute="every:2"),
    ]
    texts += [emit_step("torchtitan", x, find_stack("torchtitan"), 1.0, 2.0) for x in steps]
    lists = []
    for number, text in enumerate((*texts, texts[0] + "no_such_key = 3\n")):
        path = tmp_path / f"{number}.toml"
        path.write_text(text)
        lists.append(["--job.config_file", str(path)])
    *results, refused = read_by("torchtitan", lists)
    assert "no_such_key" in refused
    assert [x["parallelism.tensor_parallel_degree"] for x in results] == [2, 2, 2, 2, 1, 1]
    assert [x["training.seq_len"] for x in results] == [16, 16, 16, 8192, 4096, 4096]
    for read, step in zip(results[3:], steps, strict=True):
        assert read["parallelism.pipeline_parallel_degree"] == step.pp
        assert read["parallelism.context_parallel_degree"] == step.cp
        assert read["parallelism.expert_parallel_degree"] == step.ep
        assert read["training.global_batch_size"] == step.batch


MODEL = (
    "--num-layers 16 --hidden-size 1024 --num-attention-heads 16 --max-position-embeddings 8192 "
    "--num-experts 8 --moe-router-topk 2 --moe-token-dispatcher-type alltoall "
    "--tokenizer-type NullTokenizer --vocab-size 1000 --lr 1e-4 --train-iters 10 --mock-data"
)
STEPS = [
    Parallel(16, 32, 8192, tp=2, pp=2, vp=2, schedule="interleaved", recompute="full"),
    Parallel(16, 64, 4096, fsdp=8, cp=2, ep=2, recompute="selective"),
    Parallel(8, 64, 4096, zero=0, recompute="every:2"),
    Parallel(16, 64, 4096, tp=2, pp=4, schedule="zero-bubble", optimizer="muon"),
    Parallel(8, 64, 4096, tp=4, precision="mxfp8", keep_bf16="last:2"),
    *(Parallel(8, 64, 4096, zero=x, precision=y) for x, y in product((0, 1, 2, 3), RECIPES)),
    *(Parallel(8, 64, 4096, tp=2, recompute=x) for x in (*RECOMPUTE, *MODULES)),
    *(Parallel(8, 64, 4096, zero=x, offload=y) for x, y in product((1, 3), ("optimizer", "activations:3"))),
    *(Parallel(8, 64, 4096, offload="optimizer", precision=x) for x in RECIPES),
]


def test_megatrons_own_parser_and_checks_take_the_flags():
    """Of layers in three schemes and of 40 steps, with a model's sizes; an unknown flag is refused."""
    texts = [emitted("megatron", "transformer-layer", x) for x in ("sequence", "megatron", "fsdp2-sp2")]
    lists = [
        [ranks, *shlex.split(f"{x} {MODEL}", comments=True)] for ranks, x in zip("224", texts, strict=True)
    ]
    for step in STEPS:
        text = emit_step("megatron", step, find_stack("megatron"), 1.0, 2.0)
        lists.append([str(step.ranks), *shlex.split(f"{text} {MODEL}", comments=True)])
    *results, refused = read_by("megatron", [*lists, [*lists[0], "--no-such-flag"]])
    assert "--no-such-flag" in refused
    assert [x for x in results if isinstance(x, str)] == []
    assert [x["tensor_model_parallel_size"] for x in results[:3]] == [2, 2, 2]
    assert [x["sequence_parallel"] for x in results[:3]] == [True, False, True]
    for read, step in zip(results[3:], STEPS, strict=True):
        names = {
            "tensor_model": step.tp,
            "pipeline_model": step.pp,
            "context": step.cp,
            "expert_model": step.ep,
        }
        assert {x: read[f"{x}_parallel_size"] for x in names} == names
        assert read["global_batch_size"] == step.batch
        assert read["data_parallel_size"] == step.dp


@pytest.mark.parametrize("package", ["vllm", "sglang"])
def test_a_servers_own_parser_reads_the_deployment(package):
    """50 deployments of models with odd names: no flag is unknown or lost, and others are refused."""
    names = [NAMES[i % len(NAMES)] for i in range(len(DEPLOYMENTS))]
    texts = [serving(package, d, name, "predicted") for d, name in zip(DEPLOYMENTS, names, strict=True)]
    lists = [words_of(x, package) for x in texts]
    *results, refused = read_by(package, [*lists, [*lists[0], "--no-such-flag", "3"]])
    assert "--no-such-flag" in refused
    for d, name, read in zip(DEPLOYMENTS, names, results, strict=True):
        assert isinstance(read, dict), read
        spread = d.ep > 1
        if package == "vllm":
            expected = {"model": name, "tensor_parallel_size": d.tp, "data_parallel_size": d.attention_dp}
            expected |= {"enable_expert_parallel": spread, "max_model_len": 1500}
            expected |= {"max_num_seqs": 64 // d.attention_dp}
        else:
            expected = {"model_path": name, "tp_size": d.ranks, "ep_size": d.ep, "context_length": 1500}
            expected |= {"max_running_requests": 64}
        expected |= {"quantization": "fp8"} if d.precision == "fp8" else {}
        assert {x: read[x] for x in expected} == expected
        assert read["kv_cache_dtype"] == (
            "auto" if d.cache_bits == 16 else {"vllm": "fp8"}.get(package, "fp8_e4m3")
        )

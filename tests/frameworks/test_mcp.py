"""``umm mcp`` by the SDK's own client: 30 expert questions, each a number after three calls at most."""

import json
import sys

import pytest

pytest.importorskip("mcp", reason="the mcp package is not installed; make test-frameworks has it")

import anyio
from mcp import Client, StdioServerParameters, stdio_client

from umm.mcp.server import server

MLP = {"preset": "mlp1"}
LAYER = {"chain": "transformer-layer", "model": "llama-3-8b", "tokens": "8K", "dtype": "bf16"}
STEP = {"model": "llama-3-8b", "batch": "128", "length": "8K"}
SERVED = {"model": "llama-3-70b", "ranks": 8}
MOST_CALLS = 3


def asked(*calls):
    """Call tools of one session, one after the other; a call may be a function of the answers before it."""

    async def session():
        answers = []
        async with Client(server()) as client:
            for call in calls:
                tool, arguments = call(*answers) if callable(call) else call
                answer = await client.call_tool(tool, arguments)  # which checks it against the tool's schema
                assert not answer.is_error, answer.content[0].text
                answers.append(answer.structured_content)
        return answers

    return anyio.run(session)


def refused(tool, arguments):
    """The line with which a tool refuses."""

    async def session():
        async with Client(server()) as client:
            answer = await client.call_tool(tool, arguments)
        assert answer.is_error
        return answer.content[0].text

    return anyio.run(session)


def fact(answer, key):
    """A number of a machine's file."""
    return next(x for x in answer["result"]["machine"]["facts"] if x["key"] == key)


def makespan(answer):
    return answer["result"]["predicted"]["makespan_s"]


def flag(answer, name):
    """The number after a flag of an emitted text."""
    words = answer["text"].replace("=", " ").split()
    return float(words[words.index(name) + 1])


def simulated_winner(searched):
    """The call that simulates the first of a search."""
    best = searched["result"]["top"][0]
    return "simulate", MLP | {"machine": "pvc-12"} | {x: best[x] for x in ("a", "b", "c", "stationary")}


# By question: the calls, the number in their answers, and what it is. Models of machines change: 5 %.
QUESTIONS = {
    "How long does MLP-1 take on eight H100 by columns?": (
        [("simulate", MLP | {"a": "col", "b": "col", "c": "col"})], makespan, 25.7e-3),
    "Which fraction of peak is that?": (
        [("simulate", MLP | {"a": "col", "b": "col", "c": "col"})],
        lambda x: x["result"]["predicted"]["fraction_of_peak"], 0.719),
    "What is the best layout on a node of PVC, simulated again?": (
        [("search", MLP | {"machine": "pvc-12"}), simulated_winner], lambda _, x: makespan(x), 38.2e-3),
    "How much faster is it than rows?": (
        [("search", MLP | {"machine": "pvc-12"}), ("simulate", MLP | {"machine": "pvc-12"})],
        lambda x, y: makespan(y) / x["result"]["top"][0]["makespan_s"], 1.476),
    "Do operands in rows pay a move to better layouts?": (
        [("peers", MLP | {"m": "2K", "machine": "pvc-12", "crossover": False, "seconds": "30"})],
        lambda x: x["result"]["rows"][1]["makespan_s"] / x["result"]["rows"][0]["makespan_s"], 0.839),
    "How many bytes do ranks get, all by rows?": (
        [("plan", MLP)], lambda x: x["result"]["plan"][1]["bytes"], 7 * 8192 * 12288 * 4),
    "How many parameters has Llama-3-70B?": (
        [("model", {"name_or_file": "llama-3-70b"})], lambda x: x["result"]["parameters"], 70_553_706_496),
    "How many of DeepSeek-V3's are active for a token?": (
        [("model", {"name_or_file": "deepseek-v3"})], lambda x: x["result"]["active_parameters"], 36.6e9),
    "How large is the cache of 128K tokens of Llama-3-8B?": (
        [("model", {"name_or_file": "llama-3-8b"})],
        lambda x: x["result"]["cache_bytes_per_token"] * 131_072, 2**34),
    "Which known model has most parameters?": (
        [("models", {})], lambda x: max(y["parameters"] for y in x["result"]["models"]), 1.026e12),
    "What is H100's peak in bfloat16?": (
        [("machine_show", {"machine": "h100-8"})],
        lambda x: x["result"]["machine"]["peaks"]["bfloat16"], 989e12),
    "How much memory has an H200, by which source?": (
        [("machine_list", {}), ("machine_show", {"machine": "h200-8"})],
        lambda _, y: float(fact(y, "devices.memory")["value"].removesuffix(" GB")), 141),
    "How many numbers of PVC's file have a source and are not assumed?": (
        [("machine_show", {"machine": "pvc-12"})],
        lambda x: sum(not y["assumed"] for y in x["result"]["machine"]["facts"]), 18),
    "How long does a step of Llama-3-8B take, FSDP over 8 H100?": (
        [("step", STEP | {"fsdp": 8})], lambda x: x["numbers"][0]["value"], 13.7),
    "How far can that be off?": (
        [("step", STEP | {"fsdp": 8})],
        lambda x: x["numbers"][0]["high"] / x["numbers"][0]["low"], 1.236),
    "How much memory does it take?": (
        [("step", STEP | {"fsdp": 8})], lambda x: x["result"]["memory_bytes"], 55.8e9),
    "Is it faster in 8 bits?": (
        [("step", STEP | {"fsdp": 8}), ("step", STEP | {"fsdp": 8, "precision": "fp8"})],
        lambda x, y: x["result"]["step_s"] / y["result"]["step_s"], 1.546),
    "What is the fastest step of Llama-3-70B on 8 nodes, and its MFU?": (
        [("step", STEP | {"model": "llama-3-70b", "machine": "dgx-h100x4", "nodes": "8", "search": True})],
        lambda x: x["result"]["mfu"], 0.459),
    "With which flag does Megatron-LM run it?": (
        [("step", STEP | {"tp": 4, "emit": "megatron"})],
        lambda x: flag(x, "--tensor-model-parallel-size"), 4),
    "How long is a token of Llama-3-70B on 8 H100 in vLLM?": (
        [("serve", SERVED)], lambda x: x["result"]["tpot_s"], 16.5e-3),
    "How long is the wait for its first?": (
        [("serve", SERVED)], lambda x: x["result"]["ttft_s"], 0.261),
    "How many tokens more does half the cache's bytes give at twice the requests?": (
        [("serve", SERVED), ("serve", SERVED | {"cache": "fp8", "concurrency": 128})],
        lambda x, y: y["result"]["tokens_per_s_per_gpu"] / x["result"]["tokens_per_s_per_gpu"], 1.479),
    "With which flag does vLLM run it?": (
        [("serve", SERVED | {"emit": "vllm"})], lambda x: flag(x, "--tensor-parallel-size"), 8),
    "What bandwidth has an all-reduce of 64 MiB on 8 H100?": (
        [("collective", {"what": "all-reduce", "begin": "64MiB"})],
        lambda x: x["result"]["rows"][0]["busbw"], 363e9),
    "How long is one of 16 KiB?": (
        [("collective", {"what": "all-reduce", "begin": "16KiB", "end": "16KiB"})],
        lambda x: x["result"]["rows"][0]["seconds"], 5.16e-6),
    "How much of an all-gather stays if it is fused with MLP-1?": (
        [("fuse", MLP)],
        lambda x: x["result"]["rows"][0]["exposed_s"] / x["result"]["collective_s"], 0.13),
    "How much faster is Muon with owners than on every rank?": (
        [("muon", {"model": "llama-3-8b"})],
        lambda x: x["result"]["rows"][0]["seconds"] / x["result"]["rows"][1]["seconds"], 7.7),
    "MLP-1 takes 30 ms here; which clock explains that?": (
        [("what_if", MLP | {"measured": "30ms", "a": "col", "b": "col", "c": "col"})],
        lambda x: x["result"]["explanations"][0]["factor"], 0.855),
    "What if links have half their bandwidth?": (
        [("simulate", LAYER | {"layouts": "megatron"}),
         ("simulate", LAYER | {"layouts": "megatron", "set": ["fabric.bandwidth=x0.5"]})],
        lambda x, y: makespan(y) / makespan(x), 1.337),
    "Which efficiency have two nodes by rows?": (
        [("simulate", MLP | {"machine": "dgx-h100x4", "nodes": "1,2"})],
        lambda x: x["result"]["scaling"]["rows"][1]["efficiency"], 0.199),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_an_expert_question_is_answered_in_three_calls(question):
    calls, number, expected = QUESTIONS[question]
    assert len(QUESTIONS) == 30
    assert len(calls) <= MOST_CALLS
    assert number(*asked(*calls)) == pytest.approx(expected, rel=0.05)


def test_a_tool_refuses_in_the_commands_one_line():
    assert refused("simulate", {"m": "8K"}) == (
        "error: the problem lacks -n and -k; give -m, -n and -k, or --preset mlp1"
    )
    assert refused("serve", {"model": "llama-3-9b"}).startswith("error: there is no model 'llama-3-9b'")


def test_an_answer_has_its_command_its_schema_and_the_range_of_each_predicted_number():
    (answer,) = asked(("step", STEP | {"fsdp": 8}))
    assert answer["command"] == "umm step --model=llama-3-8b --batch=128 --length=8K --fsdp=8"
    (number,) = answer["numbers"]
    assert number["path"] == "step_s"
    assert number["low"] < number["value"] < number["high"]
    assert "h100-8" in number["source"]
    assert "Megatron-Bridge" in number["source"]


def test_umm_mcp_speaks_over_stdin_and_stdout():
    """An agent starts it as a process; of JAX's and torch's users it imports neither."""

    async def session():
        start = StdioServerParameters(
            command=sys.executable, args=["-c", "from umm.cli import start; start()", "mcp"]
        )
        async with Client(stdio_client(start)) as client:
            tools = {x.name: x for x in (await client.list_tools()).tools}
            answer = await client.call_tool("model", {"name_or_file": "llama-3-8b"})
        return tools, answer

    tools, answer = anyio.run(session)
    assert {"simulate", "search", "peers", "step", "machine_show"} <= tools.keys()
    assert all(x.annotations.read_only_hint and x.output_schema for x in tools.values())
    assert "48K means 49152" in tools["simulate"].input_schema["properties"]["m"]["description"]
    assert answer.structured_content["result"]["parameters"] == 8_030_261_248
    assert json.loads(answer.content[0].text) == answer.structured_content


def test_a_call_that_is_cancelled_ends_its_process(monkeypatch):
    """A search of minutes does not outlive the call; its process is gone."""
    import umm.mcp.server

    started = []
    run = anyio.open_process

    async def noted(*args, **more):
        started.append(await run(*args, **more))
        return started[-1]

    monkeypatch.setattr(anyio._core._subprocesses, "open_process", noted)

    async def session():
        with anyio.move_on_after(2):
            await umm.mcp.server.answered(
                umm.mcp.server.tools()["what_if"], {"preset": "mlp1", "machine": "pvc-12"}
            )

    anyio.run(session)
    (process,) = started
    assert process.returncode not in (None, 0)

"""Profiles of others: read as kernels, put beside a prediction, and explained."""

import gzip
import json
import math
from dataclasses import replace

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from made_profiles import event, kineto, written

import umm
from umm.cli.main import main
from umm.errors import InputError
from umm.profiles import chakra
from umm.profiles.beside import beside
from umm.profiles.files import load_profile
from umm.profiles.kernel import ATTENTION, COLLECTIVES, COPY, MAP, MULTIPLY, Kernel, Profile, kind_of
from umm.profiles.kineto import profile_of
from umm.program.models import find_model
from umm.space.what_if.measured import explanations, turns_of_step
from umm.space.what_if.profiled import causes
from umm.step.kernels import step_kernels
from umm.step.parallel import Parallel
from umm.step.step import question, rates_of, simulated

MACHINE = umm.machine("h100-8", {"nodes": "2"})


def asked(model="llama-3-8b", **sizes):
    """A step of 16 ranks on two nodes."""
    sizes = {"ranks": 16, "batch": 32, "length": 4096, "fsdp": 16} | sizes
    return question(find_model(model), Parallel(**sizes), rates_of(MACHINE, "bf16"))


@pytest.mark.parametrize(
    "sizes",
    [
        {"fsdp": 0, "tp": 8}, {"fsdp": 0, "tp": 2, "pp": 2, "batch": 64},
        {"fsdp": 0, "pp": 4, "vp": 2, "schedule": "interleaved"},
        {"fsdp": 0, "pp": 4, "vp": 2, "schedule": "dualpipe-v"}, {"fsdp": 0, "tp": 2, "cp": 2},
        {"fsdp": 0, "recompute": "full"}, {"fsdp": 0, "recompute": "selective", "tp": 4},
        {"fsdp": 0, "model": "mixtral-8x7b", "ep": 8},
        {"fsdp": 0, "model": "mixtral-8x7b", "ep": 8, "recompute": "moe_act", "keep_bf16": "last:3"},
    ],
)  # fmt: skip
def test_a_steps_kernels_take_the_seconds_of_its_stage(sizes):
    """Multiplies, attention and maps, but for the update's, make up the price of the pipeline's stage."""
    question_ = asked(**sizes)
    count = question_.parallel.micro_batches
    for number, stage in enumerate(question_.stages):
        kernels = [x for x in step_kernels(question_, number) if x.name != "update"]
        compute = sum(x.seconds * x.calls for x in kernels if x.kind not in COLLECTIVES)
        assert compute == pytest.approx(count * (stage.forward + stage.data + stage.weight), rel=1e-9)


def test_a_profile_is_put_beside_the_pipeline_stage_of_its_rank(tmp_path):
    """Rank 9 of 16 is in the second of two stages, which has the head: 4 x 4096 tokens by 128,256 words.

    The first stage has the embedding instead. A profile of other ranks is put beside the first, with a note.
    """
    saved, run = tmp_path / "step.json", CliRunner().invoke
    sizes = ["--model", "llama-3-8b", "--batch", "32", "--length", "4K"]
    sizes += ["--machine", "h100-8", "--nodes", "2"]
    assert run(main, ["step", *sizes, "--tp", "2", "--pp", "2", "--json", "-o", str(saved)]).exit_code == 0
    step = asked(fsdp=0, tp=2, pp=2)
    last = step_kernels(step, 1)
    head = [x for x in last if x.kind == MULTIPLY and 128256 // 2 in x.shape]
    assert {tuple(sorted(x.shape)) for x in head} == {(4096, 4096, 64128)}
    assert not [x for x in step_kernels(step) if x.kind == MULTIPLY and 128256 // 2 in x.shape]
    content = kineto(last)
    for rank, ranks, explained, note in ((9, 16, 1.0, ""), (9, 32, 0.95, "32 ranks, the prediction of 16")):
        content["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": ranks}
        path = written(content, tmp_path / "trace.json")
        result = run(main, ["compare", "--profile", str(path), str(saved), "--json"])
        answer = json.loads(result.stdout)
        assert answer["profile"]["rank"] == 9
        assert note in result.stderr
        assert (answer["explained"] > 0.999) == (explained == 1.0)
        assert (answer["matched"] > 0.999) == (explained == 1.0)


def test_a_schedules_rank_is_that_of_the_profile(tmp_path):
    """Of 1500 rows in tiles of 1024 rank 0 has 1024, rank 1 has 476; B is wholly at each, in one multiply."""
    layouts = ["--a", "cyclic:1024x1024:2x1", "--b", "row@2", "--c", "cyclic:1024x1024:2x1"]
    flags = ["-m", "1500", "-n", "1K", "-k", "1K", *layouts, "--dtype", "bf16"]
    flags += ["--ranks", "2", "--machine", "h100-8"]
    content = kineto([Kernel(MULTIPLY, "", 1e-4, (476, 1024, 1024))])
    for rank, by in ((0, "kind"), (1, "shape")):
        content["distributedInfo"] = {"rank": rank, "world_size": 2}
        path = written(content, tmp_path / "trace.json")
        result = CliRunner().invoke(main, ["compare", "--profile", str(path), *flags, "--json"])
        assert [x["matched_by"] for x in json.loads(result.stdout)["rows"]] == [by]


def test_a_profile_that_takes_what_is_predicted_is_explained():
    kernels = step_kernels(asked())
    result = beside(profile_of(kineto(kernels, steps=2)), kernels)
    assert result.explained == pytest.approx(1, abs=1e-3)
    assert result.matched == 1
    assert result.profile.steps == 2
    assert causes(result, MACHINE) == []


def test_all_gathers_over_sockets_are_named_and_their_bandwidth_closes_the_gap():
    """Five times as long between nodes: at 8 GB/s a card in place of 40; the number found predicts it."""
    step = asked()
    kernels = step_kernels(step)
    result = beside(profile_of(kineto(kernels, lambda x: 5.0 if x.kind == "all-gather" else 1.0)), kernels)
    first = causes(result, MACHINE)[0]
    assert first.words.startswith("all-gather of 16 ranks between nodes runs at ")
    assert "GB/s a card" in first.words
    assert "NET/Socket" in first.words
    key, value = first.setting.split("=")
    assert key == "fabric.network.card.bandwidth"
    slower = umm.machine("h100-8", {"nodes": "2", key: value})
    gathers = [x for x in kernels if x.kind == "all-gather" and x.name != "update"]
    again = question(step.model, step.parallel, rates_of(slower, "bf16"))
    longer = [x for x in step_kernels(again) if x.kind == "all-gather" and x.name != "update"]
    ratio = sum(x.seconds * x.calls for x in longer) / sum(x.seconds * x.calls for x in gathers)
    assert ratio == pytest.approx(5, rel=0.02)


def test_slow_clocks_waits_and_an_idle_device_are_distinguished():
    kernels = step_kernels(asked(length=2048))
    slow = beside(profile_of(kineto(kernels, lambda x: 1.4 if x.kind == MULTIPLY else 1.0)), kernels)
    assert causes(slow, MACHINE)[0].setting == "peak.bfloat16=x0.71"
    idle = beside(profile_of(kineto(kernels, gap=1e-3)), kernels)
    assert "idle" in causes(idle, MACHINE)[0].words
    late = profile_of(kineto(kernels))
    # Every second all-gather takes three times as long: the fastest ones show what the links can do.
    slow_ones = {x.start for x in [y for y in late.kernels if y.kind == "all-gather"][::2]}
    late = Profile(
        tuple(y._replace(seconds=3 * y.seconds) if y.start in slow_ones else y for y in late.kernels)
    )
    assert "for other ranks" in causes(beside(late, kernels), MACHINE)[0].words


@pytest.mark.parametrize(
    ("name", "precision", "key"),
    [
        ("h100-8", "fp8", "peak.float8"), ("h100-8", "fp8-block", "peak.float8"),
        ("b200-8", "nvfp4", "peak.float4"), ("mi300x-8", "bf16", "peak.bfloat16"),
    ],
)  # fmt: skip
def test_a_setting_that_is_offered_is_a_number_of_the_machine(name, precision, key):
    machine = umm.machine(name, {"nodes": "2"})
    parallel = Parallel(ranks=16, batch=32, length=4096, precision=precision)
    step = question(find_model("llama-3-8b"), parallel, rates_of(machine, precision))
    kernels = step_kernels(step)
    result = beside(profile_of(kineto(kernels, lambda x: 2.0 if x.kind == MULTIPLY else 1.0)), kernels)
    setting = causes(result, machine, step.rates.dtype)[0].setting
    assert setting == f"{key}=x0.50"
    slower, dtype = umm.machine(name, {"nodes": "2", key: "x0.50"}), step.rates.dtype
    assert slower.peak(dtype) == machine.peak(dtype) / 2


def test_three_multiplies_stand_beside_the_one_that_is_all_of_them():
    """Queries, keys and values apart, as torch has them without fusing: matched by kind."""
    predicted = [Kernel(MULTIPLY, "", 3e-3, (4096, 6144, 4096))]
    parts = [Kernel(MULTIPLY, "mm", 1e-3, (4096, n, 4096), start=i) for i, n in enumerate((4096, 1024, 1024))]
    result = beside(Profile(tuple(parts)), predicted)
    assert [(x.by, x.ratio) for x in result.rows] == [("kind", pytest.approx(1))]
    assert result.explained == pytest.approx(1)


def test_weights_gradients_match_transposed_and_others_do_not():
    predicted = [Kernel(MULTIPLY, "", 1e-3, (4096, 1024, 8192))]
    for shape, by in (((1024, 4096, 8192), "shape"), ((4096, 8192, 1024), "kind")):
        result = beside(Profile((Kernel(MULTIPLY, "mm", 1e-3, shape, start=0.0),)), predicted)
        assert result.rows[0].by == by


def test_a_profile_without_sizes_is_compared_by_kind():
    content = kineto(kernels := step_kernels(asked(length=2048)))
    for x in content["traceEvents"]:
        x.get("args", {}).pop("Input Dims", None)
    result = beside(profile_of(content), kernels)
    assert result.explained > 0.95
    assert {x.by for x in result.rows if x.kind == MULTIPLY} == {"kind"}


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(0, 3)), min_size=1, max_size=30))
def test_a_chakra_trace_comes_back_as_it_was_written(rows):
    """Names, types, waits, attributes; times to the nanosecond."""
    nodes, at = [], 0.0
    for i, (nanos, kind) in enumerate(rows, 1):
        attributes = (
            {"comm_type": 2, "comm_size": nanos, "pg_name": "µ\x00"} if kind == 3 else {"num_ops": 2**60}
        )
        seconds = nanos / 1e9
        nodes.append(
            chakra.Node(i, f"node {i}", 4 + kind, at, seconds, tuple(range(max(1, i - 2), i)), attributes)
        )
        at += seconds
    for back, node in zip(chakra.nodes_of(chakra.written(nodes)), nodes, strict=True):
        assert back._replace(start=0, seconds=0, attributes={}) == node._replace(
            start=0, seconds=0, attributes={}
        )
        assert back.seconds == pytest.approx(node.seconds, rel=1e-9)
        assert back.start == pytest.approx(node.start, abs=5.1e-7)
        assert node.attributes.items() <= back.attributes.items()


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader_of_chakra(content):
    """Random ones have no node that takes time: refused in a line, whatever breaks."""
    with pytest.raises(InputError, match="Chakra trace"):
        chakra.profile_of(content)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}", "no traceEvents are in it"),
        (b'{"traceEvents": []}', "no kernels are in the profile"),
        (b'[{"ph": "X", "cat": "kernel", "ts": 1, "dur": "long"}]', "dur of an event .* is no number"),
        (b'[{"ph": "X", "cat": "kernel", "ts": 1, "dur": -2}]', "takes -2e-06 s"),
        (b"[", "not a profile: the JSON ends or breaks"),
        (gzip.compress(b"[]")[:-9], "ends within its gzip stream"),
        (gzip.compress(b" " * 2**30), "unpacks to more than"),
        (b"\x1f\x8bnonsense", "is no gzip file that can be read"),
        (b"\x80\x81\xff", "neither Kineto's JSON nor a Chakra trace"),
    ],
)  # fmt: skip
def test_what_is_no_profile_is_refused_in_a_line(content, says, tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=says) as refused:
        load_profile(path)
    assert "\n" not in str(refused.value)


def test_an_event_with_hostile_texts_is_only_shown():
    """Names of kernels reach the terminal through its quoting, and no number is read out of a text."""
    name = 'gemm"\x1b[31m\n{"'
    profile = profile_of([event("kernel", name, "5", "2.5", {"device": 0, "External id": [1]})])
    assert profile.kernels[0].name == name
    assert profile.kernels[0].seconds == pytest.approx(2.5e-6)


def test_the_command_explains_a_profile_of_a_step(tmp_path):
    """The step's record and a packed profile: shares, rows, and the setting that closes the gap."""
    record, run = tmp_path / "step.json", CliRunner().invoke
    sizes = [
        "--model",
        "llama-3-8b",
        "--batch",
        "32",
        "--length",
        "2K",
        "--machine",
        "h100-8",
        "--nodes",
        "2",
    ]
    assert run(main, ["step", *sizes, "--fsdp", "16", "--json", "-o", str(record)]).exit_code == 0
    kernels = step_kernels(asked(length=2048))
    content = kineto(kernels, lambda x: 4.0 if x.kind == "all-gather" else 1.0)
    trace = written(content, tmp_path / "trace.json.gz")
    result = run(main, ["compare", "--profile", str(trace), str(record)])
    assert result.exit_code == 0, result.output
    assert "is in kernels that both have" in result.output
    assert "--set" in result.output
    answer = json.loads(run(main, ["compare", "--profile", str(trace), str(record), "--json"]).output)
    assert answer["matched"] == pytest.approx(1)
    assert answer["causes"][0]["setting"].startswith("fabric.network.card.bandwidth=")
    refused = run(main, ["compare", "--profile", str(trace), str(record), str(record)])
    assert (refused.exit_code, refused.output) == (
        2,
        "error: 2 predictions are too many for one profile; give one\n",
    )


def test_the_command_puts_a_profile_beside_a_simulated_trace(tmp_path):
    """A chain's multiplies and its gathered tensors, from the flags and from a saved trace alike."""
    flags = ["--chain", "mlp", "--tokens", "1K", "--hidden", "1K", "--ffn", "4K", "--machine", "h100-8"]
    flags += ["--layouts", "sequence", "--dtype", "bf16"]
    saved, run = tmp_path / "predicted.json", CliRunner().invoke
    assert run(main, ["simulate", *flags, "--save-trace", str(saved)]).exit_code == 0
    events = [
        event("kernel", "nvjet_tst", 1, 90.0, {"device": 0}),
        event("kernel", "relu", 95, 9.0, {"device": 0}),
    ]
    trace = written(events, tmp_path / "trace.json")
    answers = [
        json.loads(run(main, ["compare", "--profile", str(trace), *rest, "--json"]).output)
        for rest in (flags, [str(saved)])
    ]
    assert answers[0] == answers[1]
    assert " on h100-8: kernels " in run(main, ["compare", "--profile", str(trace), str(saved)]).output
    for rest, words in ((flags[:6], "needs the machine that it is of"), ([], "give what was predicted")):
        refused = run(main, ["compare", "--profile", str(trace), *rest])
        assert refused.exit_code == 2
        assert words in refused.output
    assert {x["kind"] for x in answers[0]["rows"]} == {MULTIPLY, MAP, "all-gather", "reduce-scatter"}


@pytest.mark.parametrize("factor", [0.93, 1.2, 2.0])
def test_the_number_sought_makes_the_step_take_the_measured_time(factor):
    step = asked()
    measured = factor * simulated(step)
    known = explanations(turns_of_step(step), measured)
    assert known[0].explains
    by_name = {x.name: x for x in known}
    for one in known:
        assert not one.explains or one.seconds == pytest.approx(measured, rel=0.01)
    card = by_name["fabric.network.card.bandwidth"]
    if card.explains:
        machine = umm.machine("h100-8", {"nodes": "2", "fabric.network.card.bandwidth": f"x{card.factor!r}"})
        again = replace(step, rates=rates_of(machine, "bf16"))
        assert simulated(again) == pytest.approx(measured, rel=0.01)
    steps = [abs(math.log(x.factor)) for x in known if x.explains]
    assert steps == sorted(steps)


def test_what_if_explains_a_measured_time(tmp_path):
    record, run = tmp_path / "step.json", CliRunner().invoke
    sizes = [
        "--model",
        "llama-3-8b",
        "--batch",
        "32",
        "--length",
        "4K",
        "--machine",
        "h100-8",
        "--nodes",
        "2",
    ]
    assert run(main, ["step", *sizes, "--fsdp", "16", "--json", "-o", str(record)]).exit_code == 0
    result = run(main, ["what-if", "--measured", "5s", "--step", str(record)])
    assert result.exit_code == 0, result.output
    assert "Nearest: " in result.output
    assert "NET/Socket" in result.output
    multiply = ["-m", "4K", "-n", "4K", "-k", "4K", "--a", "row", "--b", "col", "--c", "row", "--ranks", "8"]
    result = run(main, ["what-if", "--measured", "2ms", *multiply])
    assert result.exit_code == 0, result.output
    assert "fabric.bandwidth" in result.output
    for flags, words in (
        (["--measured", "soon"], "is not a time"),
        (["--step", str(record)], "--step needs --measured"),
        (["--measured", "5s", "--step", str(tmp_path / "none.json")], "cannot read"),
        (["--measured", "5s", "--step", __file__], "the JSON ends or breaks"),
    ):
        refused = run(main, ["what-if", *flags])
        assert refused.exit_code == 2
        assert words in refused.output


def test_a_step_is_as_the_device_marks_it_whose_kernels_are_taken():
    """The last device of a file marked the steps of all, and kernels of the first were in none of them."""
    kernels = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm",
            "ts": ts,
            "dur": 10,
            "args": {"device": device, "stream": 7},
        }
        for device, ts in ((0, 10), (0, 60), (1, 1010), (1, 1060))
    ]
    marks = [
        {
            "ph": "X",
            "cat": "gpu_user_annotation",
            "name": f"ProfilerStep#{i}",
            "ts": ts,
            "dur": 50,
            "pid": device,
        }
        for device, i, ts in ((0, 1, 0), (0, 2, 50), (1, 1, 1000), (1, 2, 1050))
    ]
    result = profile_of(kernels + marks)
    assert (result.steps, len(result.kernels)) == (2, 2)
    assert result.busy_s == pytest.approx(10e-6)


def device_events(*rows, device=0, stream=7):
    """Kernels by start and microseconds, launched one by one from the start of the trace."""
    return [
        event("kernel", "gemm", ts, took, {"device": device, "stream": stream, "correlation": number})
        for number, (ts, took) in enumerate(rows, 1)
    ]


def test_kernels_faster_than_predicted_are_not_said_to_take_what_is_predicted(tmp_path):
    sizes = ["--machine", "h100-8", "--ranks", "1", "-m", "4K", "-n", "4K", "-k", "4K", "--dtype", "bf16"]
    trace, run = tmp_path / "trace.json", CliRunner().invoke
    taken = json.loads(run(main, ["simulate", *sizes, "--json"]).output)["predicted"]["makespan_s"]
    for times, words in (
        (0.5, "Nothing is slower than predicted: kernels take 0.50 times as long.\n"),
        (1.0, "Nothing stands out: kernels take what is predicted.\n"),
    ):
        written([event("kernel", "gemm", 1, times * taken * 1e6, {"device": 0})], trace)
        assert run(main, ["compare", "--profile", str(trace), *sizes]).output.endswith(words)


def test_a_step_reaches_over_all_streams_of_its_device_and_to_the_next_one():
    """Kineto marks a step once a stream: one of 100 us, 20 us idle, one of 100 us, NCCL within each."""
    compute = device_events((0, 100), (120, 100))
    others = device_events((40, 10), (160, 10), stream=20)
    marks = [
        event("gpu_user_annotation", f"ProfilerStep#{i}", ts, took, {}, pid=0, tid=stream)
        for stream, i, ts, took in ((7, 1, 0, 100), (7, 2, 120, 100), (20, 1, 40, 10), (20, 2, 160, 10))
    ]
    result = profile_of([*compute, *others, *marks])
    assert (result.steps, len(result.kernels)) == (2, 4)
    assert result.span_s == pytest.approx(110e-6)
    assert result.busy_s == pytest.approx(100e-6)
    assert result.total_s == pytest.approx(110e-6)


def test_kernels_belong_to_the_step_that_launched_them_where_only_the_host_marks_it():
    """Two steps issued in 10 us each, 100 us long on the device; a kernel of the warm-up runs within them."""
    kernels = device_events((1000, 50), (1050, 100), (1150, 100))
    launches = [
        event("cuda_runtime", "hipLaunchKernel", ts, 1, {"correlation": number}, 9, 9)
        for number, ts in enumerate((995, 1005, 1015), 1)
    ]
    launches += [event("cuda_driver", "cuLaunchKernel", 1016, 0, {"correlation": 3}, 9, 9)]
    marks = [event("user_annotation", f"ProfilerStep#{i}", 1000 + 10 * i, 10, {}, 9, 9) for i in (0, 1)]
    result = profile_of([*kernels, *launches, *marks])
    assert [x.start for x in result.kernels] == [pytest.approx(1050e-6), pytest.approx(1150e-6)]
    assert result.total_s == pytest.approx(100e-6)
    assert result.span_s == pytest.approx(125e-6)  # from 1000 to 1250, two steps


def test_a_stray_copy_on_the_first_device_is_not_taken_for_the_profile():
    """A process of card 10 of a host left a copy and a small kernel on card 0."""
    stray = [event("gpu_memcpy", "Memcpy HtoD", 0, 900, {"device": 0}), *device_events((5, 3))]
    result = profile_of([*stray, *device_events((0, 100), device=10), *device_events((0, 100), device=9)])
    assert {x.lane[0] for x in result.kernels} == {"9"}
    assert result.devices == 3


@pytest.mark.parametrize("pid", ["[TP{0:02d}] {1}", "{0}000{1}"])
def test_ranks_of_a_merged_file_are_devices_of_their_own(pid):
    """SGLang's merger writes rank 1's device 0 as "[TP01] 0", others add 1000 a rank; ids are the same.

    Rank 0 multiplies 64 x 64 x 64 and rank 1, in another stage, 64 x 64 x 128, both at device 0.
    """
    events = []
    for rank in (0, 1):
        host, device = (pid.format(rank, x) for x in (4242, 0))
        args = {"External id": 5, "Input Dims": [[64, 64 * (rank + 1)], [64 * (rank + 1), 64]]}
        events.append(event("cpu_op", "aten::mm", 0, 5, args, host, host))
        events.append(event("kernel", "gemm", 10, 20, {"External id": 5, "device": 0, "stream": 7}, device))
        events.append(event("gpu_user_annotation", "ProfilerStep#1", 10, 30 + rank, {}, device, 7))
    result = profile_of(events)
    assert (result.devices, len(result.kernels)) == (2, 1)
    assert result.span_s == pytest.approx(30e-6)
    if pid.startswith("["):
        assert result.kernels[0].shape == (64, 64, 64)


def test_parts_of_a_multiply_split_along_k_are_one_call():
    sizes = {"External id": 4, "Input Dims": [[64, 8192], [8192, 64]]}
    events = [event("cpu_op", "aten::mm", 0, 5, sizes, 9, 9)]
    names = "cutlass_80_tensorop_bf16_s16816gemm", "void cublasLt::splitKreduce_kernel<32, 16, int>(…)"
    for ts, name, took in ((10, names[0], 20), (31, names[1], 4)):
        events.append(event("kernel", name, ts, took, {"External id": 4, "device": 0, "stream": 7}))
    row = beside(profile_of(events), [Kernel(MULTIPLY, "", 24e-6, (64, 64, 8192))]).rows[0]
    assert (row.by, row.measured.calls, row.ratio) == ("shape", 1, pytest.approx(1))


@pytest.mark.parametrize(
    ("name", "operator", "kind"),
    [
        ("triton_poi_fused__scaled_dot_product_flash_attention_3", "", MAP),
        ("triton_tem_fused_addmm_relu_5", "triton_tem_fused_addmm_relu_5", MULTIPLY),
        ("triton_tem_fused_flex_attention_0", "", ATTENTION),
        ("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<…>>", "aten::addmm", MAP),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(…)", "", "all-reduce"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "c10d::allreduce_", "all-reduce"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "nccl:_all_gather_base", "all-gather"),
        ("__amd_rocclr_copyBuffer.kd", "aten::copy_", COPY),
        ("fused_moe_kernel", "", MULTIPLY),
        ("void marlin::Marlin<__nv_bfloat16, 256, 4, 16, 4>(…)", "", MULTIPLY),
    ],
)  # fmt: skip
def test_kernels_of_compilers_and_engines_have_their_kind(name, operator, kind):
    assert kind_of(name, operator) == kind


def test_collectives_whose_sizes_differ_by_padding_are_one_row():
    """32 gathers of 100 MB and 32 of 105 MB beside 64 of 100 MB, in either order, and the other way round."""
    gather = {"kind": "all-gather", "name": "", "seconds": 1e-3, "ranks": 8}
    one = [Kernel(nbytes=10**8, calls=64, **gather)]
    two = [Kernel(nbytes=x, calls=32, start=0.0, **gather) for x in (105 * 10**6, 10**8)]
    for predicted, measured in ((one, two), (one, two[::-1]), (two, one), (two[::-1], one)):
        (row,) = (result := beside(Profile(tuple(measured)), predicted)).rows
        assert (row.by, row.predicted.calls, row.measured.calls) == ("shape", 64, 64)
        assert (result.explained, result.matched) == (pytest.approx(1), pytest.approx(1))
    (first, second) = beside(Profile(tuple(two)), two).rows
    assert first.measured.calls == second.measured.calls == 32


def test_small_calls_do_not_make_large_ones_wait():
    """10 gathers of 1 GB in 10 ms and 50 of 1 MB in 0.1 ms beside a predicted one of another size.

    No call waits for a rank. Where four of five large ones take 14 ms they wait 4 ms each; without sizes no
    wait is known.
    """
    gather = {"kind": "all-gather", "name": "", "ranks": 8, "start": 0.0}
    small = [Kernel(seconds=1e-4, nbytes=10**6, **gather)] * 50
    large = [Kernel(seconds=1e-2, nbytes=10**9, **gather)] * 10
    predicted = [Kernel(seconds=1e-2, nbytes=10**8, **gather)]
    late = [*small, *large[:1], *[Kernel(seconds=1.4e-2, nbytes=10**9, **gather)] * 4]
    for kernels, waits in (
        ([*small, *large], 0.0),
        (late, 16e-3),
        ([x._replace(nbytes=0) for x in late], 0.0),
    ):
        (row,) = beside(Profile(tuple(kernels)), predicted).rows
        assert (row.by, row.waits) == ("kind", pytest.approx(waits, abs=1e-12))


def test_chakra_names_each_collective_and_reads_no_number_out_of_a_text():
    """As schema/protobuf/et_def.proto numbers them: 3 is a gather to one rank, 8 a reduce-scatter."""
    numbers = {0: "all-reduce", 3: "send", 6: "all-to-all", 8: "reduce-scatter", "two": "all-reduce"}
    nodes = [
        chakra.Node(i, "nccl", chakra.COLLECTIVE, 0.0, 1e-6, attributes={"comm_type": x})
        for i, x in enumerate(numbers, 1)
    ]
    kinds = [x.kind for x in chakra.profile_of(chakra.written(nodes)).kernels]
    assert sorted(kinds) == sorted(numbers.values())

"""Numbers of a machine file from logs of benchmarks, and tables for other tools from a machine file."""

import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from command import good, record
from command import umm as command

import umm
from umm.emit.collective_tables import nccl_tuner, xla_table
from umm.machines.drafts.fits import fitted
from umm.machines.drafts.logs import gpu_of, is_log, read_log
from umm.machines.library import considered
from umm.plans.collectives.library import choose
from umm.units import parse_seconds

RANK = "#  Rank {0:2} Group  0 Pid  4711 on     node{1:02} device  {2} [0x1b] NVIDIA H100 80GB HBM3"
COLUMNS = "time   algbw   busbw #wrong"
HEAD = f"""# nThread 1 nGpus 8 minBytes 1048576 maxBytes 4294967296 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
{{ranks}}
#
#                                            out-of-place                       in-place
#       size         count      type   redop    root     {COLUMNS}     {COLUMNS}
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
SIZES = [2**x for x in range(20, 33)]


def log_of(what, seconds, redop="sum", ranks=8):
    """A log as nccl-tests prints it, whole microseconds without a point."""
    head = HEAD.format(ranks="\n".join(RANK.format(x, 1, x) for x in range(ranks)))
    factor = {"all-reduce": 2}.get(what, 1) * (ranks - 1) / ranks
    lines = []
    for nbytes in SIZES:
        us = seconds(nbytes) * 1e6
        algbw = nbytes / us / 1e3
        time = f"{us:8.2f}" if us < 1e4 else f"{us:8.0f}"
        columns = f"{time} {algbw:7.2f} {algbw * factor:7.2f}      0"
        lines.append(f"{nbytes:12} {nbytes // 4:13}     float {redop:>7}      -1 {columns} {columns}")
    return head + "\n".join(lines) + "\n# Avg bus bandwidth    : 300.0\n"


def law(what, start=1.0, rate=1.0, machine="h100-8"):
    m = umm.machine(machine)

    def seconds(nbytes):
        paces = m.library.ways(what)
        names = considered(paces, what, nbytes, 8)
        pace = min((paces[x] for x in names), key=lambda x: x.seconds(what, nbytes, 8, 374e9))
        return start * pace.start_s(8) + pace.moved(what, nbytes, 8) / (
            rate * pace.rate(8, 374e9, nbytes / 8)
        )

    return seconds


def fit(*logs, other="h100-8"):
    document = umm.machine(other).document
    return fitted(document, logs, umm.machine("h100-8").document["library"], "a test")


def test_a_log_says_collective_ranks_device_and_times():
    log = read_log(log_of("all-reduce", law("all-reduce")), "out.txt")
    assert (log.tool, log.gpu, len(log.collectives)) == ("nccl-tests", "H100", 13)
    first, last = log.collectives[0], log.collectives[-1]
    assert (first.what, first.ranks, first.nodes, first.nbytes) == ("all-reduce", 8, 1, 2**20)
    assert last.seconds == pytest.approx(law("all-reduce")(2**32), rel=1e-3)


def test_what_an_all_gather_and_an_all_to_all_print_alike_the_file_name_tells_apart():
    text = log_of("all-gather", law("all-gather"), "none")
    assert read_log(text, "alltoall_perf.log").collectives[0].what == "all-to-all"
    assert read_log(text, "all_gather.log").collectives[0].what == "all-gather"
    with pytest.raises(umm.errors.MachineError, match="which collective it is: name the file after it"):
        read_log(text, "out.log")
    assert (
        read_log(log_of("reduce-scatter", law("reduce-scatter")), "x").collectives[0].what == "reduce-scatter"
    )


def test_a_slower_library_is_found_again():
    """Starts times 1.3 and rates times 0.8: the fit's predictions come within 3 %, its link within 5 %."""
    result = fit(read_log(log_of("all-gather", law("all-gather", 1.3, 0.8), "none"), "all_gather.log"))
    assert max(abs(x.error) for x in result.residuals) < 0.03
    before = umm.machine("h100-8").document["library"]["all-gather"]["ring"]["link"]["value"]
    now = result.content["library"]["all-gather"]["ring"]["link"]
    assert now["value"] == pytest.approx(0.8 * before, rel=0.05)
    assert (now["source"], now["measured"]) == ("a test", True)
    assert any("all-gather: how starts and rates depend on the number of ranks" in x for x in result.unsaid)
    assert any("all-reduce: no row" in x for x in result.unsaid)


def test_copies_messages_and_gemms_set_their_numbers():
    copies = "Running device_to_device_memcpy_read_ce.\n       0      1\n 0   N/A  390.5\n 1  391.5    N/A\n"
    osu = "# OSU MPI Latency Test v7.3\n# Size Latency (us)\n0  5.0\n1048576  105.0\n4194304  405.0\n"
    gemms = "dtype,m,n,k,tflops\nbf16,8192,8192,8192,600\nbf16,16384,8192,8192,600\n"
    result = fit(*(read_log(text, "a") for text in (copies, osu, gemms)))
    now = {x.key: x.after for x in result.numbers}
    assert now["fabric.bandwidth"] == "391 GB/s"
    assert now["network.card.latency"] == "1 us"  # 5 us less 3 us of a transfer's overhead, two cards
    assert now["network.card.bandwidth"] == "10.36 GB/s"
    assert 0.6 < float(now["devices.efficiency.bfloat16"]) < 0.75
    bench = "[0]:transA,m,n,k,batch_count,a_type,hipblaslt-Gflops,us\n N,256,256,256,1,f16_r,100,4.0\n"
    (row,) = read_log(bench, "b").gemms
    assert (row.dtype, row.m, row.seconds) == ("float16", 256, pytest.approx(4e-6))


@pytest.mark.parametrize(
    ("columns", "cells", "batch"),
    [
        ("transA,transB,batch_count,m,n,k,lda,stride_b,ldb,a_type,hipblaslt-Gflops,us",
         "N,T,8,4096,4096,4096,1,1,1,bf16_r,600000,229", 8),
        ("dtype,m,n,k,lda,ldb,us", "bf16,4096,4096,4096,4096,4096,229", 1),
        ("dtype,b,m,n,k,status,time_us", "bf16,4,4096,4096,4096,1,229", 4),
        ("dtype,m,n,k,microseconds", "bf16,4096,4096,4096,229", 1),
        ("dtype,batch_size,m,n,k,time (us)", "bf16,16,4096,4096,4096,229", 16),
        ("\ufeffdtype,m,n,k,latency[ms]", "bf16,4096,4096,4096,0.229", 1),
        ("Problem,m,n,k,A,B,batch_count,Flops,Runtime,GFLOPs",
         "1,4096,4096,4096,bf16:row,bf16:column,1,137438953472,0.229,600170.1", 1),
    ],
)  # fmt: skip
def test_a_batch_and_a_time_are_columns_of_that_name_not_of_its_last_letters(columns, cells, batch):
    (row,) = read_log(f"{columns}\n{cells}\n", "b").gemms
    assert (row.dtype, row.m, row.batch, row.seconds) == ("bfloat16", 4096, batch, pytest.approx(229e-6))


@pytest.mark.parametrize(
    ("columns", "cells", "dtype"),
    [
        ("dtype", "tf32", "tf32"), ("dtype", "torch.float32", "float32"), ("dtype", "fp8_e4m3", "float8"),
        ("a_type,compute_type", "f32_r,xf32_r", "tf32"), ("a_type,compute_type", "f32_r,f32_r", "float32"),
        ("a_type,compute_type", "f16_r,f32_r", "float16"), ("dtype", "int8", ""),
    ],
)  # fmt: skip
def test_a_type_whose_name_holds_anothers_is_not_taken_for_it(columns, cells, dtype):
    """TF32 is several times as fast as FP32, whose share of the peak it set."""
    (row,) = read_log(f"{columns},m,n,k,us\n{cells},4096,4096,4096,350\n", "b").gemms
    assert row.dtype == dtype


@pytest.mark.parametrize(("dtype", "peak"), [("tf32", 494.5e12), ("fp8", 1979e12)])
def test_types_by_their_names_in_files_are_fitted(dtype, peak):
    """16384^3 at 0.6 of the peak: the efficiency that is fitted predicts it, and that of float32 stays."""
    rate = 0.6 * peak
    gemms = read_log(f"dtype,m,n,k,us\n{dtype},16384,16384,16384,{2 * 16384**3 / rate * 1e6}\n", "a")
    result = fit(gemms)
    (number,) = result.numbers
    assert number.key == f"devices.efficiency.{'float8' if dtype == 'fp8' else dtype}"
    assert result.residuals[0].error == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("name", ["h200-1", "pvc-12-planes"])
def test_messages_set_nothing_where_a_machine_lists_its_links_or_has_none(name):
    """A latency of messages belongs to one of several links, or to none; the fit leaves it open."""
    log = read_log("# OSU MPI Latency Test v7.3\n# Size Latency (us)\n0  5.0\n4194304  405.0\n", "a")
    document = umm.machine(name).document
    result = fitted(document, [log], umm.machine("h100-8").document["library"], "the test")
    assert not result.numbers
    assert any("no links, or lists each" in x for x in result.unsaid)


def test_the_command_prints_the_fit_and_writes_a_machine(tmp_path):
    log = tmp_path / "all_gather.log"
    log.write_text(log_of("all-gather", law("all-gather", 1.2), "none"))
    out = good("machine", "import", log)
    assert re.search(r"Off by [0-2]\.\d % of 13 rows", out)
    assert "Not determined: all-to-all: no row" in out
    result = record("machine", "import", log)
    assert result["from"] == "h100-8"
    assert len(result["residuals"]) == 13
    good("machine", "import", log, tmp_path / "mine.toml")
    assert umm.machine(tmp_path / "mine.toml").library.name == "NCCL"


def test_what_is_no_log_is_refused_in_one_line(tmp_path):
    plain = tmp_path / "notes.txt"
    plain.write_text("nothing to see\n")
    result = command("machine", "import", plain, "mine", "--from", "h100-8")
    assert result.exit_code == 2
    assert "neither" in result.stderr
    assert command("machine", "import", tmp_path / "none.log").exit_code == 2


def test_xlas_table_is_read_again_as_it_was_written():
    table = read_log(xla_table(umm.machine("h100-8"), "sm_90"), "table.txtpb")
    assert {x.ranks for x in table.collectives} == {2, 4, 8}
    for row in table.collectives[::17]:
        ranks = tuple(range(row.ranks))
        assert row.seconds == pytest.approx(
            choose(umm.machine("h100-8"), row.what, ranks, 8, row.nbytes).seconds, rel=1e-4
        )


def test_nccls_tuner_has_ranges_that_follow_each_other():
    lines = [x.split(",") for x in nccl_tuner(umm.machine("h100-8")).splitlines()[1:]]
    of_eight = [x for x in lines if x[0] == "allreduce" and x[-1] == "8"]
    assert [x[3] for x in of_eight] == ["tree", "tree", "ring", "nvls"]  # by LL, then by LL128
    assert [int(x[1]) for x in of_eight[1:]] == [int(x[2]) + 1 for x in of_eight[:-1]]
    assert good("machine", "export", "h100-8", "--nccl-tuner").startswith("# collective_type,")
    assert command("machine", "export", "pvc-12", "--xla").exit_code == 2


LOGS = Path(__file__).parent / "logs"


@pytest.mark.parametrize(
    ("name", "ranks", "tool", "rows"),
    [
        ("aws-k8s-tester-503-all_reduce.log", 16, "nccl-tests", 3),
        ("aws-k8s-tester-585-all_reduce.log", 16, "nccl-tests", 5),
        ("eessi-716-osu_bw.txt", None, "OSU micro-benchmarks", 7),
        ("hpc-ai-envs-30-all_reduce.log", None, "nccl-tests", 1),
        ("mooncake-3484.log", None, "nccl-tests", 7),
        ("mpich-7448-osu_allreduce.txt", None, "OSU micro-benchmarks", 1),
        ("nccl-1264-p2p.txt", None, "p2pBandwidthLatencyTest", 7),
        ("nvbandwidth-50.txt", None, "nvbandwidth", 30),
        ("rccl-1490-all_gather.log", 32, "nccl-tests", 5),
    ],
)
def test_logs_of_public_issues_are_read(name, ranks, tool, rows):
    """As they were pasted: with labels of srun and mpirun, without header or first lines."""
    log = read_log((LOGS / name).read_text(), name, ranks)
    assert log.tool == tool
    assert sum(map(len, (log.collectives, log.copies, log.messages))) == rows


def test_a_log_without_header_says_its_ranks_by_its_columns():
    """busbw over algbw of an all-reduce is 2(p - 1)/p: 242.00 / 138.28 = 1.750, so 8 ranks."""
    log = read_log((LOGS / "mooncake-3484.log").read_text(), "x.log")
    assert {(x.what, x.ranks) for x in log.collectives} == {("all-reduce", 8)}
    # 64 KiB are gathered from 512 floats of each rank: 32 of them.
    log = read_log((LOGS / "rccl-1490-all_gather.log").read_text(), "all_gather.log")
    assert {(x.what, x.ranks) for x in log.collectives} == {("all-gather", 32)}
    short = "# size count type redop root time algbw busbw\n 1024 256 float sum -1 20.0 0.05 0.09 0\n"
    with pytest.raises(umm.errors.MachineError, match="does not list the ranks: give --ranks"):
        read_log(short, "all_reduce.log")


@pytest.mark.parametrize("start", ["mpirun -np 192", "mpiexec -n 192 -ppn 96", "srun --ntasks=192"])
def test_the_command_before_osus_table_says_its_ranks(start):
    text = f"$ {start} osu_allreduce -d cuda\n# OSU MPI-CUDA Allreduce Latency Test v7.3\n2048 58.17 25.93\n"
    assert [(x.ranks, x.nbytes) for x in read_log(text, "x").collectives] == [(192, 2048)]
    with pytest.raises(umm.errors.MachineError, match="does not say the ranks: give --ranks"):
        read_log(text.partition("\n")[2], "x")


@pytest.mark.parametrize(
    ("title", "what", "nbytes"),
    [
        ("Reduce_scatter", "reduce-scatter", 2**20), ("Reduce_scatter_block", "reduce-scatter", 2**20),
        ("Allreduce", "all-reduce", 2**20), ("Allgather", "all-gather", 2**23),
        ("All-to-All Personalized Exchange", "all-to-all", 2**23),
    ],
)  # fmt: skip
def test_osus_sizes_are_of_the_whole_vector_or_of_a_ranks_part(title, what, nbytes):
    """Of 8 ranks and 1 MiB, as osu_reduce_scatter.c counts it: portion = size / numprocs."""
    log = read_log(f"# OSU MPI {title} Latency Test v7.3\n# Size  Avg Latency(us)\n1048576  90.0\n", "a", 8)
    (row,) = log.collectives
    assert (row.what, row.ranks, row.nbytes) == (what, 8, nbytes)


def test_times_that_are_none_are_left_out():
    """Of 1e-320 µs no second would be left."""
    text = "$ mpirun -np 8 osu_allreduce\n# OSU MPI Allreduce Latency Test\n1024 1e-320 1\n2048 58.17 1\n"
    assert [(x.nbytes, x.seconds) for x in read_log(text, "x").collectives] == [(2048, 58.17e-6)]


def test_a_list_of_ranks_with_dots_for_the_middle_ends_with_the_last():
    rows = [f"#  Rank {rank:2} Group  0 Pid  3 on  g100 device  {rank} [0x5] NVIDIA H100" for rank in (0, 7)]
    text = "\n".join([rows[0], "#  ...", rows[1], "# size count type redop root time algbw busbw"])
    text += "\n 2097152 2097152 f8e5m2 sum -1 42.52 49.32 86.30 0\n"
    assert [(x.what, x.ranks) for x in read_log(text, "x").collectives] == [("all-reduce", 8)]


@pytest.mark.parametrize(
    ("name", "result"),
    [
        ("vultr-b200.md", {("all-gather", 8): 13, ("reduce-scatter", 8): 8}),
        ("oci-mi355x.md", {("all-reduce", 8): 2, ("all-to-all", 8): 2}),
    ],
)
def test_a_report_of_a_cluster_holds_a_table_for_each_collective(name, result):
    log = read_log((LOGS / name).read_text(), name)
    assert Counter((x.what, x.ranks) for x in log.collectives) == result


def test_rows_of_gigabytes_leave_the_start_as_it_was():
    """8 and 16 GiB on 8 MI355X take the file's start within a tenth; their rate is the stated one."""
    log = read_log((LOGS / "oci-mi355x.md").read_text(), "oci-mi355x.md")
    result = fit(log, other="mi355x-8").content["library"]["all-reduce"]["ring"]["start"]["value"]
    was = umm.machine("mi355x-8").document["library"]["all-reduce"]["ring"]["start"]["value"]
    assert parse_seconds(result) == pytest.approx(parse_seconds(was), rel=0.1)


def test_nccls_protocols_fit_a_cluster_that_nobody_fitted():
    """8 B200 of another cluster, 1 MiB to 2 GiB: within 2 %, with LL up to 8 MiB and LL128 up to 64 MiB."""
    result = fit(read_log((LOGS / "vultr-b200.md").read_text(), "vultr-b200.md"), other="b200-8")
    off = [abs(x.predicted_s / x.measured_s - 1) for x in result.residuals]
    assert len(off) == 21
    assert np.mean(off) < 0.02


def test_copies_leave_out_those_of_a_device_with_itself():
    log = read_log((LOGS / "nccl-1264-p2p.txt").read_text(), "x")
    assert (min(log.copies), max(log.copies)) == (371.02e9, 376.82e9)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200-8"),
        ("NVIDIA H20", "h20-8"),
        ("NVIDIA GB200", "gb200-nvl72"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090-8"),
        ("AMD Instinct MI325X", "mi325x-8"),
    ],
)
def test_a_log_names_the_machine_of_its_device(name, expected):
    rows = "1048576 262144 float sum -1 30.0 34.95 61.17 0 30.0 34.95 61.17 0"
    ranks = "\n".join(f"#  Rank  {i} Group  0 Pid 1 on node device  {i} [0x1b] {name}" for i in range(8))
    log = read_log(f"# nThread 1 nGpus 8\n{ranks}\n# algbw busbw\n{rows}\n", "all_reduce.log")
    assert gpu_of([log]) == expected


@pytest.mark.parametrize(
    "label", ["[1,{0}]<stdout>:", "[1,{0}]<stdout>: ", "[prterun-node1-4711@1,{0}]<stdout>: "]
)
def test_labels_of_mpirun_are_no_part_of_a_log(label):
    """As ``mpirun --tag-output`` of Open MPI 4 and 5 prints them, before labels of srun or before none."""
    text = (LOGS / "eessi-716-osu_bw.txt").read_text()
    labelled = "".join(label.format(i % 2) + line for i, line in enumerate(text.splitlines(keepends=True)))
    assert is_log(labelled)
    assert read_log(labelled, "osu_bw.txt") == read_log(text, "osu_bw.txt")
    twice = "".join(f"{label.format(0)} 0: {line}" for line in text.splitlines(keepends=True))
    assert read_log(twice, "osu_bw.txt") == read_log(text, "osu_bw.txt")

"""``umm collective``: nccl-tests' columns, their JSON, and refusals."""

import pytest
from command import good, record, umm

import umm as library

TPU = ["--machine", "tpu-v5e-4"]


def test_the_columns_are_those_of_nccl_tests_beside_the_closed_form():
    """16 MiB over four: V/W · 3/4 = 125.83 µs and two hops of 1 µs; busbw comes near the 100 GB/s of W."""
    out = good("collective", "all-gather", *TPU, "--algorithm", "ring", "-b", "1MiB", "-e", "16MiB", "-f", 4)
    lines = out.splitlines()
    assert "among 4 ranks of tpu-v5e-4" in lines[0]
    assert lines[1].split()[1:] == [
        "size", "count", "type", "algorithm", "time", "algbw", "busbw", "closed", "form",
    ]  # fmt: skip
    assert [line.split() for line in lines[3:]] == [
        ["1048576", "65536", "float32", "ring", "9.86", "106.30", "79.72", "7.86"],
        ["4194304", "262144", "float32", "ring", "33.46", "125.36", "94.02", "31.46"],
        ["16777216", "1048576", "float32", "ring", "127.83", "131.25", "98.44", "125.83"],
    ]


@pytest.mark.parametrize(
    ("what", "factor"),
    [
        ("all-gather", 3 / 4),
        ("reduce-scatter", 3 / 4),
        ("all-reduce", 6 / 4),
        ("all-to-all", 3 / 4),
        ("broadcast", 1),
        ("reduce", 1),
    ],
)
def test_bandwidths_are_nccl_tests(what, factor):
    result = record("collective", what, *TPU, "-b", "4M", "-e", "4M")
    assert (result["schema"], result["command"], result["what"], result["ranks"]) == (
        1,
        "collective",
        what,
        4,
    )
    (row,) = result["rows"]
    assert row["nbytes"] == 2**22
    assert row["algbw"] == pytest.approx(2**22 / row["seconds"])
    assert row["busbw"] == pytest.approx(factor * row["algbw"])
    assert row["closed_form_s"] <= row["seconds"]


def test_without_an_algorithm_each_size_has_the_fastest():
    """On a switch few steps are best for small buffers; the fastest in Python is the fastest here."""
    rows = record("collective", "broadcast", "--machine", "h100-8", "-b", 64, "-e", "64M", "-f", 1024)["rows"]
    assert [row["algorithm"] for row in rows] == [
        library.collective("broadcast", nbytes=row["nbytes"], machine="h100-8").name for row in rows
    ]
    assert rows[0]["algorithm"] != rows[-1]["algorithm"]


def test_all_algorithms_are_compared_and_the_others_named():
    result = umm("collective", "all-reduce", *TPU, "--algorithm", "all", "-b", 1024, "-e", 1024)
    names = [line.split()[3] for line in result.stdout.splitlines()[3:]]
    assert names == ["direct", "grid", "halving-doubling", "ring", "star", "tree"]
    assert "without hierarchical: tpu-v5e-4 has no nodes" in result.stderr


def test_a_collective_is_executed_and_checked():
    """Each rank's own partial sums, in one process: right, to the last element of every replica."""
    for what in ("all-reduce", "reduce-scatter", "all-gather"):
        args = ("--executor", "numpy", "--ranks", 3, "-b", 100, "-e", 100, "--iters", 1, "--check")
        (row,) = record("collective", what, *args, "--algorithm", "ring")["rows"]
        assert row["ok"] is True
    assert good("collective", "reduce", *args).splitlines()[4].endswith("right")


@pytest.mark.mpi
@pytest.mark.usefixtures("shared_ranks")
def test_a_collective_is_executed_by_processes():
    args = ("--executor", "mpi", "--ranks", 2, "-b", "1K", "-e", "1M", "-f", 1024, "--iters", 2, "--check")
    rows = record("collective", "all-gather", *args, "--algorithm", "ring")["rows"]
    assert [(row["nbytes"], row["ok"]) for row in rows] == [(1024, True), (2**20, True)]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["gather"], "there is no collective 'gather'; choose from all-gather"),
        (["all-gather", "-b", "x"], "'x' is not a size in bytes"),
        (["all-gather", "-b", "2M", "-e", "1M"], "give an --end of at least --begin"),
        (["all-gather", "-b", "0"], "a buffer of 0 bytes has nothing to move; give a --begin of at least 1"),
        (["all-gather", "--check"], "executor sim moves no data; leave out --check"),
        (["all-to-all", "--algorithm", "tree"], "tree cannot do all-to-all among 8 ranks of h100-8"),
        (["all-gather", "--algorithm", "bruck"], "algorithm 'bruck' is unknown"),
        (["broadcast", "--root", 9], "root 9 is not one of the ranks 0 to 7"),
        (["broadcast", "--ranks", 9], "choose from 1 to 8"),
        (["broadcast", "--dtype", "int8"], "int8"),
        (["broadcast", "--means", "magic"], "no means 'magic'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(args, says):
    result = umm("collective", *args)
    assert result.exit_code == 2
    assert says in result.stderr
    assert result.stderr.strip().count("\n") == 0


def test_sizes_that_are_the_same_elements_are_one_row():
    """Of 1, 2, 4 and 8 bytes the first three are one element of 4 bytes."""
    rows = record("collective", "all-gather", "--ranks", 3, "-b", 1, "-e", 10)["rows"]
    assert [row["nbytes"] for row in rows] == [4, 8]

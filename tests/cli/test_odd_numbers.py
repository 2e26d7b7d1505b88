"""Numbers that int and float take otherwise than a person means, in every place that reads one."""

import pytest
from command import umm

from umm import Layout
from umm.errors import InputError, LayoutError
from umm.host.launcher import launched_rank
from umm.machines.drafts.logs import read_log
from umm.plans.movement.choice import is_movement
from umm.program.routing import Routing
from umm.units import parse_bytes, parse_dimension, parse_rate, parse_seconds

NINES = "9" * 5000
ODD = ("²", "٣", NINES, "nan", "inf", "1_0", "1e999", "-0", "0x10", "½", "")
NCCL = """# nThread 1 nGpus 8 minBytes 1 maxBytes 2
#  Rank  0 Group  0 Pid 1 on host device  0
#  Rank  7 Group  0 Pid 1 on host device  7
#       size         count      type   redop    root     time   algbw   busbw #wrong
 1048576 262144 float sum -1 20.0 52.4 91.8 0
 {size} {count} float sum -1 {time} 1.0 1.0 0
"""
TABLES = {
    "nccl": NCCL,
    "osu": "# OSU MPI Latency Test\n1024 2.0\n{size} {time}\n",
    "p2p": "Unidirectional P2P=Enabled Bandwidth\n   D\\D 0 1\n 0 900.1 100.5\n {count} {size} {time}\n",
    "csv": "m,n,k,us\n64,64,64,2.0\n{size},64,64,{time}\n",
    "xla": 'instruction {{ opcode: "all-reduce" shape {{ element_type: F32 dimensions: 1024 }} '
    "num_devices_per_group: 8 }} network_throughput_bytes_per_sec: 1000\n"
    'instruction {{ opcode: "all-reduce" shape {{ element_type: F32 dimensions: {size} }} '
    "num_devices_per_group: {count} }} network_throughput_bytes_per_sec: {time}\n",
}


@pytest.mark.parametrize("tool", TABLES)
@pytest.mark.parametrize("place", ["size", "count", "time"])
def test_a_row_of_a_log_with_an_odd_number_is_read_or_left_out(tool, place):
    """``²`` is a digit to isdigit and no number to int; 5,000 digits are none either."""
    for odd in ODD:
        text = TABLES[tool].format(**{"size": "2048", "count": "8", "time": "3.0", place: odd})
        log = read_log(text, "all_reduce.log", 8)
        rows = (*log.collectives, *log.messages, *log.gemms, *log.copies)
        assert 1 <= len(rows) <= 4
        assert all(not hasattr(row, "seconds") or 0 < row.seconds < 1e7 for row in rows)


@pytest.mark.parametrize("parse", [parse_bytes, parse_dimension, parse_rate, parse_seconds])
@pytest.mark.parametrize("odd", ODD)
def test_a_quantity_with_an_odd_number_is_refused(parse, odd):
    units = {parse_bytes: "B", parse_dimension: "", parse_rate: "flop/s", parse_seconds: "s"}
    if odd == "-0" and parse is not parse_dimension:
        return
    with pytest.raises(InputError):
        parse(odd + units[parse])


@pytest.mark.parametrize(
    "text",
    [
        "dtensor:mesh=2;Shard({})",
        "dtensor:mesh={};Shard(0)",
        "dtensor:mesh=2;_StridedShard(0,{})",
        "jax:mesh=x:{};P(x,None)",
        "scalapack:desc=1,0,{},8,4,4,0,0,4;grid=2x1",
        "scalapack:desc=1,0,8,8,4,4,0,0,4;grid={}x1",
        "scalapack:desc=1,0,8,8,4,4,0,0,4;grid=2x1;order={}",
        "hpf:(block,*) onto({})",
        "hpf:(cyclic({}),*)",
        "row@{}",
        "2d:{}x1",
        "cyclic:{}x1:2x1",
        "edges:0-{}x0-8:1x1",
    ],
)
def test_a_layout_with_an_odd_number_is_refused(text):
    for odd in ("²", "٣", NINES, "nan"):
        with pytest.raises(LayoutError):
            Layout.parse(text.format(odd), (8, 8), 2)


def test_a_routing_or_a_movement_with_an_odd_number_is_refused():
    for odd in ("²", NINES, "nan"):
        for text in (f"{odd}x6x2:uniform:0", f"37x6x2:zipf:{odd}:0", f"37x6x2:counts:{odd}-1:0"):
            with pytest.raises(InputError):
                Routing.parse(text)
        assert not is_movement(f"flat:{odd}")


@pytest.mark.parametrize(
    "args",
    [
        ("--nodes", "1,{}"),
        ("--nodes", "{}"),
        ("--ranks", "{}"),
        ("--ranks", "1,{}"),
        ("--set", "device.{}.peak=x0.5"),
        ("--set", "fabric.bandwidth=x{}"),
        ("--set", "devices.count={}"),
        ("--jitter", "{}%"),
        ("--straggler", "{}:0.5"),
        ("--scale", "{}"),
        ("--memory", "{}x"),
        ("--with", "panel={}"),
        ("--seed", "{}"),
    ],
)
def test_a_flag_with_an_odd_number_is_one_line(args):
    for odd in ("²", NINES, "1e999", "1.2.3")[: 1 if "1,{}" in args else None]:
        flag, value = args[0], args[1].format(odd)
        command = "search" if flag == "--memory" else "peers" if "1," in value else "simulate"
        result = umm(command, "-m", 16, "-n", 16, "-k", 16, "--machine", "h100-8", flag, value)
        assert result.exit_code in (0, 2), result.exception
        if result.exit_code:
            assert result.stdout == ""
            assert result.stderr.splitlines()[-1].startswith("error: ")
            assert len(result.stderr.splitlines()[-1]) < 2100


@pytest.mark.parametrize("name", ["PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_FD"])
def test_a_launchers_variable_with_an_odd_number_is_none(monkeypatch, name):
    for odd in ("²", NINES, "nan", "-1"):
        monkeypatch.setenv("PMI_PORT", "x")
        monkeypatch.setenv(name, odd)
        assert launched_rank() is None

"""Output of benchmarks of links, collectives and GEMMs, read as rows of measurements.

Read are nccl-tests and rccl-tests, nvbandwidth, CUDA's p2pBandwidthLatencyTest, OSU micro-benchmarks, XLA's
table of collectives (as text of its protocol buffer or as CSV), CSV of GEMMs, hipblaslt-bench and
rocblas-bench: as people paste them, in parts, with the labels that srun and mpirun put before each
line.
"""

import csv
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from umm.errors import MachineError
from umm.numbers import real_in, whole_in

COLLECTIVES = {
    "all_gather": "all-gather", "allgather": "all-gather", "all-gather": "all-gather",
    "reduce_scatter": "reduce-scatter", "reducescatter": "reduce-scatter", "reduce-scatter": "reduce-scatter",
    "all_reduce": "all-reduce", "allreduce": "all-reduce", "all-reduce": "all-reduce",
    "alltoall": "all-to-all", "all_to_all": "all-to-all", "all-to-all": "all-to-all",
    "all gather": "all-gather", "reduce scatter": "reduce-scatter", "all reduce": "all-reduce",
    "all to all": "all-to-all", "all2all": "all-to-all", "all 2 all": "all-to-all",
}  # fmt: skip
ITEMSIZES = {
    "int8": 1, "uint8": 1, "half": 2, "bfloat16": 2, "float": 4, "int32": 4, "uint32": 4, "double": 8,
    "int64": 8, "uint64": 8,
}  # fmt: skip
"""Bytes of an element, by the names that nccl-tests gives types."""
GPUS = {
    "GB300": "gb300-nvl72", "GB200": "gb200-nvl72", "B300": "b300-8", "B200": "b200-8", "H100": "h100-8",
    "H200": "h200-8", "H800": "h800-8", "H20": "h20-8", "A800": "a800-8", "A100": "a100-8", "L40S": "l40s-8",
    "RTX PRO 6000 Blackwell": "rtx-pro-6000-8", "GeForce RTX 4090": "rtx-4090-8",
    "GeForce RTX 5090": "rtx-5090-8", "NVIDIA GB10": "dgx-spark-2", "MI355X": "mi355x-8",
    "MI325X": "mi325x-8", "MI300X": "mi300x-8", "MI250X": "mi250x-8", "sm_90": "h100-8",
    "sm_100_GB200": "gb200-nvl72", "sm_100_B200": "b200-8", "gfx950": "mi355x-8", "gfx942": "mi300x-8",
}  # fmt: skip
"""Names of devices in logs, those that hold others first, and the machine whose numbers stand in."""

LEAST_US = 1e-6  # microseconds, a picosecond: a shorter time is none


class Timed(NamedTuple):
    """One timed collective; its name is "" where the log does not give it."""

    what: str  # the collective
    ranks: int  # of a group
    nodes: int  # number of hosts
    nbytes: int  # its size as nccl-tests counts it
    seconds: float  # its duration


class Message(NamedTuple):
    """One message between two ranks: seconds of one alone, or bytes/s of many."""

    nbytes: int
    seconds: float | None
    bandwidth: float | None


class Multiplied(NamedTuple):
    """One GEMM that was timed."""

    dtype: str
    m: int
    n: int
    k: int
    batch: int
    seconds: float


class Log(NamedTuple):
    """The rows of one file."""

    tool: str  # the tool that printed it
    gpu: str = ""  # the device's name, "" where the log does not say
    collectives: tuple[Timed, ...] = ()  # rows of collectives
    copies: tuple[float, ...] = ()  # Bytes/s of copies between pairs of devices
    messages: tuple[Message, ...] = ()  # rows of messages
    gemms: tuple[Multiplied, ...] = ()  # rows of GEMMs
    unsaid: tuple[str, ...] = ()  # facts that the file leaves open


MAX_BYTES, MAX_RANKS, MAX_SIDE = 2**50, 2**20, 2**31
"""Bytes of a buffer, ranks, and a side of a matrix, from which on a row of a log is not taken for one."""

LABELS = re.compile(
    r"^(?:[ \t]*\d+: |[ \t]*\[(?:[\w.-]+@)?\d+,\d+\]<std(?:out|err)>: ?|\[\d+\] ?(?=[#\s\d]))+", re.MULTILINE
)
"""What ``srun --label`` and ``mpirun --tag-output`` put before each line, within another log or not.

Open MPI 5 puts its launcher's name before the rank: ``[prterun-node1-4711@1,0]<stdout>: ``.
"""

ROW = r"[ \t]*\d+[ \t]+\d+[ \t]+[a-z]\w*[ \t]+[a-z]\w*[ \t]+(?:-?\d+[ \t]+)?(?:[\d.]+[ \t]+){3}\S+"
"""A row of nccl-tests: size, count, type, operation, in newer versions a root, time and two rates, errors."""


BOM = "\ufeff"  # what spreadsheets begin a CSV with


def read_log(text: str, name: str, ranks: int | None = None) -> Log:
    """Read a benchmark's file, by whichever tool it is from.

    MachineError if it is from no such tool, or holds no row.

    Args:
        name: Its name, which may say what was measured.
        ranks: Ranks of collectives whose log does not say, such as OSU's.
    """
    try:
        log = _read(LABELS.sub("", text.removeprefix(BOM)), name, ranks)
    except csv.Error as error:
        raise MachineError(f"{name} is no CSV that can be read: {error}") from None
    if not (log.collectives or log.copies or log.messages or log.gemms):
        raise MachineError(f"{name} holds no row of {log.tool} that can be used{_why(log)}")
    return log


def is_log(text: str) -> bool:
    """Whether a text is from one of the tools."""
    text = LABELS.sub("", text)
    return any(mark.search(text) for mark in _MARKS.values())


_MARKS = {
    "nccl-tests": re.compile(rf"^(#.*\balgbw\b.*\bbusbw\b|{ROW})", re.MULTILINE),
    "nvbandwidth": re.compile(r"^(nvbandwidth Version|Running (device|host)\w*memcpy)", re.MULTILINE),
    "p2pBandwidthLatencyTest": re.compile(r"^Unidirectional P2P=Enabled Bandwidth", re.MULTILINE),
    "OSU micro-benchmarks": re.compile(r"^# OSU MPI", re.MULTILINE),
    "XLA's table": re.compile(r"network_throughput_bytes_per_sec|^device,op,.*bytes_per_s", re.MULTILINE),
    "GEMM CSV": re.compile(
        r"^(?=.*\bm\b)(?=.*\bn\b)(?=.*\bk\b)(?=.*(us|ms|flops|seconds)).*,", re.MULTILINE | re.IGNORECASE
    ),
}


def _read(text: str, name: str, ranks: int | None) -> Log:
    tool = next((tool for tool, mark in _MARKS.items() if mark.search(text)), None)
    match tool:
        case "nccl-tests":
            return _nccl(text, name, ranks)
        case "nvbandwidth":
            return _nvbandwidth(text)
        case "p2pBandwidthLatencyTest":
            return _p2p(text)
        case "OSU micro-benchmarks":
            return _osu(text, ranks)
        case "XLA's table":
            return Log(tool, _gpu(text), tuple(_xla(text)))
        case "GEMM CSV":
            return Log(tool, _gpu(text), gemms=tuple(_gemms(text)))
    raise MachineError(
        f"{name} is not from any of {', '.join(_MARKS)}, nvidia-smi topo -m, hwloc; give one of these"
    )


def _ranks(text: str | None) -> int:
    """Return the ranks that a text is, 0 if it is no such number."""
    return whole_in(text, below=MAX_RANKS) or 0


def _why(log: Log) -> str:
    return f": {'; '.join(log.unsaid)}" if log.unsaid else ""


def _gpu(text: str) -> str:
    places = [(text.find(name), -len(name), name) for name in GPUS if name in text]
    return min(places)[2] if places else ""


def _named(text: str) -> str:
    """Return the collective that a text names, "" if none."""
    matches = re.findall(
        r"(?:^|[^a-z])(" + "|".join(sorted(COLLECTIVES, key=len, reverse=True)) + ")", text.lower()
    )
    names = {COLLECTIVES[x] for x in matches}
    return names.pop() if len(names) == 1 else ""


# nccl-tests -----------------------------------------------------------------------------------------


def _nccl(text: str, name: str, given: int | None) -> Log:
    """Read nccl-tests or rccl-tests: the columns before ``time`` differ by version, those after do not."""
    # A file may hold several tables, such as a report of a cluster: each has its ranks and its collective.
    rows: list[Timed] = []
    unsaid: dict[str, None] = {}
    for part in _tables(text):
        part_rows, open_ = _table(part, name, given)
        rows += part_rows
        unsaid |= dict.fromkeys(open_)
    return Log("nccl-tests", _gpu(text), tuple(rows), unsaid=tuple(unsaid))


ENDS = re.compile(r"\s*#?\s*$|\s*# ?(Out of bounds|Avg bus|Errors with|Collective test concluded)")
"""What nccl-tests prints after a table's rows."""


def _tables(text: str) -> Iterator[list[str]]:
    """Yield the lines of each table: those before its heading, its rows, and the test's last lines."""
    part: list[str] = []
    last = 0  # Lines up to the last row and what the test prints after it.
    for line in text.splitlines():
        if last and "algbw" in line and "busbw" in line:
            yield part[:last]
            part, last = part[last:], 0
        part.append(line)
        if _cells(line) is not None or (last == len(part) - 1 and last and ENDS.match(line)):
            last = len(part)
    yield part


def _table(lines: list[str], name: str, given: int | None) -> tuple[list[Timed], list[str]]:
    """Return the rows of a table, and the facts it leaves open."""
    # Ranks are those that the header lists, to the last; of a table without one those that are given, that a
    # heading states, or that follow from the columns.
    devices = [re.match(r"#\s+Rank\s+(\d+).*?\bon\s+(\S+)\s+device", line) for line in lines]
    hosts = [match[2] for match in devices if match]
    unsaid = []
    numbers = [_ranks(match[1]) for match in devices if match]
    ranks, nodes = max(numbers, default=-1) + 1, len(set(hosts))
    cells = [row for line in lines if (row := _cells(line)) is not None]
    heading = "\n".join(line for line in lines if _cells(line) is None)
    if not hosts:
        gpus = re.search(r"nGpus\s+(\d+)", heading)
        ranks, nodes = (_ranks(gpus[1]) if gpus else 0), 1
    collective = _named("\n".join(x for x in lines if "_perf" in x)) or _named(heading) or _named(name)
    if ranks < 2:
        stated = re.findall(r"\branks? ?[=:] ?(\d+)", heading)
        ranks = (
            given
            or (_ranks(stated[-1]) if stated else 0)
            or _by_count(collective, cells)
            or _ranks_of(collective, cells)
        )
        if ranks >= 2:
            how = "given" if given else "what its heading or its columns say"
            unsaid.append(f"its header does not list the ranks: {ranks} of one host, {how}")
        else:
            unsaid.append("its header does not list the ranks: give --ranks")
            cells = []
    rows = []
    for row in cells:
        what = collective or _by_factor(row.busbw / row.algbw if row.algbw else 0.0, ranks, row.redop)
        if row.nbytes > 0 and row.us >= LEAST_US:
            rows.append(Timed(what, ranks, nodes, row.nbytes, row.us * 1e-6))
    if any(not row.what for row in rows):
        unsaid.append("which collective it is: name the file after it, such as alltoall.log")
        rows = [row for row in rows if row.what]
    return rows, unsaid


class _Cells(NamedTuple):
    """A row of nccl-tests: bytes, operation, µs and the two rates in GB/s, bytes of its count."""

    nbytes: int
    redop: str
    us: float
    algbw: float
    busbw: float
    counted: int = 0


def _cells(line: str) -> _Cells | None:
    """Return the row that a line is, None if it is none."""
    cells = line.split()
    if line.startswith("#") or len(cells) < 6 or (nbytes := whole_in(cells[0], below=MAX_BYTES)) is None:
        return None
    redop = cells[3] if cells[3].isalpha() else ""
    rest = cells[4 if redop else 3 :]
    rest = rest[len(rest) % 4 :]  # a root, in newer versions; then twice time, algbw, busbw, wrong
    us, algbw, busbw = (real_in(cell) for cell in (*rest, "", "", "")[:3])
    if us is None or algbw is None or busbw is None:
        return None
    counted = (whole_in(cells[1], below=MAX_BYTES) or 0) * ITEMSIZES.get(cells[2], 0)
    return _Cells(nbytes, redop, us, algbw, busbw, counted)


def _by_count(what: str, rows: list[_Cells]) -> int:
    """Return among how many ranks a buffer is cut into the elements that a row counts; 0 if it is not."""
    parts = {row.nbytes // row.counted for row in rows if row.counted and row.nbytes % row.counted == 0}
    ranks = parts.pop() if len(parts) == 1 and what != "all-reduce" else 0
    return ranks if ranks >= 2 else 0


def _ranks_of(what: str, rows: list[_Cells]) -> int:
    """Return the ranks that busbw over algbw implies, (p − 1)/p or twice that; 0 if rounding leaves two.

    >>> _ranks_of("all-reduce", [_Cells(2**24, "sum", 121.33, 138.28, 242.0)])
    8
    """
    best = max(rows, key=lambda row: row.algbw, default=None)
    if not what and best is not None and best.busbw > best.algbw:
        what = "all-reduce"  # no other sends more than the whole
    if not what or best is None or best.algbw < 0.1:
        return 0
    factor, spread = best.busbw / best.algbw, 0.01 / best.algbw
    rest = 1.0 - factor / (2.0 if what == "all-reduce" else 1.0)
    if rest - spread <= 0:
        return 0
    low, high = 1.0 / (rest + spread), 1.0 / (rest - spread)
    ranks = round(1.0 / rest)
    return ranks if ranks - 0.5 < low and high < ranks + 0.5 else 0


def _by_factor(factor: float, ranks: int, redop: str) -> str:
    """Return the collective that busbw over algbw and the operation of sums imply; "" if several fit."""
    if ranks < 3:
        return ""
    if abs(factor - 2 * (ranks - 1) / ranks) < 0.05:
        return "all-reduce"
    if abs(factor - (ranks - 1) / ranks) < 0.05 and redop not in ("", "none"):
        return "reduce-scatter"
    return ""


# Copies and messages --------------------------------------------------------------------------------


def _nvbandwidth(text: str) -> Log:
    """Read the matrices of copies between devices; reads by copy engine if there are several."""
    rates_of: dict[str, list[float]] = {}
    running = ""
    for test in re.split(r"^(?=memcpy |Running )", text, flags=re.MULTILINE):
        # A test's name stands before its matrix, and after it beside the sum.
        running = match[1] if (match := re.match(r"Running (\w+)", test)) else running
        name = match[1] if (match := re.search(r"^SUM (\w+)", test, re.MULTILINE)) else running
        if name.startswith("device_to_device_memcpy") and "bidirectional" not in name:
            rates_of.setdefault(name, []).extend(_matrix(test))
    rates_of = {name: rates for name, rates in rates_of.items() if rates}
    order = sorted(rates_of, key=lambda name: ("_ce" not in name, "read" not in name))
    unsaid = () if rates_of else ("no test of copies from device to device is in it",)
    return Log("nvbandwidth", _gpu(text), copies=tuple(rates_of[order[0]]) if order else (), unsaid=unsaid)


def _p2p(text: str) -> Log:
    """Read the rates of peer copies in one direction; a device's copies to itself are on the diagonal."""
    part = re.split(r"^Unidirectional P2P=Enabled Bandwidth", text, flags=re.MULTILINE)[1]
    part = re.split(r"^[A-Z]", part.partition("\n")[2], flags=re.MULTILINE)[0]
    return Log("p2pBandwidthLatencyTest", _gpu(text), copies=tuple(_matrix(part)))


def _matrix(text: str) -> Iterator[float]:
    """Yield the bytes/s of a table of devices by devices in GB/s, those of a device with itself left out."""
    for line in text.splitlines():
        row, *cells = line.split() or [""]
        number, rates = whole_in(row), [real_in(cell) for cell in cells]
        if number is not None and all(
            x is not None or cell == "N/A" for x, cell in zip(rates, cells, strict=True)
        ):
            pairs = enumerate(zip(rates, cells, strict=True))
            yield from (x * 1e9 for i, (x, cell) in pairs if x is not None and "." in cell and i != number)


def _osu(text: str, ranks: int | None) -> Log:
    """Read osu_latency, osu_bw, osu_get_… and the collectives' latencies."""
    # Ranks are those that are given, or that the command before the table starts: `mpirun -np 192`.
    title = next(line for line in text.splitlines() if line.startswith("# OSU MPI"))
    rows = []
    for line in text.splitlines():
        cells = line.split()
        if len(cells) >= 2 and (nbytes := whole_in(cells[0], below=MAX_BYTES)) is not None:
            number = real_in(cells[1])
            rows += [(nbytes, number)] if number is not None and number >= LEAST_US else []
    what = _named(title)
    started = re.search(r"\b(?:mpirun|mpiexec|srun)\b.*?\s(?:--?np?|--ntasks)[ =](\d+)\b", text)
    if what:
        ranks = ranks or (_ranks(started[1]) if started else 0)
        if ranks < 2:
            return Log(
                "OSU micro-benchmarks", _gpu(text), unsaid=("it does not say the ranks: give --ranks",)
            )
        # A rank's own part is counted, but of sums the whole vector.
        multiple = 1 if what in ("all-reduce", "reduce-scatter") else ranks
        timed = [Timed(what, ranks, 1, x * multiple, us * 1e-6) for x, us in rows if x]
        return Log("OSU micro-benchmarks", _gpu(text), tuple(timed))
    if "Bidirectional" in title or "Bi-Directional" in title:
        return Log("OSU micro-benchmarks", unsaid=("both directions at once, which does not show one alone",))
    if "Bandwidth" in title:
        return Log("OSU micro-benchmarks", messages=tuple(Message(x, None, mb * 1e6) for x, mb in rows if x))
    return Log("OSU micro-benchmarks", messages=tuple(Message(x, us * 1e-6, None) for x, us in rows))


# XLA ------------------------------------------------------------------------------------------------


def _xla(text: str) -> Iterator[Timed]:
    if text.lstrip().startswith("device,"):
        for row in csv.DictReader(text.splitlines()):
            what, ranks = COLLECTIVES.get(row.get("op") or ""), _ranks(row.get("ranks_a_group"))
            total, us = whole_in(row.get("total_bytes"), below=MAX_BYTES), real_in(row.get("us"))
            if what and ranks > 1 and total and us and us >= LEAST_US:
                yield Timed(what, ranks, 1, total, us * 1e-6)
        return
    widths = {"F64": 8, "F32": 4, "BF16": 2, "F16": 2, "S32": 4, "U8": 1, "S8": 1}
    for entry in re.split(r"\binstruction\s*\{", text)[1:]:
        rate = re.search(r"network_throughput_bytes_per_sec:\s*(\d+)", entry)
        opcode = re.search(r'opcode:\s*"([a-z-]+?)(?:-start)?"', entry)
        kind = re.search(r"element_type:\s*(\w+)", entry)
        size = re.findall(r"\bdimensions:\s*(\d+)", entry.split("layout")[0])
        if not (rate and opcode and kind and size) or opcode[1] not in COLLECTIVES:
            continue
        group = re.search(r"num_devices_per_group:\s*(\d+)", entry)
        ranks = _ranks(group[1]) if group else len(re.findall(r"replica_ids:", entry))
        nbytes = widths.get(kind[1], 4)
        for number in size:
            nbytes *= whole_in(number, below=MAX_BYTES) or 0
        if COLLECTIVES[opcode[1]] == "reduce-scatter":
            nbytes *= ranks  # its shape is that of what comes out
        per_second = whole_in(rate[1])
        if ranks > 1 and per_second and 0 < nbytes < MAX_BYTES:
            yield Timed(COLLECTIVES[opcode[1]], ranks, 1, nbytes, nbytes / per_second)


# GEMMs ----------------------------------------------------------------------------------------------

_TYPES = {
    "bf16": "bfloat16", "bfloat16": "bfloat16", "f16": "float16", "fp16": "float16", "float16": "float16",
    "half": "float16", "tf32": "tf32", "xf32": "tf32", "f32": "float32", "float32": "float32",
    "single": "float32", "f64": "float64", "float64": "float64", "double": "float64", "fp8": "float8",
    "float8": "float8", "f8": "float8", "e4m3": "float8", "e5m2": "float8",
}  # fmt: skip
"""Types by a part of their name, those first whose name holds another's."""

_SECONDS = {"us": 1e-6, "ms": 1e-3, "seconds": 1.0, "microseconds": 1e-6, "milliseconds": 1e-3}
_RATES = {"tflops": 1e12, "tflop/s": 1e12, "tflop_s": 1e12, "gflops": 1e9, "gflop/s": 1e9}
"""What names of columns end with, and what their numbers count."""
_BATCHES = "batch_count", "batch", "batch_size", "batch size", "batchsize", "num_batches"
WORD = "[^a-z]"  # what precedes a whole word at the end of a column's name


def _gemms(text: str) -> Iterator[Multiplied]:
    """Read tables whose header has m, n, k and a time or a rate, wherever in the text they begin."""
    header: list[str] | None = None
    for cells in csv.reader(text.splitlines()):
        names = [re.sub(r"^\[\d+\]:", "", cell.strip().lower()).rstrip(")]") for cell in cells]
        if {"m", "n", "k"} <= set(names):
            header = names
        elif header is not None and len(cells) >= len(header) - 1:
            row = dict(zip(header, (cell.strip() for cell in cells), strict=False))
            multiplied = _gemm(row)
            if multiplied is not None:
                yield multiplied


def _gemm(row: dict[str, str]) -> Multiplied | None:
    def number(end: str, bound: str = "") -> float | None:
        ending = re.compile(f"(.*{bound})?{re.escape(end)}")
        numbers = (real_in(cell) for name, cell in row.items() if ending.fullmatch(name))
        return next((x for x in numbers if x is not None), None)

    type_text = next(
        (row[x] for x in ("dtype", "type", "types", "a_type", "compute_type", "a") if x in row), ""
    )
    dtype = next((name for key, name in _TYPES.items() if key in type_text.lower().split("->")[0]), "")
    if dtype == "float32" and re.search("[tx]f32", row.get("compute_type", "").lower()):
        dtype = "tf32"
    # By a whole word: `status` is no time, and `transb`, `ldb` and `stride_b` are no batch.
    batches = next((x for end in _BATCHES if (x := number(end, WORD))), real_in(row.get("b")) or 1.0)
    sizes = [*(real_in(row.get(x)) for x in "mnk"), batches]
    m, n, k, batch = (round(x) if x is not None and 1 <= x < MAX_SIDE else 0 for x in sizes)
    if not (m and n and k and batch):
        return None
    flop = 2.0 * m * n * k * batch
    took = {end: number(end, WORD) for end in _SECONDS}
    for end, seconds in took.items():
        if seconds and seconds * _SECONDS[end] >= LEAST_US * 1e-6:
            return Multiplied(dtype, m, n, k, batch, seconds * _SECONDS[end])
    rates = {end: number(end) for end in _RATES}
    for end, rate in rates.items():
        if rate and rate > 0:
            return Multiplied(dtype, m, n, k, batch, flop / (rate * _RATES[end]))
    return None


def gpu_of(logs: Iterable[Log]) -> str | None:
    """Return the machine whose device the logs name, None if they name none or several."""
    named = {GPUS[log.gpu] for log in logs if log.gpu}
    return named.pop() if len(named) == 1 else None

"""Measured multiplies from tables of others: Parquet or CSV with a shape and a time in every row."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from umm.errors import InputError, did_you_mean
from umm.files import read_bytes
from umm.machines.machine import MATRIX_TYPES, Machine
from umm.machines.tables import COLUMNS, MOST_ROWS
from umm.numbers import real_in, whole_in
from umm.quoting.terminal import visible
from umm.units import format_seconds, percent

MOST_TABLE = 2**28  # bytes of a table that are read
MAX_SIDE = 2**31  # a side of a matrix from which on a row is refused
TYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "half": "float16",
    "float32": "float32", "float64": "float64", "fp8": "float8", "float8": "float8", "float8_e4m3": "float8",
    "fp8_block": "float8:128", "float8:128": "float8:128", "nvfp4": "float4", "float4": "float4",
}  # fmt: skip
"""Types as tables call them, AIConfigurator's among them, and as machine files do."""
TIMES = {"seconds": 1.0, "latency": 1e-3, "ms": 1e-3, "us": 1e-6}
"""Columns of times and their unit in seconds; AIConfigurator's latency is in ms."""
UNITS = "latency and ms are milliseconds, us microseconds"
MOST_OF_PEAK = 10.0  # times the peak from which on no measurement can be right; units differ by a thousand
LEAST_OF_PEAK = 0.01  # share of the peak that some long multiply reaches
LONG_S = 50e-6  # seconds at the peak from which on a multiply is long
AIC, AIC_TABLE = "aiconfigurator_core", "perf.parquet"
SYSTEMS = {
    "a100_sxm": "a100-8", "h100_sxm": "h100-8", "h200_sxm": "h200-8", "b200_sxm": "b200-8",
    "b300_sxm": "b300-8", "gb200": "gb200-nvl72", "gb300": "gb300-nvl72", "l40s": "l40s-8",
    "rtx_pro_6000_server": "rtx-pro-6000-8",
}  # fmt: skip
"""AIConfigurator's systems, and the machines that have their devices."""


class Measured(NamedTuple):
    """The multiplies of some tables."""

    rows: dict[tuple[str, int, int, int], float]  # the least time of each type and shape
    left: dict[str, int]  # rows of types that umm does not multiply, by type


def read_measured(paths: Iterable[Path]) -> Measured:
    """Return the multiplies of tables: columns m, n, k, a type (dtype or gemm_dtype) and a time.

    InputError if a file is not such a table.
    """
    rows: dict[tuple[str, int, int, int], float] = {}
    left: dict[str, int] = {}
    for path in paths:
        name = visible(path.name)
        for number, line in enumerate(lines_of(path), 1):
            if number == 1:
                dtype, time = _columns(line, name)
            if line[dtype] not in TYPES:
                left[str(line[dtype])] = left.get(str(line[dtype]), 0) + 1
                continue
            # Parquet has numbers, of floating point too, where CSV has text.
            sizes = [real_in(str(line[x]).strip()) or 0.0 for x in "mnk"]
            seconds = (real_in(str(line[time]).strip()) or 0.0) * TIMES[time]
            if seconds <= 0 or not all(1 <= x < MAX_SIDE and x.is_integer() for x in sizes):
                raise InputError(f"{name}, row {number}: m, n, k and {time} must be numbers of more than 0")
            m, n, k = map(int, sizes)
            key = TYPES[line[dtype]], m, n, k
            rows[key] = min(seconds, rows.get(key, math.inf))
            if len(rows) > MOST_ROWS:
                raise InputError(f"{name} has more than {MOST_ROWS:,} shapes, which are not read")
    if not rows:
        kinds = f"; its types are {', '.join(map(visible, left))}" if left else ""
        raise InputError(f"no row is of a type that umm multiplies{kinds}; choose from {', '.join(TYPES)}")
    return Measured(rows, left)


def doubt_of(rows: Mapping[tuple[str, int, int, int], float], machine: Machine) -> str:
    """Return a remark where no long multiply comes near the machine's peak, "" if one does.

    InputError if one is far above it.
    """
    shares: dict[tuple[str, int, int, int], float] = {}
    long_shares = []
    for key, seconds in rows.items():
        name, m, n, k = key[0].partition(":")[0], *key[1:]
        ideal = 2.0 * m * n * k / machine.peaks.get(MATRIX_TYPES.get(name, name), math.inf)
        shares[key] = ideal / seconds
        if ideal > LONG_S:
            long_shares.append(shares[key])
    dtype, m, n, k = fastest = max(shares, key=lambda x: shares[x], default=("", 0, 0, 0))
    if shares.get(fastest, 0.0) > MOST_OF_PEAK:
        raise InputError(
            f"{m} x {n} x {k} of {dtype} in {format_seconds(rows[fastest])} is {shares[fastest]:,.4g} times "
            f"the peak of {machine.name}; its time is in another unit ({UNITS}), or it was measured elsewhere"
        )
    if long_shares and max(long_shares) < LEAST_OF_PEAK:
        return (
            f"no multiply reaches {percent(LEAST_OF_PEAK)} of the peak of {machine.name}; are times in "
            f"another unit ({UNITS})?"
        )
    return ""


def _columns(line: Mapping[str, Any], name: str) -> tuple[str, str]:
    """Return the columns of the type and of the time; InputError if one is missing."""
    dtype = next((x for x in ("dtype", "gemm_dtype") if x in line), None)
    time = next((x for x in TIMES if x in line), None)
    if dtype is None or time is None or not {"m", "n", "k"} <= line.keys():
        raise InputError(
            f"{name} has the columns {', '.join(visible(str(x)) for x in line)}; multiplies need m, n, k, "
            f"dtype or gemm_dtype, and one of {', '.join(TIMES)}"
        )
    return dtype, time


def lines_of(path: Path) -> Iterator[Mapping[str, Any]]:
    """Return the rows of a table, Parquet or CSV, by column; InputError if it is neither."""
    return _parquet(path) if path.suffix == ".parquet" else _csv(path)


def _csv(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        text = read_bytes(path, MOST_TABLE).decode("utf-8-sig")  # spreadsheets begin with its mark
        yield from csv.DictReader(io.StringIO(text, newline=""))
    except (UnicodeDecodeError, csv.Error):
        raise InputError(f"{visible(path.name)} is neither Parquet (.parquet) nor CSV in UTF-8") from None


def _parquet(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise InputError(
            f"{visible(path.name)} is Parquet, which pyarrow reads: pip install 'umm-sim[parquet]'"
        ) from None
    try:
        with parquet.ParquetFile(io.BytesIO(read_bytes(path, MOST_TABLE))) as file:
            if file.metadata.num_rows > 10 * MOST_ROWS:
                raise InputError(f"{visible(path.name)} has more than {10 * MOST_ROWS:,} rows")
            for batch in file.iter_batches():
                for line in batch.to_pylist():  # a value may be a list, a struct or bytes
                    yield {x: y if isinstance(y, str | int | float) else str(y) for x, y in line.items()}
    except InputError:
        raise
    except (ArrowException, OSError, ValueError) as error:  # also of names and texts that are not UTF-8
        first = next(iter(str(error).splitlines()), "it cannot be read")
        raise InputError(f"{visible(path.name)} is no Parquet file: {visible(first)}") from None


def table_text(rows: Mapping[Any, float], columns: Sequence[str] = COLUMNS) -> str:
    """Return rows as a table that is beside a machine file: of multiplies, or with the columns of another.

    >>> print(table_text({("bfloat16", 1, 2, 3): 1.25e-6}), end="")
    dtype,m,n,k,seconds
    bfloat16,1,2,3,1.25e-06
    """
    lines = [f"{','.join(map(str, key))},{seconds:.6g}" for key, seconds in sorted(rows.items())]
    return "\n".join([",".join(columns), *lines, ""])


def aic_table(asked: str, data: Path | None = None) -> tuple[str, str, Path]:
    """Return the machine, the engine and the table of multiplies of ``SYSTEM/ENGINE[/VERSION]``.

    InputError if there is none, or the package is not installed.

    Args:
        asked: As AIConfigurator calls them: ``h100_sxm/vllm``; without a version the newest.
        data: The folder of its systems; that of the installed package if None.
    """
    system, _, rest = asked.partition("/")
    engine, _, version = rest.partition("/")
    if system not in SYSTEMS:
        raise InputError(f"--aic {visible(asked)}: {did_you_mean(system, list(SYSTEMS))}")
    if data is None:
        spec = find_spec(AIC)
        if spec is None or not spec.submodule_search_locations:
            raise InputError("--aic reads the tables of aiconfigurator-core: pip install 'umm-sim[aic]'")
        data = Path(next(iter(spec.submodule_search_locations))) / "systems" / "data"
    folder = data / system / "gemm"
    engines = sorted(x.name for x in folder.glob("*") if x.is_dir())
    if engine not in engines:
        raise InputError(f"--aic {visible(asked)}: {did_you_mean(engine, engines)}")
    tables = {x.parent.name: x for x in folder.glob(f"{engine}/*/gemm_{AIC_TABLE}")}
    chosen = version or newest(tables)
    if chosen not in tables:
        raise InputError(f"--aic {visible(asked)}: {did_you_mean(chosen, list(tables))}")
    return SYSTEMS[system], engine, tables[chosen]


def newest(versions: Iterable[str]) -> str:
    """Return the newest of some versions; empty without any."""
    return max(versions, key=_order, default="")


def _order(version: str) -> list[tuple[int, str]]:
    """Return a version's sort key: numbers by value, not by letter."""
    parts = "".join(x if x.isdigit() else f".{x}." if x != "." else "." for x in version).split(".")
    return [(number, "") if (number := whole_in(x)) is not None else (-1, x) for x in parts if x]

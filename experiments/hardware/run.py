"""Calibrate, measure, compare and write everything down; existing results are not measured again."""

import argparse
import csv
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

import umm
from experiments.hardware.points import BATCHES, DTYPES, PROBLEMS, Point, problems
from umm.comparison import rank_agreement
from umm_hw.bfloat16 import to_bfloat16
from umm_hw.calibrate.gpu import calibrate, machine_text
from umm_hw.calibrate.gpu_benchmarks import SIDES, SIZES, Bench, GpuMeasurements
from umm_hw.cuda.executor import CudaExecutor
from umm_hw.devices.device import Device, Region
from umm_hw.devices.dtypes import device_dtype
from umm_hw.devices.links import BLOCKS, WAYS

FOLDER = Path(__file__).parent
SUFFIX = {"kernel": "", "landing": "-landing"}  # of the files of each way to accumulate
DEVICE = ("name", "memory", "copy_engines", "units")  # what machine files say of a GPU beside measurements
PACKAGES = ("umm-sim", "numpy", "cupy-cuda13x", "nvidia-cublas", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure on the visible GPUs, or say why that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m experiments.hardware", description=__doc__)
    parser.add_argument("--problems", nargs="+", default=list(PROBLEMS), choices=list(PROBLEMS))
    parser.add_argument("--batches", nargs="+", type=int, default=list(BATCHES), metavar="M")
    parser.add_argument("--dtypes", nargs="+", default=list(DTYPES))
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--iters", type=int, default=5, help="counted runs of each layout, after one more")
    parser.add_argument(
        "--again", type=Path, metavar="FOLDER", help="predict what is measured there anew; no GPU"
    )
    options = parser.parse_args(arguments)
    if options.again is not None:
        predict_again(options.again)
        return
    from umm_hw.gpu.visible import gpu_problem, visible_gpus

    reason = gpu_problem("cuda")
    if reason is not None:
        raise SystemExit(f"error: {reason}")
    devices = visible_gpus()
    folder = FOLDER / f"{devices[0].name.lower().replace(' ', '-')}-{len(devices)}"
    measure_all(devices, folder, **{key: value for key, value in vars(options).items() if key != "again"})


def measure_all(
    devices: Sequence[Device],
    folder: Path,
    problems: list[str],
    batches: list[int],
    dtypes: list[str],
    ranks: int,
    iters: int,
    scale: int = 1,
    sides: Sequence[int] = SIDES,
    sizes: Sequence[int] = SIZES,
    note: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),
) -> None:
    """Write a calibration for each way to accumulate, points.csv, summary.json and versions.txt."""
    folder.mkdir(parents=True, exist_ok=True)
    for way in WAYS:
        calibrate_once(devices, folder, way, note, sides, sizes)
    (folder / "versions.txt").write_text(versions(), encoding="utf-8")
    points = measure_points(devices, folder, problems, batches, dtypes, ranks, iters, scale, note)
    raw = {way: json.loads((folder / f"calibration{SUFFIX[way]}.json").read_text()) for way in WAYS}
    result = summary(devices[0], points, raw, scale)
    (folder / "summary.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    note(json.dumps(result, indent=1))


def calibrate_once(
    devices: Sequence[Device],
    folder: Path,
    way: str,
    note: Callable[[str], None],
    sides: Sequence[int],
    sizes: Sequence[int],
) -> None:
    """Write the machine file of one way to accumulate, and its raw numbers, unless they are there."""
    machine_file = folder / f"machine{SUFFIX[way]}.toml"
    if machine_file.exists():
        return
    note(f"calibrating with accumulate={way}")
    types = ("float64", "float32", "float16", "bfloat16")
    text, measured = calibrate(devices, types, note, BLOCKS, sides, sizes, way)
    raw = {"device": {x: getattr(devices[0], x) for x in DEVICE}, "devices": len(devices), **asdict(measured)}
    raw["gemm"] = {
        dtype: {"x".join(map(str, shape)): seconds for shape, seconds in table.items()}
        for dtype, table in measured.gemm.items()
    }
    raw_file = folder / f"calibration{SUFFIX[way]}.json"
    raw_file.write_text(json.dumps(raw, indent=1) + "\n", encoding="utf-8")
    machine_file.write_text(text, encoding="utf-8")


def predict_again(folder: Path) -> None:
    """Write the machine files, the predictions and the agreement of a folder anew from its measurements."""
    for way in WAYS:
        raw = json.loads((folder / f"calibration{SUFFIX[way]}.json").read_text(encoding="utf-8"))
        device, count = SimpleNamespace(**raw.pop("device")), raw.pop("devices")
        text = machine_text(cast(Device, device), count, _measurements(raw), "cuda")
        (folder / f"machine{SUFFIX[way]}.toml").write_text(text, encoding="utf-8")
    file = folder / "points.csv"
    with file.open(encoding="utf-8", newline="") as lines:
        points = [_point(row) for row in csv.DictReader(lines)]
    machine = umm.machine(str(folder / "machine.toml"))
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow([field.name for field in fields(Point)])
        for number, point in enumerate(points):
            seconds = umm.run(point.schedule(machine), executor="sim").makespan_s
            points[number] = replace(point, predicted_s=seconds)
            writer.writerow(asdict(points[number]).values())
    result = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    alone = {(x["problem"], x["m"], x["dtype"], x["ranks"]): x["one_cublas_call_s"] for x in result["sets"]}
    result["sets"] = sets(points, lambda *key: alone[key])
    (folder / "summary.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


def _measurements(raw: dict[str, Any]) -> GpuMeasurements:
    gemm = {
        dtype: {tuple(map(int, shape.split("x"))): seconds for shape, seconds in table.items()}
        for dtype, table in raw["gemm"].items()
    }
    tables = {key: {int(x): y for x, y in raw[key].items()} for key in ("copy", "local_copy")}
    adds = {int(blocks): {int(x): y for x, y in table.items()} for blocks, table in raw["accumulate"].items()}
    return GpuMeasurements(**raw | tables | {"gemm": gemm, "accumulate": adds})


def measure_points(
    devices: Sequence[Device],
    folder: Path,
    names: list[str],
    batches: list[int],
    dtypes: list[str],
    ranks: int,
    iters: int,
    scale: int,
    note: Callable[[str], None],
) -> list[Point]:
    """Return every point, those of points.csv without measuring them again."""
    file = folder / "points.csv"
    columns = [field.name for field in fields(Point)]
    if not file.exists():
        file.write_text(",".join(columns) + "\n", encoding="utf-8")
    with file.open(encoding="utf-8", newline="") as lines:
        points = [_point(row) for row in csv.DictReader(lines)]
    known = {(p.problem, p.m, p.dtype, p.ranks, p.layouts) for p in points}
    machine = umm.machine(str(folder / "machine.toml"))
    executor = CudaExecutor(devices=devices)
    operands: tuple[Any, ...] = ()
    kept = ""
    for name, problem, stationary in problems(names, batches, dtypes, ranks, scale):
        text = f"{problem.a} {problem.b} {problem.c} {stationary}"
        if (name, problem.m, problem.dtype, ranks, text) in known:
            continue
        if kept != problem.dtype or [x.shape for x in operands] != [problem.shape(x) for x in "AB"]:
            rng = np.random.default_rng(0)
            operands = tuple(_operand(rng, problem.shape(x), problem.dtype) for x in "AB")
            kept = problem.dtype
        schedule = umm.schedule(problem, machine, stationary=stationary, final="reduce")
        predicted = umm.run(schedule, executor="sim").makespan_s
        traces = executor.runs(schedule, operands, repeat=1 + iters, result=False)
        times = [trace.makespan_s for trace in traces[1:]]
        best = min(times)
        point = Point(name, problem.m, problem.dtype, ranks, text, predicted, best, max(times) - best)
        points.append(point)
        with file.open("a", encoding="utf-8", newline="") as lines:
            csv.writer(lines).writerow([getattr(point, column) for column in columns])
        note(f"{name} m={problem.m} {problem.dtype} {text}: {best:.6f} s, predicted {predicted:.6f} s")
    return points


def _operand(rng: np.random.Generator, shape: tuple[int, int], dtype: str) -> NDArray[Any]:
    """Return random numbers that are rounded once, not for every layout."""
    array = 2 * rng.random(shape, np.float32) - 1
    return to_bfloat16(array) if dtype == "bfloat16" else array


def summary(
    device: Device, points: list[Point], raw: dict[str, dict[str, Any]], scale: int
) -> dict[str, Any]:
    """Return the points' summary: agreement, and the best layout against one cuBLAS call."""
    largest = str(max(map(int, raw["kernel"]["copy"])))
    return {
        "accumulate_share_of_copy": {
            way: {
                blocks: figures["copy"][largest] / times[largest]
                for blocks, times in figures["accumulate"].items()
            }
            for way, figures in raw.items()
        },
        "interference": {way: figures["interference"] for way, figures in raw.items()},
        "excluded": {way: figures["excluded"] for way, figures in raw.items()},
        "sets": sets(
            points,
            lambda name, m, dtype, ranks: one_call(
                device, m, *(size // scale for size in PROBLEMS[name]), dtype
            ),
        ),
    }


def sets(points: list[Point], one_call: Callable[[str, int, str, int], float]) -> list[dict[str, Any]]:
    """Return the agreement of each problem, and its best layout against one cuBLAS call."""
    result = []
    key = lambda point: (point.problem, point.m, point.dtype, point.ranks)  # noqa: E731
    for (name, m, dtype, ranks), group in groupby(sorted(points, key=key), key):
        rows = list(group)
        agreement = rank_agreement([p.predicted_s for p in rows], [p.measured_s for p in rows])
        best = min(rows, key=lambda point: point.measured_s)
        alone = one_call(name, m, dtype, ranks)
        result.append(
            {
                "problem": name,
                "m": m,
                "dtype": dtype,
                "ranks": ranks,
                "layouts": len(rows),
                "median_error": float(np.median([abs(point.error) for point in rows])),
                "kendall_tau": agreement.tau,
                "regret": agreement.regret,
                "best": best.layouts,
                "best_s": best.measured_s,
                "one_cublas_call_s": alone,
                "fraction_of_one_call": alone / best.measured_s,
            }
        )
    return result


def one_call(device: Device, m: int, n: int, k: int, dtype: str) -> float:
    """Return the seconds of the whole problem as one cuBLAS call on one GPU."""
    of_c = np.dtype(np.float32) if dtype != "float64" else np.dtype(np.float64)
    parts = [((m, k), device_dtype(dtype)), ((k, n), device_dtype(dtype)), ((m, n), of_c)]
    places = [device.allocate(rows * cols * kind.itemsize) for (rows, cols), kind in parts]
    a, b, c = (Region.packed(place, shape, kind) for place, (shape, kind) in zip(places, parts, strict=True))
    peer = device.allocate(4)
    seconds = Bench(device, peer).seconds(lambda stream: device.multiply(a, b, c, stream))
    for place in (*places, peer):
        device.free(place)
    return seconds


def versions() -> str:
    """Return the installed packages and the GPU driver, one per line."""
    lines = [f"python {platform.python_version()}", f"command {' '.join(sys.argv)}"]
    for package in PACKAGES:
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"{package} not installed")
    try:
        query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv"]
        lines.append(subprocess.run(query, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError) as error:
        lines.append(f"nvidia-smi: {error}")
    return "\n".join(lines) + "\n"


def _point(row: dict[str, str]) -> Point:
    kinds = {"m": int, "ranks": int, "predicted_s": float, "measured_s": float, "spread_s": float}
    return Point(**{name: kinds.get(name, str)(value) for name, value in row.items()})  # type: ignore[operator]

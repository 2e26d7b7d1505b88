"""Times of torch's kernels on one GPU: multiplies of XLA's table, decode, attention, norms.

``python -m experiments.hardware.kernels --shapes TABLE.csv -o FOLDER`` writes ``kernels.csv``. A row for each
case has the median seconds of all kernels of one call, as CUPTI clocks them, and the kernels' names. Operands
are uniform in [-1, 1), or zero in the rows that say so. It needs torch and an NVIDIA GPU.
"""

import argparse
import csv
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

CALLS = 12  # of each case, of which the first two do not count
BATCH = 60  # cases under one profiler
COLUMNS = ("case", "b", "m", "n", "k", "types", "seconds", "kernels")
FP8 = {"f8e4m3fn": "float8_e4m3fn", "f8e5m2": "float8_e5m2"}
SHAPES = (
    *((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    *((1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)),
)  # n and k of the weights of llama-3-8b, and of llama-3-70b over 8 ranks

Case = tuple[tuple[Any, ...], Callable[[], object]]


def main() -> None:
    """Measure until all is done or the time is up."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", type=Path, help="a table with the columns device, b, m, n, k, types")
    parser.add_argument("--device", default="sm_90", help="whose rows of the table")
    parser.add_argument("--of", default="decode,attention,norms,short", help="which cases beside the table's")
    parser.add_argument("-o", "--output", type=Path, default=Path())
    parser.add_argument("--seconds", type=float, default=120.0)
    options = parser.parse_args()
    import torch

    end = time.monotonic() + options.seconds
    torch.backends.cuda.matmul.allow_tf32 = True
    file = options.output / "kernels.csv"
    with file.open("w", encoding="utf-8", newline="") as lines:
        writer = csv.writer(lines)
        writer.writerow(COLUMNS)
        groups = {"decode": decode, "attention": attention, "norms": norms, "short": short}
        cases: list[Callable[[], Case]] = [case for name in options.of.split(",") for case in groups[name]()]
        if options.shapes:
            rows = [x for x in csv.DictReader(options.shapes.open()) if x["device"] == options.device]
            random.Random(0).shuffle(rows)
            cases += [lambda row=row: multiply(row) for row in rows]
            bf16 = [row for row in rows if row["types"].startswith("bf16")]
            cases += [lambda row=row: multiply(row, zero=True) for row in [*bf16[:60], *rows[:90]]]
        for first in range(0, len(cases), BATCH):
            if time.monotonic() > end:
                print(f"time is up: {len(cases) - first} cases were not measured")
                break
            for row in measured(cases[first : first + BATCH]):
                writer.writerow(row)
            lines.flush()
    print(torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), f"{file} written")


def measured(cases: list[Callable[[], Case]]) -> Iterator[tuple[Any, ...]]:
    """Yield a row for each case; of one that torch refuses the error is printed."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    marker = torch.empty(7, dtype=torch.uint8, device="cuda")
    done: list[tuple[Any, ...]] = []
    with profile(activities=[ProfilerActivity.CUDA]) as result:
        for make in cases:
            try:
                name, call = make()
                call()
            except Exception as error:
                print("not measured:", str(error).splitlines()[0][:150])
                continue
            torch.cuda.synchronize()
            marker.fill_(1)
            for _ in range(CALLS):
                call()
            torch.cuda.synchronize()
            marker.fill_(2)
            done.append(name)
            del call
    kernels = [x for x in result.profiler.kineto_results.events() if str(x.device_type()).endswith("CUDA")]
    kernels.sort(key=lambda event: event.start_ns())
    groups: list[list[Any]] = []
    inside = False
    for event in kernels:
        if "FillFunctor<unsigned char>" in event.name():
            inside = not inside
            if inside:
                groups.append([])
        elif inside:
            groups[-1].append(event)
    for name, group in zip(done, groups, strict=True):
        each, rest = divmod(len(group), CALLS)
        if rest or not each:
            print("not a multiple of the calls:", name, len(group))
            continue
        calls = [group[first : first + each] for first in range(0, len(group), each)][2:]
        seconds = median(sum(x.duration_ns() for x in call) for call in calls) * 1e-9
        yield *name, f"{seconds:.4g}", " + ".join(x.name()[:160] for x in calls[-1])


def operand(shape: tuple[int, ...], dtype: Any, zero: bool = False) -> Any:
    """Return a matrix on the GPU, uniform in [−1, 1)."""
    import torch

    if zero:
        return torch.zeros(shape, device="cuda", dtype=torch.bfloat16).to(dtype)
    return (torch.rand(shape, device="cuda", dtype=torch.float32) * 2 - 1).to(dtype)


def multiply(row: dict[str, str], zero: bool = False) -> Case:
    """Return a multiply of the table."""
    import torch

    b, m, n, k = (int(row[x]) for x in "bmnk")
    of_a, of_b = row["types"].split("->")[0].split("x")
    name = ("zeros" if zero else "gemm", b, m, n, k, row["types"])
    if of_a in FP8:
        if b > 1:
            raise ValueError("torch multiplies no batches in 8 bits")
        one = torch.ones((), device="cuda")
        x = operand((m, k), getattr(torch, FP8[of_a]), zero)
        y = operand((n, k), getattr(torch, FP8[of_b]), zero).t()
        return name, lambda: torch._scaled_mm(x, y, one, one, out_dtype=torch.bfloat16)
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[of_a]
    shapes = ((b, m, k), (b, k, n)) if b > 1 else ((m, k), (k, n))
    x, y = (operand(shape, dtype, zero) for shape in shapes)
    return name, lambda: torch.matmul(x, y)


def decode() -> Iterator[Callable[[], Case]]:
    """Yield multiplies of few rows by weights of llama-3-8b, and of llama-3-70b over 8 ranks."""
    import torch

    def case(m: int, n: int, k: int) -> Case:
        # Weights in turn, more than the caches hold.
        weights = [operand((n, k), torch.bfloat16) for _ in range(max(1, int(2e8 / (2 * n * k))))]
        x, turn = operand((m, k), torch.bfloat16), iter(range(10**9))
        return ("decode", 1, m, n, k, "bf16xbf16->bf16"), lambda: torch.nn.functional.linear(
            x, weights[next(turn) % len(weights)]
        )

    for m in (1, 2, 4, 8, 16, 32, 64, 128, 256):
        for n, k in SHAPES:
            yield lambda m=m, n=n, k=k: case(m, n, k)  # type: ignore[misc]


def short() -> Iterator[Callable[[], Case]]:
    """Yield multiplies by weights of 8 bits, with one scale, one a row, and one for each 128 × 128."""
    import torch

    def case(m: int, n: int, k: int, scaled: str) -> Case:
        weights = [random_weight(n, k, scaled) for _ in range(max(1, int(1e8 / (n * k))))]
        x, turn = operand((m, k), torch.float8_e4m3fn), iter(range(10**9))
        kind = torch.nn.functional.ScalingType
        if scaled == "block":
            factors = torch.ones((k // 128, m), device="cuda").t()
        else:
            factors = torch.ones((m, 1) if scaled == "row" else (), device="cuda")

        def call() -> Any:
            w, scale = weights[next(turn) % len(weights)]
            if scaled == "block":
                return torch.nn.functional.scaled_mm(
                    x,
                    w.t(),
                    factors,
                    kind.BlockWise1x128,
                    scale,
                    kind.BlockWise128x128,
                    output_dtype=torch.bfloat16,
                )
            return torch._scaled_mm(x, w.t(), factors, scale, out_dtype=torch.bfloat16, use_fast_accum=True)

        return (f"short {scaled}", 1, m, n, k, "f8e4m3fnxf8e4m3fn->bf16"), call

    for m in (4, 16, 64, 128, 256, 1024, 4096, 8192):
        for n, k in SHAPES:
            for scaled in ("tensor", "row", "block"):
                yield lambda m=m, n=n, k=k, s=scaled: case(m, n, k, s)  # type: ignore[misc]


def random_weight(n: int, k: int, scaled: str) -> tuple[Any, Any]:
    """Return a weight of 8 bits and its scales, as cuBLAS takes them."""
    import torch

    w = operand((n, k), torch.float8_e4m3fn)
    if scaled != "block":
        return w, torch.ones((1, n) if scaled == "row" else (), device="cuda")
    return w, torch.ones((n // 128, -(-k // 512) * 4), device="cuda").t()


def attention() -> Iterator[Callable[[], Case]]:
    """Yield causal attention with 4 to 32 heads of 128, forward and with its gradients."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def case(tokens: int, backend: str, backward: bool, counts: tuple[int, int] = (32, 8)) -> Case:
        q, k, v = (
            operand((1, heads, tokens, 128), torch.bfloat16).requires_grad_(backward)
            for heads in (*counts, counts[1])
        )

        def forward() -> Any:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                return torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=True, enable_gqa=True
                )

        kind = f"attention {backend.lower()} {'backward' if backward else 'forward'}"
        name = (kind, 1, tokens, counts[0], 128, "bf16")
        if not backward:
            return name, forward
        out = forward()
        grad = torch.rand_like(out)
        return name, lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True)

    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION"):
        for tokens in (512, 1024, 2048, 4096, 8192, 16384):
            for backward in (False, True):
                yield lambda t=tokens, b=backend, w=backward: case(t, b, w)  # type: ignore[misc]
    for counts in ((4, 1), (8, 1), (8, 2), (16, 2), (16, 4)):
        for tokens in (1024, 2048, 4096, 8192, 16384, 32768):
            for backward in (False, True):
                yield lambda t=tokens, w=backward, o=counts: case(t, "CUDNN_ATTENTION", w, o)  # type: ignore[misc]


def norms() -> Iterator[Callable[[], Case]]:
    """Yield an RMS norm, gated silu and a residual add, one kernel each as torch has them, and gradients."""
    import torch

    def case(kind: str, tokens: int, width: int) -> Case:
        x, y = (operand((tokens, width), torch.bfloat16) for _ in range(2))
        weight = operand((width,), torch.bfloat16)
        name = (kind, 1, tokens, width, 1, "bf16")
        if kind == "rms_norm backward":
            p, w = x.requires_grad_(), weight.requires_grad_()
            out = torch.nn.functional.rms_norm(p, (width,), w)
            return name, lambda: torch.autograd.grad(out, (p, w), y, retain_graph=True)
        calls = {
            "rms_norm": lambda: torch.nn.functional.rms_norm(x, (width,), weight),
            "silu": lambda: torch.nn.functional.silu(x),
            "add": lambda: x + y,
            "copy": x.clone,
        }
        return name, calls[kind]

    for kind in ("rms_norm", "rms_norm backward", "silu", "add", "copy"):
        for tokens in (1, 64, 1024, 8192):
            for width in (4096, 8192, 28672):
                yield lambda k=kind, t=tokens, w=width: case(k, t, w)  # type: ignore[misc]


if __name__ == "__main__":
    main()
